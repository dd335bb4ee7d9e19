"""Partial wheels -> the complete wheel, with the same bytes as one build of everything."""

from __future__ import annotations

import functools
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import merge
from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import MergeError
from hatch_torch_ext.facts import policy
from hatch_torch_ext.facts.manifest import partial_version
from hatch_torch_ext.outlets import parts, writing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.facts.manifest import Origin, Partial
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.outlets.parts import Part
    from hatch_torch_ext.values import Layout


def merge_by_machine(paths: Sequence[Path], *, out: Path, each: bool) -> tuple[Path, ...]:
    """Merge the wheels at ``paths``, in any order, into the folder ``out``; with ``each``, into one for each machine.

    They may be partial wheels of one build (shards), exact wheels, or variant wheels. Raises ``WheelError`` for a wheel
    that this project did not make or that is damaged, ``MergeError`` if they do not belong together, or if an entry is
    missing or there twice.
    """
    if not paths:
        raise MergeError("no wheel to merge: name the parts")
    with tempfile.TemporaryDirectory(prefix="torch-ext-merge-") as scratch:
        read = parts.read_all(sorted(paths), folder=Path(scratch))
        first = read[0]
        for other in read[1:]:
            _check_same(first, other)
        _check_distinct(read)
        _check_complete(read)
        variants = [built for part in read for built in part.variants]
        machines = sorted({built.variant.machine for built in variants}) if each else [None]
        groups = [[built for built in variants if machine in {None, built.variant.machine}] for machine in machines]
        layouts = merge.alike([relaid(group, read) for group in groups])
        release = writing.Release(version=first.public_version)
        return tuple(writing.write(first, layout, release, out=out, read=read) for layout in layouts)


def name_part(path: Path, *, number: int, count: int, out: Path) -> Path:
    """Write the partial wheel at ``path`` into ``out`` under the version of part ``number`` of ``count``."""
    with tempfile.TemporaryDirectory(prefix="torch-ext-part-") as folder:
        part = parts.read(path, folder=Path(folder))
        release = writing.Release(version=partial_version(part.wheel.version, number, count))
        return writing.write(part, relaid(part.variants, [part], partial=part.partial), release, out=out)


def relaid(
    variants: Sequence[BuiltVariant],
    read: Sequence[Part],
    *,
    partial: Partial | None = None,
    open_ended: bool = True,
) -> Layout:
    """Return the layout of ``variants``, which come from ``read``, with the author's policy.

    Unless ``open_ended``, it requires the torch of its variants, even if it could be built for others.
    """
    first = read[0]
    merged = functools.partial(
        merge.merge,
        variants,
        package=first.package,
        distribution=first.distribution,
        partial=partial,
        sources=first.sources,
        open_ended=open_ended,
        made_from=_origin(read),
    )
    layout = merged()
    required = _required(layout.tag, [part.tag for part in read], variants)
    return layout if required is None else merged(manylinux=required)


def _origin(read: Sequence[Part]) -> Origin | None:
    """Return what all of the wheels were built from, or None if one of them does not say so."""
    found = {part.origin for part in read}
    return found.pop() if len(found) == 1 else None


def _required(natural: str, tags: Sequence[str], variants: Sequence[BuiltVariant]) -> str | None:
    """Return the policy that the author set for every part although no part needs it, else None."""
    here = natural.rpartition("-")[2].split(".")
    there = [tag.rpartition("-")[2].split(".") for tag in tags]
    for machine in sorted({built.variant.machine for built in variants}):
        met = next(name for name in here if name.endswith(f"_{machine}"))
        stated = {name for names in there for name in names if name.endswith(f"_{machine}")}
        if len(stated) == 1 and (name := stated.pop()) != met:
            named_policy, lowest = policy.named(name, machine), policy.named(met, machine)
            if named_policy is not None and lowest is not None and named_policy.rank > lowest.rank:
                return named_policy.name.removesuffix(f"_{machine}")
    return None


