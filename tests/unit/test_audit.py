"""Every check of the audit on files made byte by byte: what it finds, in which words, and what it lets pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import elves
import pytest

from hatch_torch_ext import audit, elf
from hatch_torch_ext.audit import operators, python, symbols, variants
from hatch_torch_ext.audit.findings import CODES, Finding, finding, settle, text
from hatch_torch_ext.audit.subject import Binary, Subject
from hatch_torch_ext.errors import ConfigurationError

DOCS = Path(__file__).resolve().parents[2] / "docs"
C = {"needed": ("libc.so.6",)}
PYBIND = b"\0Python version mismatch: module was compiled for Python %s, but the interpreter version is %s.\0"


class Making:
    """Makes subjects of files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def binary(self, place: str = "my_pkg/_torch_ext/label/lib.so", *, depth: int | None = 3, **parts: Any) -> Binary:
        """Write a file at ``place`` and return it as the audit sees it."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(elves.shared_object(**{**C, **parts}))
        return Binary(place=place, elf=elf.read(path), depth=depth)

    def one(self, *, facts: dict[str, Any] | None = None, **parts: Any) -> list[tuple[str, str]]:
        """Return code and message of every finding on one file."""
        return self.all(self.binary(**parts), **(facts or {}))

    def all(self, *binaries: Binary, **facts: Any) -> list[tuple[str, str]]:
        """Return code and message of every finding on files that belong together."""
        subject = Subject(**{"variant": "label", "binaries": binaries, **facts})
        return [(found.code, found.message) for found in settle(variants.check(subject))]


@pytest.fixture
def make(tmp_path: Path) -> Making:
    """Return the maker of subjects."""
    return Making(tmp_path)


def test_a_good_file_has_no_findings(make: Making) -> None:
    """The usual library passes: torch and CUDA come from outside, the RPATH leads to them, versions are in NEEDED."""
    found = make.one(
        needed=("libc10.so", "libtorch_cpu.so", "libcudart.so.12", "libcuda.so.1", "libstdc++.so.6", "libc.so.6"),
        runpath="$ORIGIN/../../../torch/lib:$ORIGIN/../../../nvidia/cuda_runtime/lib",
        undefined=(
            "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            "memcpy",
        ),
        versions={"libc.so.6": ("GLIBC_2.14",)},
        facts={"machines": ("x86_64",), "cxx11_abi": True, "ours": True},
    )
    assert found == []


@pytest.mark.parametrize(
    ("parts", "code", "message"),
    [
        ({"rpath": "/opt/torch/lib"}, "rpath", "its RPATH has the absolute path /opt/torch/lib"),
        ({"runpath": "$ORIGIN:"}, "rpath", "its RUNPATH has an empty entry, which is the user's current folder"),
        ({"runpath": "lib"}, "rpath", "its RUNPATH has lib, which is relative to the user's current folder"),
        (
            {"runpath": "$ORIGIN/../../../../x"},
            "rpath",
            "its RUNPATH has $ORIGIN/../../../../x, which leaves site-packages",
        ),
        (
            {"runpath": "$ORIGINAL/x"},
            "rpath",
            "its RUNPATH has $ORIGINAL/x, which is relative to the user's current folder",
        ),
        (
            {"executable_stack": True},
            "executable-stack",
            "asks for an executable stack, which hardened kernels and glibc 2.41 refuse",
        ),
        (
            {"text_relocations": True},
            "text-relocations",
            "has text relocations: its code is not position independent",
        ),
        (
            {"versions": {"libcudart.so.11.0": ("libcudart.so.11.0",)}},
            "version-needs",
            "needs libcudart.so.11.0 of libcudart.so.11.0, but libcudart.so.11.0 is not in NEEDED: ld.so stops the process",
        ),
        ({"needed": ("libc.so.6", "libpython3.11.so.1.0")}, "libpython", "needs libpython3.11.so.1.0"),
        (
            {"needed": ("libc.so.6", "libyaml-0.so.2", "libfoo.so")},
            "missing-library",
            "needs libyaml-0.so.2, libfoo.so: not in the wheel, not of torch or its requirements, not of the system",
        ),
        (
            {"data": b"\0/home/me/pkg/csrc/a.cpp\0"},
            "build-path",
            "holds paths of the machine that built it: /home/me/pkg/csrc/a.cpp",
        ),
        ({"machine": "aarch64"}, "wrong-machine", "is for aarch64, but it is packed for x86_64"),
    ],
)
def test_faults_of_one_file(parts: dict[str, Any], code: str, message: str, make: Making) -> None:
    """Each fault that one file shows by itself is found, and no other."""
    assert make.one(**parts, facts={"machines": ("x86_64",)}) == [(code, message)]


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"\0/tmp/torch-ext-XXXXXX\0", {}),
        (b"\0https://host/home/me/a.cpp\0", {}),
        (b"\0src/home/a.cpp\0", {}),
        (b"\0/usr/include/c++/12/bits/stl_vector.h\0", {}),
        (b"\0/home/me/a.cpp\0", {"build_dirs": ("/work/elsewhere",)}),
    ],
)
def test_paths_that_are_no_build_paths(data: bytes, facts: dict[str, Any], make: Making) -> None:
    """Names that a program uses are no paths of sources; where the build's own folders are known, only those count."""
    assert make.one(data=data, facts=facts) == []


