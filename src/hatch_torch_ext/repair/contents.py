"""The contents of an install tree: shared objects of the variant, data of the package, and what is left out."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from hatch_torch_ext import elf
from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import RepairError
from hatch_torch_ext.facts import content, project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.values import InstallTree, Setup

_TRIPLET = re.compile(r"(x86_64|aarch64)-linux-(gnu|musl)")
_TRANSPARENT = ("lib", "lib64", "bin")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VariantBinary:
    """A shared object or program; ``place`` is its folded path; ``names`` are all names by which it is found.

    ``installed`` is its path as the author knows it: below the package, with ``lib/`` and the like.

    ``origin`` is the package URL of a library that was not in the install tree.
    """

    source: Path
    place: str
    installed: str
    names: frozenset[str]
    kind: Literal["library", "module", "graft", "program"]
    elf: ElfFile
    module: str | None = None
    origin: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the file itself."""
        return self.place.rpartition("/")[2]


@dataclass(slots=True)
class Links:
    """The changes of a file's NEEDED, and what it needs afterwards; ``linking`` computes them, name by name.

    ``replace`` is by the old name. ``own`` are the needed names of binaries of the wheel, which get their final names
    when they are written; ``folders`` are those below site-packages that hold the rest.
    """

    remove: set[str] = field(default_factory=set)
    replace: dict[str, str] = field(default_factory=dict)
    add: set[str] = field(default_factory=set)
    own: dict[str, VariantBinary] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    gpu: bool = False
    """It uses a GPU's toolkit, its driver or torch's libraries for it."""

    @property
    def targets(self) -> tuple[VariantBinary, ...]:
        """Return the distinct binaries of the wheel that the file needs, by the names that it needs them by."""
        return tuple(dict.fromkeys(self.own[name] for name in sorted(self.own)))

    def rename(self, old: str, new: str) -> None:
        """Need a library by another name."""
        if old != new:
            self.replace[old] = new


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The contents: ``data`` is the package's, ``variant_data`` the variant's (files with GPU code)."""

    binaries: tuple[VariantBinary, ...]
    data: tuple[tuple[str, Path], ...]
    variant_data: tuple[tuple[str, Path], ...]


def matches(installed: str, globs: Iterable[str]) -> bool:
    """Return whether a glob matches a file: its place (with or without a leading `lib/`), or only its name."""
    parts = installed.split("/")
    places = {"/".join(parts[start:]) for start in range(len(parts)) if {*parts[:start]} <= {*_TRANSPARENT}}
    return any(fnmatchcase(place, glob) for place in (*places, parts[-1]) for glob in globs)


def read(setup: Setup, tree: InstallTree, *, report: Callable[[str], None]) -> Contents:
    """Return the contents of ``tree``.

    Raises ``RepairError`` for broken links, files of another machine and two files with one place.
    """
    entry, package = setup.entry.name, setup.config.package
    binaries: dict[str, VariantBinary] = {}
    data: dict[str, Path] = {}
    beside: dict[str, Path] = {}
    for source, links in _files(entry, tree):
        first = links[0]
        left_out = source.suffix in {".a", ".o"}
        facts = elf.read(source) if not left_out and elf.is_elf(source) else None
        if left_out:
            report(f"{first} is left out: users of a wheel have no use for static archives and object files")
        elif facts is None:
            for link in links:
                place = fold(link, package)
                if matches(place, setup.config.variant_data):
                    _place(entry, beside, fold(link, package, transparent=True), source)
                else:
                    _place(entry, data, place, source)
        elif facts.machine in elf.GPU_MACHINES:  # data of the variant, since ld.so does not open it
            _place(entry, beside, fold(first, package, transparent=True), source)
        elif facts.type == "other":
            report(f"{first} is left out: users of a wheel have no use for an object file")
        else:
            _check_machine(entry, first, facts, setup.environment.interpreter.machine)
            _add(entry, binaries, _binary(source, links, facts, package))
    for link in filter(lambda link: (tree.prefix / link).is_dir(), tree.files):
        report(
            f"{link} is left out: it is a link to a folder, which no wheel can hold. Where it is needed, install the "
            "folder under both names"
        )
    return Contents(
        binaries=tuple(binary for _, binary in sorted(binaries.items())),
        data=tuple(sorted(data.items())),
        variant_data=tuple(sorted(beside.items())),
    )


def _files(entry: str, tree: InstallTree) -> Iterator[tuple[Path, list[str]]]:
    """Yield each real file with the places that lead to it, its own first."""
    groups: dict[Path, list[str]] = defaultdict(list)
    for relative in tree.files:
        if not relative.isprintable() or "\\" in relative:
            raise RepairError(
                entry,
                f"CMake installed `{escape.name(relative)}`, whose name is not UTF-8 or has control characters or a "
                "backslash, and no wheel can hold it; rename the file in the sources, or do not install it",
            )
        path = tree.prefix / relative
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise RepairError(
                entry,
                f"CMake installed the link `{relative}`, which points to nothing; install the file that it names as "
                "well",
            ) from error
        if real.is_file():
            groups[real].append(relative)
    for real, links in sorted(groups.items()):
        links.sort(key=lambda link: ((tree.prefix / link).is_symlink(), link))
        yield real, links


def fold(relative: str, package: str, *, transparent: bool = False) -> str:
    """Return the place in the package: a leading site-packages and the package's own path are removed."""
    parts = list(PurePosixPath(project.below_site(relative) or relative).parts)
    names = package.split(".")
    for _ in range(2):
        if transparent and len(parts) > 1 and parts[0] in _TRANSPARENT:
            parts = parts[1:]
            if len(parts) > 1 and _TRIPLET.fullmatch(parts[0]):
                parts = parts[1:]
        if len(parts) > len(names) and parts[: len(names)] == names:
            parts = parts[len(names) :]
    return "/".join(parts)


