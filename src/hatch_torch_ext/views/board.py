"""The state of a build at one moment, computed from its events, for the views and the summary at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from hatch_torch_ext.facts.content import size
from hatch_torch_ext.pipeline import events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.pipeline.events import Event

LISTED = 5
RUNNING = ("configure", "compile", "repair", "audit")
ERROR = re.compile(r"\b(?:fatal )?error\b[^:]*:|^\s*CMake Error|undefined reference|FAILED:")


@dataclass(slots=True, kw_only=True)
class EntryState:
    """One entry. ``state`` is ``queued``, a step, ``done``, ``reused`` or ``failed``; times in seconds since 1970."""

    name: str
    state: str = "queued"
    since: float = 0.0
    finished: int = 0
    total: int = 0
    jobs: int = 0
    last: float | None = None
    seconds: float = 0.0
    size: int = 0
    label: str = ""
    message: str = ""
    log: str = ""
    fetching: str = ""
    cached: tuple[int, int] | None = None

    @property
    def running(self) -> bool:
        """Return whether a step of the entry is running."""
        return self.state in RUNNING

    @property
    def over(self) -> bool:
        """Return whether the entry is finished."""
        return self.state in {"done", "reused", "failed"}


@dataclass(slots=True, kw_only=True)
class Board:
    """All entries of a build, in the order of the matrix."""

    rows: dict[str, EntryState] = field(default_factory=dict)
    began: float = 0.0
    jobs: int = 0
    kept_back: int = 0
    available: int | None = None
    warnings: int = 0
    ended: bool = False

    def take(self, at: float, event: Event) -> None:
        """Update the state with an event."""
        if isinstance(event, events.Begun):
            self.began, self.jobs = at, event.jobs
            self.rows = {name: EntryState(name=name, last=event.last.get(name)) for name in event.entries}
        elif isinstance(event, events.Machine):
            self.kept_back, self.available = event.kept_back, event.available
        elif isinstance(event, events.Ended):
            self.ended = True
        elif isinstance(event, events.Note):
            self.warnings += event.warning
        elif (row := self.rows.get(event.entry)) is not None:
            _into(row, at, event)

    def many(self, *states: str) -> list[EntryState]:
        """Return the entries in one of ``states``."""
        return [row for row in self.rows.values() if row.state in states]

    def left(self, now: float) -> float | None:
        """Return about how many seconds are left, estimated from the last build; None if too little is known."""
        open_rows = [row for row in self.rows.values() if not row.over]
        taken = [row.seconds for row in self.many("done")]
        usual = sum(taken) / len(taken) if taken else None
        work, longest = 0.0, 0.0
        for row in open_rows:
            expected = row.last or usual
            if expected is None:
                return None
            rest = max(0.0, expected - (now - row.since if row.running else 0.0))
            work, longest = work + rest, max(longest, rest)
        return max(longest, work / max(1, min(self.jobs, len(open_rows)))) if open_rows else 0.0


def _into(row: EntryState, at: float, event: Event) -> None:
    if isinstance(event, events.Step):
        if not (row.running and event.step in RUNNING):
            row.since = at
        row.state = event.step
        row.fetching = ""
    elif isinstance(event, events.Fetched):
        of = f" of {size(event.total)}" if event.total else ""
        row.fetching = "" if event.received == event.total else f"{event.title}: {size(event.received)}{of}"
    elif isinstance(event, events.Progress):
        row.finished, row.total, row.jobs = event.finished, event.total, event.running
    elif isinstance(event, events.Done):
        row.state = "reused" if event.reused else "done"
        row.label, row.size, row.seconds, row.log = event.label, event.size, event.seconds, event.log
        row.cached = event.cached
    elif isinstance(event, events.Failed):
        row.state, row.message, row.seconds, row.log = "failed", event.message, event.seconds, event.log


def clock(seconds: float) -> str:
    """Return a duration in seconds as people write it: ``12.3 s``, ``4:05``, ``1:02:03``."""
    if seconds < 60:  # noqa: PLR2004 -- a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counted(number: int, one: str, more: str | None = None) -> str:
    """Return ``1 entry``, ``2 entries``."""
    return f"{number} {one if number == 1 else more or one + 's'}"


def failure(row: EntryState) -> str:
    """Return the message on an entry that failed: the command, the first error, the path of the log."""
    lines = row.message.splitlines() or [""]
    if lines[0].endswith(":"):  # what to add is below
        lines[0] = " ".join([lines[0], *(line.strip() for line in takewhile(lambda line: line[:1] == " ", lines[1:]))])
    first = next((line.strip() for line in lines[1:] if ERROR.search(line)), "")
    log = f"whole log: {row.log}" if row.log else ""
    return "; ".join(filter(None, [lines[0], first, log]))


def summary(board: Board, now: float) -> Iterator[str]:
    """Yield the lines at the end of a build of several entries."""
    built, reused, failed = (board.many(state) for state in ("done", "reused", "failed"))
    left = [row for row in board.rows.values() if not row.over]
    parts = [f"{len(built)} built", f"{len(reused)} unchanged", f"{len(failed)} failed"]
    parts += [f"{len(left)} not begun"] if left else []
    yield f"{counted(len(board.rows), 'entry', 'entries')} in {clock(now - board.began)}: {', '.join(parts)}"
    if len(built) > 1:
        slowest = sorted(built, key=lambda row: -row.seconds)[:LISTED]
        yield f"slowest: {', '.join(f'{row.name} {clock(row.seconds)}' for row in slowest)}"
        largest = sorted([*built, *reused], key=lambda row: -row.size)[:LISTED]
        yield f"largest: {', '.join(f'{row.name} {size(row.size)}' for row in largest)}"
    with_cache = [row.cached for row in built if row.cached is not None]
    if with_cache:
        hits, files = (sum(counts) for counts in zip(*with_cache, strict=True))
        yield f"compiler cache: {hits} of {counted(files, 'compile')} taken from it"
    for row in failed:
        yield f"failed: {row.name}: {failure(row)}"
