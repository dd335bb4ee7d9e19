"""What the author's CMake says and what has to hold all the same: both are done, or the build says which and why."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trees
from hatch_torch_ext import elf, repair
from hatch_torch_ext.base.errors import CompileError
from hatch_torch_ext.config import CMakeConfig
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.sdk import exports
from hatch_torch_ext.sdk import facts as sdk_facts
from hatch_torch_ext.sdk import thin as sdk_facade
from hatch_torch_ext.values import Tool, Toolkit
from workbench import ENTRY, QUICK

if TYPE_CHECKING:
    from workbench import Workbench


@pytest.fixture
def thin_python(bench: Workbench, tmp_path: Path) -> Workbench:
    """Return a thin entry as CMake's interpreter sees it: a Python without torch, and the small torch before it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = (tmp_path / "env").glob("lib/python3.*/site-packages")
    facade = tmp_path / "facade"
    for name, text in sdk_facade.facade_files(sdk_facts.read(bench.sdk.prefix)):
        (facade / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
        (facade / "torch" / name).write_bytes(text)
    shutil.copy(bench.sdk.prefix / "version.py", facade / "torch")
    environment = replace(
        bench.environment,
        prefix=tmp_path / "env",
        python=tmp_path / "env" / "bin" / "python",
        bin=tmp_path / "env" / "bin",
        site_packages=site,
    )
    sdk = replace(bench.sdk, kind="thin", python_path=(facade,), left_out=("functorch", "sympy", "torchgen"))
    return replace(bench, environment=environment, sdk=sdk)


def write(folder: Path, **files: str) -> Path:
    """Write a project: ``CMakeLists`` and ``name_suffix`` -> ``name.suffix``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        file = "CMakeLists.txt" if name == "CMakeLists" else ".".join(name.rsplit("_", 1))
        (folder / file).write_text(text, encoding="utf-8")
    return folder


# --- CMAKE_PROJECT_TOP_LEVEL_INCLUDES of the author

AUTHORS = """
set(AUTHOR_RAN "the author's ran")
macro(author_provide method package)
  if("${package}" STREQUAL "Vendor")
    set(Vendor_FOUND TRUE)
  endif()
endmacro()
cmake_language(SET_DEPENDENCY_PROVIDER author_provide
  SUPPORTED_METHODS FIND_PACKAGE)
"""
ASKS_BOTH = """
cmake_minimum_required(VERSION 3.18)
if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/set_in_the_project.txt")
  set(CMAKE_PROJECT_TOP_LEVEL_INCLUDES "${CMAKE_CURRENT_SOURCE_DIR}/authors.cmake")
endif()
project(both LANGUAGES C)
find_package(Vendor REQUIRED)
set(Torch_DIR /nowhere)
find_package(Torch REQUIRED)
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/said.txt" "${AUTHOR_RAN}\\n${TORCH_INSTALL_PREFIX}\\n")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/said.txt" DESTINATION .)
"""


@pytest.mark.parametrize("way", ["args", "define", "project", "preset", "toolchain"])
def test_top_level_includes_of_the_author_run_beside_ours(way: str, bench: Workbench, tmp_path: Path) -> None:
    """Conan's way: a file with a dependency provider. It answers for its packages, ours for torch."""
    source = write(tmp_path / "both", CMakeLists=ASKS_BOTH, authors_cmake=AUTHORS)
    authors = str(source / "authors.cmake")
    variable = "CMAKE_PROJECT_TOP_LEVEL_INCLUDES"
    cmake = QUICK
    match way:
        case "args":
            cmake = replace(QUICK, args=(f"-D{variable}:PATH={authors}",))
        case "define":
            cmake = replace(QUICK, define=((variable, authors),))
        case "project":
            write(source, set_in_the_project_txt="")
        case "preset":
            preset = {"name": "author", "cacheVariables": {variable: authors}}
            write(source, CMakePresets_json=json.dumps({"version": 3, "configurePresets": [preset]}))
            cmake = replace(QUICK, args=("--preset", "author"))
        case _:
            write(source, authors_toolchain_cmake=f'set({variable} "{authors}")\n')
            cmake = replace(QUICK, args=("--toolchain", str(source / "authors_toolchain.cmake")))
    tree = bench.build("", source=source, cmake=cmake)
    assert (tree.prefix / "said.txt").read_text().splitlines() == [
        "the author's ran",
        str(tree.prefix.parent / "torch"),
    ]


