"""What the audit says of symbols: torch's C++ ABI, its exports, its stable ABI, and Python's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hatch_torch_ext.audit import python, symbols
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from hatch_torch_ext.facts import releases
from subjects import Making

if TYPE_CHECKING:
    from pathlib import Path

PYBIND = b"\0Python version mismatch: module was compiled for Python %s, but the interpreter version is %s.\0"


@pytest.fixture
def make(tmp_path: Path) -> Making:
    """Return the maker of subjects."""
    return Making(tmp_path)


OLD = "_ZN3c105ErrorC1ENS_14SourceLocationESs"
NEW = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
PLAIN = "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE"
NEEDS: dict[str, Any] = {"needed": ("libc10.so", "libtorch_cpu.so", "libc.so.6")}


@pytest.mark.parametrize(
    ("undefined", "abi", "message"),
    [
        ((OLD,), True, f"takes {OLD} with the std::string of the old C++ ABI, but its torch has the C++11 ABI"),
        ((NEW,), False, f"takes {NEW} with the std::string of the C++11 ABI, but its torch has the old one"),
        ((NEW, OLD), None, f"mixes C++ ABIs: {OLD} has the old std::string, {NEW} that of C++11; no torch has both"),
    ],
)
def test_mixed_cxx_abis(undefined: tuple[str, ...], abi: bool | None, message: str, make: Making) -> None:  # noqa: FBT001
    """Symbols of torch tell which std::string a file was compiled with; no list of exports is needed."""
    assert make.one(undefined=undefined, facts={"cxx11_abi": abi}, **NEEDS) == [("torch-abi", message)]


@pytest.mark.parametrize(("undefined", "abi"), [((OLD, PLAIN), False), ((NEW, PLAIN), True), ((PLAIN,), None)])
def test_the_same_cxx_abi(undefined: tuple[str, ...], abi: bool | None, make: Making) -> None:  # noqa: FBT001
    """Symbols of the right ABI, or with no string at all, pass."""
    assert make.one(undefined=undefined, facts={"cxx11_abi": abi}, **NEEDS) == []


@pytest.mark.parametrize(("glibc", "told"), [("GLIBC_2.17", True), ("GLIBC_2.34", False)])
def test_names_of_a_newer_glibc_that_nobody_linked(glibc: str, told: bool, make: Making) -> None:  # noqa: FBT001
    """A static library needs `__libc_single_threaded`, of glibc 2.32, without its version: older systems lack it."""
    names: dict[str, Any] = {"undefined": ("__libc_single_threaded", "strlen"), "versions": {"libc.so.6": (glibc,)}}
    expected = [("missing-symbol", "needs __libc_single_threaded, which no file that it loads defines")]
    assert make.one(**names) == (expected if told else [])


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


KERNEL = "_ZN4mine6kernelERKN2at6TensorE"


def test_a_name_that_nobody_defines(make: Making) -> None:
    """A source that was left out; not the system's names, torch's, or what an unknown library may have."""
    others = ("_Znwm", "_ZNSt6localeC1Ev", "_ZN6google8protobuf7MessageD2Ev", PLAIN)
    message = "needs mine::kernel, which no file that it loads defines"
    assert make.one(undefined=(KERNEL, *others), **NEEDS) == [("missing-symbol", message)]
    assert make.one(undefined=others, **NEEDS) == []
    assert make.one(undefined=(KERNEL,), exported=(KERNEL,), **NEEDS) == []
    needed = (*NEEDS["needed"], "libmine.so.1")
    assert "missing-symbol" not in dict(make.one(undefined=(KERNEL,), needed=needed))


def test_c_names_that_nobody_defines(make: Making) -> None:
    """CASE 41: a launcher without a definition is a finding; names of glibc, Python, torch and the linker are not."""
    others = (
        *("memcpy@GLIBC_2.14", "dlsym", "PyErr_SetString", "aoti_torch_get_dim", "cblas_sgemm", "dgemm_"),
        *("omp_get_thread_num", "mkl_set_num_threads", "_GLOBAL_OFFSET_TABLE_"),
    )
    parts: dict[str, Any] = {"versions": {"libc.so.6": ("GLIBC_2.14",)}, "facts": {"python": "cp311"}, **NEEDS}
    found = make.one(undefined=("launch_kernel", "cublas_gemm_launcher", *others), **parts)
    assert ("missing-symbol", "needs cublas_gemm_launcher, launch_kernel, which no file that it loads defines") in found
    assert "missing-symbol" not in dict(make.one(undefined=others, **parts))


@pytest.mark.parametrize(
    "needed",
    [
        ("libc.so.6", "libz.so.1"),
        ("libc.so.6", "libcustom.so.3"),
        ("libc.musl-x86_64.so.1",),
    ],
)
def test_c_names_that_somebody_may_define(needed: tuple[str, ...], make: Making) -> None:
    """CASE 41: a library without symbol versions (zlib, an unknown one, musl) may define any C name."""
    assert "missing-symbol" not in dict(make.one(undefined=("inflate",), needed=needed))
    facts = {"external": {"libvendor.so": "author"}}
    assert make.one(undefined=("vendor_open", KERNEL), needed=("libc.so.6", "libvendor.so"), facts=facts) == []


def test_extern_c_on_one_side(make: Making) -> None:
    """CASE 41: a launcher without `extern "C"`: the name is there, as the other language's."""
    message = (
        "needs launch, which no file that it loads defines; launch is there as a C++ name and needed as a C name: "
        '`extern "C"` is missing on one side'
    )
    assert make.one(undefined=("launch",), exported=("_Z6launchPf",), **NEEDS) == [("missing-symbol", message)]
    (found,) = make.one(undefined=("_Z6launchPf",), exported=("launch",), **NEEDS)
    assert found[1].endswith(
        'launch is there as a C name and needed as a C++ name: `extern "C"` is missing on one side'
    )


