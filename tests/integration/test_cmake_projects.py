"""The CMake stage with a real CMake, a real compiler and a real torch, on the small projects of tests/packages."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import elf
from hatch_torch_ext.audit import python
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from hatch_torch_ext.base.errors import CompileError
from hatch_torch_ext.cmake import buildfolder, replies
from hatch_torch_ext.config import CMakeConfig
from hatch_torch_ext.toolchain import tools
from hatch_torch_ext.values import CompilerCache
from workbench import ENTRY, PACKAGES, QUICK

if TYPE_CHECKING:
    from hatch_torch_ext.values import InstallTree
    from workbench import Workbench


def needed(tree: InstallTree, name: str) -> list[str]:
    """Return the torch libraries that an installed file needs."""
    found = elf.read(tree.prefix / name).needed
    return sorted(soname for soname in found if soname.startswith(("libtorch", "libc10")))


def assert_clean(tree: InstallTree, name: str) -> None:
    """Show that a file holds no RPATH and no folder of this machine."""
    path = tree.prefix / name
    facts = elf.read(path)
    assert facts.rpath == ()
    assert facts.runpath == ()
    data = path.read_bytes()
    for folder in tree.build_dirs:
        assert os.fsencode(folder) not in data


def import_answer(bench: Workbench, tree: InstallTree, folder: str, module: str) -> str:
    """Import an installed module beside torch, and return what its function says."""
    code = f"import torch, {module}; print({module}.answer())"
    env = {**os.environ, "PYTHONPATH": str(tree.prefix / folder)}
    return subprocess.check_output([bench.environment.python, "-c", code], env=env, text=True).strip()


# --- spellings of a library


@pytest.mark.parametrize("sdk", ["environment", "thin"])
def test_variables_joined_by_hand(sdk: str, bench: Workbench, request: pytest.FixtureRequest) -> None:
    """TORCH_LIBRARIES, TORCH_INCLUDE_DIRS and TORCH_CXX_FLAGS are enough to compile and link, with stubs too."""
    if sdk == "thin":
        request.getfixturevalue("thin")
    tree = bench.build("variables")
    assert tree.files == ("libvariables.so",)
    assert needed(tree, "libvariables.so") == ["libc10.so", "libtorch.so", "libtorch_cpu.so"]
    assert tree.compiler.startswith("GNU ")
    assert_clean(tree, "libvariables.so")


@pytest.mark.performs("Leave out torch/extension.h")
def test_operators_and_classes_by_the_target_torch(bench: Workbench) -> None:
    """A library that links the target `torch` registers an operator and a class in that torch's process.

    With only torch/library.h it needs nothing of Python.
    """
    tree = bench.build("operators")
    assert tree.files == ("liboperators.so",)
    assert_clean(tree, "liboperators.so")
    file = AuditedBinary(place="liboperators.so", elf=elf.read(tree.prefix / "liboperators.so"))
    assert list(python.check(Subject(variant="label", binaries=(file,), ours=True))) == []
    code = (
        f"import torch; torch.ops.load_library({str(tree.prefix / 'liboperators.so')!r}); "
        "print(torch.ops.hte_operators.twice(torch.tensor([3])).item(), "
        "torch.classes.hte_operators.Counter().next())"
    )
    said = subprocess.check_output([bench.environment.python, "-c", code], text=True)
    assert said.split() == ["6", "1"]


@pytest.mark.parametrize("target", ["torch_stable", "torch"])
def test_a_stable_entry_gives_its_sources_the_target_version(target: str, thin: Workbench) -> None:
    """Both targets name the entry's torch as the oldest one; the library needs only C names."""
    thin.entry = replace(ENTRY, stable_abi=True)
    tree = thin.build("stable", cmake=replace(QUICK, define=(("WANTED_TARGET", target),)))
    names = elf.read(tree.prefix / "libstable.so").undefined
    assert "torch_library_impl" in names
    assert not [name for name in names if name.startswith(("_ZN2at", "_ZN3c10", "_ZN5torch"))]
    assert "-DTORCH_TARGET_VERSION=0x020d000000000000" in dict(tree.flags)["stable CXX"]


