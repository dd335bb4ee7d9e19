"""The per-user cache of torch SDKs, shared by projects and by concurrent builds; nothing in it is used unchecked.

An item is made in a separate folder, gets its marker last, is sealed, and is renamed into place: every item in place
is complete, whenever a build was killed. It is read-only from then on, and compared with its seal before each use. Its
key depends on where its bytes came from, so files of one index are never used for another. Headers that are the same in
several releases are one file with several names (hard links).

This module makes and finds items, and locks those that a build uses. ``seal`` checks who owns the folder, and whether
an item was changed; ``upkeep`` lists, prunes and verifies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from hatch_torch_ext.base import locks
from hatch_torch_ext.store import seal
from hatch_torch_ext.store.seal import (
    MARKER,
    OTHERS_MAY_WRITE,
    ChangedError,
    NotPrivateError,
    RecordError,
    private,
    record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Whole: TypeAlias = Callable[[Mapping[str, Any]], object]
    Report: TypeAlias = Callable[[str], None]

__all__ = [
    "MARKER",
    "VARIABLE",
    "NotPrivateError",
    "RecordError",
    "Store",
    "open_store",
    "open_usable",
    "path",
    "private",
    "record",
    "release",
    "remove",
    "using",
]

VARIABLE = "HATCH_TORCH_EXT_CACHE"
LEFT_OVER = 24 * 3600.0
"""Age in seconds from which an unfinished folder counts as abandoned, on a file system without locks."""
FAULTS = (AttributeError, IndexError, KeyError, OSError, TypeError, ValueError, RecursionError, MemoryError)
"""What reading a damaged record can raise."""
Value = TypeVar("Value")
ANSWERS = "resolved"
DAY = 24 * 3600.0
"""Seconds for which an answer of an index is used again; a new release is found within a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[Value]):
    """What an index answered, and when, in seconds since 1970."""

    time: float
    value: Value

    @property
    def is_fresh(self) -> bool:
        """Return whether it can be used without a new request."""
        return 0 <= time.time() - self.time < DAY


_leases: dict[str, int] = {}
"""Folder -> descriptor of the lock on it."""
_leasing = threading.Lock()


@contextlib.contextmanager
def using() -> Iterator[None]:
    """Keep the items that are used within the context, which is a build, locked until its end."""
    try:
        yield
    finally:
        release()


def release() -> None:
    """Unlock all items that this process used: the build has ended."""
    with _leasing:
        for descriptor in _leases.values():
            os.close(descriptor)
        _leases.clear()


def _hold(folder: Path, lease: int) -> None:
    """Keep the lock ``lease`` on ``folder`` until ``release``."""
    with _leasing:
        previous = _leases.pop(str(folder), None)
        _leases[str(folder)] = lease
    if previous is not None:
        os.close(previous)


