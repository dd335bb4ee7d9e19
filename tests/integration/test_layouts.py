"""Whole builds of projects with unusual layouts: a library in C, and tiny wheels of torch on disk."""

from __future__ import annotations

import shutil
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

import archives
import warm
import wheels
from hatch_torch_ext.base import process
from plain import CMAKE, COMMAND, Project, make_wheels
from trees import TORCH_MODULE, program

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
    """Return the output on one line."""
    return " ".join((done.stdout + done.stderr).split())


def names(project: Project) -> list[str]:
    """Return the files of the package in the wheel."""
    with zipfile.ZipFile(project.wheel()) as archive:
        return sorted(name for name in archive.namelist() if ".dist-info/" not in name)


@pytest.mark.performs("install again after a change", "let CMake install the package's files")
@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [
        "install(DIRECTORY python/ DESTINATION my_pkg)",
        "install(FILES python/__init__.py python/more.py DESTINATION .)",
        'install(CODE "file(INSTALL ${CMAKE_CURRENT_SOURCE_DIR}/python/ DESTINATION ${CMAKE_INSTALL_PREFIX}/my_pkg)")',
    ],
)
def test_a_package_that_cmake_installs_whole(make: Make, rule: str) -> None:
    """No folder of the sources is the package: its files come only from CMake, in the wheel and in an editable one."""
    files = {"csrc/python/__init__.py": INIT, "csrc/python/more.py": "", "csrc/CMakeLists.txt": CMAKE + rule + "\n"}
    project = make(files)
    done = project.build()
    assert done.returncode == 0, said(done)
    assert "never-loaded" not in said(done)
    found = names(project)
    assert [name for name in found if name.endswith(".py")] == [
        "my_pkg/__init__.py",
        "my_pkg/_torch_ext/help.py",
        "my_pkg/_variants.py",
        "my_pkg/more.py",
    ]
    assert sum(name.endswith("/libplain.so") for name in found) == 1
    editable = "from hatchling.build import build_editable as build; import sys; print(build(sys.argv[1]))"
    done = process.run([sys.executable, "-c", editable, "out"], cwd=project.root, env_changes=project.environ)
    assert "my_pkg is made only by CMake, and installed whole: install again after a change" in said(done)
    (wheel,) = (project.root / "out").glob("*.whl")
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")} == {
        name for name in found if name.endswith(".py")
    }
    (project.root / "csrc" / "python" / "more.py").write_text("changed = 1\n", encoding="utf-8")
    process.run([sys.executable, "-c", editable, "out"], cwd=project.root, env_changes=project.environ)
    assert zipfile.ZipFile(wheel).read("my_pkg/more.py") == b"changed = 1\n"


def test_a_package_that_is_not_there(make: Make) -> None:
    """CMake installs files, but none makes the package: an error before anything is compiled, with each remedy."""
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


@pytest.mark.performs("take one of them out")
@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [
        "install(FILES py/more.py DESTINATION my_pkg)",
        'install(DIRECTORY py/ DESTINATION my_pkg FILES_MATCHING PATTERN "*.py" PATTERN "none.py" EXCLUDE)',
        "add_subdirectory(below)",
        "find_package(Python)\ninstall(DIRECTORY py/ DESTINATION ${Python_SITEARCH}/my_pkg PATTERN none* EXCLUDE)",
    ],
)
def test_an_installed_file_that_the_package_has_otherwise(make: Make, rule: str) -> None:
    """CMake installs a module whose source differs from the package's: an error before anything is compiled.

    Patterns and rules that are not installed by default count as in CMake; a folder may be made later.
    """
    own = dict.fromkeys(("src/my_pkg/more.py", "src/my_pkg/none.py", "src/my_pkg/data.txt"), "OWN = 1\n")
    other = dict.fromkeys(("csrc/py/more.py", "csrc/py/none.py"), "OTHER = 1\n")
    below = """
add_custom_target(later ALL COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/later)
install(DIRECTORY ${PROJECT_BINARY_DIR}/later/ DESTINATION .)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/py DESTINATION . EXCLUDE_FROM_ALL PATTERN none.py EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/py/" DESTINATION "my_pkg" REGEX "/(none.*|data)" EXCLUDE)
"""
    files = {"src/my_pkg/__init__.py": INIT, **own, **other, "csrc/below/CMakeLists.txt": below}
    project = make({**files, "csrc/CMakeLists.txt": CMAKE + f"{rule}\n"})
    done = project.build()
    assert done.returncode == 1
    assert (
        f"CMake installs `more.py`, which is in the package already, not the same "
        f"(`{project.root}/src/my_pkg/more.py`): take one of them out, or install it under another name."
    ) in said(done)
    assert not list(project.root.rglob("libplain.so"))
    (project.root / "src/my_pkg/more.py").unlink()
    assert project.build().returncode == 0