def test_a_preset_gives_the_build_type_and_no_generator(bench: Workbench, tmp_path: Path) -> None:
    """Where it gives no build type, `Release` holds; the option goes before it. Multi-Config would build Debug."""
    text = """
cmake_minimum_required(VERSION 3.18)
project(p LANGUAGES C)
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/said.txt" "${CMAKE_BUILD_TYPE} ${CMAKE_GENERATOR}")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/said.txt" DESTINATION .)
"""
    source = write(tmp_path / "p", CMakeLists=text)
    preset = CMakeConfig(args=("--preset", "author"))
    for given, cmake, expected in (
        ({"CMAKE_BUILD_TYPE": "MinSizeRel"}, preset, "MinSizeRel"),
        ({"CMAKE_BUILD_TYPE": "Debug"}, replace(preset, args=("--preset author",)), "Debug"),
        ({}, preset, "Release"),
        ({"CMAKE_BUILD_TYPE": "MinSizeRel"}, replace(preset, build_type="Debug"), "Debug"),
    ):
        author = {"name": "author", "generator": "Ninja Multi-Config", "cacheVariables": given}
        write(source, CMakePresets_json=json.dumps({"version": 3, "configurePresets": [author]}))
        tree = bench.build("", source=source, cmake=cmake)
        assert (tree.prefix / "said.txt").read_text() == f"{expected} Ninja"


@pytest.mark.performs("Set CMAKE_PROJECT_<name>_INCLUDE_BEFORE")
def test_a_project_that_displaces_our_file_is_refused_and_both_remedies_work(bench: Workbench, tmp_path: Path) -> None:
    """CMAKE_PROJECT_INCLUDE_BEFORE, set in the project: what we hold it to would not be held. The message helps."""
    text = """
cmake_minimum_required(VERSION 3.18)
set(VARIABLE "${CMAKE_CURRENT_SOURCE_DIR}/authors.cmake")
project(own LANGUAGES C)
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/said.txt" "${AUTHOR_RAN}")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/said.txt" DESTINATION .)
"""
    authors = 'set(AUTHOR_RAN "it ran")\n'
    source = write(
        tmp_path / "p", CMakeLists=text.replace("VARIABLE", "CMAKE_PROJECT_INCLUDE_BEFORE"), authors_cmake=authors
    )
    with pytest.raises(CompileError) as caught:
        bench.build("", source=source)
    assert str(caught.value) == (
        f"matrix.2.13: the project in {source} overwrites CMAKE_PROJECT_INCLUDE_BEFORE, by which "
        "hatch-torch-ext sets CUDA architectures and the C++ ABI, and keeps paths of this machine out of the wheel. "
        "Set CMAKE_PROJECT_<name>_INCLUDE_BEFORE instead, with the name that the project has in project(), or "
        "set CMAKE_PROJECT_INCLUDE_BEFORE in the option `cmake.define`, which keeps both. "
        f"The whole log is {bench.work}/matrix.2.13/log.txt"
    )
    write(source, CMakeLists=text.replace("VARIABLE", "CMAKE_PROJECT_own_INCLUDE_BEFORE"))
    assert (bench.build("", source=source).prefix / "said.txt").read_text() == "it ran"
    write(source, CMakeLists=text.replace("VARIABLE", "OTHER"))
    variable, file = "CMAKE_PROJECT_INCLUDE_BEFORE", str(source / "authors.cmake")
    for cmake in (
        replace(QUICK, define=((variable, file),)),
        replace(QUICK, args=(f"-D{variable}:FILEPATH={file}",)),
        replace(QUICK, args=("-D", f"{variable}={file}")),
    ):
        tree = bench.build("", source=source, cmake=cmake)
        assert (tree.prefix / "said.txt").read_text() == "it ran"


