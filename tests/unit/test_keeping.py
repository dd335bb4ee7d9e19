"""``init`` where a CMake project is there that scikit-build(-core) or a command of setup.py runs: it stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tomlkit

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.init import keeping, migrating
from hatch_torch_ext.init.recording import Extension, Recording
from hatch_torch_ext.init.served import MatrixOptions
from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.init.texts import Migration

CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(${SKBUILD_PROJECT_NAME} VERSION ${SKBUILD_PROJECT_VERSION} LANGUAGES CXX)
set(TARGET _ops)
find_package(pybind11 CONFIG REQUIRED)
find_package(Torch CONFIG REQUIRED)
pybind11_add_module(${TARGET} cxx/a.cpp)  # install(TARGETS in a comment is not a command
"""
PYPROJECT = """\
[build-system]
requires = ["scikit-build-core>=0.10", "pybind11>=2.10", "numpy", "torch", "ninja"]
build-backend = "scikit_build_core.build"

[project]
name = "my-pkg"
version = "1.5"
dependencies = ["torch>=2.12", "tqdm"]

[tool.scikit-build]
wheel.packages = ["python/my_pkg"]
wheel.exclude = ["**.cu"]
wheel.license-files = ["LICENSE"]
sdist.exclude = ["*.png"]
cmake.define.WITH_X = "ON"
cmake.build-type = "Debug"
cmake.targets = ["x"]
build-dir = "build"
"""


INIT = "python/my_pkg/__init__.py"


def project(root: Path, **more: str) -> Path:
    """Write a package that imports a module, a CMake project that makes it, and ``more`` files, `.` as `_`."""
    named = {f"{name.rpartition('_')[0]}.{name.rpartition('_')[2]}": text for name, text in more.items()}
    for name, text in {"CMakeLists.txt": CMAKE, INIT: "import _ops as ops\n", **named}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def of_setup(root: Path, *names: str, cmake: dict[str, Any] | None = None, **metadata: Any) -> Migration:
    """Return the migration of a setup.py with extensions that have no sources."""
    (root / "setup.py").write_text("version = '1.5'\n", encoding="utf-8")
    said = {"name": "my-pkg", "version": "1.5", "packages": ["my_pkg"], "package_dir": {"": "python"}, **metadata}
    declared = tuple(Extension(name=name, kind="other", sources=()) for name in names)
    notes = (Note(line=3, text="the command `build_ext` is replaced by `B`"),)
    recording = Recording(extensions=declared, metadata=said, notes=notes, cmake=cmake)
    return migrating.assemble(root, recording, recording, [], options=MatrixOptions(torch=["2.13"], pythons=["3.11"]))


def hook(migration: Migration) -> dict[str, Any]:
    """Return the table of the hook."""
    text = dict(migration.files)["pyproject.toml"]
    table: dict[str, Any] = tomlkit.parse(text).unwrap()["tool"]["hatch"]["build"]["targets"]["wheel"]
    return table


def test_a_project_of_scikit_build_core(tmp_path: Path) -> None:
    """Its options become those of the hook and of hatchling; CMake's file gets what it lacks; imports are changed."""
    root = project(tmp_path, pyproject_toml=PYPROJECT)
    migration = migrating.migrate(root, options=MatrixOptions(torch=["2.13"], pythons=["3.11"]))
    files = dict(migration.files)
    assert sorted(files) == [".gitignore", "CMakeLists.txt", "pyproject.toml", INIT]
    assert files["CMakeLists.txt"] == f"{CMAKE}\ninstall(TARGETS _ops LIBRARY DESTINATION .)\n"
    assert files[INIT].endswith("_variants.load()\n\nfrom my_pkg import _ops as ops\n")
    document = tomlkit.parse(files["pyproject.toml"]).unwrap()
    assert document["build-system"]["requires"] == ["hatchling", "hatch-torch-ext"]
    assert document["project"] == {
        "name": "my-pkg",
        "version": "1.5",
        "license-files": ["LICENSE"],
        "dynamic": ["dependencies"],
    }
    assert "scikit-build" not in document["tool"]
    define = {"WITH_X": "ON", "SKBUILD_PROJECT_NAME": "my-pkg", "SKBUILD_PROJECT_VERSION": "1.5"}
    assert hook(migration) == {
        "packages": ["python/my_pkg"],
        "exclude": ["**.cu"],
        "hooks": {
            "torch-ext": {
                "source": ".",
                "package": "my_pkg",
                "cmake": {"define": define, "build-type": "Debug"},
            }
        },
    }
    hatch = document["tool"]["hatch"]
    assert hatch["build"]["targets"]["sdist"] == {"exclude": ["*.png"]}
    assert hatch["metadata"]["hooks"]["torch-ext"] == {"dependencies": ["tqdm"]}
    matrix = hatch["envs"]["matrix"]
    assert matrix["dependencies"] == ["torch=={matrix:torch}.*", "numpy", "pybind11>=2.10", "pytest"]
    assert matrix["matrix"] == [{"torch": ["2.13"], "python": ["3.11"]}]
    assert [each.text for each in migration.notes] == ["`cmake.targets` of [tool.scikit-build] is not carried over"]
    migration.require(force=False)  # CMake's file keeps all that it had


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('provider = "scikit_build_core.metadata.regex"\ninput = "a.py"\nregex = "V = (?P<value>.*)"', "a.py"),
        ('provider = "scikit_build_core.metadata.setuptools_scm"', None),
    ],
)
def test_versions_that_scikit_build_core_finds(text: str, path: str | None, tmp_path: Path) -> None:
    """A pattern becomes hatch's, tags are read by hatch-vcs."""
    before = PYPROJECT.replace('version = "1.5"', 'dynamic = ["version"]').replace('"ninja"', '"setuptools-scm"')
    root = project(tmp_path, pyproject_toml=f"{before}\n[tool.scikit-build.metadata.version]\n{text}\n")
    found = tomlkit.parse(
        dict(migrating.migrate(root, options=MatrixOptions(torch=["2.13"])).files)["pyproject.toml"]
    ).unwrap()
    assert found["project"]["dynamic"] == ["dependencies", "version"]
    expected = {"path": path, "pattern": "V = (?P<version>.*)"} if path else {"source": "vcs"}
    assert found["tool"]["hatch"]["version"] == expected
    assert ("hatch-vcs" in found["build-system"]["requires"]) is (path is None)