def test_the_builds_own_folders(make: Making) -> None:
    """Where the build is known, each of its folders that is in the file is named, whatever the file there is."""
    found = make.one(data=b"\0/srv/build/x/gen.def\0", facts={"build_dirs": ("/srv/build", "/srv/source")})
    assert found == [("build-path", "holds paths of the machine that built it: /srv/build")]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("libtorch_cpu.so", "bundled-torch", "is a library of torch itself"),
        ("libc10-0a1b2c3d.so", "bundled-torch", "is a library of torch itself"),
        ("libcudart-d0da41ae.so.11.0", "bundled-cuda", "is a library of CUDA"),
        ("libcudnn_ops.so.9", "bundled-cuda", "is a library of CUDA"),
        (
            "libgomp-a34b3233.so.1",
            "openmp-twice",
            "is an OpenMP runtime beside torch's own: threads are started twice, or pinned to one core",
        ),
    ],
)
def test_what_must_not_be_bundled(name: str, code: str, message: str, make: Making) -> None:
    """Libraries of torch, CUDA and OpenMP are recognised by pattern, mangled names included."""
    binary = make.binary(f"my_pkg.libs/{name}", depth=1)
    assert make.all(binary) == [(code, message)]
    assert make.all(make.binary("my_pkg.libs/libtorchtext.so"), make.binary("my_pkg.libs/libcudamatrix.so")) == []


def test_openmp_of_another_name(make: Making) -> None:
    """A need for libgomp.so.1 where this torch brings it under a mangled name gives two runtimes: found."""
    found = make.one(
        needed=("libgomp.so.1", "libc.so.6"), facts={"provided": frozenset({"libgomp-a34b3233.so.1", "libtorch.so"})}
    )
    assert found == [
        ("openmp-twice", "needs libgomp.so.1, but the OpenMP runtime of this torch is libgomp-a34b3233.so.1")
    ]
    assert make.one(needed=("libgomp.so.1", "libc.so.6")) == []


def test_two_openmp_runtimes(make: Making) -> None:
    """GNU's and LLVM's runtime in one variant are found without knowing torch."""
    found = make.all(
        make.binary("a/x.so", needed=("libgomp.so.1", "libc.so.6")),
        make.binary("a/y.so", needed=("libomp.so", "libc.so.6")),
    )
    assert found == [("openmp-twice", "needs libgomp.so.1 and libomp.so in one process")]


