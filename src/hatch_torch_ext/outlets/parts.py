"""A wheel of this project, unpacked: the author's members, and the variants as the build left them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from hatch_torch_ext import wheel as wheels
from hatch_torch_ext.base import escape, untrusted
from hatch_torch_ext.base.errors import MergeError, WheelError
from hatch_torch_ext.facts.manifest import SOURCES, Sources, newer_maker, whole_version
from hatch_torch_ext.facts.variant import MANIFEST, BuiltVariant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.facts.manifest import Manifest, Origin, Partial
    from hatch_torch_ext.wheel import Wheel

VARIANTS = "_variants.py"
SBOM = "sboms/torch-ext.cdx.json"
"""Below ``.dist-info``."""
_HEAD = {
    "package": re.compile(r"\w{1,200}(?:\.\w{1,200}){0,20}"),
    "distribution": re.compile(r"[A-Za-z0-9._-]{1,200}"),
    "requires": re.compile(r"torch[ !=<>~0-9.,*]{0,1000}"),
    "tag": re.compile(r"[\w.]{1,200}-[\w.]{1,200}-[\w.]{1,1000}", re.ASCII),
}
"""Fields of a manifest's head that a build writes and from which other files are generated."""
EXECUTABLE = 0o100
_EXACT = re.compile(r"[+.]pt[0-9]+(?:stable)?(?:cpu|cu[0-9]+)(?:cxx98|cxx11)?$")
"""The local part of an exact wheel's version; an author's own may come before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """A member of the archive as the writer needs it; ``attributes`` are the zip's, with the mode in the high bits."""

    path: str
    time: tuple[int, int, int, int, int, int]
    attributes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A wheel of this project, unpacked below ``wheel.folder``.

    ``prefix`` is the package's folder in the wheel (``my_pkg/``); ``members`` are in the order of the archive;
    ``generated`` are those that the writer makes again: variants, files that CMake installed, the loader.
    """

    wheel: Wheel
    package: str
    distribution: str
    requires: str
    tag: str
    prefix: str
    variants: tuple[BuiltVariant, ...]
    members: tuple[MemberInfo, ...]
    generated: frozenset[str]
    partial: Partial | None
    """What the wheel lacks of the complete one, if it says so."""
    sources: Sources | None = None
    origin: Origin | None = None
    """What it was built from, if it says so."""
    pruned: tuple[str, ...] = ()
    """The labels of variants that `prune` removed from an installation of which the wheel was made."""

    @property
    def public_version(self) -> str:
        """Return the version of the complete wheel: without the local part that names a part or one torch."""
        if self.partial is not None:
            return whole_version(self.wheel.version)
        return without_local(self.wheel.version)

    @property
    def machines(self) -> tuple[str, ...]:
        """Return the machines that the variants are for, sorted."""
        return tuple(sorted({built.variant.machine for built in self.variants}))

    @property
    def torches(self) -> frozenset[str]:
        """Return the releases of torch that the variants were built for (``2.8``)."""
        return frozenset(built.variant.torch for built in self.variants)

    @property
    def metadata(self) -> Mapping[str, object]:
        """Return name -> content of the author's files in ``.dist-info``; METADATA lacks version and torch."""
        info = f"{self.wheel.dist_info}/"
        found: dict[str, object] = {}
        for member in self.wheel.members:
            name = member.path.removeprefix(info)
            if name == "METADATA" and member.path.startswith(info):
                found[name] = tuple(pair for pair in self.wheel.metadata(name) if not _of_the_part(*pair))
            elif member.path.startswith(info) and name not in {"RECORD", "WHEEL", "variant.json", SBOM}:
                found[name] = member.sha256
        return found

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the variants, sorted."""
        return tuple(sorted(built.variant.label for built in self.variants))

    @property
    def authors(self) -> Mapping[str, str]:
        """Return path -> SHA-256 of the author's own members outside of ``.dist-info``."""
        return {
            member.path: member.sha256
            for member in self.wheel.members
            if member.path not in self.generated and not member.path.startswith(f"{self.wheel.dist_info}/")
        }

    def member(self, path: str) -> MemberInfo:
        """Return the member of that path."""
        return next(member for member in self.members if member.path == path)


