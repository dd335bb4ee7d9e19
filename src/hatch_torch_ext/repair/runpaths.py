"""The author's own RPATHs, and files that are opened by name: which paths must stay valid in the wheel.

An entry of RPATH matters to a file that opens others by name (it calls ``dlopen``) or that needs a library which
`exclude` leaves to users. Such a file keeps the entries that lead to existing folders, rewritten for its new place; the
removal of others is reported. A file that another opens by name, or that finds data beside itself (it calls
``dladdr``), stays in the folder of its variant, under its own name.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from hatch_torch_ext.facts.variant import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from hatch_torch_ext.repair.contents import Links, VariantBinary

ORIGIN = re.compile(r"\$(?:ORIGIN(?=/|$)|\{ORIGIN\})")
OPENS_BY_NAME = frozenset({"dlopen", "dlmopen"})
FINDS_ITSELF = frozenset({"dladdr", "dladdr1", "dlinfo"})
NO_DATA = frozenset((
    ".py", ".pyi", ".pyc", ".h", ".hpp", ".hh", ".cuh", ".c", ".cc", ".cpp", ".cu", ".cmake", ".pc", ".so",
))  # fmt: skip
"""Suffixes of files that a library does not read while it runs."""
OURS = ("torch", "nvidia")
"""Folders of site-packages whose RPATHs the repair itself sets, from what is needed."""
_LABEL = ":label:"  # means the variant's folder, whose name is not known yet


class KeptPaths(NamedTuple):
    """The targets of one file's entries: folders of the variant (``""`` is its own), and others of site-packages."""

    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """``kept`` are the author's entries, ``anchored`` the files that stay in the variant's folder.

    ``named`` are those that others open by name: they keep it, without a hash that distinguishes them from files of
    other packages.
    """

    kept: Mapping[VariantBinary, KeptPaths]
    anchored: frozenset[VariantBinary]
    named: frozenset[VariantBinary]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The package's import name and sources, and the environment's site-packages."""

    package: str
    package_dir: Path
    site_packages: Path
    machine_folders: tuple[Path, ...]
    """Folders of the build and of torch's SDK: every author expects their removal, so it is not reported."""

    @property
    def place(self) -> str:
        """Return the package's folder below site-packages."""
        return self.package.replace(".", "/")


def ties(
    links: Mapping[VariantBinary, Links],
    around: Surroundings,
    *,
    left: Collection[str],
    with_data: bool,
    report: Callable[[str], None],
) -> Ties:
    """Return what connects the variant's files besides NEEDED.

    ``left`` are the libraries that `exclude` leaves to users; ``with_data`` says that files without code belong to the
    variant.
    """
    own = [binary for binary in links if binary.kind != "graft"]
    kept = {}
    for binary in own:
        found = _kept(binary, own, around, left=left, report=report)
        if found.inside or found.outside:
            kept[binary] = found
    named: set[VariantBinary] = set()
    anchored = {binary for binary, found in kept.items() if found.inside}
    for binary in own:
        if OPENS_BY_NAME.isdisjoint(_taken(binary)):
            continue
        text = binary.source.read_bytes()
        for other in own:
            reached = _folder(other) in kept.get(binary, KeptPaths()).inside or not FINDS_ITSELF.isdisjoint(
                _taken(binary)
            )
            if other is binary or other in links[binary].targets or not reached:
                continue
            if any(f"{name}\0".encode() in text for name in {other.name, *other.names}):
                named.add(other)
                anchored |= {binary, other}
            elif _folder(other) in kept.get(binary, KeptPaths()).inside and not is_needed(other, links):
                anchored.add(other)
    if with_data:
        anchored |= {each for each in own if each.kind == "module" or not FINDS_ITSELF.isdisjoint(_taken(each))}
    return Ties(kept=kept, anchored=frozenset(anchored), named=frozenset(named))


def misplaced(links: Mapping[VariantBinary, Links], data: Collection[str], around: Surroundings) -> Iterator[str]:
    """Report each file that looks up its own place and names data of the package: it may look beside itself.

    ``data`` are the places in the package of what CMake installs there.
    """
    of_sources = () if any(each.is_relative_to(around.package_dir) for each in around.machine_folders) else _own(around)
    places = sorted(place for place in {*data, *of_sources} if PurePosixPath(place).suffix not in NO_DATA)
    for binary in sorted(links, key=lambda each: each.place):
        if binary.kind == "graft" or FINDS_ITSELF.isdisjoint(_taken(binary)):
            continue
        text = binary.source.read_bytes()
        if named := [place for place in places if _names(text, place)]:
            yield (
                f"`{binary.place}` looks up its own path (dladdr) and mentions {', '.join(named[:3])}, which the wheel "
                f"has once, in `{around.package}`, and not beside it. If it looks there, let CMake install the file "
                f"and name it in `variant-data`"
            )


def _own(around: Surroundings) -> Iterator[str]:
    for path in around.package_dir.rglob("*"):
        if path.is_file():
            yield path.relative_to(around.package_dir).as_posix()


def _names(text: bytes, place: str) -> bool:
    """Return whether a literal of a compiled file ends with a place or its name.

    A compiler that copies a literal itself may keep its last bytes apart, as numbers in the code: `tables/table.bi`.
    """
    folder, slash, name = place.rpartition("/")
    cut = [name[:end] for end in range(name.find(".") + 2, len(name) + 1) if "." in name]
    cut += [place[:end] for end in range(max(len(folder) + 3, len(place) - 7), len(place)) if slash]
    whole = [b"\0" + each + b"\0" for each in (name.encode(), place.encode())]
    return any(each in text for each in (*whole, *(f"/{each}".encode() for each in cut)))


