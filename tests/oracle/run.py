"""Builds many projects three ways and writes what differs: ``python tests/oracle/run.py [--count N] [--only TEXT]``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS)]

from oracle import comparing, projects  # noqa: E402
from oracle.workshop import WAYS, Workshop  # noqa: E402

RESULTS = TESTS.parent / "benchmarks" / "results" / "oracle.md"


Row = tuple[projects.Project, list[comparing.Difference], dict[str, str]]
"""A project, what differs, and the error of each way."""


def tried(number: int, choice: projects.Choice, workshop: Workshop) -> Row:
    """Build and compare one project; return what differs, and the error of each way."""
    project = projects.project(choice)
    root = workshop.project(f"p{number:03}", project.files)
    built = {way: workshop.build(way, root) for way in WAYS}
    seen = {way: None if each.error else comparing.watch(project, each, workshop.torch) for way, each in built.items()}
    found = []
    for way in WAYS[1:]:
        found += comparing.compare(built["plain"], built[way], seen["plain"], seen[way])
    return project, found, {way: each.error for way, each in built.items()}


def main() -> int:
    """Return 1 where a difference is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=None, help="how many projects (default: all pairs)")
    parser.add_argument("--seed", type=int, default=0, help="other values come first")
    parser.add_argument("--only", default="", help="only projects whose name has this text")
    parser.add_argument("--jobs", type=int, default=1, help="projects side by side")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; kept")
    torch = os.environ.get("HTE_TORCH_CPU_PYTHON", sys.executable)
    parser.add_argument("--torch", type=Path, default=torch, help="a Python with torch 2.13 and its headers")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="oracle-"))
    folder.mkdir(parents=True, exist_ok=True)
    workshop = Workshop(folder, Path(options.torch), ccache=Path(found) if (found := shutil.which("ccache")) else None)
    wanted = [
        (number, choice)
        for number, choice in enumerate(projects.choices(options.count, seed=options.seed))
        if options.only in projects.project(choice).name
    ]
    began = time.monotonic()
    rows: list[Row] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda each: tried(each[0], each[1], workshop), wanted):
            rows.append(row)
            project, differences, errors = row
            faults = [each for each in differences if not each.by]
            state = "FAULT" if faults else "ok"
            failed = ", ".join(way for way, error in errors.items() if error)
            print(f"{len(rows)}/{len(wanted)} {state}: {project.name}; not built: {failed or 'none'}", flush=True)
            for each in faults:
                print(f"    {each.way}: {each.what}\n      plain: {each.plain}\n      ours:  {each.ours}", flush=True)
            if options.write:  # each time: hundreds take hours
                RESULTS.write_text(report(rows, len(wanted), time.monotonic() - began), encoding="utf-8")
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(not each.by for _, differences, _ in rows for each in differences))


def report(rows: list[Row], wanted: int, took: float) -> str:
    """Return the page of results; ``wanted`` is how many projects there are."""
    built = Counter(way for _, _, errors in rows for way, error in errors.items() if not error)
    counted = Counter(
        (each.by or "NOT EXPLAINED", each.what.split()[0], each.way) for _, found, _ in rows for each in found
    )
    lines = [
        "# What a plain build gives, and ours",
        "",
        f"`python tests/oracle/run.py --write`: the first {len(rows)} of {wanted} projects, {took / 60:.0f} minutes.",
        f"Built: {', '.join(f'{way} {built[way]}' for way in WAYS)}.",
        "",
        "| explained by | what differs | SDK | how often |",
        "|---|---|---|---|",
        *(f"| {by} | {what} | {way} | {count} |" for (by, what, way), count in sorted(counted.items())),
        "",
        "| project | not built by | explained by |",
        "|---|---|---|",
        *(
            f"| {project.name} | {', '.join(way for way, error in errors.items() if error) or '-'} "
            f"| {', '.join(sorted({each.by or 'NOT EXPLAINED' for each in found})) or '-'} |"
            for project, found, errors in rows
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
