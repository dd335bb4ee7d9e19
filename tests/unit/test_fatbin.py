"""Reading device code: the entries of a section, and bytes that lie about themselves."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatch_torch_ext.base.errors import FatbinError
from hatch_torch_ext.elf import fatbin

if TYPE_CHECKING:
    from pathlib import Path

PTX, SASS, LTO, MERCURY = 1, 2, 8, 16
ARCH_SPECIFIC, FAMILY, ZSTD = 1 << 20, 1 << 21, 1 << 15


def entry(kind: int, number: int, flags: int = 0, *, header: int = 64, payload: bytes = b"code" * 4) -> bytes:
    """Return an entry as nvcc 13.0 writes it; newer ones have a longer header."""
    fields = struct.pack("<HHIQ12xIQQ", kind, 0x101, header, len(payload), number, 0, flags | 0x11)
    return fields.ljust(header, b"\0") + payload


def container(*entries: bytes) -> bytes:
    """Return a container of ``entries``."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, len(body)) + body


def elf(section: bytes, name: bytes = b".nv_fatbin", *, size: int | None = None) -> bytes:
    """Return a 64-bit ELF file with one section."""
    names = b"\0.shstrtab\0" + name + b"\0"
    at = 64
    names_at = at + len(section)
    table_at = names_at + len(names)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 0, table_at, 0, 64, 0, 0, 64, 3, 1)

    def row(name_at: int, kind: int, offset: int, length: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, offset, length, 0, 0, 1, 0)

    rows = row(0, 0, 0, 0) + row(1, 3, names_at, len(names)) + row(11, 1, at, len(section) if size is None else size)
    return header + section + names + rows


def read(data: bytes) -> list[str]:
    """Return what a section holds, in file order."""
    return [code.name for code in fatbin.codes(data)]


def test_machine_code_and_ptx_with_their_suffixes() -> None:
    """Kinds, numbers and flags become the manifest's notation; compression and longer headers change nothing."""
    data = container(
        entry(SASS, 75),
        entry(SASS, 90, ARCH_SPECIFIC | ZSTD, header=72),
        entry(MERCURY, 100, FAMILY, header=112),
        entry(PTX, 90, ZSTD, header=80),
        entry(PTX, 120, FAMILY),
    )
    assert read(data) == ["7.5", "9.0a", "10.0f", "9.0+PTX", "12.0f+PTX"]


def test_link_time_code_is_not_runnable() -> None:
    """Entries of other kinds are passed over."""
    assert read(container(entry(LTO, 90), entry(SASS, 90))) == ["9.0"]


def test_several_containers_with_padding() -> None:
    """One for each source file, aligned; the magic inside a payload starts none."""
    tricky = entry(SASS, 80, payload=b"\0" * 3 + fatbin.MAGIC.to_bytes(4, "little") + b"\0" * 9)
    assert read(container(tricky) + b"\0" * 8 + container(entry(SASS, 86))) == ["8.0", "8.6"]


def test_a_file_without_device_code(tmp_path: Path) -> None:
    """No section, or an empty one, holds nothing."""
    (tmp_path / "plain.so").write_bytes(elf(b"12345678", b".rodata\0\0\0"))
    (tmp_path / "empty.so").write_bytes(elf(b""))
    assert fatbin.archs(tmp_path / "plain.so") == ()
    assert fatbin.archs(tmp_path / "empty.so") == ()


def test_a_file_with_device_code(tmp_path: Path) -> None:
    """Each architecture once, oldest first, machine code before PTX of the same."""
    data = container(entry(PTX, 90), entry(SASS, 100, FAMILY), entry(SASS, 90), entry(SASS, 80), entry(SASS, 90))
    (tmp_path / "lib.so").write_bytes(elf(data))
    assert fatbin.archs(tmp_path / "lib.so") == ("8.0", "9.0", "9.0+PTX", "10.0f")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (container(entry(SASS, 80))[:-1], "container at 0x0 of .nv_fatbin is cut off"),
        (container(entry(SASS, 80))[:12], "container at 0x0 of .nv_fatbin is cut off"),
        (container(entry(SASS, 80)[:40]), "entry at 0x10 of .nv_fatbin is cut off"),
        (container(entry(SASS, 80, header=64)[:8] + b"\xff" * 56), "entry at 0x10 of .nv_fatbin is cut off"),
        (container(b"\0" * 64), "entry at 0x10 of .nv_fatbin is cut off"),
        (container(entry(SASS, 0)), "entry at 0x10 of .nv_fatbin names the architecture 0, which cannot be"),
        (
            container(entry(PTX, 1 << 31)),
            "entry at 0x10 of .nv_fatbin names the architecture 2147483648, which cannot be",
        ),
        (
            b"\xb1\x43\x62\x46" * 8,
            "section .nv_fatbin holds no container that is known: a newer CUDA than this version",
        ),
    ],
)
def test_bytes_that_contradict_themselves(tmp_path: Path, data: bytes, message: str) -> None:
    """Sizes that point outside, impossible numbers, unknown formats: an error with the file and the place."""
    path = tmp_path / "bad.so"
    path.write_bytes(elf(data))
    with pytest.raises(FatbinError) as failure:
        fatbin.archs(path)
    assert str(failure.value).startswith(f"{path}: {message}")
    assert str(failure.value).endswith("; build it again")


def test_files_that_are_not_elf(tmp_path: Path) -> None:
    """Text, an empty file, a cut-off file, a section beyond the end, no file at all."""
    whole = elf(container(entry(SASS, 80)))
    for name, data in (
        ("text", b"INPUT(libx.so)"),
        ("empty", b""),
        ("cut", whole[:80]),
        ("long", elf(b"", size=1 << 40)),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FatbinError) as failure:
            fatbin.archs(tmp_path / name)
        assert str(failure.value).startswith(f"{tmp_path / name}: ")
    with pytest.raises(FatbinError) as failure:
        fatbin.archs(tmp_path / "missing")
    assert str(failure.value) == f"{tmp_path / 'missing'}: No such file or directory"


@given(st.binary(max_size=400), st.integers(0, 300), st.integers(0, 255))
def test_hostile_bytes_end_in_an_answer_or_an_error(noise: bytes, at: int, value: int) -> None:
    """Noise, and a good section with one byte changed, never raise anything else and never hang."""
    good = bytearray(container(entry(SASS, 80), entry(PTX, 90)) + container(entry(SASS, 86)))
    good[at % len(good)] = value
    for data in (noise, container(noise), bytes(good)):
        with contextlib.suppress(FatbinError):
            read(data)