def _binary(source: Path, links: list[str], facts: ElfFile, package: str) -> VariantBinary:
    names = {link.rpartition("/")[2] for link in links}
    link = next((link for link in links if link.rpartition("/")[2] == facts.soname), links[0])
    place = fold(link, package, transparent=True)
    module = _module(place, facts)
    kind: Literal["library", "module", "program"] = (
        "program" if facts.type == "program" else "module" if module else "library"
    )
    names.add(facts.soname or place.rpartition("/")[2])
    return VariantBinary(
        source=source,
        place=place,
        installed=fold(link, package),
        names=frozenset(names),
        kind=kind,
        elf=facts,
        module=module,
    )


def _module(place: str, facts: ElfFile) -> str | None:
    """Return the dotted name of an extension module, from its PyInit_ function and the folder of the file."""
    folder, _, name = place.rpartition("/")
    inits = [symbol.removeprefix("PyInit_") for symbol in facts.exported if symbol.startswith("PyInit_")]
    if not inits or facts.type != "shared":
        return None
    stem = name.partition(".")[0]
    own = next((init for init in (stem, stem.removeprefix("lib")) if init in inits), inits[0])
    return ".".join([*folder.split("/"), own]) if folder else own


def _add(entry: str, binaries: dict[str, VariantBinary], binary: VariantBinary) -> None:
    other = binaries.setdefault(binary.place, binary)
    if other is not binary and content.sha256(other.source) != content.sha256(binary.source):
        raise _taken(entry, binary.place, other.source, binary.source)


def _check_machine(entry: str, relative: str, facts: ElfFile, machine: str) -> None:
    if facts.machine != machine:
        raise RepairError(
            entry,
            f"`{relative}` is for {facts.machine}, the variant for {machine}; compile it for that, or leave it out",
        )


def _place(entry: str, places: dict[str, Path], target: str, source: Path) -> None:
    other = places.setdefault(target, source)
    if other != source and content.sha256(other) != content.sha256(source):
        raise _taken(entry, target, other, source)


def _taken(entry: str, target: str, first: Path, second: Path) -> RepairError:
    return RepairError(
        entry,
        f"{first} and {second} both go to `{target}` of the package; install one of them elsewhere, or not at all",
    )
