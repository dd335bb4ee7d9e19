"""Link stubs: what a reader of ELF files finds in them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import ELFHashSection
from elftools.elf.sections import SymbolTableSection
from hypothesis import given
from hypothesis import strategies as st

from hatch_torch_ext.sdk import exports
from hatch_torch_ext.store import Store

if TYPE_CHECKING:
    from pathlib import Path


NAMES = st.lists(st.text("abcdefghijklmnopqrstuvwxyz_0123456789", min_size=1, max_size=12), unique=True, max_size=8)


@given(st.sampled_from(["libtorch.so", "libtorch_cpu.so", "libgomp-a34b3233.so.1"]), NAMES)
def test_soname_and_exports(soname: str, names: list[str]) -> None:
    """A reader finds the SONAME, the exported names, and each name by the hash table."""
    elf = ELFFile(io.BytesIO(exports.stub(soname, "x86_64", exports=names)))
    dynamic, symbols, table = (elf.get_section_by_name(name) for name in (".dynamic", ".dynsym", ".hash"))
    assert isinstance(dynamic, DynamicSection)
    assert isinstance(symbols, SymbolTableSection)
    assert isinstance(table, ELFHashSection)
    assert [getattr(tag, "soname", "") for tag in dynamic.iter_tags("DT_SONAME")] == [soname]
    assert [symbol.name for symbol in symbols.iter_symbols()] == ["", *names]
    assert all(table.get_symbol(name) is not None for name in names)


@pytest.mark.parametrize(("machine", "code"), [("x86_64", "EM_X86_64"), ("aarch64", "EM_AARCH64")])
def test_machines(machine: str, code: str) -> None:
    """Each machine's stub says that it is for it."""
    assert ELFFile(io.BytesIO(exports.stub("libc10.so", machine)))["e_machine"] == code


def test_unknown_machine() -> None:
    """A machine that is not known is an error here, not a file that no linker takes."""
    with pytest.raises(KeyError):
        exports.stub("libc10.so", "riscv64")


def test_folder_is_made_once(tmp_path: Path) -> None:
    """The same names give the same folder of the store, in any order; others another one."""
    store = Store(tmp_path)
    first = exports.folder(store, ["libb.so", "liba.so"], "x86_64")
    assert sorted(path.name for path in first.iterdir()) == ["finished.json", "liba.so", "libb.so"]
    assert exports.folder(store, ["liba.so", "libb.so"], "x86_64") == first
    assert exports.folder(store, ["liba.so"], "x86_64") != first


def test_exports_are_read_back(tmp_path: Path) -> None:
    """The fast reader of exported names finds those of a stub, sorted."""
    file = tmp_path / "lib.so"
    file.write_bytes(exports.stub("lib.so", "x86_64", exports=["b", "a"]))
    assert exports.read(file) == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(10), b"no library" * 50])
def test_unreadable(tmp_path: Path, content: bytes) -> None:
    """Bytes that are not a shared object give the one error."""
    file = tmp_path / "lib.so"
    file.write_bytes(content)
    with pytest.raises(exports.UnreadableError, match="is not a shared object that can be read"):
        exports.read(file)
