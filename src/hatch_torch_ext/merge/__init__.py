"""Variants -> ``Layout``: equal bytes once, one policy tag, one torch requirement."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hatch_torch_ext import elf
from hatch_torch_ext.base import untrusted
from hatch_torch_ext.base.errors import MergeError
from hatch_torch_ext.facts import content, policy, releases, variant
from hatch_torch_ext.facts.manifest import (
    ORIGIN,
    PARTIAL,
    SCHEMA,
    SOURCES,
    fallback_to_json,
    origin_to_json,
    partial_to_json,
)
from hatch_torch_ext.facts.variant import FOLDER, SHARED, VariantFile
from hatch_torch_ext.merge import loader
from hatch_torch_ext.values import Layout, LayoutFile, PlacedVariant

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.facts.manifest import Origin, Partial, Sources
    from hatch_torch_ext.facts.variant import BuiltVariant, Variant

DESCRIPTIONS = frozenset({".cmake", ".pc"})
"""Suffixes of files for CMake and pkg-config, which name neighbouring files by their paths: those keep them."""
PER_VARIANT = DESCRIPTIONS | {".py"}
"""Suffixes of files into which builds write what they were made with: they may differ between entries."""


def merge(
    variants: Sequence[BuiltVariant],
    *,
    package: str,
    distribution: str,
    manylinux: str | None = None,
    partial: Partial | None = None,
    sources: Sources | None = None,
    open_ended: bool = True,
    made_from: Origin | None = None,
) -> Layout:
    """Return the layout of a wheel of ``variants``, whatever their order.

    ``package`` is the import name, ``distribution`` the name that users install, ``manylinux`` the policy that the
    author asks for (``manylinux_2_28``), else the lowest that is met. ``partial`` says what they lack of the complete
    wheel. With ``sources`` there may be no variant, and any later torch is admitted unless ``open_ended`` is false.
    ``made_from`` is written into the manifest.
    Raises ``MergeError`` for two variants of one label, two files of one place, or a policy that is not met.
    """
    if not variants and sources is None:
        raise MergeError("no variant to put into the wheel; let `only` and `skip` leave at least one entry")
    digests = {path: content.sha256(path) for built in variants for _, path in built.package_files}
    ordered = _with_own_files(
        sorted(variants, key=lambda built: (built.variant.label, built.variant.build.entry)), digests
    )
    distinct = _collapse(ordered)
    placed, files = _placed(distinct)
    package_files = _package_files(ordered, digests)
    if clash := sorted(files.keys() & package_files.keys()):
        raise MergeError(f"`{clash[0]}` is reserved for the variants; let CMake install this file elsewhere")
    fallback = sources.fallback if sources is not None else None
    if sources is not None:
        files |= {f"{SOURCES}/{path}": sources.root / path for path, _ in sources.fallback.files}
    loaders = loader.parts(fallback=sources is not None)
    files |= loaders
    tag = f"{_python_tag(distinct)}-{_platform_tag(distinct, manylinux)}" if distinct else "py3-none-any"
    requires = releases.torch_requirement(
        ((built.variant.torch, built.variant.stable_abi) for built in distinct),
        open_ended=fallback is not None and open_ended,
    )
    head: dict[str, object] = {"package": package, "distribution": distribution, "tag": tag, "requires": requires}
    if partial is not None:
        head[PARTIAL] = partial_to_json(partial)
    if fallback is not None:
        head["fallback"] = fallback_to_json(fallback)
    if made_from is not None:
        head[ORIGIN] = origin_to_json(made_from)
    return Layout(
        package=package,
        variants=tuple(placed),
        files=tuple(
            LayoutFile(target=target, source=path) for target, path in sorted({**files, **package_files}.items())
        ),
        tag=tag,
        requires=requires,
        manifest=_manifest(head, placed, package_files, _owners(ordered), digests, loaders=loaders),
        partial=partial,
        fallback=fallback,
    )


def _placed(distinct: Sequence[BuiltVariant]) -> tuple[list[PlacedVariant], dict[str, Path]]:
    """Return the variants with the places of their files, and place -> file."""
    places = _places(distinct)
    files: dict[str, Path] = {}
    placed = []
    for built in distinct:
        placing = tuple(sorted((file.path, places[built.variant.label, file.path]) for file in built.variant.files))
        placed.append(PlacedVariant(variant=built.variant, places=placing))
        for path, target in placing:
            files.setdefault(target, built.source(path))
    return placed, files


def alike(layouts: Sequence[Layout], *, besides: Iterable[tuple[str, bool]] = ()) -> tuple[Layout, ...]:
    """Return the layouts of the wheels of one version, with the same torch requirement in each.

    Installers that lock a version read the metadata of one of its wheels, and use them for all. ``besides`` are
    releases, each with whether all later ones are meant, that it admits too.
    """
    further = set(besides)
    if len(layouts) == 1 and not further:
        return tuple(layouts)
    served = {(placed.variant.torch, placed.variant.stable_abi) for layout in layouts for placed in layout.variants}
    served |= further
    requires = releases.torch_requirement(served, open_ended=layouts[0].fallback is not None)
    return tuple(_requiring(layout, requires) for layout in layouts)


def largest(layout: Layout, count: int = 5) -> tuple[tuple[str, int], ...]:
    """Return the ``count`` largest files of the wheel, as (target, bytes), the largest first."""
    sizes = [(file.target, file.source.stat().st_size) for file in layout.files]
    return tuple(sorted(sizes, key=lambda pair: (-pair[1], pair[0]))[:count])


def may_differ(target: str) -> bool:
    """Return whether each variant may have its own file ``target``; of other files, the package has one."""
    place = PurePosixPath(target)
    return place.suffix in PER_VARIANT and place.name != "__init__.py"


def not_the_same(target: str, first: str, second: str) -> str:
    """Return the message for a file of the package that differs between two entries."""
    return (
        f"CMake installs `{target}` in {first} and in {second}, but not the same: the package has one place for it. "
        "Let CMake write the same everywhere, or give each variant its own, beside its libraries: "
        f'`variant-data = ["{target}"]`.'
    )


def _with_own_files(ordered: Sequence[BuiltVariant], digests: Mapping[Path, str]) -> tuple[BuiltVariant, ...]:
    """Move package files that differ between entries into the variants that installed them; return the variants."""
    contents: dict[str, set[str]] = defaultdict(set)
    for built in ordered:
        # In partial wheels, some may have their own already.
        for file in built.variant.files:
            if file.path == f"{built.variant.label}/{file.installed}":
                contents[file.installed].add(file.sha256)
        for target, path in built.package_files:
            if may_differ(target):
                contents[target].add(digests[path])
    differing = {target for target, found in contents.items() if len(found) > 1}
    return tuple(_with_own(built, differing, digests) for built in ordered)


def _with_own(built: BuiltVariant, differing: Container[str], digests: Mapping[Path, str]) -> BuiltVariant:
    own = [(target, path) for target, path in built.package_files if target in differing]
    files = [
        VariantFile(
            path=f"{built.variant.label}/{target}",
            kind="python" if target.endswith(".py") else "data",
            sha256=digests[path],
            size=path.stat().st_size,
            installed=target,
            module=target.removesuffix(".py").replace("/", ".") if target.endswith(".py") else None,
        )
        for target, path in own
    ]
    ordered = sorted([*built.variant.files, *files], key=lambda file: file.path)
    return replace(
        built,
        variant=replace(built.variant, files=tuple(ordered)),
        package_files=tuple(pair for pair in built.package_files if pair not in own),
        elsewhere=(*built.elsewhere, *((file.path, path) for file, (_, path) in zip(files, own, strict=True))),
    )


def _collapse(ordered: Sequence[BuiltVariant]) -> tuple[BuiltVariant, ...]:
    """Return one variant for each label: entries with the same bytes are one; different ones exclude each other."""
    kept: dict[str, BuiltVariant] = {}
    for built in ordered:
        first = kept.setdefault(built.variant.label, built)
        ours, theirs = ({file.path: file.sha256 for file in each.variant.files} for each in (first, built))
        if differing := sorted(path for path, _ in ours.items() ^ theirs.items()):
            names = f"{first.variant.build.entry} and {built.variant.build.entry}"
            raise MergeError(
                f"{names} both give the variant {built.variant.label}, but `{differing[0]}` differs between them, so "
                f"the loader could not choose. Leave one out with `skip`, or make the build independent of what "
                f"tells the entries apart."
            )
    return tuple(kept.values())


def _places(distinct: Sequence[BuiltVariant]) -> dict[tuple[str, str], str]:
    """Return the target of each (label, path).

    A file keeps its place unless its bytes are in several variants. Modules are distinguished by name too: one that is
    named for a Python is not used for another, even if the bytes agree.
    """
    owners: dict[tuple[str, str | None], list[tuple[str, VariantFile]]] = defaultdict(list)
    for built in distinct:
        for file in built.variant.files:
            name = file.path.rpartition("/")[2] if file.kind == "module" else None
            owners[file.sha256, name].append((built.variant.label, file))
    places = {}
    for (sha256, _), group in owners.items():
        shared = sorted({file.path for _, file in group if file.path.startswith(f"{SHARED}/")})
        names = sorted({file.path.rpartition("/")[2] for _, file in group})
        for label, file in group:
            if file.fixed or file.path in shared:
                place = file.path  # other files find it by this name
            elif len({owner for owner, _ in group}) > 1 and PurePosixPath(file.path).suffix not in DESCRIPTIONS:
                place = shared[0] if shared else f"{SHARED}/{sha256[:12]}/{names[0]}"
            else:
                place = file.path
            places[label, file.path] = f"{FOLDER}/{place}"
    return places


def _package_files(ordered: Sequence[BuiltVariant], digests: Mapping[Path, str]) -> dict[str, Path]:
    """Return target -> file of what CMake installed for the package as a whole, equal in every entry that has it."""
    found: dict[str, tuple[str, Path]] = {}
    for built in ordered:
        entry = built.variant.build.entry
        for target, path in built.package_files:
            other, first = found.setdefault(target, (entry, path))
            if digests[first] != digests[path]:
                raise MergeError(not_the_same(target, other, entry))
    return {target: path for target, (_, path) in sorted(found.items())}


def _owners(ordered: Sequence[BuiltVariant]) -> dict[str, tuple[str, ...]]:
    """Return the variants, by label, that installed each file of the package; wheels are split and merged by it."""
    found: dict[str, set[str]] = defaultdict(set)
    for built in ordered:
        for target, _ in built.package_files:
            found[target].add(built.variant.label)
    return {target: tuple(sorted(labels)) for target, labels in found.items()}


def _python_tag(distinct: Sequence[BuiltVariant]) -> str:
    """Return the Python and ABI tags: those of one Python if every variant is only for it, else any Python 3."""
    pythons = {built.variant.python for built in distinct}
    limited = sorted((python for python in pythons if python and python.startswith("abi3-")), key=policy.natural)
    if len(limited) == len(pythons):
        return f"{limited[0].removeprefix('abi3-')}-abi3"
    only = next(iter(pythons))
    if len(pythons) > 1 or only is None:
        return "py3-none"
    return f"{only.rstrip('t')}-{only}"


def _platform_tag(distinct: Sequence[BuiltVariant], manylinux: str | None) -> str:
    """Return the highest policy over all variants of each machine, or the requested one if it is not lower."""
    strictest: dict[tuple[str, policy.Libc], policy.Policy] = {}
    for built in distinct:
        libc = built.variant.libc
        met = policy.lowest(built.variant.machine, libc, _versions(built.variant))
        key = built.variant.machine, libc
        strictest[key] = max(strictest.get(key, met), met, key=lambda each: each.rank)
    if manylinux is None:
        return ".".join(sorted(met.name for met in strictest.values()))
    names = []
    for (machine, libc), met in strictest.items():
        required = policy.named(manylinux, machine)
        if required is None or required.name.startswith("musl") != (libc == "musl"):
            raise MergeError(
                f'`manylinux = "{manylinux}"` is not a policy for {libc} on {machine}; {_highest(met, machine)}'
            )
        if required.rank < met.rank:
            raise MergeError(_too_low(required, met, [built for built in distinct if built.variant.machine == machine]))
        names.append(required.name)
    return ".".join(sorted(names))


def _too_low(required: policy.Policy, met: policy.Policy, variants: Sequence[BuiltVariant]) -> str:
    for built in variants:
        for file in built.variant.files:
            if beyond := policy.breaking(required, built.variant.machine, file.versions):
                symbol = _symbol(built.source(file.path), beyond[-1])
                return (
                    f"{required.name} is required, but `{file.path}` of {built.variant.build.entry} needs {symbol}, "
                    f"which that policy does not promise; {_highest(met, built.variant.machine)}, or build in the "
                    f"image of {required.name}"
                )
    return f"{required.name} is required, but is not met; {_highest(met, variants[0].variant.machine)}"


def _symbol(file: Path, version: str) -> str:
    """Return ``name@version`` of a symbol with ``version``, or only the version if no symbol has it."""
    return next((f"{name}@{needed}" for name, needed in elf.read(file).symbol_versions if needed == version), version)


def _highest(met: policy.Policy, machine: str) -> str:
    out = "take the option `manylinux` out"
    return out if met.version is None else f"{out} or set it to `{met.name.removesuffix(f'_{machine}')}`"


def _versions(described: Variant) -> Iterator[str]:
    return (version for file in described.files for version in file.versions)


def _manifest(
    head: Mapping[str, object],
    placed: Iterable[PlacedVariant],
    package_files: Mapping[str, Path],
    owners: Mapping[str, tuple[str, ...]],
    digests: Mapping[Path, str],
    *,
    loaders: Mapping[str, Path],
) -> str:
    described = []
    for each in placed:
        data = variant.to_json(each.variant)
        described.append({**data, "places": dict(each.places)})
    labels = tuple(sorted(each.variant.label for each in placed))
    installed = [
        {"target": target, "sha256": digests[path], "size": path.stat().st_size}
        | ({"variants": list(owners[target])} if owners[target] != labels else {})
        for target, path in package_files.items()
    ]
    manifest = {"schema": SCHEMA, **head, "variants": described, "package_files": installed}
    manifest["loader"] = [
        {"target": target, "sha256": content.sha256(path), "size": path.stat().st_size}
        for target, path in sorted(loaders.items())
    ]
    return _text(manifest)


def _text(manifest: Mapping[str, object]) -> str:
    return json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _requiring(layout: Layout, requires: str) -> Layout:
    """Return the layout with another torch requirement, in its manifest too: by that, METADATA's own line is known."""
    manifest = _text({**untrusted.json(layout.manifest), "requires": requires})
    return replace(layout, requires=requires, manifest=manifest)
