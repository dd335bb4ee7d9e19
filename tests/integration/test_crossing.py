"""Compiling for aarch64 on x86-64: CMake's settings, and messages for projects that cannot be cross-compiled."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import uv

from hatch_torch_ext import elf, environments, toolchain
from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import CompileError, ToolchainError
from hatch_torch_ext.config import Cross
from hatch_torch_ext.sdk import exports
from hatch_torch_ext.toolchain import crosscompiler, tools
from hatch_torch_ext.values import Environment
from workbench import QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from workbench import Workbench

HEAD = "cmake_minimum_required(VERSION 3.26)\nproject(crossed LANGUAGES CXX)\n"
LIBRARY = "add_library(ops SHARED ops.cpp)\ninstall(TARGETS ops LIBRARY DESTINATION .)\n"
OPS = '#include <string>\nstd::string name() { return "ops"; }\n'


@pytest.fixture
def crossed(thin: Workbench, arm64: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """Return the stage's inputs for an entry of aarch64, whose compiler and qemu are on PATH."""
    monkeypatch.setenv("PATH", f"{arm64 / 'bin'}:{os.environ['PATH']}")
    entry = replace(thin.entry, machine="aarch64", variables=(("torch", "2.13"), ("machine", "aarch64")))
    thin.entry = entry
    environment = replace(thin.environment, interpreter=replace(thin.environment.interpreter, include=tmp_path))
    thin.environment = environments.for_machine(environment, Cross(machine="aarch64"), data=tmp_path)
    return thin


def built(bench: Workbench, folder: Path, cmake: str, ops: str = OPS, *, cross: Cross | None = None) -> Path:
    """Build a project of these texts with the toolchain that is found; return its library."""
    folder.mkdir(exist_ok=True)
    (folder / "CMakeLists.txt").write_text(HEAD + cmake, encoding="utf-8")
    (folder / "ops.cpp").write_text(ops, encoding="utf-8")
    bench.config = replace(bench.config, root=folder, source=folder, cross=() if cross is None else (cross,))
    bench.toolchain = toolchain.find(bench.prepared, report=bench.reports.append)
    bench.toolchain = replace(bench.toolchain, cache=None)
    return bench.build(".", source=folder).prefix / "libops.so"


def test_cmake_knows_the_machine(crossed: Workbench, tmp_path: Path) -> None:
    """System, processor, compilers and matrix variable are aarch64's, in C too; what is built is for it."""
    text = (
        "enable_language(C)\n"
        'if(NOT (CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64" AND UNIX\n'
        '    AND CMAKE_SIZEOF_VOID_P EQUAL 8 AND CMAKE_C_COMPILER MATCHES "aarch64"\n'
        '    AND TORCH_EXT_MACHINE STREQUAL "aarch64"))\n'
        "  message(FATAL_ERROR wrong)\nendif()\n"
    )
    assert elf.read(built(crossed, tmp_path / "p", text + LIBRARY)).machine == "aarch64"
    assert crossed.toolchain.strip is not None
    assert "aarch64" in crossed.toolchain.strip.name
    assert any(" for aarch64 (" in line for line in crossed.reports)


def test_what_is_compiled_is_run_by_qemu(crossed: Workbench, tmp_path: Path) -> None:
    """`try_run` answers as on the machine itself: a char is unsigned there."""
    text = (
        "include(CheckCXXSourceRuns)\n"
        'check_cxx_source_runs("int main() { return char(-1) < 0; }" UNSIGNED_CHAR)\n'
        "if(NOT UNSIGNED_CHAR)\n  message(FATAL_ERROR wrong)\nendif()\n"
    )
    assert built(crossed, tmp_path / "p", text + LIBRARY).is_file()


