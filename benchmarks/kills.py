"""Builds that are killed with SIGKILL at random moments, and let come to their end: of a matrix, and at first use.

    PYTHONPATH=tests python benchmarks/kills.py matrix [--moments 200] [--seed 1]
    PYTHONPATH=tests python benchmarks/kills.py first-use [--moments 50] [--seed 1]

`matrix`: eight entries in C, each fourth time without SDKs and environments; the builder is killed alone or with its
process group, most of the builds that go on too. `first-use`: the build at the first import. Each writes its results to
benchmarks/results: kills.md, kills_first_use.md.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import plain
import used
from killed import KilledBuilds

RESULTS = Path(__file__).parent / "results"
LOADED = "torch2.13_cpu_cxx11_x86_64 42\n"
AGAIN = 0.6


def _require(holds: bool, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise SystemExit(what)


def of_a_matrix(root: Path, moments: int, seed: int) -> list[str]:
    """Kill builds of eight entries so often; each comes to its end at last."""
    draw, began = random.Random(seed), time.monotonic()  # noqa: S311 -- which builds are killed again
    builds = KilledBuilds(root, seed)
    while builds.kills < moments:
        before = builds.kills
        builds.kill()
        while builds.kills > before and draw.random() < AGAIN:
            before = builds.kills
            builds.kill()
        if builds.kills > before:
            builds.finish()
        print(f"\r{builds.kills} kills, {builds.ends} ends", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    command = f"PYTHONPATH=tests python benchmarks/kills.py matrix --moments {moments} --seed {seed}"
    return [
        "# Builds of a matrix that were killed\n",
        f"Recorded on {datetime.now(timezone.utc):%Y-%m-%d} with `{command}`:",
        "a build of eight entries in C, each fourth time without SDKs and environments, killed with SIGKILL at moments",
        "drawn at random from its whole length, alone or with its process group; then the same command, which is",
        f"killed too in {AGAIN:.0%} of all cases.\n",
        f"{builds.kills} kills, {builds.ends} builds that came to their end, {time.monotonic() - began:.0f} s: the",
        "same bytes each time, and no process, no temporary folder and no cut-off wheel left by any kill.",
    ]


def at_first_use(root: Path, moments: int, seed: int) -> list[str]:
    """Kill builds at the first import so often; the next import builds."""
    draw = random.Random(seed)  # noqa: S311
    plain.make_wheels(root / "wheels", ["2.8.0+cpu"])
    project = used.project(root / "project", root)
    project.build()
    user = used.User(root)
    user.install(project.wheel())
    began = time.monotonic()
    _require(user.load(TORCH_EXT_BUILD="1").stdout == LOADED, "the first build")
    whole = time.monotonic() - began
    early = 0
    for number in range(moments):
        user.run("-m", "my_pkg._variants", "--clear-cache")
        started = user.start("-c", "import my_pkg", TORCH_EXT_BUILD="1")
        time.sleep(draw.uniform(0, whole))
        if started.poll() is None:
            early += 1
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()
        done = user.load(TORCH_EXT_BUILD="1")
        _require(done.stdout == LOADED, f"build {number}: {done.stderr}")
        _require("waiting" not in done.stderr, f"build {number} waits: {done.stderr}")
        _require(user.load().stdout == LOADED, f"load {number}")
        _require(not list((user.cache / "unfinished").iterdir()), f"build {number} leaves something")
    return [
        "# Builds at first use that were killed\n",
        f"`PYTHONPATH=tests python benchmarks/kills.py first-use --moments {moments} --seed {seed}`: a build of",
        f"{whole:.1f} s, killed with SIGKILL, and all that it had started, at moments drawn at random; then the same",
        "import once more.\n",
        f"{moments} moments, {early} of them before the build was over: the next import built at once, waited",
        "for nobody, loaded what it built, and left nothing unfinished, each time.",
    ]


def main() -> None:
    """Kill, build, compare, as often as asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["matrix", "first-use"])
    parser.add_argument("--moments", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "matrix":
            name, lines = "kills.md", of_a_matrix(Path(folder), options.moments or 200, options.seed)
        else:
            name, lines = "kills_first_use.md", at_first_use(Path(folder), options.moments or 50, options.seed)
    text = "\n".join(lines) + "\n"
    (RESULTS / name).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