@pytest.mark.parametrize(
    ("symbol", "library", "line"),
    [
        ("curandCreateGenerator", "libcurand", "CUDA::curand"),
        ("cublasSgemm_v2", "libcublas", "CUDA::cublas"),
        ("cublasLtMatmul", "libcublasLt", "CUDA::cublasLt"),
        ("cufftExecC2C", "libcufft", "CUDA::cufft"),
        ("cusolverDnCreate", "libcusolver", "CUDA::cusolver"),
        ("cusparseSpMM", "libcusparse", "CUDA::cusparse"),
        ("nvrtcCompileProgram", "libnvrtc", "CUDA::nvrtc"),
        ("nvjpegCreateSimple", "libnvjpeg", "CUDA::nvjpeg"),
        ("cudaMalloc", "libcudart", "CUDA::cudart"),
        ("cuCtxGetCurrent", "libcuda", "CUDA::cuda_driver"),
        ("cudnnCreate", "libcudnn", "${CUDNN}"),
        ("ncclAllReduce", "libnccl", "${NCCL}"),
    ],
)
def test_a_function_of_cuda_whose_library_is_not_loaded(symbol: str, library: str, line: str, make: Making) -> None:
    """CASE 41: a fault that names the library and the CMake line; none where the library is in NEEDED."""
    subject = Subject(variant="label", binaries=(make.binary("x/libmine.so", undefined=(symbol,), **NEEDS),), ours=True)
    (found,) = symbols.check(subject)
    assert (found.code, found.warning) == ("undefined-symbol", False)
    assert found.message == f"needs {symbol} of {library}, but {library} is not in NEEDED"
    assert f"target_link_libraries(mine PRIVATE {line})" in found.remedy
    needed = (*NEEDS["needed"], f"{library}.so.12")
    assert "undefined-symbol" not in dict(make.one(undefined=(symbol,), needed=needed, facts={"ours": True}))
    helper = make.binary("x/libhelper.so", needed=(f"{library}.so.12",), soname="libhelper.so")
    user = make.binary("x/libuser.so", needed=("libc.so.6", "libhelper.so"), undefined=(symbol,), runpath="$ORIGIN")
    assert "undefined-symbol" not in dict(make.all(user, helper, ours=True))


def test_a_library_that_torchs_own_loads(make: Making) -> None:
    """CASE 41: what libtorch_cuda.so loads is found by way of it: a warning; cuSOLVER and nvJPEG are not loaded so."""
    needed = ("libc.so.6", "libtorch_cuda.so", "libtorch_cpu.so", "libc10.so")
    names = ("cublasSgemm_v2", "cusolverDnCreate")
    subject = Subject(variant="l", binaries=(make.binary("x/libmine.so", undefined=names, needed=needed),), ours=True)
    assert [(item.message.split()[3], item.warning) for item in symbols.check(subject)] == [
        ("libcublas,", True),
        ("libcusolver,", False),
    ]


