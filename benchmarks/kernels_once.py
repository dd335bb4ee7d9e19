"""What the example's CUDA 13 entries for three torch releases cost with the compiler cache of a fresh machine.

    python benchmarks/scale.py kernels

Built with an empty cache, in fresh copies: the entry of one release alone, then all three. Kernels are `.cu` files,
bindings the rest. One job at a time, so that no time is counted in which a compile waits for another. Aim: all compiles
of the three take at most 1.25 times one entry's kernels plus all bindings. SDKs and environments are warm.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from releases import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = Path(__file__).resolve().parent.parent / "example_project"
BUILD = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
MATRIX = """
[[envs.kernels.matrix]]
torch = {releases}
cuda = ["cu130"]
[envs.kernels.overrides]
matrix.cuda.extra-dependencies = [{{ value = "cuda-toolkit[nvcc,cudart,cccl]==13.0.*", if = ["cu130"] }}]
"""
RELEASES = ("2.11", "2.12", "2.13")
# A machine's own folder of wheels may have a torch for the CPU, which installers prefer.
ENVIRON = {"HATCH_TORCH_EXT_ENVIRONMENT": "kernels", "HATCH_TORCH_EXT_JOBS": "1", "PIP_FIND_LINKS": ""}
AIM = 1.25


def prepare(folder: Path, releases: list[str]) -> Path:
    """Copy the example and give it an environment `kernels` of exact CUDA 13 variants of these releases."""
    root = folder / "example"
    shutil.copytree(EXAMPLE, root, ignore=LEFT_OUT)
    config = root / "hatch.toml"
    text = f'\n[envs.kernels]\ntemplate = "matrix"\n{MATRIX.format(releases=json.dumps(releases))}'
    config.write_text(config.read_text(encoding="utf-8") + text, encoding="utf-8")
    return root


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Seconds of compiles: ``kernels`` of one entry, ``bindings`` and ``everything`` of all; hits of the cache."""

    kernels: float
    bindings: float
    everything: float
    hits: list[object]

    @property
    def ratio(self) -> float:
        """Return what the aim is about."""
        return self.everything / (self.kernels + self.bindings)


def built(root: Path, store: Path) -> list[dict[str, Any]]:
    """Build with an empty compiler cache; return the events."""
    shutil.rmtree(store / "compiled", ignore_errors=True)
    subprocess.run(BUILD, cwd=root, check=True, env={**os.environ, **ENVIRON}, stdout=subprocess.DEVNULL)
    lines = (root / "build" / "torch-ext" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def seconds(events: list[dict[str, Any]], *, kernels: bool) -> float:
    """Return how long the compiles of kernels, or of everything else, took together."""
    made = [event for event in events if event["event"] == "compiled" and event["output"].endswith(".o")]
    return float(sum(event["end"] - event["start"] for event in made if event["output"].endswith(".cu.o") is kernels))


def measure(folder: Path, store: Path, releases: list[str], *, warm: Callable[[Path, dict[str, str]], None]) -> Found:
    """Build the entry of the first release alone, then all; ``warm`` fetches what they need without compiling."""
    one, several = (prepare(folder / str(len(each)), each) for each in (releases[:1], releases))
    for root in (several, one):
        warm(root, ENVIRON)
    alone, together = built(one, store), built(several, store)
    bindings = seconds(together, kernels=False)
    return Found(
        kernels=seconds(alone, kernels=True),
        bindings=bindings,
        everything=seconds(together, kernels=True) + bindings,
        hits=[event["cached"] for event in together if event["event"] == "done"],
    )
