"""The events of a build, as frozen values; every view is drawn only from them, and they are kept in a file.

``events.jsonl`` has one JSON object a line: ``event`` (the class), ``time`` (seconds since 1970), and the fields of the
class.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import threading
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, TypeAlias, get_args

from hatch_torch_ext.base import escape, redact, untrusted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

FILE = "events.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A build of ``entries`` starts; ``last`` are the seconds that each took last time, if known."""

    entries: tuple[str, ...]
    jobs: int
    last: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An entry begins a step: ``prepare``, ``wait``, ``configure``, ``compile``, ``repair``, ``audit``."""

    entry: str
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Of a download for an entry, ``received`` bytes have arrived; ``total`` if known."""

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
    """A file was compiled between ``start`` and ``end`` (seconds since 1970), according to Ninja's log after a run."""

    entry: str
    output: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A message for the user on an entry or the whole build; ``warning`` if something should be changed."""

    text: str
    entry: str | None = None
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An entry is finished: its label, its size in bytes, its seconds, and its largest compiler's memory in bytes.

    ``reused``: nothing that it depends on has changed, so the variant of an earlier build was taken. ``cached``: (hits,
    lookups) of the compiler cache; None without one, or if it does not report them.
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
    """An entry failed. ``message`` is the whole error; ``log`` the file with all output, if there is one."""

    entry: str
    message: str
    seconds: float
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine: jobs in the pool, jobs held back because memory is short, and the available memory in bytes."""

    jobs: int
    kept_back: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The work on entries has ended: how many were built, reused, failed, and never started."""

    built: int
    reused: int
    failed: int
    left: int
    seconds: float


Event: TypeAlias = Begun | Step | Fetched | Progress | Compiled | Note | Done | Failed | Machine | Ended
KINDS: Mapping[str, type[Event]] = {kind.__name__.lower(): kind for kind in get_args(Event)}

LARGEST = 1e15
"""Limit of all numbers (seconds, bytes, counts): a larger one was not written by a build."""
View: TypeAlias = "Callable[[float, Event], None]"
"""Called with each event and its time."""


def to_json(at: float, event: Event) -> dict[str, object]:
    """Return the event in JSON form."""
    return {"event": type(event).__name__.lower(), "time": round(at, 3), **dataclasses.asdict(event)}


def from_json(data: Mapping[str, object]) -> tuple[float, Event]:
    """Return the event of that form. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    kind = KINDS[str(fields.pop("event"))]
    return float(str(fields.pop("time"))), kind(**fields)  # type: ignore[arg-type]


def read(path: Path) -> Iterator[tuple[float, Event]]:
    """Yield the events of a file; a last line that was cut off when the build was killed is skipped."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
                at, event = from_json(untrusted.json(line))
                fields = [getattr(event, field.name) for field in dataclasses.fields(event) if field.name != "last"]
                last = event.last.values() if isinstance(event, Begun) else ()
                if math.isfinite(at) and all(map(_is_plain, (*fields, *last))):
                    yield at, event


def _is_plain(value: object) -> bool:
    """Return whether a value may be in an event: a plausible number, a text, or several of these."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str) or (isinstance(value, (int, float)) and abs(value) < LARGEST)


class Stream:
    """Receives events from any thread, writes them to the file, and passes them to the views one after another."""

    def __init__(self, file: IO[str] | None, views: Sequence[View], clock: Callable[[], float] = time.time) -> None:
        self._file, self._views, self._clock = file, views, clock
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Write the event and pass it to the views, without secrets and control characters."""
        texts = {name: value for name, value in dataclasses.asdict(event).items() if isinstance(value, str)}
        fit = {name: escape.text(redact.clean(text)) for name, text in texts.items()}
        event = dataclasses.replace(event, **fit)  # type: ignore[arg-type]
        with self._lock:
            at = self._clock()
            if self._file is not None:
                self._file.write(json.dumps(to_json(at, event)) + "\n")
                self._file.flush()
            for view in self._views:
                view(at, event)
