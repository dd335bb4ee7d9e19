"""Builds many projects three ways and writes what differs: ``python tests/oracle/run.py [--count N] [--only TEXT]``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS)]

from oracle import comparing, projects, tools  # noqa: E402
from oracle.workshop import WAYS, Workshop  # noqa: E402

RESULTS = TESTS.parent / "benchmarks" / "results" / "oracle.md"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A project, what differs, the error of each way, and the words by which a way was refused at first."""

    project: projects.Project
    differences: list[comparing.Difference]
    errors: dict[str, str]
    refused: dict[str, str]


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
    seen = {
        way: None if each.error else comparing.watch(project, each, workshop.torch, forks=workshop.forks)
        for way, each in built.items()
    }
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


def processor_seconds() -> float:
    """Return what this process and those that it started have used."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> int:
    """Return 1 where a difference is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=None, help="how many projects (default: all pairs)")
    parser.add_argument("--seed", type=int, default=0, help="other values come first")
    parser.add_argument("--only", default="", help="only projects whose name has this text")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; kept")
    parser.add_argument("--tools", type=Path, default=None, help="where compilers and packages are kept")
    torch = os.environ.get("HTE_TORCH_CPU_PYTHON", sys.executable)
    parser.add_argument("--torch", type=Path, default=torch, help="a Python with torch 2.13 and its headers")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="oracle-"))
    folder.mkdir(parents=True, exist_ok=True)
    kept = options.tools or folder / "tools"
    tools.assemble(kept)
    os.environ["PATH"] = f"{kept / 'compilers' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ccache = Path(found) if (found := shutil.which("ccache")) else None
    workshop = Workshop(folder, Path(options.torch), wheels=kept / "wheels", ccache=ccache, cache=kept / "ccache")
    here = projects.EVERYWHERE - projects.lacking()
    drawn = projects.choices(options.count, seed=options.seed, at_hand=here)
    wanted = [choice for choice in drawn if options.only in projects.project(choice).name]
    began = processor_seconds()
    rows: list[Row] = []
    for choice in wanted:
        start = processor_seconds()
        row = tried(choice, workshop)
        rows.append(row)
        faults = [each for each in row.differences if not each.by]
        failed = ", ".join(way for way, error in row.errors.items() if error)
        said = f"{'FAULT' if faults else 'ok'}: {row.project.name}; not built: {failed or 'none'}"
        print(f"{len(rows)}/{len(wanted)} {processor_seconds() - start:.1f} s {said}", flush=True)
        for each in faults:
            print(f"    {each.way}: {each.what}\n      plain: {each.plain}\n      ours:  {each.ours}", flush=True)
        if options.write:  # each time: hundreds take hours
            RESULTS.write_text(report(rows, len(wanted), processor_seconds() - began), encoding="utf-8")
        if faults and options.folder is not None:  # to be looked at
            for place in sorted(folder.glob("project*")):
                shutil.copytree(place, folder / f"fault{len(rows)}" / place.name, symlinks=True, dirs_exist_ok=True)
    workshop.forks.close()
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(not each.by for row in rows for each in row.differences))


def report(rows: list[Row], wanted: int, took: float) -> str:
    """Return the page of results; ``wanted`` is how many projects there are, ``took`` their processor seconds."""
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
        f"{took / max(len(rows), 1):.1f} s of processor time each.",
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
