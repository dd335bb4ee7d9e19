"""``python tests/field/compared.py TORCH [NAME…]``: what setuptools packs of projects of others beside what we pack.

TORCH is a Python with torch and setuptools. Each source distribution is fetched, its wheel is made by its setup.py, and
ours by ``init`` and hatchling; ``hatch-torch-ext compare`` sets them side by side. Without ``--compile`` neither
compiles anything: files, modules, metadata, commands and requirements are compared, in seconds. Rows go into
``benchmarks/results/compared.md``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "src"), str(HERE.parent)]

from field import work  # noqa: E402
from field.projects import PROJECTS, Project  # noqa: E402
from hatch_torch_ext import compare  # noqa: E402
from hatch_torch_ext.base import process  # noqa: E402

RESULTS = HERE.parent.parent / "benchmarks" / "results" / "compared.md"
HEAD = """\
# Projects of others: the wheel of setup.py beside ours

`python tests/field/compared.py TORCH [NAME…] [--compile]`: the wheel that the published sources make by their own
setup.py, under torch 2.13, and the wheel of the same sources after `hatch-torch-ext init`, compared by `hatch-torch-ext
compare`. *Compiled* says whether the extensions were compiled; else both wheels were made without them, and what
compiled files hold was not compared. *Listed* says whether `init` names what is lost.

| project | compiled | lost | changed | new | what is lost | listed |
|---|---|---|---|---|---|---|
"""
OLD = """
import runpy, sys
import setuptools
setup = setuptools.setup
def without(**given):
    if {plain}:
        for name in ("ext_modules", "cmdclass"):
            given.pop(name, None)
    return setup(**given)
setuptools.setup = without
sys.argv[:] = ["setup.py", "bdist_wheel", "-d", {out!r}]
sys.path.insert(0, "")
runpy.run_path("setup.py", run_name="__main__")
"""


@dataclass(kw_only=True)
class Compared:
    """What came of one project: differences, and the lines that ``init`` listed; or why there are none."""

    project: Project
    compiled: bool
    counts: dict[str, int] = field(default_factory=dict)
    lost: list[compare.Difference] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    failed: str = ""

    @property
    def unlisted(self) -> list[compare.Difference]:
        """Return what is lost and in no line of ``init``."""
        said = " ".join(self.listed)
        return [each for each in self.lost if each.subject.rpartition(".")[2] not in said]

    @property
    def row(self) -> str:
        """Return the row of the table."""
        named = f"{self.project.name} {self.project.version}"
        how = "yes" if self.compiled else "no"
        if self.failed:
            return f"| {named} | {how} | | | | fails: {self.failed} | |"
        counts = " | ".join(str(self.counts[verdict]) for verdict in ("lost", "changed", "new"))
        lost = "<br>".join(each.message.replace("|", "/") for each in self.lost[:8]) or "nothing"
        more = f"<br>and {len(self.lost) - 8} more" if len(self.lost) > 8 else ""
        listed = "" if not self.lost else "no" if self.unlisted else "yes"
        return f"| {named} | {how} | {counts} | {lost}{more} | {listed} |"


def side_by_side(project: Project, folder: Path, torch: Path, *, compiled: bool) -> Compared:
    """Make both wheels of the project in ``folder`` and compare them."""
    found = Compared(project=project, compiled=compiled)
    outcome = work.Outcome(project=project)
    old, new = (folder / f"{project.name}-{which}" for which in ("old", "new"))
    try:
        source = work.fetch(project, folder)
        shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(source, old, symlinks=True)
        code = OLD.format(plain=not compiled, out=str(old / "wheel"))
        variables = {"CUDA_VISIBLE_DEVICES": "", "MAX_JOBS": "2", "PYTHONPATH": None}
        process.run([torch, "-c", code], cwd=old, env_changes=variables, timeout=3000 if compiled else 300)
        work.prepare(project, source, new, ["2.13"], outcome)
        plain = {} if compiled else {"HATCH_BUILD_NO_HOOKS": "true"}
        made = work.build(new, new / "dist", plain)
        (before,) = (old / "wheel").glob("*.whl")
        result = compare.compare(before, made)
        found.counts = {verdict: result.count(verdict) for verdict in ("lost", "changed", "new")}
        found.lost = [each for each in result.differences if each.verdict == "lost"]
    except Exception as error:  # noqa: BLE001 -- the next project is compared, and the row says what went wrong
        said = getattr(error, "output", "").strip().splitlines()
        told = " ".join(said[-2:] or str(error).split()).replace(f"{folder}/", "")
        found.failed = told.replace("|", "/").replace(str(torch), "python")[:400]
    found.listed = outcome.listed
    return found


def record(found: Compared) -> None:
    """Write the row of a project in place of its older one."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else HEAD
    rows = [line for line in text.removeprefix(HEAD).splitlines() if line.startswith("| ")]
    same = f"| {found.project.name} {found.project.version} | {'yes' if found.compiled else 'no'} |"
    rows = [*(row for row in rows if not row.startswith(same)), found.row]
    RESULTS.write_text(HEAD + "".join(f"{row}\n" for row in sorted(rows, key=str.lower)), encoding="utf-8")


def main() -> int:
    """Compare the projects that are named, or all that ``init`` turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("torch", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("build") / "compared")
    options = parser.parse_args()
    status = 0
    for project in PROJECTS:
        if project.way != "init" or (options.names and project.name not in options.names):
            continue
        found = side_by_side(project, options.folder.resolve(), options.torch.absolute(), compiled=options.compile)
        record(found)
        print(found.row, *(f"    {line}" for line in found.listed), sep="\n", flush=True)
        status |= bool(found.failed or found.unlisted)
    return status


if __name__ == "__main__":
    sys.exit(main())
