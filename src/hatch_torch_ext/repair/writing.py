"""Writes the binaries of a variant: placed below `_torch_ext`, copied, stripped, and patched with one call each."""

from __future__ import annotations

import hashlib
import mmap
import posixpath
import shutil
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from hatch_torch_ext import elf
from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError, RepairError, TorchExtError
from hatch_torch_ext.facts import content
from hatch_torch_ext.facts.variant import FOLDER, SHARED
from hatch_torch_ext.repair import runpaths
from hatch_torch_ext.repair.runpaths import KeptPaths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.repair.contents import Links, VariantBinary
    from hatch_torch_ext.repair.runpaths import Ties
    from hatch_torch_ext.values import Setup

NT_GNU_BUILD_ID = 3
TIMEOUT = 300.0


class PatchError(TorchExtError):
    """patchelf, strip or objcopy failed on a file; the text ends with the program's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of a file's dynamic table."""

    soname: str | None = None
    remove_needed: Collection[str] = ()
    replace_needed: Mapping[str, str] = field(default_factory=dict)
    add_needed: Collection[str] = ()
    rpath: tuple[str, ...] = ()
    """The folders of its new RUNPATH; empty: it has none afterwards."""
    drop_rpath: bool = False
    """Whether it has an RPATH or RUNPATH today, so that something is to be removed."""

    def arguments(self) -> Iterator[str]:
        """Yield patchelf's arguments, in an order that depends only on the changes."""
        if self.soname is not None:
            yield from ("--set-soname", self.soname)
        for name in sorted(self.remove_needed):
            yield from ("--remove-needed", name)
        for old, new in sorted(self.replace_needed.items()):
            yield from ("--replace-needed", old, new)
        for name in sorted(self.add_needed):
            yield from ("--add-needed", name)
        if self.rpath:
            yield from ("--set-rpath", ":".join(self.rpath))
        elif self.drop_rpath:
            yield "--remove-rpath"


def apply(patchelf: Path, file: Path, changes: Changes, *, log: Path) -> None:
    """Apply ``changes`` to ``file`` in place by one call; without any, nothing is called. Raises ``PatchError``."""
    arguments = list(changes.arguments())
    if arguments:
        _run([patchelf, *arguments, file], file, log=log)


def strip(
    file: Path,
    mode: Literal["strip", "split", "keep"],
    *,
    strip_program: Path | None,
    objcopy: Path | None,
    debug: Path,
    log: Path,
) -> None:
    """Remove symbol table and debug sections from ``file``; ``split`` moves them to ``debug``, and links to it."""
    if mode == "keep":
        return
    if strip_program is None or (mode == "split" and objcopy is None):
        programs = "`strip`" if mode == "strip" else "`strip` and `objcopy`"
        raise PatchError(f'{programs} not found; install binutils, or set `debug-symbols = "keep"`')
    if mode == "split" and objcopy is not None:
        debug.parent.mkdir(parents=True, exist_ok=True)
        debug.unlink(missing_ok=True)
        _run([objcopy, "--only-keep-debug", file, debug], file, log=log)
    _run([strip_program, "--strip-unneeded", file], file, log=log)
    if mode == "split" and objcopy is not None:
        _run([objcopy, f"--add-gnu-debuglink={debug}", file], file, log=log)


def _run(command: list[str | Path], file: Path, *, log: Path) -> None:
    try:
        process.run_logged(command, log, timeout=TIMEOUT)
    except ProcessError as error:
        program = str(command[0]).rpartition("/")[2]
        message = process.tail(error.words, 5)
        raise PatchError(f"{program} could not change {file}: {message}") from error


