"""Bytes as they come: a bar where stderr is a terminal, nothing elsewhere (the stages report plain lines)."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def shown(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Give a function that takes the number of bytes that have come; show them while the context lasts."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    task = bars.add_task(title, total=total)
    with contextlib.suppress(LiveError):  # another entry's bar is on the terminal: one is enough
        bars.start()
    try:
        yield lambda count: bars.advance(task, count)
    finally:
        bars.stop()
