"""The recipes of docs/recipes.md, as they stand there: one project with all of them is built, installed and run."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomlkit

import wheels
from hatch_torch_ext import environments, matrix
from hatch_torch_ext.matrix import declaring
from plain import PROJECT, Project, make_wheels
from trees import TORCH_MODULE, compile_library

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
SECTIONS = dict(text.split("\n", 1) for text in PAGE.split("\n## ")[1:])
BOTH_MAJORS = SECTIONS.pop("Both CUDA majors in one wheel")
BUILT = "\n".join(SECTIONS.values())
START = """
cmake_minimum_required(VERSION 3.19)
project(recipes LANGUAGES CXX)
add_library(torch INTERFACE)
foreach(version 4 5)
  file(WRITE ${CMAKE_BINARY_DIR}/media.cpp "extern \\"C\\" int media() { return VERSION; }")
  add_library(media${version} SHARED ${CMAKE_BINARY_DIR}/media.cpp)
  target_compile_definitions(media${version} PRIVATE VERSION=${version})
  set_target_properties(media${version} PROPERTIES OUTPUT_NAME media SOVERSION ${version}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/media${version})
endforeach()
"""
SOURCES = {
    "uses_vendor.cpp": 'extern "C" { int answer(); int uses_vendor() { return answer(); } }',
    "my_host.cpp": """
#include <dlfcn.h>
extern "C" int my_host() {
  void *plugin = dlopen("libmy_plugin.so", RTLD_NOW);
  return plugin ? ((int (*)())dlsym(plugin, "plugin"))() : -1;
}""",
    "my_plugin.cpp": 'extern "C" int plugin() { return 42; }',
    "codec.cpp": 'extern "C" { int media(); int codec() { return media(); } }',
    "launcher.cpp": """
#include <dlfcn.h>
#include <fstream>
#include <string>
extern "C" int launcher() {
  Dl_info info;
  if (!dladdr((void *)launcher, &info)) return -1;
  std::string place = info.dli_fname;
  return std::ifstream(place.substr(0, place.rfind('/')) + "/kernels/add.ptx").get();
}""",
    "kernels/add.ptx": "P",
    "my_tool.cpp": "#include <cstdio>\nint main(int n, char **words) { std::puts(words[n - 1]); }",
}


def blocks(language: str, page: str) -> list[str]:
    """Return the code of one language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def merged(into: Any, new: Any) -> Any:
    """Return both tables as one; lists are joined."""
    if isinstance(into, dict) and isinstance(new, dict):
        return {key: merged(into.get(key), new.get(key)) for key in {**into, **new}}
    if isinstance(into, list) and isinstance(new, list):
        return [*into, *new]
    return copy.deepcopy(into if new is None else new)


def _make(folder: Path) -> None:
    """Build the project and install it beside a small torch and the other wheel, into ``folder``/site."""
    make_wheels(folder / "wheels", ["2.8.0"])
    library = compile_library(folder / "libvendor.so", "int answer(void) { return 7; }", soname="libvendor.so.2")
    members = {"vendor/__init__.py": b"", "vendor/lib/libvendor.so": library.read_bytes()}
    name = f"vendor_lib-2.1-{wheels.TAG}.whl"
    members["vendor/lib/libvendor.so.2"] = members["vendor/lib/libvendor.so"]
    vendor = wheels.write(folder / "wheels", members, name=name, requires=())
    project: Any = tomlkit.parse(PROJECT.format(releases='"2.8"')).unwrap()
    project["project"]["dynamic"] = ["dependencies"]
    for text in blocks("toml", BUILT):
        project = merged(project, tomlkit.parse(text).unwrap())
    (codec, cli) = blocks("python", BUILT)
    built = Project(
        folder / "project",
        folder,
        files={
            "pyproject.toml": tomlkit.dumps(project),
            "csrc/CMakeLists.txt": START + "\n".join(blocks("cmake", BUILT)),
            "src/my_pkg/__init__.py": "from my_pkg import _variants\n\n_variants.load()\n",
            "src/my_pkg/codec.py": codec,
            "src/my_pkg/cli.py": cli,
            **{f"csrc/{name}": text for name, text in SOURCES.items()},
        },
    )
    done = built.build()
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "said").write_text(done.stdout + done.stderr, encoding="utf-8")
    for wheel in (built.wheel(), vendor):
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder / "site", wheel], check=True
        )
    (folder / "site" / "torch").mkdir()
    (folder / "site" / "torch" / "__init__.py").write_text(TORCH_MODULE, encoding="utf-8")
    media = folder / "project" / "build" / "torch-ext" / "matrix.2.8" / "build"
    (folder / "media4").symlink_to(media / "media4")
    (folder / "wheel").symlink_to(built.wheel())


