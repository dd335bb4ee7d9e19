"""The quickest of the field, in CI: one project from the package index, turned by ``init``, built and compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from . import run, work
from .projects import PROJECTS

if TYPE_CHECKING:
    from pathlib import Path

    from .projects import Project


@pytest.mark.slow
@pytest.mark.parametrize("project", [each for each in PROJECTS if each.fast], ids=lambda each: each.key)
def test_operators_of_others_are_right(project: Project, tmp_path: Path, torch_cpu_python: Path) -> None:
    """Without manual changes, the published sources become a wheel whose operators give the results of plain torch."""
    outcome = work.run(project, tmp_path, {"2.13": torch_cpu_python}, {})
    assert outcome.failed is None
    assert [release.split("+")[0] for release in outcome.checked] == ["2.13.0"]
    packed = "PKG-INFO is setuptools's, and hatchling takes metadata from it: remove that file"  # of every sdist
    assert outcome.listed == [f"{packed}, or its lines `Requires-Dist` where its version is needed"]
    assert outcome.lines_by_hand == 0
    assert outcome.written == [".gitignore", "CMakeLists.txt", "pyproject.toml", "torchsort/__init__.py"]


def test_every_project_that_is_built_has_its_check() -> None:
    """A project that is not built says why."""
    for project in PROJECTS:
        assert (work.CHECKS / f"{project.check}.py").is_file() == project.built, project.key
        assert bool(project.why) != project.built


def test_runs_at_the_same_time_keep_each_others_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every project's row is there at the end, in the order of the projects, whoever wrote last."""
    monkeypatch.setattr(run, "RESULTS", tmp_path / "field.md")
    with ThreadPoolExecutor(len(PROJECTS)) as pool:
        list(pool.map(lambda each: run.record(work.Outcome(project=each), turned=False), PROJECTS))
    rows = (tmp_path / "field.md").read_text(encoding="utf-8").removeprefix(run.HEAD).splitlines()
    assert rows == [work.Outcome(project=each).row for each in PROJECTS]