def with_local(version: str, local: str) -> str:
    """Return ``version`` with the local part of an exact wheel."""
    return f"{version}{'.' if '+' in version else '+'}{local}"


def without_local(version: str) -> str:
    """Return the version without the local part of an exact wheel; an author's own local part stays."""
    return _EXACT.sub("", version)


def read(path: Path, *, folder: Path) -> Part:
    """Unpack the wheel at ``path`` below ``folder``, which is empty.

    Raises ``WheelError`` for a wheel that this project did not make or that is damaged: every byte is compared with the
    manifest.
    """
    found = wheels.read(path, folder=folder, keep=lambda _: True)
    if found.problems:
        worst = found.problems[0]
        raise WheelError(f"{path}: {worst.file}: {worst.message}. Build or fetch the wheel again")
    if wrong := found.misnamed():
        raise WheelError(f"{path}: {wrong}. Give the file its published name back, or build the wheel again")
    places = found.manifests()
    if not places:
        raise WheelError(
            f"{path}: was not made by hatch-torch-ext: it holds no {MANIFEST}. Name a wheel that was "
            "built with the build hook `torch-ext`"
        )
    if len(places) > 1:
        raise WheelError(
            f"{path}: holds {len(places)} packages with variants ({', '.join(places)}), and one is expected"
        )
    (place,) = places
    try:
        manifest = found.manifest(place)
    except WheelError as error:
        raise WheelError(f"{path}: {place}: {error}. {_read_by(found.text(place) or '')}") from error
    fields = _head(path, found, place, manifest.head)
    _check_hashes(path, found, manifest)
    prefix = place.removesuffix(MANIFEST)
    members = _members(path)
    for member in members:  # programs keep their mode
        (folder / member.path).chmod(0o755 if (member.attributes >> 16) & EXECUTABLE else 0o644)
    return Part(
        wheel=found,
        prefix=prefix,
        variants=_built(found, manifest, prefix),
        sources=_sources(found, manifest, prefix),
        members=members,
        generated=_generated(members, manifest, f"{prefix}{VARIANTS}"),
        partial=manifest.partial,
        origin=manifest.origin,
        pruned=_pruned(manifest.head),
        **fields,
    )


def read_all(paths: Sequence[Path], *, folder: Path) -> list[Part]:
    """Unpack the wheels at ``paths`` below ``folder``, which is empty or not there yet; raises as ``read`` does."""
    found = []
    for number, path in enumerate(paths):
        own = folder / str(number)
        own.mkdir(parents=True)
        found.append(read(path, folder=own))
    return found


def _read_by(text: str) -> str:
    """Return what to do about a manifest that cannot be read."""
    try:
        maker = newer_maker(untrusted.json(text))
    except (AttributeError, ValueError):
        maker = ""
    if maker:
        return f"hatch-torch-ext {maker} made it: `pip install 'hatch-torch-ext>={maker}'`"
    return "Build the wheel again, or use the hatch-torch-ext that made it"


def _head(path: Path, found: Wheel, place: str, head: Mapping[str, object]) -> dict[str, str]:
    """Return the fields of a manifest's head, of the same distribution as the file's name."""
    fields = {name: head.get(name) for name in ("package", "distribution", "requires", "tag")}
    for name, value in fields.items():
        if not isinstance(value, str):
            raise WheelError(f"{path}: {place} lacks `{name}`. Build the wheel again")
        if not _HEAD[name].fullmatch(value):
            raise WheelError(f"{path}: {place}: `{name}` cannot be `{escape.name(value)}`. Build the wheel again")
    if canonicalize_name(str(fields["distribution"])) != found.distribution:
        raise WheelError(
            f"{path}: is named {found.distribution}, but {place} is of {fields['distribution']}. Give the file its "
            "published name back, or build the wheel again"
        )
    return {name: str(value) for name, value in fields.items()}


