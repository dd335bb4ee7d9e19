"""The list of docs/differences.md is whole: both ways are compared command by command on a sample project."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import elf
from oracle import comparing
from oracle.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oracle.workshop import Built

SAMPLE = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.28)
project(sample LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(Torch REQUIRED)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
find_library(TORCH_PYTHON_LIBRARY torch_python PATHS "${TORCH_INSTALL_PREFIX}/lib")
add_library(core STATIC core.cpp)
add_library(kernels SHARED kernels.cpp)
add_library(ops SHARED ops.cpp)
target_link_libraries(ops PRIVATE core kernels torch)
set_target_properties(ops PROPERTIES VERSION 1.2 SOVERSION 1 INSTALL_RPATH "$ORIGIN")
Python_add_library(_C MODULE WITH_SOABI module.cpp)
target_link_libraries(_C PRIVATE torch ${TORCH_PYTHON_LIBRARY})
add_executable(tool tool.cpp)
target_link_libraries(tool PRIVATE torch)
add_custom_command(TARGET ops POST_BUILD COMMAND ${CMAKE_COMMAND} -E true)
install(TARGETS kernels ops _C tool RUNTIME DESTINATION bin LIBRARY DESTINATION .)
""",
    "core.cpp": "int core() { return 1; }\n",
    "kernels.cpp": "int kernels() { return 2; }\n",
    "ops.cpp": "int core();\nint kernels();\n"
    "namespace { struct Registers { Registers() { value = core() + kernels(); } int value; } registers; }\n",
    "module.cpp": '#include <Python.h>\nstatic PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1,\n'
    "  nullptr, nullptr, nullptr, nullptr, nullptr};\n"
    "PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&definition); }\n",
    "tool.cpp": "int main() { return 0; }\n",
}
# What is in one command or cache only, by the entry of the page that it belongs to.
WORDS: dict[str, str] = {
    "generator": r"CMAKE_BUILD_TYPE|CMAKE_MAKE_PROGRAM|CMAKE_HOME_DIRECTORY|CMAKE_CACHEFILE_DIR|\S*_(BINARY|SOURCE)_DIR"
    r"|CMAKE_INSTALL_PREFIX|CMAKE_FIND_PACKAGE_REDIRECTS_DIR|CMAKE_DIAGNOSTIC_INIT",
    "compiler": r"/usr/bin/(c|g)\+\+|CMAKE_C(XX)?_COMPILER\w*",
    "torch-package": r"(Torch|Caffe2|C10|c10|TORCH|CAFFE2|MKL|Protobuf|protobuf|kineto|USE)_?\w*"
    r"|FIND_PACKAGE_MESSAGE_DETAILS_\w+|-L/lib/(intel64(_win)?|win-x64)|torch/lib/libtorch_cpu\.so",
    "torch-folder": r"torch/(include|lib)\S*",
    "first-file": r"CMAKE_PROJECT_INCLUDE_BEFORE",
    "python": r"_?(Python3?|PYTHON|PYBIND11)_\w+",
    "no-registry": r"CMAKE_FIND_USE_PACKAGE_REGISTRY",
    "old-policies": r"CMAKE_POLICY_VERSION_MINIMUM",
    "matrix-variables": r"TORCH_EXT_\w+",
    "cuda-pinned": r"CMAKE_CUDA_COMPILER|CUDA\w*_(ROOT|ROOT_DIR|EXECUTABLE)|CUDAToolkit_\w+",
    "environment": r"CMAKE_PREFIX_PATH",
    "compile-commands": r"CMAKE_EXPORT_COMPILE_COMMANDS",
    "launcher": r"CMAKE_\w+_COMPILER_LAUNCHER|\S*ccache",
    "abi": r"-U_GLIBCXX_USE_CXX11_ABI|-D_GLIBCXX_USE_CXX11_ABI=1",
    "standard": r"-std=gnu\+\+(17|20)",
    "definitions": r"-DUSE_(DISTRIBUTED|C10D_GLOO|RPC|TENSORPIPE)",
    "prefix-map": r"-ffile-prefix-map=\S+",
    "pybind11": r"\S*pybind11-of-torch",
    "module-name": r"-DTORCH_EXTENSION_NAME=_C",
    "module-scan": r"-fmodules-ts|-fmodule-mapper=\S+|-fdeps-format=\S+|@\S+\.modmap",
    "position-independent": r"-fPI[CE]",
    "programs": r"-pie|-Wl,-shared|\S*torch_ext_program\.cpp\S*",
    "stubs": r"-Wl,--unresolved-symbols=ignore-all",
    "kept": r"-Xlinker|--push-state|--(no-)?as-needed|--pop-state|-Wl,--(no-)?as-needed\S*",
    "no-rpath": r"-Wl,-rpath,\S*",
    "run-path": r"(LD_LIBRARY_PATH=|\$\{_torch_ext_given)\S*|export",
}
ELSEWHERE: dict[str, str] = {
    "small-torch": "unit/test_sdk_facade.py",
    "site-packages": "integration/test_cmake_projects.py",
    "target-version": "integration/test_cmake_held.py",
    "cuda-source-names": "integration/test_cuda.py",
    "try-run": "integration/test_build_tree.py",
    "left-out": "integration/test_repair.py",
    "copied-in": "integration/test_grafts.py",
    "refused": "integration/test_audit.py",
    "chosen": "unit/test_selection.py",
    "opened": "integration/test_loading.py",
    "module-names": "unit/test_loader.py",
    "twice": "integration/test_loading.py",
    "damaged": "unit/test_loader.py",
    "devices": "unit/test_loader.py",
}
"""Entries that the sample cannot show, and the tests that do."""
OF_FILES = ("needed", "names", "places", "rpath", "stripped")
"""Entries that the finished files show, in the last test."""


