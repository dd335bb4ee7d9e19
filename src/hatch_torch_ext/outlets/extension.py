"""A published wheel with variants added: the next build number of its version, under the same tag.

Installers look at the tag first and at the build number last: the new wheel takes the place of the old one for whoever
installs anew, and a lock file with hashes keeps the old one.
"""

from __future__ import annotations

import filecmp
import itertools
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name

from hatch_torch_ext import __version__, merge
from hatch_torch_ext.base.errors import MergeError
from hatch_torch_ext.base.escape import few
from hatch_torch_ext.facts import content, manifest, releases
from hatch_torch_ext.outlets import merging, parts, writing
from hatch_torch_ext.wheel import parsed_requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from hatch_torch_ext.facts.manifest import Origin
    from hatch_torch_ext.outlets.parts import Part
    from hatch_torch_ext.values import Layout

COMPARED = frozenset({"Name", "Provides-Extra", "Requires-Dist", "Requires-Python"})
"""Fields of METADATA by which installers decide; the wheel keeps its own of all."""
UNAUDITED = ".torch-ext-unaudited-"
"""The name, but for its end, of the folder in which the new wheel is until it is audited."""


def check_whole(part: Part, *, distribution: str, version: str) -> None:
    """Raise ``MergeError`` unless the wheel is a whole one, of the project ``distribution`` at ``version``."""
    name = part.wheel.path.name
    parts.refuse_cut(part)
    if canonicalize_name(part.distribution) != canonicalize_name(distribution):
        raise MergeError(f"{name} is a wheel of {part.distribution}, and the project in this folder is {distribution}")
    if part.origin is not None and manifest.is_newer(part.origin.version):
        raise MergeError(
            f"{name} was built by hatch-torch-ext {part.origin.version}, and this is {__version__}: "
            f"`pip install 'hatch-torch-ext>={part.origin.version}'`"
        )
    if part.wheel.version != version:
        raise MergeError(
            f"{name} is of version {part.wheel.version}, and the project in this folder of version {version}: check "
            f"out the sources of {part.wheel.version}, or release {version} with the new torch in its matrix"
        )


def check_sources(part: Part, here: Origin, *, source: str, shipped: Mapping[str, Path], trusted: bool) -> None:
    """Raise ``MergeError`` unless the wheel was built from the sources and the configuration that are here.

    ``source`` is the folder of CMakeLists.txt, ``shipped`` the author's files for the wheel, by place in it. Wheels
    that do not say what they were built from need ``trusted``.
    """
    name, version = part.wheel.path.name, part.wheel.version
    remedy = f"Check out the sources of {version} as they were, or release a new version"
    if part.origin is not None:
        if differing := list(manifest.differences(part.origin, here, source=source)):
            raise MergeError(f"{name} was not built from what is here: not the same are {few(differing)}. {remedy}")
    elif not trusted:
        raise MergeError(
            f"{name} does not say what it was built from, as wheels of an older hatch-torch-ext do not: whether its "
            f"sources and options are those in this folder cannot be known. If you have checked out the sources of "
            f"{version}, say so with `--trust-sources`"
        )
    authors = part.authors
    differing = sorted(
        place for place, file in shipped.items() if place in authors and content.sha256(file) != authors[place]
    )
    if differing:
        raise MergeError(f"{name} was not built from what is here: not the same are {few(differing)}. {remedy}")


def check_all(read: Sequence[Part], machines: Collection[str]) -> None:
    """Raise ``MergeError`` unless there is a wheel for each of ``machines``, those of the matrix.

    Installers that lock a version take the requirement of torch from one of its wheels, so all have to admit the new
    release.
    """
    missing = sorted({*machines} - {machine for part in read for machine in part.machines})
    if missing:
        names = ", ".join(part.wheel.path.name for part in read)
        of = f"{read[0].distribution}=={read[0].wheel.version}"
        raise MergeError(
            f"The matrix has entries for {', '.join(missing)}, and {names} is not for it. All wheels of a version have "
            f"to require the same torch: name those of the other machines, too, or all of them by `{of}`"
        )


def fitting(part: Part, added: Sequence[Part], *, unserved: Collection[str] = ()) -> list[Part]:
    """Return those of ``added`` that are for the machines of ``part``.

    Raises ``MergeError`` if there are none, unless ``part`` is for ``unserved`` machines only: those of the matrix for
    which there is no entry with the new torch. Such a wheel gets the requirement only.
    """
    found = [each for each in added if set(each.machines) <= set(part.machines)]
    if not found and not {*part.machines} <= {*unserved}:
        names = ", ".join(each.wheel.path.name for each in added)
        raise MergeError(
            f"{part.wheel.path.name} is for {', '.join(part.machines)}, and none of {names} is: build for it, too"
        )
    return found


def layouts(
    read: Sequence[Part], added: Sequence[Part], *, unserved: Collection[str] = (), generated: Collection[str] = ()
) -> tuple[Layout, ...]:
    """Return the layout of each wheel of ``read``, the wheels of one version, with what of ``added`` is for it.

    They require the same torch: what each required before, and the new releases. Raises ``MergeError`` as ``fitting``
    (which ``unserved`` is for) and ``layout`` do.
    """
    found = [layout(part, fitting(part, added, unserved=unserved), generated=generated) for part in read]
    return merge.alike(found, besides=(pair for part in read for pair in _admitted(part)))


