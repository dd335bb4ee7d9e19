"""What an isolated build installs before it begins, beside scikit-build-core: packages, MB, seconds by pip and by uv.

    python benchmarks/isolated.py [--runs 3]

Everything is in pip's and uv's caches already. Writes benchmarks/results/isolated.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uv

from hatch_torch_ext.hooks import requirements

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results" / "isolated.md"


def main() -> None:
    """Install each set in turn, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(root)]
        subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
        (wheel,) = root.glob("*.whl")
        own = ["hatchling", f"hatch-torch-ext @ {wheel.as_uri()}"]
        os.environ["PATH"] = "/usr/bin:/bin"  # no cmake and no ninja that serve: both are asked for
        os.environ["HATCH_TORCH_EXT_CACHE"] = str(root / "cache")
        sets = {
            "hatch-torch-ext: metadata, an sdist": own,
            "hatch-torch-ext: a wheel": [*own, *requirements.of_a_wheel()],
            "scikit-build-core, cmake and ninja: a wheel": ["scikit-build-core", "cmake", "ninja"],
        }
        rows = [
            f"| {name} | {' | '.join(measured(root, requirements, options.runs))} |"
            for name, requirements in sets.items()
        ]
    lines = [
        "# What an isolated build installs\n",
        f"`python benchmarks/isolated.py --runs {options.runs}`, Python {sys.version.split()[0]}, {os.cpu_count()}",
        "cores; medians of seconds, in parentheses seconds of processor time. All wheels are in the caches. hatch,",
        "which lies in the user's cache, is made once and not counted.\n",
        "| | packages | MB | pip, s | uv, s |",
        "|---|---|---|---|---|",
        *rows,
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def measured(root: Path, requirements: list[str], runs: int) -> list[str]:
    """Return the cells of one row."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--ignore-installed"]
    fast = [uv.find_uv_bin(), "pip", "install", "-q", "--python", sys.executable]
    cells = []
    for installer in pip, fast:
        times = []
        for run in range(runs + 1):
            with tempfile.TemporaryDirectory(dir=root) as target:
                before, began = _cpu(), time.perf_counter()
                command = [*installer, "--target", target, *requirements]
                subprocess.run(command, check=True, capture_output=True)
                if run:  # the first fills the caches
                    times.append((time.perf_counter() - began, _cpu() - before))
                count = len(list(Path(target).glob("*.dist-info")))
                size = sum(
                    path.stat().st_size for path in Path(target).rglob("*") if path.suffix != ".pyc" and path.is_file()
                )
        wall, cpu = (statistics.median(each) for each in zip(*times, strict=True))
        cells.append(f"{wall:.1f} ({cpu:.1f})")
    return [str(count), f"{size / 1e6:.0f}", *cells]


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
