"""The bytes of files: hashes, the checksum that the loader compares, sizes as people read them, and windows."""

from __future__ import annotations

import hashlib
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
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def ends(path: Path) -> int:
    """Return the CRC-32 of the first and the last ``END`` bytes of a file, each byte once."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        checksum = zlib.crc32(stream.read(END))
        if size > END:
            stream.seek(max(END, size - END))
            checksum = zlib.crc32(stream.read(END), checksum)
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
