"""Builds many projects three ways and writes what differs: ``python tests/oracle/run.py [--count N] [--workers N]``."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "src")]

from hatch_torch_ext.base.process import Family  # noqa: E402
from oracle import comparing, projects, tools  # noqa: E402
from oracle.workshop import WAYS, Workshop  # noqa: E402

RESULTS = TESTS.parent / "benchmarks" / "results" / "oracle.md"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A project, what differs, the error of each way, and the words by which a way was refused at first.

    ``seconds`` are those of a processor.
    """

    project: projects.Project
    differences: list[comparing.Difference]
    errors: dict[str, str]
    refused: dict[str, str]
    seconds: float = 0

    @property
    def faults(self) -> list[comparing.Difference]:
        """Return the differences that nothing explains."""
        return [each for each in self.differences if not each.by]


def tried(choice: projects.Choice, workshop: Workshop) -> Row:
    """Build and compare one project, and do what an error of ours asks for."""
    project = projects.project(choice)
    compiler = choice["compiler"]
    root = workshop.project("project", project.files)  # always there: the compiler's cache knows folders
    built = {way: workshop.build(way, root, compiler=compiler) for way in WAYS}
    refused: dict[str, str] = {}
    if not built["plain"].error:
        for way in WAYS[1:]:
            words, other, define = remedy(choice, way, built[way].error)
            if words:
                refused[way] = words
                again = workshop.project(f"project-{way}", projects.project(other).files)
                built[way] = workshop.build(way, again, compiler=compiler, define=define)
    is_same = built["thin"].files == built["environment"].files  # before Python writes caches into them
    seen: dict[str, comparing.Seen | None] = {}
    for way, each in built.items():
        if each.error:
            seen[way] = None
        elif way == "environment" and is_same:
            seen[way] = seen["thin"]  # the same bytes do the same
        else:
            seen[way] = comparing.watch(project, each, workshop.torch, forks=workshop.forks)
    found = []
    for way in WAYS[1:]:
        found += comparing.compare(built["plain"], built[way], seen["plain"], seen[way])
    return Row(
        project=project,
        differences=found,
        errors={way: each.error for way, each in built.items()},
        refused=refused,
    )


def remedy(choice: projects.Choice, way: str, error: str) -> tuple[str, projects.Choice, tuple[tuple[str, str], ...]]:
    """Return the words of an error that says what to do, the choice that has it done, and the variables to define."""
    if way == "thin" and choice["runs"] in (*projects.NEEDS_TORCH, "stubs"):
        words = "While the project is built, it runs a program or a Python module that links torch"
        if words in error:  # `sdk = "environment"` is compared anyway: without what runs, thin is too
            return words, {**choice, "runs": "none"}, ()
    words = "While CMake configures, it tries a program that links torch"
    if choice["runs"] == "try_run" and words in error:
        return words, choice, (("ran", "0"),)
    return "", choice, ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where all workers work (each in a folder of its own), the Python with torch, and what ``tools`` assembled."""

    folder: Path
    torch: Path
    tools: Path


@cache
def workshop(place: Place) -> Workshop:
    """Return the workshop of this process; the compiler's cache is everybody's."""
    wheels = place.tools / "wheels"
    ccache = wheels / "bin" / "ccache"
    return Workshop(
        place.folder / f"worker{os.getpid()}",
        place.torch,
        wheels=wheels,
        ccache=ccache if ccache.exists() else None,
        cache=place.tools / "ccache",
        precompiles=True,
    )


def row(number: int, choice: projects.Choice, place: Place) -> Row:
    """Return what was tried, in one of the workers; the folders of a project with a fault are kept."""
    here = workshop(place)
    began = processor_seconds(here)
    try:
        found = tried(choice, here)
    except Exception:  # noqa: BLE001 -- the others go on
        broken = comparing.Difference(way="oracle", what="raised", plain="", ours=traceback.format_exc())
        errors: dict[str, str] = dict.fromkeys(WAYS, broken.ours)
        found = Row(project=projects.project(choice), differences=[broken], errors=errors, refused={})
    if found.faults:
        for each in sorted(here.folder.glob("project*")):
            shutil.copytree(each, place.folder / f"fault{number}" / each.name, symlinks=True, dirs_exist_ok=True)
    return replace(found, seconds=processor_seconds(here) - began)


def processor_seconds(workshop: Workshop) -> float:
    """Return what this process, those that it started, and the children in which projects are opened have used."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + workshop.forks.seconds


