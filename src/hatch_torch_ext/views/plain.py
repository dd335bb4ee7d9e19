"""Plain lines: one for each event, and one every half minute, to show that the build is alive."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from hatch_torch_ext.facts.content import size
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.views.board import Board, clock, counted, failure, summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from hatch_torch_ext.pipeline.events import Event

EVERY = 30.0  # seconds


class Plain:
    """Prints lines by ``say``."""

    def __init__(self, say: Callable[[str], None], *, every: float = EVERY) -> None:
        self.board = Board()
        self._say, self._every = say, every
        self._last = 0.0
        self._ended = threading.Event()
        self._lock = threading.RLock()

    def __call__(self, at: float, event: Event) -> None:
        """Print the event if plain lines show it."""
        with self._lock:
            self.board.take(at, event)
            self.show(at, event)

    def show(self, at: float, event: Event) -> None:
        """Print the event; the board has taken it already."""
        if isinstance(event, events.Begun):
            entries = counted(len(event.entries), "entry", "entries")
            self.line(f"{entries}, {counted(event.jobs, 'job')} at once")
            threading.Thread(target=self._heartbeat, name="heartbeat", daemon=True).start()
        elif isinstance(event, events.Note):
            self.line(f"{event.entry}: {event.text}" if event.entry else event.text)
        elif isinstance(event, events.Done):
            how = "unchanged, taken as it is" if event.reused else f"built in {clock(event.seconds)}"
            cached = f", {event.cached[0]} of {counted(event.cached[1], 'compile')} cached" if event.cached else ""
            self.line(f"{self._over()} {event.entry}: {event.label}, {size(event.size)}, {how}{cached}")
        elif isinstance(event, events.Failed):
            self.line(f"{self._over()} {event.entry}: failed: {failure(self.board.rows[event.entry])}")
        elif isinstance(event, events.Ended):
            self._ended.set()
            if len(self.board.rows) > 1:
                for line in summary(self.board, at):
                    self.line(line)

    def line(self, text: str) -> None:
        """Print a line."""
        self._last = time.monotonic()
        self._say(text)

    def _over(self) -> str:
        return f"[{sum(row.over for row in self.board.rows.values())}/{len(self.board.rows)}]"

    def _heartbeat(self) -> None:
        while not self._ended.wait(min(1.0, self._every)):
            with self._lock:
                if time.monotonic() - self._last >= self._every and not self._ended.is_set():
                    self.line(self._state())

    def _state(self) -> str:
        busy = []
        for row in self.board.rows.values():
            if row.running:
                done = f" {row.finished}/{row.total}" if row.state == "compile" and row.total else f" {row.state}"
                busy.append(f"{row.name}{done} for {clock(time.time() - row.since)}")
        busy += [f"{row.name} {row.fetching}" for row in self.board.many("prepare") if row.fetching]
        left = self.board.left(time.time())
        end = f"; about {clock(left)} left" if left else ""
        return f"{self._over()} finished; {', '.join(busy) or 'preparing environments'}{end}"