def test_every_name_that_projects_ask_for(bench: Workbench) -> None:
    """Targets, variables, find_library below the prefix, the matrix's variables: all there, with sound values."""
    tree = bench.build("names", cmake=CMakeConfig(define=(("TORCH_EXT_WANTED", "2.4"),)))
    lines = (tree.prefix / "variables.txt").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    torch = tree.prefix.parent / "torch"
    assert values["Torch_VERSION"] == "2.13.0"
    assert values["TORCH_CXX_FLAGS"] == "-D_GLIBCXX_USE_CXX11_ABI=1"
    assert values["TORCH_INSTALL_PREFIX"] == str(torch)
    assert values["TORCH_PYTHON_LIBRARY"] == str(torch / "lib" / "libtorch_python.so")
    assert (values["TORCH_EXT_TORCH"], values["TORCH_EXT_CPU_ONLY"]) == ("2.13", "yes")


@pytest.mark.parametrize("wanted", ["2.14", "2.12.1;EXACT", "2.1...<2.13"])
def test_another_version_of_torch_is_refused(wanted: str, bench: Workbench) -> None:
    """`find_package(Torch <version>)` fails if the entry's torch is of another version."""
    with pytest.raises(CompileError, match=r'configuration file for package "Torch"'):
        bench.build("names", cmake=CMakeConfig(define=(("TORCH_EXT_WANTED", wanted),)))


@pytest.mark.parametrize("wanted", ["2.13.0;EXACT", "2.1...<3", "2.1...2.13.0"])
def test_a_version_that_fits_is_accepted(wanted: str, bench: Workbench) -> None:
    """Exact requests and ranges that hold the entry's torch are answered."""
    tree = bench.build("names", cmake=CMakeConfig(define=(("TORCH_EXT_WANTED", wanted),)))
    assert tree.files == ("variables.txt",)


@pytest.mark.slow
def test_a_find_module_of_the_projects_own(bench: Workbench) -> None:
    """The project's FindTorch is used; its C++14 is raised to the standard that torch needs, and a note says so."""
    tree = bench.build("own_find_module")
    assert needed(tree, "libown_find_module.so") == ["libc10.so"]
    assert bench.reports == [
        "target own_find_module: CXX_STANDARD 14, a -std= option raised to C++20, which torch 2.13.0 needs"
    ]
    assert dict(tree.flags)["own_find_module CXX"].split()[:4] == ["-std=gnu++20", "-fPIC", "-Wall", "-std=c++14"]
    assert_clean(tree, "libown_find_module.so")


def test_an_old_cxx_abi_is_passed_to_every_object(bench: Workbench) -> None:
    """For a torch of the old C++ ABI the flag is there even where the project links none of torch's targets."""
    bench.sdk = replace(bench.sdk, cxx11_abi=False)
    tree = bench.build("own_find_module")
    assert "-D_GLIBCXX_USE_CXX11_ABI=0" in dict(tree.flags)["own_find_module CXX"].split()


@pytest.mark.slow
def test_a_prefix_asked_of_python_still_gets_our_package(bench: Workbench) -> None:
    """CMAKE_PREFIX_PATH, Torch_DIR and PATHS that point to torch's files still find our package.

    Without a toolkit, no variable makes the project believe that there is one.
    """
    tree = bench.build("python_prefix")
    assert tree.files == ("bin/libpython_prefix.so",)
    assert f"Found Torch: {tree.prefix.parent}/torch/lib/libtorch.so" in tree.log.read_text()


def test_torchs_own_package_on_request(bench: Workbench) -> None:
    """With `torch-package = "upstream"`, torch's CMake files are used, and are found without a hint."""
    tree = bench.build("variables", cmake=replace(QUICK, torch_package="upstream"))
    assert tree.files == ("libvariables.so",)
    assert "static library kineto" in tree.log.read_text() or "library kineto not found" in tree.log.read_text()
    assert_clean(tree, "libvariables.so")