def test_a_sibling_that_is_not_reached(make: Making) -> None:
    """A library of the variant that the RPATH does not lead to is found; one that it leads to passes."""
    helper = make.binary("p/_torch_ext/shared/abc/libhelper.so", soname="libhelper.so")
    lost = make.binary("p/_torch_ext/label/lib.so", needed=("libhelper.so", "libc.so.6"))
    assert make.all(helper, lost, ours=True) == [
        ("rpath", "needs libhelper.so, which is in p/_torch_ext/shared/abc/, but its RPATH does not lead there")
    ]
    led = make.binary(
        "p/_torch_ext/label/lib.so",
        needed=("libhelper.so", "libc.so.6"),
        runpath="$ORIGIN/../abc:$ORIGIN/../shared/abc",
    )
    assert make.all(helper, led, ours=True) == []


OLD = "_ZN3c105ErrorC1ENS_14SourceLocationESs"
NEW = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
PLAIN = "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE"
NEEDS = {"needed": ("libc10.so", "libtorch_cpu.so", "libc.so.6")}


@pytest.mark.parametrize(
    ("undefined", "abi", "message"),
    [
        ((OLD,), True, f"takes {OLD} with the std::string of the old C++ ABI, but its torch has the C++11 ABI"),
        ((NEW,), False, f"takes {NEW} with the std::string of the C++11 ABI, but its torch has the old one"),
        ((NEW, OLD), None, f"mixes C++ ABIs: {OLD} has the old std::string, {NEW} that of C++11; no torch has both"),
    ],
)
def test_mixed_cxx_abis(undefined: tuple[str, ...], abi: bool | None, message: str, make: Making) -> None:  # noqa: FBT001
    """torch's own symbols tell which std::string a file was compiled with; no list of exports is needed."""
    assert make.one(undefined=undefined, facts={"cxx11_abi": abi}, **NEEDS) == [("torch-abi", message)]


@pytest.mark.parametrize(("undefined", "abi"), [((OLD, PLAIN), False), ((NEW, PLAIN), True), ((PLAIN,), None)])
def test_the_same_cxx_abi(undefined: tuple[str, ...], abi: bool | None, make: Making) -> None:  # noqa: FBT001
    """Symbols of the right ABI, or with no string at all, pass."""
    assert make.one(undefined=undefined, facts={"cxx11_abi": abi}, **NEEDS) == []


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("_ZN3c1017RegisterOperatorsD1ERKSs", True),
        ("_ZN5torch7Library3defESsONS_11CppFunctionE", True),
        ("_ZN2at9ProcessSsEv", False),
        ("_ZN3c106detail14ClassSsLi3EEvS0_St6vectorIlSaIlEE", False),
        ("_ZN2at6numberILi2ESsEEvv", True),
        ("_ZN2at99999999Ss", False),
        ("_ZSs", True),
    ],
)
def test_old_strings_in_mangled_names(name: str, old: bool) -> None:  # noqa: FBT001
    """``Ss`` counts as a type, not as letters of an identifier; broken names do not upset the scanner."""
    assert symbols.old_string(name) is old


EXPORTS = {
    "libc10.so": frozenset({NEW}),
    "libtorch_cpu.so": frozenset({PLAIN}),
    "libtorch_cuda.so": frozenset({"_ZN2at4cuda20getCurrentCUDAStreamEa"}),
}


def test_symbols_that_torch_does_not_export(make: Making) -> None:
    """A symbol of another release is named, with the release that exports it; one of a library not in NEEDED, with it."""
    gone = "_ZN2at4_ops4goneEv"
    found = make.one(
        undefined=(gone, PLAIN, NEW, "_ZN2at4cuda20getCurrentCUDAStreamEa", "memcpy"),
        facts={"exports": EXPORTS, "torch": "2.8.0", "others": {"2.9.1": {"libtorch_cpu.so": frozenset({gone})}}},
        **NEEDS,
    )
    assert found == [
        (
            "undefined-symbol",
            "needs _ZN2at4_ops4goneEv, which torch 2.8.0 does not export; torch 2.9.1 would",
        ),
        (
            "undefined-symbol",
            "needs _ZN2at4cuda20getCurrentCUDAStreamEa, which libtorch_cuda.so exports, but libtorch_cuda.so is not in NEEDED",
        ),
    ]


