"""What the example's CUDA 13 entries for three torch releases cost with the compiler cache of a fresh machine.

    python benchmarks/kernels_once.py [--releases 2.11,2.12,2.13] [--out benchmarks/results/kernels_once.md]

Built with an empty cache, in fresh copies: the entry of one release alone, then all three. Kernels are `.cu` files,
bindings the rest. One job at a time, so that no time is counted in which a compile waits for another. Aim: all compiles
of the three take at most 1.25 times one entry's kernels plus all bindings. Compiles CUDA for minutes; SDKs and
environments are warm. Says how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from releases import LEFT_OUT

EXAMPLE = Path(__file__).resolve().parent.parent / "example_project"
BUILD = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
MATRIX = """
[[envs.kernels.matrix]]
torch = {releases}
cuda = ["cu130"]
[envs.kernels.overrides]
matrix.cuda.extra-dependencies = [{{ value = "cuda-toolkit[nvcc,cudart,cccl]==13.0.*", if = ["cu130"] }}]
"""
AIM = 1.25


def prepare(folder: Path, releases: list[str]) -> Path:
    """Copy the example and give it an environment `kernels` of exact CUDA 13 variants of these releases."""
    root = folder / "example"
    shutil.copytree(EXAMPLE, root, ignore=LEFT_OUT)
    config = root / "hatch.toml"
    text = f'\n[envs.kernels]\ntemplate = "matrix"\n{MATRIX.format(releases=json.dumps(releases))}'
    config.write_text(config.read_text(encoding="utf-8") + text, encoding="utf-8")
    return root


def built(root: Path, store: Path) -> list[dict[str, Any]]:
    """Build with an empty compiler cache; return the events."""
    shutil.rmtree(root / "build", ignore_errors=True)
    environ = {
        "HATCH_TORCH_EXT_CACHE": str(store),
        "HATCH_TORCH_EXT_ENVIRONMENT": "kernels",
        "HATCH_TORCH_EXT_JOBS": "1",
    }
    shutil.rmtree(store / "compiled", ignore_errors=True)
    subprocess.run(BUILD, cwd=root, check=True, env={**os.environ, **environ}, stdout=subprocess.DEVNULL)
    lines = (root / "build" / "torch-ext" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def seconds(events: list[dict[str, Any]], *, kernels: bool) -> float:
    """Return how long the compiles of kernels, or of everything else, took together."""
    made = [event for event in events if event["event"] == "compiled" and event["output"].endswith(".o")]
    return sum(event["end"] - event["start"] for event in made if event["output"].endswith(".cu.o") is kernels)


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description="Three CUDA 13 entries with the compiler cache of a fresh machine.")
    parser.add_argument("--releases", default="2.11,2.12,2.13")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "kernels_once.md")
    options = parser.parse_args()
    releases = options.releases.split(",")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "store"
        one, several = (prepare(Path(name) / str(len(each)), each) for each in (releases[:1], releases))
        built(several, store)  # fetches SDKs and environments
        alone, together = built(one, store), built(several, store)
    kernels, bindings = seconds(alone, kernels=True), seconds(together, kernels=False)
    took = seconds(together, kernels=True) + bindings
    hits = [event["cached"] for event in together if event["event"] == "done"]
    today = f"{datetime.now(tz=timezone.utc):%Y-%m-%d}, load {load:.1f} before"
    lines = [
        "# Kernels once\n",
        f"{today}; CUDA 13, `python benchmarks/kernels_once.py --releases {options.releases}`\n",
        "| compiles | seconds |",
        "|---|---|",
        f"| kernels of one entry | {kernels:.1f} |",
        f"| bindings of all | {bindings:.1f} |",
        f"| everything of all | {took:.1f} |\n",
        f"{took / (kernels + bindings):.2f} times one entry's kernels plus all bindings (aim: {AIM}).",
        f"Hits and compiles of the cache, by entry: {hits}.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
