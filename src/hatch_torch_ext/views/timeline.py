"""A finished build as one self-contained page: entries and their compiles as bars over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hatch_torch_ext.base import resources
from hatch_torch_ext.base.escape import html
from hatch_torch_ext.facts.content import size
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.views.board import Board, clock, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hatch_torch_ext.pipeline.events import Event

WIDTH, LEFT, TOP = 1000, 190, 26
ROW, LANE, GAP = 18, 7, 6
"""Heights in pixels: an entry's bar, a lane of compiles below it, the space before the next."""
COLOURS = {
    "prepare": "--c0",
    "wait": "--track",
    "configure": "--c5",
    "compile": "--c1",
    "repair": "--c2",
    "audit": "--c4",
}
"""The colour of each step, from the palette of the page's style."""
LONGEST = 30 * 86400.0
"""Longest build that is drawn, in seconds."""
TICKS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Seconds between marks of the axis: the first that gives at most ten is used."""


@dataclass(slots=True, kw_only=True)
class _Entry:
    steps: list[tuple[float, str]] = field(default_factory=list)
    end: float | None = None
    compiles: list[events.Compiled] = field(default_factory=list)


def render(recorded: Sequence[tuple[float, Event]]) -> str:
    """Return the page of a build's events as HTML."""
    board, entries = Board(), dict[str, _Entry]()
    begin = recorded[0][0] if recorded else 0.0
    end = max((at for at, _ in recorded), default=begin)
    for at, event in recorded:
        board.take(at, event)
        if isinstance(event, events.Begun):
            entries = {name: _Entry() for name in event.entries}
        elif getattr(event, "entry", None) not in entries:
            continue  # the line with the entry's name was lost
        elif isinstance(event, events.Step):
            entries[event.entry].steps.append((at, event.step))
        elif isinstance(event, events.Compiled):
            entries[event.entry].compiles.append(event)
        elif isinstance(event, events.Done | events.Failed):
            entries[event.entry].end = at
    worked = {name: entry for name, entry in entries.items() if entry.steps}
    style = resources.text("page.css")
    lines = "".join(f"<p>{html(line)}</p>" for line in summary(board, end))
    unfinished = "" if board.ended else "<p>It did not come to its end.</p>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Timeline of a build</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>Timeline of a build</h1>\n{unfinished}{lines}\n{_legend()}\n"
        + "\n".join(_picture(worked, board, begin, min(max(end - begin, 1e-3), LONGEST)))
        + "\n<footer>Made by <code>hatch-torch-ext timeline</code>. Thin bars are single compiles and links, as in "
        "Ninja's log.</footer>\n</main>\n</body>\n</html>\n"
    )


def _legend() -> str:
    marks = (
        f'<span style="background:var({colour});padding:0 .6em;margin-right:.5em">{step}</span>'
        for step, colour in COLOURS.items()
    )
    return f"<p>{''.join(marks)}</p>"


def _picture(entries: dict[str, _Entry], board: Board, begin: float, length: float) -> Iterator[str]:
    lanes = {name: _lanes(entry.compiles) for name, entry in entries.items()}
    height = TOP + sum(ROW + LANE * len(each) + GAP for each in lanes.values())

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT) * min(1.0, max(0.0, (at - begin) / length))

    yield f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img" font-size="11" fill="currentColor">'
    step = next((tick for tick in TICKS if length / tick <= 10), TICKS[-1])  # noqa: PLR2004 -- as TICKS says
    for number in range(int(length / step) + 1):
        at = x(begin + number * step)
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="16" y2="{height}" style="stroke:var(--line)"/>'
        yield f'<text x="{at:.1f}" y="11">{clock(number * step)}</text>'
    y = TOP
    for name, entry in entries.items():
        row = board.rows[name]
        colour = 'style="fill:#c0392b"' if row.state == "failed" else ""
        yield f'<text x="0" y="{y + 13}" {colour}>{html(name)}</text>'
        last = begin + length if entry.end is None else entry.end
        for (start, each), stop in zip(entry.steps, [*(at for at, _ in entry.steps[1:]), last], strict=True):
            title = f"{name}: {each}, {clock(stop - start)}"
            yield _bar(x(start), x(stop), y, height=ROW, fill=f"var({COLOURS.get(each, '--rest')})", title=title)
        y += ROW
        for lane in lanes[name]:
            for compiled in lane:
                title = f"{compiled.output}, {clock(compiled.end - compiled.start)}"
                yield _bar(x(compiled.start), x(compiled.end), y, height=LANE - 1, fill="var(--accent)", title=title)
            y += LANE
        y += GAP
    yield "</svg>"
    for row in board.many("reused"):
        yield f"<p>{html(row.name)}: unchanged, {size(row.size)}</p>"


def _bar(left: float, right: float, y: float, *, height: float, fill: str, title: str) -> str:
    width = max(right - left, 0.8)
    return (
        f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{height}" style="fill:{fill}">'
        f"<title>{html(title)}</title></rect>"
    )


def _lanes(compiles: Iterable[events.Compiled]) -> list[list[events.Compiled]]:
    """Return the compiles in as few lanes as hold them without overlap."""
    lanes: list[list[events.Compiled]] = []
    for compiled in sorted(compiles, key=lambda each: (each.start, each.end)):
        lane = next((lane for lane in lanes if lane[-1].end <= compiled.start), None)
        if lane is None:
            lanes.append([compiled])
        else:
            lane.append(compiled)
    return lanes
