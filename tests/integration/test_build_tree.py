"""What runs while a project is built: programs, generators, discovery of tests, stubs of a module."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hatch_torch_ext
from hatch_torch_ext.base.errors import CompileError
from trees import program

if TYPE_CHECKING:
    from workbench import Workbench

PROGRAMS = """
cmake_minimum_required(VERSION 3.18)
project(p LANGUAGES CXX)
find_package(Torch REQUIRED)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)

add_library(helper SHARED helper.cpp)
target_link_libraries(helper PRIVATE torch)
Python_add_library(_C MODULE WITH_SOABI module.cpp)
target_link_libraries(_C PRIVATE helper)
add_custom_command(OUTPUT stub.pyi
  COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=$<TARGET_FILE_DIR:_C> ${Python_EXECUTABLE}
    ${CMAKE_CURRENT_SOURCE_DIR}/stubgen.py stub.pyi
  DEPENDS _C stubgen.py)
add_custom_target(stub ALL DEPENDS stub.pyi)

add_executable(generate main.cpp)
target_link_libraries(generate PRIVATE helper torch)
add_custom_command(OUTPUT made.h COMMAND generate made.h
  DEPENDS generate)
add_library(ops SHARED ops.cpp ${CMAKE_CURRENT_BINARY_DIR}/made.h)
target_include_directories(ops PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
target_link_libraries(ops PRIVATE torch)
add_custom_command(TARGET helper POST_BUILD COMMAND ! false)
# As gtest_discover_tests does: a program of the build, run by another program.
add_custom_command(TARGET generate POST_BUILD
  COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:generate> -P ${CMAKE_CURRENT_SOURCE_DIR}/discover.cmake)
install(TARGETS ops LIBRARY DESTINATION .)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/stub.pyi ${CMAKE_CURRENT_BINARY_DIR}/discovered DESTINATION .)
set(file "${CMAKE_INSTALL_PREFIX}/at_install")
install(CODE "execute_process(COMMAND $<TARGET_FILE:generate> \\"${file}\\" COMMAND_ERROR_IS_FATAL ANY)")
"""
FILES = {
    "helper.cpp": "#include <c10/util/Exception.h>\n#include <string>\nstd::string answer() { TORCH_CHECK(true); "
    'try { TORCH_CHECK(false, "no"); } catch (const c10::Error& e) { return "42"; } return ""; }\n',
    "module.cpp": "#include <Python.h>\n#include <string>\nstd::string answer();\n"
    "static PyObject* call(PyObject*, PyObject*) { return PyUnicode_FromString(answer().c_str()); }\n"
    'static PyMethodDef methods[] = {{"answer", call, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};\n'
    'static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods};\n'
    "PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&definition); }\n",
    "stubgen.py": "import sys, _C\nopen(sys.argv[1], 'w').write(_C.answer())\n",
    "main.cpp": "#include <fstream>\n#include <string>\nstd::string answer();\n"
    'int main(int n, char** names) { if (n > 1) std::ofstream(names[1]) << "#define ANSWER " << answer() << "\\n"; }\n',
    "discover.cmake": "execute_process(COMMAND ${PROGRAM} discovered COMMAND_ERROR_IS_FATAL ANY)\n",
    "answer.h": "#define ANSWER 42\n",
    "ops.cpp": '#include "made.h"\nstatic_assert(ANSWER == 42);\nint f() { return ANSWER; }\n',
}


def project(bench: Workbench, folder: Path, **changed: str) -> Path:
    """Write the project above; ``changed`` are other texts of CMakeLists.txt's commands."""
    source = folder / "project" / "csrc"
    source.mkdir(parents=True)
    text = PROGRAMS
    for old, new in changed.items():
        text = text.replace(old, new)
    (source / "CMakeLists.txt").write_text(text)
    for name, content in FILES.items():
        (source / name).write_text(content)
    bench.config = replace(bench.config, root=source.parent, source=source)
    return source


