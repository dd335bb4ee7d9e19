"""CMake's settings, and the reading of its replies: no CMake runs here."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import values
from hatch_torch_ext.base import escape, process
from hatch_torch_ext.base.errors import CompileError, ToolchainError
from hatch_torch_ext.cmake import buildfolder, failures, package, replies, surroundings
from hatch_torch_ext.cmake.replies import InstallRule, Reply, Target
from hatch_torch_ext.config import CMakeConfig, Config
from hatch_torch_ext.facts import project
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.toolchain import tools
from hatch_torch_ext.values import CompilerCache, Environment, Interpreter, Sdk, Setup, Tool, Toolchain

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path("/project")


@pytest.fixture
def setup() -> Setup:
    """Return a build of a thin torch 2.11 for CUDA 13 without a toolkit, below the project's root."""
    prefix = Path("/store/torch")
    return Setup(
        entry=values.entry(
            name="matrix.2.11",
            variables=(("torch", "2.11"), ("with-foo", "a b")),
            torch_requirement="torch==2.11.*",
        ),
        config=Config(root=ROOT, package="pkg", package_dir=ROOT / "src" / "pkg", source=ROOT / "csrc"),
        environment=Environment(
            prefix=Path("/env"),
            python=Path("/env/bin/python"),
            bin=Path("/env/bin"),
            site_packages=Path("/env/lib/python3.11/site-packages"),
            interpreter=Interpreter(
                version="3.11.7",
                tag="cp311",
                ext_suffix=".cpython-311-x86_64-linux-gnu.so",
                machine="x86_64",
                include=Path("/usr/include/python3.11"),
            ),
        ),
        sdk=Sdk(
            kind="thin",
            version="2.11.0+cu130",
            backend=Backend("cuda", "13.0"),
            cxx11_abi=True,
            cxx_standard=17,
            prefix=prefix,
            library_dir=prefix / "lib",
            include_dirs=(prefix / "include",),
            python_path=(Path("/store"),),
        ),
        toolchain=Toolchain(
            cmake=Tool(path=Path("/tools/cmake"), version="4.1.0"),
            ninja=Tool(path=Path("/ninja/ninja"), version="1.13"),
            cxx=Tool(path=Path("/usr/bin/g++"), version="GNU 12.2.0"),
            patchelf=Tool(path=Path("/tools/patchelf"), version="0.18.0"),
        ),
        folder=ROOT / "build" / "torch-ext" / "matrix.2.11",
    )


def test_matrix_variables_become_cache_entries(setup: Setup) -> None:
    """Names are upper-cased, and what CMake or a shell would stumble over becomes an underscore."""
    assert surroundings.matrix_variables(setup.entry) == {"TORCH_EXT_TORCH": "2.11", "TORCH_EXT_WITH_FOO": "a b"}


@pytest.mark.parametrize(
    ("minor", "value"), [("2.10", "0x020a000000000000"), ("2.9", "0x0209000000000000"), ("3.0", "0x0300000000000000")]
)
def test_target_version(minor: str, value: str) -> None:
    """Major in the top byte, minor in the next, as torch's own headers read it."""
    assert package.target_version(minor) == value


def test_facts_are_quoted_for_cmake() -> None:
    """Paths with what CMake gives a meaning stay one literal item; None is empty; booleans are CMake's words."""
    facts: list[tuple[str, package.Value | Sequence[package.Value]]] = [
        ("A", Path('/a b/$x;"y"\\z')),
        ("B", [Path("/1"), Path("/2")]),
        ("C", None),
        ("D", True),
        ("E", 0),
    ]
    assert package.render(facts).splitlines()[1:] == [
        r'set(TorchExt_A "/a b/\$x\;\"y\"\\z")',
        'set(TorchExt_B "/1;/2")',
        'set(TorchExt_C "")',
        'set(TorchExt_D "ON")',
        'set(TorchExt_E "0")',
    ]


def test_later_maps_are_the_closer_ones(setup: Setup) -> None:
    """Compilers take the last map that matches: the work folder's come after the root that it is in."""
    assert package.mapped(setup) == (
        (Path("/usr/include/python3.11"), "python/include"),
        (Path("/env"), "python"),
        (Path("/store/torch"), "torch"),
        (ROOT, "."),
        (setup.folder, "torch-ext"),
        (setup.folder / "torch", "torch"),
    )


