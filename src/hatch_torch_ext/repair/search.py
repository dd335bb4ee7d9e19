"""Finds a needed library as the dynamic linker and CMake do, and says what torch's installation provides."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hatch_torch_ext import elf
from hatch_torch_ext.base.errors import ElfError
from hatch_torch_ext.facts import owners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.facts.policy import Policy
    from hatch_torch_ext.repair.contents import VariantBinary
    from hatch_torch_ext.values import Sdk

LD_SO_CONF = Path("/etc/ld.so.conf")
_DEFAULT = ("/lib/{triplet}", "/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
_MAX_INCLUDES = 100
_LINKED = re.compile(r"(?:-L|-Wl,-rpath(?:-link)?,)?(/[^$]+?)(?:/lib[^/]*\.so[.\w]*)?")
"""A word of a linker's command line that names a folder, or a library in one."""


class Search:
    """Finds libraries by name for files of one machine.

    The order of the search: the RPATH or RUNPATH of the file, that of the same file in the build tree, what the build
    itself made and did not install, the folders on the linker's command lines, the prefixes given to CMake,
    ``LD_LIBRARY_PATH``, and the system's folders.
    """

    def __init__(self, *, machine: str, build: Path, prefixes: Iterable[Path], environ: Mapping[str, str]) -> None:
        self._machine = machine
        self._build = build
        self._built: dict[str, list[Path]] | None = None
        self._linked: list[Path] | None = None
        given = [Path(part) for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]
        roots = [*prefixes, *(Path(part) for part in environ.get("CMAKE_PREFIX_PATH", "").split(":") if part)]
        self._folders = [
            *(root / name for root in roots for name in ("lib", "lib64", f"lib/{machine}-linux-gnu")),
            *given,
            *system_folders(machine),
        ]

    def find(self, name: str, dependent: VariantBinary) -> tuple[Path, ElfFile] | None:
        """Return the library ``name`` that ``dependent`` was linked with, with its facts, or None."""
        places = [Path(name)] if "/" in name else (folder / name for folder in self._places(dependent, name))
        for path in places:
            facts = _readable(path) if path.is_absolute() else None
            if facts is not None and facts.machine == self._machine and facts.type == "shared":
                return path, facts
        return None

    def _places(self, dependent: VariantBinary, name: str) -> Iterator[Path]:
        yield from _run_path(dependent.elf)
        for twin in self._made(dependent.source.name):
            facts = _readable(twin)
            if facts is not None:
                yield from _run_path(facts)
        if dependent.origin is None:
            yield from (path.parent for path in self._made(name))  # a dependency with EXCLUDE_FROM_ALL
            yield from self._linked_folders()
        else:
            yield dependent.source.parent
            yield dependent.source.resolve().parent
        yield from self._folders

    def _linked_folders(self) -> list[Path]:
        """Return the folders of the libraries on the linker's command lines."""
        if self._linked is None:
            rules = self._build / "build.ninja"
            text = rules.read_text(encoding="utf-8", errors="replace") if rules.is_file() else ""
            lines = "\n".join(re.findall(r"^  LINK_(?:LIBRARIES|PATH) = (.*)$", text, re.MULTILINE))
            # A relative word is of the build folder, where `_made` looks; only an absolute one names a folder itself.
            found = (_LINKED.fullmatch(word) for word in lines.split())
            self._linked = [Path(folder) for folder in dict.fromkeys(word[1] for word in found if word)]
        return self._linked

    def _made(self, name: str) -> list[Path]:
        if self._built is None:
            self._built = {}
            for folder, _, names in os.walk(self._build):
                for each in sorted(names):
                    if ".so" in each:
                        self._built.setdefault(each, []).append(Path(folder) / each)
        return sorted(self._built.get(name, ()))


def _readable(path: Path) -> ElfFile | None:
    """Return the facts of an ELF file, or None for anything else: a linker script, another file of that name."""
    try:
        return elf.read(path) if elf.is_elf(path) else None
    except (ElfError, OSError):
        return None


def prefixes(config: Config) -> tuple[Path, ...]:
    """Return the prefixes that the author's own definitions give to CMake."""
    found = []
    for name, value in config.cmake.define:
        if name.partition(":")[0] == "CMAKE_PREFIX_PATH":
            found += [Path(part) for part in value.split(";") if part]
    return tuple(found)


@cache
def system_folders(machine: str) -> tuple[Path, ...]:
    """Return the folders that ld.so searches by itself: those of ld.so.conf, then the built-in ones."""
    built_in = [Path(folder.format(triplet=f"{machine}-linux-gnu")) for folder in _DEFAULT]
    return tuple(dict.fromkeys([*_configured(LD_SO_CONF, set()), *built_in]))


def _configured(conf: Path, seen: set[Path]) -> Iterator[Path]:
    if conf in seen or len(seen) > _MAX_INCLUDES:
        return
    seen.add(conf)
    try:
        text = conf.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        if include := re.fullmatch(r"include\s+(\S+)", line):
            pattern = Path(conf.parent, include[1])
            for other in sorted(pattern.parent.glob(pattern.name)):
                yield from _configured(other, seen)
        elif line.startswith("/"):
            yield Path(line)


def _run_path(facts: ElfFile) -> Iterator[Path]:
    folder = os.fspath(facts.path.parent)
    for entry in (*facts.runpath, *facts.rpath):
        expanded = re.sub(r"\$(?:ORIGIN|\{ORIGIN\})", lambda _: folder, entry)
        if expanded.startswith("/"):
            yield Path(expanded)


TORCH_FOLDER = "torch/lib"

Provider = Literal["torch", "gpu", "openmp", "python", "process", "desktop", "system"]

_KINDS: tuple[tuple[Provider, Callable[[str], bool]], ...] = (
    ("python", owners.is_python),
    ("openmp", owners.is_openmp),
    ("torch", owners.is_torch),
    ("gpu", owners.is_of_gpu),
    ("process", lambda name: owners.process_runtime(name) is not None),
    ("desktop", owners.is_desktop),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvidedLibrary:
    """A library of torch's installation: its real name, and its folder below site-packages."""

    name: str
    folder: str


class Provided:
    """Tells, for one SDK and one policy, who provides a library, and under which name."""

    def __init__(self, sdk: Sdk, policy: Policy) -> None:
        self._policy = policy
        found = [(name, TORCH_FOLDER) for name in sdk.libraries] + list(sdk.nvidia_libraries)
        self._by_name = {name: ProvidedLibrary(name=name, folder=folder) for name, folder in reversed(found)}
        self._stems = {owners.stem(name) for name in self._by_name}

    def provider(self, name: str) -> Provider | None:
        """Return who provides the library ``name``, or None if the wheel would have to."""
        plain = owners.plain(name)
        for provider, provides in _KINDS:
            if provides(plain):
                return provider
        if self._policy.guarantees(plain):
            return "system"
        return "torch" if owners.stem(plain) in self._stems else None

    def real(self, name: str) -> ProvidedLibrary | None:
        """Return the library of torch's installation for ``name``: the same stem and version, any hash."""
        if name in self._by_name:
            return self._by_name[name]
        plain = owners.plain(name)
        return next((self._by_name[other] for other in sorted(self._by_name) if owners.plain(other) == plain), None)

    def same_stem(self, name: str) -> tuple[str, ...]:
        """Return the versions of the library in torch's installation, sorted."""
        return tuple(sorted(other for other in self._by_name if owners.stem(other) == owners.stem(name)))
