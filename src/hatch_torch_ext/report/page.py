"""``inspect --html``: the report as one self-contained page, with a picture of where the bytes are."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from hatch_torch_ext.base.escape import html
from hatch_torch_ext.facts.content import size
from hatch_torch_ext.report import picture
from hatch_torch_ext.report.table import few, torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hatch_torch_ext.report import FileRow, WheelReport

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
        picture.render(report),
        _variants(report),
        _shared(report),
        _binaries(report),
        FOOTER,
    ]
    style = (files("hatch_torch_ext") / "resources" / "page.css").read_text(encoding="utf-8")
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
    colors = picture.colors(report)
    machines = {row.machine for row in report.variants}
    columns = [
        _Column(name="variant", kind="name mono"),
        _Column(name="torch", kind="plain"),
        _Column(name="CUDA"),
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
            html(row.cuda or "CPU"),
            html(" ".join(row.archs)) or NOTHING,
            html(row.python or "any"),
            html(row.libc_floor if len(machines) == 1 else f"{row.libc_floor} {row.machine}"),
            size(row.own),
            size(row.shared) if row.shared else NOTHING,
            _bar(row.share, colors[row.label]),
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
    colors = picture.colors(report)
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
            html(row.binary.libc_floor or "") or NOTHING,
            size(row.size),
            size(row.compressed),
            _bar(row.compressed / report.size if report.size else 0.0, colors[picture.group(row)]),
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
    words = f"{share:.0%}" if share >= picture.ONE_PERCENT or not share else "&lt;1%"
    return f'<span class="track"><i style="width:{width}%;background:{color}"></i></span>{words}'


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