@pytest.mark.slow
@pytest.mark.parametrize("sdk", ["environment", "thin"])
def test_links_without_undefined_symbols_and_programs_hold_with_both_sdks(
    sdk: str, bench: Workbench, request: pytest.FixtureRequest
) -> None:
    """`-z defs`, `--as-needed` and a program link alike with both SDKs; torch's libraries stay in NEEDED."""
    if sdk == "thin":
        request.getfixturevalue("thin")
    tree = bench.build("strict")
    assert tree.files == ("bin/program", "libstrict.so")
    assert needed(tree, "libstrict.so") == ["libc10.so", "libtorch_cpu.so"]
    program = elf.read(tree.prefix / "bin" / "program")
    assert (program.type, program.text_relocations) == ("program", False)
    environ = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(bench.environment.site_packages / "torch" / "lib")}
    assert subprocess.check_output([program.path], env=environ, text=True) == "reached torch\n"


def test_a_project_older_than_cmakes_memory(bench: Workbench) -> None:
    """CMake 4 builds a project for CMake 3.0 with the old Python modules, pinned; a note says that it is old."""
    tree = bench.build("ancient")
    assert tree.files == ("lib/libancient.so", "share/python.txt")
    assert Path((tree.prefix / "share/python.txt").read_text().strip()) == bench.environment.prefix
    assert len(bench.reports) == 2
    assert bench.reports[0].startswith("the project asks for CMake 3.0, below the oldest that CMake ")
    assert bench.reports[1] == "target ancient: a -std= option raised to C++20, which torch 2.13.0 needs"


def test_headers_and_a_cmake_package_beside_the_library(bench: Workbench) -> None:
    """GNUInstallDirs, a versioned SONAME with its links, headers and install(EXPORT) are all in the tree."""
    tree = bench.build("exported")
    libdir = tree.files[1].split("/")[0]
    assert libdir in ("lib", "lib64")
    assert tree.files == (
        "include/exported.h",
        f"{libdir}/libexported.so",
        f"{libdir}/libexported.so.1",
        f"{libdir}/libexported.so.1.2",
        "share/cmake/exported/exported-config-version.cmake",
        "share/cmake/exported/exported-targets-quick.cmake",
        "share/cmake/exported/exported-targets.cmake",
    )


def test_dependencies_fetched_and_programs_run_in_the_build(bench: Workbench) -> None:
    """FetchContent's library is installed too, a generator of the build runs, and an RPATH of the author's stays."""
    tree = bench.build("fetched")
    assert tree.files == ("libdependency.so", "libfetched.so")
    assert_clean(tree, "libdependency.so")
    assert elf.read(tree.prefix / "libfetched.so").runpath == ("$ORIGIN/../elsewhere",)


# --- Python


def test_a_module_from_the_pybind11_that_torch_brings(bench: Workbench) -> None:
    """Python_add_library, torch's headers and find_library(torch_python) make a module for the entry's Python."""
    tree = bench.build("module_bundled")
    name = f"module_bundled{bench.environment.interpreter.ext_suffix}"
    assert tree.files == (name,)
    assert import_answer(bench, tree, ".", "module_bundled") == "42"


@pytest.mark.slow
def test_a_module_by_pybind11_of_the_environment(bench: Workbench, bindings: Path) -> None:
    """A pybind11 among the environment's packages is found, and uses the entry's Python."""
    bench.environment = replace(bench.environment, site_packages=bindings)
    tree = bench.build("module_pybind11")
    assert tree.files == (f"module_pybind11_package/module_pybind11{bench.environment.interpreter.ext_suffix}",)
    assert import_answer(bench, tree, "module_pybind11_package", "module_pybind11") == "42"


@pytest.mark.slow
def test_a_pybind11_that_uses_the_old_modules_of_cmake(bench: Workbench, bindings: Path) -> None:
    """If pybind11 uses the old FindPythonLibs, its variables are set to the entry's Python."""
    bench.environment = replace(bench.environment, site_packages=bindings)
    tree = bench.build("module_classic")
    assert tree.files == (f"module_classic{bench.environment.interpreter.ext_suffix}", "python.txt")
    assert (tree.prefix / "python.txt").read_text().splitlines() == [
        str(bench.environment.interpreter.include),
        bench.environment.interpreter.version.rpartition(".")[0],
    ]
    assert import_answer(bench, tree, ".", "module_classic") == "42"


