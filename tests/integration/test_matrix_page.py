"""The matrices on the page about them, read by the real hatch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomlkit

from hatch_torch_ext import environments, matrix
from hatch_torch_ext.matrix import declaring

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "matrix.md").read_text(encoding="utf-8")
EXAMPLES = [block for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if ".matrix]]" in block]
SELECTED = (
    ["2.8", "2.9", "2.13"],
    ["2.8-cpu", "2.8-cu126", "2.11-cpu", "2.11-cu130", "2.13-cpu", "2.13-cu130"],
    ["2.8-cpu", "2.8-cu126", "2.9-cpu", "2.9-cu126", "2.9-cu130", "2.11-cpu", "2.11-cu126", "2.11-cu130"],
    ["py3.11-2.8", "py3.11-2.9", "py3.12-2.8", "py3.12-2.9"],
    ["2.7", "2.8", "2.9", "2.10-stable"],
)


@pytest.mark.parametrize(("example", "names"), list(zip(EXAMPLES, SELECTED, strict=True)))
def test_examples_are_matrices(example: str, names: list[str], tmp_path: Path) -> None:
    """Each example, pasted into a project, gives the entries that it shows, and they can be built into one wheel."""
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "my-pkg"\nversion = "1"\n{example}', encoding="utf-8")
    read = environments.read(tmp_path, "matrix", project_name="my-pkg")
    entries = declaring.entries_of(read)
    hatch = tomlkit.parse(example).unwrap()["tool"]["hatch"]
    skip = hatch["build"]["targets"]["wheel"]["hooks"]["torch-ext"].get("skip", []) if "build" in hatch else []
    assert [entry.name for entry in matrix.select(entries, skip=skip)] == [f"matrix.{name}" for name in names]
