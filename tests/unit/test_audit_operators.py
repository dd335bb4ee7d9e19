"""What the audit reads of operators without opening a file: their namespaces, and who defines one twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.audit import operators
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from hatch_torch_ext.facts import registered
from hatch_torch_ext.facts.variant import BuildRecord
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


def registering(make: Making, place: str, *names: bytes) -> AuditedBinary:
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
    assert registered.read(stable.elf.path).whole == {"my_oper"}


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


COUNTER = "_ZTSN3c1014tagged_capsuleIN2my7CounterEEE"


def test_a_class_that_two_files_register(make: Making) -> None:
    """CASE 75: the C++ class is reported, with a warning: its names in torch may differ. What was opened is right."""
    one = make.binary("a/x.so", exported=(COUNTER,), **REGISTERS)
    two = make.binary("a/y.so", exported=(COUNTER, "_ZTSN3c1014tagged_capsuleI5OtherEE"), **REGISTERS)
    subject = Subject(variant="label", binaries=(one, two), ours=True)
    assert [(each.code, each.file, each.message, each.warning) for each in operators.check(subject)] == [
        (
            "class-twice",
            "a/y.so",
            "registers the class my::Counter with torch, and so does a/x.so: unless each gives it another name, torch "
            "ends the process that loads the second",
            True,
        )
    ]
    assert list(operators.check(subject, opened={"a/x.so": frozenset(), "a/y.so": frozenset()})) == []
    other = make.binary("a/z.so", exported=("_ZTSN3c1014tagged_capsuleI5OtherEE",), **REGISTERS)
    assert list(operators.check(Subject(variant="label", binaries=(one, other), ours=True))) == []


def test_the_classes_of_a_file(make: Making) -> None:
    """Names with scopes, without, and in a nameless namespace; that of a template as the compiler writes it."""
    capsule = "N3c1014tagged_capsuleI"
    named = ("N2my7CounterEEE", "5PlainEE", "N12_GLOBAL__N_16HiddenEEE", "St6vectorIiEE", "99")
    file = make.binary("x.so", exported=tuple(f"_ZTS{capsule}{name}" for name in named))
    found = registered.read(file.elf.path).classes
    assert found == {"my::Counter", "Plain", "(anonymous)::Hidden", "St6vectorIiE"}


MACRO = b"_ZL38TORCH_LIBRARY_static_init_LIBRARY_NAME"


def record(torch: str, *flags: tuple[str, str]) -> BuildRecord:
    """Return the record of a build against a release of torch."""
    facts: dict[str, Any] = {"entry": "matrix.0", "python": "3.11.7", "sdk": "thin", "compiler": "GNU 12.2.0"}
    return BuildRecord(**facts, cmake="4.1", variables=(), torch_version=torch, flags=flags)


TARGETS = (("one CXX", "-O3 -DLIBRARY_NAME=pkg_one -DX"), ("two CXX", '-DLIBRARY_NAME="pkg_two"'))


def test_two_libraries_of_one_source_with_a_macro_for_the_namespace(make: Making) -> None:
    """CASE 65: from 2.11 on the macro is expanded, and each target's definition says to what: two namespaces."""
    schema = b"f(Tensor x) -> Tensor"
    one, two = (registering(make, f"a/lib{name}.so", MACRO, schema) for name in ("one", "two"))
    assert make.all(one, two, ours=True, build=record("2.13.0", *TARGETS)) == []
    same = (("one CXX", "-DLIBRARY_NAME=pkg"), ("two CXX", "-DLIBRARY_NAME=pkg"))
    assert make.all(one, two, ours=True, build=record("2.13.0", *same)) == [
        (
            "operator-twice",
            "opens the namespace `pkg` with TORCH_LIBRARY, and so does a/libone.so: "
            "torch refuses the second that is loaded",
        )
    ]