def test_unknown_exports_prove_nothing(make: Making) -> None:
    """Where the list of one needed library is not at hand, a symbol that is in no list is not held against the file."""
    facts = {"exports": {"libc10.so": EXPORTS["libc10.so"]}, "provided": frozenset({"libc10.so", "libtorch_cpu.so"})}
    assert make.one(undefined=("_ZN2at4_ops4goneEv",), facts=facts, **NEEDS) == []


def test_symbols_of_siblings_are_theirs(make: Making) -> None:
    """What another file of the variant exports is not looked for in torch."""
    own = "_ZN5torch6my_ops4funcEv"
    user = make.binary("a/x.so", undefined=(own,), **NEEDS)
    assert make.all(user, make.binary("a/y.so", exported=(own,)), exports=EXPORTS) == []


def test_a_stable_variant_with_unstable_symbols(make: Making) -> None:
    """A stable-ABI variant may use torch's C functions alone; a C++ symbol of torch is named."""
    found = make.one(undefined=("aoti_torch_get_dim", PLAIN), facts={"stable_abi": True}, **NEEDS)
    assert found == [("unstable-symbol", f"is in a stable-ABI variant, but needs {PLAIN} of torch's C++ interface")]
    assert make.one(undefined=("aoti_torch_get_dim", "torch_library_impl"), facts={"stable_abi": True}, **NEEDS) == []


def module(make: Making, name: str, **parts: Any) -> Binary:
    """Make an extension module of that file name."""
    return make.binary(f"my_pkg/{name}", **{"exported": ("PyInit__C",), "depth": 1, **parts})


def test_python_in_a_library(make: Making) -> None:
    """A library that needs Python is told; in a variant that promises every Python it is a fault."""
    library = make.binary(undefined=("PyErr_SetString", "PyExc_ValueError"))
    message = "is a library, but needs PyErr_SetString, PyExc_ValueError of Python"
    (found,) = python.check(Subject(variant="label", binaries=(library,)))
    assert (found.code, found.message, found.warning) == ("python-in-library", message, True)
    (found,) = python.check(Subject(variant="label", binaries=(library,), ours=True))
    assert not found.warning


@pytest.mark.parametrize(
    ("name", "parts", "promised", "found"),
    [
        ("_C.cpython-311-x86_64-linux-gnu.so", {}, "cp311", []),
        ("_C.so", {}, "cp311", []),
        ("_C.cpython-313t-x86_64-linux-gnu.so", {"undefined": ("_Py_DecRefShared",)}, "cp313t", []),
        (
            "_C.cpython-312-x86_64-linux-gnu.so",
            {},
            "cp311",
            [("python-tag", "is a module for cp312, but is packed for cp311")],
        ),
        (
            "_C.cpython-311-x86_64-linux-gnu.so",
            {},
            "abi3-cp39",
            [("python-tag", "is a module for cp311 alone, but is packed for the limited API")],
        ),
        (
            "_C.cpython-311-x86_64-linux-gnu.so",
            {"undefined": ("PyType_GetModuleByDef", "PyList_GetItemRef")},
            "cp311",
            [
                (
                    "python-tag",
                    "is named as a module for cp311, but needs PyList_GetItemRef, which Python 3.11 does not have",
                )
            ],
        ),
        (
            "_C.cpython-313-x86_64-linux-gnu.so",
            {"undefined": ("_Py_DecRefShared",)},
            "cp313",
            [("python-tag", "is named as a module for cp313, but needs _Py_DecRefShared of a free-threaded Python")],
        ),
        (
            "_C.cpython-311-x86_64-linux-gnu.so",
            {"data": PYBIND + b"\0003.12\0"},
            "cp311",
            [("python-tag", "is named as a module for cp311, but was compiled for Python 3.12")],
        ),
        ("_C.cpython-312-x86_64-linux-gnu.so", {"data": PYBIND + b"\0003.12\0"}, "cp312", []),
    ],
)
def test_the_python_of_a_module(
    name: str, parts: dict[str, Any], promised: str, found: list[tuple[str, str]], make: Making
) -> None:
    """A module's suffix, its symbols and pybind11's own check must all be of the Python that is promised."""
    assert make.all(module(make, name, **parts), python=promised) == found


