"""The table that ``inspect`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.bar import Bar
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hatch_torch_ext.base import escape
from hatch_torch_ext.facts import owners
from hatch_torch_ext.facts.content import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console, RenderableType

    from hatch_torch_ext.report import FileRow, VariantRow, WheelReport

BAR_WIDTH = 14
MAX_OTHERS = 4
MAX_ROWS = 200
"""The number of variants, files and the like that are listed; ``--json`` has them all."""
MAX_NAMES = 20
"""The number of tags and requirements that are listed."""
WIDE = 120
"""Width of a terminal, in columns, from which shares are drawn as bars."""
ONE_PERCENT = 0.01
_OF_TORCH = ("libtorch", "libc10")


def torch(row: VariantRow) -> str:
    """Return which torch the variant serves, in words."""
    return f"{row.torch} and newer" if row.stable_abi else row.torch


def render(report: WheelReport, console: Console) -> None:
    """Print facts of the wheel, its variants (in a foreign wheel, its compiled files), then the rest of the bytes."""
    console.print(_head(report), soft_wrap=True, highlight=False)
    body = _variant_table(report, console.width) if report.variants else _binary_table(report)
    console.print(Padding(body, (1, 0, 0, 1)))
    for line in _rest(report):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for problem in report.problems:
        console.print(Text(f" ! {problem}", style="yellow"), soft_wrap=True)


def _head(report: WheelReport) -> Text:
    head = Text()
    head.append(f" {report.distribution} {report.version}", style="bold")
    head.append(f"  {size(report.size)}, {size(report.unpacked)} unpacked\n")
    for name, values in (
        ("tag", report.tags),
        ("Python", (report.requires_python,) if report.requires_python else ()),
        ("needs", tuple(value for value in report.requires if "extra ==" not in value)),
        ("made by", (report.generator,) if report.generator else ()),
    ):
        if values:
            head.append(f" {name:<8}", style="dim")
            head.append(f"{few(values)}\n")
    head.rstrip()
    return head


def few(values: Sequence[str]) -> str:
    """Return the first of ``values``, and how many more there are."""
    return escape.few(values, MAX_NAMES)


def _variant_table(report: WheelReport, width: int) -> Table:
    machines = {row.machine for row in report.variants}
    rows = report.variants[:MAX_ROWS]
    columns: list[tuple[str, Callable[[VariantRow], RenderableType]]] = [
        ("variant", lambda row: Text(row.label, style="bold")),
        ("torch", torch),
        ("backend", lambda row: row.backend),
        ("archs", lambda row: escape.name(" ".join(row.archs))),
        ("Python", lambda row: row.python or "any"),
        ("needs", lambda row: row.needs if len(machines) == 1 else f"{row.needs} {row.machine}"),
        ("own", lambda row: size(row.own)),
        ("shared", lambda row: size(row.shared) if row.shared else ""),
        ("share", lambda row: _bar(row.share) if width >= WIDE else percent(row.share)),
    ]
    # A column that is empty for every variant is left out.
    filled = [(name, cell) for name, cell in columns if any(cell(row) != "" for row in rows)]
    made = _table(*(name for name, _ in filled))
    for row in rows:
        _add(made, *(cell(row) for _, cell in filled))
    if len(report.variants) > MAX_ROWS:
        _add(made, f"and {len(report.variants) - MAX_ROWS} more")
    return made


def _binary_table(report: WheelReport) -> RenderableType:
    rows = [row for row in report.files if row.binary is not None]
    if not rows:
        return Text("no compiled files", style="dim")
    made = _table("file", "kind", "torch", "archs", "needs", "size", "packed", "share")
    for row in sorted(rows, key=lambda row: (-row.compressed, row.path))[:MAX_ROWS]:
        facts = row.binary
        if facts is None:
            continue
        _add(
            made,
            Text(row.path, style="bold"),
            row.kind,
            _torch_needs(row) or "-",
            escape.name(" ".join(facts.archs)) or "-",
            facts.needs or "-",
            size(row.size),
            size(row.compressed),
            _bar(row.compressed / report.size if report.size else 0.0),
        )
    if len(rows) > MAX_ROWS:
        _add(made, f"and {len(rows) - MAX_ROWS} more")
    return made


def _table(*columns: str) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        amount = column in {"own", "shared", "size", "packed"}
        made.add_column(
            column, justify="right" if amount else "left", no_wrap=column not in {"file", "archs"}, overflow="fold"
        )
    return made


def _add(made: Table, *cells: RenderableType) -> None:
    """Add a row; its texts are not markup, wherever they come from."""
    made.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def percent(share: float) -> str:
    """Return a share of 0 to 1 as a percentage."""
    return f"{share:.0%}" if share >= ONE_PERCENT or not share else "<1%"


def _bar(share: float) -> Table:
    cell = Table.grid(padding=(0, 1, 0, 0))
    cell.add_column(width=BAR_WIDTH)
    cell.add_column(justify="right")
    cell.add_row(Bar(1.0, 0.0, share, width=BAR_WIDTH, color="cyan"), percent(share))
    return cell


def _torch_needs(row: FileRow) -> str:
    """Return which parts of torch a file needs: ``cpu``, ``cpu python`` and the like."""
    if row.binary is None:
        return ""
    needed = [name for name in row.binary.needed if name.startswith(_OF_TORCH)]
    return " ".join(dict.fromkeys(["cpu", *sorted(filter(None, map(owners.torch_part, needed)))])) if needed else ""


def _rest(report: WheelReport) -> Iterator[str]:
    """Print what the bytes outside of the variants' own files are."""
    shared = sorted((row for row in report.files if len(row.variants) > 1), key=lambda row: -row.size)
    for row in shared[:MAX_ROWS]:
        name = row.path.rpartition("/")[2]
        yield f" shared  {name}, {size(row.size)}, by {len(row.variants)} variants"
    if len(shared) > MAX_ROWS:
        yield f" shared  {len(shared) - MAX_ROWS} more"
    others = [row for row in report.files if not row.variants and row.binary is None]
    if others:
        packed = sum(row.compressed for row in others)
        yield f" other   {len(others)} files, {size(sum(row.size for row in others))}, {size(packed)} packed"
    strays = [row for row in report.files if report.variants and not row.variants and row.binary is not None]
    for row in strays[:MAX_OTHERS]:
        yield f" besides {row.path}, {size(row.size)}: compiled, and of no variant"