def test_a_log_without_cmakes_warnings_of_our_own_options(bench: Workbench) -> None:
    """What we give CMake is not what CMake warns of."""
    tree = bench.build("names", cmake=replace(QUICK, define=(("NOBODY_READS_THIS", "1"),)))
    log = tree.log.read_text().lower()
    assert " is deprecated" not in log
    assert "cmake warning" not in log


def test_a_toolkit_is_reported_only_where_cmake_uses_it(bench: Workbench, tmp_path: Path) -> None:
    """A torch for CUDA and an nvcc on the machine are not reported to a project that compiles no CUDA."""
    nvcc = Tool(path=tmp_path / "nvcc", version="13.0.88")
    cuda = Toolkit(root=tmp_path, compiler=nvcc, version="13.0", source="the system", host=bench.toolchain.cxx.path)
    bench.toolchain = replace(bench.toolchain, toolkit=cuda)
    bench.build("names")
    assert bench.reports == []


# --- one C++ ABI

TEXT = "#include <string>\nstd::string {}(std::string text) {{ return text; }}\n"


@pytest.mark.parametrize("right", [True, False])
def test_the_cxx_abi_holds_for_targets_that_do_not_link_torch(right: bool, bench: Workbench, tmp_path: Path) -> None:  # noqa: FBT001  a parameter
    """Whatever way a helper was given the other std::string, it has torch's, and the build says so."""
    bench.sdk = replace(bench.sdk, cxx11_abi=right)
    wrong = f"_GLIBCXX_USE_CXX11_ABI={int(not right)}"
    text = f"""
cmake_minimum_required(VERSION 3.18)
project(abi LANGUAGES CXX)
set(CMAKE_CXX_FLAGS "${{CMAKE_CXX_FLAGS}} -Werror")
add_library(silent STATIC silent.cpp)
add_library(defined STATIC defined.cpp)
target_compile_definitions(defined PRIVATE {wrong})
add_library(option STATIC option.cpp)
target_compile_options(option PUBLIC -D{wrong})
add_library(source STATIC source.cpp)
set_source_files_properties(source.cpp PROPERTIES COMPILE_OPTIONS -D{wrong})
add_library(follows STATIC follows.cpp)
target_link_libraries(follows PRIVATE option)
set(CMAKE_CXX_FLAGS "${{CMAKE_CXX_FLAGS}} -D{wrong}")
add_library(abi SHARED empty.cpp)
set_target_properties(silent defined option source follows PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(abi PRIVATE -Wl,--whole-archive silent defined option source follows -Wl,--no-whole-archive)
install(TARGETS abi LIBRARY DESTINATION .)
"""
    helpers = ("silent", "defined", "option", "source", "follows")
    source = write(
        tmp_path / "abi",
        CMakeLists=text,
        empty_cpp="",
        **{f"{name}_cpp": TEXT.format(name) for name in helpers},
    )
    tree = bench.build("", source=source)
    names = elf.read(tree.prefix / "libabi.so").exported
    for helper in helpers:
        (name,) = [name for name in names if f"{len(helper)}{helper}" in name]
        assert ("cxx11" in name) is right, name
    told = [report for report in bench.reports if "GLIBCXX" in report]
    targets = sorted(report.split()[1].rstrip(":") for report in told)
    # In the top folder CMAKE_CXX_FLAGS is, in the end, that of every target.
    assert targets == ["abi", "defined", "follows", "option", "silent", "source"]
    assert told[0].startswith("target ")
    assert told[0].endswith(
        f"{wrong} is compiled as _GLIBCXX_USE_CXX11_ABI={int(right)}, the C++ ABI of torch 2.13.0: a process has one"
    )


# --- the stable ABI's version