def refuse_cut(part: Part) -> None:
    """Raise ``MergeError`` for a wheel that lacks variants of the fat wheel: a part, a pruned one, one cut from it."""
    name = part.wheel.path.name
    if part.partial is not None:
        raise MergeError(
            f"{name} is a partial wheel: it lacks {', '.join(part.partial.lacking)}. Join it with the other parts "
            "first, by `hatch-torch-ext merge`"
        )
    if part.pruned:
        raise MergeError(
            f"{name} was made of an installation from which `prune` removed {', '.join(part.pruned)}: name the wheel "
            "that was published"
        )
    if part.wheel.version != part.public_version:
        raise MergeError(
            f"{name} is not a whole wheel: its version has the local part "
            f"{part.wheel.version.partition('+')[2]}. Name the fat wheel, or merge the parts first"
        )
    if any(member.path == f"{part.wheel.dist_info}/variant.json" for member in part.members):
        raise MergeError(f"{name} was cut already: it holds variant.json. Name the fat wheel that it was cut from")


def _pruned(head: Mapping[str, object]) -> tuple[str, ...]:
    found = head.get("pruned")
    return tuple(str(label) for label in found) if isinstance(found, list) else ()


def _of_the_part(field: str, value: str) -> bool:
    """Return whether a field of METADATA differs between parts of one wheel: the version, the torch requirement."""
    return field == "Version" or (field == "Requires-Dist" and re.match(r"torch\b(?![-_.])", value) is not None)


def _check_hashes(path: Path, found: Wheel, manifest: Manifest) -> None:
    hashes = {member.path: member.sha256 for member in found.members}
    promised = set(manifest.package_files.items())
    for item in manifest.variants:  # of a file that several share, each states the hash
        promised |= {(place, file.sha256) for place, file in item.files.items()}
    for place, sha256 in sorted(promised):
        if hashes.get(place) != sha256:
            fault = "has another hash than in the manifest" if place in hashes else "is in the manifest, and missing"
            raise WheelError(f"{path}: {place} {fault}. Build or fetch the wheel again")


def _built(found: Wheel, manifest: Manifest, prefix: str) -> tuple[BuiltVariant, ...]:
    root = found.folder / prefix / "_torch_ext"
    installed = manifest.head.get("package_files")
    built = []
    for item in manifest.variants:
        label = item.variant.label
        own = [
            str(each["target"])
            for each in (installed if isinstance(installed, list) else [])
            if label in each.get("variants", [label])
        ]
        built.append(
            BuiltVariant(
                variant=item.variant,
                root=root,
                package_files=tuple((target, found.folder / prefix / target) for target in sorted(own)),
                elsewhere=tuple((file.path, found.folder / place) for place, file in sorted(item.files.items())),
            )
        )
    return tuple(sorted(built, key=lambda each: each.variant.label))


def _sources(found: Wheel, manifest: Manifest, prefix: str) -> Sources | None:
    if manifest.fallback is None:
        return None
    return Sources(fallback=manifest.fallback, root=found.folder / prefix / SOURCES)


def _generated(members: Sequence[MemberInfo], manifest: Manifest, loader: str) -> frozenset[str]:
    """Return what the build added to the wheel: variants, loader, manifest, and what CMake installed for the package.

    hatchling writes the author's own members first, then those of the build in the order of ``forced_order``. A file
    that CMake installed and that the author's package has too is among the author's own.
    """
    found = {manifest.place, loader}
    found |= {place for place in manifest.package_files if place.startswith(manifest.root)}
    for item in manifest.variants:
        found |= item.files.keys()
    paths = [member.path for member in members]
    places = {path: number for number, path in enumerate(paths)}
    start = min(places[path] for path in found if path in places)
    while start and paths[start - 1] in manifest.package_files:
        if forced_order(paths[start - 1]) > forced_order(paths[start]):
            break
        start -= 1
    return frozenset(found | (manifest.package_files.keys() & set(paths[start:])))


def forced_order(path: str) -> tuple[int, str]:
    """Return the key by which hatchling sorts the files that build hooks add to a wheel."""
    return path.count("/"), path


def _members(path: Path) -> tuple[MemberInfo, ...]:
    with wheels.open_archive(path) as archive:
        return tuple(
            MemberInfo(path=info.filename, time=info.date_time, attributes=info.external_attr)
            for info in archive.infolist()
            if not info.is_dir()
        )
