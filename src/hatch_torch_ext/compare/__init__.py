"""Two distributions side by side, as their users meet them: what is lost, what changed, what is new.

Each side is a wheel, an sdist or an installed distribution, read without running anything of it. A wheel of ours and
one of setuptools have their compiled files at different places; they are compared by the names under which they are
imported and by what they register.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.compare import compiled, contents, described, reading
from hatch_torch_ext.compare.distribution import VERDICTS, Difference, Verdict
from hatch_torch_ext.facts.content import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hatch_torch_ext.compare.distribution import Distribution

__all__ = ["FORMAT", "Comparison", "Difference", "Side", "compare", "to_json"]

FORMAT = 1
"""The version of the JSON: it grows when a name in it is removed or means something else."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two distributions; sizes in bytes, of the file (None: installed) and of all files unpacked."""

    place: str
    kind: str
    """``wheel``, ``sdist`` or ``installed``."""
    name: str
    version: str
    generator: str | None
    tags: tuple[str, ...]
    size: int | None
    unpacked: int
    files: int
    modules: int
    compiled: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result; ``differences`` have what is lost first, then by topic and subject."""

    old: Side
    new: Side
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()
    """What was not compared, and why."""

    def count(self, verdict: Verdict) -> int:
        """Return the number of differences with the ``verdict``."""
        return sum(difference.verdict == verdict for difference in self.differences)


def compare(old: str | Path, new: str | Path) -> Comparison:
    """Compare two wheels, sdists or installed distributions; every text in the result is printable.

    Raises ``WheelError`` for what is none of them, damaged, or a part of a wheel.
    """
    with reading.opened(old) as one, reading.opened(new) as other:
        found = [*described.differences(one, other)]
        notes = []
        if (one.kind == "sdist") != (other.kind == "sdist"):
            notes.append("one of the two is an sdist: files, modules and operators were not compared")
        else:
            found += contents.differences(one, other)
            found += compiled.differences(one, other)
        sides = [_side(one), _side(other)]
    found.sort(key=lambda each: (VERDICTS.index(each.verdict), each.rank, each.subject))
    made = Comparison(old=sides[0], new=sides[1], differences=tuple(found), notes=tuple(notes))
    return escape.every(made)


def to_json(comparison: Comparison) -> dict[str, object]:
    """Return the comparison as JSON; ``left_out`` counts what of very many differences is not in it, the new first."""
    rows, _ = escape.fitting(comparison.differences, escape.JSON)
    return {
        "format": FORMAT,
        **{name: dataclasses.asdict(side) for name, side in (("old", comparison.old), ("new", comparison.new))},
        "counts": {verdict: comparison.count(verdict) for verdict in VERDICTS},
        "differences": [dataclasses.asdict(row) for row in rows],
        "notes": list(comparison.notes),
        "left_out": len(comparison.differences) - len(rows),
    }


def _side(read: Distribution) -> Side:
    return Side(
        place=read.place,
        kind=read.kind,
        name=read.name,
        version=read.version,
        generator=read.generator,
        tags=read.tags,
        size=read.size,
        unpacked=sum(file.size for file in read.everything),
        files=len(read.everything),
        modules=len(read.modules),
        compiled=len(read.compiled),
    )


TOGETHER = 4
"""The number of files in one folder, or modules of one package, from which one line names all of them."""
EXAMPLES = 3
_WIDEST = 13


def lines(comparison: Comparison) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"old  {_line_of(comparison.old)}"
    yield f"new  {_line_of(comparison.new)}"
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


def _line_of(side: Side) -> str:
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
