"""A table on the terminal while a build runs: running entries and first failures, on at most a third of the screen.

Finished entries are printed once above it, so that the scrollback is the history.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from hatch_torch_ext.facts.content import size
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.views.board import Board, EntryState, clock, failure, summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

    from hatch_torch_ext.pipeline.events import Event

REFRESH = 8  # times a second
BAR = 16  # columns
LONG, VERY_LONG = 300.0, 1200.0
"""Seconds after which an entry's time is drawn in other colours."""
QUIET = ("prepare", "wait", "queued", "done", "reused")


class Live:
    """Draws on ``console``, which is a terminal."""

    def __init__(self, console: Console, *, clock_now: Callable[[], float] = time.time) -> None:
        self.board = Board()
        self._console, self._now = console, clock_now
        self._screen: Screen | None = None

    def __call__(self, at: float, event: Event) -> None:
        """Update the table with the event, and print the lines that stay."""
        self.board.take(at, event)
        if isinstance(event, events.Begun):
            self._screen = Screen(
                get_renderable=self.table, console=self._console, refresh_per_second=REFRESH, transient=True
            )
            self._screen.start()
        elif isinstance(event, events.Note):
            self._print(Text(f"{event.entry}: {event.text}" if event.entry else event.text), warning=event.warning)
        elif isinstance(event, events.Done):
            how = "unchanged" if event.reused else clock(event.seconds)
            self._print(Text.assemble(("✔ ", "green"), f"{event.entry}: {event.label}, {size(event.size)}, {how}"))
        elif isinstance(event, events.Failed):
            text = failure(self.board.rows[event.entry])
            self._print(Text.assemble(("✘ ", "bold red"), (f"{event.entry}: ", "bold"), text))
        elif isinstance(event, events.Ended):
            self.close()
            if len(self.board.rows) > 1:
                for line in summary(self.board, at):
                    self._print(Text(line))

    def close(self) -> None:
        """Restore the terminal, however the build ended."""
        if self._screen is not None:
            self._screen.stop()
            self._screen = None

    def table(self) -> RenderableType:
        """Return the table in its present state."""
        now = self._now()
        rows = sorted(self.board.rows.values(), key=lambda row: (row.state != "failed", not row.running, row.since))
        shown = [row for row in rows if row.state not in QUIET or row.fetching]
        room = max(1, self._console.height // 3 - 2)
        table = Table.grid(padding=(0, 1))
        for _ in range(6):
            table.add_column(no_wrap=True)
        for row in shown[:room]:
            table.add_row(*_cells(row, now))
        return Group(table, Text(self._bottom(now, hidden=len(shown) - room), no_wrap=True, overflow="ellipsis"))

    def _bottom(self, now: float, *, hidden: int) -> str:
        board = self.board
        states = {
            "✔": len(board.many("done", "reused")),
            "✘": len(board.many("failed")),
            "⏵": sum(row.running for row in board.rows.values()),
            "⏸": len(board.many("queued", "prepare", "wait")),
        }
        counts = " ".join(f"{sign} {count}" for sign, count in states.items() if count or sign in "✔⏵")
        running = sum(max(1, row.jobs) for row in board.rows.values() if row.running)
        parts = [counts, f"jobs {min(running, board.jobs)}/{board.jobs}"]
        if board.kept_back:
            parts.append(f"{board.kept_back} kept back for memory")
        if board.available is not None:
            parts.append(f"{size(board.available)} free")
        left = board.left(now)
        end = f", about {clock(left)} left" if left else ""
        parts.append(f"{clock(now - board.began)}{end}")
        if hidden > 0:
            parts.append(f"{hidden} more run")
        return " · ".join(parts)

    def _print(self, text: Text, *, warning: bool = False) -> None:
        if warning:
            text.stylize("yellow")
        self._console.print(text, soft_wrap=True, highlight=False)


def _cells(row: EntryState, now: float) -> tuple[RenderableType, ...]:
    if row.state == "failed":
        return (Text("✘", "bold red"), Text(row.name, "bold"), Text("failed", "red"), "", clock(row.seconds), "")
    if row.fetching:
        return (Text("↓"), Text(row.name), Text(row.fetching), "", "", "")
    age = now - row.since
    colour = "red" if age > VERY_LONG else "yellow" if age > LONG else ""
    last = f"(last time {clock(row.last)})" if row.last else ""
    jobs = f"{row.jobs} job{'s' if row.jobs != 1 else ''}" if row.state == "compile" and row.jobs else ""
    return (Text("⏵", "cyan"), Text(row.name), _progress(row), jobs, Text(clock(age), colour), Text(last, "dim"))


def _progress(row: EntryState) -> Text:
    if row.state != "compile" or not row.total:
        return Text(row.state)
    full = BAR * row.finished // row.total
    return Text.assemble(("━" * full, "green"), ("━" * (BAR - full), "dim"), f" {row.finished}/{row.total}")
