"""One set of changes to an ELF file -> one call of patchelf; stripping, which precedes it; and the build id.

Linkers also hash parts that are stripped afterwards: the build id is made again from the bytes that users get.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hatch_torch_ext import elf
from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError, TorchExtError
from hatch_torch_ext.facts import content

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NT_GNU_BUILD_ID = 3
TIMEOUT = 300.0


class PatchError(TorchExtError):
    """patchelf, strip or objcopy failed on a file; the text ends with the program's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of a file's dynamic table. ``rpath`` is the whole new RUNPATH, empty for none."""

    soname: str | None = None
    remove_needed: tuple[str, ...] = ()
    replace_needed: tuple[tuple[str, str], ...] = ()
    add_needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    drop_rpath: bool = False
    """Whether the file has an RPATH or RUNPATH, which is removed if ``rpath`` is empty."""

    def arguments(self) -> Iterator[str]:
        """Yield patchelf's arguments, in an order that depends only on the changes."""
        if self.soname is not None:
            yield from ("--set-soname", self.soname)
        for name in sorted(self.remove_needed):
            yield from ("--remove-needed", name)
        for old, new in sorted(self.replace_needed):
            yield from ("--replace-needed", old, new)
        for name in sorted(self.add_needed):
            yield from ("--add-needed", name)
        if self.rpath:
            yield from ("--set-rpath", ":".join(self.rpath))
        elif self.drop_rpath:
            yield "--remove-rpath"


def apply(patchelf: Path, file: Path, changes: Changes, *, log: Path | None = None) -> None:
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
    log: Path | None = None,
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


def _run(command: list[str | Path], file: Path, *, log: Path | None) -> None:
    try:
        process.run(command, timeout=TIMEOUT, log=log)
    except ProcessError as error:
        program = str(command[0]).rpartition("/")[2]
        message = process.tail(error.output, 5) or str(error)
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
