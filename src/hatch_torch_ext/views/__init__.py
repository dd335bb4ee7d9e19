"""What a build shows: every view is drawn only from the stream of events, live or afterwards from the file.

Plain lines are here: one for each event, and one every half minute while nothing happens; in groups on GitHub.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.facts.content import size
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.views.board import Board, clock, counted, failure, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hatch_torch_ext.pipeline.events import Event, View

__all__ = ["shown"]


@contextlib.contextmanager
def shown(
    say: Callable[[str], None],
    command: Callable[[str], None],
    *,
    source: Path,
    environ: Mapping[str, str] = os.environ,
    terminal: bool | None = None,
) -> Iterator[View]:
    """Use the view that suits the place where the build runs, and restore the terminal afterwards.

    A table if stderr is a terminal (``terminal`` overrides this) that can move its cursor, outside of CI; GitHub's form
    in its workflows; else plain lines by ``say``. ``command`` prints a line as it is.
    """
    if environ.get("GITHUB_ACTIONS") == "true":
        yield GitHub(say, command, environ, source)
        return
    dumb = environ.get("CI") or environ.get("TERM", "") in {"", "dumb"}
    if dumb or not (sys.stderr.isatty() if terminal is None else terminal):
        yield Plain(say)
        return
    from rich.console import Console

    from hatch_torch_ext.views.live import Live

    view = Live(Console(stderr=True))
    try:
        yield view
    finally:
        view.close()


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


_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\[)", re.MULTILINE)
"""Where the runner would take text for a command, of the present form or the older one (``##[error]``)."""
LONGEST = 1 << 20  # bytes of a log; the file has all of it
ERRORS = 10
"""The number of annotations of one kind that GitHub shows for one step."""
_PLACES = (
    re.compile(r"^\s*(?P<file>[^\s:(][^:(\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<text>.*)$"),
    re.compile(r"^\s*(?P<file>[^\s:(][^:(\n]*)\((?P<line>\d+)\): error: (?P<text>.*)$"),
    re.compile(r"^\s*CMake Error at (?P<file>[^:\n]+):(?P<line>\d+) \([^)]*\):? ?(?P<text>.*)$"),
)


class GitHub(Plain):
    """Prints lines by ``say``; workflow commands, which must begin a line, by ``command``."""

    def __init__(
        self, say: Callable[[str], None], command: Callable[[str], None], environ: Mapping[str, str], source: Path
    ) -> None:
        super().__init__(say)
        self._command, self._source = command, source
        self._workspace = Path(environ.get("GITHUB_WORKSPACE") or source)
        self._summary = environ.get("GITHUB_STEP_SUMMARY")
        self._annotated = 0

    def show(self, at: float, event: Event) -> None:
        """Print the event; fold the log of an entry that ended; annotate the errors of one that failed."""
        super().show(at, event)
        if isinstance(event, events.Done | events.Failed) and event.log and not getattr(event, "reused", False):
            outcome = "failed" if isinstance(event, events.Failed) else f"built in {clock(event.seconds)}"
            self._group(f"{event.entry}: {outcome}", Path(event.log))
        if isinstance(event, events.Failed):
            for annotation in places(event.message, self._source, self._workspace, title=event.entry):
                if self._annotated < ERRORS:
                    self._annotated += 1
                    self._command(annotation)
        if isinstance(event, events.Ended) and self._summary:
            with Path(self._summary).open("a", encoding="utf-8") as stream:
                stream.write(table(self.board))

    def _group(self, title: str, log: Path) -> None:
        try:
            text = log.read_bytes()[-LONGEST:].decode("utf-8", "replace")
        except OSError:
            return
        self._command(f"::group::{_escaped(title)}")
        # The runner must not take a compiler's line for a command; it ends lines at a carriage return too.
        self._command(_COMMAND.sub(r"\g<0> ", escape.text(text, LONGEST)))
        self._command("::endgroup::")


def places(message: str, source: Path, workspace: Path, *, title: str) -> Iterator[str]:
    """Yield the commands that annotate the source lines which ``message`` names with its errors, each line once.

    The last lines of a program's output repeat the first errors, CMake's without their sentence.
    """
    known: set[str] = set()
    for line in message.splitlines():
        for pattern in _PLACES:
            if (match := pattern.match(line)) is not None:
                found = match.groupdict()
                path = os.path.normpath(source / found["file"].strip())
                inside = os.path.relpath(path, workspace) if Path(path).is_relative_to(workspace) else path
                column = f",col={found['column']}" if found.get("column") else ""
                place = f"file={_property(inside)},line={found['line']}{column},title={_property(title)}"
                if place not in known:
                    yield f"::error {place}::{_escaped(found['text'] or line.strip())}"
                known.add(place)
                break


def table(board: Board) -> str:
    """Return the table of the run in Markdown."""
    lines = ["### hatch-torch-ext", "", "| entry | | variant | size | time |", "|---|---|---|---|---|"]
    signs = {"done": "built", "reused": "unchanged", "failed": "**failed**"}
    for row in board.rows.values():
        state = signs.get(row.state, "not begun")
        taken = clock(row.seconds) if row.state in {"done", "failed"} else ""
        lines.append(f"| {row.name} | {state} | {row.label} | {size(row.size) if row.size else ''} | {taken} |")
    return "\n".join(lines) + "\n\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
