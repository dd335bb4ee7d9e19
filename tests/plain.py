"""A project whose library is plain C, for tiny torch wheels on disk: whole builds in seconds, without a network."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import disk
import fake_torch
import warm

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.base import process

PROJECT = """
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"
[project]
name = "my-pkg"
version = "1"
[tool.hatch.build.targets.wheel.hooks.torch-ext]
[tool.hatch.envs.matrix]
skip-install = true
dependencies = ["torch=={{matrix:torch}}.*"]
env-vars = {{ CFLAGS = "-DANSWER=42" }}
[[tool.hatch.envs.matrix.matrix]]
torch = [{releases}]
"""
CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(plain LANGUAGES C)
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/pause AND TORCH_EXT_TORCH STREQUAL "2.9")
  file(WRITE ${CMAKE_CURRENT_SOURCE_DIR}/paused "")
  execute_process(COMMAND sleep 60)
endif()
add_library(plain SHARED plain.c)
install(TARGETS plain LIBRARY DESTINATION .)
"""
C = """
#ifndef ANSWER
#error "env-vars of the hatch environment did not reach the compiler"
#endif
int answer(void) { return ANSWER; }
"""
KILL_NINJA = 'p=$PPID; while ! grep -q "(ninja)" /proc/$p/stat; do p=$(cut -d " " -f 4 /proc/$p/stat); done; kill -9 $p'
"""What a shell that a Ninja started, directly or not, runs to kill that Ninja."""
RELEASES = ("2.8", "2.9")
THREE = ("2.8", "2.9", "2.10")
"""Releases of the fixture ``torches``."""
COMMAND = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]


class Project:
    """A project in a folder of its own, and the environment variables of its builds."""

    def __init__(
        self, root: Path, shared: Path, *, releases: Sequence[str] = RELEASES, files: Mapping[str, str] | None = None
    ) -> None:
        self.root, self.releases = root, tuple(releases)
        self.environ: dict[str, str | None] = {
            "UV_FIND_LINKS": str(shared / "wheels"),
            "PIP_NO_INDEX": "1",
            **{name: None for name in os.environ if name.startswith("HATCH_TORCH_EXT_")},
        }
        self.environ["HATCH_TORCH_EXT_CACHE"] = str(shared / "store")
        write(
            root,
            {
                "pyproject.toml": PROJECT.format(releases=", ".join(f'"{release}"' for release in releases)),
                "csrc/plain.c": C,
                **(files or {}),
            },
        )

    def build(self, out: str = "dist", **environ: str) -> process.Completed:
        """Build the wheel; the build may fail."""
        return warm.run([*COMMAND, "-d", out], cwd=self.root, env_changes={**self.environ, **environ}, check=False)

    def cli(self, *arguments: str, **environ: str) -> process.Completed:
        """Run our command line in the project's folder; it may fail."""
        command = [sys.executable, "-m", "hatch_torch_ext", *arguments]
        return warm.run(command, cwd=self.root, env_changes={**self.environ, **environ}, check=False)

    def started(self, out: str = "dist", **environ: str) -> subprocess.Popen[str]:
        """Start a build in a session of its own."""
        env = {**os.environ, **{name: value for name, value in self.environ.items() if value is not None}, **environ}
        return subprocess.Popen(
            [*COMMAND, "-d", out],
            cwd=self.root,
            env=env,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stopped(self, number: signal.Signals, *, alone: bool = False) -> tuple[int, str]:
        """Start a build and signal it while the second entry configures; return status and output.

        Its process group is signalled, as by a terminal, or with ``alone`` the build itself.
        """
        pause, paused = self.root / "csrc" / "pause", self.root / "csrc" / "paused"
        pause.touch()
        started = self.started()
        deadline = time.monotonic() + 120
        while not paused.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        (os.kill if alone else os.killpg)(started.pid, number)
        output, _ = started.communicate(timeout=60)
        pause.unlink()
        paused.unlink()
        return started.returncode, output

    def processes(self) -> list[str]:
        """Return the command lines of programs that name the project's folder or work in it, after at most a second."""
        for _ in range(20):
            found = []
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if line and (str(self.root) in line or (folder / "cwd").readlink().is_relative_to(self.root)):
                        found.append(line)
            if not found:
                return []
            time.sleep(0.05)
        return found

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the events of the last build, those of one kind or all."""
        lines = (self.root / "build" / "torch-ext" / "events.jsonl").read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if kind in {None, event["event"]}]

    def wheel(self, out: str = "dist") -> Path:
        """Return the wheel that was built."""
        (path,) = (self.root / out).glob("*.whl")
        return path

    def digest(self, out: str = "dist") -> str:
        """Return the hash of the wheel."""
        return hashlib.sha256(self.wheel(out).read_bytes()).hexdigest()

    def sources(self) -> list[str]:
        """Return every file outside of build and dist."""
        found = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())
        return sorted(name for name in found if not name.startswith(("build/", "dist/")))


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write the project's files; ``files`` replace the plain ones."""
    common = {".gitignore": "/build/\n/dist/\n", "src/my_pkg/__init__.py": "", "csrc/CMakeLists.txt": CMAKE}
    return disk.write(root, {**common, **files})


def make_wheels(folder: Path, versions: list[str]) -> None:
    """Write a tiny wheel of torch for each of ``versions`` into ``folder``."""
    folder.mkdir(exist_ok=True)
    for version in versions:
        files = fake_torch.contents(version, cuda=None)
        (folder / f"torch-{version}-{fake_torch.TAG}.whl").write_bytes(fake_torch.wheel(files))
