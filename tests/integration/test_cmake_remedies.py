"""What a failed build by CMake says to do is done, as the message has it, and the same project builds."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import elf
from hatch_torch_ext.audit import python, variants
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from hatch_torch_ext.base.errors import CompileError
from hatch_torch_ext.cmake import replies
from hatch_torch_ext.repair import contents, search
from plain import KILL_NINJA
from wheels import RECORD
from workbench import ENTRY, PACKAGES, QUICK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hatch_torch_ext.values import InstallTree
    from workbench import Workbench

    Make = Callable[..., InstallTree]

HEAD = "cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES C CXX)\n"


@pytest.fixture
def make(bench: Workbench, tmp_path: Path) -> Make:
    """Return a function that writes a project, CMakeLists.txt and ``name_suffix`` -> ``name.suffix``, and builds it."""
    bench.config = replace(bench.config, root=tmp_path / "project", source=tmp_path / "project" / "csrc")

    def write_and_build(lines: str, *, on: Workbench = bench, **files: str) -> InstallTree:
        bench.config.source.mkdir(parents=True, exist_ok=True)
        (bench.config.source / "CMakeLists.txt").write_text(HEAD + lines, encoding="utf-8")
        for name, text in files.items():
            (bench.config.source / ".".join(name.rsplit("_", 1))).write_text(text, encoding="utf-8")
        on.config = bench.config
        return on.build("", source=bench.config.source)

    return write_and_build


def fails(build: Callable[[], object]) -> str:
    """Return the message of the error that a build ends with."""
    with pytest.raises(CompileError) as caught:
        build()
    return str(caught.value)


def codes(tree: InstallTree, name: str) -> list[str]:
    """Return what the audit says of a library and Python."""
    file = AuditedBinary(place=name, elf=elf.read(tree.prefix / name))
    return [found.code for found in python.check(Subject(variant="label", binaries=(file,), ours=True))]


@pytest.mark.performs("and only what is installed is packed")
def test_the_line_that_installs(make: Make) -> None:
    """Libraries are built and not installed: the line of the message, as it stands, installs them."""
    lines = "add_library(first SHARED a.c)\nadd_library(second MODULE a.c)\n"
    said = fails(lambda: make(lines, a_c="int a(void) { return 1; }"))
    (added,) = re.findall(r"^ +(install\(.*\))$", said, re.MULTILINE)
    assert make(f"{lines}{added}\n").files == ("libfirst.so", "libsecond.so")


@pytest.mark.performs("or give it PRE_EXCLUDE_REGEXES")
def test_an_install_rule_that_copies_what_libraries_need(make: Make) -> None:
    """Torch's libraries are not to be found, since no RPATH leads to them: the rule leaves them out."""
    lines = (
        "cmake_minimum_required(VERSION 3.21)\nfind_package(Torch REQUIRED)\nadd_library(mine SHARED mine.cpp)\n"
        "target_link_libraries(mine PRIVATE torch)\n"
        'install(TARGETS mine RUNTIME_DEPENDENCIES POST_EXCLUDE_REGEXES "^/" {} LIBRARY DESTINATION .)\n'
    )
    said = fails(lambda: make(lines.format(""), mine_cpp="int mine() { return 1; }"))
    (remedy,) = re.findall(r'PRE_EXCLUDE_REGEXES "\S+"', said)
    assert make(lines.format(remedy)).files == ("libmine.so",)


DEPENDENCY = """
cmake_minimum_required(VERSION 3.18)
project(dep LANGUAGES C)
add_library(dep SHARED dep.c)
install(TARGETS dep)
install(FILES dep.h DESTINATION include)
install(DIRECTORY doc DESTINATION share)
"""
BRINGS = """
include(FetchContent)
FetchContent_Declare(dep SOURCE_DIR {folder} {how})
FetchContent_MakeAvailable(dep)
add_library(mine SHARED mine.c)
target_link_libraries(mine PRIVATE dep)
install(TARGETS mine LIBRARY DESTINATION .)
"""