@pytest.mark.performs("`variant-data = [")
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


def test_a_generated_module_that_git_ignores(make: Make) -> None:
    """CMake writes a module into the package that git and hatchling ignore: a warning, whose remedy works."""
    rule = "file(WRITE ${CMAKE_CURRENT_SOURCE_DIR}/../src/my_pkg/_generated.py [=[X = 1\n]=])\n"
    ignored = "/build/\n/dist/\n_gen*.py\n"
    project = make({"src/my_pkg/__init__.py": INIT, "csrc/CMakeLists.txt": CMAKE + rule, ".gitignore": ignored})
    done = project.build()
    assert done.returncode == 0, said(done)
    assert (
        f"the wheel lacks `src/my_pkg/_generated.py`: the line `_gen*.py` of {project.root}/.gitignore leaves it out, "
        "since hatchling leaves out what git ignores. Take the line out, or write "
        '`artifacts = ["/src/my_pkg/_generated.py"]` into `[tool.hatch.build.targets.wheel]`.'
    ) in said(done)
    pyproject = project.root / "pyproject.toml"
    table = '[tool.hatch.build.targets.wheel]\nartifacts = ["/src/my_pkg/_generated.py"]\n[tool.hatch.envs.matrix]'
    text = pyproject.read_text(encoding="utf-8").replace("[tool.hatch.envs.matrix]", table)
    pyproject.write_text(text, encoding="utf-8")
    done = project.build()
    assert "the wheel lacks" not in said(done)
    assert "my_pkg/_generated.py" in names(project)


def test_a_generated_module_that_each_variant_has_is_not_missed(make: Make) -> None:
    """CASE 88: CMake writes it into the package, where git ignores it, and installs it: the wheel holds them all."""
    rule = (
        'file(WRITE ${CMAKE_CURRENT_SOURCE_DIR}/../src/my_pkg/_generated.py "X = \\"${TORCH_EXT_TORCH}\\"\\n")\n'
        "install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/../src/my_pkg/_generated.py DESTINATION my_pkg)\n"
    )
    ignored = "/build/\n/dist/\n_gen*.py\n"
    project = make({"src/my_pkg/__init__.py": INIT, "csrc/CMakeLists.txt": CMAKE + rule, ".gitignore": ignored})
    done = project.build()
    assert done.returncode == 0, said(done)
    assert sum(name.endswith("/_generated.py") for name in names(project)) == 2
    assert "the wheel lacks" not in said(done)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "text", "cause"),
    [
        (
            "UV_CONSTRAINT",
            "torch==2.9.*",
            "`UV_CONSTRAINT` ({}) has the line `torch==2.9.*`. Run `unset UV_CONSTRAINT`",
        ),
        ("UV_OVERRIDE", "torch==2.9.*", "`UV_OVERRIDE` ({}) has the line `torch==2.9.*`. Run `unset UV_OVERRIDE`"),
        (
            "UV_EXCLUDE",
            "torch",
            "uv found nothing for `torch==2.8.*`, because its settings change the requirement: run `unset ",
        ),
        (
            "",
            "[tool.uv]\noverride-dependencies = ['torch==2.9.*']\n",
            "uv found torch 2.9.0 for `torch==2.8.*`, because its settings change the requirement: correct",
        ),
    ],
)
def test_settings_of_uv_that_give_another_torch(
    make: Make, tmp_path: Path, setting: str, text: str, cause: str
) -> None:
    """The setting is named where a thin SDK is resolved, before anything is fetched; without it the build succeeds."""
    project = make({"src/my_pkg/__init__.py": INIT})
    pyproject = project.root / "pyproject.toml"
    plain = pyproject.read_text(encoding="utf-8")
    file = tmp_path / "pins.txt"
    file.write_text(text, encoding="utf-8")
    if not setting:
        pyproject.write_text(plain + text, encoding="utf-8")
    environ = {"HATCH_TORCH_EXT_ONLY": "*2.8*", "HATCH_TORCH_EXT_CACHE": str(tmp_path / "store")}
    done = project.build(**environ, **({setting: str(file)} if setting else {}))
    assert done.returncode == 1
    assert cause.format(file) in said(done)
    assert "read from" not in said(done)
    pyproject.write_text(plain, encoding="utf-8")
    assert project.build(**environ).returncode == 0


