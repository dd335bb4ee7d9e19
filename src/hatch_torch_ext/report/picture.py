"""The picture of where a wheel's bytes are: a treemap as inline SVG, grouped by variant, else by kind of file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.base.escape import html
from hatch_torch_ext.facts.content import size
from hatch_torch_ext.report.treemap import Box, layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hatch_torch_ext.report import FileRow, WheelReport

WIDTH, HEIGHT = 1088.0, 440.0
PALETTE = 12
HEAD = 19.0
LETTER, HEAD_LETTER = 6.1, 7.3
"""Width of an average character of a label and of a heading, in the SVG's units, to estimate what fits."""
LINE = 14.0
SMALLEST = 0.0006
"""Files smaller than this part of the wheel are drawn together."""
ONE_PERCENT = 0.01
MAX_GROUPS = 60
"""The number of variants with a group of their own in the picture."""
SHARED = "shared"
REST = "Python and data"
KINDS = {"library": "libraries", "module": "Python modules", "graft": "bundled libraries", "program": "programs"}


def group(row: FileRow) -> str:
    """Return the group that a file is drawn in: its variant, what is shared, or its kind."""
    if len(row.variants) == 1:
        return row.variants[0]
    if row.variants:
        return SHARED
    return KINDS.get(row.kind, REST)


def colors(report: WheelReport) -> dict[str, str]:
    """Return a CSS colour for each group; variants in the order of the table, then kinds."""
    named = [row.label for row in report.variants]
    named += sorted({group(row) for row in report.files} - {*named, SHARED, REST})
    found = {name: f"var(--c{number % PALETTE})" for number, name in enumerate(named)}
    return found | {SHARED: "var(--shared)", REST: "var(--rest)"}


def render(report: WheelReport) -> str:
    """Return the treemap and its legend."""
    groups: dict[str, list[FileRow]] = {}
    for row in report.files:
        groups.setdefault(group(row), []).append(row)
    sizes = {name: sum(row.compressed for row in rows) for name, rows in groups.items()}
    names = sorted((name for name in groups if sizes[name]), key=lambda name: (-sizes[name], name))
    painted = colors(report)
    if small := names[MAX_GROUPS:]:
        others = f"{len(small)} more"
        groups[others] = [row for name in small for row in groups[name]]
        sizes[others], painted[others] = sum(sizes[name] for name in small), "var(--rest)"
        names = sorted([*names[:MAX_GROUPS], others], key=lambda name: (-sizes[name], name))
    boxes = layout([sizes[name] for name in names], Box(x=0.0, y=0.0, width=WIDTH, height=HEIGHT))
    total = sum(sizes[name] for name in names)
    drawn = [
        "".join(_group(name, groups[name], box, painted[name], total)) for name, box in zip(names, boxes, strict=True)
    ]
    words = f"Treemap of {report.file}: {', '.join(f'{name} {size(sizes[name])}' for name in names)}"
    legend = "".join(
        f'<li><i style="background:{painted[name]}"></i>{html(name)} {size(sizes[name])}</li>' for name in names
    )
    return (
        f'<svg class="map" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{html(words)}">{"".join(drawn)}'
        f'</svg><ul class="legend">{legend}</ul>'
    )


def _group(name: str, rows: Sequence[FileRow], box: Box, color: str, total: int) -> Iterator[str]:
    amount = sum(row.compressed for row in rows)
    outer = box.inside(1.5)
    yield f'<rect class="group" {_place(outer)} rx="4" fill="{color}"/>'
    headed = outer.height > 3 * HEAD and outer.width > 8 * LETTER
    if headed:
        yield _text(outer.x + 7, outer.y + 13.5, _fitting(name, outer.width - 14, HEAD_LETTER), "head")
        tail = size(amount)
        if outer.width > (len(name) + len(tail) + 4) * HEAD_LETTER:
            yield _text(outer.x + outer.width - 7, outer.y + 13.5, tail, "amount", end=True)
    yield from _files(rows, outer.inside(2.5, top=HEAD - 4 if headed else 0.0), color, total)


def _files(rows: Sequence[FileRow], box: Box, color: str, total: int) -> Iterator[str]:
    shown = sorted(
        (row for row in rows if row.compressed >= SMALLEST * total), key=lambda row: (-row.compressed, row.path)
    )
    small = [row for row in rows if row.compressed < SMALLEST * total]
    parts = [(row.path, row.compressed, f"{size(row.compressed)} packed, {size(row.size)} unpacked") for row in shown]
    if rest := sum(row.compressed for row in small):
        parts.append((f"{len(small)} small files", rest, f"{size(rest)} packed"))
        parts.sort(key=lambda part: -part[1])
    for (path, amount, title_text), area in zip(parts, layout([part[1] for part in parts], box), strict=True):
        inner = area.inside(0.75)
        if inner.width < 0.5 or inner.height < 0.5:  # noqa: PLR2004 - nothing to see
            continue
        title = f"<title>{html(path)}\n{html(title_text)}</title>"
        yield f'<rect class="file" {_place(inner)} rx="2.5" fill="{color}">{title}</rect>'
        if inner.height > LINE + 4 and inner.width > 7 * LETTER:
            yield _text(inner.x + 6, inner.y + 15, _fitting(path.rpartition("/")[2], inner.width - 12))
            if inner.height > 2 * LINE + 6:
                yield _text(inner.x + 6, inner.y + 15 + LINE, _fitting(size(amount), inner.width - 12), "amount")


def _place(box: Box) -> str:
    return f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'


def _text(x: float, y: float, words: str, kind: str = "", *, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{anchor}>{html(words)}</text>'


def _fitting(words: str, width: float, letter: float = LETTER) -> str:
    """Shorten ``words`` in their middle to what fits: the two ends of a label are more informative."""
    letters = int(width / letter)
    if len(words) <= letters:
        return words
    if letters < 4:  # noqa: PLR2004 - fewer letters say nothing
        return ""
    half = (letters - 1) // 2
    return f"{words[: letters - 1 - half]}…{words[-half:]}"
