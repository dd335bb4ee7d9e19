"""``inspect --html``: the report as one self-contained page, with a treemap of where the bytes are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.base import resources
from hatch_torch_ext.base.escape import html
from hatch_torch_ext.facts.content import size
from hatch_torch_ext.report.table import few, percent, torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hatch_torch_ext.report import FileRow, WheelReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle, ``x`` and ``y`` its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, gap: float, *, top: float = 0.0) -> Box:
        """Return the rectangle that remains within a border of ``gap`` and a strip of height ``top``."""
        return Box(
            x=self.x + gap,
            y=self.y + gap + top,
            width=max(0.0, self.width - 2 * gap),
            height=max(0.0, self.height - 2 * gap - top),
        )


def layout(amounts: Sequence[float], box: Box) -> list[Box]:
    """Return a rectangle within ``box`` for each of ``amounts``, which must be positive and in descending order."""
    total = sum(amounts)
    if not amounts or total <= 0 or box.width <= 0 or box.height <= 0:
        return [Box(x=box.x, y=box.y, width=0.0, height=0.0) for _ in amounts]
    scale = box.width * box.height / total
    areas = [amount * scale for amount in amounts]
    placed: list[Box] = []
    start = 0
    while start < len(areas):
        side = min(box.width, box.height)
        end = start + 1
        while end < len(areas) and _worst(areas[start : end + 1], side) <= _worst(areas[start:end], side):
            end += 1
        row, box = _row(areas[start:end], box)
        placed += row
        start = end
    return placed


def _worst(row: Sequence[float], side: float) -> float:
    """Return the largest ratio of long to short side in a row of areas along ``side``."""
    depth = sum(row) / side if side else 0.0
    if not depth:
        return float("inf")
    return max(max(depth * depth / area, area / (depth * depth)) if area else float("inf") for area in row)


def _row(row: Sequence[float], box: Box) -> tuple[list[Box], Box]:
    """Lay out one row along the shorter side of ``box``; return it and the rest of the box."""
    upright = box.width >= box.height
    side = box.height if upright else box.width
    depth = sum(row) / side if side else 0.0
    placed = []
    at = 0.0
    for area in row:
        length = area / depth if depth else 0.0
        if upright:
            placed.append(Box(x=box.x, y=box.y + at, width=depth, height=length))
        else:
            placed.append(Box(x=box.x + at, y=box.y, width=length, height=depth))
        at += length
    if upright:
        rest = Box(x=box.x + depth, y=box.y, width=max(0.0, box.width - depth), height=box.height)
    else:
        rest = Box(x=box.x, y=box.y + depth, width=box.width, height=max(0.0, box.height - depth))
    return placed, rest


WIDTH, HEIGHT = 1088.0, 440.0
PALETTE = 12
HEAD = 19.0
LETTER, HEAD_LETTER = 6.1, 7.3
"""Width of an average character of a label and of a heading, in the SVG's units, to estimate what fits."""
LINE = 14.0
SMALLEST = 0.0006
"""Files smaller than this part of the wheel are drawn together."""
MAX_GROUPS = 60
"""The number of variants that have a group in the picture."""
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


def _colors(report: WheelReport) -> dict[str, str]:
    """Return a CSS colour for each group; variants in the order of the table, then kinds."""
    named = [row.label for row in report.variants]
    named += sorted({group(row) for row in report.files} - {*named, SHARED, REST})
    found = {name: f"var(--c{number % PALETTE})" for number, name in enumerate(named)}
    return found | {SHARED: "var(--shared)", REST: "var(--rest)"}


def picture(report: WheelReport) -> str:
    """Return the treemap and its legend."""
    groups: dict[str, list[FileRow]] = {}
    for row in report.files:
        groups.setdefault(group(row), []).append(row)
    sizes = {name: sum(row.compressed for row in rows) for name, rows in groups.items()}
    names = sorted((name for name in groups if sizes[name]), key=lambda name: (-sizes[name], name))
    painted = _colors(report)
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