def test_programs_and_modules_run_while_they_are_built_where_torch_is_installed(
    bench: Workbench, tmp_path: Path
) -> None:
    """CASE 76: a generator, a POST_BUILD program, a stub generator and an install rule run what links torch."""
    source = project(bench, tmp_path)
    tree = bench.build("", source=source)
    assert set(tree.files) == {"at_install", "discovered", "libops.so", "stub.pyi"}
    assert (tree.prefix / "stub.pyi").read_text() == "42"
    assert (tree.prefix / "discovered").read_text() == (tree.prefix / "at_install").read_text() == "#define ANSWER 42\n"


THIN = (
    "While the project is built, it runs a program or a Python module that links torch (a POST_BUILD command, a "
    "generator, gtest_discover_tests, nanobind_add_stub). The thin torch SDK has link stubs in place of torch's "
    "libraries: set "
    '`sdk = "environment"` in the hook\'s configuration to build with the full torch.'
)


@pytest.mark.parametrize(
    "without",
    [
        {"generate made.h": "cp ${CMAKE_CURRENT_SOURCE_DIR}/answer.h made.h", "${CMAKE_COMMAND} -D": "true"},
        {"stub ALL": "stub"},
    ],
    ids=["a module", "a program"],
)
def test_what_runs_with_torch_while_it_is_built_needs_the_full_torch_and_the_error_says_so(
    without: dict[str, str], thin: Workbench, tmp_path: Path
) -> None:
    """CASE 76: with the thin SDK there is no torch to run with, and the message has the option."""
    source = project(thin, tmp_path, **without)
    with pytest.raises(CompileError) as caught:
        thin.build("", source=source)
    assert str(caught.value).splitlines()[-2:] == [THIN, f"The whole log is {thin.work / 'matrix.2.13' / 'log.txt'}"]


TRIED = """
cmake_minimum_required(VERSION 3.25)
project(p LANGUAGES CXX)
find_package(Torch REQUIRED)
if(NOT DEFINED TORCH_RUNS)
  try_run(TORCH_RUNS TORCH_COMPILES SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tried.cpp LINK_LIBRARIES torch)
endif()
add_library(ops SHARED ops.cpp)
install(TARGETS ops LIBRARY DESTINATION .)
"""


@pytest.mark.performs("linked to stubs, whatever the SDK. Give the answer")
def test_a_program_that_cmake_tries_with_torch_is_reported_with_its_variable(bench: Workbench, tmp_path: Path) -> None:
    """It would take the stubs' failure for the project's answer; with the answer given, as told, nothing is tried."""
    source = tmp_path / "project" / "csrc"
    source.mkdir(parents=True)
    (source / "CMakeLists.txt").write_text(TRIED)
    (source / "ops.cpp").touch()
    text = "#include <c10/util/Exception.h>\nint main(int n, char**) { TORCH_CHECK(n); }\n"
    (source / "tried.cpp").write_text(text)
    bench.config = replace(bench.config, root=source.parent, source=source)
    bench.build("", source=source)
    told = (
        "While CMake configures, it tries a program that links torch, for its variable TORCH_RUNS. That "
        "fails, since such programs are linked to stubs, whatever the SDK. Give the answer in the option "
        "`cmake.define` (TORCH_RUNS): CMake's own checks then do not try it; put a try_run or try_compile of the "
        "project's own into `if(NOT DEFINED TORCH_RUNS)`"
    )
    assert bench.reports == [told]
    bench.reports.clear()
    bench.build("", source=source, cmake=replace(bench.config.cmake, define=(("TORCH_RUNS", "0"),)))
    assert bench.reports == []


def configured(folder: Path, lines: str) -> Path:
    """Configure a project whose CMakeLists.txt includes what is put right at its end; return the build folder."""
    finish = Path(hatch_torch_ext.__file__).parent / "resources" / "cmake" / "TorchExtFinish.cmake"
    start = f'cmake_minimum_required(VERSION 3.26)\nproject(p LANGUAGES NONE)\ninclude("{finish}")\n'
    (folder / "CMakeLists.txt").write_text(start + lines, encoding="utf-8")
    command: list[str | Path] = [program("cmake"), "-S", folder, "-B", folder / "build"]
    command += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={program('ninja')}"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder / "build"


