"""What happens during a build, as frozen values: every view is made from them alone, and so is what is kept of it.

They are written to ``events.jsonl``, one JSON object a line: ``event`` (the class), ``time`` (seconds since 1970), and
the fields of the class.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import threading
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, TypeAlias

from hatch_torch_ext import foreign, scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

FILE = "events.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A build of ``entries`` starts; ``last`` says how many seconds each took last time, where that is known."""

    entries: tuple[str, ...]
    jobs: int
    last: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An entry comes to the next step: ``prepare``, ``wait``, ``configure``, ``compile``, ``repair``, ``audit``."""

    entry: str
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Of a download for an entry, ``received`` bytes have come; ``total`` where it is known."""

    entry: str
    title: str
    received: int
    total: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Of ``total`` build steps of an entry, ``finished`` are done and ``running`` run."""

    entry: str
    finished: int
    total: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A file was made between ``start`` and ``end`` (seconds since 1970): what Ninja's log says after a run."""

    entry: str
    output: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A sentence for the user, about an entry or the whole build; ``warning`` where something should be changed."""

    text: str
    entry: str | None = None
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An entry is finished: its label, the bytes of its files, the seconds that it took, its largest compiler.

    ``reused``: nothing that it depends on changed, so it was taken from an earlier build. ``cached``: how many files
    the compiler cache had, of how many that it was asked for; None where none was, or it does not say.
    """

    entry: str
    label: str
    size: int
    seconds: float
    peak: int = 0
    reused: bool = False
    log: str = ""
    cached: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An entry failed. ``message`` is the whole error; ``log`` the file with all output, where there is one."""

    entry: str
    message: str
    seconds: float
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the build may use and uses: tokens of the pool, how many are kept back for want of memory, free memory."""

    jobs: int
    kept_back: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The work on entries is over: how many were built, reused, failed, and never started."""

    built: int
    reused: int
    failed: int
    left: int
    seconds: float


Event: TypeAlias = Begun | Step | Fetched | Progress | Compiled | Note | Done | Failed | Machine | Ended
KINDS: Mapping[str, type[Event]] = {
    kind.__name__.lower(): kind
    for kind in (Begun, Step, Fetched, Progress, Compiled, Note, Done, Failed, Machine, Ended)
}

LARGEST = 1e15
"""Seconds, bytes and counts beyond which a number is none of ours."""
View: TypeAlias = "Callable[[float, Event], None]"
"""Takes each event with its time."""


def to_json(at: float, event: Event) -> dict[str, object]:
    """Return the event as JSON holds it."""
    return {"event": type(event).__name__.lower(), "time": round(at, 3), **dataclasses.asdict(event)}


def from_json(data: Mapping[str, object]) -> tuple[float, Event]:
    """Return what ``to_json`` described. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    kind = KINDS[str(fields.pop("event"))]
    return float(str(fields.pop("time"))), kind(**fields)  # type: ignore[arg-type]


def read(path: Path) -> Iterator[tuple[float, Event]]:
    """Yield the events of a file; a last line that was cut off, when the build was killed, is passed over."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
                at, event = from_json(foreign.json(line))
                fields = [getattr(event, field.name) for field in dataclasses.fields(event) if field.name != "last"]
                last = event.last.values() if isinstance(event, Begun) else ()
                if math.isfinite(at) and all(map(_is_plain, (*fields, *last))):
                    yield at, event


def _is_plain(value: object) -> bool:
    """Say whether a field is what events hold: a number that can be drawn, a text, or several of these."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str) or (isinstance(value, (int, float)) and abs(value) < LARGEST)


def _clean(event: Event) -> Event:
    """Return the event without any secret in its sentences."""
    if isinstance(event, Note):
        return dataclasses.replace(event, text=scrub.clean(event.text))
    if isinstance(event, Failed):
        return dataclasses.replace(event, message=scrub.clean(event.message))
    return event


class Stream:
    """Takes events from any thread, writes them down, and shows them to the views one after another."""

    def __init__(self, file: IO[str] | None, views: Sequence[View], clock: Callable[[], float] = time.time) -> None:
        self._file, self._views, self._clock = file, views, clock
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Write and show an event, without secrets."""
        texts = {name: value for name, value in dataclasses.asdict(event).items() if isinstance(value, str)}
        event = dataclasses.replace(event, **{name: scrub.clean(text) for name, text in texts.items()})  # type: ignore[arg-type]
        event = _clean(event)
        with self._lock:
            at = self._clock()
            if self._file is not None:
                self._file.write(json.dumps(to_json(at, event)) + "\n")
                self._file.flush()
            for view in self._views:
                view(at, event)

    def notes(self, entry: str | None) -> Callable[[str], None]:
        """Return what stages report their sentences to; the entry's name, which they start with, is taken off."""
        prefix = f"{entry}: "
        return lambda text: self(Note(text=text.removeprefix(prefix), entry=entry))
