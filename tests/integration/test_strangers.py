"""Projects that lay their files out as nobody here would, built whole: a library in C, tiny wheels of torch on disk."""

from __future__ import annotations

import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import process
from plain import CMAKE, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[..., Project]

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")
INIT = "from my_pkg import _variants\n\nANSWER = 42\n"


@pytest.fixture
def make(tmp_path: Path, once: Callable[[str, Callable[[Path], None]], Path]) -> Make:
    """Return a function that writes a project; the store and the wheels of torch are shared by all tests."""
    shared = once("hook_builds", lambda folder: make_wheels(folder / "wheels", ["2.8.0", "2.9.0"]))

    def project(files: dict[str, str], *, folder: str = "project") -> Project:
        made = Project(tmp_path / folder, shared, files=files)
        for name in (name for name in ("src/my_pkg/__init__.py",) if name not in files):
            (made.root / name).unlink()
            (made.root / name).parent.rmdir()
        return made

    return project


def said(done: process.Completed) -> str:
    """Return what was said, as one line."""
    return " ".join((done.stdout + done.stderr).split())


def names(project: Project) -> list[str]:
    """Return the files of the package in the wheel."""
    with zipfile.ZipFile(project.wheel()) as archive:
        return sorted(name for name in archive.namelist() if ".dist-info/" not in name)


@pytest.mark.parametrize(
    "rule",
    [
        "install(DIRECTORY python/ DESTINATION my_pkg)",
        "install(FILES python/__init__.py python/more.py DESTINATION .)",
        'install(CODE "file(INSTALL ${CMAKE_CURRENT_SOURCE_DIR}/python/ DESTINATION ${CMAKE_INSTALL_PREFIX}/my_pkg)")',
    ],
)
def test_a_package_that_cmake_installs_whole(make: Make, rule: str) -> None:
    """No folder of the sources is the package: its files come from CMake alone, in the wheel and in an editable one."""
    files = {"csrc/python/__init__.py": INIT, "csrc/python/more.py": "", "csrc/CMakeLists.txt": CMAKE + rule + "\n"}
    project = make(files)
    done = project.build()
    assert done.returncode == 0, said(done)
    assert "never-loaded" not in said(done)
    found = names(project)
    assert [name for name in found if name.endswith(".py")] == [
        "my_pkg/__init__.py",
        "my_pkg/_variants.py",
        "my_pkg/more.py",
    ]
    assert sum(name.endswith("/libplain.so") for name in found) == 1
    editable = "from hatchling.build import build_editable as build; import sys; print(build(sys.argv[1]))"
    done = process.run([sys.executable, "-c", editable, "out"], cwd=project.root, env_changes=project.environ)
    assert "my_pkg is made by CMake alone, and installed whole: install again after a change" in said(done)
    (wheel,) = (project.root / "out").glob("*.whl")
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")} == {
        name for name in found if name.endswith(".py")
    }


def test_a_package_that_nobody_brings(make: Make) -> None:
    """CMake installs files, and none is the package's: told before anything is compiled, with each remedy."""
    project = make({"csrc/x.txt": "x", "csrc/CMakeLists.txt": CMAKE + "install(FILES x.txt DESTINATION .)\n"})
    done = project.build()
    assert done.returncode == 1
    assert (
        "The package `my_pkg` has no folder `src/my_pkg`, and CMake installs no Python file for it. Create the folder, "
        "name another package with option `package`, or let CMake install the package's files: "
        "`install(DIRECTORY <folder>/ DESTINATION my_pkg)`."
    ) in said(done)
    assert not list(project.root.rglob("libplain.so"))


def test_code_that_brings_no_package(make: Make) -> None:
    """What install rules run as code is known once it ran: no wheel without the package's files is made then."""
    project = make({"csrc/CMakeLists.txt": CMAKE + 'install(CODE "message(STATUS nothing)")\n'})
    done = project.build()
    assert done.returncode == 1
    assert "The package `my_pkg` has no folder `src/my_pkg`, and CMake installs no Python file for it." in said(done)
    assert not list(project.root.glob("dist/*"))


def test_an_installed_file_that_the_package_has_otherwise(make: Make) -> None:
    """CMake installs a module that is in the sources already, not the same: told before anything is compiled."""
    files = {"src/my_pkg/__init__.py": INIT, "src/my_pkg/more.py": "OWN = 1\n", "csrc/more.py": "OTHER = 1\n"}
    project = make({**files, "csrc/CMakeLists.txt": CMAKE + "install(FILES more.py DESTINATION my_pkg)\n"})
    done = project.build()
    assert done.returncode == 1
    assert (
        f"CMake installs `more.py`, which is in the package already, not the same "
        f"(`{project.root}/src/my_pkg/more.py`): take one of them out, or install it under another name."
    ) in said(done)
    assert not list(project.root.rglob("libplain.so"))
    (project.root / "src/my_pkg/more.py").unlink()
    assert project.build().returncode == 0


def test_a_file_that_differs_between_entries(make: Make) -> None:
    """The second entry is not compiled, whether the first was built just now or by an earlier build."""
    rule = """
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/built.json "{\\"torch\\": \\"${TORCH_EXT_TORCH}\\"}")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/built.json DESTINATION my_pkg)
"""
    project = make({"src/my_pkg/__init__.py": INIT, "csrc/CMakeLists.txt": CMAKE + rule})
    for _ in range(2):
        done = project.build(HATCH_TORCH_EXT_JOBS="1")
        assert done.returncode == 1
        assert "CMake installs `built.json` in matrix.2.8 and in matrix.2.9, but not the same" in said(done).replace(
            "in matrix.2.9 and in matrix.2.8", "in matrix.2.8 and in matrix.2.9"
        )
        assert len(list(project.root.rglob("build/libplain.so"))) == 1
    pyproject = project.root / "pyproject.toml"
    table = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    text = pyproject.read_text(encoding="utf-8").replace(table, table + 'variant-data = ["built.json"]\n')
    pyproject.write_text(text, encoding="utf-8")
    assert project.build().returncode == 0
    assert sum(name.endswith("/built.json") for name in names(project)) == 2
