"""Plain lines: one for each thing that happens, and one every half minute, so that nobody takes a build for dead."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from hatch_torch_ext.facts.sizes import size
from hatch_torch_ext.pipeline import events

if TYPE_CHECKING:
    from collections.abc import Callable

    from hatch_torch_ext.pipeline.events import Event

EVERY = 30.0  # seconds


class Plain:
    """Says lines by ``say``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._total = 0
        self._over = 0
        self._steps: dict[str, str] = {}
        self._last = 0.0
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, _: float, event: Event) -> None:
        """Say the event, if it is one for plain lines."""
        if isinstance(event, events.Begun):
            self._total = len(event.entries)
            self._line(f"{_count(self._total, 'entry', 'entries')}, {_count(event.jobs, 'job')} at once")
            threading.Thread(target=self._heartbeat, name="heartbeat", daemon=True).start()
        elif isinstance(event, events.Note):
            self._line(f"{event.entry}: {event.text}" if event.entry else event.text)
        elif isinstance(event, events.Step):
            self._steps[event.entry] = event.step
        elif isinstance(event, events.Progress):
            self._steps[event.entry] = f"{event.finished}/{event.total}"
        elif isinstance(event, events.Done):
            self._finished(event.entry)
            how = "unchanged, taken as it is" if event.reused else f"built in {event.seconds:.1f} s"
            counted = f"[{self._over}/{self._total}]"
            self._line(f"{counted} {event.entry}: {event.label}, {size(event.size)}, {how}")
        elif isinstance(event, events.Failed):
            self._finished(event.entry)
            first = event.message.splitlines()[0]
            log = f" (whole log: {event.log})" if event.log else ""
            self._line(f"[{self._over}/{self._total}] {event.entry}: failed: {first}{log}")
        elif isinstance(event, events.Ended):
            self._ended.set()

    def _finished(self, entry: str) -> None:
        self._over += 1
        self._steps.pop(entry, None)

    def _line(self, text: str) -> None:
        with self._lock:
            self._last = time.monotonic()
            self._say(text)

    def _heartbeat(self) -> None:
        while not self._ended.wait(1):
            if time.monotonic() - self._last >= EVERY:
                busy = ", ".join(f"{entry} {step}" for entry, step in list(self._steps.items()) if step != "prepare")
                self._line(f"{self._over} of {_count(self._total, 'entry', 'entries')} finished; {busy or 'preparing'}")


def _count(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"
