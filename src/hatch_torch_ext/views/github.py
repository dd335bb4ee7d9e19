"""Plain lines for GitHub's runner: a folded group for each log, errors at their lines, a table in the job summary.

https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.facts.content import size
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.views.board import clock
from hatch_torch_ext.views.plain import Plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hatch_torch_ext.pipeline.events import Event
    from hatch_torch_ext.views.board import Board

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
