"""The checks of the audit on files made byte by byte: findings with their texts, and files without findings."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hatch_torch_ext import audit
from hatch_torch_ext.audit import opening
from hatch_torch_ext.audit.findings import CODES, Finding, finding, settle, text
from hatch_torch_ext.base import mounts
from hatch_torch_ext.base.errors import ConfigurationError
from subjects import Making
from wheels import RECORD

if TYPE_CHECKING:
    from hatch_torch_ext.facts.variant import BuildRecord

DOCS = Path(__file__).resolve().parents[2] / "docs"


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
            "memcpy@GLIBC_2.14",
        ),
        versions={"libc.so.6": ("GLIBC_2.14",)},
        facts={"machines": ("x86_64",), "cxx11_abi": True, "ours": True},
    )
    assert found == []


@pytest.mark.parametrize(
    ("parts", "code", "message"),
    [
        (
            {"needed": ("/opt/libv.so", "vendor/libw.so")},
            "needed-path",
            "needs /opt/libv.so, vendor/libw.so by its path on the machine that built it, and no user has it there",
        ),
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
            "requests an executable stack, which hardened kernels and glibc 2.41 refuse",
        ),
        (
            {"text_relocations": True},
            "text-relocations",
            "has text relocations: its code is not position independent",
        ),
        (
            {"versions": {"libcudart.so.11.0": ("LIB_11",)}},
            "version-needs",
            "needs LIB_11 of libcudart.so.11.0, but libcudart.so.11.0 is not in NEEDED: ld.so stops the process",
        ),
        ({"needed": ("libc.so.6", "libpython3.11.so.1.0")}, "libpython", "needs libpython3.11.so.1.0"),
        ({"needed": ("libc.so.6", "libpython3.14t.so.1.0")}, "libpython", "needs libpython3.14t.so.1.0"),
        (
            {"needed": ("libc.so.6", "libyaml-0.so.2", "libfoo.so")},
            "missing-library",
            "needs libyaml-0.so.2, libfoo.so, which neither the wheel, nor torch and its requirements, nor the system "
            "provides",
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


def test_libraries_of_glibc_count_where_the_file_needs_that_glibc(make: Making) -> None:
    """`-ffast-math` links libmvec, which glibc has from 2.22 on; a file for an older glibc must not need it."""
    needed = ("libmvec.so.1", "libc.so.6")
    assert make.one(needed=needed, versions={"libmvec.so.1": ("GLIBC_2.22",)}) == []
    assert [code for code, _ in make.one(needed=needed, versions={"libc.so.6": ("GLIBC_2.17",)})] == ["missing-library"]


def record(torch: str = "2.8.0+cu128", flags: str = "") -> BuildRecord:
    """Return the record of a build against a release of torch, or another one."""
    return replace(RECORD, torch_version=torch, flags=(("a CXX", flags),))


@pytest.mark.parametrize("flag", ["-march=native", "-mcpu=native", "-Xcompiler=-O3,-march=native"])
def test_compiled_for_the_processor_of_the_builder(flag: str, make: Making) -> None:
    """The flags of a build tell it; `-mtune`, or a processor that the author names, does not count."""
    word = flag.rpartition(",")[2]
    assert make.one(facts={"build": record(flags=f"-O3 {flag} -DX")}) == [
        ("this-processor", f"a CXX is compiled with {word}, for the processor of the machine that built it")
    ]
    assert make.one(facts={"build": record(flags="-mtune=native -march=x86-64-v2 -march=native-ish")}) == []


@pytest.mark.parametrize("version", ["2.16.0.dev20261101+cpu", "2.8.0rc1", "2.8.0a0+34c6371d24.nv25.08"])
def test_compiled_against_a_pre_release(version: str, make: Making) -> None:
    """A variant goes by major.minor, so the release gets what was compiled before it."""
    message = f"is compiled against torch {version}, and users of the release get it"
    assert make.one(facts={"build": record(version)}) == [("pre-release", message)]
    assert make.one(facts={"build": record("no version")}) == []


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"\0/tmp/torch-ext-XXXXXX\0", {}),
        (b"\0https://host/home/me/a.cpp\0", {}),
        (b"\0src/home/a.cpp\0", {}),
        (b"\0/usr/include/c++/12/bits/stl_vector.h\0", {}),
        (b"\0/home/me/a.cpp\0", {"build_dirs": ("/srv/elsewhere",)}),
    ],
)
def test_paths_that_are_no_build_paths(data: bytes, facts: dict[str, Any], make: Making) -> None:
    """Names that a program uses are not paths of sources; if the build's folders are known, only those count."""
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
    """A need for libgomp.so.1 beside a torch with it under a mangled name gives two runtimes: a finding."""
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
        "b.so: needs it. Link Python::Module instead of Python::Python: many Pythons have no libpython to load. "
        "[libpython]"
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


def test_files_that_nobody_can_open_here(make: Making, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that runs no programs is no fault of the files on it."""
    monkeypatch.setattr(mounts, "runs_programs", lambda _: False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match="set TMPDIR to a folder on another"):
        opening.open_all(Path("python"), [make.binary()], variant=None, package=None)


def test_findings_are_values() -> None:
    """A finding holds text and nothing else, for JSON."""
    assert isinstance(finding("size", "a.whl", "x"), Finding)
    assert audit.Finding is Finding