@pytest.mark.performs("EXCLUDE_FROM_ALL in")
def test_what_a_dependency_installs_by_itself(make: Make, bench: Workbench, tmp_path: Path) -> None:
    """CASE 82: headers and the like of a fetched project are reported; EXCLUDE_FROM_ALL leaves them out, quietly.

    The library that is then not installed is found where the build made it, and goes into the wheel.
    """
    dependency = tmp_path / "dep"
    (dependency / "doc").mkdir(parents=True)
    (dependency / "doc" / "dep.1").touch()
    (dependency / "dep.h").touch()
    (dependency / "dep.c").write_text("int dep(void) { return 1; }")
    (dependency / "CMakeLists.txt").write_text(DEPENDENCY)
    source = "int dep(void); int mine(void) { return dep(); }"
    tree = make(BRINGS.format(folder=dependency, how=""), mine_c=source)
    assert tree.files == ("include/dep.h", "lib/libdep.so", "libmine.so", "share/doc/dep.1")
    (said,) = [line for line in bench.reports if "install rules of dep" in line]
    assert "put include/dep.h, lib/libdep.so, share/doc into the wheel. EXCLUDE_FROM_ALL in Fetch" in said
    bench.reports.clear()
    tree = make(BRINGS.format(folder=dependency, how="EXCLUDE_FROM_ALL"), mine_c=source)
    assert tree.files == ("libmine.so",)
    assert not any("install rules of" in line for line in bench.reports)
    found = search.Search(machine="x86_64", build=tree.log.parent / "build", prefixes=(), environ={})
    (binary,) = contents.read(bench.setup(""), tree, report=bench.reports.append).binaries
    library = found.find("libdep.so", binary)
    assert library is not None
    assert library[0].is_relative_to(tree.log.parent / "build" / "_deps")


@pytest.mark.performs("and the project has no shared library or module")
def test_the_lines_of_a_library(make: Make) -> None:
    """A project without any shared library: its lines, with a source of that name, make one that links torch."""
    lines = "add_library(core STATIC a.c)\n"
    said = fails(lambda: make(lines, a_c="int a(void) { return 1; }"))
    assert "only core (static_library)" in said
    added = "\n".join(re.findall(r"^ +(\w+\(.*\))$", said, re.MULTILINE))
    tree = make(f"{lines}{added}\n", my_ops_cpp='extern "C" int ops() { return 1; }')
    assert tree.files == ("libmy_ops.so",)


@pytest.mark.performs("Use a relative destination")
def test_the_destination(make: Make) -> None:
    """An absolute destination is made the relative one of the message."""
    lines = "add_library(ops SHARED a.c)\ninstall(TARGETS ops DESTINATION {})\n"
    said = fails(lambda: make(lines.format("/opt/left_behind"), a_c="int a(void) { return 1; }"))
    (relative,) = re.findall(r"`install\(… DESTINATION (\S+)\)`", said)
    assert make(lines.format(relative)).files == ("libops.so",)


@pytest.mark.performs("Correct this in the project's sources")
def test_sources_that_are_corrected(make: Make) -> None:
    """The error of the compiler names file and line; the next build compiles what was mended."""
    lines = "add_library(ops SHARED a.c)\ninstall(TARGETS ops DESTINATION .)\n"
    said = fails(lambda: make(lines, a_c="int a(void) { return missing; }"))
    assert "Correct this in the project's sources" in said
    assert "a.c:1:" in said
    assert make(lines, a_c="int a(void) { return 1; }").files == ("libops.so",)


