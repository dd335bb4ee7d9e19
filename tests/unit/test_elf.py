"""The ELF reader against files that the test writes byte by byte: right facts, and one clean error for every lie."""

from __future__ import annotations

import contextlib
import struct
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import elves
from hatch_torch_ext import elf
from hatch_torch_ext.base.errors import ElfError

DYNSYM, DYNSTR, DYNAMIC, VERSYM, VERNEED, INTERP = 0x400, 0x600, 0x800, 0xA00, 0xB00, 0xC00
SIZE = 0x1000


def image(
    *, machine: int = 183, stack: int | None = 6, tags: tuple[tuple[int, int], ...] = (), extra: int = 0
) -> bytes:
    """Return a small shared object without sections: one loaded segment, a dynamic table, three symbols."""
    data = bytearray(SIZE + extra)
    strings = b"\0libfoo.so.1\0libbar.so\0$ORIGIN:/abs\0wanted\0maybe\0offered\0V_2\0"
    data[DYNSTR : DYNSTR + len(strings)] = strings
    at = {name: strings.index(name.encode() + b"\0") for name in ("libfoo.so.1", "libbar.so", "$ORIGIN:/abs")}
    at |= {name: strings.index(name.encode() + b"\0") for name in ("wanted", "maybe", "offered", "V_2")}
    symbols = [(0, 0, 0, 0), (at["wanted"], 1 << 4, 0, 0), (at["maybe"], 2 << 4, 0, 0), (at["offered"], 1 << 4, 0, 7)]
    for number, (name, info, other, index) in enumerate(symbols):
        struct.pack_into("<IBBHQQ", data, DYNSYM + 24 * number, name, info, other, index, 0, 0)
    struct.pack_into("<4H", data, VERSYM, 0, 2, 0, 1)
    struct.pack_into("<HHIII", data, VERNEED, 1, 1, at["libbar.so"], 16, 0)
    struct.pack_into("<IHHII", data, VERNEED + 16, 0, 0, 2, at["V_2"], 0)
    struct.pack_into("<II", data, VERSYM + 0x80, 1, len(symbols))  # DT_HASH: buckets, symbols
    table = [
        (1, at["libbar.so"]), (14, at["libfoo.so.1"]), (29, at["$ORIGIN:/abs"]), (5, DYNSTR), (10, len(strings)),
        (6, DYNSYM), (4, VERSYM + 0x80), (0x6FFFFFF0, VERSYM), (0x6FFFFFFE, VERNEED), (0x6FFFFFFF, 1), *tags, (0, 0),
    ]  # fmt: skip
    for number, pair in enumerate(table):
        struct.pack_into("<QQ", data, DYNAMIC + 16 * number, *pair)
    headers = [(1, 5, 0, 0, SIZE), (2, 6, DYNAMIC, DYNAMIC, 16 * len(table))]
    if stack is not None:
        headers.append((0x6474E551, stack, 0, 0, 0))
    struct.pack_into("<4sBBBB8x", data, 0, b"\x7fELF", 2, 1, 1, 0)
    struct.pack_into("<HHIQQQIHHHHHH", data, 16, 3, machine, 1, 0, 64, 0, 0, 64, 56, len(headers), 0, 0, 0)
    for number, (kind, flags, offset, address, size) in enumerate(headers):
        struct.pack_into("<IIQQQQQQ", data, 64 + 56 * number, kind, flags, offset, address, address, size, size, 8)
    return bytes(data)


def read(tmp_path: Path, data: bytes) -> elf.ElfFile:
    """Write ``data`` and read it as ELF."""
    path = tmp_path / "libfoo.so"
    path.write_bytes(data)
    return elf.read(path)


def test_facts_of_a_file_without_sections(tmp_path: Path) -> None:
    """What ld.so uses is enough: names, needs, symbols and versions come from the dynamic table of an aarch64 file."""
    facts = read(tmp_path, image())
    assert (facts.machine, facts.type, facts.soname) == ("aarch64", "shared", "libfoo.so.1")
    assert (facts.needed, facts.runpath, facts.rpath) == (("libbar.so",), ("$ORIGIN", "/abs"), ())
    assert (facts.undefined, facts.weak, facts.exported) == (("wanted",), ("maybe",), ("offered",))
    assert facts.version_needs == (("libbar.so", ("V_2",)),)
    assert facts.symbol_versions == (("wanted", "V_2"),)
    assert [facts.executable_stack, facts.text_relocations, facts.has_symbol_table, facts.has_debug] == [False] * 4