MAX_FILES = 400
FOOTER = (
    "<footer>Made by <code>hatch-torch-ext inspect</code>. Areas and shares are of the packed bytes, "
    "those that users download.</footer>"
)
NOTHING = "&ndash;"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column: its heading, and the class of its cells."""

    name: str
    kind: str = ""


def render(report: WheelReport) -> str:
    """Return the whole page as HTML."""
    title = f"{report.distribution} {report.version}"
    body = [
        f"<h1>{html(report.distribution)} <span>{html(report.version)}</span></h1>",
        f'<p class="mono quiet">{html(report.file)}</p>',
        _facts(report),
        _problems(report),
        f"<h2>Where the bytes are<small>{size(report.size)} packed, in {len(report.files)} files</small></h2>",
        picture(report),
        _variants(report),
        _shared(report),
        _binaries(report),
        FOOTER,
    ]
    style = resources.text("page.css")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{html(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _facts(report: WheelReport) -> str:
    requires = [value for value in report.requires if "extra ==" not in value]
    facts = [
        ("download", size(report.size), ""),
        ("installed", size(report.unpacked), ""),
        ("variants", str(len(report.variants)) if report.variants else "", ""),
        ("Python", report.requires_python or "", "long"),
        ("needs", few(requires), "long"),
        ("tag", few(report.tags), "long mono"),
    ]
    cells = [f'<div><dt>{name}</dt><dd class="{kind}">{html(value)}</dd></div>' for name, value, kind in facts if value]
    return f'<dl class="facts">{"".join(cells)}</dl>'


def _problems(report: WheelReport) -> str:
    if not report.problems:
        return ""
    return '<ul class="problems">' + "".join(f"<li>{html(problem)}</li>" for problem in report.problems) + "</ul>"


def _variants(report: WheelReport) -> str:
    if not report.variants:
        return ""
    painted = _colors(report)
    machines = {row.machine for row in report.variants}
    columns = [
        _Column(name="variant", kind="name mono"),
        _Column(name="torch", kind="plain"),
        _Column(name="backend"),
        _Column(name="architectures", kind="mono"),
        _Column(name="Python"),
        _Column(name="needs", kind="plain"),
        _Column(name="own", kind="number"),
        _Column(name="shared", kind="number"),
        _Column(name="share of the wheel", kind="bar"),
    ]
    rows = [
        (
            _breakable(row.label),
            html(torch(row)),
            html(row.backend),
            html(" ".join(row.archs)) or NOTHING,
            html(row.python or "any"),
            html(row.needs if len(machines) == 1 else f"{row.needs} {row.machine}"),
            size(row.own),
            size(row.shared) if row.shared else NOTHING,
            _bar(row.share, painted[row.label]),
        )
        for row in report.variants[:MAX_FILES]
    ]
    more = f"; the first {MAX_FILES} of {len(report.variants)}" if len(report.variants) > MAX_FILES else ""
    return f"<h2>Variants<small>the loader takes one of them{more}</small></h2>{_table(columns, rows)}"


def _shared(report: WheelReport) -> str:
    shared = [row for row in report.files if len(row.variants) > 1]
    if not shared:
        return ""
    saved = sum(row.size * (len(row.variants) - 1) for row in shared)
    columns = [
        _Column(name="file", kind="name mono"),
        _Column(name="size", kind="number"),
        _Column(name="packed", kind="number"),
        _Column(name="used by", kind="mono"),
    ]
    rows = [
        (_breakable(row.path), size(row.size), size(row.compressed), html(_users(row, report)))
        for row in sorted(shared, key=lambda row: (-row.compressed, row.path))[:MAX_FILES]
    ]
    more = f"; the largest {MAX_FILES} of {len(shared)}" if len(shared) > MAX_FILES else ""
    return f"<h2>Shared<small>stored once, {size(saved)} saved{more}</small></h2>{_table(columns, rows)}"


def _users(row: FileRow, report: WheelReport) -> str:
    return "every variant" if len(row.variants) == len(report.variants) else few(row.variants)


def _binaries(report: WheelReport) -> str:
    found = sorted((row for row in report.files if row.binary is not None), key=lambda row: (-row.compressed, row.path))
    if not found:
        return ""
    painted = _colors(report)
    columns = [
        _Column(name="file", kind="name mono"),
        _Column(name="kind"),
        _Column(name="architectures", kind="mono"),
        _Column(name="needs", kind="plain"),
        _Column(name="size", kind="number"),
        _Column(name="packed", kind="number"),
        _Column(name="share of the wheel", kind="bar"),
    ]
    rows = [
        (
            _breakable(row.path),
            row.kind,
            html(" ".join(row.binary.archs)) or NOTHING,
            html(row.binary.needs) or NOTHING,
            size(row.size),
            size(row.compressed),
            _bar(row.compressed / report.size if report.size else 0.0, painted[group(row)]),
        )
        for row in found[:MAX_FILES]
        if row.binary is not None
    ]
    more = f", the largest {MAX_FILES} shown" if len(found) > MAX_FILES else ""
    return f"<h2>Compiled files<small>{len(found)}{more}</small></h2>{_table(columns, rows)}"


def _breakable(name: str) -> str:
    """Let a long name break after a slash or an underscore."""
    return html(name).replace("/", "/<wbr>").replace("_", "_<wbr>")


def _bar(share: float, color: str) -> str:
    width = f"{100 * share:.2f}"
    return f'<span class="track"><i style="width:{width}%;background:{color}"></i></span>{html(percent(share))}'


def _table(columns: Sequence[_Column], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are HTML already."""
    head = "".join(
        f'<th class="{"number" if column.kind == "number" else ""}">{column.name}</th>' for column in columns
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{column.kind}">{cell}</td>' for column, cell in zip(columns, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