@pytest.mark.parametrize(
    ("undefined", "promised", "found"),
    [
        (("PyLong_FromLong", "PyErr_SetString"), "abi3-cp39", []),
        (
            ("PyLong_FromLong", "_PyObject_GetDictPtr", "PyUnicode_AsUTF8AndSize"),
            "abi3-cp39",
            [
                (
                    "abi3-violation",
                    "says abi3 from Python 3.9 on, but needs PyUnicode_AsUTF8AndSize, which came later",
                ),
                ("abi3-violation", "says abi3, but needs _PyObject_GetDictPtr, which is not in Python's limited API"),
            ],
        ),
        (("PyType_GetSlot",), None, []),
        (
            ("PyFrame_BlockSetup",),
            None,
            [("abi3-violation", "says abi3, but needs PyFrame_BlockSetup, which is not in Python's limited API")],
        ),
    ],
)
def test_the_limited_api(
    undefined: tuple[str, ...], promised: str | None, found: list[tuple[str, str]], make: Making
) -> None:
    """``.abi3.so`` may need the limited API alone, in the state of the oldest Python that is promised."""
    assert make.all(module(make, "_C.abi3.so", undefined=undefined), python=promised) == found


REGISTERS = {
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
            "opens the namespace `my_pkg` with TORCH_LIBRARY, and so does a/x.so: torch refuses the second that is loaded",
        )
    ]
    schema = b"my_pkg::nms(Tensor a) -> Tensor"
    one, two = registering(make, "b/x.so", schema), registering(make, "b/y.so", schema, b"twice(Tensor a) -> Tensor")
    assert make.all(one, two, ours=True) == [
        ("operator-twice", "defines my_pkg::nms, and so does b/x.so: torch refuses the second that is loaded")
    ]


def test_ignored_codes() -> None:
    """Ignored findings are left out; a code that does not exist is an error with the nearest one."""
    found = [finding("rpath", "a.so", "x"), finding("size", "a.whl", "y")]
    assert [item.code for item in settle(found, ignore=["rpath"])] == ["size"]
    with pytest.raises(ConfigurationError) as caught:
        settle(found, ignore=["rpaths"])
    assert str(caught.value) == "There is no audit code `rpaths` to ignore; did you mean `rpath`?"


def test_the_order_and_the_words_of_findings() -> None:
    """Faults come before warnings, each once; a line names file, fault, remedy and code."""
    warning, fault = (
        finding("not-stripped", "a.so", "still has its symbol table"),
        finding("libpython", "b.so", "needs it"),
    )
    assert settle([warning, fault, fault]) == (fault, warning)
    assert str(fault) == (
        "b.so: needs it. Link Python::Module instead of Python::Python: many Pythons have no libpython to load. [libpython]"
    )
    assert text([warning, fault]) == (
        "fault libpython: Link Python::Module instead of Python::Python: many Pythons have no libpython to load.\n"
        "  b.so: needs it\n"
        'warning not-stripped: Set debug-symbols = "strip" (the default) or "split", or link with -s.\n'
        "  a.so: still has its symbol table"
    )


def test_every_code_is_documented() -> None:
    """docs/audit.md has a section for each code and for nothing else, with the remedy that the tool gives."""
    page = (DOCS / "audit.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### `([\w-]+)`", page, flags=re.MULTILINE)
    assert headings == sorted(headings)
    assert set(headings) == set(CODES)
    flat = " ".join(page.split())
    for code, kind in CODES.items():
        assert kind.remedy in flat, code


def test_findings_are_values() -> None:
    """A finding holds text and nothing else, for JSON."""
    assert isinstance(finding("size", "a.whl", "x"), Finding)
    assert audit.Finding is Finding
