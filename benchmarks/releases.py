"""The example's wheel for ten torch releases from a cold start, against the bare compile times of the same builds.

    python benchmarks/releases.py [--out benchmarks/results/releases.md]

"Bare" is what `cmake --build` alone takes in the very same build folders, everything else done before. Needs an
index that has the releases; takes some minutes, and two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

RELEASES = ("2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.11", "2.12", "2.13", "2.15")
EXAMPLE = Path(__file__).resolve().parent.parent / "example_project"
LEFT_OUT = shutil.ignore_patterns("build", "dist", "__pycache__")


def timed(*command: str | Path, cwd: Path, **environ: str) -> float:
    """Run a command; return how many seconds it took."""
    start = time.perf_counter()
    subprocess.run([str(part) for part in command], cwd=cwd, check=True, env={**os.environ, **environ})
    return time.perf_counter() - start


def prepare(folder: Path, releases: tuple[str, ...]) -> Path:
    """Copy the example and give it a matrix of exact variants of these releases."""
    root = folder / "example"
    shutil.copytree(EXAMPLE, root, ignore=LEFT_OUT)
    config = root / "hatch.toml"
    before, start, rest = config.read_text(encoding="utf-8").partition("[[envs.matrix.matrix]]")
    after = rest[rest.index("# The wheel in dist/") :]
    config.write_text(f"{before}{start}\ntorch = {json.dumps(releases)}\n\n{after}", encoding="utf-8")
    return root


def bare(root: Path, jobs: int) -> dict[str, float]:
    """Compile each entry again in its own build folder, and nothing but compile; seconds by entry."""
    cmake = Path(sys.executable).parent / "cmake"
    seconds = {}
    for cache in sorted((root / "build" / "torch-ext").glob("*/build/CMakeCache.txt")):
        build = cache.parent
        subprocess.run([cmake, "--build", build, "--target", "clean"], check=True, stdout=subprocess.DEVNULL)
        seconds[build.parent.name] = timed(cmake, "--build", build, "--parallel", str(jobs), cwd=root)
    return seconds


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description="The whole build of ten releases against its bare compile times.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "releases.md")
    parser.add_argument("--releases", default=",".join(RELEASES))
    options = parser.parse_args()
    releases, jobs = tuple(options.releases.split(",")), os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as name:
        root = prepare(Path(name), releases)
        settings = {"HATCH_TORCH_EXT_CACHE": f"{name}/store", "HATCH_TORCH_EXT_COMPILER_LAUNCHER": "none"}
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
        cold = timed(*build, cwd=root, **settings)
        (wheel,) = (root / "dist").glob("*.whl")
        size = wheel.stat().st_size
        os.environ.update(settings)
        seconds = bare(root, jobs)
        again = timed(*build, cwd=root, **settings)
    total = sum(seconds.values())
    rows = [f"| {entry} | {value:.1f} |" for entry, value in seconds.items()]
    text = "\n".join(
        [
            "# One wheel for ten torch releases, from a cold start",
            "",
            f"Recorded on {datetime.now(timezone.utc):%Y-%m-%d} with `python benchmarks/releases.py`:",
            f"{platform.machine()}, {jobs} cores, Python {platform.python_version()}; an empty store, no torch.",
            "",
            f"The whole build, SDKs fetched, compiled, repaired, audited, packed: **{cold:.0f} s**,",
            f"a wheel of {size / 1000:.0f} kB. Bare compile times of the same builds, added up: {total:.0f} s.",
            f"The whole is {cold / total:.2f} times that.",
            f"Built again with nothing changed: {again:.0f} s.",
            "",
            "| entry | bare compile, s |",
            "|---|---|",
            *rows,
            "",
        ]
    )
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