def _kept(
    binary: VariantBinary,
    own: Sequence[VariantBinary],
    around: Surroundings,
    *,
    left: Collection[str],
    report: Callable[[str], None],
) -> KeptPaths:
    """Return the targets of the entries of ``binary`` that it may use; report each other one whose removal matters."""
    outer = [name for name in binary.elf.needed if name in left]
    opens = not OPENS_BY_NAME.isdisjoint(_taken(binary))
    if not (outer or opens):
        return KeptPaths()
    inside: dict[str, None] = {}
    outside: dict[str, None] = {}
    for entry in dict.fromkeys((*binary.elf.rpath, *binary.elf.runpath)):
        if not ORIGIN.match(entry):
            if _is_loss(entry, around):
                report(_lost(binary, entry, "it is a folder of this machine", outer))
            continue
        folders = _readings(binary, entry, around)
        found = (_of_variant(folder, binary, own, around) for folder in folders)
        within = next((each for each in found if each is not None), None)
        beyond = next((folder for folder in folders if _leads_out(folder, around, trusted=bool(outer))), None)
        if within is not None:
            inside[within] = None
        elif beyond is not None:
            outside[beyond] = None
        elif not any(folder.split("/")[0] in OURS or folder == around.place for folder in folders) and entry.strip(
            "/"
        ) not in {"$ORIGIN", "${ORIGIN}"}:
            report(_lost(binary, entry, "it leads to nothing inside site-packages", outer))
    return KeptPaths(tuple(inside), tuple(outside))


def _readings(binary: VariantBinary, entry: str, around: Surroundings) -> list[str]:
    """Return the folders below site-packages that the author may mean, the likeliest first.

    An entry is read relative to the place where CMake installs the file, the install prefix being the package; and
    relative to its place in the wheel.
    """
    rest = ORIGIN.sub("", entry, count=1).lstrip("/")
    homes = [
        posixpath.dirname(f"{around.place}/{binary.installed}"),
        posixpath.dirname(f"{around.place}/{FOLDER}/{_LABEL}/{binary.place}"),
    ]
    found = [posixpath.normpath(posixpath.join(home, rest)) for home in homes]
    return [folder for folder in found if not folder.startswith("..")]


def _of_variant(folder: str, binary: VariantBinary, own: Sequence[VariantBinary], around: Surroundings) -> str | None:
    """Return the folder of the variant for ``folder``, if it holds another file than ``binary``."""
    target = _folder_of(folder, around)
    for other in own:
        if other is not binary and target is not None and posixpath.dirname(other.installed) == target:
            return _folder(other)
    home = f"{around.place}/{FOLDER}/{_LABEL}"
    if folder == home or folder.startswith(f"{home}/"):
        below = posixpath.relpath(folder, home).removeprefix(".")
        if any(other is not binary and _folder(other) == below for other in own):
            return below
    return None


def _folder_of(folder: str, around: Surroundings) -> str | None:
    """Return ``folder`` relative to the package (``""`` for itself), or None if it is outside."""
    if folder == around.place:
        return ""
    return folder.removeprefix(f"{around.place}/") if folder.startswith(f"{around.place}/") else None


def _leads_out(folder: str, around: Surroundings, *, trusted: bool) -> bool:
    """Return whether a folder outside of the variant has files: the package's own, or another distribution's.

    ``trusted``: the file needs a library that users have, so the author knows what is there.
    """
    if _LABEL in folder or folder.split("/", maxsplit=1)[0] in OURS or folder == ".":
        return False
    within = _folder_of(folder, around)
    if within is not None:
        return within != "" and (around.package_dir / within).is_dir()
    return trusted or (around.site_packages / folder).is_dir()


def _is_loss(entry: str, around: Surroundings) -> bool:
    path = Path(entry)
    return path.is_dir() and not any(path.is_relative_to(folder) for folder in around.machine_folders)


def _lost(binary: VariantBinary, entry: str, why: str, outer: Sequence[str]) -> str:
    what = f"{', '.join(outer)}, which `exclude` leaves to users," if outer else "what the file opens by name there"
    return (
        f"`{binary.place}`: the entry {entry} of its RPATH is taken out, since {why}; {what} is not found that way. "
        f"Let CMake install what it is for, or name a folder of site-packages relative to $ORIGIN"
    )


def relative(kept: KeptPaths, *, label: str, place: str, package: str) -> Iterator[str]:
    """Yield the entries relative to the file at ``place`` (below ``_torch_ext``): each begins with ``$ORIGIN``."""
    root = package.replace(".", "/")
    home = posixpath.dirname(f"{root}/{FOLDER}/{place}")
    targets = [posixpath.normpath(f"{root}/{FOLDER}/{label}/{folder}") for folder in kept.inside]
    for target in (*targets, *kept.outside):
        yield posixpath.join("$ORIGIN", posixpath.relpath(target, home)).removesuffix("/.")


def _taken(binary: VariantBinary) -> tuple[str, ...]:
    return (*binary.elf.undefined, *binary.elf.weak)


def _folder(binary: VariantBinary) -> str:
    return posixpath.dirname(binary.place)


def is_needed(binary: VariantBinary, links: Mapping[VariantBinary, Links]) -> bool:
    """Return whether another file of the variant needs ``binary``."""
    return any(binary in other.targets for other in links.values())
