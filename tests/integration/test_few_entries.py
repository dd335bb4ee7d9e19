"""Fewer entries than jobs: each compiler takes its job by itself, and one that becomes free is used at once. In C."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from plain import THREE, Project

pytestmark = [
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11"),
    pytest.mark.skipif(shutil.which("ccache") is not None, reason="the machine has a ccache of its own"),
]

FILES = 5
CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(plain LANGUAGES C)
add_library(plain SHARED one.c two.c three.c four.c five.c)
target_include_directories(plain SYSTEM PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/../torch/include)
install(TARGETS plain LIBRARY DESTINATION .)
"""
COMPILER = """#!/bin/sh
case "$*" in *" -E "* | *CMakeScratch*) exec cc "$@" ;; *csrc/*.c) ;; *) exec cc "$@" ;; esac
echo start >> "$0.log"
sleep 0.3
HOOK
cc "$@"
status=$?
echo end >> "$0.log"
exit $status
"""


class Few(Project):
    """Three entries of five files, and a compiler that writes down when it starts and ends; ``hook`` runs between."""

    def __init__(self, root: Path, torches: Path, *, hook: str = "", cmake: str = CMAKE) -> None:
        names = ("one", "two", "three", "four", "five")
        files = {
            f"csrc/{name}.c": f"#include <torch/release.h>\nint {name}(void) {{ return RELEASE; }}\n" for name in names
        }
        super().__init__(root, torches, releases=THREE, files={**files, "csrc/CMakeLists.txt": cmake})
        self.compiler = root / "cc"
        self.compiler.write_text(COMPILER.replace("HOOK", hook), encoding="utf-8")
        self.compiler.chmod(0o755)
        self.environ |= {"CC": str(self.compiler), "HATCH_TORCH_EXT_CACHE": str(root.parent / "store")}
        self.environ |= dict.fromkeys(name for name in os.environ if name.startswith("CCACHE_"))

    def compiled(self, **environ: str) -> list[str]:
        """Build anew; return what the compilers wrote."""
        log = Path(f"{self.compiler}.log")
        log.unlink(missing_ok=True)
        shutil.rmtree(self.root / "build", ignore_errors=True)
        done = self.build(**environ)
        self.output = " ".join((done.stdout + done.stderr).split())
        self.status = done.returncode
        return log.read_text(encoding="utf-8").split() if log.exists() else []

    def logs(self) -> str:
        """Return the logs of all entries."""
        return "\n".join(path.read_text(encoding="utf-8") for path in self.root.glob("build/torch-ext/*/log.txt"))

    def served(self) -> bool:
        """Return whether every Ninja left the jobs to the compilers."""
        calls = re.findall(r"/ninja -C \S+(.*)$", self.logs(), re.MULTILINE)
        assert len(set(calls)) == 1, calls
        return bool(calls[0] == " -j 4")


def most_at_once(steps: list[str]) -> int:
    """Return how many compilers ran at once at most."""
    now = most = 0
    for step in steps:
        now += 1 if step == "start" else -1
        most = max(most, now)
    return most


def test_jobs_are_shared_by_compilers(torches: Path, tmp_path: Path) -> None:
    """Never more than four at once, as the events say too; hits are shared with a build where Ninja takes the jobs.

    The author's prefix of ccache stays.
    """
    prefix = tmp_path / "prefix"
    prefix.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/prefixed\nexec "$@"\n', encoding="utf-8")
    prefix.chmod(0o755)
    own = {"CCACHE_PREFIX": str(prefix)}
    project = Few(tmp_path / "project", torches)
    steps = project.compiled(HATCH_TORCH_EXT_JOBS="4", **own)
    assert project.served()
    assert steps.count("end") == 3 * FILES
    assert 2 <= most_at_once(steps) <= 4
    compiles = [event for event in project.events("compiled") if event["output"].endswith(".o")]
    assert len(compiles) == 3 * FILES
    span = max(event["end"] for event in compiles) - min(event["start"] for event in compiles)
    assert sum(event["end"] - event["start"] for event in compiles) < 6 * span  # nobody's wait for a job is in it
    assert 1 <= max(event["running"] for event in project.events("progress")) <= 4
    assert (tmp_path / "prefixed").read_text(encoding="utf-8").count(f"csrc{os.sep}") == 3 * FILES
    first = project.digest()

    assert project.compiled(HATCH_TORCH_EXT_JOBS="3", **own) == []
    assert not project.served()
    assert f"compiler cache: {3 * FILES} of {3 * FILES} compiles taken from it" in project.output
    assert project.digest() == first

    shutil.rmtree(tmp_path / "store" / "compiled")
    assert project.compiled(HATCH_TORCH_EXT_JOBS="3", HATCH_TORCH_EXT_ONLY="matrix.2.9", **own).count("end") == FILES
    assert project.compiled(HATCH_TORCH_EXT_JOBS="4", **own).count("end") == 2 * FILES
    assert project.served()
    assert project.digest() == first