STABLE = """
cmake_minimum_required(VERSION 3.18)
project(target_version LANGUAGES CXX)
find_package(Torch REQUIRED)
add_library(target_version SHARED empty.cpp)
target_link_libraries(target_version PRIVATE torch)
{line}
install(TARGETS target_version LIBRARY DESTINATION .)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "target_compile_definitions(target_version PRIVATE TORCH_TARGET_VERSION={value})",
        "target_compile_options(target_version PRIVATE -DTORCH_TARGET_VERSION={value})",
        "add_compile_definitions(TORCH_TARGET_VERSION={value})",
        'set(CMAKE_CXX_FLAGS "-DTORCH_TARGET_VERSION={value}")',
        "set_source_files_properties(empty.cpp PROPERTIES COMPILE_DEFINITIONS TORCH_TARGET_VERSION={value})",
    ],
)
def test_a_target_version_above_the_entrys_torch_is_an_error_that_names_both(
    line: str, thin: Workbench, tmp_path: Path
) -> None:
    """The variant would promise 2.13 and need 2.14. Without the line, as the message says, it builds."""
    thin.entry = replace(ENTRY, stable_abi=True)
    written = line.format(value="0x020e000000000000ULL")
    source = write(tmp_path / "stable", CMakeLists=STABLE.format(line=written), empty_cpp="")
    with pytest.raises(CompileError) as caught:
        thin.build("", source=source)
    said = " ".join(str(caught.value).split())
    assert (
        "target target_version sets TORCH_TARGET_VERSION=0x020e000000000000ULL (torch 2.14), above that of this entry, "
        "0x020d000000000000 (torch 2.13.0)"
    ) in said
    write(source, CMakeLists=STABLE.format(line=""))
    assert thin.build("", source=source).files == ("libtarget_version.so",)
    # The other way that the message names: an entry of that torch.
    write(source, CMakeLists=STABLE.format(line=written))
    thin.sdk = replace(thin.sdk, version="2.14.0")
    assert thin.build("", source=source).files == ("libtarget_version.so",)


def test_a_target_version_at_or_below_the_entrys_torch_is_the_authors(thin: Workbench, tmp_path: Path) -> None:
    """What promises less than the entry serves every torch that the entry does."""
    thin.entry = replace(ENTRY, stable_abi=True)
    for value in ("0x020d000000000000", "0x020a000000000000", "(2ULL<<56)|(10ULL<<48)"):
        line = f'target_compile_definitions(target_version PRIVATE "TORCH_TARGET_VERSION={value}")'
        source = write(tmp_path / "stable", CMakeLists=STABLE.format(line=line), empty_cpp="")
        assert thin.build("", source=source).files == ("libtarget_version.so",)


LOWER = """
cmake_minimum_required(VERSION 3.18)
project(stable LANGUAGES CXX)
find_package(Torch REQUIRED)
add_compile_options(-Werror)
set(lower 0x020a000000000000)
add_library(of_target SHARED empty.cpp)
target_compile_definitions(of_target PRIVATE TORCH_TARGET_VERSION=${lower})
add_library(said INTERFACE)
target_compile_options(said INTERFACE -DTORCH_TARGET_VERSION=${lower})
add_library(of_linked SHARED empty.cpp)
target_link_libraries(of_linked PRIVATE said)
add_library(of_source SHARED empty.cpp other.cpp)
set_source_files_properties(other.cpp PROPERTIES COMPILE_DEFINITIONS TORCH_TARGET_VERSION=${lower})
add_library(of_none SHARED empty.cpp)
foreach(target of_target of_linked of_source of_none)
  target_link_libraries(${target} PRIVATE torch_stable)
