"""``python tests/field/run.py [NAME…]``: projects of others, built and compared; rows into benchmarks/results/field.md.

A NAME is a project (``torchsort``), or one way of it (``torch_scatter:cmake``); without any, all are tried, the
smallest first. Full installs of torch are made in ``--torches`` where they are missing (gigabytes); ``--releases``
says which. ``--turn`` runs ``init`` alone, and keeps what the results say of the build. What is fetched and built lies
in ``--folder``, and the store is the user's own.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "src"), str(HERE.parent)]

import uv  # noqa: E402

from field import work  # noqa: E402
from field.projects import PROJECTS, Project  # noqa: E402
from hatch_torch_ext.base import process  # noqa: E402

RESULTS = HERE.parent.parent / "benchmarks" / "results" / "field.md"
HEAD = """\
# Projects of others, from the package index

`python tests/field/run.py`: each source distribution is fetched by name and version, ours is added, the wheel is built
from thin SDKs (CPU variants, but where a row says otherwise) and installed beside full releases of torch, and operators
are compared with a reference in plain torch (`tests/field/checks`). `init` is `hatch-torch-ext init` in a project with
a setup.py, and nothing by hand; `cmake` is a pyproject.toml beside the project's own CMakeLists.txt. Lines by hand are
those of pyproject.toml and of what loads the library. Times are of a machine with two cores that did other work too.
A project of `tests/field/projects.py` that has no row here was not run yet.

| project | way | files written | lines by hand | listed for the author | built | outcome |
|---|---|---|---|---|---|---|
"""


BUILT = 6
"""The first cell of a row that is about the build, where it is parted at `|`."""


def chosen(names: list[str]) -> list[Project]:
    """Return the projects that are named; raises SystemExit for a name that none has."""
    found = [each for each in PROJECTS if not names or each.name in names or each.key in names]
    unknown = [name for name in names if name not in {part for each in PROJECTS for part in (each.name, each.key)}]
    if unknown:
        known = ", ".join(each.key for each in PROJECTS)
        sys.exit(f"no project {', '.join(unknown)}; there are {known}")
    return found


def installed(folder: Path, release: str) -> Path:
    """Return the Python of a full install of torch in ``folder``, made where it is missing."""
    there = sorted(folder.glob(f"{release}.*")) or [folder / release]
    python = there[-1] / "bin" / "python"
    if not python.is_file():
        process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", work.PYTHON, there[-1]])
        command: list[str | Path] = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python]
        process.run([*command, f"torch=={release}.*", "numpy"])
    return python


def record(outcome: work.Outcome, *, turned: bool) -> None:
    """Put the row of ``outcome`` into the results, in the order of the projects; ``turned`` was not built this time."""
    with RESULTS.open("a+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # another run may add its row at the same time
        stream.seek(0)
        rows = {}
        for line in stream.read().splitlines()[len(HEAD.splitlines()) :]:
            cells = [cell.strip() for cell in line.split("|")]
            rows[f"{cells[1].split()[0]}:{cells[2]}"] = line
        before, row = rows.get(outcome.project.key), outcome.row
        if turned and before and outcome.project.built and not outcome.failed:
            row = "|".join([*row.split("|")[:BUILT], *before.split("|")[BUILT:]])
        rows[outcome.project.key] = row
        order = [each.key for each in PROJECTS if each.key in rows]
        stream.truncate(0)
        stream.write(HEAD + "".join(f"{rows[key]}\n" for key in order))


def main() -> int:
    """Run the command; return the exit status: 1 where a project failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--releases", default="2.8,2.13", help="of torch (2.8,2.13)")
    parser.add_argument("--torches", type=Path, default=Path("build/torches"), help="folder of full installs")
    parser.add_argument("--folder", type=Path, default=Path("build/field"), help="what is fetched and built")
    parser.add_argument("--turn", action="store_true", help="run init alone, and build nothing")
    options = parser.parse_args()
    torches = {release: installed(options.torches.absolute(), release) for release in options.releases.split(",")}
    failed = 0
    for project in chosen(options.names):
        outcome = work.run(project, options.folder.absolute(), torches, {}, turn_alone=options.turn)
        record(outcome, turned=options.turn)
        print(outcome.row, flush=True)
        failed += outcome.failed is not None
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