@pytest.mark.performs("raise the limit of the container")
def test_a_compiler_that_gets_too_little_memory(make: Make) -> None:
    """The sources are not to blame; the limit is raised, or the file is split, and the next build compiles."""
    limited = 'set(CMAKE_C_COMPILER_LAUNCHER sh -c "ulimit -v {} && exec \\"$0\\" \\"$@\\"")\n'
    lines = "add_library(ops SHARED {})\ninstall(TARGETS ops DESTINATION .)\n"
    large = "char a[] = {" + "1," * 600_000 + "};"
    said = fails(lambda: make(limited.format(60_000) + lines.format("a.c"), a_c=large))
    assert "A compiler was killed, or got no more memory, though no other ran" in said
    assert "raise the limit of the container or batch job, or split the file that was compiled" in said
    assert "Correct this" not in said
    assert make(limited.format(2_000_000) + lines.format("a.c"), a_c=large).files == ("libops.so",)
    halves = {f"{name}_c": f"char {name}[] = {{1}};" for name in ("a", "b")}
    assert make(limited.format(60_000) + lines.format("a.c b.c"), **halves).files == ("libops.so",)


def test_a_killed_ninja(make: Make) -> None:
    """It is called killed, and the same command goes on."""
    lines = """
add_custom_command(OUTPUT a.c COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/once.sh)
add_library(ops SHARED a.c)
install(TARGETS ops DESTINATION .)
"""
    once = f"if mkdir once; then {KILL_NINJA}; sleep 9; fi; echo 'int a;' > a.c\n"
    said = fails(lambda: make(lines, once_sh=once))
    assert "ninja was killed, most likely because memory ran out: " in said
    assert "and run the same command again" in said
    assert make(lines, once_sh=once).files == ("libops.so",)


@pytest.mark.performs("correct the version in CMakeLists.txt")
def test_the_version_that_a_project_asks_for(make: Make) -> None:
    """The version in CMakeLists.txt is made the entry's own."""
    lines = "find_package(Torch {} REQUIRED)\nfile(WRITE ${{CMAKE_BINARY_DIR}}/a.txt)\n"
    lines += "install(FILES ${{CMAKE_BINARY_DIR}}/a.txt DESTINATION .)\n"
    said = fails(lambda: make(lines.format("2.14")))
    assert "correct the version in CMakeLists.txt" in said
    assert make(lines.format(ENTRY.torch_requirement.removeprefix("torch==").removesuffix(".*"))).files == ("a.txt",)


@pytest.mark.performs("give it sources of its own")
def test_sources_of_a_stable_entry(make: Make, thin: Workbench) -> None:
    """Sources of its own where the variable of the message is ON; or an entry without `abi`."""
    thin.entry = replace(ENTRY, stable_abi=True)
    lines = (
        "find_package(Torch REQUIRED)\nadd_library(ops SHARED {})\ntarget_link_libraries(ops PRIVATE torch)\n"
        "install(TARGETS ops DESTINATION .)\n"
    )
    source = "#include <ATen/cpu/vec/intrinsics.h>\n"
    said = fails(lambda: make(lines.format("ops.cpp"), on=thin, ops_cpp=source))
    (variable,) = re.findall(r"where (TORCH_EXT_\w+) is ON", said)
    chosen = f"if({variable})\nset(own stable.cpp)\nelse()\nset(own ops.cpp)\nendif()\n"
    assert make(chosen + lines.format("${own}"), on=thin, stable_cpp="int stable;").files == ("libops.so",)
    thin.entry = ENTRY
    assert make(lines.format("ops.cpp"), on=thin).files == ("libops.so",)


@pytest.mark.performs("link Torch::Python")
def test_headers_of_python_in_a_library(make: Make) -> None:
    """Torch::Python has them, and the library is then for one Python, as the audit says.

    The other header is that of the package `operators`, whose test finds nothing of Python in it.
    """
    lines = (
        "find_package(Torch REQUIRED)\nadd_library(ops SHARED ops.cpp)\ntarget_link_libraries(ops PRIVATE {})\n"
        "install(TARGETS ops DESTINATION .)\n"
    )
    source = '#include <torch/csrc/python_headers.h>\nextern "C" void keep(PyObject* it) {{ Py_{}Ref(it); }}'
    said = fails(lambda: make(lines.format("torch"), ops_cpp=source.format("Inc")))
    target, header, instead = re.search(r"link (\S+), or include (\S+) instead of (\S+):", said).groups()  # type: ignore[union-attr]
    assert instead == "torch/extension.h"
    assert codes(make(lines.format(target), ops_cpp=source.format("Inc")), "libops.so") == ["python-in-library"]
    assert f"#include <{header}>\n" in (PACKAGES / "operators" / "operators.cpp").read_text(encoding="utf-8")