@pytest.fixture
def made(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return the folder of the project, built once: ``site`` is where it is installed."""
    return once("recipes", _make)


def python(made: Path, code: str, **environ: str) -> str:
    """Run ``code`` where the package is installed; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(made / "site"), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "function", "expected"),
    [("uses_vendor", "uses_vendor", 7), ("my_host", "my_host", 42), ("launcher", "launcher", ord("P"))],
)
def test_what_a_library_leads_to_is_found(library: str, function: str, expected: int, made: Path) -> None:
    """The library of the other wheel, the plugin by its name, the data beside the library."""
    opened = f"ctypes.CDLL(_variants.path('lib{library}.so'))"
    code = f"import ctypes\nfrom my_pkg import _variants\nprint({opened}.{function}())"
    assert python(made, code) == str(expected)


def test_the_other_wheels_library_is_not_copied(made: Path) -> None:
    """It is required instead."""
    with zipfile.ZipFile(made / "wheel") as archive:
        assert not [name for name in archive.namelist() if "libvendor" in name]
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        assert "Requires-Dist: vendor-lib<3,>=2" in archive.read(metadata).decode()


def test_the_alternative_that_the_system_has_is_opened(made: Path) -> None:
    """With version 4 of the system's library that of 4, with none an error that names both."""
    code = "from my_pkg import codec\nprint(codec.load_codec())"
    assert python(made, code, LD_LIBRARY_PATH=str(made / "media4")) == "4"
    tried = "from my_pkg import codec\ntry:\n    codec.load_codec()\nexcept ImportError as error:\n    print(error)"
    assert re.search(r"5: .*libmedia\.so\.5.*; 4: .*libmedia\.so\.4", python(made, tried))


def test_data_is_where_python_looks(made: Path) -> None:
    """`_variants.path` names the file of the variant."""
    code = "from my_pkg import _variants\nprint(open(_variants.path('kernels/add.ptx')).read())"
    assert python(made, code) == "P"


def test_the_program_runs_by_its_entry_point(made: Path) -> None:
    """The function of `[project.scripts]` gives it the arguments."""
    code = "import sys\nfrom my_pkg import cli\nsys.argv = ['my-tool', 'hello']\ncli.main()"
    assert python(made, code) == "hello"
    with zipfile.ZipFile(made / "wheel") as archive:
        (points,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        assert "my-tool = my_pkg.cli:main" in archive.read(points).decode()


def test_both_cuda_majors(tmp_path: Path) -> None:
    """Its matrix has three entries on the stable ABI that one wheel can hold."""
    (text,) = blocks("toml", BOTH_MAJORS)
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "my-pkg"\nversion = "1"\n{text}', encoding="utf-8")
    read = environments.read(tmp_path, "matrix", project_name="my-pkg")
    entries = declaring.entries_of(read)
    names = [entry.name for entry in matrix.select(entries)]
    assert names == [f"matrix.2.10-stable-{cuda}" for cuda in ("cpu", "cu126", "cu130")]
    assert all(entry.stable_abi for entry in entries)
    (newest,) = [entry for entry in entries if entry.name.endswith("cu130")]
    assert "cuda-toolkit[cccl,cudart,nvcc]==13.0.*" in newest.dependencies