@pytest.mark.parametrize(
    ("machine", "stack", "executable"), [(62, 6, False), (62, 7, True), (62, None, True), (183, None, False)]
)
def test_executable_stack(tmp_path: Path, machine: int, stack: int | None, executable: bool) -> None:  # noqa: FBT001
    """A flagged PT_GNU_STACK asks for it; a missing one does where glibc's default is executable (x86-64)."""
    assert read(tmp_path, image(machine=machine, stack=stack)).executable_stack is executable


@pytest.mark.parametrize("tag", [(22, 0), (30, 4)])
def test_text_relocations(tmp_path: Path, tag: tuple[int, int]) -> None:
    """DT_TEXTREL and the flag in DT_FLAGS say the same."""
    assert read(tmp_path, image(tags=(tag,))).text_relocations


def test_a_pie_is_a_program(tmp_path: Path) -> None:
    """DF_1_PIE tells a program from a library of the same type."""
    assert read(tmp_path, image(tags=((0x6FFFFFFB, 0x08000000),))).type == "program"


def test_the_interpreter_itself() -> None:
    """A real program of this machine is read, whatever made it."""
    facts = elf.read(Path(sys.executable).resolve())
    assert facts.type in {"program", "shared"}
    assert any(name.startswith("libc.") for name in facts.needed)


def test_only_files_that_start_with_the_magic_are_elf(tmp_path: Path) -> None:
    """A folder, a missing file and text are not ELF; asking is not an error."""
    path = tmp_path / "x.so"
    assert not elf.is_elf(path)
    assert not elf.is_elf(tmp_path)
    path.write_bytes(b"INPUT(-lfoo)")
    assert not elf.is_elf(path)
    path.write_bytes(b"\x7fELF")
    assert elf.is_elf(path)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"\x7fEL", "its identification would be at 0x0..0x10, outside of its 3 bytes"),
        (b"text of more than sixteen bytes", "it does not start with the ELF magic"),
        (b"\x7fELF\x09\x01" + bytes(20), "it is not for a machine of 64 bits, little-endian, as those of torch are"),
    ],
)
def test_what_is_not_elf_says_why(tmp_path: Path, data: bytes, why: str) -> None:
    """The error names the file, the reason and the remedy."""
    with pytest.raises(ElfError) as caught:
        read(tmp_path, data)
    path = tmp_path / "libfoo.so"
    assert str(caught.value) == f"{path} cannot be read as an ELF file: {why}; build it again, or leave it out"


def test_a_missing_file_is_the_same_error(tmp_path: Path) -> None:
    """What the system says of a path is part of the message."""
    with pytest.raises(ElfError, match="No such file or directory"):
        elf.read(tmp_path / "none")


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """Each prefix of a file is refused: the loaded segment reaches to its end."""
    data = image()
    for end in range(0, len(data), 7):
        with pytest.raises(ElfError):
            read(tmp_path, data[:end])


@pytest.mark.parametrize("tag", [(4, VERSYM + 0x90), (0x6FFFFFFE, 2**64 - 1), (6, SIZE - 8)])
def test_a_second_table_does_not_hide_the_first(tmp_path: Path, tag: tuple[int, int]) -> None:
    """The first of a kind counts: the second may lead outside."""
    assert read(tmp_path, image(tags=(tag,))) == read(tmp_path, image())


@pytest.mark.parametrize("at", [0xFFFFFFFF, 2**63])
def test_names_that_lead_outside(tmp_path: Path, at: int) -> None:
    """They are an error with its reason, not a traceback."""
    with pytest.raises(ElfError, match="a NEEDED name has no end inside its string table"):
        read(tmp_path, image(tags=((1, at),)))


def test_huge_counts_and_cycles_end(tmp_path: Path) -> None:
    """Version needs that point at themselves, four thousand million symbols, 65535 sections: an answer in no time."""
    circle = bytearray(image())
    struct.pack_into("<HHIII", circle, VERNEED, 1, 0xFFFF, 1, 16, 16)
    struct.pack_into("<IHHII", circle, VERNEED + 16, 0, 0, 2, 1, 16)
    many = bytearray(image())
    struct.pack_into("<II", many, VERSYM + 0x80, 1, 0xFFFFFFFF)
    sections = bytearray(image())
    struct.pack_into("<Q", sections, 40, 64)
    struct.pack_into("<HHH", sections, 58, 64, 0xFFFF, 3)
    for data in (many, sections):
        with pytest.raises(ElfError):
            read(tmp_path, bytes(data))
    assert len(read(tmp_path, bytes(circle)).version_needs) == 1


