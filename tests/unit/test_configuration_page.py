"""The page on configuration tells of every option, and its examples are right."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import tomlkit

import declared
from hatch_torch_ext import config
from hatch_torch_ext.config import CMakeConfig, Config, declaration
from hatch_torch_ext.facts import releases

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text(encoding="utf-8")
MATRIX = (DOCS / "matrix.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", CONFIGURATION, re.DOTALL)
OF_THE_HOOK = [example for example in EXAMPLES if example.startswith("[tool.hatch")]


def test_tables_are_what_is_declared() -> None:
    """The tables of options and their variables are made of the declaration: `hatch run declared` writes them."""
    assert declared.page(CONFIGURATION) == CONFIGURATION
    assert [name for name in config.KNOWN if f"| `{name}` |" not in CONFIGURATION] == []


def test_schema_is_what_is_declared() -> None:
    """The published JSON Schema is made of the declaration: `hatch run declared` writes it."""
    assert config.SCHEMA.read_text(encoding="utf-8") == declared.schema_text()


def test_each_field_of_the_configuration_is_declared_or_found() -> None:
    """Nothing is configured past the declaration: what is not an option is found by looking, or has options."""
    found = {"root", "package_dir", "cmake", "archs_source"}
    assert {field.name for field in fields(Config)} - set(declaration.declared(Config)) == found
    assert {field.name for field in fields(CMakeConfig)} == set(declaration.declared(CMakeConfig))


@pytest.mark.parametrize("example", OF_THE_HOOK)
def test_examples_are_configurations(example: str, tmp_path: Path) -> None:
    """Each example is accepted as it is."""
    (tmp_path / "my_pkg").mkdir()
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "CMakeLists.txt").touch()
    hook = tomlkit.parse(example).unwrap()["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["torch-ext"]
    assert config.parse(hook, root=tmp_path, project_name="my-pkg", environ={}).package == "my_pkg"


def test_matrix_page_has_the_table_of_builds() -> None:
    """The page's table of torch and CUDA is the one that pairs are compared with; the bold one is what PyPI has."""
    written, bold = {}, {}
    for torches, cudas in re.findall(r"^\| ([\d., ]+) \| ([\d., *]+) \|$", MATRIX, re.MULTILINE):
        for torch in torches.split(", "):
            written[releases.minor_of(torch)] = tuple(cudas.replace("*", "").split(", "))
            bold[releases.minor_of(torch)] = cudas.split("**")[1]
    assert written == {line: cudas for line, cudas in releases.PUBLISHED_CUDA.items() if line >= (1, 13)}
    assert bold == {line: releases.INDEX_CUDA[line] for line in written}


def test_matrix_page_has_true_requirements() -> None:
    """The page's examples of the derived requirement are what is derived."""
    rows = re.findall(r"^\| (\d.*?) \| `(torch.*?)` \|$", MATRIX, re.MULTILINE)
    assert len(rows) == 4
    for matrix, requirement in rows:
        served = [(part.removeprefix("stable "), part.startswith("stable ")) for part in matrix.split(", ")]
        assert releases.torch_requirement(served) == requirement
