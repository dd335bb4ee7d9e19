"""Files of one wheel: by ranges, else from the downloaded wheel, or from disk; and the progress of a download.

Callers get the same in each case. A listener gets the progress if there is one; else stderr shows a bar if it is a
terminal, and otherwise a line every half minute is reported.
"""

from __future__ import annotations

import contextlib
import errno
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hatch_torch_ext.facts.content import sha256, size
from hatch_torch_ext.remote import archive
from hatch_torch_ext.remote.archive import ArchiveError
from hatch_torch_ext.remote.http import FileSource, HttpSource, NoRangesError, RemoteError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hatch_torch_ext.remote.archive import ArchiveMember
    from hatch_torch_ext.remote.http import Http, Source
    from hatch_torch_ext.resolve import ResolvedWheel, Scope


class FetchError(Exception):
    """A wheel cannot be fetched, or is damaged; the message is a sentence with a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFiles:
    """``members`` are all files of the wheel, ``contents`` the chosen ones; ``received`` counts received bytes."""

    members: tuple[ArchiveMember, ...]
    contents: tuple[tuple[ArchiveMember, bytes], ...]
    received: int


def read(
    scope: Scope,
    wheel: ResolvedWheel,
    pattern: re.Pattern[str],
    *,
    with_whole: Callable[[Source, tuple[ArchiveMember, ...]], None] | None = None,
) -> FetchedFiles:
    """Return the wheel's files whose full names match ``pattern``, each checked by size and CRC.

    If the server does not support ranges, or sends wrong ones, or if the author's requirement names the hash, the whole
    wheel is downloaded and its hash checked; ``with_whole`` is called with it before it is removed. Raises
    ``FetchError``.
    """
    title = f"{wheel.name} {wheel.version}"
    if wheel.path is not None:
        return _read_from_disk(scope, wheel, wheel.path, pattern)
    http, source = scope.http, None
    problem = "a hash is required, and only the whole file can be checked against it"
    try:
        if not wheel.pinned:
            source = HttpSource(http, wheel.url, wheel.size)
            return replace(_read(source, pattern, title, scope.report), received=source.received)
    except (NoRangesError, ArchiveError) as error:
        problem = str(error)
    except RemoteError as error:
        raise FetchError(str(error)) from error
    scope.report(f"{title}: fetching the whole wheel, since {problem}")
    with _whole(scope, wheel, http, wheel.size if source is None else source.size) as whole:
        try:
            fetched = _read(whole, pattern, title, scope.report)
            if with_whole is not None:
                with_whole(whole, fetched.members)
        except ArchiveError as error:
            raise FetchError(
                f"the wheel of {wheel.name} {wheel.version} is damaged: {error}. Tell the owner of the index"
            ) from error
        return replace(fetched, received=whole.size)


def _read_from_disk(scope: Scope, wheel: ResolvedWheel, path: Path, pattern: re.Pattern[str]) -> FetchedFiles:
    try:
        if wheel.pinned and wheel.sha256 is not None and (found := sha256(path)) != wheel.sha256:
            raise FetchError(
                f"the wheel {path} has the SHA-256 {found}, but {wheel.sha256} is required. Fetch it again, or "
                "correct the requirement"
            )
        return _read(FileSource(path), pattern, f"{wheel.name} {wheel.version}", scope.report)
    except (ArchiveError, RemoteError, OSError) as error:
        raise FetchError(f"the wheel {path} cannot be used: {error}. Fetch it again") from error


def _read(source: Source, pattern: re.Pattern[str], title: str, report: Callable[[str], None]) -> FetchedFiles:
    members = archive.directory(source)
    chosen = [member for member in members if pattern.fullmatch(member.name)]
    contents = []
    with progress(title, sum(member.compressed for member in chosen), report) as tick:
        for member, data in archive.extract(source, chosen):
            tick(member.compressed)
            contents.append((member, data))
    return FetchedFiles(members=members, contents=tuple(contents), received=0)


@contextlib.contextmanager
def _whole(scope: Scope, wheel: ResolvedWheel, http: Http, size: int | None) -> Iterator[Source]:
    """Provide the downloaded wheel, of at most ``size`` bytes: those that the index or an earlier answer stated."""
    title = f"{wheel.name} {wheel.version}"
    with scope.store.scratch() as scratch, progress(title, size, scope.report) as tick:
        target = scratch / "wheel"
        try:
            http.download(wheel.url, target, wheel.sha256, tick, promised=size)
        except RemoteError as error:
            raise FetchError(str(error)) from error
        yield FileSource(target)


def sentence(error: FetchError | OSError, scope: Scope) -> str:
    """Return the error as a sentence for the user."""
    if not isinstance(error, OSError):
        return scope.settings.scrub(str(error))
    root = scope.store.root
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return (
            f"no space is left for the cache {root} ({error.strerror}). Free some with `hatch-torch-ext sdk prune`, "
            "or name another folder with HATCH_TORCH_EXT_CACHE"
        )
    return f"the cache {root} cannot be used ({error}). Name another folder with HATCH_TORCH_EXT_CACHE"


WATCHER: ContextVar[Callable[[str, int, int | None], None] | None] = ContextVar("watcher", default=None)
"""Called with the name of the download, the bytes received, and the total, or None if it is unknown."""

OFTEN = 0.25
"""Seconds between two calls of a listener."""
EVERY = 30.0
"""Seconds between two lines."""


@contextlib.contextmanager
def progress(
    title: str, total: int | None, report: Callable[[str], None] | None = None
) -> Iterator[Callable[[int], None]]:
    """Provide a function to call with the number of bytes received; show the progress while the context lasts.

    Without a terminal, ``report`` is called from time to time.
    """
    if (watcher := WATCHER.get()) is not None:
        yield _to_watcher(watcher, title, total)
        return
    if not sys.stderr.isatty():
        yield _to_lines(title, total, report or (lambda _: None))
        return
    from rich.console import Console
    from rich.errors import LiveError
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    task = bars.add_task(title, total=total)
    with contextlib.suppress(LiveError):  # another entry's bar is on the terminal already
        bars.start()
    try:
        yield lambda count: bars.advance(task, count)
    finally:
        bars.stop()


def _to_lines(title: str, total: int | None, report: Callable[[str], None]) -> Callable[[int], None]:
    received, reported = 0, time.monotonic()

    def tick(count: int) -> None:
        nonlocal received, reported
        received += count
        if time.monotonic() - reported >= EVERY:
            reported = time.monotonic()
            report(f"{title}: {size(received)}{f' of {size(total)}' if total else ''} fetched so far")

    return tick


def _to_watcher(
    watcher: Callable[[str, int, int | None], None], title: str, total: int | None
) -> Callable[[int], None]:
    received, last = 0, 0.0

    def add(count: int) -> None:
        nonlocal received, last
        received += count
        if time.monotonic() - last >= OFTEN or received == total:
            last = time.monotonic()
            watcher(title, received, total)

    return add