def entries() -> list[str]:
    """Return the names of the page's entries, in its order."""
    return re.findall(r"^\| `([a-z0-9-]+)` \|", comparing.PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_each_entry_of_the_page_is_shown_by_a_test() -> None:
    """None is of something that is gone, none is twice, and none that a test knows is missing."""
    named = {*WORDS, *ELSEWHERE, *OF_FILES, *(rule[0] for rule in comparing.RULES)}
    assert len(entries()) == len(set(entries()))
    assert set(entries()) == named
    tests = Path(__file__).resolve().parent.parent
    assert [place for place in ELSEWHERE.values() if not (tests / place).exists()] == []


@pytest.fixture(scope="module")
def both(torch_cpu_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Built]:
    """Return the sample as plain CMake and as ours build it."""
    folder = tmp_path_factory.mktemp("differences")
    workshop = Workshop(folder, torch_cpu_python, wheels=folder)
    root = workshop.project("sample", SAMPLE)
    plain, ours = workshop.build("plain", root), workshop.build("environment", root)
    assert (plain.error, ours.error) == ("", "")
    return plain, ours


def unknown(words: Iterable[str]) -> list[str]:
    """Return the words that no entry of the page explains."""
    return sorted(word for word in words if not any(re.fullmatch(pattern, word) for pattern in WORDS.values()))


def words(built: Built) -> set[str]:
    """Return the words of all commands that compile and link, without the folders of the build."""
    ninja = Path(re.findall(r"CMAKE_MAKE_PROGRAM:\w+=(.*)", (built.work / "CMakeCache.txt").read_text())[0])
    text = subprocess.check_output([ninja, "-C", built.work, "-t", "commands"], text=True)
    found = set()
    for line in text.splitlines():
        if "cmake --regenerate" not in line and "cmake_symlink_library" not in line:
            found |= {shorter(word, built) for word in shlex.split(line)}
    return found


def shorter(word: str, built: Built) -> str:
    """Return a word without folders that both ways have, each in a place of its own."""
    for folder in (str(built.work), str(built.work.parent)):
        word = word.replace(folder + "/", "")
    return re.sub(r"/\S*?/(?=torch/(include|lib))|/\S*/csrc/", "", word)


def test_commands_differ_only_as_the_page_says(both: tuple[Built, Built]) -> None:
    """Each word of a command that compiles or links, in one way only, belongs to an entry."""
    plain, ours = (words(each) for each in both)
    assert unknown(plain ^ ours) == []


def test_cache_variables_differ_only_as_the_page_says(both: tuple[Built, Built]) -> None:
    """The same for what CMake keeps: names, and values where both have the name."""

    def cache(built: Built) -> dict[str, str]:
        text = (built.work / "CMakeCache.txt").read_text(encoding="utf-8")
        found = re.findall(r"^([^/#\n][^:\n]*):\w+=(.*)$", text, re.MULTILINE)
        return {name: shorter(value, built) for name, value in found if not name.endswith("-ADVANCED")}

    plain, ours = (cache(each) for each in both)
    assert unknown(name for name in {*plain, *ours} if plain.get(name) != ours.get(name)) == []


def test_dynamic_sections_differ_only_as_the_page_says(both: tuple[Built, Built]) -> None:
    """Names, NEEDED and RPATH of the finished files: `names`, `places`, `needed`, `rpath`; no symbols: `stripped`."""
    plain, ours = both
    at_hand = {path.name: elf.read(path) for path in plain.libraries}
    of_ours = {path.name: path for path in ours.libraries}
    assert sorted(at_hand) == ["_C.cpython-311-x86_64-linux-gnu.so", "libkernels.so", "libops.so.1.2"]
    hashed = next(name for name in of_ours if name.startswith("libkernels-"))
    assert sorted(of_ours) == ["_C.cpython-311-x86_64-linux-gnu.so", hashed, "libops.so.1"]  # names
    assert {path.relative_to(ours.site).parts[1] for path in of_ours.values()} == {"_torch_ext"}  # places
    read = {name: elf.read(path) for name, path in of_ours.items()}
    assert [name for name in at_hand["libops.so.1.2"].needed if name not in read["libops.so.1"].needed] != []  # needed
    assert set(read["libops.so.1"].needed) <= {*at_hand["libops.so.1.2"].needed, hashed}
    assert at_hand["libops.so.1.2"].runpath == ("$ORIGIN",)
    assert all(entry.startswith("$ORIGIN") for name in read for entry in read[name].runpath)  # rpath
    for path in of_ours.values():
        assert "no symbols" in subprocess.check_output(["nm", path], text=True, stderr=subprocess.STDOUT)  # stripped
