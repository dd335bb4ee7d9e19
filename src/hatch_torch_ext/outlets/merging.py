"""Parts of one wheel -> that wheel: the same bytes as one build of everything."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import merge
from hatch_torch_ext.errors import MergeError
from hatch_torch_ext.facts import policy
from hatch_torch_ext.outlets import parts, writing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.merge import Layout
    from hatch_torch_ext.outlets.parts import Part


def merge_wheels(paths: Sequence[Path], *, out: Path) -> Path:
    """Join the wheels at ``paths``, whatever their order, into one in the folder ``out``; return its path.

    They may be parts of one build (shards), exact wheels, or variant wheels. Raises ``WheelError`` for a wheel that is
    not ours or not whole, ``MergeError`` where they do not belong together or hold a variant twice.
    """
    if not paths:
        raise MergeError("no wheel to merge: name the parts")
    with tempfile.TemporaryDirectory(prefix="torch-ext-merge-") as scratch:
        read = []
        for number, path in enumerate(sorted(paths), 1):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            read.append(parts.read(path, folder=folder))
        first = read[0]
        for other in read[1:]:
            _check_same(first, other)
        _check_distinct(read)
        layout = relaid([built for part in read for built in part.variants], read)
        return writing.write(first, layout, out=out, version=first.public_version)


def relaid(variants: Sequence[BuiltVariant], read: Sequence[Part]) -> Layout:
    """Return the layout of ``variants``, which come from ``read``, with the policy that the author asked for."""
    first = read[0]
    layout = merge.merge(variants, package=first.package, distribution=first.distribution)
    asked = _asked(layout.tag, [part.tag for part in read], variants)
    if asked is None:
        return layout
    return merge.merge(variants, package=first.package, distribution=first.distribution, manylinux=asked)


def _asked(natural: str, tags: Sequence[str], variants: Sequence[BuiltVariant]) -> str | None:
    """Return the policy by which every part is tagged though none needs it: the author asked for it. None elsewhere."""
    here = natural.rpartition("-")[2].split(".")
    there = [tag.rpartition("-")[2].split(".") for tag in tags]
    for machine in sorted({built.variant.machine for built in variants}):
        met = next(name for name in here if name.endswith(f"_{machine}"))
        stated = {name for names in there for name in names if name.endswith(f"_{machine}")}
        if len(stated) == 1 and (name := stated.pop()) != met:
            wanted, lowest = policy.named(name, machine), policy.named(met, machine)
            if wanted is not None and lowest is not None and wanted.rank > lowest.rank:
                return wanted.name.removesuffix(f"_{machine}")
    return None


def _check_same(first: Part, other: Part) -> None:
    """Raise where two wheels are not parts of one: another project, another version, other files of the author's."""
    names = first.wheel.path.name, other.wheel.path.name
    for what, ours, theirs in (
        ("the distribution", first.distribution, other.distribution),
        ("the package", first.package, other.package),
        ("the version", first.public_version, other.public_version),
    ):
        if ours != theirs:
            raise MergeError(f"{names[0]} and {names[1]} are not parts of one wheel: {what} is {ours} and {theirs}")
    differing = _differing(first.authors, other.authors)
    if differing:
        raise MergeError(
            f"{names[0]} and {names[1]} do not come from the same sources: `{differing[0]}` is not the same in them"
            f"{_more(len(differing))}. Build both from one commit"
        )


def _differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return sorted({path for path, _ in ours.items() ^ theirs.items()})


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def _check_distinct(read: Sequence[Part]) -> None:
    holders: dict[str, str] = {}
    for part in read:
        for label in part.labels:
            before = holders.setdefault(label, part.wheel.path.name)
            if before != part.wheel.path.name:
                raise MergeError(
                    f"the variant {label} is in {before} and in {part.wheel.path.name}: leave one of the wheels out"
                )
