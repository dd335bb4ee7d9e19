"""Hashes of files, read in chunks, and the checksum that the loader compares at each import."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
