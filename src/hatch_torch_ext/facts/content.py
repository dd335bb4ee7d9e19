"""Digests of files and of plain data, the checksum that the loader compares, sizes as people read them, windows."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE = 1 << 20
END = 512 << 10
"""Bytes at each end of a file; the dynamic linker and a library's first code read these parts."""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(PIECE):
            found.update(piece)
    return found.hexdigest()


def digest(data: object) -> str:
    """Return the SHA-256 of plain data (as JSON, whatever the order of its objects), in hex."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def ends(path: Path) -> int:
    """Return the CRC-32 of the first and the last ``END`` bytes of a file, each byte once."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        checksum = zlib.crc32(stream.read(END))
        if size > END:
            stream.seek(max(END, size - END))
            checksum = zlib.crc32(stream.read(END), checksum)
    return checksum


_ALLOCATED, _NOTE, _NOBITS = 2, 7, 8
"""A flag of sections, and types."""


def mapped(path: Path) -> int | None:
    """Return the CRC-32 of what a process maps of an ELF file: place, size and both ends of each allocated section.

    ``strip`` and what adds debug links leave it as it is. None for a file that is not ELF, has no sections or is not
    whole, and for one whose sections are not where its segments map them. ``help.py`` of the loader has the same.
    """
    with path.open("rb") as stream:
        total = os.fstat(stream.fileno()).st_size
        head = stream.read(64)
        if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:  # noqa: PLR2004 - the size of the header
            return None
        segments_at, sections_at = struct.unpack_from("<QQ", head, 32)
        segment_size, segment_count, section_size, section_count = struct.unpack_from("<HHHH", head, 54)
        if not section_count or sections_at + section_size * section_count > total:
            return None
        stream.seek(segments_at)
        table = stream.read(segment_size * segment_count)
        segments = [struct.unpack_from("<IIQQQQ", table, n * segment_size) for n in range(segment_count)]
        stream.seek(sections_at)
        table = stream.read(section_size * section_count)
        sections = [struct.unpack_from("<IIQQQQ", table, n * section_size) for n in range(section_count)]
        checksum = 0
        for _, kind, flags, address, offset, length in sorted(sections, key=lambda each: (each[3], each[1], each[5])):
            if not flags & _ALLOCATED or kind == _NOTE:
                continue
            checksum = zlib.crc32(struct.pack("<IQQ", kind, address, length), checksum)
            if kind == _NOBITS or not length:
                continue
            loads = [each for each in segments if each[0] == 1 and each[3] <= address < each[3] + each[5]]
            if offset + length > total or not any(address - each[3] == offset - each[2] for each in loads):
                return None
            stream.seek(offset)
            checksum = zlib.crc32(stream.read(min(END, length)), checksum)
            if length > END:
                stream.seek(max(offset + END, offset + length - END))
                checksum = zlib.crc32(stream.read(offset + length - stream.tell()), checksum)
    return checksum


SIZE = 4 << 20
OVERLAP = 16 << 10
"""Longer than anything that is searched for, so what one window cuts is whole in the next."""


def windows(path: Path) -> Iterator[bytes]:
    """Yield the bytes of ``path`` window by window; an occurrence may be in two of them."""
    with path.open("rb") as stream:
        kept = b""
        while chunk := stream.read(SIZE):
            yield kept + chunk
            kept = (kept + chunk)[-OVERLAP:] if len(chunk) < OVERLAP else chunk[-OVERLAP:]


_CPP_RUNTIME = b"\0N10__cxxabiv117__class_type_infoE\0"
"""The name of a type that libstdc++ and libc++abi define, and others only refer to (``_ZTVN10…``)."""


def has_cpp_runtime(path: Path) -> bool:
    """Return whether the C++ runtime is linked into a file statically; stripping does not hide it."""
    return any(_CPP_RUNTIME in data for data in windows(path))


def size(count: int) -> str:
    """Return a number of bytes in readable form: ``312 kB``, ``4.1 MB``."""
    if count < 1000:  # noqa: PLR2004 - decimal units, as PyPI counts
        return f"{count} B"
    for factor, unit in ((1e3, "kB"), (1e6, "MB")):
        if count < factor * 1000:
            value = count / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"  # noqa: PLR2004 - two digits tell enough
    return f"{count / 1e9:.2f} GB"