def test_many_commands_of_one_target_have_the_same_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of a target run in one shell: LD_LIBRARY_PATH does not grow from one to the next."""
    build = configured(
        tmp_path,
        f'set(TorchExt_RUN_LIBRARY_DIR "/opt/{"x" * 1000}")\nset(commands "")\n'
        "foreach(number RANGE 250)\n  list(APPEND commands COMMAND printenv LD_LIBRARY_PATH)\nendforeach()\n"
        'add_custom_target(many ${commands})\n_torch_ext_run_path("${CMAKE_SOURCE_DIR}" many)\n',
    )
    for given, expected in (("/given", f"/opt/{'x' * 1000}:/given"), (None, f"/opt/{'x' * 1000}")):
        if given is None:
            monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
        else:
            monkeypatch.setenv("LD_LIBRARY_PATH", given)
        ninja = Path(sys.executable).parent / "ninja"
        output = subprocess.check_output([ninja, "-C", build, "many"], text=True)
        assert [line for line in output.splitlines() if line.startswith("/opt/")] == [expected] * 251


def test_a_fetched_library_of_the_system_does_not_take_its_place(tmp_path: Path) -> None:
    """Programs of the machine that a command runs load their own zlib, whatever of that name the project makes."""
    system = tmp_path / "system"
    system.mkdir()
    (system / "libz.so.1").touch()
    build = configured(
        tmp_path,
        "set_property(GLOBAL PROPERTY TARGET_SUPPORTS_SHARED_LIBS TRUE)\n"
        "file(WRITE made.c.in)\nfunction(library name folder output)\n"
        "  add_library(${name} SHARED EXCLUDE_FROM_ALL made.c.in)\n"
        '  set_target_properties(${name} PROPERTIES OUTPUT_NAME "${output}" LINKER_LANGUAGE NONE\n'
        '    LIBRARY_OUTPUT_DIRECTORY "/build/${folder}")\nendfunction()\n'
        "library(zlib fetched z)\nlibrary(ops own ops)\n"
        f'set(CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES "{system}")\n'
        '_torch_ext_run_path("${CMAKE_SOURCE_DIR}" zlib ops)\n',
    )
    assert (build / "torch_ext_run_path.txt").read_text(encoding="utf-8") == "/build/own"


def test_what_linked_targets_say_is_read_once_each(tmp_path: Path) -> None:
    """A chain of PUBLIC links has no more calls than targets; a cycle ends; a name like stdc++fs is not a pattern."""
    build = configured(
        tmp_path,
        "add_library(t0 INTERFACE)\ntarget_compile_definitions(t0 INTERFACE OF_THE_FIRST=1)\n"
        "foreach(number RANGE 1 24)\n"
        "  add_library(t${number} INTERFACE)\n  add_library(n::t${number} ALIAS t${number})\n"
        '  math(EXPR before "${number} - 1")\n  foreach(each RANGE ${before})\n'
        "    target_link_libraries(t${number} INTERFACE t${each} stdc++fs)\n  endforeach()\nendforeach()\n"
        "target_link_libraries(t0 INTERFACE n::t24 Torch::Python)\n"
        "_torch_ext_written_by_linked(t24 written)\n_torch_ext_linked_targets(t24 linked)\n"
        "_torch_ext_links_python(t24 links)\n"
        'list(LENGTH linked count)\nfile(WRITE ${CMAKE_BINARY_DIR}/result "${count} ${links} ${written}")\n',
    )
    count, links, written = (build / "result").read_text(encoding="utf-8").split(" ", 2)
    assert (count, links) == ("24", "TRUE")
    assert written.count("OF_THE_FIRST=1") == 1