def main() -> int:
    """Return 1 where a difference is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=None, help="how many projects (default: all pairs)")
    parser.add_argument("--quick", action="store_true", help="those of every run of the tests")
    parser.add_argument("--seed", type=int, default=0, help="other values come first")
    parser.add_argument("--only", default="", help="only projects whose name has this text")
    parser.add_argument("--numbers", default="", help="only these of them: 3,14,15")
    parser.add_argument("--workers", type=int, default=1, help="how many projects at once")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; kept")
    parser.add_argument("--tools", type=Path, default=None, help="where compilers and packages are kept")
    torch = os.environ.get("HTE_TORCH_CPU_PYTHON", sys.executable)
    parser.add_argument("--torch", type=Path, default=torch, help="a Python with torch 2.13 and its headers")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="oracle-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    kept = (options.tools or folder / "tools").absolute()
    tools.assemble(kept)
    os.environ["PATH"] = f"{kept / 'compilers' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    at_hand = projects.EVERYWHERE - projects.lacking()
    drawn = projects.choices(options.count, seed=options.seed, at_hand=at_hand)
    if options.quick:
        quick = [choice for choice in projects.QUICK if not projects.lacking().intersection(choice.values())]
        drawn = quick[: options.count]
    numbers = set(map(int, options.numbers.split(","))) if options.numbers else set(range(1, len(drawn) + 1))
    wanted = {
        number: choice
        for number, choice in enumerate(drawn, 1)
        if number in numbers and options.only in projects.project(choice).name
    }
    rows = run(wanted, Place(folder=folder, torch=options.torch, tools=kept), options.workers, write=options.write)
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(each.faults for each in rows))


@contextlib.contextmanager
def together() -> Iterator[None]:
    """End the workers and all that they started when this process ends, and when it is killed."""
    family = Family(f"oracle{os.getpid()}")
    os.environ.update(family.environ)
    with family.guarded():
        yield


def pool_of(workers: int) -> ProcessPoolExecutor:
    """Return the workers."""
    # Not forked: what opens projects ends with its worker, by the end of a pipe that no other process has.
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def run(wanted: dict[int, projects.Choice], place: Place, workers: int, *, write: bool) -> list[Row]:
    """Try the projects, each by the next free one of the workers; print each as it is done."""
    began, done = time.monotonic(), {}
    with together(), pool_of(workers) as pool:
        begun = {pool.submit(row, number, choice, place): number for number, choice in wanted.items()}
        for each in as_completed(begun):
            number = begun[each]
            done[number] = found = each.result()
            passed = f"{len(done)}/{len(wanted)} after {time.monotonic() - began:.0f} s"
            print(f"{passed}, {found.seconds:.1f} s, {said(number, found)}", flush=True)
            if write:  # each time: hundreds take hours
                RESULTS.write_text(report([done[key] for key in sorted(done)], len(wanted)), encoding="utf-8")
    return [done[key] for key in sorted(done)]


def said(number: int, found: Row) -> str:
    """Return the lines about a project."""
    failed = ", ".join(way for way, error in found.errors.items() if error)
    lines = [f"{'FAULT' if found.faults else 'ok'}: [{number}] {found.project.name}; not built: {failed or 'none'}"]
    for fault in found.faults:
        lines += [f"    {fault.way}: {fault.what}", f"      plain: {fault.plain}", f"      ours:  {fault.ours}"]
    return "\n".join(lines)


def report(rows: list[Row], wanted: int) -> str:
    """Return the page of results; ``wanted`` is how many projects there are."""
    built = Counter(way for row in rows for way, error in row.errors.items() if not error)
    compared = Counter(way for row in rows for way in WAYS[1:] if not row.errors["plain"] and not row.errors[way])
    counted = Counter(
        (each.by or "NOT EXPLAINED", each.what.split()[0], each.way) for row in rows for each in row.differences
    )
    refused = Counter((words, way) for row in rows for way, words in row.refused.items())
    lines = [
        "# What a plain build gives, and ours",
        "",
        f"`python tests/oracle/run.py --count {wanted} --write`: {len(rows)} projects, "
        f"{sum(row.seconds for row in rows) / max(len(rows), 1):.1f} s of processor time each.",
        f"Built: {', '.join(f'{way} {built[way]}' for way in WAYS)}. "
        f"Opened beside the plain build: {', '.join(f'{way} {compared[way]}' for way in WAYS[1:])}.",
        *(f"Not here: {', '.join(sorted(lacking))}." for lacking in [projects.lacking()] if lacking),
        "",
        "| explained by | what differs | SDK | how often |",
        "|---|---|---|---|",
        *(f"| {by} | {what} | {way} | {count} |" for (by, what, way), count in sorted(counted.items())),
        "",
        "| refused at first, and built as the error says | SDK | how often |",
        "|---|---|---|",
        *(f"| {words} | {way} | {count} |" for (words, way), count in sorted(refused.items())),
        "",
        "| project | not built by | explained by |",
        "|---|---|---|",
        *(
            f"| {row.project.name} | {', '.join(way for way, error in row.errors.items() if error) or '-'} "
            f"| {', '.join(sorted({each.by or 'NOT EXPLAINED' for each in row.differences})) or '-'} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