@pytest.mark.performs(
    "name the folder that has it by `target_include_directories`",
    "include that header of torch only in sources for CUDA",
)
def test_headers_of_torch_that_include_what_torch_lacks(make: Make) -> None:
    """Nlohmann's JSON, which some headers of torch's wheel include, and CUDA's own headers where there is no CUDA."""
    lines = (
        "find_package(Torch REQUIRED)\nadd_library(ops SHARED ops.cpp)\ntarget_link_libraries(ops PRIVATE torch)\n"
        "install(TARGETS ops DESTINATION .)\n"
    )
    said = fails(lambda: make(lines, ops_cpp="#include <torch/csrc/export/upgrader.h>\n"))
    assert "torch's own header `torch/csrc/export/upgrader.h` includes `nlohmann/json.hpp`, which torch's wheel" in said
    (command,) = re.findall(r"by `(\w+)`", said)
    json = "namespace nlohmann { struct json { static json object(); }; }\n"
    moved = f"file(COPY json.hpp DESTINATION ${{CMAKE_BINARY_DIR}}/more/nlohmann)\n{lines}"
    assert make(f"{moved}{command}(ops PRIVATE ${{CMAKE_BINARY_DIR}}/more)\n", json_hpp=json).files == ("libops.so",)
    said = fails(lambda: make(lines, ops_cpp="#include <ATen/cuda/ATenCUDAGeneral.h>\n"))
    assert "includes `cuda.h`, which is CUDA's, and this entry is built without CUDA" in said
    only_there = "#ifdef USE_CUDA\n#include <ATen/cuda/ATenCUDAGeneral.h>\n#endif\n"
    assert make(lines, ops_cpp=only_there).files == ("libops.so",)


@pytest.mark.performs("or build it for each Python")
def test_pybind11_with_the_limited_api(make: Make) -> None:
    """A module that CMake builds for the limited API, on torch's pybind11; for its own Python it builds."""
    lines = (
        "find_package(Torch REQUIRED)\n"
        "find_package(Python REQUIRED COMPONENTS Interpreter Development.Module Development.SABIModule)\n"
        "Python_add_library(m MODULE {} WITH_SOABI m.cpp)\ntarget_link_libraries(m PRIVATE Torch::Python)\n"
        # The first error is enough: there are thousands.
        "target_compile_options(m PRIVATE -Wfatal-errors)\ninstall(TARGETS m DESTINATION .)\n"
    )
    source = '#include <pybind11/pybind11.h>\nPYBIND11_MODULE(m, m) { m.attr("answer") = 42; }\n'
    said = fails(lambda: make(lines.format("USE_SABI 3.9"), m_cpp=source))
    assert "or build it for each Python (Development.Module, no USE_SABI)." in said
    (name,) = make(lines.format("").replace(" Development.SABIModule", "")).files
    assert name.startswith("m.cpython-")


@pytest.mark.performs('`cmake.torch-package = "upstream"` out')
def test_torchs_own_package_without_a_toolkit(bench: Workbench, tmp_path: Path) -> None:
    """A torch for CUDA stops its own CMake package where there is no toolkit; without the option, ours answers."""
    share = bench.sdk.prefix / "share" / "cmake"
    stops = "Your installed Caffe2 version uses CUDA but I cannot find the CUDA "
    assert stops in (share / "Caffe2" / "Caffe2Config.cmake").read_text(encoding="utf-8")
    prefix = tmp_path / "torch"
    shutil.copytree(share / "Torch", prefix / "share" / "cmake" / "Torch")
    for_cuda = prefix / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    for_cuda.write_text(f'message(FATAL_ERROR "{stops}libraries.")\n', encoding="utf-8")
    upstream = replace(bench, sdk=replace(bench.sdk, prefix=prefix))
    said = fails(lambda: upstream.build("names", cmake=replace(QUICK, torch_package="upstream")))
    assert 'take `cmake.torch-package = "upstream"` out.' in said
    assert bench.build("names", cmake=QUICK).files == ("variables.txt",)