def test_names_cannot_eat_the_memory(tmp_path: Path) -> None:
    """Symbols that all name the same long string stop at the bound, not at the machine's memory."""
    extra = 24 * 40_000
    data = bytearray(image(extra=extra + 20_000))
    name_at, table_at = SIZE + extra, SIZE
    data[name_at : name_at + 19_999] = b"x" * 19_999
    for number in range(40_000):
        struct.pack_into("<IBBHQQ", data, table_at + 24 * number, 1, 1 << 4, 0, 0, 0, 0)
    struct.pack_into("<II", data, VERSYM + 0x80, 1, 40_000)
    struct.pack_into("<QQ", data, 64 + 32, len(data), len(data))
    for number in range(40):
        tag = struct.unpack_from("<Q", data, DYNAMIC + 16 * number)[0]
        value = {5: name_at - 1, 6: table_at, 10: 20_001}.get(tag)
        if value is not None:
            struct.pack_into("<Q", data, DYNAMIC + 16 * number + 8, value)
        if tag in {1, 14, 29, 0x6FFFFFFE}:
            struct.pack_into("<Q", data, DYNAMIC + 16 * number, 0x6FFFFEFF)
    with pytest.raises(ElfError, match="its names come to more than 64 MiB"):
        read(tmp_path, bytes(data))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, SIZE - 8), st.binary(min_size=1, max_size=8)), min_size=1, max_size=12)
)
def test_any_bytes_give_facts_or_an_elf_error(tmp_path: Path, changes: list[tuple[int, bytes]]) -> None:
    """Whatever is written over a file, the reader answers or refuses: never another exception."""
    data = bytearray(image())
    for at, value in changes:
        data[at : at + len(value)] = value
    with contextlib.suppress(ElfError):
        read(tmp_path, bytes(data))


@pytest.mark.parametrize(
    ("machine", "code", "found"),
    [
        ("x86_64", "f30f1efa 0fae5c24fc 814c24fc40800000 0fae5424fc c3", True),
        ("x86_64", "f30f1efa 0fae5c24fc 814c24fc00800000 0fae5424fc c3", False),
        ("x86_64", "c3 0fae5c24fc 814c24fc40800000 0fae5424fc c3", False),
        ("aarch64", "0020a052 00441bd5 c0035fd6", True),
        ("aarch64", "0020a052 c0035fd6", False),
    ],
    ids=["crtfastmath.o", "one bit of two", "the next function", "crtfastmath.o of AArch64", "no write"],
)
def test_constructors_that_change_how_it_calculates(machine: str, code: str, *, found: bool, tmp_path: Path) -> None:
    """The code of GCC's crtfastmath.o, by both machines, where linkers write addresses only into relocations."""
    path = tmp_path / "lib.so"
    path.write_bytes(elves.shared_object(machine=machine, constructor=bytes.fromhex(code)))
    assert elf.read(path).takes_subnormals_for_zero is found


def test_the_versions_of_what_a_library_exports() -> None:
    """Another reader finds the same names and versions in this machine's C library; a file without any has none."""
    library = Path("/lib/x86_64-linux-gnu/libc.so.6")
    if not library.is_file():
        pytest.skip("the C library of this machine lies elsewhere")
    with library.open("rb") as stream:
        file = ELFFile(stream)
        symbols, indices, defined = map(file.get_section_by_name, (".dynsym", ".gnu.version", ".gnu.version_d"))
        assert isinstance(symbols, SymbolTableSection)
        assert isinstance(indices, GNUVerSymSection)
        assert isinstance(defined, GNUVerDefSection)
        known = {entry["vd_ndx"]: next(words).name for entry, words in defined.iter_versions()}
        named = {
            (symbol.name, known[index & 0x7FFF])
            for number, symbol in enumerate(symbols.iter_symbols())
            if isinstance(index := indices.get_symbol(number)["ndx"], int)
            and index & 0x7FFF in known
            and symbol["st_shndx"] != "SHN_UNDEF"
            and symbol.name
        }
    assert set(elf.versions(library)) == named
    assert ("memcpy", "GLIBC_2.14") in named


def test_a_library_without_versions(tmp_path: Path) -> None:
    """Names without versions are not yielded, and damage is an error with the file's name."""
    path = tmp_path / "libx.so"
    path.write_bytes(elves.shared_object(exported=("f",)))
    assert list(elf.versions(path)) == []
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ElfError, match=r"libx\.so cannot be read as an ELF file"):
        list(elf.versions(path))