def renew_build_id(file: Path) -> None:
    """Set the build id of the stripped ``file`` to a hash of all its other bytes; a file without one is not changed.

    Otherwise builds would differ: nvcc writes the names of its temporary files, which contain the process id, into the
    symbol table.
    """
    found = elf.read(file).build_id
    if found is None:
        return
    old = bytes.fromhex(found)
    note = struct.pack("<III", 4, len(old), NT_GNU_BUILD_ID) + b"GNU\0" + old
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as data:
        at = data.find(note)
        at += len(note) - len(old)
        data[at : at + len(old)] = bytes(len(old))
        data.flush()
        new = bytes.fromhex(content.sha256(file))
        data[at : at + len(old)] = (new * (len(old) // len(new) + 1))[: len(old)]


HASH_LENGTH = 12
NAME_HASH_LENGTH = 8


def groups(links: Mapping[VariantBinary, Links]) -> list[tuple[VariantBinary, ...]]:
    """Return the binaries, each after all that it needs; those that need each other are together, sorted by place.

    Tarjan's algorithm, without recursion: https://doi.org/10.1137/0201010
    """
    number: dict[VariantBinary, int] = {}
    low: dict[VariantBinary, int] = {}
    stack: list[VariantBinary] = []
    found: list[tuple[VariantBinary, ...]] = []
    for root in sorted(links, key=_key):
        work: list[tuple[VariantBinary, Iterator[VariantBinary]]] = [(root, iter(()))] if root not in number else []
        while work:
            node, targets = work.pop()
            if node not in number:
                number[node] = low[node] = len(number)
                stack.append(node)
                targets = iter(links[node].targets)
            for target in targets:
                if target not in number:
                    work += [(node, targets), (target, iter(()))]
                    break
                if target in stack:
                    low[node] = min(low[node], number[target])
            else:
                if low[node] == number[node]:
                    start = stack.index(node)
                    found.append(tuple(sorted(stack[start:], key=_key)))
                    del stack[start:]
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return found


def is_shared(binary: VariantBinary, links: Mapping[VariantBinary, Links]) -> bool:
    """Return whether ``binary`` is not the label's only: another file needs it, or it is a graft."""
    return binary.kind == "graft" or runpaths.is_needed(binary, links)


def name_by_content(name: str, sha256: str) -> str:
    """Return ``libk-0123abcd.so.1`` for ``libk.so.1``; a module's suffix stays whole, since Python reads it."""
    base, dot_so, rest = name.partition(".so")
    base, dot, suffix = base.partition(".cpython-") if ".cpython-" in base else base.partition(".abi3")
    return f"{base}-{sha256[:NAME_HASH_LENGTH]}{dot}{suffix}{dot_so}{rest}"


def run_path(place: str, *, package: str, inside: Iterable[str], folders: Iterable[str]) -> tuple[str, ...]:
    """Return the RUNPATH of the file at ``place`` (below ``_torch_ext``): only folders with a library that it needs.

    ``inside`` are folders below ``_torch_ext``, ``folders`` those below site-packages. A file of a label's folder may
    be moved to ``shared/<hash>/`` if another variant has the same bytes, so it has the paths from both.
    """
    root = f"{package.replace('.', '/')}/{FOLDER}"
    outside = sorted(set(folders), key=lambda folder: (not folder.startswith("torch/"), folder))
    targets = [*(f"{root}/{folder}" for folder in sorted(set(inside))), *outside]
    homes = [posixpath.dirname(place)]
    if not place.startswith(f"{SHARED}/"):
        homes.append(f"{SHARED}/<hash>")
    found = [
        posixpath.join("$ORIGIN", posixpath.relpath(target, f"{root}/{home}")).removesuffix("/.")
        for home in homes
        for target in targets
    ]
    return tuple(dict.fromkeys(found))


def hash_before_names(files: Sequence[Path], needs: Iterable[str]) -> str:
    """Return a hash to name ``files`` by, which contain their own names: of their present bytes, and their needs.

    ``needs`` are the places of needed files that were written before them.
    """
    lines = [*(f"{file.name} {content.sha256(file)}" for file in files), *sorted(needs)]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _key(binary: VariantBinary) -> tuple[str, str]:
    return binary.place, binary.source.as_posix()


_EXECUTABLE = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file below ``_torch_ext``: its place, and its facts after the repair.

    ``fixed``: it stays there, whatever other variants hold.
    """

    binary: VariantBinary
    fixed: bool
    place: str
    sha256: str
    elf: ElfFile


class _Landed(NamedTuple):
    """The place of a file that others need: its folder below ``_torch_ext``, and the name by which they need it."""

    folder: str
    name: str

    @property
    def place(self) -> str:
        """Return its place below ``_torch_ext``."""
        return f"{self.folder}/{self.name}"


class Writer:
    """Writes the binaries of the variant ``label`` below ``root``."""

    def __init__(self, setup: Setup, *, label: str, ties: Ties, root: Path) -> None:
        self._setup = setup
        self._mode = setup.config.debug_symbols
        self._package = setup.config.package
        self._label = label
        self._ties = ties
        self._root = root
        self._landed: dict[VariantBinary, _Landed] = {}

    def write(self, links: Mapping[VariantBinary, Links]) -> tuple[Written, ...]:
        """Write all files, each after what it needs. Raises ``RepairError``."""
        written: list[Written] = []
        try:
            for group in groups(links):
                if not self._ties.anchored.isdisjoint(group):
                    written += self._anchored(group, links)
                elif any(is_shared(binary, links) for binary in group):
                    written += self._shared(group, links)
                else:
                    written.append(self._single(group[0], links[group[0]]))
        except PatchError as error:
            raise RepairError(self._setup.entry.name, str(error)) from error
        return tuple(sorted(written, key=lambda each: each.place))

    def _single(self, binary: VariantBinary, links: Links) -> Written:
        place = f"{self._label}/{binary.place}"
        file = self._copy(binary, place)
        self._patch(binary, file, place, links)
        return self._finish(binary, file, place)

    def _anchored(self, group: tuple[VariantBinary, ...], links: Mapping[VariantBinary, Links]) -> list[Written]:
        """Write files that stay in the variant's folder.

        Those that others need have a hash in their name too, except files that are opened by name.
        """
        files = [self._copy(binary, f"{self._label}/{binary.place}") for binary in group]
        written = hash_before_names(files, self._needs(group, links))
        places = []
        for binary in group:
            folder, _, name = f"{self._label}/{binary.place}".rpartition("/")
            if is_shared(binary, links):
                if binary not in self._ties.named:
                    name = name_by_content(name, written)
                self._landed[binary] = _Landed(folder, name)
            places.append(f"{folder}/{name}")
        finished = []
        for binary, file, place in zip(group, files, places, strict=True):
            self._patch(binary, file, place, links[binary])
            finished.append(self._finish(binary, file.rename(self._root / place), place))
        return finished

    def _needs(self, group: tuple[VariantBinary, ...], links: Mapping[VariantBinary, Links]) -> set[str]:
        return {
            self._landed[target].place for binary in group for target in links[binary].targets if target not in group
        }

    def _shared(self, group: tuple[VariantBinary, ...], links: Mapping[VariantBinary, Links]) -> list[Written]:
        staged = f"{SHARED}/.staged"
        files = [self._copy(binary, f"{staged}/{binary.name}") for binary in group]
        circle = len(group) > 1
        written = hash_before_names(files, self._needs(group, links))
        folder = f"{SHARED}/{written[:HASH_LENGTH]}" if circle else staged
        for binary in group:
            name = binary.name if binary.kind == "graft" else name_by_content(binary.name, written)
            self._landed[binary] = _Landed(folder, name)
        for binary, file in zip(group, files, strict=True):
            self._patch(binary, file, self._landed[binary].place, links[binary])
        if not circle:
            folder = f"{SHARED}/{content.sha256(files[0])[:HASH_LENGTH]}"
            self._landed[group[0]] = _Landed(folder, self._landed[group[0]].name)
        (self._root / folder).mkdir(parents=True, exist_ok=True)
        finished = []
        for binary, file in zip(group, files, strict=True):
            place = self._landed[binary].place
            finished.append(self._finish(binary, file.rename(self._root / place), place))
        file.parent.rmdir()
        return finished

    def _copy(self, binary: VariantBinary, place: str) -> Path:
        file = self._root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(binary.source, file)
        file.chmod(_EXECUTABLE)
        strip(
            file,
            self._mode,
            strip_program=self._setup.toolchain.strip,
            objcopy=self._setup.toolchain.objcopy,
            debug=self._setup.folder / "debug" / f"{binary.place}.debug",
            log=self._setup.log,
        )
        if self._mode == "strip" and binary.kind != "graft":  # debuggers find separate debug files by the id
            renew_build_id(file)
        return file

    def _patch(self, binary: VariantBinary, file: Path, place: str, links: Links) -> None:
        inside = [self._landed[target].folder for target in links.targets]
        ours = run_path(place, package=self._package, inside=inside, folders=links.folders)
        kept = self._ties.kept.get(binary, KeptPaths())
        authors = runpaths.relative(kept, label=self._label, place=place, package=self._package)
        rpath = tuple(dict.fromkeys((*ours, *authors)))
        own = {name: self._landed[target].name for name, target in links.own.items()}
        landed = self._landed.get(binary)
        changes = Changes(
            soname=None if landed is None else landed.name,
            remove_needed=links.remove,
            replace_needed={**links.replace, **{old: new for old, new in own.items() if old != new}},
            add_needed=links.add,
            rpath=rpath,
            drop_rpath=bool(binary.elf.rpath or binary.elf.runpath),
        )
        apply(self._setup.toolchain.patchelf.path, file, changes, log=self._setup.log)

    def _finish(self, binary: VariantBinary, file: Path, place: str) -> Written:
        facts = elf.read(file)
        if lost := sorted({name for name, _ in facts.version_needs} - set(facts.needed)):
            raise RepairError(
                self._setup.entry.name,
                f"`{binary.place}` asks for symbol versions of {lost[0]}, which it does not need any more: ld.so would "
                f"refuse it; link it with `-Wl,--no-as-needed -l:{lost[0]}`",
            )
        fixed = binary in self._ties.anchored
        return Written(binary=binary, fixed=fixed, place=place, sha256=content.sha256(file), elf=facts)
