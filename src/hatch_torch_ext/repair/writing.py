"""Writes the binaries of a variant: copied, stripped, patched with one call each, and placed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hatch_torch_ext import elf
from hatch_torch_ext.base.errors import RepairError
from hatch_torch_ext.facts import content
from hatch_torch_ext.facts.variant import SHARED
from hatch_torch_ext.repair import patchelf, placing, runpaths
from hatch_torch_ext.repair.patchelf import Changes, PatchError
from hatch_torch_ext.repair.runpaths import KeptPaths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.repair.contents import Links, VariantBinary
    from hatch_torch_ext.repair.runpaths import Ties
    from hatch_torch_ext.values import Toolchain

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


class Writer:
    """Writes the binaries of one variant below ``root``; ``debug`` is the folder of separate debug files."""

    def __init__(
        self,
        *,
        entry: str,
        config: Config,
        toolchain: Toolchain,
        label: str,
        ties: Ties,
        root: Path,
        debug: Path,
        log: Path,
    ) -> None:
        self._entry = entry
        self._mode = config.debug_symbols
        self._package = config.package
        self._toolchain = toolchain
        self._patchelf = toolchain.patchelf.path
        self._label = label
        self._ties = ties
        self._root = root
        self._debug = debug
        self._log = log
        self._landed: dict[VariantBinary, _Landed] = {}

    def write(self, links: Mapping[VariantBinary, Links]) -> tuple[Written, ...]:
        """Write all files, each after what it needs. Raises ``RepairError``."""
        written: list[Written] = []
        for group in placing.groups(links):
            if not self._ties.anchored.isdisjoint(group):
                written += self._anchored(group, links)
            elif any(placing.is_shared(binary, links) for binary in group):
                written += self._shared(group, links)
            else:
                written.append(self._single(group[0], links[group[0]]))
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
        written = placing.hash_before_names(files, self._needs(group, links))
        places = []
        for binary in group:
            folder, _, name = f"{self._label}/{binary.place}".rpartition("/")
            if placing.is_shared(binary, links):
                if binary not in self._ties.named:
                    name = placing.name_by_content(name, written)
                self._landed[binary] = _Landed(folder, name)
            places.append(f"{folder}/{name}")
        finished = []
        for binary, file, place in zip(group, files, places, strict=True):
            self._patch(binary, file, place, links[binary])
            finished.append(self._finish(binary, file.rename(self._root / place), place))
        return finished

    def _needs(self, group: tuple[VariantBinary, ...], links: Mapping[VariantBinary, Links]) -> set[str]:
        return {
            f"{self._landed[target].folder}/{self._landed[target].name}"
            for binary in group
            for target in links[binary].targets
            if target not in group
        }

    def _shared(self, group: tuple[VariantBinary, ...], links: Mapping[VariantBinary, Links]) -> list[Written]:
        staged = f"{SHARED}/.staged"
        files = [self._copy(binary, f"{staged}/{binary.name}") for binary in group]
        circle = len(group) > 1
        written = placing.hash_before_names(files, self._needs(group, links))
        folder = f"{SHARED}/{written[: placing.HASH_LENGTH]}" if circle else staged
        for binary in group:
            name = binary.name if binary.kind == "graft" else placing.name_by_content(binary.name, written)
            self._landed[binary] = _Landed(folder, name)
        for binary, file in zip(group, files, strict=True):
            self._patch(binary, file, f"{folder}/{self._landed[binary].name}", links[binary])
        if not circle:
            folder = f"{SHARED}/{content.sha256(files[0])[: placing.HASH_LENGTH]}"
            self._landed[group[0]] = _Landed(folder, self._landed[group[0]].name)
        (self._root / folder).mkdir(parents=True, exist_ok=True)
        finished = []
        for binary, file in zip(group, files, strict=True):
            place = f"{folder}/{self._landed[binary].name}"
            finished.append(self._finish(binary, file.rename(self._root / place), place))
        file.parent.rmdir()
        return finished

    def _copy(self, binary: VariantBinary, place: str) -> Path:
        file = self._root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(binary.source, file)
        file.chmod(_EXECUTABLE)
        try:
            patchelf.strip(
                file,
                self._mode,
                strip_program=self._toolchain.strip,
                objcopy=self._toolchain.objcopy,
                debug=self._debug / f"{binary.place}.debug",
                log=self._log,
            )
        except PatchError as error:
            raise RepairError(self._entry, str(error)) from error
        if self._mode == "strip" and binary.kind != "graft":  # debuggers find separate debug files by the id
            patchelf.renew_build_id(file)
        return file

    def _patch(self, binary: VariantBinary, file: Path, place: str, links: Links) -> None:
        inside = [self._landed[target].folder for target in links.targets]
        ours = placing.run_path(place, package=self._package, inside=inside, folders=links.folders)
        kept = self._ties.kept.get(binary, KeptPaths())
        authors = runpaths.written(kept, label=self._label, place=place, package=self._package)
        rpath = tuple(dict.fromkeys((*ours, *authors)))
        own = [(name, self._landed[target].name) for name, target in links.own]
        landed = self._landed.get(binary)
        changes = Changes(
            soname=None if landed is None else landed.name,
            remove_needed=links.remove,
            replace_needed=(*links.replace, *((old, new) for old, new in own if old != new)),
            add_needed=links.add,
            rpath=rpath,
            drop_rpath=bool(binary.elf.rpath or binary.elf.runpath),
        )
        try:
            patchelf.apply(self._patchelf, file, changes, log=self._log)
        except PatchError as error:
            raise RepairError(self._entry, str(error)) from error

    def _finish(self, binary: VariantBinary, file: Path, place: str) -> Written:
        facts = elf.read(file)
        if lost := sorted({name for name, _ in facts.version_needs} - set(facts.needed)):
            raise RepairError(
                self._entry,
                f"`{binary.place}` asks for symbol versions of {lost[0]}, which it does not need any more: ld.so would "
                f"refuse it; link it with `-Wl,--no-as-needed -l:{lost[0]}`",
            )
        fixed = binary in self._ties.anchored
        return Written(binary=binary, fixed=fixed, place=place, sha256=content.sha256(file), elf=facts)