@pytest.mark.parametrize(
    ("requires", "more", "kept", "noted"),
    [
        ("cmake>=3.18", "", [], []),
        ("cmake>=3.18,<4", "", ["cmake>=3.18,<4"], []),
        ("cmake==3.28.*", "", ["cmake==3.28.*"], []),
        ("ninja", 'cmake.version = ">=3.15,<4"', ["cmake<4,>=3.15"], []),
        ("ninja", 'cmake.version = "CMakeLists.txt"', [], []),
        (
            "cmake<3.26",
            "",
            [],
            ["the build requires `cmake<3.26`, and builds here need CMake 3.26 or newer: it is left out"],
        ),
    ],
)
def test_a_ceiling_of_cmake(requires: str, more: str, kept: list[str], noted: list[str], tmp_path: Path) -> None:
    """A project that a newer CMake refuses gets the one that it asks for, in each entry, unless that is too old."""
    text = PYPROJECT.replace('"ninja"', f'"{requires}"').replace('cmake.targets = ["x"]', more)
    migration = migrating.migrate(
        project(tmp_path, pyproject_toml=text), options=MatrixOptions(torch=["2.13"], pythons=["3.11"])
    )
    tables = tomlkit.parse(dict(migration.files)["pyproject.toml"]).unwrap()
    needed = tables["tool"]["hatch"]["envs"]["matrix"]["dependencies"]
    assert needed == ["torch=={matrix:torch}.*", "numpy", "pybind11>=2.10", *kept, "pytest"]
    assert [each.text for each in migration.notes] == noted


def test_what_scikit_build_core_cannot_build(tmp_path: Path) -> None:
    """No package, or no CMakeLists.txt."""
    root = project(tmp_path, pyproject_toml=PYPROJECT.replace('["python/my_pkg"]', "[]"))
    with pytest.raises(ConfigurationError, match=r"names no package: .* Make a folder `my_pkg` with an `__init__\.py`"):
        keeping.of_pyproject(root)
    (root / "CMakeLists.txt").unlink()
    with pytest.raises(ConfigurationError, match=r"There is no .*CMakeLists\.txt, which scikit-build-core would build"):
        keeping.of_pyproject(root)


def test_a_command_of_setup_that_runs_cmake(tmp_path: Path) -> None:
    """The extensions name what is installed and imported; what the command gives to CMake is the author's to write."""
    migration = of_setup(project(tmp_path), "_ops")
    files = dict(migration.files)
    assert files["CMakeLists.txt"].endswith("\ninstall(TARGETS _ops LIBRARY DESTINATION .)\n")
    assert "from my_pkg import _ops as ops" in files[INIT]
    assert hook(migration)["hooks"]["torch-ext"]["source"] == "."
    (told,) = [each.text for each in migration.notes]
    assert told == "what its command gives to CMake is not carried over: variables belong in the hook's `cmake.define`"


