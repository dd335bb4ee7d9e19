"""What it costs that a Ninja takes a free job only when one of its own ends: entries in a pool, beside one Ninja.

    python benchmarks/late_wake.py      results and decision: benchmarks/results/late_wake.md

https://github.com/ninja-build/ninja/issues/2683. Compilers are replaced by sleeps of random length, so that a busy
machine changes little. Each line: median and worst of eight draws of "all entries in one pool" over "all edges in one
ninja -j", where each Ninja takes jobs, and where each compiler's launcher does. The launcher is in all three.
"""

from __future__ import annotations

import os
import queue
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hatch_torch_ext.cmake.ninja import Clients
from hatch_torch_ext.pipeline.pool import Held, Pool
from hatch_torch_ext.pipeline.slots import Shares
from hatch_torch_ext.resources import once

NINJA = Path(sys.executable).parent / "ninja"
DRAWS = 8
AT_ONCE = max(1, (os.cpu_count() or 1) // 4)  # more would measure how fast Python starts on a busy machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``entries`` of ``files`` each, which take between ``shortest`` and ``longest`` seconds, on ``cores``."""

    entries: int
    files: int
    cores: int
    shortest: float
    longest: float


CASES = (
    Case(entries=10, files=2, cores=2, shortest=0.5, longest=1.5),
    Case(entries=2, files=12, cores=4, shortest=0.5, longest=3),
    Case(entries=3, files=6, cores=4, shortest=1, longest=4),
    Case(entries=3, files=6, cores=8, shortest=1, longest=4),
    Case(entries=8, files=6, cores=8, shortest=0.5, longest=3),
)


def write(folder: Path, durations: list[float]) -> Path:
    """Write a build of sleeps."""
    folder.mkdir()
    launcher = f"{sys.executable} -I -S {once.__file__} {folder} {folder}"
    edges = (f"rule r{i}\n  command = {launcher} sleep {d:.2f}\nbuild o{i}: r{i}\n" for i, d in enumerate(durations))
    (folder / "build.ninja").write_text("".join(edges), encoding="ascii")
    return folder


def ninja(folder: Path, *arguments: str, **environ: str) -> None:
    """Run a build."""
    env = {**os.environ, **environ}
    subprocess.run([NINJA, "-C", folder, *arguments], env=env, stdout=subprocess.DEVNULL, check=True)


def shared(folders: list[Path], cores: int, clients: Clients) -> None:
    """Run builds side by side in one pool, as entries are."""
    pool, waiting = Pool(cores), queue.SimpleQueue[Path]()
    shares = Shares(pool, compilers_wait=True)
    for folder in folders:
        waiting.put(folder)

    def work() -> None:
        held = Held(pool)
        while not waiting.empty():
            folder = waiting.get()
            with held.token(), shares.share(clients) as share:
                ninja(folder, *share.arguments, **share.environ)
        held.give()

    with ThreadPoolExecutor(min(cores, len(folders))) as threads:
        for made in [threads.submit(work) for _ in range(min(cores, len(folders)))]:
            made.result()
    pool.close()


def ratios(case: Case, seed: int) -> dict[Clients, float]:
    """Return how much longer the pool takes for one draw, by those that take jobs from it."""
    draw = random.Random(seed)  # noqa: S311 -- durations
    jobs = [[draw.uniform(case.shortest, case.longest) for _ in range(case.files)] for _ in range(case.entries)]
    jobs.sort(key=sum, reverse=True)  # as the order of entries is
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        together = write(root / "all", [each for entry in jobs for each in entry])
        folders = [write(root / f"e{i}", entry) for i, entry in enumerate(jobs)]
        start = time.perf_counter()
        ninja(together, "-j", str(case.cores))
        alone = time.perf_counter() - start
        found = {}
        for clients in (Clients.NINJA, Clients.COMPILERS):
            start = time.perf_counter()
            shared(folders, case.cores, clients)
            found[clients] = (time.perf_counter() - start) / alone
        return found


def main() -> None:
    """Print a line for each case."""
    for case in CASES:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            draws = list(threads.map(lambda seed, case=case: ratios(case, seed), range(DRAWS)))
        for clients in draws[0]:
            found = sorted(draw[clients] for draw in draws)
            print(f"{case}, {clients}: median {found[DRAWS // 2]:.2f}, worst {found[-1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