@pytest.mark.performs("Use TORCH_LIBRARY once")
def test_overloads_of_one_operator(make: Making) -> None:
    """An operator may have its overloads in several files; one overload in two files is a fault."""
    opens = b"_ZL33TORCH_LIBRARY_FRAGMENT_init_pkg_0RN5torch7LibraryE"
    tensor, scalar = b"\1\1add.Tensor(Tensor a, Tensor b) -> Tensor", b"add.Scalar(Tensor a, Scalar b) -> Tensor"
    one, two, three = (
        registering(make, f"a/lib{name}.so", opens, schema)
        for name, schema in (("one", tensor), ("two", scalar), ("three", tensor))
    )
    assert make.all(one, two, ours=True) == []
    assert make.all(one, two, three, ours=True) == [
        (
            "operator-twice",
            "defines pkg::add.Tensor, and so does a/libone.so: torch refuses the second that is loaded",
        )
    ]


def test_a_generic_namespace_by_a_definition(make: Making) -> None:
    """CASE 65: `-DLIBRARY_NAME=_C` is seen."""
    flags = ("one CXX", "-DLIBRARY_NAME=_C")
    assert make.all(registering(make, "a/libone.so", MACRO), build=record("2.13.0", flags)) == [
        ("generic-namespace", "registers operators in the namespace `_C`")
    ]


def test_a_macro_before_torch_expands_it(make: Making) -> None:
    """CASE 65: before torch 2.11 the macro's own name is registered, by both libraries: a true finding."""
    one, two = (registering(make, f"a/lib{name}.so", MACRO) for name in ("one", "two"))
    message = (
        "registers operators in the namespace `LIBRARY_NAME`, which is the name of a macro: TORCH_LIBRARY of torch "
        "2.8.0 does not expand it"
    )
    assert make.all(one, two, ours=True, build=record("2.8.0", *TARGETS)) == [
        (
            "operator-twice",
            "opens the namespace `LIBRARY_NAME` with TORCH_LIBRARY, and so does a/libone.so: "
            "torch refuses the second that is loaded",
        ),
        ("generic-namespace", message),
        ("generic-namespace", message),
    ]


def test_what_a_macro_stands_for_may_be_unknown(make: Making) -> None:
    """CASE 65: if the macro's definition is not known (a source, a foreign wheel), a note says so, not a fault."""
    one, two = (registering(make, f"a/lib{name}.so", MACRO) for name in ("one", "two"))
    subject = Subject(variant=None, binaries=(one, two), ours=True, build=record("2.13.0"))
    assert [(item.code, item.message, item.warning) for item in operators.check(subject)] == [
        (
            "operator-twice",
            "opens a namespace by the macro `LIBRARY_NAME`, and so does a/libone.so: torch refuses the second that is "
            "loaded if their namespaces are one, which the files do not tell",
            True,
        )
    ]
    read = registered.read(one.elf.path)
    assert registered.namespaces(read) == registered.Namespaces(unknown=frozenset({"LIBRARY_NAME"}))
    both = {"LIBRARY_NAME": frozenset({"a", "b"})}
    assert registered.namespaces(read, torch="2.13", definitions=both).unknown == {"LIBRARY_NAME"}


def test_what_was_really_registered_goes_before_what_is_read(make: Making) -> None:
    """CASE 65: for a file that was opened, its real registrations count."""
    one, two = (registering(make, f"a/lib{name}.so", MACRO) for name in ("one", "two"))
    subject = Subject(variant=None, binaries=(one, two), ours=True, build=record("2.8.0"))
    opened = {"a/libone.so": frozenset({"_C::f"}), "a/libtwo.so": frozenset({"pkg_two::f"})}
    assert [(item.file, item.message) for item in operators.check(subject, opened=opened)] == [
        ("a/libone.so", "registers operators in the namespace `_C`")
    ]


def test_the_definitions_of_a_file() -> None:
    """They are those of the target that the file is named after, else of all targets; only words are values."""
    assert registered.definitions(TARGETS, "label/libone.so") == {"LIBRARY_NAME": {"pkg_one"}}
    assert registered.definitions(TARGETS, "two.cpython-311-x86_64-linux-gnu.so") == {"LIBRARY_NAME": {"pkg_two"}}
    assert registered.definitions(TARGETS, "libother.so") == {"LIBRARY_NAME": {"pkg_one", "pkg_two"}}
    assert registered.definitions([("a CXX", "-DX=a.b -UY -D Z=1")], "a.so") == {}