endforeach()
install(TARGETS of_target of_linked of_source of_none LIBRARY DESTINATION .)
"""


def test_a_lower_target_version_of_the_projects_is_the_only_one(thin: Workbench, tmp_path: Path) -> None:
    """CASE 84: each source is compiled with one value, the author's where there is one; CASE 83: and without USE_CUDA.

    The torch is a build for CUDA, and the entry does not declare `cuda`.
    """
    thin.entry = replace(ENTRY, stable_abi=True)
    thin.sdk = replace(thin.sdk, backend=Backend("cuda", "13.0"))
    for name in ("libc10_cuda.so", "libtorch_cuda.so"):
        (thin.sdk.library_dir / name).write_bytes(exports.stub(name, thin.environment.interpreter.machine))
    source = write(tmp_path / "stable", CMakeLists=LOWER, empty_cpp="#ifdef USE_CUDA\n#error\n#endif\n", other_cpp="")
    thin.build("", source=source)
    commands = json.loads((thin.work / "matrix.2.13" / "build" / "compile_commands.json").read_text())
    found = {Path(each["output"]): re.findall(r"TORCH_TARGET_VERSION=(\S+)", each["command"]) for each in commands}
    assert {f"{path.parent.stem} {path.stem}": values for path, values in found.items()} == {
        "of_target empty.cpp": ["0x020a000000000000"],
        "of_linked empty.cpp": ["0x020a000000000000"],
        "of_source empty.cpp": ["0x020d000000000000"],
        "of_source other.cpp": ["0x020a000000000000"],
        "of_none empty.cpp": ["0x020d000000000000"],
    }


# --- modules of C++20

SCANNED = """
cmake_minimum_required(VERSION 3.28)
project(scanned LANGUAGES CXX)
find_package(Torch REQUIRED)
set(CMAKE_CXX_SCANDEP_SOURCE "")  # as for a compiler that comes without its scanner
{line}
add_library(scanned SHARED empty.cpp)
target_link_libraries(scanned PRIVATE torch)
install(TARGETS scanned LIBRARY DESTINATION .)
"""


def test_sources_are_scanned_for_modules_only_where_the_project_asks(bench: Workbench, tmp_path: Path) -> None:
    """CASE 79: torch's C++20 and CMake's policies of 3.28 ask for a scanner that clang may lack; GCC 14 has one."""
    source = write(tmp_path / "scanned", CMakeLists=SCANNED.format(line=""), empty_cpp="")
    assert bench.build("", source=source).files == ("libscanned.so",)
    write(source, CMakeLists=SCANNED.format(line="set(CMAKE_CXX_SCAN_FOR_MODULES ON)"))
    with pytest.raises(CompileError, match=r"failed to parse CMakeFiles/scanned\.dir/empty\.cpp\.o\.ddi"):
        bench.build("", source=source)


# --- pybind11

PYBIND11 = """
cmake_minimum_required(VERSION 3.18)
project(pybind LANGUAGES CXX)
find_package(Torch REQUIRED)
find_package(pybind11 CONFIG REQUIRED)
{target}
target_link_libraries(pybind PRIVATE {torch})
set_target_properties(pybind PROPERTIES PREFIX "" SUFFIX .so)
install(TARGETS pybind LIBRARY DESTINATION .)
"""
VERSION = """
#include <pybind11/detail/common.h>
#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)
extern "C" const char used[] = "pybind11=" EXPANDED(PYBIND11_VERSION_MAJOR) "." EXPANDED(PYBIND11_VERSION_MINOR);
"""
BY_FUNCTION = "pybind11_add_module(pybind MODULE version.cpp)"
BY_VARIABLE = "add_library(pybind MODULE version.cpp)\ninclude_directories(${pybind11_INCLUDE_DIRS})\n"


@pytest.mark.performs("torch's own pybind11")
@pytest.mark.slow
@pytest.mark.parametrize("target", [BY_FUNCTION, BY_VARIABLE])
def test_torchs_own_pybind11_comes_first_for_what_links_torch(
    target: str, bench: Workbench, old_pybind11: Path, tmp_path: Path
) -> None:
    """An older pybind11 among the dependencies gives CMake's functions; headers are those that torch was made with."""
    bench.environment = replace(bench.environment, site_packages=old_pybind11)
    text = PYBIND11.format(target=target, torch="Torch::Python")
    source = write(tmp_path / "pybind", CMakeLists=text, version_cpp=VERSION)
    tree = bench.build("", source=source)
    assert b"pybind11=3.0\0" in (tree.prefix / "pybind.so").read_bytes()
    (said,) = bench.reports
    assert f"the headers are those of the pybind11 in torch 2.13.0, not of {old_pybind11}/pybind11" in said


