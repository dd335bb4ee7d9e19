"""Registrations that stay behind in a static library: the audit reads it, and says what links it in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import elves
from hatch_torch_ext.audit import operators
from hatch_torch_ext.audit.subject import Subject
from hatch_torch_ext.elf import image
from subjects import Making

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.audit.subject import AuditedBinary

REGISTERS = ("_ZN5torch7Library4_defEON3c1014FunctionSchemaE",)
NAMED = b"\0oracle::answer(int n) -> int\0"
LONG = "a_source_with_a_name.cpp.o"


@pytest.fixture
def core(tmp_path: Path) -> Path:
    """Return a static library in which one of three members registers, and one is not an object file."""
    members = {
        "glue.cpp.o": elves.object_file(undefined=("puts",)),
        LONG: elves.object_file(undefined=("puts", *REGISTERS), data=NAMED),
        "lto.o": elves.object_file(lto={"mine": 0, "puts": 2, "weak": 3, "\N{SNOWMAN}": 4}),
        "bitcode.o": elves.bitcode({"mine": 0, "puts": 8, "\N{SNOWMAN}" * 99: 8 | 2}),
        "neither.o": b"_ZN5torch7Library",
    }
    path = tmp_path / "libcore.a"
    path.write_bytes(elves.archive(members))
    return path


def found(core: Path, *binaries: AuditedBinary, linked_by: str = "libops.so") -> list[tuple[str, str]]:
    """Return file and message of the findings where a target's file links the static library."""
    subject = Subject(variant="label", binaries=binaries)
    findings = [*operators.check_archives(subject, [(linked_by, core)])]
    assert {each.code for each in findings} <= {"not-registered"}
    return [(each.file, each.message) for each in findings]


def test_what_each_member_needs(core: Path) -> None:
    """Names of any length; of ``-flto`` too; of what is not an object file, nothing; what is cut off ends early."""
    members = dict(image.undefined_of_members(core))
    lto = {"lto.o": {"puts", "weak"}, "bitcode.o": {"puts", "\N{SNOWMAN}" * 99}, "neither.o": set()}
    assert members == {"glue.cpp.o": {"puts"}, LONG: {"puts", *REGISTERS}, **lto}
    whole = core.read_bytes()
    for end in (0, 7, 50, 90, 300, len(whole) - 1):
        core.write_bytes(whole[:end])
        assert all(symbols <= members[name] for name, symbols in image.undefined_of_members(core))


def test_a_static_library_whose_registrations_nothing_has(core: Path, tmp_path: Path) -> None:
    """The library that links it is named by its file, whatever version or hash is in the name, and so is the source."""
    make = Making(tmp_path)
    library = make.binary("l/libops-0123abcd.so.1")
    module = make.binary("l/_C.so", exported=("PyInit__C",))
    said = (
        "l/libops-0123abcd.so.1",
        f"links libcore.a, of which {LONG} registers with torch, and has none of it: the linker left it out, since "
        "nothing calls it",
    )
    assert found(core, library, module) == [said]
    assert found(core, module) == []  # what is not in the wheel
    other = make.binary("l/libother.so", undefined=REGISTERS, data=b"\0mine::f(int n) -> int\0")
    assert found(core, library, other) == [said]
    mine = make.binary("m/libops-0123abcd.so.1", undefined=REGISTERS, data=b"\0mine::f(int n) -> int\0")
    assert [place for place, _ in found(core, mine)] == ["m/libops-0123abcd.so.1"]
    core.write_bytes(elves.archive({"glue.cpp.o": elves.object_file(undefined=("puts",))}))
    assert found(core, library) == []
    core.unlink()
    assert found(core, library) == []


def test_what_was_compiled_for_the_link_is_read_too(tmp_path: Path) -> None:
    """Of ``-flto`` (GCC, Clang), no schema can be read: what the library that links it registers is taken for it."""
    core = tmp_path / "libcore.a"
    make = Making(tmp_path)
    for member in elves.object_file(lto={REGISTERS[0]: 2}), elves.bitcode({REGISTERS[0]: 8}):
        core.write_bytes(elves.archive({"ops.o": member}))
        assert [place for place, _ in found(core, make.binary("l/libops.so"))] == ["l/libops.so"]
        assert found(core, make.binary("m/libops.so", undefined=REGISTERS)) == []


def test_registrations_that_are_there(core: Path, tmp_path: Path) -> None:
    """In the library that links it, or in another that has the same: a Python module may link it for its functions."""
    make = Making(tmp_path)
    assert found(core, make.binary("l/libops.so", undefined=REGISTERS)) == []
    whole = make.binary("l/libwhole.so", undefined=REGISTERS, data=NAMED)
    assert found(core, whole, make.binary("l/libops.so")) == []
