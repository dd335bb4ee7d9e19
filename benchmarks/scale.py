"""What building many entries costs beside what their compile commands cost: cold, again, one file changed, 200 of them.

    python benchmarks/scale.py [--out benchmarks/results/scale.md] [--releases 2.4,2.5] [--entries 200]

"Bare" is one `ninja -j CORES` over the compile and link commands of all entries, in the very same build folders, right
after the build that it is compared with. SDKs and environments are warm in both; no compiler cache. Needs an index that
has the releases; takes a quarter of an hour on two idle cores, and says how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from releases import RELEASES, prepare

BUILD = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
NINJA = Path(sys.executable).parent / "ninja"
PEAK = (
    "import resource, runpy, sys; sys.argv = ['hatchling', 'build', '-t', 'wheel']\n"
    "try: runpy.run_module('hatchling', run_name='__main__')\n"
    "finally: print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)"
)


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds that passed, and seconds of processor: on a busy machine the latter say more."""

    wall: float
    processor: float


def timed(*command: str | Path, cwd: Path) -> Took:
    """Run a command; return what it took."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(part) for part in command], cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(time.perf_counter() - start, spent)


def bare(root: Path, folder: Path, jobs: int) -> Took:
    """Run the compile and link commands of every entry in one Ninja; return what they took."""
    folder.mkdir()
    rules, edges = [], []
    for cache in sorted((root / "build" / "torch-ext").glob("*/build/CMakeCache.txt")):
        build = cache.parent
        said = subprocess.run([NINJA, "-C", build, "-t", "commands"], check=True, capture_output=True, text=True).stdout
        subprocess.run([NINJA, "-C", build, "-t", "clean"], check=True, stdout=subprocess.DEVNULL)
        compiled: list[str] = []
        for number, line in enumerate(said.splitlines()):
            if line.startswith("ninja: Entering"):
                continue
            name = f"{build.parent.name}.{number}"
            rules.append(f"rule r{name}\n  command = cd {build} && {line.replace('$', '$$')}\n")
            after = "" if " -c " in line else " ".join(compiled)
            edges.append(f"build {name}: r{name} {after}\n")
            if " -c " in line:
                compiled.append(name)
    (folder / "build.ninja").write_text("".join([*rules, *edges]), encoding="utf-8")
    return timed(NINJA, "-j", str(jobs), cwd=folder)


def events(root: Path) -> list[dict[str, object]]:
    """Return the events of the last build."""
    text = (root / "build" / "torch-ext" / "events.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def in_hook(root: Path) -> float:
    """Return how long the last build's work on entries took."""
    return next(float(str(event["seconds"])) for event in events(root) if event["event"] == "ended")


def example(folder: Path, releases: tuple[str, ...], jobs: int) -> list[str]:
    """Measure the example: cold with warm SDKs, bare, nothing changed, one file changed."""
    root = prepare(folder, releases)
    timed(*BUILD, cwd=root)  # SDKs, environments, what hatch says of the matrix
    for entry in (root / "build" / "torch-ext").glob("matrix.*"):
        subprocess.run(["rm", "-rf", entry], check=True)
    cold = timed(*BUILD, cwd=root)
    peak = max(int(str(event["peak"])) for event in events(root) if event["event"] == "done")
    nothing = timed(*BUILD, cwd=root)
    nothing_in_hook = in_hook(root)
    source = root / "csrc" / "kernels_cpu.cpp"
    source.write_text(source.read_text(encoding="utf-8") + "\n// changed\n", encoding="utf-8")
    changed = timed(*BUILD, cwd=root)
    compiles = [event for event in events(root) if event["event"] == "compiled"]
    spans = sum(float(str(event["end"])) - float(str(event["start"])) for event in compiles)
    alone = bare(root, folder / "bare", jobs)  # last: Ninja takes what it did not make itself for out of date
    return [
        f"## The example, {len(releases)} exact entries, {jobs} jobs, SDKs and environments warm",
        "",
        "| what | s | s of processor | |",
        "|---|---|---|---|",
        f"| whole build, cold | {cold.wall:.1f} | {cold.processor:.1f} | "
        f"{cold.wall / alone.wall:.2f} of bare, {cold.processor / alone.processor:.2f} by processor |",
        f"| bare commands, one `ninja -j {jobs}` | {alone.wall:.1f} | {alone.processor:.1f} | |",
        f"| nothing changed, whole process | {nothing.wall:.2f} | {nothing.processor:.2f} | "
        f"of it {nothing_in_hook:.2f} s on entries |",
        f"| one source file changed | {changed.wall:.1f} | {changed.processor:.1f} | "
        f"{len(compiles)} commands ran, {spans:.1f} s of them added up |",
        "",
        f"Largest compiler: {peak / 1e6:.0f} MB.",
    ]


def many(folder: Path, count: int) -> list[str]:
    """Measure many trivial entries: a library in C, tiny torch wheels on disk, results alone kept."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from plain import Project, make_wheels  # noqa: PLC0415 -- of the tests

    releases = [f"2.{minor}" for minor in range(1, count + 1)]
    make_wheels(folder / "wheels", [f"{release}.0" for release in releases])
    project = Project(folder / "many", folder, releases=releases)
    page = project.root / "pyproject.toml"
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    page.write_text(page.read_text(encoding="utf-8").replace(hook, f'{hook}keep = "results"\n'), encoding="utf-8")
    environ = {**os.environ, **{name: value for name, value in project.environ.items() if value is not None}}

    def run() -> tuple[float, float, int]:
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", PEAK], cwd=project.root, env=environ, check=True, capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.perf_counter() - start, spent, int(done.stderr.rpartition("peak ")[2].split()[0])

    cold, cold_cpu, cold_peak = run()
    again, again_cpu, again_peak = run()
    return [
        f"## {count} trivial entries",
        "",
        "| what | s | s of processor | our process, MB |",
        "|---|---|---|---|",
        f"| cold, with all SDKs and the environment | {cold:.0f} | {cold_cpu:.0f} | {cold_peak / 1e6:.0f} |",
        f"| nothing changed | {again:.1f} | {again_cpu:.1f} | {again_peak / 1e6:.0f} |",
    ]


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description="Many entries beside their bare commands.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "scale.md")
    parser.add_argument("--releases", default=",".join(RELEASES))
    parser.add_argument("--entries", type=int, default=200)
    options = parser.parse_args()
    jobs = len(os.sched_getaffinity(0))
    os.environ.update({"HATCH_TORCH_EXT_COMPILER_LAUNCHER": "none", "HATCH_TORCH_EXT_JOBS": str(jobs)})
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        parts = []
        if options.releases:
            parts += [*example(Path(name), tuple(options.releases.split(",")), jobs), ""]
        if options.entries:
            parts += [*many(Path(name), options.entries), ""]
    text = "\n".join(
        [
            "# Many entries",
            "",
            f"Recorded on {datetime.now(timezone.utc):%Y-%m-%d} with",
            f"`{' '.join(['python benchmarks/scale.py', *sys.argv[1:]])}`:",
            f"{platform.machine()}, {jobs} cores, Python {platform.python_version()}. Load of the machine before: "
            f"{before:.1f}, at the end {os.getloadavg()[0]:.1f}.",
            "",
            *parts,
        ]
    )
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