@pytest.mark.parametrize(
    ("wanted", "there", "said"),
    [
        ("_Z6helperNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "_Z6helperSs", True),
        ("_Z6helperSs", "_Z6helperNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", True),
        ("_Z4nameB5cxx11v", "_Z4namev", True),
        ("_Z6helperNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "_Z6helperi", False),
        ("_Z6helperl", "_Z6helperi", False),
    ],
)
def test_a_name_defined_with_the_other_string(wanted: str, there: str, said: bool, make: Making) -> None:  # noqa: FBT001
    """CASE 67: reported as the other ABI, and a fault; another overload is not."""
    subject = Subject(variant="l", binaries=(make.binary(undefined=(wanted,), exported=(there,), **NEEDS),), ours=True)
    (found,) = symbols.check(subject)
    assert (found.code, found.warning) == (("torch-abi", False) if said else ("missing-symbol", True))
    if said:
        assert "with the std::string of one C++ ABI" in found.message


def test_the_lowest_torch_of_a_stable_binary(make: Making) -> None:
    """CASE 70: the functions say which torch they need; a promise of an older one is a fault that names both."""
    new, old = "torch_from_blob", "aoti_torch_get_dim"
    assert releases.lowest_for([old, "memcpy"]) == releases.LowestTorch(torch=(2, 4), functions=(old,), unknown=())
    found = releases.lowest_for([old, new, "aoti_torch_of_tomorrow"])
    assert found == releases.LowestTorch(torch=(2, 11), functions=(new,), unknown=("aoti_torch_of_tomorrow",))
    assert releases.lowest_for(["memcpy"]) is None
    facts = {"stable_abi": True, "promised": "2.10"}
    message = f"needs {new} of torch 2.11, but the variant promises torch 2.10"
    assert make.one(undefined=(old, new), facts=facts, **NEEDS) == [("lowest-torch", message)]
    assert make.one(undefined=(old, new), facts={**facts, "promised": "2.11"}, **NEEDS) == []


EXPORTS = {
    "libc10.so": frozenset({NEW}),
    "libtorch_cpu.so": frozenset({PLAIN}),
    "libtorch_cuda.so": frozenset({"_ZN2at4cuda20getCurrentCUDAStreamEa"}),
}


def test_symbols_that_torch_does_not_export(make: Making) -> None:
    """A symbol of another release is named with that release; one of a library that is not in NEEDED, with it."""
    gone = "_ZN2at4_ops4goneEv"
    found = make.one(
        undefined=(gone, PLAIN, NEW, "_ZN2at4cuda20getCurrentCUDAStreamEa", "memcpy@GLIBC_2.14"),
        versions={"libc.so.6": ("GLIBC_2.14",)},
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
            (
                "needs _ZN2at4cuda20getCurrentCUDAStreamEa, which libtorch_cuda.so exports, "
                "but libtorch_cuda.so is not in NEEDED"
            ),
        ),
    ]


def test_unknown_exports_prove_nothing(make: Making) -> None:
    """Where the list of one needed library is missing, a symbol that is in no list is not held against the file."""
    facts = {"exports": {"libc10.so": EXPORTS["libc10.so"]}, "provided": frozenset({"libc10.so", "libtorch_cpu.so"})}
    assert make.one(undefined=("_ZN2at4_ops4goneEv",), facts=facts, **NEEDS) == []


def test_symbols_of_siblings_are_theirs(make: Making) -> None:
    """What another file of the variant exports is not looked for in torch."""
    own = "_ZN5torch6my_ops4funcEv"
    user = make.binary("a/x.so", undefined=(own,), **NEEDS)
    assert make.all(user, make.binary("a/y.so", exported=(own,)), exports=EXPORTS) == []


def test_a_stable_variant_with_unstable_symbols(make: Making) -> None:
    """A stable-ABI variant may use only torch's C functions; its C++ symbols are named as people know them."""
    names = ("aoti_torch_get_dim", PLAIN, "_ZTVN3c1010TensorTypeE", "_ZN5torch7LibraryC1Ev", "_ZN5torch7LibraryD1Ev")
    message = (
        "is in a stable-ABI variant, but needs at::_ops::add_Tensor::call, c10::TensorType, torch::Library of torch's "
        "C++ API"
    )
    assert make.one(undefined=names, facts={"stable_abi": True}, **NEEDS) == [("unstable-symbol", message)]
    assert make.one(undefined=("aoti_torch_get_dim", "torch_library_impl"), facts={"stable_abi": True}, **NEEDS) == []


def module(make: Making, name: str, **parts: Any) -> AuditedBinary:
    """Make an extension module of that file name."""
    return make.binary(f"my_pkg/{name}", **{"exported": ("PyInit__C",), "depth": 1, **parts})


@pytest.mark.parametrize(("name", "told"), [("_C.so", True), ("_core.so", False), ("lib_core.so", False)])
def test_a_module_of_another_name_than_its_file(name: str, told: bool, make: Making) -> None:  # noqa: FBT001  a parameter
    """CASE 124: `_C.so` with `PyInit__core` is imported as `_core`; a plain build imports neither name."""
    file = replace(module(make, name, exported=("PyInit__core",)), module="_core")
    found = list(python.check(Subject(variant="label", binaries=(file,), ours=True)))
    message = "exports PyInit__core, so Python imports it as `_core`, not by its file's name `_C`"
    assert [(each.code, each.message, each.warning) for each in found] == (
        [("module-name", message, True)] if told else []
    )


@pytest.mark.parametrize(("version", "told"), [(4, True), (11, False)])
def test_pybind11_internals_other_than_torchs(version: int, told: bool, make: Making) -> None:  # noqa: FBT001  a parameter
    """A module that takes tensors shares types with torch; another register of types does not have them."""
    found = module(make, "_C.cpython-311-x86_64-linux-gnu.so", undefined=("_Z16THPVariable_WrapRKN2at10TensorBaseE",))
    with found.elf.path.open("ab") as stream:
        stream.write(b"\0__pybind11_internals_v%d_gcc_libstdcpp_cxxabi1017__\0" % version)
    subject = Subject(
        variant="label", binaries=(found,), python="cp311", torch="2.13.0", pybind11_internals=frozenset({11})
    )
    said = [each.message for each in python.check(subject) if each.code == "pybind11-internals"]
    assert said == (["holds pybind11's internals of version 4, and torch 2.13.0 those of 11"] if told else [])


def test_python_in_a_library(make: Making) -> None:
    """A library that needs Python is a warning; in a variant that promises every Python it is a fault."""
    library = make.binary(undefined=("PyErr_SetString", "PyExc_ValueError"))
    message = "is a library, but needs PyErr_SetString, PyExc_ValueError of Python"
    (found,) = python.check(Subject(variant="label", binaries=(library,)))
    assert (found.code, found.message, found.warning) == ("python-in-library", message, True)
    (found,) = python.check(Subject(variant="label", binaries=(library,), ours=True))
    assert not found.warning


def test_python_in_a_library_of_only_modules(make: Making) -> None:
    """CASE 69: if only one Python opens the files (a variant with modules; a cp311 wheel), there is no finding."""
    helper = make.binary("my_pkg/_torch_ext/label/libcore.so", undefined=("PyErr_SetString",), soname="libcore.so")
    caller = module(make, "_C.cpython-311-x86_64-linux-gnu.so", needed=("libcore.so",))
    assert not list(python.check(Subject(variant="label", binaries=(helper, caller), python="cp311", ours=True)))
    other = make.binary("my_pkg/_torch_ext/label/libops.so", undefined=("PyErr_SetString",), soname="libops.so")
    for binaries, named, ours, codes in (
        ((helper, caller, other), "cp311", True, []),
        ((other,), "cp311", True, ["python-in-library"]),
        ((other,), "cp311", False, []),
        ((helper, caller), None, False, ["python-in-library"]),
    ):
        found = list(python.check(Subject(variant="label", binaries=binaries, python=named, ours=ours)))
        assert [each.code for each in found] == codes


def test_a_library_in_a_wheel_of_the_limited_api(make: Making) -> None:
    """A library of a wheel tagged abi3 is opened by every Python that the tag names, as its modules are."""
    library = make.binary("pkg/libcore.so", undefined=("PyErr_SetString", "_PyObject_GetDictPtr"), depth=1)
    (found,) = python.check(Subject(variant=None, binaries=(library,), python="abi3-cp39"))
    assert found.message == "says abi3, but needs _PyObject_GetDictPtr, which is not in Python's limited API"


@pytest.mark.parametrize(
    ("name", "entries", "wanted"),
    [
        ("_C.cpython-311-x86_64-linux-gnu.so", ("PyInit__C",), "_C"),
        ("_C.so", ("PyInit_other", "PyInit__C"), "_C"),
        ("größe.so", ("PyInitU_gre_6ka8i", "PyInit_x"), "größe"),
        ("_C.so", ("PyInit_TORCH_EXTENSION_NAME",), None),
        ("lib_C.so", ("PyInit__C",), None),
    ],
)
def test_a_module_that_cannot_be_imported_by_its_name(
    name: str, entries: tuple[str, ...], wanted: str | None, make: Making
) -> None:
    """CASE 50: Python looks for PyInit_ and the file's name; a foreign package may load a file by another name."""
    binary = module(make, name, exported=entries)
    for ours in (True, False):
        found = list(python.check(Subject(variant="label", binaries=(binary,), ours=ours)))
        if wanted is not None:
            assert found == []
            continue
        file = name.partition(".")[0]
        assert [(item.code, item.warning) for item in found] == [("module-name", not ours)]
        assert found[0].message == f"exports {entries[0]}, so Python cannot import it as `{file}`"


@pytest.mark.performs("If the module is safe without the GIL")
def test_a_module_that_switches_the_gil_on(make: Making, tmp_path: Path) -> None:
    """The file or the sources say that it runs without; of a pybind11 module only the sources can."""
    name = "_C.cpython-314t-x86_64-linux-gnu.so"

    def codes(*, said: bool | None = False, name: str = name, **parts: object) -> list[str]:
        subject = Subject(variant="label", binaries=(module(make, name, **parts),), frees_gil=said)
        return [found.code for found in python.check(subject)]

    assert [codes(said=said) for said in (None, False, True)] == [["gil-enabled"], ["gil-enabled"], []]
    assert codes(name="_C.cpython-314-x86_64-linux-gnu.so") == []
    assert codes(data=python.NOT_USED) == codes(undefined=(python.SET_GIL,)) == []
    pybind11 = b"\0Python version mismatch: module was compiled for Python %s\0003.14\0"
    assert [codes(said=said, data=pybind11) for said in (None, False, True)] == [[], ["gil-enabled"], []]

    sources = tmp_path / "project" / "csrc"
    sources.mkdir(parents=True)
    (sources / "lost.cpp").symlink_to("nowhere")
    said = []
    for text in ("PYBIND11_MODULE(_C, m) {", "PYBIND11_MODULE(_C, m, py::mod_gil_not_used()) {"):
        (sources / "module.cpp").write_text(text, encoding="utf-8")
        said.append(python.frees_gil(sources.parent, sources, sources.parent / "build"))
    assert said == [False, True]


@pytest.mark.parametrize(
    ("name", "parts", "promised", "found"),
    [
        ("_C.cpython-311-x86_64-linux-gnu.so", {}, "cp311", []),
        ("_C.so", {}, "cp311", []),
        (
            "_C.cpython-313t-x86_64-linux-gnu.so",
            {"undefined": ("_Py_DecRefShared", python.SET_GIL)},
            "cp313t",
            [],
        ),
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
            [("python-tag", "is a module only for cp311, but is packed for the limited API")],
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
    """``.abi3.so`` may need only the limited API, in the state of the oldest Python that is promised."""
    assert make.all(module(make, "_C.abi3.so", undefined=undefined), python=promised) == found


def test_pybind11_under_the_limited_api_is_named(make: Making) -> None:
    """It does not work whatever the suffix is; the remedy differs from that for a module without pybind11."""
    binary = module(make, "_C.abi3.so", undefined=("_PyObject_GetDictPtr",), data=PYBIND)
    (found,) = python.check(Subject(variant="label", binaries=(binary,), python="abi3-cp39"))
    assert (found.code, found.remedy) == (
        "abi3-violation",
        "pybind11 does not work with Python's limited API: write the module on Python's C API, or name and build it "
        "for each Python (WITH_SOABI, no USE_SABI).",
    )
