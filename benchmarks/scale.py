"""What building many entries costs beside what must be done anyway: each aim of the project, in one run.

    python benchmarks/scale.py [PART…] [--store FOLDER] [--torch PYTHON] [--out benchmarks/results/scale.md]

Parts, all by default: `example` (ten exact entries beside their bare commands, nothing changed, one file changed),
`overhead` (what an entry costs besides CMake's commands), `many` (200 trivial entries), `kernels` (CUDA 13 entries of
three releases, kernels compiled once), `scikit` (one entry beside scikit-build-core). SDKs and environments are warm,
no compiler cache but in `kernels`. Python keeps the bytecode of what it imports, as after an installation by pip. Needs
an index; for `scikit` torch 2.13 is installed, unless `--torch`, or HTE_TORCH_CPU_PYTHON, names a Python that has it.
Takes about ten minutes on two idle cores; with `--store`, SDKs are fetched once for many runs. A busy machine shows in
seconds of processor beside seconds that passed, and in the line on what two cores share. Where only some parts are
measured, the results are printed, and written only into the file that `--out` names.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import kernels_once
import uv
from releases import LEFT_OUT, RELEASES, prepare

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from hatch_torch_ext.facts.backend import Backend
from plain import Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Mapping

BUILD = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
NINJA = Path(sys.executable).parent / "ninja"
PEAK = (
    "import resource, runpy, sys; sys.argv = ['hatchling', 'build', '-t', 'wheel']\n"
    "try: runpy.run_module('hatchling', run_name='__main__')\n"
    "finally: print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)"
)
STUB = """cmake_minimum_required(VERSION 3.26)
project(stub LANGUAGES C)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/stub.c "int stub;")
add_library(stub SHARED ${CMAKE_CURRENT_BINARY_DIR}/stub.c)
install(TARGETS stub LIBRARY DESTINATION .)
"""
TRIVIAL = 10
CHANGED = {"bindings.cpp": "one that includes torch's headers", "kernels_cpu.cpp": "one that includes none"}
SCIKIT = """[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"
[project]
name = "torch-ext-example"
version = "0.1.0"
[tool.scikit-build]
cmake.source-dir = "csrc"
cmake.args = ["-DCMAKE_PREFIX_PATH={prefix}"]
build-dir = "build/scikit"
wheel.packages = ["src/torch_ext_example"]
wheel.install-dir = "torch_ext_example"
"""
HOOK = "import sys; from {backend} import build_wheel; build_wheel(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds that passed, and seconds of processor."""

    wall: float
    processor: float
    errors: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the results: ``value`` is to be at most ``aim`` (None: told, not aimed at)."""

    what: str
    said: str
    value: float | None = None
    aim: float | None = None

    def __str__(self) -> str:
        if self.value is None or self.aim is None:
            return f"| {self.what} | {self.said} | | |"
        met = "met" if self.value <= self.aim else "**missed**"
        return f"| {self.what} | {self.said} | at most {self.aim:g} | {met} |"


def timed(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Took:
    """Run a command; return what it took."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(time.perf_counter() - start, spent, done.stderr)


def quicker(runs: list[Took]) -> Took:
    """Return the run that took the shortest time: least of what else the machine did."""
    return min(runs, key=lambda took: took.wall)


def commands(root: Path, *, only: str = "") -> dict[str, list[str]]:
    """Return the compile and link commands of each entry, those that name ``only``; what they made is removed."""
    found = {}
    for cache in sorted((root / "build" / "torch-ext").glob("*/build/CMakeCache.txt")):
        build = cache.parent
        said = subprocess.run([NINJA, "-C", build, "-t", "commands"], check=True, capture_output=True, text=True).stdout
        lines = [line for line in said.splitlines() if not line.startswith("ninja: Entering")]
        found[build.parent.name] = [
            f"cd {shlex.quote(str(build))} && {line}" for line in lines if only in line or " -c " not in line
        ]
    return found


def bare(found: dict[str, list[str]], folder: Path, jobs: int) -> Took:
    """Run all commands in one Ninja, those that link after those that compile."""
    folder.mkdir()
    rules, edges = [], []
    for entry, lines in found.items():
        compiled: list[str] = []
        for number, line in enumerate(lines):
            name = f"{entry}.{number}"
            rules.append(f"rule r{name}\n  command = {line.replace('$', '$$')}\n")
            edges.append(f"build {name}: r{name} {'' if ' -c ' in line else ' '.join(compiled)}\n")
            if " -c " in line:
                compiled.append(name)
    (folder / "build.ninja").write_text("".join([*rules, *edges]), encoding="utf-8")
    return timed(NINJA, "-j", str(jobs), cwd=folder)


def shared(found: dict[str, list[str]], folder: Path) -> float:
    """Return how much longer a compile takes beside another one than alone: 1 where two cores share nothing."""
    entry, lines = next(iter(found.items()))
    line = next(line for line in lines if " -c " in line)
    alone = bare({entry: [line]}, folder / "alone", 1)
    both = bare({entry: [line, re.sub(r" -o (\S+)", r" -o \1.second", line)]}, folder / "both", 2)
    return both.wall / alone.wall


def events(root: Path, kind: str) -> list[dict[str, Any]]:
    """Return the last build's events of a kind."""
    text = (root / "build" / "torch-ext" / "events.jsonl").read_text(encoding="utf-8")
    return [event for event in map(json.loads, text.splitlines()) if event["event"] == kind]


def warm(root: Path, environ: Mapping[str, str] = MappingProxyType({})) -> None:
    """Fetch SDKs and make environments: by a build that compiles nothing of the project."""
    page = root / "csrc" / "CMakeLists.txt"
    text = page.read_text(encoding="utf-8")
    page.write_text(STUB, encoding="utf-8")
    timed(*BUILD, cwd=root, env={**os.environ, **environ})
    page.write_text(text, encoding="utf-8")
    shutil.rmtree(root / "dist")
    forget(root)


def forget(root: Path) -> None:
    """Remove what was built of every entry; environments and what hatch said of the matrix stay."""
    for folder in (root / "build" / "torch-ext").iterdir():
        if folder.is_dir() and folder.name != "environments":
            shutil.rmtree(folder)


def packed_only(root: Path, folder: Path) -> Path:
    """Return a project that hatchling packs the same files of, with no hook: what it takes is no cost of ours."""
    shutil.copytree(root, folder, ignore=LEFT_OUT)
    (folder / "hatch.toml").unlink()
    page = folder / "pyproject.toml"
    page.write_text(re.sub(r"(?m)^dynamic = .*$", "", page.read_text(encoding="utf-8")), encoding="utf-8")
    (wheel,) = (root / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "src", [name for name in archive.namelist() if ".dist-info/" not in name])
    return folder


def example(folder: Path, jobs: int, releases: tuple[str, ...]) -> list[Line]:
    """Measure ten exact entries of the example: cold with warm SDKs, nothing changed, one file changed.

    The bare commands run in turn with the builds: what else the machine does then comes to both.
    """
    root = prepare(folder, releases)
    warm(root)
    colds, alones = [], []
    for attempt in range(2):
        forget(root)
        colds.append(timed(*BUILD, cwd=root))
        alones.append(bare(commands(root), folder / f"bare{attempt}", jobs))
    cold, alone = quicker(colds), quicker(alones)
    peak = max(event["peak"] for event in events(root, "done"))
    forget(root)  # Ninja takes what it did not make itself for out of date
    timed(*BUILD, cwd=root)
    nothing = [timed(*BUILD, cwd=root) for _ in range(3)]
    without = packed_only(root, folder / "packed")
    packing = [timed(*BUILD, cwd=without) for _ in range(3)]
    still = statistics.median(took.wall for took in nothing)
    ours = still - statistics.median(took.wall for took in packing)
    changed = {}
    for name in CHANGED:
        source = root / "csrc" / name
        text = source.read_text(encoding="utf-8")
        runs = []
        for attempt in range(2):
            source.write_text(f"{text}\n// changed, {attempt}\n", encoding="utf-8")
            runs.append(timed(*BUILD, cwd=root))
        changed[name] = quicker(runs), len(events(root, "compiled"))
    its = {
        name: quicker([bare(commands(root, only=name), folder / f"{name}{attempt}", jobs) for attempt in range(2)])
        for name in CHANGED
    }
    sharing = shared(commands(root), folder)
    over = {name: changed[name][0].wall - still for name in CHANGED}
    counted = Backend("cpu").memory / 1e9
    return [
        Line(
            f"{len(releases)} exact entries of the example, cold, over one `ninja -j {jobs}` of their commands (the "
            "quicker of two each)",
            f"{cold.wall / alone.wall:.2f} ({cold.wall:.1f} s over {alone.wall:.1f} s; by processor "
            f"{cold.processor / alone.processor:.2f})",
            cold.wall / alone.wall,
            1.1,
        ),
        Line("what a compile takes beside another on this machine, over alone", f"{sharing:.2f}"),
        Line("largest compiler, GB, of what is counted for a job", f"{peak / 1e9:.2f}", peak / 1e9, counted),
        Line(
            "nothing changed: seconds more than hatchling takes to pack the same files (median of three)",
            f"{ours:.2f} ({', '.join(f'{took.wall:.2f}' for took in nothing)} s in all; "
            f"{statistics.median(took.processor for took in nothing):.2f} s of processor)",
            ours,
            1.0,
        ),
        *(
            Line(
                f"one source changed ({CHANGED[name]}): seconds more than with nothing changed, over bare commands "
                "(the quicker of two each)",
                f"{over[name] / its[name].wall:.2f} ({took.wall:.1f} s in all, {ran} commands; bare "
                f"{its[name].wall:.1f} s)",
                over[name] / its[name].wall,
                1.2,
            )
            for name, (took, ran) in changed.items()
        ),
    ]


def trivial(folder: Path, count: int) -> tuple[Project, dict[str, str]]:
    """Make a project of so many entries: a library in C, tiny torch wheels on disk."""
    folder.mkdir()
    releases = [f"2.{minor}" for minor in range(1, count + 1)]
    make_wheels(folder / "wheels", [f"{release}.0" for release in releases])
    project = Project(folder / "project", folder, releases=releases)
    environ = {**os.environ, **{name: value for name, value in project.environ.items() if value is not None}}
    for name in ("HATCH_TORCH_EXT_COMPILER_LAUNCHER", "HATCH_TORCH_EXT_JOBS"):
        environ[name] = os.environ[name]
    return project, environ


def overhead(folder: Path) -> list[Line]:
    """Measure what an entry takes besides CMake's own commands, which are run again as its log has them."""
    project, environ = trivial(folder / "overhead", TRIVIAL)
    environ["HATCH_TORCH_EXT_JOBS"] = "1"
    timed(*BUILD, cwd=project.root, env=environ)
    forget(project.root)
    timed(*BUILD, cwd=project.root, env=environ)
    work = project.root / "build" / "torch-ext"
    seconds, by_hand = [event["seconds"] for event in events(project.root, "done")], []
    for log in sorted(work.glob("*/log.txt")):
        typed = [line[2:] for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("$ ")]
        steps = [line for line in typed if re.search(r"/(cmake|ninja) ", line)]
        shutil.rmtree(log.parent / "build")
        env = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
        took = [timed("sh", "-c", re.sub(r" MAKEFLAGS=\S+", "", step), cwd=project.root, env=env) for step in steps]
        by_hand.append(sum(each.wall for each in took))
    more = statistics.mean(seconds) - statistics.mean(by_hand)
    return [
        Line(
            f"an entry without its CMake commands, s (mean of {TRIVIAL} trivial ones, one job)",
            f"{more:.2f} ({statistics.mean(seconds):.2f} s, by hand {statistics.mean(by_hand):.2f} s)",
            more,
            0.3,
        )
    ]


def many(folder: Path, count: int) -> list[Line]:
    """Measure many trivial entries: results alone kept."""
    project, environ = trivial(folder / "many", count)
    page = project.root / "pyproject.toml"
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    page.write_text(page.read_text(encoding="utf-8").replace(hook, f'{hook}keep = "results"\n'), encoding="utf-8")

    def run() -> tuple[Took, int]:
        took = timed(sys.executable, "-c", PEAK, cwd=project.root, env=environ)
        return took, int(took.errors.rpartition("peak ")[2].split()[0])

    (cold, peak), (again, _) = run(), run()
    return [
        Line(
            f"{count} trivial entries with their SDKs, minutes",
            f"{cold.wall / 60:.1f} ({cold.processor:.0f} s of processor)",
            cold.wall / 60,
            10,
        ),
        Line(f"{count} trivial entries: our process, MB", f"{peak / 1e6:.0f}", peak / 1e6, 200),
        Line(f"{count} trivial entries, nothing changed, s", f"{again.wall:.1f} ({again.processor:.1f} of processor)"),
    ]


def kernels(folder: Path, store: Path) -> list[Line]:
    """Measure CUDA 13 entries of three releases with the compiler cache of a fresh machine."""
    own = {name: os.environ.pop(name) for name in ("HATCH_TORCH_EXT_COMPILER_LAUNCHER", "HATCH_TORCH_EXT_JOBS")}
    found = kernels_once.measure(folder / "kernels", store, list(kernels_once.RELEASES), warm=warm)
    os.environ.update(own)
    return [
        Line(
            "compiles of CUDA 13 entries of three releases, over one entry's kernels and all bindings",
            f"{found.ratio:.2f} ({found.everything:.1f} s; kernels {found.kernels:.1f} s, bindings "
            f"{found.bindings:.1f} s; hits and compiles {found.hits})",
            found.ratio,
            kernels_once.AIM,
        )
    ]


def installed_torch(folder: Path) -> str:
    """Install torch 2.13 into an environment in ``folder``; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    timed(python, "-m", "pip", "install", "--quiet", "torch==2.13.*", "numpy", cwd=folder)
    return python


def scikit(folder: Path, python: str | None) -> list[Line]:
    """Measure the example for torch 2.13 beside scikit-build-core: in turn, cold and with nothing changed.

    ``python`` has torch 2.13; without one it is installed.
    """
    python = python or installed_torch(folder / "torch")
    asked = "import torch; print(torch.utils.cmake_prefix_path)"
    prefix = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
    site = folder / "scikit-site"
    installing = ("pip", "install", "--quiet", "--compile-bytecode", "--python", sys.executable, "--target", site)
    timed(uv.find_uv_bin(), *installing, "scikit-build-core", cwd=folder)
    ours = prepare(folder / "ours", ("2.13",))
    theirs = folder / "theirs"
    shutil.copytree(ours, theirs, ignore=LEFT_OUT)
    (theirs / "hatch.toml").unlink()
    (theirs / "pyproject.toml").write_text(SCIKIT.format(prefix=prefix), encoding="utf-8")
    (theirs / "src/torch_ext_example/__init__.py").write_text("", encoding="utf-8")
    env = {**os.environ, "PATH": f"{NINJA.parent}{os.pathsep}{os.environ['PATH']}"}
    with_theirs = {**env, "PYTHONPATH": str(site)}
    warm(ours)
    took: dict[tuple[str, str], list[float]] = {}
    for _ in range(2):
        forget(ours)
        shutil.rmtree(theirs / "build", ignore_errors=True)
        for state in ("cold", "warm"):
            for who, root, backend, environ in (
                ("ours", ours, "hatchling.build", env),
                ("theirs", theirs, "scikit_build_core.build", with_theirs),
            ):
                run = timed(sys.executable, "-c", HOOK.format(backend=backend), "dist", cwd=root, env=environ)
                took.setdefault((who, state), []).append(run.wall)
    return [
        Line(
            f"one entry beside scikit-build-core, {state} (the quicker of two)",
            f"{min(took['ours', state]) / min(took['theirs', state]):.2f} ({min(took['ours', state]):.2f} s, "
            f"{min(took['theirs', state]):.2f} s)",
            min(took["ours", state]) / min(took["theirs", state]),
            1.1,
        )
        for state in ("cold", "warm")
    ]


def main() -> None:
    """Measure, print, and write the results."""
    parts = ("example", "overhead", "many", "kernels", "scikit")
    parser = argparse.ArgumentParser(description="Many entries, and one, beside what must be done anyway.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all by default")
    parser.add_argument("--out", type=Path, help="results/scale.md by default, where all parts are measured")
    parser.add_argument("--store", type=Path, help="where SDKs are kept; a temporary folder by default")
    parser.add_argument("--torch", default=os.environ.get("HTE_TORCH_CPU_PYTHON"), help="a Python with torch 2.13")
    parser.add_argument("--entries", type=int, default=200, help="of `many`")
    parser.add_argument("--releases", type=int, default=len(RELEASES), help="of `example`, the first so many")
    options = parser.parse_args()
    chosen = options.parts or parts
    if unknown := sorted({*chosen} - {*parts}):
        parser.error(f"there is no part {', '.join(unknown)}: name some of {', '.join(parts)}")
    jobs, before, began = len(os.sched_getaffinity(0)), os.getloadavg()[0], time.perf_counter()
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name), (options.store or Path(name) / "store").resolve()
        settings = {"COMPILER_LAUNCHER": "none", "JOBS": str(jobs), "CACHE": str(store)}
        os.environ.update({f"HATCH_TORCH_EXT_{key}": value for key, value in settings.items()})
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        runs = {
            "example": lambda: example(folder, jobs, RELEASES[: options.releases]),
            "overhead": lambda: overhead(folder),
            "many": lambda: many(folder, options.entries),
            "kernels": lambda: kernels(folder, store),
            "scikit": lambda: scikit(folder, options.torch),
        }
        for part in chosen:
            start = time.perf_counter()
            measured = runs[part]()
            print(f"{part}: {time.perf_counter() - start:.0f} s", *measured, sep="\n", file=sys.stderr)
            lines += measured
    text = "\n".join(
        [
            "# Many entries\n",
            f"Recorded on {datetime.now(timezone.utc):%Y-%m-%d} with "
            f"`{' '.join(['python benchmarks/scale.py', *options.parts])}`: {platform.machine()}, {jobs} cores, Python",
            f"{platform.python_version()}, in {(time.perf_counter() - began) / 60:.0f} minutes. Load of the machine "
            f"before: {before:.1f}, at the end {os.getloadavg()[0]:.1f}.\n",
            "| what | measured | aim | |",
            "|---|---|---|---|",
            *map(str, lines),
            "",
        ]
    )
    out = options.out or (None if options.parts else Path(__file__).parent / "results" / "scale.md")
    if out is not None:
        out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