class Store:
    """The store in the folder ``root``, which exists and is writable. Messages for the user go to ``report``."""

    def __init__(self, root: Path, report: Report | None = None) -> None:
        self.root = root
        self.report: Report = report or (lambda _: None)

    def finished(self, kind: str, key: str, whole: Whole = dict) -> tuple[Path, Mapping[str, Any]] | None:
        """Return folder and marker's content of a complete, unchanged item, or None; mark it as used and lock it.

        ``whole`` parses the marker's content; an item for which it raises counts as incomplete.
        """
        folder = self.root / kind / key
        try:
            lease = locks.take(folder, shared=True)
        except OSError:  # a symbolic link, or not a folder
            return None
        if lease is None:
            return None
        try:
            marker = self.verified(kind, key)
            whole(marker)
        except ChangedError as error:
            self.report(f"{kind} {key[:12]} in the cache was changed since it was made ({error}): it is made again")
        except FAULTS:
            pass
        else:
            _hold(folder, lease)
            with contextlib.suppress(OSError):
                os.utime(folder / MARKER)
            return folder, marker
        os.close(lease)
        return None

    def verified(self, kind: str, key: str, *, fully: bool = False) -> Mapping[str, Any]:
        """Return the content of the marker of an unchanged item. Raises ``ChangedError``, or one of ``FAULTS``."""
        folder = self.root / kind / key
        name = f"{kind}-{key}.json"
        sealed = self.text("seals", name)
        if sealed is None:
            raise RecordError("it has no seal")
        now = seal.check(folder, seal.Seal.load(sealed), fully=fully)
        if now is not None:
            with contextlib.suppress(OSError):  # a read-only store: the next use hashes again
                self.set_text("seals", name, now.dump())
        return record((folder / MARKER).read_bytes())

    @contextlib.contextmanager
    def lock(self, kind: str, key: str) -> Iterator[None]:
        """Exclude every other process and thread that makes the same item."""
        self.folder("locks")
        path = self.root / "locks" / f"{kind}-{key}.lock"
        with locks.held(path, what=f"{kind} {key[:12]} of the cache", report=self.report):
            yield

    def make(
        self, kind: str, key: str, fill: Callable[[Path], Mapping[str, object]], whole: Whole = dict
    ) -> tuple[Path, Mapping[str, Any]]:
        """Return the item. If it does not exist, ``fill`` fills a folder, and returns the content of the marker."""
        if (item := self.finished(kind, key, whole)) is not None:
            return item
        with self.lock(kind, key):
            if (item := self.finished(kind, key, whole)) is not None:
                return item
            final = self.root / kind / key
            remove(final)  # the rest of an older layout, or a changed item
            with self.scratch() as scratch:
                made = scratch / "made"
                made.mkdir()
                content = dict(fill(made))
                marker = made / MARKER
                marker.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
                marker.chmod(0o444)
                _make_read_only(made)
                self.folder(kind)
                self.set_text("seals", f"{kind}-{key}.json", seal.of(made).dump())
                made.rename(final)
                final.chmod(0o555)
                if (lease := locks.take(final, shared=True)) is not None:
                    _hold(final, lease)
        return final, content

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Provide a temporary folder on the store's file system, and remove those of killed processes."""
        parent = self.folder("unfinished")
        _sweep(parent)
        lease = None
        while lease is None:  # the sweep of another process may remove it in between
            folder = Path(tempfile.mkdtemp(dir=parent))
            lease = locks.take(folder)
        try:
            yield folder
        finally:
            remove(folder)
            os.close(lease)

    def put(self, data: bytes, folder: Path, name: str) -> None:
        """Write the new file ``name`` below ``folder``: as a hard link, if the store has a file with the same bytes.

        It is called ten thousand times for one SDK. Paths are strings here because ``pathlib`` would take half of the
        time.
        """
        target = f"{folder}/{name}"
        digest = hashlib.sha256(data).hexdigest()
        blob = f"{self.root}/blobs/{digest[:2]}/{digest}"
        shared = _has_bytes(blob, data)
        if shared:
            try:
                _with_parent(target, lambda: os.link(blob, target, follow_symlinks=False))
            except OSError:  # no hard links here, too many of this file, or the blob was pruned in between
                pass
            else:
                return

        def write() -> None:
            with open(target, "xb", opener=_read_only) as stream:
                stream.write(data)

        _with_parent(target, write)
        if shared is None:
            with contextlib.suppress(OSError):
                _with_parent(blob, lambda: os.link(target, blob))

    def text(self, kind: str, name: str) -> bytes | None:
        """Return the small record ``name``, or None. A symbolic link and a record of another user count as absent."""
        try:
            descriptor = os.open(self.root / kind / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        with open(descriptor, "rb") as stream:  # noqa: PTH123 -- a descriptor
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > seal.LARGEST:
                return None
            try:
                return stream.read(seal.LARGEST)
            except OSError:
                return None

    def set_text(self, kind: str, name: str, data: bytes) -> None:
        """Write the small record ``name`` atomically."""
        target = self.root / kind / name
        self.folder(kind)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        with self.scratch() as scratch:
            (scratch / "record").write_bytes(data)
            (scratch / "record").replace(target)

    def answer(self, name: str, parse: Callable[[Mapping[str, Any]], Value]) -> Answer[Value] | None:
        """Return what ``keep_answer`` wrote, as ``parse`` reads it; None if there is none. A damaged one is removed."""
        data = self.text(ANSWERS, name)
        if data is None:
            return None
        try:
            found = record(data)
            return Answer(time=float(found["time"]), value=parse(found))
        except (RecordError, KeyError, OverflowError, TypeError, ValueError):
            self.remove_text(ANSWERS, name)
            return None

    def keep_answer(self, name: str, **fields: object) -> None:
        """Write what an index answered, with the time."""
        self.set_text(ANSWERS, name, json.dumps({"time": time.time(), **fields}).encode())

    def remove_text(self, kind: str, name: str) -> None:
        """Remove a damaged record; the next run writes it again."""
        with contextlib.suppress(OSError):
            (self.root / kind / name).unlink()

    def folder(self, name: str) -> Path:
        """Return a folder of the store, and make it if need be.

        Raises ``OSError`` if a symbolic link is in its place.
        """
        return seal.folder(self.root, name)


def path(environ: Mapping[str, str]) -> Path:
    """Return the path of the store, whether or not it exists."""
    named = environ.get(VARIABLE)
    if named:
        return Path(named).absolute()
    home = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 -- no error without a home
    return Path(home, "hatch-torch-ext").absolute()


def open_usable(environ: Mapping[str, str], fallback: Path, report: Report) -> Store:
    """Return the user's store.

    If it cannot be written or trusted, report it and return one in the folder ``fallback``.
    """
    usual = path(environ)
    try:
        return open_store(usual, report)
    except NotPrivateError as error:
        report(
            f"the cache {usual} is not used: {error.filename}: {error.strerror}; using {fallback} instead. "
            f"Name a folder of your own with {VARIABLE}"
        )
    except OSError as error:
        report(f"the cache {usual} cannot be written ({error.strerror}): using {fallback} instead")
    return open_store(fallback, report)


def remove(folder: Path) -> None:
    """Remove a folder of the store, even if it is read-only. Of a symbolic link, only the link is removed."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink(missing_ok=True)
        return
    for parent, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(parent).chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


def open_store(root: Path, report: Report | None = None) -> Store:
    """Return the store in ``root``, and make it if need be. Raises ``OSError`` if it cannot be written or trusted."""
    report = report or (lambda _: None)
    seal.check_private(root, report)
    return Store(root, report)


def _sweep(unfinished: Path) -> None:
    """Remove temporary folders of killed processes; a running process holds a lock on its own."""
    for old in unfinished.iterdir():
        with contextlib.suppress(OSError):
            if old.is_symlink():
                old.unlink()
                continue
            try:
                lease = locks.take(old, certain=True)
            except OSError as error:
                if error.errno not in locks.UNSUPPORTED or time.time() - old.stat().st_mtime < LEFT_OVER:
                    continue
                lease = None
            else:
                if lease is None:
                    continue
            try:
                remove(old)
            finally:
                if lease is not None:
                    os.close(lease)


def _make_read_only(folder: Path) -> None:
    """Make every folder below ``folder`` read-only; the files already are."""
    for parent, _, _ in os.walk(folder, topdown=False):
        if Path(parent) != folder:  # renaming a folder needs it writable
            Path(parent).chmod(0o555)


def _has_bytes(blob: str, data: bytes) -> bool | None:
    """Return whether the blob has the bytes ``data``, or None if it does not exist. One with other bytes is removed."""
    try:
        descriptor = os.open(blob, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        descriptor = -1
    if descriptor != -1:
        with open(descriptor, "rb", buffering=0) as stream:  # noqa: PTH123
            status = os.fstat(descriptor)
            trusted = status.st_uid == os.geteuid() and not status.st_mode & OTHERS_MAY_WRITE
            if trusted and stat.S_ISREG(status.st_mode) and status.st_size == len(data):
                read = b"".join(iter(lambda: stream.read(1 << 20), b""))
                if read == data:
                    return True
    with contextlib.suppress(OSError):
        os.unlink(blob)  # noqa: PTH108 -- a text
    return None


def _with_parent(path: str, make: Callable[[], None]) -> None:
    """Call ``make``, which creates the file ``path``; create its parent folders only if they are missing."""
    try:
        make()
    except FileNotFoundError:
        os.makedirs(path.rpartition("/")[0], exist_ok=True)  # noqa: PTH103
        make()


def _read_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o444)
