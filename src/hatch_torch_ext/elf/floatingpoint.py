"""Whether a file changes how the processor calculates, when it is opened.

``-ffast-math`` at the link step adds ``crtfastmath.o``, whose constructor makes the processor take subnormal numbers
for zero: in the thread that opens the file and in all that it starts later, for every package of the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.elf.image import Image

DT_RELA, DT_RELASZ, DT_INIT_ARRAY, DT_INIT_ARRAYSZ = 7, 8, 25, 27
X86_64, AARCH64 = 62, 183
RELATIVE = {X86_64: 8, AARCH64: 1027}
"""The relocation that adds the file's own address, by machine."""
BEGINNING = 64
"""Bytes of a constructor that are read; that of crtfastmath.o has 23."""
MAX_CONSTRUCTORS, MAX_RELOCATIONS = 1 << 12, 1 << 20
FTZ_AND_DAZ = (0x8040).to_bytes(4, "little")
MSR_FPCR = 0xD51B4400
"""The instruction of AArch64 that writes the register; its lowest five bits name the source."""


def takes_subnormals_for_zero(image: Image, first: dict[int, int]) -> bool:
    """Return whether a constructor of the file does that. ``first`` are values of the dynamic table by tag."""
    if image.machine not in RELATIVE or DT_INIT_ARRAY not in first:
        return False
    starts = [image.offset_of(each, "a constructor") for each in _constructors(image, first) if each]
    codes = [image.bytes(offset, min(left, BEGINNING), "a constructor") for offset, left in starts]
    return any(_sets_fpcr(code) if image.machine == AARCH64 else _sets_mxcsr(code) for code in codes)


def _constructors(image: Image, first: dict[int, int]) -> Iterator[int]:
    """Return the addresses; some linkers write them only into the relocations."""
    start, count = first[DT_INIT_ARRAY], min(first.get(DT_INIT_ARRAYSZ, 0) // 8, MAX_CONSTRUCTORS)
    offset, _ = image.offset_of(start, "its constructors")
    places = {start + 8 * at: row[0] for at, row in enumerate(image.records("Q", offset, count, "its constructors"))}
    if not all(places.values()) and DT_RELA in first:
        at, _ = image.offset_of(first[DT_RELA], "its relocations")
        rows = min(first.get(DT_RELASZ, 0) // 24, MAX_RELOCATIONS)
        for place, kind, addend in image.records("QQQ", at, rows, "its relocations"):
            if kind == RELATIVE[image.machine] and places.get(place) == 0:
                places[place] = addend
    yield from places.values()


def _sets_mxcsr(code: bytes) -> bool:
    """Return whether it reads the register (stmxcsr), sets both bits and writes it back (ldmxcsr)."""
    function = code.partition(b"\xc3")[0]
    opcodes = [function[at + 2] >> 3 & 7 for at in range(len(function) - 2) if function[at : at + 2] == b"\x0f\xae"]
    return 3 in opcodes and 2 in opcodes and FTZ_AND_DAZ in function  # noqa: PLR2004 -- /3 and /2


def _sets_fpcr(code: bytes) -> bool:
    words = (int.from_bytes(code[at : at + 4], "little") for at in range(0, min(len(code) - 3, 16), 4))
    return any(word & ~0x1F == MSR_FPCR for word in words)