def test_a_setup_of_scikit_build(tmp_path: Path) -> None:
    """Its arguments for CMake are carried over, without those of the hook; its own modules of CMake are reported."""
    own = "project(x LANGUAGES CXX CUDA)\n\nfind_package(PythonExtensions)\ninstall(TARGETS ops DESTINATION .)\n"
    given = {"source": "csrc", "args": ["-DX=1", "-DCMAKE_BUILD_TYPE=Release", "-GNinja", "-DPython_EXECUTABLE=/x"]}
    root = project(tmp_path)
    (root / "csrc").mkdir()
    (root / "CMakeLists.txt").rename(root / "csrc" / "CMakeLists.txt")
    (root / "csrc" / "CMakeLists.txt").write_text(own, encoding="utf-8")
    (root / "csrc" / "k.cu").write_text("PYBIND11_MODULE(ops, m) {}\n", encoding="utf-8")
    migration = of_setup(root, cmake=given)
    assert hook(migration)["hooks"]["torch-ext"] == {
        "source": "csrc",
        "package": "my_pkg",
        "cmake": {"args": ["-DX=1"]},
    }
    assert [each.text for each in migration.notes] == [
        "csrc/CMakeLists.txt:3: scikit-build's own modules of CMake are not there: `Python_add_library(NAME MODULE "
        "WITH_SOABI …)` takes the place of `python_extension_module`"
    ]
    document = tomlkit.parse(dict(migration.files)["pyproject.toml"]).unwrap()
    matrix = document["tool"]["hatch"]["envs"]["matrix"]["matrix"]
    assert matrix == [{"torch": ["2.13"], "python": ["3.11"], "cuda": ["cu130"]}]


@pytest.mark.parametrize("cpu_only", [False, True])
def test_what_cmake_is_given_only_with_cuda(*, cpu_only: bool, tmp_path: Path) -> None:
    """Arguments that differ are a note; without CUDA in the matrix those for the CPU are carried over."""
    root = project(tmp_path, CMakeLists_txt="project(ops)\nadd_library(ops SHARED a.cpp)\n", k_cu="")
    (root / "setup.py").write_text("'1.5'", encoding="utf-8")
    said = {"name": "my-pkg", "version": "1.5", "packages": ["my_pkg"], "package_dir": {"": "python"}}
    runs = (Note(line=2, text="runs `cmake ..`"),)
    one, other = (
        Recording(extensions=(), metadata=said, notes=runs, commanded={"source": ".", "args": ["-DX=1", f"-DGPU={on}"]})
        for on in ("OFF", "ON")
    )
    options = MatrixOptions(torch=["2.13"], pythons=["3.11"], cpu_only=cpu_only)
    migration = migrating.assemble(root, one, other, [], options=options)
    given = ["-DX=1", "-DGPU=OFF"] if cpu_only else ["-DX=1"]
    assert hook(migration)["hooks"]["torch-ext"]["cmake"] == {"args": given}
    text = (
        "its command gives CMake `-DGPU=ON` with CUDA and `-DGPU=OFF` without it: write that into CMakeLists.txt, "
        'as `if(TORCH_EXT_CUDA AND NOT TORCH_EXT_CUDA STREQUAL "cpu")`'
    )
    assert (text in [note.text for note in migration.notes]) != cpu_only


def test_a_setup_that_runs_cmake_itself(tmp_path: Path) -> None:
    """It declares nothing, and CMake makes the library that the package opens: CMake is kept, and installs it."""
    made = "add_library(ops SHARED a.cpp)\nadd_library(core STATIC b.cpp)\nif(X)\n  add_library(more c.cpp)\nendif()\n"
    made = f'option(BUILD_SHARED_LIBS "of the project" ON)\n{made}'
    root = project(tmp_path, CMakeLists_txt=f"project(ops)\n{made}")
    (root / INIT).write_text("import torch\n\ntorch.ops.load_library('ops.so')\n", encoding="utf-8")
    (root / "setup.py").write_text("'1.5'", encoding="utf-8")
    runs = tuple(Note(line=2, text=f"runs `{program}`") for program in ("cmake ..", "make -j", "protoc x"))
    said = {"name": "my-pkg", "version": "1.5", "packages": ["my_pkg"], "package_dir": {"": "python"}}
    given = {"source": ".", "args": ["-DX=1", "-DCMAKE_BUILD_TYPE=Release", "-DONLY=cpu"]}
    cpu = Recording(extensions=(), metadata=said, notes=runs, commanded=given)
    cuda = Recording(extensions=(), metadata=said, notes=runs, commanded={"source": ".", "args": ["-DX=1"]})
    migration = migrating.assemble(root, cpu, cuda, [], options=MatrixOptions(torch=["2.13"], pythons=["3.11"]))
    assert [note.text for note in migration.notes] == ["runs `protoc x`"]
    assert hook(migration)["hooks"]["torch-ext"]["cmake"] == {"args": ["-DX=1", "-DONLY=cpu"]}
    one, other = (f"install(TARGETS {name} LIBRARY DESTINATION .)\n" for name in ("ops", "more"))
    assert dict(migration.files)["CMakeLists.txt"] == f"project(ops)\n{made}\n{one}if(TARGET more)\n  {other}endif()\n"
    assert "python =" not in dict(migration.files)["pyproject.toml"]