OWN = "set(CMAKE_C_COMPILER_LAUNCHER env)\nadd_library"
STEP = "add_custom_command(OUTPUT x.c COMMAND ${CMAKE_COMMAND} -E touch x.c)\nadd_library"


@pytest.mark.parametrize(
    ("cmake", "environ"),
    [
        pytest.param(CMAKE, {"HATCH_TORCH_EXT_COMPILER_LAUNCHER": "none"}, id="no-launcher"),
        pytest.param(CMAKE.replace("add_library", OWN), {}, id="the-author's-launcher"),
        pytest.param(CMAKE.replace("add_library", STEP).replace("one.c", "one.c x.c"), {}, id="a-custom-command"),
    ],
)
def test_elsewhere_ninja_takes_the_jobs(cmake: str, environ: dict[str, str], torches: Path, tmp_path: Path) -> None:
    """Where a program would run without a job, nothing changes."""
    project = Few(tmp_path / "project", torches, cmake=cmake)
    project.compiled(HATCH_TORCH_EXT_JOBS="4", **environ)
    assert project.status == 0, project.output
    assert not project.served()


@pytest.mark.parametrize(
    "killing",
    [
        pytest.param('set -- -wrapper "sh,-c,kill -9 \\$\\$" "$@"', id="what-the-driver-starts"),
        pytest.param(
            'echo end >> "$0.log" && kill -9 $$', id="the-driver"
        ),  # of Clang, which compiles itself: ccache says nothing
    ],
)
def test_a_killed_compiler_is_tried_again_alone(killing: str, torches: Path, tmp_path: Path) -> None:
    """It is compiled again by itself, and no other file of its entry twice."""
    hook = f'case "$*" in *one.c) mkdir "$0.once" 2>/dev/null && {killing} ;; esac'
    project = Few(tmp_path / "project", torches, hook=hook)
    steps = project.compiled(HATCH_TORCH_EXT_JOBS="4")
    assert project.output.count("a compiler was killed, most likely because memory ran out: compilation continues") == 1
    assert steps.count("end") == 3 * FILES + 1
    assert most_at_once(steps) <= 4


def test_a_failed_file_ends_its_entry(torches: Path, tmp_path: Path) -> None:
    """The failure is named once, whatever waited for a job meanwhile; the other entries are built."""
    project = Few(tmp_path / "project", torches)
    bad = "#include <torch/release.h>\n#if RELEASE == 9\n#error no\n#endif\nint one(void) { return 1; }\n"
    (project.root / "csrc" / "one.c").write_text(bad, encoding="utf-8")
    project.compiled(HATCH_TORCH_EXT_JOBS="4")
    log = (project.root / "build/torch-ext/matrix.2.9/log.txt").read_text(encoding="utf-8")
    assert log.count("FAILED: ") == 1
    assert project.status == 1
    assert "error: #error no" in project.output
    assert [(event["built"], event["failed"]) for event in project.events("ended")] == [(2, 1)]


@pytest.mark.parametrize(("number", "alone"), [(signal.SIGINT, False), (signal.SIGKILL, True)], ids=["ctrl-c", "kill"])
def test_a_stopped_build_leaves_nothing(number: signal.Signals, *, alone: bool, torches: Path, tmp_path: Path) -> None:
    """Neither compilers nor launchers that wait; the next build comes to the end."""
    project = Few(tmp_path / "project", torches, hook="sleep 2")
    started = project.started(HATCH_TORCH_EXT_JOBS="4")
    log = Path(f"{project.compiler}.log")
    deadline = time.monotonic() + 120
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    (os.kill if alone else os.killpg)(started.pid, number)
    started.communicate(timeout=60)
    assert project.processes() == []
    project.compiled(HATCH_TORCH_EXT_JOBS="4")
    assert project.status == 0, project.output


def test_a_killed_ninja_takes_no_job_with_it(torches: Path, tmp_path: Path) -> None:
    """Its compilers and its launchers end, and the other entries are built."""
    hook = (
        'pid=$PPID; case "$PWD" in *2.9/build) while [ "$(cat /proc/$pid/comm)" != ninja ]; '
        "do pid=$(cut -d' ' -f4 /proc/$pid/stat); done; kill -9 $pid; exec sleep 60 ;; esac"
    )
    project = Few(tmp_path / "project", torches, hook=hook)
    project.compiled(HATCH_TORCH_EXT_JOBS="4")
    assert project.status == 1
    assert "matrix.2.9: failed: compiling failed" in project.output
    assert project.processes() == []
    assert [(event["built"], event["failed"]) for event in project.events("ended")] == [(2, 1)]
