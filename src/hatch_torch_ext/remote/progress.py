"""Progress of a download: for a listener, else as a bar if stderr is a terminal, else a line every half minute."""

from __future__ import annotations

import contextlib
import sys
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

from hatch_torch_ext.facts.content import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


WATCHER: ContextVar[Callable[[str, int, int | None], None] | None] = ContextVar("watcher", default=None)
"""Called with the name of the download, the bytes received, and the total, or None if it is unknown."""

OFTEN = 0.25
"""Seconds between two calls of a listener."""
EVERY = 30.0
"""Seconds between two lines."""


@contextlib.contextmanager
def shown(title: str, total: int | None, say: Callable[[str], None] | None = None) -> Iterator[Callable[[int], None]]:
    """Provide a function to call with the number of bytes received; show the progress while the context lasts.

    Without a terminal, ``say`` is called from time to time.
    """
    if (watcher := WATCHER.get()) is not None:
        yield _counted(watcher, title, total)
        return
    if not sys.stderr.isatty():
        yield _lines(title, total, say or (lambda _: None))
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


def _lines(title: str, total: int | None, say: Callable[[str], None]) -> Callable[[int], None]:
    come, reported = 0, time.monotonic()

    def tick(count: int) -> None:
        nonlocal come, reported
        come += count
        if time.monotonic() - reported >= EVERY:
            reported = time.monotonic()
            say(f"{title}: {size(come)}{f' of {size(total)}' if total else ''} fetched so far")

    return tick


def _counted(watcher: Callable[[str, int, int | None], None], title: str, total: int | None) -> Callable[[int], None]:
    received, last = 0, 0.0

    def add(count: int) -> None:
        nonlocal received, last
        received += count
        if time.monotonic() - last >= OFTEN or received == total:
            last = time.monotonic()
            watcher(title, received, total)

    return add
