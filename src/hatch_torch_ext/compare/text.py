"""A comparison as a person would tell it: what is lost, what changed, what is new; files of one folder in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.compare.difference import VERDICTS
from hatch_torch_ext.facts.content import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hatch_torch_ext.compare import Comparison, Side
    from hatch_torch_ext.compare.difference import Difference

TOGETHER = 4
"""The number of files in one folder, or modules of one package, from which one line names all of them."""
EXAMPLES = 3
_WIDEST = 13


def lines(comparison: Comparison) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"old  {_side(comparison.old)}"
    yield f"new  {_side(comparison.new)}"
    for verdict in VERDICTS:
        rows = [row for row in comparison.differences if row.verdict == verdict]
        if rows:
            yield ""
            yield verdict
        yield from (f"  {topic:{_WIDEST}} {message}" for topic, message in _grouped(rows))
    yield ""
    for note in comparison.notes:
        yield f"note: {note}"
    counts = [f"{comparison.count(verdict)} {verdict}" for verdict in VERDICTS if comparison.count(verdict)]
    yield ", ".join(counts) if counts else "no difference"


def _side(side: Side) -> str:
    parts = [side.kind if side.kind == "installed" else f"{side.kind} of {size(side.size or 0)}"]
    parts.append(f"{size(side.unpacked)} unpacked, {side.files} files")
    if side.modules:
        parts.append(f"{side.modules} modules, {side.compiled} compiled files")
    if side.generator:
        parts.append(f"by {side.generator}")
    return f"{side.name} {side.version}: {side.place} ({'; '.join(parts)})"


def _grouped(rows: Sequence[Difference]) -> Iterator[tuple[str, str]]:
    """Yield (topic, message), with many files of one folder, or modules of one package, in one line."""
    groups: dict[tuple[str, str, str], list[Difference]] = {}
    for row in rows:
        groups.setdefault(_group(row), []).append(row)
    for (topic, top, _), group in groups.items():
        if len(group) < TOGETHER:
            yield from ((topic, row.message) for row in group)
            continue
        names = [row.subject for row in group]
        shown = ", ".join(names[:EXAMPLES]) + (", …" if len(names) > EXAMPLES else "")
        what = "modules of" if topic == "module" else f"{topic}s below"
        yield topic, f"{len(names)} {what} {top} ({shown})"


def _group(row: Difference) -> tuple[str, str, str]:
    """Return the topic, the folder or package of at most two parts, and what keeps one apart from all others."""
    separator = "." if row.topic == "module" else "/"
    top = separator.join(row.subject.split(separator)[:-1][:2])
    if row.topic not in {"file", "module"} or not top or row.old is not None:
        return row.topic, row.subject, row.message
    return row.topic, top, ""