@pytest.mark.slow
def test_a_project_that_sets_the_install_prefix(make: Make) -> None:
    """CMake's prefix is the package in the sources, as many have it: the wheel gets the files, the sources none."""
    text = 'project(plain LANGUAGES C)\nset(CMAKE_INSTALL_PREFIX "${CMAKE_CURRENT_SOURCE_DIR}/../src/my_pkg"%s)\n'
    for kind in ("", ' CACHE PATH "" FORCE'):
        cmake = CMAKE.replace("project(plain LANGUAGES C)\n", text % kind)
        project = make({"src/my_pkg/__init__.py": INIT, "csrc/CMakeLists.txt": cmake}, folder=f"project{bool(kind)}")
        before = project.sources()
        done = project.build(HATCH_TORCH_EXT_ONLY="*2.8*")
        assert done.returncode == 0, said(done)
        assert project.sources() == before
        assert sum(name.endswith("/libplain.so") for name in names(project)) == 1


@pytest.mark.performs("or import it from")
def test_python_files_beside_the_package(make: Make) -> None:
    """A package that CMake installs into site-packages under another name goes inside of the package, with a note.

    The install rules tell it before anything is compiled.
    """
    rule = """
find_package(Python REQUIRED COMPONENTS Interpreter)
install(DIRECTORY other DESTINATION ${Python_SITEARCH})
install(FILES mine.py DESTINATION ${Python_SITEARCH}/my_pkg)
"""
    files = {"csrc/other/__init__.py": "", "csrc/mine.py": "", "src/my_pkg/__init__.py": INIT}
    project = make({**files, "csrc/CMakeLists.txt": CMAKE + rule})
    source = project.root / "csrc" / "plain.c"
    code = source.read_text(encoding="utf-8")
    note = (
        "CMake installs other/__init__.py into site-packages, beside `my_pkg`, and the wheel has it in `my_pkg`: "
        '`import other` does not find it. If that is the package, name it: `package = "other"`. Else let hatchling '
        "install it, by `packages` of `[tool.hatch.build.targets.wheel]`, or import it from `my_pkg`"
    )
    for text, status in (("#error no\n", 1), (code, 0)):
        source.write_text(text, encoding="utf-8")
        done = project.build(HATCH_TORCH_EXT_ONLY="*2.8*")
        assert done.returncode == status, said(done)
        assert note in said(done)
    assert {"my_pkg/other/__init__.py", "my_pkg/mine.py"} < set(names(project))
    file = project.root / "csrc" / "CMakeLists.txt"
    file.write_text(file.read_text(encoding="utf-8").replace("install(DIRECTORY other", "# "), encoding="utf-8")
    with (project.root / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write('[tool.hatch.build.targets.wheel]\npackages = ["src/my_pkg", "csrc/other"]\n')
    done = project.build(HATCH_TORCH_EXT_ONLY="*2.8*")
    assert "does not find it" not in said(done)
    assert {"other/__init__.py", "my_pkg/mine.py"} < set(names(project))


@pytest.mark.performs("If that is the package, name it")
def test_a_package_that_cmake_installs_under_a_name_of_its_own(make: Make) -> None:
    """The distribution `my-pkg` installs `MyPkg` into site-packages, and no folder of the sources is the package."""
    rule = """
find_package(Python REQUIRED COMPONENTS Interpreter)
install(FILES init.py DESTINATION ${Python_SITEARCH}/MyPkg RENAME __init__.py)
"""
    project = make({"csrc/init.py": INIT.replace("my_pkg", "MyPkg"), "csrc/CMakeLists.txt": CMAKE + rule})
    done = project.build(HATCH_TORCH_EXT_ONLY="*2.8*")
    assert 'If that is the package, name it: `package = "MyPkg"`.' in said(done)
    file = project.root / "pyproject.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("hooks.torch-ext]\n", 'hooks.torch-ext]\npackage = "MyPkg"\n'), encoding="utf-8")
    done = project.build(HATCH_TORCH_EXT_ONLY="*2.8*")
    assert done.returncode == 0, said(done)
    assert "into site-packages" not in said(done)
    assert {"MyPkg/__init__.py", "MyPkg/_variants.py"} < set(names(project))