@pytest.mark.slow
def test_a_module_by_nanobind_of_the_environment(bench: Workbench, bindings: Path) -> None:
    """The same for nanobind, which also asks for Development.SABIModule."""
    bench.environment = replace(bench.environment, site_packages=bindings)
    tree = bench.build("module_nanobind")
    assert import_answer(bench, tree, ".", "module_nanobind") == "42"


@pytest.mark.parametrize("shared_python", [True, False])
def test_libpython_linked_by_name(shared_python: bool, bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001  a parameter
    """Python3::Python links where the Python has a shared library, and where it has none."""
    if not shared_python:
        monkeypatch.setattr("hatch_torch_ext.cmake.surroundings.LIBRARY_OF_PYTHON", "print('/nowhere/libpython.so')")
    tree = bench.build("embedded")
    assert tree.files == ("libembedded.so",)
    if not shared_python:
        assert not [name for name in elf.read(tree.prefix / "libembedded.so").needed if "python3" in name]


# --- the same bytes, and resuming


def test_two_builds_in_different_folders_give_the_same_bytes(bench: Workbench, tmp_path: Path) -> None:
    """Sources, work folder and SDK elsewhere: the files are the same, so no folder is in them."""
    one = bench.build("fetched")
    copy = tmp_path / "a" / "much" / "longer" / "place" / "packages"
    shutil.copytree(PACKAGES, copy)
    bench.config = replace(bench.config, root=copy)
    bench.work = tmp_path / "another" / "work-folder"
    two = bench.build("fetched")
    assert one.files == two.files
    assert [(one.prefix / name).read_bytes() for name in one.files] == [
        (two.prefix / name).read_bytes() for name in two.files
    ]
    assert one.flags == two.flags


def test_a_compiler_cache_hits_from_another_folder(
    bench: Workbench, ccache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache answers for the same sources in another checkout, and the bytes are those of a build without it."""
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    plain = bench.build("variables")
    expected = (plain.prefix / "libvariables.so").read_bytes()
    bench.toolchain = replace(bench.toolchain, cache=CompilerCache(program=ccache))
    for number in range(2):
        root = tmp_path / f"checkout{number}" / ("deep" * number)
        shutil.copytree(PACKAGES, root / "packages")
        bench.config = replace(bench.config, root=root / "packages")
        bench.work = root / "packages" / "build" / "torch-ext"
        tree = bench.build("variables")
        assert (tree.prefix / "libvariables.so").read_bytes() == expected
    counts = subprocess.check_output([ccache, "--print-stats"], text=True)
    statistics = dict(line.split("\t") for line in counts.splitlines())
    hits = int(statistics["direct_cache_hit"]) + int(statistics["preprocessed_cache_hit"])
    assert (hits, int(statistics["cache_miss"])) == (1, 1)


def test_a_second_run_resumes_and_another_configuration_starts_anew(bench: Workbench) -> None:
    """The build folder is used again for the same inputs; another build type wipes it first."""
    first = bench.build("names")
    stamp = first.prefix.parent / "build" / "stamp"
    stamp.touch()
    (first.prefix / "stale.txt").touch()
    again = bench.build("names")
    assert again.files == first.files
    assert again.log.read_text().count("Detecting CXX compile features - done") == 1
    assert stamp.exists()
    bench.build("names", cmake=CMakeConfig(build_type="Debug"))
    assert not stamp.exists()


def test_what_cmake_says_of_itself_is_read_once_where_it_does_not_run(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To see that it is whole and to use it; and once at the end, since Ninja may have started CMake again."""
    assert bench.build("names").log.read_text().count(" -S ") == 1
    reads: list[Path] = []
    read = replies.read

    def noted(build: Path) -> replies.Reply:
        reads.append(build)
        return read(build)

    monkeypatch.setattr(replies, "read", noted)
    assert bench.build("names").log.read_text().count(" -S ") == 1
    assert len(reads) == 2


@pytest.mark.parametrize("name", [buildfolder.NOTES, buildfolder.RUN_PATH])
def test_what_our_cmake_files_left_is_written_again_where_it_is_damaged(name: str, bench: Workbench) -> None:
    """Cut off, removed, or something else: CMake runs again, as after a change, and the build ends as before."""
    tree = bench.build("names")
    file = tree.prefix.parent / "build" / name
    whole = file.read_bytes()
    for damaged in (None, b"\xff\xfe", whole + b"\n"):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
        assert bench.build("names").files == tree.files
        assert file.read_bytes() == whole


def test_compilers_with_arguments_and_the_build_type_of_the_environment(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They reach compilers as in plain CMake, and the second build of the folder too."""
    check = "#ifndef FROM_ENV\n#error no\n#endif\nint ops_{0}(void) {{ return FROM_ENV; }}\n"
    for name in ("ops.cpp", "ops.c"):
        (tmp_path / name).write_text(check.format(name[-1]))
    lists = tmp_path / "CMakeLists.txt"
    lists.write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(ops C CXX)\nadd_library(ops SHARED ops.cpp ops.c)\n"
        "install(TARGETS ops DESTINATION .)\nfile(WRITE ${CMAKE_BINARY_DIR}/type ${CMAKE_BUILD_TYPE})\n"
    )
    given = "-m64 -DFROM_ENV=4711" if platform.machine() == "x86_64" else "-DFROM_ENV=4711"
    monkeypatch.setenv("CC", f"cc {given}")
    monkeypatch.setenv("CMAKE_BUILD_TYPE", "Debug")
    bench.toolchain = replace(
        bench.toolchain, cxx=tools.compiler(entry="e", environ={"CXX": f"{bench.toolchain.cxx.path} {given}"})
    )
    for _ in range(2):
        tree = bench.build(str(tmp_path), cmake=CMakeConfig())
        assert (tree.prefix.parent / "build" / "type").read_text() == "Debug"
        assert tree.files == ("libops.so",)
        lists.write_text(f"{lists.read_text()}# configured again\n")


@pytest.mark.slow
def test_modules_named_as_setuptools_names_them(bench: Workbench) -> None:
    """CASE 50: TORCH_EXTENSION_NAME is the module's name, however it links torch's Python half; the author's stays.

    OBJECT libraries have the name of the module that is made of them.
    """
    tree = bench.build("module_named")
    names = ("_linked", "_objects", "_own", "_path", "_plain", "_renamed")
    assert tree.files == tuple(f"module_named_package/{name}.so" for name in names)
    for name in names:
        assert import_answer(bench, tree, "module_named_package", name) == "42"


def test_the_content_of_a_file_that_fills_the_cache_belongs_to_the_key(bench: Workbench, tmp_path: Path) -> None:
    """A changed `-C` file makes a fresh build folder: CMake would keep the old values in its cache."""
    preload = tmp_path / "preload.cmake"
    preload.write_text('set(PRELOADED first CACHE STRING "")\n', encoding="utf-8")
    config = CMakeConfig(args=("-C", str(preload)), build_type="Quick")

    def cached() -> str:
        cache = bench.build("names", cmake=config).prefix.parent / "build" / "CMakeCache.txt"
        return next(line for line in cache.read_text().splitlines() if line.startswith("PRELOADED:"))

    assert cached() == "PRELOADED:STRING=first"
    preload.write_text('set(PRELOADED other CACHE STRING "")\n', encoding="utf-8")
    assert cached() == "PRELOADED:STRING=other"


# --- what goes wrong


def test_a_library_written_into_the_sources_is_each_entrys_own(bench: Workbench, tmp_path: Path) -> None:
    """Every entry links the same file in the sources: the file of the entry before must not count as up to date."""
    source = tmp_path / "written"
    source.mkdir()
    (source / "which.c").write_text("const char *which(void) { return WHICH; }\n", encoding="utf-8")
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\n"
        "project(which C)\n"
        "add_library(which SHARED which.c)\n"
        'target_compile_definitions(which PRIVATE WHICH="entry ${TORCH_EXT_WHICH}")\n'
        "set_target_properties(which PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/lib)\n"
        "install(TARGETS which LIBRARY DESTINATION .)\n",
        encoding="utf-8",
    )
    for which in ("one", "two", "one"):
        bench.entry = replace(ENTRY, name=f"matrix.{which}", variables=(("which", which),))
        tree = bench.build("", source=source)
        assert f"entry {which}".encode() in (tree.prefix / "libwhich.so").read_bytes()


def test_nothing_installed_names_the_line_to_add(bench: Workbench) -> None:
    """The message has the real names of the targets."""
    with pytest.raises(CompileError) as caught:
        bench.build("nothing_installed")
    assert str(caught.value) == (
        "matrix.2.13: CMake builds libfirst.so, libsecond.so, but installs nothing, and only what is installed is "
        f"packed. Add to {PACKAGES}/nothing_installed/CMakeLists.txt:\n"
        "  install(TARGETS first second LIBRARY DESTINATION .)\n"
        f"The whole log is {bench.work}/matrix.2.13/log.txt"
    )
    assert not list((bench.work / "matrix.2.13" / "build").rglob("*.o"))


def test_what_goes_to_site_packages_is_installed_below_the_prefix(bench: Workbench) -> None:
    """Destinations as FindPython gives them: the environment stays as it was."""
    bench.environment = replace(bench.environment, site_packages=bench.work / "env" / "site-packages")
    define = (("SITE", str(bench.environment.site_packages)),)
    tree = bench.build("site_packages", cmake=replace(QUICK, define=define))
    assert tree.files == ("include/light.h", "site-packages/pkg/libsite.so", "site-packages/pkg/sub/helper.py")
    assert not bench.environment.site_packages.exists()
    assert not (tree.prefix.parent / "stage").exists()


def test_installing_outside_the_prefix_is_refused_before_it_happens(bench: Workbench) -> None:
    """An absolute destination is an error that names it, and nothing is written there."""
    with pytest.raises(CompileError) as caught:
        bench.build("outside")
    assert str(caught.value) == (
        f"matrix.2.13: {PACKAGES}/outside/CMakeLists.txt:4 installs into {PACKAGES}/outside/../left_behind, outside "
        "the install prefix, which would leave files there and none in the wheel. "
        "Use a relative destination: `install(… DESTINATION .)`"
    )
    assert not (PACKAGES / "left_behind").exists()


def test_a_compiler_error_shows_its_first_line(bench: Workbench) -> None:
    """The message names step, entry, command and log, and contains the compiler's first error."""
    with pytest.raises(CompileError) as caught:
        bench.build("broken")
    lines = str(caught.value).splitlines()
    folder = bench.work / "matrix.2.13"
    command = f"{bench.toolchain.ninja.path} -C {folder / 'build'}"
    assert lines[0] == f"matrix.2.13: compiling failed: `{command}`"
    assert lines[1] == "the first errors:"
    assert "broken.cpp:1:23: error: " in lines[2]
    assert "missing_name" in lines[2]
    assert lines[-1] == f"Correct this in the project's sources; the whole log is {folder / 'log.txt'}"
    assert (folder / "log.txt").read_text().count("missing_name") >= 1


@pytest.mark.slow
def test_a_folder_with_signs_in_its_name(bench: Workbench, tmp_path: Path) -> None:
    """Blanks, commas (at which linkers' options are cut), letters of other languages: all that CMake itself can."""
    root = tmp_path / "J. Müller, 2 (a) #1 目录's"
    shutil.copytree(PACKAGES / "operators", root / "csrc")
    bench.config = replace(bench.config, root=root)
    bench.work = root / "build" / "torch-ext"
    tree = bench.build("csrc")
    assert all(str(root).encode() not in (tree.prefix / file).read_bytes() for file in tree.files)


def test_no_front_end_reaches_the_projects_python(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPATH, PYTHONHOME and DESTDIR of the process that builds change nothing."""
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("DESTDIR", "/nowhere")
    tree = bench.build("names")
    assert tree.files == ("variables.txt",)
