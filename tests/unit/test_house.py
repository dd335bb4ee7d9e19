"""What the project promises those who work on it: one version of a tool, actions pinned by hash, decisions listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hatch_torch_ext import __version__
from hatch_torch_ext.facts import content

PROJECT = Path(__file__).resolve().parent.parent.parent
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
DECISIONS = PROJECT / "docs" / "decisions"


def test_one_ruff() -> None:
    """pre-commit runs the ruff that `hatch run lint:check` runs."""
    (hatch,) = re.findall(r"ruff==([\d.]+)", (PROJECT / "hatch.toml").read_text(encoding="utf-8"))
    (hook,) = re.findall(r"rev: v([\d.]+)", (PROJECT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert hook == hatch


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash(workflow: Path) -> None:
    """A tag can be moved to other code; a hash cannot. The comment says which release it is."""
    used = re.findall(r"uses: (\S+)(.*)", workflow.read_text(encoding="utf-8"))
    loose = [
        action
        for action, comment in used
        if not action.startswith("./") and not (re.search(r"@[0-9a-f]{40}$", action) and re.search(r"# v\d", comment))
    ]
    assert loose == []


def test_every_decision_is_listed() -> None:
    """The list of decisions names each record once, in order."""
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (DECISIONS / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))


def test_one_version() -> None:
    """The newest section of the changelog is of the version in pyproject.toml, which is that of the package."""
    (version,) = re.findall(r'(?m)^version = "([^"]+)"', (PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    section = re.search(r"(?m)^## (\S+)", (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert section is not None
    assert section[1] == version == __version__


def test_uv_installs_the_plugin_of_these_sources(wheelhouse: Path) -> None:
    """A folder of another content has another path: uv's cache would have the wheel of an earlier run at the same."""
    (wheel,) = wheelhouse.glob("*.whl")
    assert wheelhouse.name == content.sha256(wheel)