@pytest.mark.performs("include it", "include the folder in the sdist")
def test_sources_that_git_ignores_come_back_into_the_sdist(make: Make) -> None:
    """The line that the warning gives includes them, and the warning is gone."""
    project = make({"src/my_pkg/__init__.py": INIT, ".gitignore": "/build/\n/dist/\ncsrc/\n"})
    done = project.build(HATCH_TORCH_EXT_ONLY="*2.8*")
    line = 'artifacts = ["/csrc"]'
    assert "an sdist would lack `csrc`" in said(done)
    assert f"or write `{line}` into `[tool.hatch.build.targets.sdist]`" in said(done)
    with (project.root / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write(f"[tool.hatch.build.targets.sdist]\n{line}\n")
    assert "an sdist would lack" not in said(project.build(HATCH_TORCH_EXT_ONLY="*2.8*"))
    warm.run([*COMMAND[:-1], "sdist"], cwd=project.root, env_changes=project.environ)
    with tarfile.open(next((project.root / "dist").glob("*.tar.gz"))) as archive:
        assert "my_pkg-1/csrc/CMakeLists.txt" in archive.getnames()


@pytest.mark.performs("the project has the file, write")
def test_a_source_that_the_sdist_lacks(make: Make) -> None:
    """A build from the sdist says which file was not packed; the line that it gives packs it."""
    project = make({"src/my_pkg/__init__.py": INIT, ".gitignore": "/build/\n/dist/\n*.c\n"})
    tree = project.root

    def from_the_sdist() -> process.Completed:
        project.root = tree
        warm.run([*COMMAND[:-1], "sdist"], cwd=tree, env_changes=project.environ)
        with tarfile.open(tree / "dist" / "my_pkg-1.tar.gz") as archive:
            archives.unpack(archive, tree / "dist")
        project.root = tree / "dist" / "my_pkg-1"
        return project.build(HATCH_TORCH_EXT_ONLY="*2.8*")

    done = from_the_sdist()
    line = 'artifacts = ["/csrc/plain.c"]'
    assert done.returncode != 0
    assert (
        "`csrc/plain.c` is not in this sdist: hatchling leaves out what git ignores, and what `exclude` names. Where "
        f"the project has the file, write `{line}` into `[tool.hatch.build.targets.sdist]`, and make the sdist again."
    ) in said(done)
    with (tree / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write(f"[tool.hatch.build.targets.sdist]\n{line}\n")
    done = from_the_sdist()
    assert done.returncode == 0, said(done)
    cmake = tree / "csrc" / "CMakeLists.txt"
    cmake.write_text(cmake.read_text(encoding="utf-8") + "configure_file(in.c out.h)\n", encoding="utf-8")
    (tree / "csrc" / "in.c").touch()
    assert "`csrc/in.c` is not in this sdist: " in said(from_the_sdist())


@pytest.mark.performs("add it to the `dependencies` of the hatch environment", "add that package to the dependencies")
@pytest.mark.slow
def test_a_python_package_that_cmake_runs_is_added(make: Make, tmp_path: Path) -> None:
    """What CMake's Python lacks is named; among the environment's `dependencies`, as the message says, it is there."""
    run = """
find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(COMMAND ${Python_EXECUTABLE} -c "import needed_here" COMMAND_ERROR_IS_FATAL ANY)
"""
    project = make({"src/my_pkg/__init__.py": INIT, "csrc/CMakeLists.txt": CMAKE + run})
    members = {"needed_here.py": b""}
    wheels.write(tmp_path, members, name="needed_here-1-py3-none-any.whl", pure=True, requires=())
    environ = {
        "HATCH_TORCH_EXT_ONLY": "*2.8*",
        "UV_FIND_LINKS": f"{project.environ['UV_FIND_LINKS']},{tmp_path}",
    }
    done = project.build(**environ)
    assert "Python has no `needed_here` here: add it to the `dependencies` of the hatch environment" in said(done)
    pyproject = project.root / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    pyproject.write_text(text.replace('torch}.*"]', 'torch}.*", "needed_here"]'), encoding="utf-8")
    done = project.build(**environ)
    assert done.returncode == 0, said(done)


@pytest.mark.performs("FETCHCONTENT_SOURCE_DIR_")
@pytest.mark.slow
@pytest.mark.parametrize("way", ["URL /nowhere/vendor.tar.gz", "GIT_REPOSITORY /nowhere/vendor.git"])
def test_sources_that_cmake_cannot_fetch(make: Make, tmp_path: Path, way: str) -> None:
    """cudf#9757, sphericart: FetchContent without a network; the variable that the message names is the remedy."""
    fetch = f"""
include(FetchContent)
FetchContent_Declare(Vendor {way} EXCLUDE_FROM_ALL)
FetchContent_MakeAvailable(Vendor)
target_link_libraries(plain PRIVATE vendor)
"""
    project = make({"src/my_pkg/__init__.py": INIT, "csrc/CMakeLists.txt": CMAKE + fetch})
    text = said(project.build())
    assert (
        "The project fetches `vendor` while CMake configures, which failed. Where there is no network, name a folder "
        "with its sources in the option `cmake.define`: FETCHCONTENT_SOURCE_DIR_VENDOR."
    ) in text
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    (vendor / "CMakeLists.txt").write_text("add_library(vendor INTERFACE)\n")
    pyproject = project.root / "pyproject.toml"
    table = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    define = f'cmake.define = {{ FETCHCONTENT_SOURCE_DIR_VENDOR = "{vendor}" }}\n'
    pyproject.write_text(pyproject.read_text().replace(table, table + define))
    assert project.build().returncode == 0


@pytest.mark.slow
def test_variables_of_cmake_that_would_lead_elsewhere(make: Make, tmp_path: Path) -> None:
    """DESTDIR of a packager, links in place of files, another generator, colours: the wheel has the same bytes."""
    environ = {
        "DESTDIR": str(tmp_path / "elsewhere"),
        "CMAKE_INSTALL_MODE": "SYMLINK",
        "CMAKE_INSTALL_PREFIX": str(tmp_path / "elsewhere"),
        "CMAKE_GENERATOR": "Unix Makefiles",
        "CMAKE_COLOR_DIAGNOSTICS": "ON",
        "CLICOLOR_FORCE": "1",
        "NINJA_STATUS": "[%f] ",
        "HATCH_TORCH_EXT_ONLY": "*2.8*",
    }
    made = []
    for folder, given in (("plain", {"HATCH_TORCH_EXT_ONLY": "*2.8*"}), ("led", environ)):
        project = make({"src/my_pkg/__init__.py": INIT}, folder=folder)
        done = project.build(**given)
        assert done.returncode == 0, said(done)
        made.append(project.digest())
    assert made[0] == made[1]
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.performs("export PYTHONUTF8=1", "rename the folder")
def test_a_path_that_python_cannot_read(make: Make) -> None:
    """If Python's file system encoding is ASCII, a path with other letters is an error; both remedies build there."""
    project = make({"src/my_pkg/__init__.py": INIT}, folder="pr\u00f6jekt \u00e4")
    ascii_alone = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "HATCH_TORCH_EXT_ONLY": "*2.8*"}
    done = project.build(**ascii_alone, PYTHONUTF8="0")
    assert done.returncode == 1
    remedies = "run `export PYTHONUTF8=1`, or rename the folder"
    assert f"is not text for this Python, which decodes names of files as ascii: {remedies}" in said(done)
    done = project.build(**ascii_alone, PYTHONUTF8="1")
    assert done.returncode == 0, said(done)
    project.root = project.root.rename(project.root.parent / "projekt")
    done = project.build(**ascii_alone, PYTHONUTF8="0")
    assert done.returncode == 0, said(done)


@pytest.mark.performs("put it on PATH")
def test_a_python_that_hatch_cannot_get(make: Make) -> None:
    """The entry names it, and the others are built; left out by `skip`, the wheel is made."""
    project = make({"src/my_pkg/__init__.py": INIT})
    page = project.root / "pyproject.toml"
    axes = 'torch = ["2.8"]\npython = ["3.11", "3.99"]'
    text = page.read_text(encoding="utf-8").replace('torch = ["2.8", "2.9"]', axes)
    page.write_text(text, encoding="utf-8")
    done = project.build()
    assert done.returncode == 1
    remedy = "install it and put it on PATH, or leave the entry out with the option `skip`."
    assert f"Python 3.99 is not on PATH, and hatch could not get it: {remedy}" in said(done)
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    page.write_text(text.replace(hook, f'{hook}skip = ["*3.99*"]\n'), encoding="utf-8")
    done = project.build()
    assert done.returncode == 0, said(done)


EXPORTED = """
cmake_minimum_required(VERSION 3.18)
project(plain VERSION 1.2 LANGUAGES C)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
string(REPLACE "." "" answer "${TORCH_EXT_TORCH}")
add_library(plain SHARED plain.c)
target_compile_definitions(plain PRIVATE ANSWER_HERE=${answer})
target_include_directories(plain PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
set_target_properties(plain PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 1)
install(TARGETS plain EXPORT plain-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES plain.h DESTINATION include)
install(EXPORT plain-targets NAMESPACE plain:: DESTINATION lib/cmake/plain)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/in "@PACKAGE_INIT@
set_and_check(PLAIN_INCLUDE \"@PACKAGE_CMAKE_INSTALL_INCLUDEDIR@\")
set(PLAIN_TORCH @TORCH_EXT_TORCH@)
include(\\${CMAKE_CURRENT_LIST_DIR}/plain-targets.cmake)
")
configure_package_config_file(${CMAKE_CURRENT_BINARY_DIR}/in ${CMAKE_CURRENT_BINARY_DIR}/plain-config.cmake
  INSTALL_DESTINATION lib/cmake/plain PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(plain-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/plain-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/plain-config-version.cmake
  DESTINATION lib/cmake/plain)
"""
DEPENDENT = """
cmake_minimum_required(VERSION 3.19)
project(dependent LANGUAGES C)
find_package(plain 1.1 REQUIRED)
add_executable(dependent main.c)
target_link_libraries(dependent plain::plain)
message(STATUS "made for ${PLAIN_TORCH}")
"""
MAIN = """
#include <plain.h>
#include <stdio.h>
int main(void) { printf("%d\\n", answer()); }
"""


def test_the_projects_own_cmake_package(make: Make, tmp_path: Path) -> None:
    """`find_package` in the installed wheel gives a dependent the library of the torch that is there, as configured."""
    header, source = "int answer(void);\n", "int answer(void) { return ANSWER_HERE; }\n"
    project = make(
        {
            "src/my_pkg/__init__.py": INIT,
            "csrc/CMakeLists.txt": EXPORTED,
            "csrc/plain.c": source,
            "csrc/plain.h": header,
        }
    )
    done = project.build()
    assert done.returncode == 0, said(done)
    assert "left out" not in said(done)
    site = tmp_path / "site"
    shutil.unpack_archive(project.wheel(), site, "zip")
    (tmp_path / "dependent").mkdir()
    (tmp_path / "dependent/CMakeLists.txt").write_text(DEPENDENT, encoding="utf-8")
    (tmp_path / "dependent/main.c").write_text(MAIN, encoding="utf-8")
    (site / "torch").mkdir()

    def dependent(torch: str) -> process.Completed:
        text = TORCH_MODULE.replace("2.8.0", torch)
        (site / "torch/__init__.py").write_text(text, encoding="utf-8")
        build = tmp_path / f"build-{torch}"
        tools = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={program('ninja')}", f"-DPython_EXECUTABLE={sys.executable}"]
        where = ["-S", tmp_path / "dependent", "-B", build, f"-DCMAKE_PREFIX_PATH={site / 'my_pkg'}"]
        # Two releases have texts of one length and second: kept byte code would be that of the first.
        environ: dict[str, str | None] = {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        found = process.run([program("cmake"), *tools, *map(str, where)], env_changes=environ, check=False)
        if not found.returncode:
            process.run([program("cmake"), "--build", build])
            assert process.run([build / "dependent"]).stdout == torch.replace(".", "")[:2] + "\n"
        return found

    assert "-- made for 2.8\n" in dependent("2.8.1").stdout
    assert "-- made for 2.9\n" in dependent("2.9.0").stdout
    assert (
        f"no build of my_pkg serves the torch of {sys.executable}, or it has no CMake package. The reasons: "
        f"{sys.executable} {site}/my_pkg/_variants.py."
    ) in said(dependent("2.10.0"))
    reasons = process.run(
        [sys.executable, site / "my_pkg/_variants.py"], env_changes={"PYTHONPATH": str(site)}, check=False
    )
    assert "torch 2.10.0" in said(reasons)
