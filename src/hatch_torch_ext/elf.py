"""Facts of an ELF file; read only. Wrong bytes give ``ElfError``, never a hang or a traceback of a reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ElfFile:
    """What the dynamic linker and the audit want to know of one shared object or program.

    ``machine`` is as ``platform.machine()`` says it (``x86_64``, ``aarch64``). ``undefined`` and ``exported`` are
    names of dynamic symbols without versions, sorted; ``undefined`` leaves out weak ones, which are in ``weak``.
    ``version_needs`` is .gnu.version_r: (file, its versions), both sorted.
    """

    path: Path
    machine: str
    type: str
    """``shared``, ``program`` or ``other`` (relocatable, core)."""
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    version_needs: tuple[tuple[str, tuple[str, ...]], ...]
    undefined: tuple[str, ...]
    weak: tuple[str, ...]
    exported: tuple[str, ...]
    interpreter: str | None
    executable_stack: bool
    text_relocations: bool
    has_symbol_table: bool
    """A .symtab is there: not stripped."""
    has_debug: bool
    build_id: str | None
    nv_fatbin: bool
    """A .nv_fatbin section is there: CUDA device code inside."""
