"""The GPU code in a shared library: the architectures for which it was really compiled.

nvcc puts device code into the section ``.nv_fatbin``: a sequence of containers, each a header and a run of entries. The
header of an entry states the kind of code (PTX or machine code), the architecture and, as two flags, whether the code
is limited to that architecture (``a``) or to its family (``f``); headers are never compressed, whatever the payload is.
NVIDIA does not document the format: this module follows what nvcc 12.4 and 13.0 write, and agrees with ``cuobjdump``.

Device code that is linked across files (``-rdc``) is in the same section; what nvcc keeps for a later link
(``__nv_relfatbin``) is never run and is not counted. A device link without kernels looks the same as code.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import FatbinError
from hatch_torch_ext.elf.image import SHT_NOBITS, Image, Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Bytes = bytes | mmap.mmap

SECTION = ".nv_fatbin"
MAGIC = 0xBA55ED50
MAX_ENTRIES = 200_000
"""More than any library has (cuBLAS has thousands): a malformed file cannot loop forever."""

_MAGIC = MAGIC.to_bytes(4, "little")
_PIECE = 1 << 20
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQ")  # kind, version, size of this header, size of the payload
_ARCH = struct.Struct("<I8xQ")  # at 28: the architecture's number; at 40: flags
_ARCH_OFFSET = 28
_SMALLEST_ENTRY = 64
_KINDS = {1: "ptx", 2: "sass", 16: "sass"}  # 16: machine code in the newer container; other kinds (LTO) do not run
_FLAG_ARCH_SPECIFIC = 1 << 20
_FLAG_FAMILY = 1 << 21
_LARGEST_ARCH = 999


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeviceCode:
    """One piece of device code; ``number`` is 90 and ``suffix`` ``a`` for sm_90a.

    ``ptx``: it is PTX, else machine code.
    """

    number: int
    suffix: str
    ptx: bool

    @property
    def name(self) -> str:
        """Return the manifest's notation: ``9.0`` for machine code, ``9.0+PTX`` for PTX."""
        return f"{self.number // 10}.{self.number % 10}{self.suffix}{'+PTX' if self.ptx else ''}"


def archs(path: Path) -> tuple[str, ...]:
    """Return the architectures for which the ELF file ``path`` has code, oldest first: ``("8.0", "9.0a", "9.0+PTX")``.

    ``9.0`` is machine code, ``9.0+PTX`` is PTX; a file without device code gives (). Raises ``FatbinError``.
    """
    try:
        return tuple(code.name for code in sorted(_codes_of(path)))
    except (FatbinError, Malformed) as error:
        raise FatbinError(f"{path}: {error}; build it again") from error
    except OSError as error:
        raise FatbinError(f"{path}: {error.strerror}") from error


def _codes_of(path: Path) -> set[DeviceCode]:
    with path.open("rb") as stream:
        if not stream.read(1):
            raise FatbinError("it is empty")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            image = Image(data)
            for section in image.sections:
                if section.name == SECTION and section.type != SHT_NOBITS:
                    image.bytes(section.offset + section.size, 0, f"its section {SECTION}")
                    return set(codes(data, section.offset, section.offset + section.size))
    return set()


def codes(data: Bytes, begin: int = 0, end: int | None = None) -> Iterator[DeviceCode]:
    """Yield every runnable piece of code in a ``.nv_fatbin`` section, in file order.

    The section is ``data`` from ``begin`` to ``end``. Raises ``FatbinError`` if a container or an entry exceeds it.
    """
    position, last = begin, len(data) if end is None else end
    seen = 0
    while (position := _next(data, position, last)) >= 0:
        seen += 1
        if (position - begin) % 8:  # containers are aligned: this is payload that looks like one
            position += 1
            start = stop = position
        else:
            start, stop = _container(data, position, begin, last)
        while start < stop:
            seen += 1
            if seen > MAX_ENTRIES:
                raise FatbinError(f"section {SECTION} holds more than {MAX_ENTRIES} entries")
            code, start = _entry(data, start, begin, stop)
            if code is not None:
                yield code
        if seen > MAX_ENTRIES:
            raise FatbinError(f"section {SECTION} holds more than {MAX_ENTRIES} entries")
        position = stop
    if seen == 0 and any(data[at : min(at + _PIECE, last)].strip(b"\0") for at in range(begin, last, _PIECE)):
        raise FatbinError(
            f"section {SECTION} holds no container that is known: a newer CUDA than this version can read"
        )


def _next(data: Bytes, position: int, end: int) -> int:
    """Return the offset of the next container's magic, or -1. It searches copies: memory maps are slow before 3.12."""
    while position < end:
        found = data[position : min(position + _PIECE + len(_MAGIC) - 1, end)].find(_MAGIC)
        if found >= 0:
            return position + found
        position += _PIECE
    return -1


def _container(data: Bytes, position: int, begin: int, end: int) -> tuple[int, int]:
    if position + _CONTAINER.size > end:
        raise FatbinError(f"container at {position - begin:#x} of {SECTION} is cut off")
    _, _, header_size, size = _CONTAINER.unpack_from(data, position)
    start = position + header_size
    if header_size < _CONTAINER.size or start + size > end:
        raise FatbinError(f"container at {position - begin:#x} of {SECTION} is cut off")
    return start, start + size


def _entry(data: Bytes, position: int, begin: int, end: int) -> tuple[DeviceCode | None, int]:
    if position + _SMALLEST_ENTRY > end:
        raise FatbinError(f"entry at {position - begin:#x} of {SECTION} is cut off")
    kind, _, header_size, size = _ENTRY.unpack_from(data, position)
    after = position + header_size + size
    if header_size < _SMALLEST_ENTRY or after > end:
        raise FatbinError(f"entry at {position - begin:#x} of {SECTION} is cut off")
    if kind not in _KINDS:
        return None, after
    number, flags = _ARCH.unpack_from(data, position + _ARCH_OFFSET)
    if not 0 < number <= _LARGEST_ARCH:
        raise FatbinError(
            f"entry at {position - begin:#x} of {SECTION} names the architecture {number}, which cannot be"
        )
    suffix = "a" if flags & _FLAG_ARCH_SPECIFIC else "f" if flags & _FLAG_FAMILY else ""
    return DeviceCode(number=number, suffix=suffix, ptx=_KINDS[kind] == "ptx"), after
