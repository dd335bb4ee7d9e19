"""Facts of an ELF file, for reading only.

Invalid bytes raise ``ElfError``; they never cause a hang or another exception.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from hatch_torch_ext.base.errors import ElfError
from hatch_torch_ext.elf.fatbin import SECTION
from hatch_torch_ext.elf.image import (
    MAX_DYNAMIC,
    MAX_SYMBOLS,
    SHT_NOBITS,
    SHT_SYMTAB,
    SYMBOL,
    SYMBOL_SIZE,
    Image,
    Malformed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ElfError", "ElfFile", "defined", "is_elf", "read", "versions"]

MACHINES = {21: "ppc64le", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
GPU_MACHINES = frozenset({"machine190"})
"""The machines of ELF files for GPUs (``.cubin``), as ``ElfFile.machine`` names them."""
ET_EXEC, ET_DYN = 2, 3
PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_TLS, PT_GNU_STACK = 2, 3, 4, 7, 0x6474E551
SHT_DYNSYM = 11
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SONAME, DT_RPATH = 1, 4, 5, 6, 10, 14, 15
DT_TEXTREL, DT_RUNPATH, DT_FLAGS = 22, 29, 30
DT_GNU_HASH, DT_VERSYM, DT_FLAGS_1, DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = (
    0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF,
)  # fmt: skip
DF_TEXTREL, DF_STATIC_TLS, DF_1_PIE = 0x4, 0x10, 0x08000000
NT_GNU_BUILD_ID, NT_GNU_PROPERTY_TYPE_0 = 3, 5
GNU_PROPERTY_X86_ISA_1_NEEDED = 0xC0008002
MAX_VERSIONS = 1 << 16
STACK_IS_EXECUTABLE_BY_DEFAULT = frozenset({"x86_64"})
"""Machines whose glibc has ``PF_X`` in ``DEFAULT_STACK_PERMS``: without PT_GNU_STACK, the stack is executable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElfFile:
    """The facts of a shared object or program that the dynamic linker and the audit use.

    ``machine`` is in the notation of ``platform.machine()`` (``x86_64``, ``aarch64``). ``undefined`` and ``exported``
    are names of dynamic symbols without versions, sorted; ``undefined`` lacks weak ones, which are in ``weak``.
    ``version_needs`` is .gnu.version_r: (file, its versions), both sorted. ``symbol_versions`` are the undefined
    symbols with a version: (symbol, version), sorted.
    """

    path: Path
    machine: str
    type: str
    """``shared``, ``program`` or ``other`` (relocatable, core)."""
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    version_needs: tuple[tuple[str, tuple[str, ...]], ...]
    undefined: tuple[str, ...]
    weak: tuple[str, ...]
    exported: tuple[str, ...]
    interpreter: str | None
    executable_stack: bool
    text_relocations: bool
    has_symbol_table: bool
    """Whether it has a .symtab, that is, is not stripped."""
    has_debug: bool
    build_id: str | None
    gpu_code: bool
    """Whether it has a section with code for GPUs (``fatbin.archs`` says which)."""
    symbol_versions: tuple[tuple[str, str], ...] = ()
    static_tls: int = 0
    """Bytes of thread-local storage that need the static block, which is laid out when the process starts."""
    takes_subnormals_for_zero: bool = False
    """Whether opening it makes the processor do so (``-ffast-math`` at the link step)."""
    isa_level: int = 1
    """The level of x86-64 that the file requires of the processor: 3 for ``x86-64-v3``."""
    runs_when_opened: bool = False
    """Whether it has constructors besides those of the compiler's own startup files (``frame_dummy``)."""

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the versions of ``version_needs``, of all files."""
        return tuple(version for _, versions in self.version_needs for version in versions)


def is_elf(path: Path) -> bool:
    """Return whether ``path`` is a regular file that starts with the ELF magic."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def read(path: Path) -> ElfFile:
    """Return the facts of the ELF file ``path``. Raises ``ElfError`` if it is not one or contradicts itself."""
    try:
        with path.open("rb") as stream, _map(stream) as data:
            return _facts(path, Image(data))
    except (Malformed, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ElfError(f"{path} cannot be read as an ELF file: {why}; build it again, or leave it out") from error


def defined(path: Path) -> frozenset[str]:
    """Return every name that the file defines, hidden ones included if it still has its symbol table.

    Raises ``ElfError`` as ``read`` does.
    """
    return frozenset(name for name, is_defined, _ in _symbols(path) if is_defined)


def hidden(path: Path) -> frozenset[str]:
    """Return the names that the file defines and hides from others, if it still has its symbol table.

    A static function is not among them: it is another one of that name. Raises ``ElfError`` as ``read`` does.
    """
    return frozenset(name for name, is_defined, is_hidden in _symbols(path) if is_defined and is_hidden)


def _symbols(path: Path) -> list[tuple[str, bool, bool]]:
    try:
        with path.open("rb") as stream, _map(stream) as data:
            return list(Image(data).symbols())
    except (Malformed, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ElfError(f"{path} cannot be read as an ELF file: {why}; build it again, or leave it out") from error


def versions(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each name that the library exports with its own version, and that version (``GLIBC_2.17``).

    Raises ``ElfError`` as ``read`` does.
    """
    try:
        with path.open("rb") as stream, _map(stream) as data:
            yield from _versioned(Image(data))
    except (Malformed, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ElfError(f"{path} cannot be read as an ELF file: {why}; build it again, or leave it out") from error


def _versioned(image: Image) -> Iterator[tuple[str, str]]:
    dynamic = _dynamic(image)
    first = {tag: values[0] for tag, values in dynamic.items()}
    if not {DT_SYMTAB, DT_VERSYM, DT_VERDEF} <= first.keys():
        return
    strings = _strings(image, dynamic)
    known: dict[int, str] = {}
    at, _ = image.offset_of(first[DT_VERDEF], "its versions")
    for _ in range(min(first.get(DT_VERDEFNUM, 0), MAX_VERSIONS)):
        _, _, index, _, _, aux, following = image.unpack("HHHHIII", at, "a version")
        (name,) = image.unpack("I", at + aux, "a version's name")
        known[index] = image.string(strings, name, "a version's name")
        at += following
    offset, _ = image.offset_of(first[DT_SYMTAB], "its dynamic symbol table")
    count = _symbol_count(image, first, offset)
    if count > MAX_SYMBOLS:
        raise Malformed(f"{count} dynamic symbols")
    places, _ = image.offset_of(first[DT_VERSYM], "its symbol versions")
    indices = image.unpack(f"{count}H", places, "its symbol versions")
    rows = image.records(SYMBOL, offset, count, "its dynamic symbol table")
    for number, (name, _, _, section, _, _) in enumerate(rows):
        if name and section and (version := known.get(indices[number] & 0x7FFF)):
            yield image.string(strings, name, "a dynamic symbol's name"), version


def _map(stream: BinaryIO) -> mmap.mmap:
    if not stream.read(1):
        raise Malformed("it is empty")
    return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _facts(path: Path, image: Image) -> ElfFile:
    machine = MACHINES.get(image.machine, f"machine{image.machine}")
    dynamic = _dynamic(image)
    strings = _strings(image, dynamic)
    first = {tag: values[0] for tag, values in dynamic.items()}
    needs, versions = _version_needs(image, first, strings)
    symbols = _Symbols(image, first, strings, versions)
    sections = {section.name for section in image.sections}
    interpreter = _interpreter(image)

    def texts(tag: int, what: str) -> tuple[str, ...]:
        return tuple(image.string(strings, value, what) for value in dynamic.get(tag, ()))

    sonames = texts(DT_SONAME, "its SONAME")
    fast_math = takes_subnormals_for_zero(image, first)
    startup = 2 if fast_math else 1  # frame_dummy of crtbegin.o, and that of crtfastmath.o
    return ElfFile(
        path=path,
        machine=machine,
        type=_type(image, first, interpreter, has_soname=bool(sonames)),
        soname=sonames[0] if sonames else None,
        needed=texts(DT_NEEDED, "a NEEDED name"),
        rpath=tuple(part for text in texts(DT_RPATH, "its RPATH") for part in text.split(":")),
        runpath=tuple(part for text in texts(DT_RUNPATH, "its RUNPATH") for part in text.split(":")),
        version_needs=needs,
        undefined=tuple(sorted(symbols.undefined)),
        weak=tuple(sorted(symbols.weak)),
        exported=tuple(sorted(symbols.exported)),
        interpreter=interpreter,
        executable_stack=_executable_stack(image, machine),
        text_relocations=DT_TEXTREL in first or bool(first.get(DT_FLAGS, 0) & DF_TEXTREL),
        static_tls=_static_tls(image) if first.get(DT_FLAGS, 0) & DF_STATIC_TLS else 0,
        takes_subnormals_for_zero=fast_math,
        isa_level=_isa_level(image),
        runs_when_opened=first.get(DT_INIT_ARRAYSZ, 0) // 8 > startup,
        has_symbol_table=any(section.type == SHT_SYMTAB for section in image.sections),
        has_debug=any(name.startswith((".debug_", ".zdebug_")) for name in sections),
        build_id=_build_id(image),
        gpu_code=SECTION in sections,
        symbol_versions=tuple(sorted(symbols.versioned)),
    )


def _type(image: Image, first: dict[int, int], interpreter: str | None, *, has_soname: bool) -> str:
    # A library may name an interpreter (libc.so.6 does), and older linkers do not mark a PIE.
    if image.type == ET_EXEC or (image.type == ET_DYN and first.get(DT_FLAGS_1, 0) & DF_1_PIE):
        return "program"
    if image.type != ET_DYN:
        return "other"
    return "program" if interpreter is not None and not has_soname else "shared"


def _dynamic(image: Image) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    segment = next((s for s in image.segments if s.type == PT_DYNAMIC and s.file_size), None)
    if segment is None:
        return found
    count = min(segment.file_size // 16, MAX_DYNAMIC)
    for tag, value in image.records("QQ", segment.offset, count, "its dynamic table"):
        if not tag:
            break
        found.setdefault(tag, []).append(value)
    return found


def _strings(image: Image, dynamic: dict[int, list[int]]) -> tuple[int, int]:
    if DT_STRTAB not in dynamic:
        return 0, 0
    offset, left = image.offset_of(dynamic[DT_STRTAB][0], "its dynamic string table")
    return offset, min(left, dynamic.get(DT_STRSZ, [left])[0])


def _version_needs(
    image: Image, first: dict[int, int], strings: tuple[int, int]
) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], dict[int, str]]:
    """Return .gnu.version_r, and the version for each index of .gnu.version."""
    if DT_VERNEED not in first:
        return (), {}
    needs: dict[str, set[str]] = {}
    versions: dict[int, str] = {}
    record, left = 16, MAX_VERSIONS
    offset, _ = image.offset_of(first[DT_VERNEED], "its version needs")
    for _ in range(first.get(DT_VERNEEDNUM, 0)):
        _, count, file, aux, following = image.unpack("HHIII", offset, "a version need")
        names = needs.setdefault(image.string(strings, file, "the file of a version need"), set())
        at, left = offset + aux, left - 1 - count
        if left < 0:
            raise Malformed(f"more than {MAX_VERSIONS} version needs")
        for _ in range(count):
            _, _, index, name, next_aux = image.unpack("IHHII", at, "a needed version")
            versions[index] = image.string(strings, name, "a needed version's name")
            names.add(versions[index])
            if next_aux < record:
                break
            at += next_aux
        if following < record:
            break
        offset += following
    return tuple(sorted((file, tuple(sorted(names))) for file, names in needs.items())), versions


class _Symbols:
    """The dynamic symbol table, divided into what the file needs and what it exports."""

    def __init__(self, image: Image, first: dict[int, int], strings: tuple[int, int], versions: dict[int, str]) -> None:
        self.undefined: set[str] = set()
        self.weak: set[str] = set()
        self.exported: set[str] = set()
        self.versioned: set[tuple[str, str]] = set()
        if DT_SYMTAB not in first:
            return
        offset, _ = image.offset_of(first[DT_SYMTAB], "its dynamic symbol table")
        count = _symbol_count(image, first, offset)
        if count > MAX_SYMBOLS:
            raise Malformed(f"{count} dynamic symbols")
        indices: tuple[int, ...] = ()
        if versions and DT_VERSYM in first:
            at, _ = image.offset_of(first[DT_VERSYM], "its symbol versions")
            indices = image.unpack(f"{count}H", at, "its symbol versions")
        rows = image.records(SYMBOL, offset, count, "its dynamic symbol table")
        for number, (name, info, other, index, _, _) in enumerate(rows):
            binding = info >> 4
            if not name or not binding:
                continue
            text = image.string(strings, name, "a dynamic symbol's name")
            if index:
                if other & 3 in (0, 3):  # default and protected: visible to other files
                    self.exported.add(text)
                continue
            (self.weak if binding == 2 else self.undefined).add(text)  # noqa: PLR2004 - STB_WEAK
            if indices and (version := versions.get(indices[number] & 0x7FFF)):
                self.versioned.add((text, version))


def _symbol_count(image: Image, first: dict[int, int], offset: int) -> int:
    """Return the number of dynamic symbols, from the section header, else from a hash table: no dynamic tag has it."""
    for section in image.sections:
        if section.type == SHT_DYNSYM and section.offset == offset:
            return section.size // SYMBOL_SIZE
    if DT_HASH in first:
        at, _ = image.offset_of(first[DT_HASH], "its hash table")
        return image.unpack("II", at, "its hash table")[1]
    if DT_GNU_HASH not in first:
        return 0
    at, _ = image.offset_of(first[DT_GNU_HASH], "its GNU hash table")
    buckets, start, bloom, _ = image.unpack("IIII", at, "its GNU hash table")
    at += 16 + bloom * 8
    if buckets > MAX_SYMBOLS:
        raise Malformed(f"{buckets} hash buckets")
    last = max((row[0] for row in image.records("I", at, buckets, "its GNU hash table")), default=0)
    at += 4 * (buckets + last - start)
    while last >= start and last <= MAX_SYMBOLS:
        if image.unpack("I", at, "a GNU hash chain")[0] & 1:
            return last + 1
        last, at = last + 1, at + 4
    return start


def _interpreter(image: Image) -> str | None:
    segment = next((s for s in image.segments if s.type == PT_INTERP and s.file_size), None)
    if segment is None:
        return None
    size = min(segment.file_size, 4096)
    return image.bytes(segment.offset, size, "its interpreter").rstrip(b"\0").decode("utf-8", "backslashreplace")


def _executable_stack(image: Image, machine: str) -> bool:
    if image.type not in (ET_EXEC, ET_DYN):
        return False
    flags = next((s.flags for s in image.segments if s.type == PT_GNU_STACK), None)
    return machine in STACK_IS_EXECUTABLE_BY_DEFAULT if flags is None else bool(flags & 1)


def _static_tls(image: Image) -> int:
    return sum(segment.memory for segment in image.segments if segment.type == PT_TLS)


def _build_id(image: Image) -> str | None:
    return next((text[:64].hex() for text in _notes(image, NT_GNU_BUILD_ID, ".note.gnu.build-id")), None)


def _isa_level(image: Image) -> int:
    """Return the highest level that a property names; glibc refuses the file on a processor of a lower one."""
    level = 1
    if image.machine != X86_64:
        return level
    for text in _notes(image, NT_GNU_PROPERTY_TYPE_0, ".note.gnu.property"):
        at = 0
        while at + 12 <= len(text):
            kind, size, value = (int.from_bytes(text[i : i + 4], "little") for i in (at, at + 4, at + 8))
            if kind == GNU_PROPERTY_X86_ISA_1_NEEDED and size == 4:  # noqa: PLR2004 - bit 0 is the baseline, bit 1 v2
                level = max(level, value.bit_length())
            at += 8 + (size + 7 & ~7)
    return level


def _notes(image: Image, kind: int, section: str) -> Iterator[bytes]:
    """Yield the texts of GNU's notes of this kind."""
    places = [(s.offset, s.file_size) for s in image.segments if s.type == PT_NOTE]
    places += [(s.offset, s.size) for s in image.sections if s.name == section and s.type != SHT_NOBITS]
    for offset, size in places:
        notes, at = image.bytes(offset, min(size, 1 << 16), "a note"), 0
        while at + 12 <= len(notes):
            name_size, text_size, type_ = (int.from_bytes(notes[i : i + 4], "little") for i in (at, at + 4, at + 8))
            start = at + 12 + (name_size + 3 & ~3)
            if type_ == kind and notes[at + 12 : at + 12 + name_size] == b"GNU\0":
                yield notes[start : start + text_size]
            at = start + (text_size + 3 & ~3)


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