def test_ccache_sees_relative_paths_below_what_project_and_work_share(setup: Setup) -> None:
    """With ccache the maps are relative, the same in every checkout; without it there are none."""
    assert package.base_dir(setup) is None
    assert package.relative_maps(setup) == []
    cached = replace(setup, toolchain=replace(setup.toolchain, cache=CompilerCache(program=Path("/usr/bin/ccache"))))
    assert package.base_dir(cached) == ROOT
    assert package.relative_maps(cached) == ["../torch=torch", "../../../..=."]
    assert surroundings.env_changes(cached)["CCACHE_BASEDIR"] == "/project"
    other = replace(setup, toolchain=replace(setup.toolchain, cache=CompilerCache(program=Path("/usr/bin/sccache"))))
    assert package.relative_maps(other) == []


def test_our_own_ccache_has_its_folder_and_the_users_stays(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folder and size go only to ours, and the user's settings and launchers go before them."""
    for name in ("CCACHE_DIR", "CCACHE_MAXSIZE", "CCACHE_CONFIGPATH", "CMAKE_CXX_COMPILER_LAUNCHER"):
        monkeypatch.delenv(name, raising=False)

    def changes(cache: CompilerCache) -> dict[str, str | None]:
        return surroundings.env_changes(replace(setup, toolchain=replace(setup.toolchain, cache=cache)))

    ours = CompilerCache(program=Path("/store/ccache"), folder=Path("/store/compiled"))
    assert changes(ours)["CCACHE_DIR"] == "/store/compiled"
    assert changes(ours)["CCACHE_MAXSIZE"] == "5G"
    launcher = (
        f"/env/bin/python;-I;-S;{setup.package}/once.py;{setup.folder.parent}/compiling;{setup.torch}:/store/torch"
    )
    for language in ("C", "CXX", "CUDA"):
        assert changes(ours)[f"CMAKE_{language}_COMPILER_LAUNCHER"] == f"{launcher};/store/ccache"
    monkeypatch.setenv("CMAKE_CXX_COMPILER_LAUNCHER", "mine")
    assert "CMAKE_CXX_COMPILER_LAUNCHER" not in changes(ours)
    assert "CMAKE_C_COMPILER_LAUNCHER" in changes(ours)
    theirs = changes(CompilerCache(program=Path("/usr/bin/ccache")))
    assert not {"CCACHE_DIR", "CCACHE_MAXSIZE"} & set(theirs)
    other = changes(CompilerCache(program=Path("/opt/launch")))
    assert other["CMAKE_C_COMPILER_LAUNCHER"] == "/opt/launch"
    monkeypatch.setenv("CCACHE_DIR", "/mine")
    assert not {"CCACHE_DIR", "CCACHE_MAXSIZE"} & set(changes(ours))


def test_ccache_has_no_base_where_nothing_is_shared(setup: Setup) -> None:
    """Project and work folder that share only `/`: relative to that, the system's headers would be renamed."""
    cached = replace(
        setup,
        folder=Path("/cache/matrix.2.11"),
        toolchain=replace(setup.toolchain, cache=CompilerCache(program=Path("/usr/bin/ccache"))),
    )
    assert package.base_dir(cached) is None
    assert "CCACHE_BASEDIR" not in surroundings.env_changes(cached)


@pytest.mark.parametrize(
    ("letter", "shown"), [*((each, each) for each in ';"\\$`'), ("\n", "\\n"), ("\x1b[31m", "\\x1b"), ("\x9b", "\\x9b")]
)
def test_a_folder_that_cmake_cannot_work_in(letter: str, shown: str) -> None:
    """CMake itself would report missing files, or a parse error in one of its own files."""
    failures.check_folders("matrix.2.11", Path("/my project (1), ä#%'&/csrc"))
    with pytest.raises(CompileError) as caught:
        failures.check_folders("matrix.2.11", ROOT, Path(f"/a{letter}b/build"))
    assert str(caught.value) == (
        f"matrix.2.11: CMake cannot work in {escape.line(f'/a{letter}b/build')}: {shown} in a path has a special "
        "meaning to CMake or to the tools that it starts. Rename that folder"
    )


def test_the_childs_environment(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry's programs come first, the SDK's facade is importable, and what the front end set is gone."""
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("CMAKE_PREFIX_PATH", "/mine")
    monkeypatch.delenv("CMAKE_LIBRARY_PATH", raising=False)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    changes = surroundings.env_changes(setup)
    assert changes["PATH"] == "/env/bin:/tools:/ninja:/usr/bin"
    assert changes["PYTHONPATH"] == "/store"
    assert changes["CMAKE_PREFIX_PATH"] == "/env/lib/python3.11/site-packages:/mine"
    assert changes["CMAKE_LIBRARY_PATH"] == f"{setup.folder}/torch/lib"
    assert changes["SOURCE_DATE_EPOCH"] == surroundings.DEFAULT_EPOCH
    gone = ("PYTHONHOME", "DESTDIR", "CMAKE_GENERATOR", "CMAKE_GENERATOR_TOOLSET")
    assert [changes[name] for name in gone] == [None] * len(gone)
    assert not {"CC", "CXX", "CXXFLAGS"} & changes.keys()


def test_nothing_of_another_python_reaches_the_interpreter(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process has of Python's variables is gone; what the hatch environment sets is the author's and stays."""
    for name in ("PYTHONPATH", "PYTHONOPTIMIZE", "PYTHONSAFEPATH", "PYTHONUSERBASE", "PYTHONWARNINGS"):
        monkeypatch.setenv(name, "1")
    changes = surroundings.env_changes(setup)
    assert changes["PYTHONPATH"] == "/store"
    assert [changes[name] for name in ("PYTHONOPTIMIZE", "PYTHONSAFEPATH", "PYTHONUSERBASE")] == [None, None, None]
    assert (changes["PYTHONNOUSERSITE"], changes["PYTHONHASHSEED"]) == ("1", "0")
    given = (("PYTHONPATH", "/project/tools"), ("PYTHONWARNINGS", "error"))
    changes = surroundings.env_changes(replace(setup, entry=replace(setup.entry, env_vars=given)))
    assert changes["PYTHONPATH"] == "/store:/project/tools"
    assert changes["PYTHONWARNINGS"] == "error"


def test_python_leaves_no_bytecode_in_the_store(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CMake files import torch from there, and root can write into a sealed folder: it would count as changed."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "torch.py").write_text("")
    changes = surroundings.env_changes(replace(setup, sdk=replace(setup.sdk, python_path=(tmp_path,))))
    process.run([Path(sys.executable), "-c", "import torch"], env_changes=changes)
    assert [each.name for each in tmp_path.iterdir()] == ["torch.py"]


def test_the_hatch_environments_own_variables_reach_the_compilers(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``env-vars`` of the environment are set for CMake as for ``hatch run``; lists of ours go before them."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    given = (("CXXFLAGS", "-DA=1"), ("PATH", "/gcc/bin"), ("DESTDIR", "/away"), ("SOURCE_DATE_EPOCH", "2"))
    changes = surroundings.env_changes(replace(setup, entry=replace(setup.entry, env_vars=given)))
    assert changes["CXXFLAGS"] == "-DA=1"
    assert changes["PATH"] == "/env/bin:/tools:/ninja:/gcc/bin"
    assert changes["DESTDIR"] is None
    assert changes["SOURCE_DATE_EPOCH"] == "2"


def test_what_cmake_writes_into_the_sources_is_reported(setup: Setup, tmp_path: Path) -> None:
    """New and changed files are named, the first few; the work folder, hidden ones, dist and logs are not looked at."""
    work = tmp_path / "build" / "torch-ext"
    setup = replace(
        setup, config=replace(setup.config, root=tmp_path, source=tmp_path / "csrc"), folder=work / "matrix.2.11"
    )
    for folder in ("csrc", "dist", ".cache", "build/torch-ext/matrix.2.11"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "old.h").touch()
    before = buildfolder.snapshot(setup)
    assert [path.relative_to(tmp_path).as_posix() for path in before] == ["csrc/old.h"]
    for folder in ("dist", ".cache", "build/torch-ext/matrix.2.11"):
        (tmp_path / folder / "new.h").touch()
    (tmp_path / "build.log").touch()
    assert buildfolder.what_changed(setup, before) is None
    (tmp_path / "csrc" / "old.h").write_text("changed", encoding="utf-8")
    for name in ("a.h", "b.h", "z.h"):
        (tmp_path / "csrc" / name).touch()
    assert buildfolder.what_changed(setup, before) == (
        "sources changed while CMake ran: csrc/a.h, csrc/b.h, csrc/old.h and 1 more. All entries share what CMake "
        "writes there, so they are compiled one after another, and it may end up in an sdist or a wheel: let "
        "CMake write below ${CMAKE_CURRENT_BINARY_DIR} instead"
    )


def test_upstream_package_is_found_through_the_prefix_path(setup: Setup) -> None:
    """With torch's own package requested, its prefix is searched first."""
    upstream = replace(setup, config=replace(setup.config, cmake=CMakeConfig(torch_package="upstream")))
    assert (surroundings.env_changes(upstream)["CMAKE_PREFIX_PATH"] or "").startswith(f"{setup.folder}/torch:")


def test_flags_of_single_sources_count() -> None:
    """Each set of options is there once, with the definitions of the first source that has it."""

    def group(language: str, options: str, *defines: str) -> dict[str, object]:
        fragments = [{"fragment": options}]
        return {
            "language": language,
            "compileCommandFragments": fragments,
            "defines": [{"define": name} for name in defines],
        }

    groups = [group("CXX", "-O3", "A=1"), group("CXX", "-O3", "B=2"), group("CXX", "-O3 -march=native"), group("C", "")]
    data = {"name": "ops", "type": "SHARED_LIBRARY", "compileGroups": groups}
    reply = Reply(compilers={}, targets=(replies._target(data, ROOT),), rules=())
    cxx = ("ops CXX", "-O3 -DA=1"), ("ops CXX", "-O3 -march=native")
    assert replies.flags(reply, rename=()) == (("ops C", ""), *cxx)


def test_flags_lose_the_folders_of_this_machine() -> None:
    """The manifest has the effective flags, without prefix maps and paths that differ from machine to machine."""
    options = (
        "-O3",
        "-ffile-prefix-map=/project=.",
        "-Xcudafe=--orig_src_path_name=k.cu",
        "-isystem",
        "/project/csrc/include",
        "-DX=1",
    )
    target = Target(name="ops", type="SHARED_LIBRARY", files=(Path("libops.so"),), flags=(("CXX", options),))
    reply = Reply(compilers={}, targets=(target,), rules=())
    assert replies.flags(reply, rename=[(ROOT, ".")]) == (("ops CXX", "-O3 -isystem ./csrc/include -DX=1"),)


def test_first_errors_are_the_compilers_own_sentences() -> None:
    """Lines that say what is wrong are shown once each, five at most; CMake's go on with their paragraph."""
    output = """\
[1/9] Building CXX object a.o
FAILED: a.o
a.cpp:1:2: error: no such thing
  1 | thing
a.cpp:1:2: error: no such thing
a.cu(12): error: identifier is undefined
fatal error: cublas.h: No such file or directory
/usr/bin/ld: a.o: undefined reference to `f()'
CMake Error at CMakeLists.txt:3 (find_package):
  Could not find a package
  configuration file.

  More words.
b.cpp:1:1: error: the sixth
"""
    assert failures.first_errors(output) == [
        "a.cpp:1:2: error: no such thing",
        "a.cu(12): error: identifier is undefined",
        "fatal error: cublas.h: No such file or directory",
        "/usr/bin/ld: a.o: undefined reference to `f()'",
        "CMake Error at CMakeLists.txt:3 (find_package): Could not find a package configuration file.",
    ]


def test_first_errors_of_cmake_are_whole_sentences() -> None:
    """CMake sets paths in the midst of a sentence between blank lines; its message ends where the indentation does."""
    output = """\
CMake Error at cmake/pybind11.cmake:48 (add_subdirectory):
  The source directory

    /src/pybind11

  does not contain a CMakeLists.txt file.

  More words.
Call Stack (most recent call first):
  CMakeLists.txt:53 (include)
CMake Error at gitclone.cmake:55 (message):
  Failed to clone repository:

    'https://host.example/x.git'


CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage
-- Configuring incomplete, errors occurred!
"""
    assert failures.first_errors(output) == [
        "CMake Error at cmake/pybind11.cmake:48 (add_subdirectory): The source directory /src/pybind11 does not "
        "contain a CMakeLists.txt file.",
        "CMake Error at gitclone.cmake:55 (message): Failed to clone repository: 'https://host.example/x.git'",
        "CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage",
    ]


@pytest.mark.parametrize(
    ("output", "hint"),
    [
        (
            'library.h:9:2: error: #error "This file should not be included when either TORCH_STABLE_ONLY or '
            'TORCH_TARGET_VERSION is defined."',
            "This entry is for torch's stable ABI, but compiles sources that use torch's C++ API: give it sources of "
            "its own where TORCH_EXT_STABLE_ABI is ON, or remove `abi` from the entry.",
        ),
        (
            "c++ -DPy_LIMITED_API=0x03090000 -c a.cpp\n"
            "include/pybind11/buffer_info.h:154:5: error: 'Py_buffer' does not name a type",
            "pybind11 does not work with Python's limited API (USE_SABI): write that module on Python's C API, or "
            "build it for each Python (Development.Module, no USE_SABI).",
        ),
        (
            "CMake Error at TorchExtTopLevel.cmake:69 (find_package):\n"
            '  Could not find a configuration file for package "Torch" that is compatible\n'
            '  with requested version "2.3".\n'
            'Could not find a package configuration file provided by "Torch" (requested\n',
            "The project asks find_package(Torch) for another version than this entry's torch: take the entry out of "
            "the matrix, or correct the version in CMakeLists.txt.",
        ),
        (
            "torch/csrc/python_headers.h:13:10: fatal error: Python.h: No such file or directory",
            "The sources include Python's headers: link Torch::Python, or include torch/library.h instead of "
            "torch/extension.h: one library then serves every Python.",
        ),
        (
            "CMake Error at FindPackageHandleStandardArgs.cmake:290 (message):\n"
            "  Could NOT find Python (missing: Python_INCLUDE_DIRS Development.Module) (found\n"
            '  version "3.11.2")',
            "This Python comes without its headers: `apt-get install python3-dev` (Debian, Ubuntu), `dnf install "
            "python3-devel` (Fedora, RHEL), or a Python of hatch, uv or pyenv, which has them.",
        ),
        (
            "CMake Error at Caffe2Config.cmake:90 (message):\n"
            "  Your installed Caffe2 version uses CUDA but I cannot find the CUDA\n"
            "  libraries.",
            "torch's own CMake package asks for a CUDA toolkit wherever torch is built for CUDA. Ours does not: take "
            '`cmake.torch-package = "upstream"` out.',
        ),
        (
            "CMake Error at CMakeLists.txt:4 (find_package):\n"
            '  Could not find a package configuration file provided by "nanobind" with any\n'
            "  of the following names:",
            "If a Python package contains it, as pybind11 and nanobind do, add that package to the dependencies of the "
            "environment. If it is in a folder that CMake does not search, name the folder as CMAKE_PREFIX_PATH in "
            "`cmake.define`.",
        ),
        (
            "CMake Error at CMakeLists.txt:4 (message):\n  ModuleNotFoundError: No module\n  named 'torchgen'",
            "`torchgen` comes with torch's wheel or its requirements, of which the thin torch SDK has only headers "
            'and link stubs: set `sdk = "environment"` in the hook\'s configuration to build with the full torch.',
        ),
        (
            "error: importlib.metadata.PackageNotFoundError: No package metadata was found for sympy",
            "`sympy` comes with torch's wheel or its requirements, of which the thin torch SDK has only headers "
            'and link stubs: set `sdk = "environment"` in the hook\'s configuration to build with the full torch.',
        ),
        (
            "error: the command of ops-stamp/ops-configure failed\n"
            'Could not find a package configuration file provided by "Torch" with any',
            "What ExternalProject builds has a CMake run of its own, in which the hook does not answer "
            "find_package(Torch): add its folder with add_subdirectory(), or name it in the option `source`.",
        ),
        (
            "error: /env/bin/python: No module named mako.template",
            "Python has no `mako` here: add it to the `dependencies` of the hatch environment (if a "
            'requirement of torch installs it, set `sdk = "environment"`).',
        ),
    ],
)
def test_errors_that_do_not_name_their_cause_are_explained(
    output: str, hint: str, setup: Setup, tmp_path: Path
) -> None:
    """Macros, a version that no torch of the entry can meet, a folder to be found: the words to add are given."""
    thin = replace(setup, folder=tmp_path, sdk=replace(setup.sdk, left_out=("sympy", "torchgen")))
    said = failures.step_failed(thin, "compiling", ["cmake"], output)
    first = failures.first_errors(output)
    last = [line for line in output.splitlines() if line not in first]
    whole = f"The whole log is {thin.log}"
    assert said.splitlines() == [
        "compiling failed: `cmake`",
        "the first errors:",
        *(f"  {line}" for line in first),
        *(["the last lines:", *(f"  {line}" for line in last)] if last else []),
        hint,
        whole if 'set `sdk = "environment"` in' in hint else f"Correct this in the project's sources; t{whole[1:]}",
    ]


def test_an_error_of_a_compiler_is_shown_once_with_the_projects_own_path(setup: Setup, tmp_path: Path) -> None:
    """CASE 89: the place can be clicked on; neither the command line nor the error comes twice."""
    setup = replace(setup, folder=tmp_path / "build" / "torch-ext" / "entry")
    build = setup.build
    source = tmp_path / "csrc" / "ops.cpp"
    for folder in (build, source.parent):
        folder.mkdir(parents=True)
    source.touch()
    output = """\
ninja: Entering directory `/somewhere'
[1/2] Building CXX object CMakeFiles/ops.dir/ops.cpp.o
FAILED: [code=1] CMakeFiles/ops.dir/ops.cpp.o
/usr/bin/g++ -O3 -o CMakeFiles/ops.dir/ops.cpp.o -c ../../../../csrc/ops.cpp
../../../../csrc/ops.cpp: In function 'void f()':
../../../../csrc/ops.cpp:17:3: error: 'g' was not declared in this scope
   17 |   g();
      |   ^
ninja: build stopped: subcommand failed.
"""
    said = failures.step_failed(setup, "compiling", ["ninja"], failures.from_root(output, root=tmp_path, build=build))
    assert said.splitlines() == [
        "compiling failed: `ninja`",
        "the first errors:",
        "  csrc/ops.cpp:17:3: error: 'g' was not declared in this scope",
        "the last lines:",
        "  csrc/ops.cpp: In function 'void f()':",
        "     17 |   g();",
        "        |   ^",
        f"Correct this in the project's sources; the whole log is {setup.log}",
    ]


def test_a_place_outside_of_the_project_keeps_its_whole_path(tmp_path: Path) -> None:
    """What is elsewhere, or is not there, is left as the compiler writes it, but for what leads up and down again."""
    header = tmp_path / "torch" / "x.h"
    header.parent.mkdir()
    header.touch()
    root = tmp_path / "project"
    output = f"In file included from ../../torch/x.h:3,\n  from {header}(7)\n../nothing.cpp:1:1: error: no"
    assert failures.from_root(output, root=root, build=root / "build") == (
        f"In file included from {header}:3,\n  from {header}(7)\n../nothing.cpp:1:1: error: no"
    )


def test_nothing_installed_and_no_library_at_all(setup: Setup) -> None:
    """A project of static libraries gets a message that says what a wheel needs instead."""
    target = Target(name="core", type="STATIC_LIBRARY", files=(Path("libcore.a"),), flags=())
    reply = Reply(compilers={}, targets=(target,), rules=())
    assert failures.nothing_installed(setup, reply) == (
        "CMake installs nothing, and the project has no shared library or module, only core (static_library). "
        "Add to /project/csrc/CMakeLists.txt:\n"
        "  find_package(Torch REQUIRED)\n"
        "  add_library(my_ops SHARED my_ops.cpp)\n"
        "  target_link_libraries(my_ops PRIVATE torch)\n"
        "  install(TARGETS my_ops LIBRARY DESTINATION .)\n"
        "The whole log is /project/build/torch-ext/matrix.2.11/log.txt"
    )


@pytest.mark.parametrize("destination", ["lib", "/install", "/install/lib", "/env/site-packages/pkg"])
def test_destinations_below_the_prefix_are_fine(destination: str) -> None:
    """Relative ones, and absolute ones that start with the prefix or the environment's site-packages."""
    reply = Reply(compilers={}, targets=(), rules=(InstallRule(destination=destination, where="CMakeLists.txt:1"),))
    failures.check_destinations("entry", reply, prefix=Path("/install"), site=Path("/env/site-packages"))


@pytest.mark.parametrize("destination", ["/usr/lib", "/install/../lib", "../lib", "/env/site-packages/../lib"])
def test_destinations_outside_the_prefix_are_refused(destination: str) -> None:
    """Also those that leave the prefix by `..`."""
    reply = Reply(compilers={}, targets=(), rules=(InstallRule(destination=destination, where="CMakeLists.txt:1"),))
    with pytest.raises(CompileError, match=f"CMakeLists.txt:1 installs into {destination}, outside the install prefix"):
        failures.check_destinations("entry", reply, prefix=Path("/install"), site=Path("/env/site-packages"))


@pytest.mark.parametrize(
    "args",
    [
        ("-C", "preload.cmake"),
        ("-Cpreload.cmake",),
        ("--toolchain", "preload.cmake"),
        ("--toolchain=preload.cmake",),
        ("-DCMAKE_TOOLCHAIN_FILE=preload.cmake",),
        ("-DCMAKE_TOOLCHAIN_FILE:FILEPATH=preload.cmake",),
    ],
)
def test_files_that_fill_the_cache_once(args: tuple[str, ...], tmp_path: Path) -> None:
    """However it is written, the file's content is found; it counts from the folder of CMakeLists.txt as well."""
    file = tmp_path / "preload.cmake"
    file.write_text("set(A 1)\n", encoding="utf-8")
    first = project.read_once(tmp_path, args, (), {})
    assert list(first) == [str(file)]
    assert project.read_once(tmp_path, args, (), {"CMAKE_TOOLCHAIN_FILE": str(file)}) == first
    file.write_text("set(A 2)\n", encoding="utf-8")
    assert project.read_once(tmp_path, args, (), {}) != first
    assert project.read_once(tmp_path, (), (), {}) == {}


@pytest.mark.performs("put it into CXXFLAGS")
def test_arguments_of_the_compiler(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """CXX is a command: its launcher is left out, its arguments reach CMake as one list, if CMake can take them."""
    assert "-DCMAKE_CXX_COMPILER=/usr/bin/g++" in surroundings.cache_entries(setup)
    monkeypatch.setattr(tools, "describe_compiler", lambda path, *arguments, entry: f"{path.name} {arguments} {entry}")
    found = tools.compiler(entry="e", environ={"CXX": f"ccache {sys.executable} -m64 -DL=1"})
    assert found.arguments == ("-m64", "-DL=1")
    assert found.version == f"{Path(sys.executable).name} {found.arguments} e"
    given = replace(setup, toolchain=replace(setup.toolchain, cxx=found))
    assert f"-DCMAKE_CXX_COMPILER={found.path};-m64;-DL=1" in surroundings.cache_entries(given)
    with pytest.raises(ToolchainError) as caught:
        tools.compiler(entry="e", environ={"CXX": f"{sys.executable} '-DA=b c'"})
    assert str(caught.value) == (
        "e: CXX has the argument `-DA=b c`, but CMake cannot pass on an argument with quotes, spaces or similar "
        "characters: put it into CXXFLAGS"
    )
    moved = {"CXX": sys.executable, "CXXFLAGS": "'-DA=b c'"}
    assert tools.compiler(entry="e", environ=moved).arguments == ()
    with pytest.raises(ToolchainError, match=r"CXX names `g\+\+ '`, which is not on PATH"):
        tools.compiler(entry="e", environ={"CXX": "g++ '"})
