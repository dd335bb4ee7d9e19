"""Builds that are stopped: nothing of them runs on, and the same command ends in the same bytes. In plain C."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from killed import KilledBuilds
from plain import CMAKE, KILL_NINJA, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")

SLOW = """
cmake_minimum_required(VERSION 3.18)
project(plain LANGUAGES C)
foreach(i RANGE 1 6)
  add_custom_command(OUTPUT part${i}.c
    COMMAND ${CMAKE_COMMAND} -E echo start >> ${CMAKE_CURRENT_SOURCE_DIR}/../build/naps
    COMMAND sleep 0.3
    COMMAND ${CMAKE_COMMAND} -E touch part${i}.c
    COMMAND ${CMAKE_COMMAND} -E echo end >> ${CMAKE_CURRENT_SOURCE_DIR}/../build/naps)
  list(APPEND parts part${i}.c)
endforeach()
add_library(plain SHARED plain.c ${parts})
install(TARGETS plain LIBRARY DESTINATION .)
"""


@pytest.fixture
def shared(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return the folder of the wheels of two releases."""
    return once("stopping", lambda folder: make_wheels(folder / "wheels", ["2.8.0", "2.9.0"]))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_only_the_builder_is_stopped(number: signal.Signals, shared: Path, tmp_path: Path) -> None:
    """Everything that it started ends too, even a program deep inside a configure step; the next run succeeds."""
    project = Project(tmp_path / "project", shared)
    status, output = project.stopped(number, alone=True)
    assert project.processes() == []
    if number == signal.SIGTERM:
        assert status == 143
        assert output.splitlines()[-1].startswith("hatch-torch-ext: interrupted; the same command continues")
        assert "failed" not in output
    assert not list(project.root.glob("dist/*"))
    assert project.build().returncode == 0


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """A few of the points that `python benchmarks/kills.py matrix` has by hundreds."""
    builds = KilledBuilds(tmp_path, seed=7)
    for _ in range(4):
        builds.kill()
    builds.finish()
    assert builds.kills > 0
    assert builds.ends > 0


def test_all_entries_together_stay_within_the_jobs(shared: Path, tmp_path: Path) -> None:
    """Two entries with six steps each in a pool of two: never more than two at once, and two most of the time."""
    project = Project(tmp_path / "project", shared, files={"csrc/CMakeLists.txt": SLOW})
    done = project.build(HATCH_TORCH_EXT_JOBS="2", CMAKE_BUILD_PARALLEL_LEVEL="9", MAX_JOBS="9", MAKEFLAGS="-j9")
    assert done.returncode == 0, done.stdout + done.stderr
    now = most = 0
    for line in (project.root / "build" / "naps").read_text(encoding="utf-8").split():
        now += 1 if line == "start" else -1
        most = max(most, now)
    assert most == 2
    assert {event["jobs"] for event in project.events("begun")} == {2}


MAKES = "add_custom_command(OUTPUT made.c COMMAND {} -f ${{CMAKE_CURRENT_SOURCE_DIR}}/Makefile made.c)\n"
EXTERNAL = """
include(ExternalProject)
ExternalProject_Add(other SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR}/other CMAKE_GENERATOR "Unix Makefiles"
  INSTALL_COMMAND "")
add_custom_command(OUTPUT made.c COMMAND ${CMAKE_COMMAND} -E touch made.c DEPENDS other)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(MAKES.format("make"), id="by-ninja"),
        pytest.param(MAKES.format("sh ${CMAKE_CURRENT_SOURCE_DIR}/make.sh"), id="by-a-script"),
        pytest.param(EXTERNAL, id="by-cmake"),
    ],
)
def test_a_make_inside_works_whatever_its_version(step: str, shared: Path, tmp_path: Path) -> None:
    """GNU make before 4.4 ends with an internal error if MAKEFLAGS name a FIFO: it gets no FIFO, whoever starts it."""
    making = CMAKE.replace("add_library", f"{step}add_library").replace("plain.c)", "plain.c made.c)")
    files = {
        "csrc/CMakeLists.txt": making,
        "csrc/Makefile": "made.c:\n\t@echo 'int made;' > $@\n",
        "csrc/make.sh": 'make "$@"\n',
        "csrc/other/CMakeLists.txt": "cmake_minimum_required(VERSION 3.18)\nproject(other NONE)\n",
    }
    project = Project(tmp_path / "project", shared, files=files)
    done = project.build(HATCH_TORCH_EXT_ONLY="matrix.2.8")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_compiler_that_was_killed_is_tried_again_alone(shared: Path, tmp_path: Path) -> None:
    """A compiler that the kernel killed for lack of memory is run again by itself, with a note; the build goes on."""
    project = Project(tmp_path / "project", shared)
    compiler = tmp_path / "cc"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *plain.c.o*-c*) mkdir "$0.once" 2>/dev/null && kill -9 $$ ;; esac\nexec cc "$@"\n'
    )
    compiler.chmod(0o755)
    done = project.build(CC=str(compiler))
    output = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, output
    assert Path(f"{compiler}.once").is_dir()
    assert (
        output.count("a compiler was killed, most likely because memory ran out: compilation continues with one") == 1
    )


@pytest.mark.slow
def test_a_killed_ninja_is_a_failure_and_takes_nothing_with_it(shared: Path, tmp_path: Path) -> None:
    """Its compilers end, the other entry is built, and the message says what happened."""
    killing = CMAKE.replace(
        "add_library",
        'if(TORCH_EXT_TORCH STREQUAL "2.8")\n'
        "add_custom_command(OUTPUT x.c COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/kill.sh)\n"
        "set(x x.c)\nendif()\nadd_library",
    ).replace("plain.c)", "plain.c ${x})")
    files = {"csrc/CMakeLists.txt": killing, "csrc/kill.sh": f"{KILL_NINJA}; sleep 30\n"}
    project = Project(tmp_path / "project", shared, files=files)
    done = project.build()
    assert done.returncode == 1
    assert "matrix.2.8: failed: compiling failed" in done.stdout + done.stderr
    assert "ninja was killed, most likely because memory ran out" in " ".join((done.stdout + done.stderr).split())
    assert project.processes() == []
    assert [(event["built"], event["failed"]) for event in project.events("ended")] == [(1, 1)]


@pytest.mark.slow
def test_little_memory_means_few_jobs(shared: Path, tmp_path: Path) -> None:
    """A job that is counted with more than the machine has: one at a time, and the sentence names the option."""
    project = Project(tmp_path / "project", shared)
    page = project.root / "pyproject.toml"
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    text = page.read_text(encoding="utf-8").replace(hook, f'{hook}memory-per-job = "9000 GB"\n')
    page.write_text(text, encoding="utf-8")
    done = project.build(HATCH_TORCH_EXT_JOBS="4")
    assert done.returncode == 0
    assert "1 of 4 jobs at once:" in done.stdout + done.stderr
    assert "`memory-per-job`" in done.stdout + done.stderr
    history = json.loads((project.root / "build/torch-ext/history.json").read_text(encoding="utf-8"))
    assert all(took["peak"] > 10_000_000 for took in history.values())