def test_pybind11_that_the_project_brings_is_named(bench: Workbench, tmp_path: Path) -> None:
    """The project adds its own copy by add_subdirectory, so that `pybind11_DIR` is not set; the message names it."""
    own = write(
        tmp_path / "pybind" / "extern",
        CMakeLists="project(pybind11 CXX)\nadd_library(headers INTERFACE)\n"
        "add_library(pybind11::headers ALIAS headers)\n",
    )
    source = write(
        tmp_path / "pybind",
        CMakeLists="cmake_minimum_required(VERSION 3.18)\nproject(p CXX)\nfind_package(Torch REQUIRED)\n"
        "add_subdirectory(extern)\nadd_library(pybind MODULE version.cpp)\n"
        "target_link_libraries(pybind PRIVATE Torch::Python pybind11::headers)\n"
        "install(TARGETS pybind LIBRARY DESTINATION .)\n",
        version_cpp=VERSION,
    )
    bench.build("", source=source)
    (said,) = bench.reports
    assert f"the pybind11 in torch 2.13.0, not of {own}: types that torch registers" in said


def test_what_does_not_link_torch_keeps_its_own_pybind11(bench: Workbench, old_pybind11: Path, tmp_path: Path) -> None:
    """A module that has nothing to do with torch is compiled with what its author chose."""
    bench.environment = replace(bench.environment, site_packages=old_pybind11)
    text = PYBIND11.format(target=BY_FUNCTION, torch="")
    source = write(tmp_path / "pybind", CMakeLists=text, version_cpp=VERSION)
    tree = bench.build("", source=source)
    assert b"pybind11=2.11\0" in (tree.prefix / "pybind.so").read_bytes()
    assert bench.reports == []


# --- what is not there, and what brings it


def git(folder: Path, *arguments: str) -> None:
    """Run git in ``folder``."""
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def commit(folder: Path) -> None:
    """Commit all that is in ``folder``."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")


@pytest.mark.performs("git clone --recurse-submodules", "submodule update --init")
def test_a_submodule_that_is_not_checked_out_is_named_and_the_command_helps(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CMake itself reports a folder without CMakeLists.txt. The command of our message, unchanged, checks it out."""
    for name, value in {
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
        "GIT_CONFIG_KEY_1": "user.name",
        "GIT_CONFIG_VALUE_1": "a",
        "GIT_CONFIG_KEY_2": "user.email",
        "GIT_CONFIG_VALUE_2": "a@b",
    }.items():
        monkeypatch.setenv(name, value)

    vendor = write(tmp_path / "vendor", CMakeLists="install(FILES here.txt DESTINATION .)\n", here_txt="")
    original = write(
        tmp_path / "original" / "csrc",
        CMakeLists="cmake_minimum_required(VERSION 3.18)\nproject(p C)\nadd_subdirectory(../extern/v extern)\n",
    ).parent
    for folder in (vendor, original):
        git(folder, "init", "-q")
    commit(vendor)
    git(original, "submodule", "add", "-q", str(vendor), "extern/v")
    commit(original)
    clone = tmp_path / "a clone"
    subprocess.run(["git", "clone", "-q", str(original), str(clone)], check=True)
    with pytest.raises(CompileError) as caught:
        bench.build("", source=clone / "csrc")
    (hint,) = [line for line in str(caught.value).splitlines() if ".gitmodules" in line]
    assert hint.startswith(
        f"{clone}/.gitmodules names the submodule extern/v, and that folder is empty. Check it out: "
    )
    subprocess.run(hint.split("`")[1], shell=True, check=True, capture_output=True)  # noqa: S602  as it stands
    assert bench.build("", source=clone / "csrc").files == ("here.txt",)
    # Sources that were packed that way have no repository to ask.
    shutil.rmtree(clone / "extern" / "v")
    shutil.rmtree(clone / ".git")
    with pytest.raises(CompileError, match=r"Take a clone, with `git clone --recurse-submodules`\."):
        bench.build("", source=clone / "csrc")
    again = tmp_path / "again"
    subprocess.run(["git", "clone", "-q", "--recurse-submodules", str(original), str(again)], check=True)
    assert bench.build("", source=again / "csrc").files == ("here.txt",)


RUNS_PYTHON = """
cmake_minimum_required(VERSION 3.18)
project(runs LANGUAGES C)
find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(COMMAND ${Python_EXECUTABLE} -c "import torch, {module}" RESULT_VARIABLE failed ERROR_VARIABLE said)
if(failed)
  message(FATAL_ERROR "the generator failed: ${said}")
endif()
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/said.txt" "")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/said.txt" DESTINATION .)
"""


