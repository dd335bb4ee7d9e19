"""The names that glibc defines, read from the glibc of the file's own machine if it is installed here."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from hatch_torch_ext import elf
from hatch_torch_ext.base.errors import ElfError
from hatch_torch_ext.facts import policy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIBRARIES = (
    "libc.so.6", "libm.so.6", "libmvec.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1",
)  # fmt: skip


@cache
def names(machine: str, sysroot: Path | None = None) -> Mapping[str, str] | None:
    """Return name -> the oldest version of glibc that has it (``2.17``), or None if that glibc is not installed here.

    For another machine it is that of ``sysroot``, or of Debian's cross compiler.
    """
    folder = next((place for place in _places(machine, sysroot) if _is_for(place / LIBRARIES[0], machine)), None)
    if folder is None:
        return None
    found: dict[str, str] = {}
    for library in LIBRARIES:
        if (folder / library).is_file():
            for name, version in _versions(folder / library):
                found[name] = min(found.get(name, version), version, key=policy.natural)
    return found


def _places(machine: str, sysroot: Path | None) -> Iterator[Path]:
    for root in (*([sysroot] if sysroot is not None else []), Path("/")):
        for folder in (f"lib/{machine}-linux-gnu", "lib64", "lib"):
            yield from (root / folder, root / "usr" / folder)
    yield Path(f"/usr/{machine}-linux-gnu/lib")


def _is_for(library: Path, machine: str) -> bool:
    try:
        return elf.read(library).machine == machine
    except ElfError:
        return False


def _versions(library: Path) -> Iterator[tuple[str, str]]:
    """Yield each name that the library defines in a public version of glibc, with that version."""
    with library.open("rb") as stream:
        file = ELFFile(stream)
        symbols, indices, defined = map(file.get_section_by_name, (".dynsym", ".gnu.version", ".gnu.version_d"))
        if not isinstance(symbols, SymbolTableSection) or not isinstance(indices, GNUVerSymSection):
            return
        if not isinstance(defined, GNUVerDefSection):
            return
        known = {entry["vd_ndx"]: next(words).name for entry, words in defined.iter_versions()}
        for number, symbol in enumerate(symbols.iter_symbols()):
            index = indices.get_symbol(number)["ndx"]
            version = known.get(index & 0x7FFF, "") if isinstance(index, int) else ""
            if symbol["st_shndx"] != "SHN_UNDEF" and (match := re.fullmatch(r"GLIBC_(\d[\d.]*)", version)):
                yield symbol.name, match[1]
