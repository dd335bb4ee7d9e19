"""Builds of eight entries that are killed at random moments; those that finish in the end must have the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from plain import CMAKE, Project, make_wheels

if TYPE_CHECKING:
    from pathlib import Path

RELEASES = tuple(f"2.{minor}" for minor in range(2, 10))
SOURCES = "ab"
FILES = {
    "csrc/CMakeLists.txt": CMAKE.replace("plain.c)", f"plain.c {' '.join(f'{name}.c' for name in SOURCES)})").replace(
        "project(",
        "set(CMAKE_C_COMPILER_WORKS ON)\nset(CMAKE_C_ABI_COMPILED ON)\nproject(",  # half of configuring
    ),
    **{f"csrc/{name}.c": f'#include <stdio.h>\nint {name}(void) {{ return puts("{name}"); }}\n' for name in SOURCES},
}


class KilledBuilds:
    """A project, the bytes of its undisturbed build, and the results of its killed builds."""

    def __init__(self, root: Path, seed: int) -> None:
        make_wheels(root / "wheels", [f"{release}.0" for release in RELEASES])
        self.project = Project(root / "project", root, releases=RELEASES, files=FILES)
        self.project.environ["TMPDIR"] = str(root / "tmp")
        self.store = root / "store"
        self.temporary = root / "tmp"
        self.temporary.mkdir()
        self._random = random.Random(seed)  # noqa: S311 -- moments, no secrets
        began = time.monotonic()
        self._build()
        self.longest = time.monotonic() - began
        """Latest moment of a kill, in seconds after the start: later after each kill, earlier after each end."""
        self.reference = self.project.digest()
        self.kills = self.ends = 0
        self.clear()

    def clear(self) -> None:
        """Remove the wheel and the builds of all entries; every fourth time environments and SDKs too."""
        work = self.project.root / "build"
        folders = [self.project.root / "dist", *work.glob("torch-ext/matrix.*")]
        for folder in [*folders, work, self.store] if self.ends % 4 == 0 else folders:
            shutil.rmtree(folder, ignore_errors=True)

    def kill(self) -> None:
        """Start a build and kill it at a random moment, alone or with its process group; check what it left."""
        running = self.project.started()
        try:
            running.wait(self._random.uniform(0, self.longest))
        except subprocess.TimeoutExpired:  # still running: the intended case
            alone = self._random.random() < 0.5
            (os.kill if alone else os.killpg)(running.pid, signal.SIGKILL)
            self.kills += 1
            self.longest *= 1.1
        else:
            self.longest *= 0.8
        output, _ = running.communicate()
        left = self.project.processes()
        assert not left, left
        assert not list(self.temporary.glob("hte-*")), list(self.temporary.iterdir())
        if running.returncode == 0:
            self.check()
        else:
            assert running.returncode == -signal.SIGKILL, output
            for wheel in (self.project.root / "dist").glob("*.whl"):  # killed in the audit of the finished wheel
                assert self.project.digest() == self.reference
                wheel.unlink()

    def finish(self) -> None:
        """Let a build finish, and compare its bytes."""
        self._build()
        self.check()

    def check(self) -> None:
        """Compare the bytes, and start anew."""
        assert self.project.digest() == self.reference
        self.ends += 1
        self.clear()

    def _build(self) -> None:
        done = self.project.build()
        assert done.returncode == 0, done.stdout + done.stderr