def _check_same(first: Part, other: Part) -> None:
    """Raise ``MergeError`` if two wheels differ in project, version or the author's files."""
    names = first.wheel.path.name, other.wheel.path.name
    for what, ours, theirs in (
        ("the distribution", first.distribution, other.distribution),
        ("the package", first.package, other.package),
        ("the version", first.public_version, other.public_version),
        ("the build number", first.wheel.build or "none", other.wheel.build or "none"),
    ):
        if ours != theirs:
            raise MergeError(f"{names[0]} and {names[1]} are not parts of one wheel: {what} is {ours} and {theirs}")
    fallbacks = [each.sources and each.sources.fallback for each in (first, other)]
    if fallbacks[0] != fallbacks[1]:
        raise MergeError(
            f"{names[0]} and {names[1]} do not hold the same sources for a build at first use (option `fallback`): "
            "build both from one commit, with the same entries of the matrix, and choose what to build with `only`"
        )
    differing = _differing(first.authors, other.authors)
    if differing:
        raise MergeError(
            f"{names[0]} and {names[1]} do not come from the same sources: `{differing[0]}` is not the same in them"
            f"{escape.more(len(differing))}. Build both from one commit"
        )
    if first.partial is not None and other.partial is not None:
        _check_origin(first.partial, other.partial, names)
    differing = _differing(first.metadata, other.metadata)
    if differing:
        raise MergeError(
            f"{names[0]} and {names[1]} do not have the same metadata: `{differing[0]}` of .dist-info is not the same "
            f"in them{escape.more(len(differing))}. Build both from one commit, with one release of hatchling"
        )


def _check_origin(first: Partial, other: Partial, names: tuple[str, str]) -> None:
    """Raise ``MergeError`` if two partial wheels were built from different inputs."""
    for ours, theirs, what, remedy in (
        (first.builder, other.builder, "by the same hatch-torch-ext", "Build both with one version of it"),
        (
            first.configuration,
            other.configuration,
            "with the same options",
            "Build both with the same `HATCH_TORCH_EXT_` variables and the same options of the hook",
        ),
        (
            first.sources,
            other.sources,
            "from the same sources",
            "Build both from one commit, both in its checkout or both from its sdist, which holds other files; and "
            "without files that tools left beside the sources",
        ),
    ):
        if ours != theirs:
            raise MergeError(f"{names[0]} and {names[1]} were not built {what}. {remedy}")


def _differing(ours: Mapping[str, object], theirs: Mapping[str, object]) -> list[str]:
    return sorted({path for path, _ in ours.items() ^ theirs.items()})


def _check_distinct(read: Sequence[Part]) -> None:
    """Raise ``MergeError`` for an entry that two partial wheels hold, or a variant that two other wheels hold."""
    holders: dict[tuple[str, str], Part] = {}
    for part in read:
        held = [("", label) for label in part.labels]
        if (partial := part.partial) is not None:
            held += [(machine, entry) for machine in part.machines for entry in partial.of(partial.built, machine)]
        for machine, name in held:
            before = holders.setdefault((machine, name), part)
            if before is part or (not machine and before.partial is not None and partial is not None):
                continue
            what = f"the entry {name} for {machine}" if machine else f"the variant {name}"
            raise MergeError(
                f"{what} is in {before.wheel.path.name} and in {part.wheel.path.name}: leave one of the wheels out"
            )


def _expected(partial: Partial, part: Part, machine: str) -> set[str]:
    """Return the entries that the complete wheel has for ``machine``.

    They are the entries that declare it and, if the part was built for it, those that declare no machine.
    """
    entries = partial.of(partial.entries, machine)
    return entries if machine in part.machines else entries.intersection(dict(partial.machines))


def _check_complete(read: Sequence[Part]) -> None:
    """Raise ``MergeError`` if the parts for a machine, together, lack an entry that one of them expects."""
    declared = {machine for part in read if part.partial for _, machine in part.partial.machines}
    for machine in sorted(declared.union(*(part.machines for part in read))):
        there = [part for part in read if machine in part.machines]
        partial = [part for part in (read if machine in declared else there) if part.partial is not None]
        expected = {entry for part in partial if part.partial for entry in _expected(part.partial, part, machine)}
        built = {entry for part in partial if part.partial for entry in part.partial.built}
        built |= {variant.variant.build.entry for part in there for variant in part.variants}
        if lacking := sorted(expected - built):
            names = ", ".join(lacking)
            raise MergeError(
                f"no part holds {names} for {machine}: name the wheels that do, or build "
                f"{'them' if len(lacking) > 1 else 'it'} with "
                f"`hatch-torch-ext build {' '.join(f'--only {shlex.quote(name)}' for name in lacking)} -d DIR`"
            )