def _admitted(part: Part) -> Iterator[tuple[str, bool]]:
    """Yield the releases that a wheel requires and has no variant for, since wheels of other machines have one.

    With each, whether it admits all later releases, too.
    """
    every = releases.minors_of(releases.admitted_versions(SpecifierSet()))
    admitted = releases.minors_of(releases.admitted_versions(Requirement(part.requires).specifier))
    excluded = [line for line in every if line not in admitted]
    for line in admitted:
        if releases.format_minor(line) not in part.torches:
            yield releases.format_minor(line), not excluded or line > excluded[-1]


def layout(part: Part, added: Sequence[Part], *, generated: Collection[str] = ()) -> Layout:
    """Return the layout of the wheel with the variants of ``added``, which were built for it.

    ``generated`` are names of the author's files that change with each build (a version from the history). Raises
    ``MergeError`` if the wheels do not belong together, or the new one would have another tag.
    """
    for each in added:
        _check_same(part, each, generated)
    held = dict.fromkeys(part.labels, part)
    for each in added:
        for label in each.labels:
            if label in held:
                raise MergeError(f"{part.wheel.path.name} holds the variant {label} already: nothing is to be added")
            held[label] = each
    variants = [built for each in (part, *added) for built in each.variants]
    found = merging.relaid(variants, [part])
    if parse_tag(found.tag) != parse_tag("-".join(part.wheel.path.stem.split("-")[-3:])):
        raise MergeError(
            f"The new variants would change the tag of {part.wheel.path.name} to {found.tag}, and installers compare "
            "tags before build numbers: they might not choose the new wheel. Build the variants in the image in which "
            "the wheel was built, or release a new version"
        )
    _check_required(part, found)
    return found


def write(
    extended: Sequence[tuple[Part, Layout]],
    *,
    out: Path,
    audit: Callable[[Path, Part, Layout], None],
    added: Sequence[Part] = (),
) -> tuple[Path, ...]:
    """Write each wheel into the folder ``out`` under the next build number; return their paths.

    None of them gets its name before ``audit``, which is called with the file, has accepted all. ``added`` are the
    wheels with the new variants. A wheel of that name is never replaced: raises ``MergeError`` if there is one with
    other contents.
    """
    writing.check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=UNAUDITED, dir=out))
    try:
        drafts = []
        for part, layout_of in extended:
            number = str(int(re.sub(r"\D.*", "", part.wheel.build or "0")) + 1)
            release = writing.Release(version=part.wheel.version, build=number)
            draft = writing.write(part, layout_of, release, out=aside, read=added)
            audit(draft, part, layout_of)
            drafts.append((draft, out / draft.name))
        for draft, target in drafts:
            if target.exists() and not filecmp.cmp(draft, target, shallow=False):
                raise _taken(target)
        for draft, target in drafts:
            if not _named(draft, target) and not filecmp.cmp(draft, target, shallow=False):
                raise _taken(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return tuple(target for _, target in drafts)


def _taken(target: Path) -> MergeError:
    return MergeError(
        f"{target} exists, with other contents: a published name is never used again. Extend that wheel, or name "
        "another folder with `-o`"
    )


def _named(draft: Path, target: Path) -> bool:
    """Give the file ``draft`` the name ``target``; return False if a file has that name by now."""
    try:
        os.link(draft, target)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            return False
        draft.rename(target)
    return True


def _check_same(part: Part, added: Part, generated: Collection[str]) -> None:
    """Raise ``MergeError`` if the author's files or what installers read of METADATA differ."""
    ours, theirs = part.authors, added.authors
    files = sorted(
        path for path in {path for path, _ in ours.items() ^ theirs.items()} if path.rpartition("/")[2] not in generated
    )
    fields = [sorted(set(_fields(each))) for each in (part, added)]
    entry_points = [each.metadata.get("entry_points.txt") for each in (part, added)]
    differing = [*files, *(["entry_points.txt"] if entry_points[0] != entry_points[1] else [])]
    differing += [f"`{name}: {value}`" for name, value in sorted({*fields[0]} ^ {*fields[1]})]
    if differing:
        raise MergeError(
            f"{part.wheel.path.name} was not built from what is here: not the same are {few(differing)}. Check out "
            f"the sources of {part.wheel.version} as they were, or release a new version"
        )


def _fields(part: Part) -> tuple[tuple[str, str], ...]:
    fields = part.metadata.get("METADATA")
    assert isinstance(fields, tuple)  # noqa: S101 -- of ``Part.metadata``
    return tuple((name, value) for name, value in fields if name in COMPARED)


def _check_required(part: Part, extended: Layout) -> None:
    """Raise ``MergeError`` if the author's own requirement of torch would keep the new variants' torch out."""
    own = [
        requirement
        for name, value in part.wheel.metadata("METADATA")
        if name == "Requires-Dist" and (requirement := parsed_requirement(value)) is not None
        if canonicalize_name(requirement.name) == "torch" and requirement != parsed_requirement(part.requires)
    ]
    served = {placed.variant.torch for placed in extended.variants}
    for requirement, line in itertools.product(own, sorted(served - part.torches)):
        if not requirement.specifier.contains(f"{line}.0"):
            raise MergeError(
                f"`{requirement}` is what the project itself requires, and no torch {line} is in it: users could not "
                "install the wheel beside it. Release a new version that requires more, or leave torch to the hook "
                '(`dynamic = ["dependencies"]`)'
            )
