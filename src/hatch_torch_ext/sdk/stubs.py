"""Link stubs: shared objects with a SONAME and, on request, exported names, written directly; no compiler runs.

A linker reads two things of a library that it links against: its SONAME and its exports. For a shared object the first
is enough, since undefined symbols are allowed in it.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from hatch_torch_ext.store import Store

MACHINES = {"x86_64": 62, "aarch64": 183}
"""``platform.machine()`` -> e_machine."""

LAYOUT = 1
PAGE = 0x10000  # the larger page size of the two machines
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
DYNAMIC = struct.Struct("<QQ")
_PT_LOAD, _PT_DYNAMIC, _PT_STACK = 1, 2, 0x6474E551
_STRTAB, _HASH, _DYNAMIC, _DYNSYM = 3, 5, 6, 11
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_ALLOC, _WRITE = 2, 1
_GLOBAL_FUNC = (1 << 4) | 2


def folder(store: Store, sonames: Iterable[str], machine: str) -> Path:
    """Return a folder of the store that holds a stub for each of ``sonames``."""
    names = sorted(sonames)
    key = hashlib.sha256("\n".join((f"{LAYOUT}", machine, *names)).encode()).hexdigest()

    def fill(made: Path) -> dict[str, object]:
        for name in names:
            store.put(stub(name, machine), made, name)
        return {"title": f"{len(names)} link stubs for {machine}"}

    return store.make("stubs", key, fill)[0]


def _names(soname: str, exports: Sequence[str]) -> tuple[bytes, bytes, bytes]:
    """Return ``.dynstr`` (the SONAME first, at 1), ``.dynsym`` and ``.hash``."""
    strings = bytearray(b"\0" + soname.encode() + b"\0")
    symbols = bytearray(SYMBOL.size)
    for name in exports:
        symbols += SYMBOL.pack(len(strings), _GLOBAL_FUNC, 0, 1, 0, 0)
        strings += name.encode() + b"\0"
    count = len(symbols) // SYMBOL.size
    chain = [0, *range(2, count), 0][:count]  # one bucket that begins at symbol 1, with every symbol in one chain
    hashes = struct.pack(f"<{3 + count}I", 1, count, min(1, count - 1), *chain)
    return bytes(strings), bytes(symbols), hashes


def stub(soname: str, machine: str, *, exports: Sequence[str] = ()) -> bytes:
    """Return a shared object for ``machine`` with the SONAME ``soname`` that exports ``exports`` as functions.

    Two calls with the same arguments give the same bytes. Raises ``KeyError`` for an unknown machine.
    """
    strings, symbols, hashes = _names(soname, exports)
    segments_at = HEADER.size
    symbols_at = segments_at + 3 * SEGMENT.size
    hashes_at = symbols_at + len(symbols)
    strings_at = hashes_at + len(hashes)
    dynamic_at = -(-(strings_at + len(strings)) // 8) * 8
    entries = (
        (_DT_SONAME, 1),
        (_DT_HASH, hashes_at),
        (_DT_STRTAB, strings_at),
        (_DT_SYMTAB, symbols_at),
        (_DT_STRSZ, len(strings)),
        (_DT_SYMENT, SYMBOL.size),
        (0, 0),
    )
    dynamic = b"".join(DYNAMIC.pack(*entry) for entry in entries)
    loaded = dynamic_at + len(dynamic)
    names = b"\0.dynsym\0.hash\0.dynstr\0.dynamic\0.shstrtab\0"
    sections_at = -(-(loaded + len(names)) // 8) * 8

    def section(  # noqa: PLR0917 - a row of the table below
        name: bytes, kind: int, flags: int, at: int, size: int, link: int, info: int, entry: int
    ) -> bytes:
        address = at if flags & _ALLOC else 0
        align = 8 if entry else 1
        return SECTION.pack(
            names.index(b"\0" + name + b"\0") + 1, kind, flags, address, at, size, link, info, align, entry
        )

    sections = (
        bytes(SECTION.size),
        section(b".dynsym", _DYNSYM, _ALLOC, symbols_at, len(symbols), 3, 1, SYMBOL.size),
        section(b".hash", _HASH, _ALLOC, hashes_at, len(hashes), 1, 0, 4),
        section(b".dynstr", _STRTAB, _ALLOC, strings_at, len(strings), 0, 0, 0),
        section(b".dynamic", _DYNAMIC, _ALLOC | _WRITE, dynamic_at, len(dynamic), 3, 0, DYNAMIC.size),
        section(b".shstrtab", _STRTAB, 0, loaded, len(names), 0, 0, 0),
    )
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = HEADER.pack(
        ident, 3, MACHINES[machine], 1, 0, segments_at, sections_at, 0,
        HEADER.size, SEGMENT.size, 3, SECTION.size, len(sections), len(sections) - 1,
    )  # fmt: skip
    segments = (
        SEGMENT.pack(_PT_LOAD, 6, 0, 0, 0, loaded, loaded, PAGE)
        + SEGMENT.pack(_PT_DYNAMIC, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
        + SEGMENT.pack(_PT_STACK, 6, 0, 0, 0, 0, 0, 16)
    )
    body = header + segments + symbols + hashes + strings
    body += bytes(dynamic_at - len(body)) + dynamic + names
    return bytes(body + bytes(sections_at - len(body)) + b"".join(sections))