@pytest.mark.performs('Set `sdk = "environment"`', 'set `sdk = "environment"`')
@pytest.mark.slow
@pytest.mark.parametrize("module", ["torchgen", "functorch", "sympy"])
def test_python_code_of_torchs_wheel_needs_the_full_torch_and_the_error_says_so(
    module: str, bench: Workbench, thin_python: Workbench, tmp_path: Path
) -> None:
    """A generator that runs torchgen fails with the thin SDK; with the full torch, as the error says, it runs."""
    source = write(tmp_path / "runs", CMakeLists=RUNS_PYTHON.replace("{module}", module))
    with pytest.raises(CompileError) as caught:
        thin_python.build("", source=source)
    assert f"No module named '{module}'" in " ".join(str(caught.value).split())
    assert (
        f"`{module}` comes with torch's wheel or its requirements, of which the thin torch SDK has only headers "
        'and link stubs: set `sdk = "environment"` in the hook\'s configuration to build with the full torch.'
    ) in str(caught.value)
    assert bench.build("", source=source, sdk="environment").files == ("said.txt",)


def test_a_module_that_is_nobodys_belongs_to_the_dependencies(bench: Workbench, tmp_path: Path) -> None:
    """A Python module that torch does not install has to be a dependency of the author's environment."""
    source = write(tmp_path / "runs", CMakeLists=RUNS_PYTHON.replace("{module}", "a_generator_of_theirs"))
    with pytest.raises(CompileError, match="Python has no `a_generator_of_theirs` here: add it to the `dependencies`"):
        bench.build("", source=source)


# --- the same bytes for every build of a release

CALLS_TORCH = """
namespace c10::detail {
[[noreturn]] void torchInternalAssertFail(const char*, const char*, unsigned, const char*, const char*);
}
extern "C" void fails() { c10::detail::torchInternalAssertFail("f", "calls.cpp", 1, "no", ""); }
"""


@pytest.mark.slow
@pytest.mark.parametrize("libraries", ["torch", "${TORCH_LIBRARIES}", "Torch::Torch"])
def test_a_cpu_variant_is_the_same_bytes_for_a_cuda_build_of_the_release(
    libraries: str, bench: Workbench, tmp_path: Path
) -> None:
    """A CUDA build has two libraries more to link against: what uses neither does not show that they were there."""
    bench.toolchain = replace(
        bench.toolchain, **{name: getattr(trees.toolchain(), name) for name in ("patchelf", "strip", "objcopy")}
    )
    bench.config = replace(bench.config, root=tmp_path)
    text = "cmake_minimum_required(VERSION 3.18)\nproject(calls LANGUAGES CXX)\nfind_package(Torch REQUIRED)\n"
    text += f"add_library(calls SHARED calls.cpp)\ntarget_link_libraries(calls PRIVATE {libraries})\n"
    # Some linkers are made to run as-needed, and would hide it.
    text += 'target_link_options(calls PRIVATE "LINKER:--no-as-needed")\ninstall(TARGETS calls LIBRARY DESTINATION .)\n'
    source = write(tmp_path / "csrc", CMakeLists=text, calls_cpp=CALLS_TORCH)
    cpu = bench.sdk
    more = ("libc10_cuda.so", "libtorch_cuda.so")
    folder = tmp_path / "stubs"
    folder.mkdir()
    for name in (*cpu.libraries, *more):
        (folder / name).write_bytes(exports.stub(name, bench.environment.interpreter.machine))
    names = tuple(sorted({*cpu.libraries, *more}))
    cuda = replace(cpu, backend=Backend("cuda", "13.0"), libraries=names, library_dir=folder)
    files = []
    for name, sdk in {"cpu": cpu, "cuda": cuda}.items():
        bench.sdk, bench.work = sdk, tmp_path / name
        tree = bench.build("", source=source)
        built = repair.repair(bench.setup("", source=source), tree, report=bench.reports.append)
        (file,) = built.variant.files
        assert built.variant.backend == "cpu"
        files.append((built.root / file.path).read_bytes())
    assert files[0] == files[1]
