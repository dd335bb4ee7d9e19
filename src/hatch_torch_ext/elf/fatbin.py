"""The GPU code inside a shared library: which architectures it was really compiled for.

nvcc puts device code into the section ``.nv_fatbin``: containers, one after another, each a header and a run of
entries. An entry's own header names the kind of code (PTX or machine code), the architecture and, as two flags, whether
it is tied to that architecture (``a``) or its family (``f``); none of it is compressed, whatever the payload is. NVIDIA
does not document the format: what stands here was seen in the output of nvcc 12.4 and 13.0 and agrees with
``cuobjdump``. Device code linked across files (``-rdc``) lands in the same section; what nvcc keeps for a later link
(``__nv_relfatbin``) is never run and is not counted. A device link without kernels cannot be told from code.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.elf.image import SHT_NOBITS, Image, Malformed
from hatch_torch_ext.errors import FatbinError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECTION = ".nv_fatbin"
MAGIC = 0xBA55ED50
MAX_ENTRIES = 1_000_000
"""More than any library holds (cuBLAS has thousands): an endless file ends here."""

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQ")  # kind, version, size of this header, size of the payload
_ARCH = struct.Struct("<I8xQ")  # at 28: the architecture's number; at 40: flags
_ARCH_OFFSET = 28
_SMALLEST_ENTRY = 64
_KINDS = {1: "ptx", 2: "sass", 16: "sass"}  # 16: machine code in the newer wrapping; others (LTO) are not runnable
_FLAG_ARCH_SPECIFIC = 1 << 20
_FLAG_FAMILY = 1 << 21
_LARGEST_ARCH = 999


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Code:
    """One piece of device code: ``number`` 90 and ``suffix`` ``a`` for sm_90a; ``ptx`` for PTX, else machine code."""

    number: int
    suffix: str
    ptx: bool

    @property
    def name(self) -> str:
        """Return the manifest's notation: ``9.0`` for machine code, ``9.0+PTX`` for PTX."""
        return f"{self.number // 10}.{self.number % 10}{self.suffix}{'+PTX' if self.ptx else ''}"


def archs(path: Path) -> tuple[str, ...]:
    """Return what the ELF file ``path`` holds code for, each once, oldest first: ``("8.0", "9.0a", "9.0+PTX")``.

    ``9.0`` is machine code, ``9.0+PTX`` is PTX; a file without device code gives (). Raises ``FatbinError``.
    """
    try:
        return tuple(code.name for code in sorted(set(codes(_section(path)))))
    except (FatbinError, Malformed) as error:
        raise FatbinError(f"{path}: {error}; build it anew") from error
    except OSError as error:
        raise FatbinError(f"{path}: {error.strerror}") from error


def _section(path: Path) -> bytes:
    with path.open("rb") as stream:
        if not stream.read(1):
            raise FatbinError("it is empty")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            image = Image(data)
            for section in image.sections:
                if section.name == SECTION and section.type != SHT_NOBITS:
                    return image.bytes(section.offset, section.size, f"its section {SECTION}")
    return b""


def codes(data: bytes) -> Iterator[Code]:
    """Yield every runnable piece of code of a ``.nv_fatbin`` section, in file order.

    Raises ``FatbinError`` where a container or an entry points outside.
    """
    position = 0
    seen = 0
    magic = MAGIC.to_bytes(4, "little")
    while (position := data.find(magic, position)) >= 0:
        if position % 8:  # containers are aligned: this is payload that looks like one
            position += 1
            continue
        start, end = _container(data, position)
        while start < end:
            seen += 1
            if seen > MAX_ENTRIES:
                raise FatbinError(f"section {SECTION} holds more than {MAX_ENTRIES} entries")
            code, start = _entry(data, start, end)
            if code is not None:
                yield code
        position = end
    if data.strip(b"\0") and seen == 0:
        raise FatbinError(
            f"section {SECTION} holds no container that is known: a newer CUDA than this version can read"
        )


def _container(data: bytes, position: int) -> tuple[int, int]:
    if position + _CONTAINER.size > len(data):
        raise FatbinError(f"container at {position:#x} of {SECTION} is cut off")
    _, _, header_size, size = _CONTAINER.unpack_from(data, position)
    start = position + header_size
    if header_size < _CONTAINER.size or start + size > len(data):
        raise FatbinError(f"container at {position:#x} of {SECTION} is cut off")
    return start, start + size


def _entry(data: bytes, position: int, end: int) -> tuple[Code | None, int]:
    if position + _SMALLEST_ENTRY > end:
        raise FatbinError(f"entry at {position:#x} of {SECTION} is cut off")
    kind, _, header_size, size = _ENTRY.unpack_from(data, position)
    after = position + header_size + size
    if header_size < _SMALLEST_ENTRY or after > end:
        raise FatbinError(f"entry at {position:#x} of {SECTION} is cut off")
    if kind not in _KINDS:
        return None, after
    number, flags = _ARCH.unpack_from(data, position + _ARCH_OFFSET)
    if not 0 < number <= _LARGEST_ARCH:
        raise FatbinError(f"entry at {position:#x} of {SECTION} names the architecture {number}, which cannot be")
    suffix = "a" if flags & _FLAG_ARCH_SPECIFIC else "f" if flags & _FLAG_FAMILY else ""
    return Code(number=number, suffix=suffix, ptx=_KINDS[kind] == "ptx"), after
