"""The bytes of an ELF file, or of a static library of them, read with a limit on every step: counts may be wrong.

It uses ``struct`` over a memory map instead of pyelftools: a torch library has hundreds of thousands of symbols, for
each of which pyelftools makes several Python objects, and it trusts the counts that it reads. What the dynamic linker
uses (program headers, the dynamic table) is read first; section headers only add to it. All machines that torch is
built for have 64 bits and are little-endian.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

MAX_SECTIONS = 1 << 16
MAX_DYNAMIC = 1 << 16
MAX_SYMBOLS = 1 << 20
NAME_BYTES = 1 << 26
"""Limit of all names of one file together, in bytes; libtorch_cpu.so has a tenth of it, in 75,000 symbols."""

PT_LOAD = 1
SHT_SYMTAB = 2
SHT_STRTAB = 3
SHT_NOBITS = 8
STT_FILE = 4
HIDDEN = (1, 2)
"""The visibilities of symbols that no other file sees: internal and hidden."""
SYMBOL, SYMBOL_SIZE = "IBBHQQ", 24
"""A row of a symbol table: name, binding and type, visibility, section (0: undefined), value, size."""

LTO_SYMBOLS = ".gnu.lto_.symtab."
LTO_UNDEFINED = (2, 3)
"""Of the kinds of symbols in it (``lto-symtab.h`` of GCC), undefined and weak undefined."""
_LTO_SYMBOL = re.compile(rb"([^\0]*)\0[^\0]*\0(.).{13}", re.DOTALL)


class Malformed(Exception):  # noqa: N818 - inside the reader only; callers see ElfError
    """The file contradicts itself; the text says how."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A program header."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory: int


@dataclass(frozen=True, slots=True)
class Section:
    """A section header with its name."""

    name: str
    type: int
    address: int
    offset: int
    size: int
    entry_size: int
    link: int
    """The number of the linked section: for a symbol table, that of its names."""


