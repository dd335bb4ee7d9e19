"""A build at first use, killed with SIGKILL at many moments: the next one must start at once, and be whole.

    PYTHONPATH=tests python benchmarks/kills.py [--moments 50] [--seed 1]

Writes benchmarks/results/kills.md.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import plain
import used

RESULTS = Path(__file__).parent / "results" / "kills.md"
LOADED = "torch2.13_cpu_cxx11_x86_64 42\n"


def _require(holds: bool, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise SystemExit(what)


def main() -> None:
    """Kill, build, compare, as often as asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)  # noqa: S311
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        plain.make_wheels(root / "wheels", ["2.8.0+cpu"])
        project = used.project(root / "project", root)
        project.build()
        user = used.User(root)
        user.install(project.wheel())
        began = time.monotonic()
        _require(user.load(TORCH_EXT_BUILD="1").stdout == LOADED, "the first build")
        whole = time.monotonic() - began
        early = 0
        for number in range(options.moments):
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
    lines = [
        "# Builds at first use that were killed\n",
        f"`PYTHONPATH=tests python benchmarks/kills.py --moments {options.moments} --seed {options.seed}`: a build of",
        f"{whole:.1f} s, killed with SIGKILL, and all that it had started, at moments drawn at random; then the same",
        "import once more.\n",
        f"{options.moments} moments, {early} of them before the build was over: the next import built at once, waited",
        "for nobody, loaded what it built, and left nothing unfinished, each time.",
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