@pytest.mark.performs("let CMake write below")
def test_what_cmake_writes_into_the_sources(make: Make, bench: Workbench) -> None:
    """A generated file is reported, and below the folder of the message it is nobody else's."""
    lines = 'file(WRITE "{}/made.c" "int a(void) {{ return 1; }}")\nadd_library(ops SHARED "{}/made.c")\n'
    lines += "install(TARGETS ops DESTINATION .)\n"
    folder = "${CMAKE_CURRENT_SOURCE_DIR}"
    make(lines.format(folder, folder))
    (said,) = bench.reports
    (below,) = re.findall(r"\$\{CMAKE_\w+\}", said)
    (bench.config.source / "made.c").unlink()
    make(lines.format(below, below))
    assert bench.reports == [said]
    assert not (bench.config.source / "made.c").exists()


@pytest.mark.performs("Make sure that the disk has space")
def test_a_description_that_cannot_be_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """CMake wrote it on a full disk: cut off. The same command again, when there is space, builds."""
    lines = "add_library(ops SHARED a.c)\ninstall(TARGETS ops DESTINATION .)\n"
    read = replies.read

    def cut(build: Path) -> object:
        for file in (build / replies.API / "reply").glob("*.json"):
            file.write_bytes(file.read_bytes()[:20])
        return read(build)

    with monkeypatch.context() as patch:
        patch.setattr(replies, "read", cut)
        said = fails(lambda: make(lines, a_c="int a(void) { return 1; }"))
    assert "Make sure that the disk has space, and run the same command again; " in said
    assert make(lines).files == ("libops.so",)


@pytest.mark.performs("Rename that folder")
@pytest.mark.parametrize("letter", [";", "$"])
def test_a_folder_that_is_renamed(letter: str, bench: Workbench, tmp_path: Path) -> None:
    """The same project under another name is built."""
    folder = tmp_path / f"a{letter}b"
    (folder / "csrc").mkdir(parents=True)
    (folder / "csrc" / "CMakeLists.txt").write_text(
        HEAD + "file(WRITE ${CMAKE_BINARY_DIR}/a.txt)\ninstall(FILES ${CMAKE_BINARY_DIR}/a.txt DESTINATION .)\n",
        encoding="utf-8",
    )
    bench.config = replace(bench.config, root=folder)
    assert fails(lambda: bench.build("csrc")).endswith("Rename that folder")
    bench.config = replace(bench.config, root=folder.rename(tmp_path / "renamed"))
    assert bench.build("csrc").files == ("a.txt",)


@pytest.mark.performs("-march=native")
@pytest.mark.parametrize("where", ["CMakeLists.txt", "CXXFLAGS"])
def test_a_library_only_for_this_processor(where: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag is found wherever it was written; with the one of the remedy, it is for all users' processors."""
    lines = "add_library(ops SHARED a.cpp)\ninstall(TARGETS ops DESTINATION .)\n"

    def said(flag: str) -> list[str]:
        monkeypatch.setenv("CXXFLAGS", flag if where == "CXXFLAGS" else "")
        own = f"target_compile_options(ops PRIVATE {flag})\n" if where == "CMakeLists.txt" else ""
        tree = make(lines + own, a_cpp="int a() { return 1; }")
        build = replace(RECORD, flags=tree.flags)
        return [found.remedy for found in variants.check(Subject(variant="label", binaries=(), build=build))]

    (remedy,) = said("-march=native")
    flags = re.findall(r"-march=[\w-]+", remedy)
    assert [len(said(flag)) for flag in flags] == [1, 0]
