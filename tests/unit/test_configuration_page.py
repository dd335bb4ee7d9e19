"""The page on configuration tells of every option, and its examples are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomlkit

from hatch_torch_ext import config
from hatch_torch_ext.facts import releases

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text(encoding="utf-8")
MATRIX = (DOCS / "matrix.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", CONFIGURATION, re.DOTALL)


def test_every_option_has_one_row() -> None:
    """The rows of the tables of options are the options that there are, each once."""
    before_variables = CONFIGURATION.partition("## Environment variables")[0]
    rows = re.findall(r"^\| `([a-z.-]+)` \|", before_variables, re.MULTILINE)
    assert sorted(rows) == sorted(config.KNOWN)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_configurations(example: str, tmp_path: Path) -> None:
    """Each example is accepted as it stands."""
    (tmp_path / "my_pkg").mkdir()
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "CMakeLists.txt").touch()
    hook = tomlkit.parse(example).unwrap()["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["torch-ext"]
    assert config.parse(hook, root=tmp_path, project_name="my-pkg", environ={}).package == "my_pkg"


def test_matrix_page_has_the_table_of_builds() -> None:
    """The page's table of torch and CUDA is the one that pairs are held against."""
    written = {}
    for torches, cudas in re.findall(r"^\| ([\d., ]+) \| ([\d., *]+) \|$", MATRIX, re.MULTILINE):
        for torch in torches.split(", "):
            written[releases.minor_of(torch)] = tuple(cudas.replace("*", "").split(", "))
    assert written == {line: cudas for line, cudas in releases.PUBLISHED_CUDA.items() if line >= (1, 13)}


def test_matrix_page_has_true_requirements() -> None:
    """The page's examples of the derived requirement are what is derived."""
    rows = re.findall(r"^\| (\d.*?) \| `(torch.*?)` \|$", MATRIX, re.MULTILINE)
    assert len(rows) == 4
    for matrix, requirement in rows:
        served = [(part.removeprefix("stable "), part.startswith("stable ")) for part in matrix.split(", ")]
        assert releases.torch_requirement(served) == requirement
