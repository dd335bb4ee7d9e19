"""What the audit reads of operators without opening a file: their namespaces, and who defines one twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.audit import operators
from hatch_torch_ext.audit.subject import Binary, Subject
from subjects import Making

if TYPE_CHECKING:
    from pathlib import Path
from typing import Any


@pytest.fixture
def make(tmp_path: Path) -> Making:
    """Return the maker of subjects."""
    return Making(tmp_path)


REGISTERS: dict[str, Any] = {
    "undefined": ("_ZN5torch6detail16TorchLibraryInitC1Ev",),
    "needed": ("libtorch_cpu.so", "libc10.so", "libc.so.6"),
}


def registering(make: Making, place: str, *names: bytes) -> Binary:
    """Make a library that registers, with ``names`` among its bytes."""
    return make.binary(place, data=b"\0" + b"\0".join(names) + b"\0", **REGISTERS)


def test_generic_namespaces(make: Making) -> None:
    """CASE 34: a namespace that the next package picks as well is warned of, read from the symbols of TORCH_LIBRARY."""
    plain = registering(make, "a/x.so", b"_ZL21TORCH_LIBRARY_init__CRN5torch7LibraryE")
    fragment = registering(make, "b/x.so", b"_ZL33TORCH_LIBRARY_FRAGMENT_init_ops_0RN5torch7LibraryE")
    stable = registering(make, "c/x.so", b"_ZL33STABLE_TORCH_LIBRARY_init_my_operRN5torch6stableE")
    found = list(operators.check(Subject(variant=None, binaries=(plain, fragment, stable))))
    assert [(item.file, item.message, item.warning) for item in found] == [
        ("a/x.so", "registers operators in the namespace `_C`", True),
        ("b/x.so", "registers operators in the namespace `ops`", True),
    ]
    assert operators.read(stable.elf.path).whole == {"my_oper"}


def test_namespaces_by_use(make: Making) -> None:
    """In a stripped file only schemas are left: the package's Python files say under which namespace they are used."""
    library = registering(make, "a/x.so", b"nms(Tensor dets, float thresh) -> Tensor", b"not a schema) -> x")
    used = operators.uses(["torch.ops._C.nms(a, b)", "torch.ops._C.other(a)", '@register_fake("mine::thing")'])
    assert used == {"nms": {"_C"}, "other": {"_C"}, "thing": {"mine"}}
    subject = Subject(variant=None, binaries=(library,))
    assert [item.message for item in operators.check(subject, used=used)] == [
        "registers operators in the namespace `_C`"
    ]
    assert list(operators.check(subject)) == []


def test_operators_registered_twice(make: Making) -> None:
    """Two files of one variant that open one namespace, or define one operator, are found before torch refuses them."""
    macro = b"_ZL25TORCH_LIBRARY_init_my_pkgRN5torch7LibraryE"
    one, two = registering(make, "a/x.so", macro), registering(make, "a/y.so", macro)
    assert make.all(one, two, ours=True) == [
        (
            "operator-twice",
            (
                "opens the namespace `my_pkg` with TORCH_LIBRARY, and so does a/x.so: "
                "torch refuses the second that is loaded"
            ),
        )
    ]
    schema = b"my_pkg::nms(Tensor a) -> Tensor"
    one, two = registering(make, "b/x.so", schema), registering(make, "b/y.so", schema, b"twice(Tensor a) -> Tensor")
    assert make.all(one, two, ours=True) == [
        ("operator-twice", "defines my_pkg::nms, and so does b/x.so: torch refuses the second that is loaded")
    ]
