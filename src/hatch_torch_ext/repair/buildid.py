"""Build ids from the bytes that users get: linkers also hash parts that are stripped afterwards."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

from hatch_torch_ext import elf
from hatch_torch_ext.facts import content

if TYPE_CHECKING:
    from pathlib import Path

NT_GNU_BUILD_ID = 3


def renew(file: Path) -> None:
    """Set the build id of the stripped ``file`` to a hash of all its other bytes; a file without one is left alone.

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
        if at < 0:  # of another byte order
            return
        at += len(note) - len(old)
        data[at : at + len(old)] = bytes(len(old))
        data.flush()
        new = bytes.fromhex(content.sha256(file))
        data[at : at + len(old)] = (new * (len(old) // len(new) + 1))[: len(old)]