class Image:
    """Bounds-checked access to the headers, tables and strings of one ELF file."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self.data = data
        self.size = len(data)
        self._name_bytes = 0
        ident = self.bytes(0, 16, "its identification")
        if ident[:4] != b"\x7fELF":
            raise Malformed("it does not start with the ELF magic")
        if (ident[4], ident[5]) != (2, 1):
            raise Malformed("it is not for a machine of 64 bits, little-endian, as those of torch are")
        fields = self.unpack("HHIQQQIHHHHHH", 16, "its header")
        self.type, self.machine = fields[0], fields[1]
        self._headers = fields[4], fields[8], fields[9]
        self._section_headers = fields[5], fields[10], fields[11], fields[12]
        self.segments = self._read_segments()
        self.sections = self._read_sections()

    def bytes(self, offset: int, size: int, what: str) -> bytes:
        """Return ``size`` bytes from ``offset``; ``what`` names them in the error if they exceed the file."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Malformed(f"{what} would be at {offset:#x}..{offset + size:#x}, outside of its {self.size} bytes")
        return self.data[offset : offset + size]

    def unpack(self, layout: str, offset: int, what: str) -> tuple[int, ...]:
        """Return the integers of one record."""
        record = struct.Struct("<" + layout)
        return record.unpack(self.bytes(offset, record.size, what))

    def records(self, layout: str, offset: int, count: int, what: str) -> Iterator[tuple[int, ...]]:
        """Return an iterator over ``count`` consecutive records."""
        record = struct.Struct("<" + layout)
        return record.iter_unpack(self.bytes(offset, record.size * count, what))

    def string(self, table: tuple[int, int], index: int, what: str) -> str:
        """Return the string at ``index`` of the string table (``offset``, ``size``)."""
        start, end = table[0] + index, table[0] + table[1]
        stop = self.data.find(b"\0", start, end) if 0 <= index < table[1] else -1
        if stop < 0:
            raise Malformed(f"{what} has no end inside its string table")
        self._name_bytes += stop - start
        if self._name_bytes > NAME_BYTES:
            raise Malformed(f"its names come to more than {NAME_BYTES >> 20} MiB")
        return self.data[start:stop].decode("utf-8", errors="backslashreplace")

    def symbols(self) -> Iterator[tuple[str, bool, bool]]:
        """Yield each name of .symtab, which stripped files lack, whether the file defines it, and whether it hides it.

        Static functions follow the symbol of their source. Of what is hidden, gold and lld keep the visibility; GNU ld
        makes it local, after a symbol of a source without a name.
        """
        for section in self.sections:
            if section.type != SHT_SYMTAB or not 0 <= section.link < len(self.sections):
                continue
            names = self.sections[section.link]
            count = section.size // SYMBOL_SIZE
            if count > MAX_SYMBOLS:
                raise Malformed(f"{count} symbols")
            nameless = False
            for name, info, other, index, _, _ in self.records(SYMBOL, section.offset, count, "its symbol table"):
                if info & 15 == STT_FILE:
                    nameless = not name
                elif name:
                    text = self.string((names.offset, names.size), name, "a symbol's name")
                    yield text, bool(index), other & 3 in HIDDEN or (nameless and not info >> 4)

    def undefined_before_linking(self) -> Iterator[str]:
        """Yield the symbols that an object file needs which GCC compiled with ``-flto``: its .symtab has none of them.

        Each is a name and that of its group, each with a zero byte, then kind, visibility, size and slot.
        """
        for section in self.sections:
            if section.name.startswith(LTO_SYMBOLS):
                table = self.bytes(section.offset, section.size, section.name)
                for match in _LTO_SYMBOL.finditer(table):
                    if match[2][0] in LTO_UNDEFINED:
                        yield match[1].decode("utf-8", "backslashreplace")

    def offset_of(self, address: int, what: str) -> tuple[int, int]:
        """Return the file offset of ``address``, and how many bytes of its segment follow it."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.address <= address < segment.address + segment.file_size:
                skipped = address - segment.address
                return segment.offset + skipped, segment.file_size - skipped
        raise Malformed(f"{what} is at address {address:#x}, which no segment loads")

    def _read_segments(self) -> tuple[Segment, ...]:
        offset, entry_size, count = self._headers
        layout = "IIQQQQQQ"
        if not count:
            return ()
        if entry_size != struct.calcsize("<" + layout):
            raise Malformed(f"program headers of {entry_size} bytes")
        rows = self.records(layout, offset, count, "its program headers")
        segments = [Segment(r[0], r[1], r[2], r[3], r[5], r[6]) for r in rows]
        for segment in segments:
            if segment.type == PT_LOAD and segment.offset + segment.file_size > self.size:
                raise Malformed(
                    f"a loaded segment ends at {segment.offset + segment.file_size:#x}, after the file's end"
                )
        return tuple(segments)

    def _read_sections(self) -> tuple[Section, ...]:
        offset, entry_size, count, names_index = self._section_headers
        layout = "IIQQQQIIQQ"
        if not offset or not (count or entry_size):
            return ()
        if entry_size != struct.calcsize("<" + layout):
            raise Malformed(f"section headers of {entry_size} bytes")
        if not count or names_index == 0xFFFF:  # noqa: PLR2004 - SHN_XINDEX: the true numbers are in section 0
            first = self.unpack(layout, offset, "its first section header")
            count, names_index = count or first[5], first[6] if names_index == 0xFFFF else names_index  # noqa: PLR2004
        if count > MAX_SECTIONS:
            raise Malformed(f"{count} sections")
        rows = list(self.records(layout, offset, count, "its section headers"))
        names = (0, 0)
        if 0 < names_index < count and rows[names_index][1] == SHT_STRTAB:
            names = (rows[names_index][4], rows[names_index][5])
            self.bytes(names[0] + names[1], 0, "the names of its sections")
        return tuple(
            Section(
                self.string(names, r[0], "a section's name") if names[1] else "", r[1], r[3], r[4], r[5], r[9], r[6]
            )
            for r in rows
        )


ARCHIVE = b"!<arch>\n"
MEMBER_HEADER = 60
"""Bytes before each member: name (16), date, owner, group, mode, then its size at 48, and two bytes that end it."""
MEMBER_END = b"`\n"
MAX_NAMES = 1 << 24
"""Limit of the table of long names, in bytes."""


def undefined_of_members(path: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name of each object file in a static library, and the symbols that it needs of others.

    A member that is not an object file has none. What cannot be read of an archive (thin, or cut off) is left out.
    Raises ``OSError`` if there is no such file.
    """
    with path.open("rb") as stream:
        for name, size in _members(stream):
            data = stream.read(size)
            if data.startswith(BITCODE):
                yield name, frozenset(_undefined_of_bitcode(data))
                continue
            try:
                image = Image(data)
                symbols = [symbol for symbol, is_defined, _ in image.symbols() if not is_defined]
                symbols += image.undefined_before_linking()
            except Malformed:
                symbols = []
            yield name, frozenset(symbols)


def _members(stream: BinaryIO) -> Iterator[tuple[str, int]]:
    """Yield name and size of each member, while the stream is at the member's first byte."""
    names = b""
    at = len(ARCHIVE)
    if stream.read(at) != ARCHIVE:
        return
    while len(header := stream.read(MEMBER_HEADER)) == MEMBER_HEADER and header.endswith(MEMBER_END):
        name, text = header[:16].decode("ascii", "replace").rstrip(), header[48:58].strip()
        if not text.isdigit():
            return
        size = int(text)
        if name == "//":
            names = stream.read(min(size, MAX_NAMES))
        elif name not in {"/", "/SYM64/"}:
            long = names[int(name[1:]) :].partition(b"/\n")[0] if name[1:].isdigit() else b""
            yield long.decode("utf-8", "replace") or name.removesuffix("/"), size
        at += MEMBER_HEADER + size + size % 2
        stream.seek(at)


BITCODE = b"BC\xc0\xde"
"""The beginning of what Clang writes with ``-flto`` (https://llvm.org/docs/BitCodeFormat.html)."""
_SYMBOLS, _NAMES = 25, 23
"""The numbers of the blocks that hold, as one blob each, the symbols of the module and all names."""
_BLOB = b"\x12\x03\x94"
"""How such a block begins: the one abbreviation in it, a blob of kind 1, and its use; the blob's length follows."""
_IR_SYMBOL = struct.Struct("<IIIIII")
"""Offset and size of the name, the same of that before mangling, group, flags (``storage::Symbol`` in IRSymtab.h)."""
_IR_UNDEFINED = 1 << 3


def _undefined_of_bitcode(data: bytes) -> Iterator[str]:
    """Yield the symbols that a module of LLVM's bitcode needs; none where it is cut off."""
    blobs = dict(_blobs(data))
    symbols, names = blobs.get(_SYMBOLS, b""), blobs.get(_NAMES, b"")
    if len(symbols) < 36:  # noqa: PLR2004 -- the header up to the place and number of the symbols
        return
    start, count = struct.unpack_from("<II", symbols, 28)
    end = min(start + count * _IR_SYMBOL.size, len(symbols))
    for at in range(start, end - _IR_SYMBOL.size + 1, _IR_SYMBOL.size):
        place, size, _, _, _, flags = _IR_SYMBOL.unpack_from(symbols, at)
        if flags & _IR_UNDEFINED:
            yield names[place : place + size].decode("utf-8", "backslashreplace")


def _blobs(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each outer block of LLVM's bitcode that holds a blob, and the blob.

    A block is 2 bits (1: a block), its number, the width of its abbreviations, then, in whole words of 4 bytes, its
    length in words and its content.
    """
    at = len(BITCODE)
    while at + 8 <= len(data):
        head = int.from_bytes(data[at : at + 8], "little")
        if head & 3 != 1:
            return
        number, bits = _variable(head, 2, 8)
        _, bits = _variable(head, bits, 4)
        start = at + (bits + 31) // 32 * 4 + 4
        at = start + 4 * int.from_bytes(data[start - 4 : start], "little")
        if data[start : start + len(_BLOB)] == _BLOB:
            size, bits = _variable(int.from_bytes(data[start : start + 12], "little"), 8 * len(_BLOB), 6)
            first = start + (bits + 31) // 32 * 4
            yield number, data[first : min(first + size, at)]


def _variable(bits: int, at: int, width: int) -> tuple[int, int]:
    """Return the number at bit ``at``, and its end: pieces of ``width`` bits whose highest says that more follow."""
    value, shift, more = 0, 0, 1
    while more:
        piece = bits >> at & (1 << width) - 1
        more = piece >> width - 1
        value |= (piece & (1 << width - 1) - 1) << shift
        at, shift = at + width, shift + width - 1
    return value, at