@pytest.mark.performs("give its answer in the option")
def test_without_qemu_a_run_is_reported(crossed: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CMake asks for the answer; the message says what would give it, and where to write it."""
    text = 'include(CheckCXXSourceRuns)\ncheck_cxx_source_runs("int main() { return 0; }" RUNS)\n'
    text += 'file(WRITE ${CMAKE_BINARY_DIR}/runs.txt "${RUNS}")\n'
    text += "install(FILES ${CMAKE_BINARY_DIR}/runs.txt DESTINATION .)\n"
    with monkeypatch.context() as patch:
        patch.setattr(crosscompiler, "emulator", lambda *_: ())
        with pytest.raises(CompileError) as caught:
            built(crossed, tmp_path / "p", text + LIBRARY)
        (variable,) = re.findall(r"`cmake.define` \((\w+)\)", str(caught.value))
        crossed.config = replace(crossed.config, cmake=replace(QUICK, define=((variable, "1"),)))
        library = built(crossed, tmp_path / "p", text + LIBRARY)
        assert library.with_name("runs.txt").read_text() == "1"
        crossed.config = replace(crossed.config, cmake=QUICK)
        with pytest.raises(CompileError):
            built(crossed, tmp_path / "p", text + LIBRARY)
    # The same build, where qemu is there by now:
    assert built(crossed, tmp_path / "p", text + LIBRARY).with_name("runs.txt").read_text() == "1"
    assert "The project runs a program that it compiles for aarch64 (try_run, check_cxx_source_runs)" in str(
        caught.value
    )
    assert "`apt-get install qemu-user-static`" in str(caught.value)


@pytest.mark.performs("give the variables of its answers")
def test_a_run_by_a_toolchain_file_of_the_authors(crossed: Workbench, tmp_path: Path) -> None:
    """CMake itself does not run it, and names the variables of its answers; with the option, it continues."""
    file = tmp_path / "theirs.cmake"
    settings = {"SYSTEM_NAME": "Linux", "SYSTEM_PROCESSOR": "aarch64", "CXX_COMPILER": "aarch64-linux-gnu-g++"}
    file.write_text("".join(f"set(CMAKE_{name} {value})\n" for name, value in settings.items()), encoding="utf-8")
    theirs = replace(QUICK, args=("--toolchain", str(file)))
    crossed.config = replace(crossed.config, cmake=theirs)
    text = 'include(CheckCXXSourceRuns)\ncheck_cxx_source_runs("int main() { return 0; }" RUNS)\n'
    text += "if(NOT RUNS)\n  message(FATAL_ERROR wrong)\nendif()\n"
    with pytest.raises(CompileError) as caught:
        built(crossed, tmp_path / "p", text + LIBRARY)
    assert "or give the variables of its answers in the option `cmake.define`" in str(caught.value)
    names = dict.fromkeys(re.findall(r"\bRUNS_\w+", str(caught.value)), "0")
    crossed.config = replace(crossed.config, cmake=replace(theirs, define=tuple(names.items())))
    assert built(crossed, tmp_path / "p", text + LIBRARY).is_file()


@pytest.mark.performs("is not a valid flag for")
@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-mavx2", "-march=native", "-m64"])
def test_a_flag_for_x86_is_reported_with_its_line(crossed: Workbench, tmp_path: Path, flag: str) -> None:
    """The message names the flag, and the file and line in which it is; guarded, it is not a fault."""
    name = flag.partition("=")[0]
    with pytest.raises(CompileError) as caught:
        built(crossed, tmp_path / "p", f"{LIBRARY}target_compile_options(ops PRIVATE\n  {flag})\n")
    message = (
        f"`{name}` is not a valid flag for aarch64 (found in {tmp_path / 'p' / 'CMakeLists.txt'}:6). Give it only where"
    )
    assert message in str(caught.value)
    guarded = f'if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64")\n  target_compile_options(ops PRIVATE {flag})\nendif()\n'
    assert built(crossed, tmp_path / "p", LIBRARY + guarded).is_file()


@pytest.mark.performs("is a header only for x86")
def test_intrinsics_are_reported(crossed: Workbench, tmp_path: Path) -> None:
    """A header of x86's intrinsics ends in the macro that guards it."""
    with pytest.raises(CompileError, match=r"`immintrin\.h` is a header only for x86 processors: .* `#if defined\(__x"):
        built(crossed, tmp_path / "p", LIBRARY, "#include <immintrin.h>\n")


def test_flags_of_the_process_for_this_processor_are_left_out(
    crossed: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags that the cross compiler refuses are left out with a note; the others stay."""
    monkeypatch.setenv("CXXFLAGS", "-DKEPT=1 -march=x86-64-v2 -m64")
    ops = "#if !KEPT\n#error lost\n#endif\nint one() { return 1; }\n"
    assert built(crossed, tmp_path / "p", LIBRARY, ops).is_file()
    assert "CXXFLAGS: -march=x86-64-v2 -m64 is not for aarch64, and is left out here" in crossed.reports


@pytest.mark.performs("by the option cross.")
def test_headers_of_python_that_are_not_there(crossed: Workbench, tmp_path: Path) -> None:
    """CMake finds a Python, so that a library is built; what includes its headers ends with what to install."""
    text = "find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)\n"
    assert built(crossed, tmp_path / "p", text + LIBRARY).is_file()
    with pytest.raises(CompileError, match=r"install libpython3\.\d+-dev:arm64 \(Debian, Ubuntu\), or unpack it"):
        built(
            crossed,
            tmp_path / "p",
            f"{text}{LIBRARY}target_link_libraries(ops Python::Module)",
            "#include <Python.h>\n",
        )


@pytest.mark.performs("name the folder into which")
@pytest.mark.parametrize(
    "how", ["Python_add_library(ops MODULE WITH_SOABI ops.cpp)", "pybind11_add_module(ops ops.cpp)"]
)
def test_a_module_runs_on_the_other_machine(
    crossed: Workbench, bindings: Path, arm64: Path, tmp_path: Path, how: str
) -> None:
    """With that machine's headers, a module has its suffix, though this machine's Python is run, and is imported."""
    pybind11 = how.startswith("pybind11")
    venv = tmp_path / "venv"
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", crossed.environment.python, venv])
    site_packages = venv / "lib" / "python3.11" / "site-packages"
    shutil.copytree(bindings / "pybind11", site_packages / "pybind11")
    here = Environment(
        prefix=venv,
        python=venv / "bin" / "python",
        bin=venv / "bin",
        site_packages=site_packages,
        interpreter=replace(crossed.environment.interpreter, machine="x86_64"),
    )
    cross = Cross(machine="aarch64", python=str(arm64 / "root"))
    crossed.environment = environments.for_machine(here, cross, data=tmp_path)
    find = "find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)\n"
    if pybind11:
        hints = site_packages / "pybind11" / "share" / "cmake"
        find = f"set(PYBIND11_FINDPYTHON ON)\nfind_package(pybind11 CONFIG REQUIRED HINTS {hints})\n"
    ops = (
        '#include <pybind11/pybind11.h>\nPYBIND11_MODULE(ops, m) { m.attr("answer") = 42; }\n'
        if pybind11
        else '#include <Python.h>\nstatic PyModuleDef ops = {PyModuleDef_HEAD_INIT, "ops"};\n'
        "PyMODINIT_FUNC PyInit_ops() {\n  PyObject *made = PyModule_Create(&ops);\n"
        '  PyModule_AddIntConstant(made, "answer", 42);\n  return made;\n}\n'
    )
    prefix = built(crossed, tmp_path / "p", f"{find}{how}\ninstall(TARGETS ops LIBRARY DESTINATION .)\n", ops).parent
    assert [path.name for path in prefix.iterdir()] == ["ops.cpython-311-aarch64-linux-gnu.so"]
    root = arm64 / "root"
    qemu, python = arm64 / "bin" / "qemu-aarch64-static", root / "usr" / "bin" / "python3.11"
    done = process.run([qemu, "-L", root, python, "-c", "import ops; print(ops.answer)"], cwd=prefix)
    assert done.stdout.strip() == "42"


def test_an_authors_toolchain_file_replaces_ours(crossed: Workbench, tmp_path: Path) -> None:
    """Only the author's toolchain file is used; none of our settings is left."""
    own = tmp_path / "own.cmake"
    own.write_text(
        "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR armv8)\n"
        "set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)\n"
    )
    crossed.config = replace(
        crossed.config, cmake=replace(crossed.config.cmake, define=(("CMAKE_TOOLCHAIN_FILE", str(own)),))
    )
    text = 'if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "armv8")\n  message(FATAL_ERROR wrong)\nendif()\n'
    assert elf.read(built(crossed, tmp_path / "p", text + LIBRARY)).machine == "aarch64"


def test_libraries_of_the_other_machine_are_found(crossed: Workbench, tmp_path: Path) -> None:
    """`find_library` finds aarch64's C library although this machine has one too."""
    text = "find_library(MATH m REQUIRED)\ntarget_link_libraries(ops PRIVATE ${MATH})\n"
    library = built(
        crossed, tmp_path / "p", LIBRARY + text, "#include <cmath>\ndouble f(double x) { return sin(x); }\n"
    )
    assert "libm.so.6" in elf.read(library).needed


def test_no_cross_compiler(crossed: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked for is named, with what this distribution installs, and the option."""
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if "aarch64" in name or "clang" in name else f"/{name}")
    monkeypatch.setattr(tools, "distribution", lambda: ["ubuntu", "debian"])
    with pytest.raises(ToolchainError) as caught:
        crosscompiler.compiler(crossed.entry, crossed.config, "aarch64", environ={})
    assert str(caught.value) == (
        "matrix.2.13: no C++ compiler for aarch64 was found (looked for aarch64-linux-gnu-g++, "
        "aarch64-unknown-linux-gnu-g++, aarch64-redhat-linux-gnu-g++, aarch64-suse-linux-gnu-g++, "
        "aarch64-conda-linux-gnu-g++, clang++ on PATH). Install one: `apt-get install g++-aarch64-linux-gnu`, or name "
        "one by the option `cross.aarch64.cxx`"
    )
    for words, remedy in (["arch"], "pacman -S aarch64-linux-gnu-gcc"), (["rhel", "fedora"], "cross.aarch64.sysroot"):
        monkeypatch.setattr(tools, "distribution", lambda words=words: words)
        with pytest.raises(ToolchainError, match=remedy):
            crosscompiler.compiler(crossed.entry, crossed.config, "aarch64", environ={})


def test_a_compiler_for_this_machine_is_refused(crossed: Workbench, tmp_path: Path) -> None:
    """A compiler in the option that compiles for another processor is an error before any work."""
    with pytest.raises(
        ToolchainError, match=r"GNU [\d.]+ \(/\S+\) does not compile for aarch64: it compiles for x86_64"
    ):
        built(crossed, tmp_path / "p", LIBRARY, cross=Cross(machine="aarch64", cxx="g++"))


@pytest.mark.parametrize(
    ("library", "why"),
    [(None, "has no C library"), ("x86_64", "has a C library for x86_64")],
)
def test_a_wrong_sysroot(crossed: Workbench, tmp_path: Path, library: str | None, why: str) -> None:
    """A folder without a C library, or with that of another machine, is an error before any work."""
    sysroot = tmp_path / "sysroot"
    (sysroot / "lib").mkdir(parents=True)
    if library is not None:
        (sysroot / "lib" / "libc.so.6").write_bytes(exports.stub("libc.so.6", library))
    with pytest.raises(ToolchainError) as caught:
        built(crossed, tmp_path / "p", LIBRARY, cross=Cross(machine="aarch64", sysroot=str(sysroot)))
    assert str(caught.value) == (
        f"matrix.2.13: option `cross.aarch64.sysroot` names {sysroot}, which {why}: it must be that of aarch64"
    )


def test_a_sysroot(crossed: Workbench, arm64: Path, tmp_path: Path) -> None:
    """One of the right machine is handed on to CMake."""
    text = f'if(NOT CMAKE_SYSROOT STREQUAL "{arm64}/root")\n  message(FATAL_ERROR wrong)\nendif()\n'
    cross = Cross(machine="aarch64", sysroot=str(arm64 / "root"))
    assert elf.read(built(crossed, tmp_path / "p", text + LIBRARY, cross=cross)).machine == "aarch64"


@pytest.mark.performs("by the option `cross.{machine}", "by the option `cross.{}.cxx`")
def test_clang_compiles_for_it(crossed: Workbench, tmp_path: Path) -> None:
    """Clang gets its target as an option, and finds the C library of Debian's cross compiler."""
    if shutil.which("clang++") is None or shutil.which("aarch64-linux-gnu-ld", path="/usr/bin") is None:
        pytest.skip("no clang++ with a cross linker on this machine")
    library = built(crossed, tmp_path / "p", LIBRARY, cross=Cross(machine="aarch64", cxx="clang++"))
    assert elf.read(library).machine == "aarch64"
