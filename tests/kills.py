"""Kills builds of eight entries at random moments, again and again, and lets them come to their end: the same bytes.

python tests/kills.py [POINTS] [SEED]      200 points by default, some minutes
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from plain import CMAKE, Project, make_wheels

RELEASES = tuple(f"2.{minor}" for minor in range(2, 10))
SOURCES = "abcdef"
FILES = {
    "csrc/CMakeLists.txt": CMAKE.replace("plain.c)", f"plain.c {' '.join(f'{name}.c' for name in SOURCES)})"),
    **{f"csrc/{name}.c": f'#include <stdio.h>\nint {name}(void) {{ return puts("{name}"); }}\n' for name in SOURCES},
}
LONGEST = 6.0
"""Seconds after which a build is killed at the latest: so several kills lie between its begin and its end."""


class KilledBuilds:
    """A project, the bytes that it gives undisturbed, and what happened to its builds."""

    def __init__(self, root: Path, seed: int) -> None:
        make_wheels(root / "wheels", [f"{release}.0" for release in RELEASES])
        self.project = Project(root / "project", root, releases=RELEASES, files=FILES)
        self.project.environ["TMPDIR"] = str(root / "tmp")
        self.temporary = root / "tmp"
        self.temporary.mkdir()
        self._random = random.Random(seed)  # noqa: S311 -- moments, no secrets
        done = self.project.build()
        assert done.returncode == 0, done.stdout + done.stderr
        self.reference = self.project.digest()
        self.kills = self.ends = 0
        self.clear()

    def clear(self) -> None:
        """Remove the wheel, and what earlier builds left: the next one starts again."""
        for wheel in (self.project.root / "dist").glob("*.whl"):
            wheel.unlink()
        work = self.project.root / "build"
        if work.is_dir():
            work.rename(work.with_name("old"))
            os.system(f"rm -rf '{work.with_name('old')}'")  # noqa: S605 -- our own folder, thousands of files

    def kill(self) -> None:
        """Start a build and kill it at a random moment, alone or with its process group; look at what it left."""
        running = self.project.started()
        try:
            running.wait(self._random.uniform(0.2, LONGEST))
        except Exception:  # noqa: BLE001 -- it runs: that is what was hoped for
            alone = self._random.random() < 0.5
            (os.kill if alone else os.killpg)(running.pid, signal.SIGKILL)
            self.kills += 1
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
        """Let a build come to its end, and compare its bytes."""
        done = self.project.build()
        assert done.returncode == 0, done.stdout + done.stderr
        self.check()

    def check(self) -> None:
        """Compare the bytes, and start again."""
        assert self.project.digest() == self.reference
        self.ends += 1
        self.clear()


def main(points: int = 200, seed: int = 1) -> None:
    """Kill so often, and say how it went."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        builds = KilledBuilds(Path(folder), seed)
        while builds.kills < points:
            builds.kill()
            print(f"\r{builds.kills} kills, {builds.ends} ends", end="", file=sys.stderr, flush=True)  # noqa: T201
        builds.finish()
    print(  # noqa: T201
        f"\n{builds.kills} kills (seed {seed}), {builds.ends} builds that came to their end after some, all of the "
        f"same bytes, no process left: {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
