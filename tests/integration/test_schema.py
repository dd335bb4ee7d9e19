"""The published JSON Schema, by validators of others: it fits all of our own projects, and the parser agrees."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomlkit
from validate_pyproject import api, errors

from hatch_torch_ext import config
from hatch_torch_ext.base.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads(config.SCHEMA.read_text(encoding="utf-8"))
HOOK = jsonschema.Draft7Validator({**SCHEMA["definitions"]["torch-ext"]})
FILES = sorted(
    path
    for folder in ("tests", "example_project", "docs")
    for name in ("pyproject.toml", "hatch.toml")
    for path in (ROOT / folder).rglob(name)
    if not {".venv", "build"} & set(path.relative_to(ROOT).parts)
)
EXAMPLES = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, text in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


def hatch_table(document: dict[str, Any]) -> dict[str, Any]:
    """Return the table of hatch in a pyproject.toml, or the whole of a hatch.toml."""
    found: dict[str, Any] = document.get("tool", {}).get("hatch", document)
    return found


def test_it_is_a_schema() -> None:
    """The metaschema of draft 7 accepts the published file, and each option in it has a description."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    options = SCHEMA["definitions"]["torch-ext"]["properties"]
    assert all("description" in option or "properties" in option for option in options.values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_projects_of_the_repository_are_valid(path: Path) -> None:
    """Every project in the tests, and the example, is what the schema describes."""
    jsonschema.validate(hatch_table(tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()), SCHEMA)


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_of_the_documentation_are_valid(text: str) -> None:
    """Every TOML example of the documentation is what the schema describes."""
    jsonschema.validate(hatch_table(tomlkit.parse(text).unwrap()), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sdk = 'thin'",
        "sdk = 'thick'",
        "sdk = 3",
        "source = ''",
        "source = ' '",
        "pakage = 'x'",
        "cmake.defines = {}",
        "'cmake.args' = []",
        "enable-by-default = false",
        "only = ['a', 'b']",
        "only = 'a'",
        "skip = ['']",
        "jobs = 0",
        "jobs = 4",
        "jobs = true",
        "strip = false",
        "strip = 'no'",
        "cmake.define = {A = true, B = 1.5, C = ['a', 2], D = ''}",
        "cmake.define.'A B' = 1",
        "cmake.define.X = [[1]]",
        "archs = ['8.0', '9.0a', '10.0f', '9.0+PTX', 'all-major']",
        "archs = ['sm_90']",
        "archs = '9.0'",
        "archs.13 = ['9.0']",
        "archs.12.8 = ['9.0']",
        "archs.'12.8' = ['9.0']",
        "archs.cu130 = ['9.0']",
        "archs.13 = ['Hopper']",
        "max-size = 100",
        "max-size = '100 MB'",
        "max-size = '1.5GiB'",
        "max-size = '100 M'",
        "max-size = '5 apples'",
        "max-size = 0",
        "manylinux = 'auto'",
        "manylinux = '2_28'",
        "manylinux = 'manylinux2014'",
        "manylinux = 'musllinux_1_2'",
        "manylinux = 'manylinux_2_28_x86_64'",
        "manylinux = 2.28",
        "index-url = 'https://example.org/{cuda}'",
        "index-url = 'example.org'",
        "extra-index-url = 'https://example.org'",
        "extra-index-url = ['https://example.org']",
        "extra-index-url = ['x']",
        "cuda.compress = 'size'",
        "cuda.compress = 'best'",
        "cuda = '13'",
    ],
)
def test_schema_and_parser_agree(text: str, tmp_path: Path) -> None:
    """What an editor marks is what the build refuses, and the other way round."""
    for name in ("csrc/CMakeLists.txt", "my_pkg/__init__.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    table = tomlkit.parse(text).unwrap()
    try:
        config.parse(table, root=tmp_path, project_name="my-pkg", environ={})
        parsed = True
    except ConfigurationError:
        parsed = False
    assert HOOK.is_valid(table) == parsed


@pytest.mark.parametrize("place", ["build", "build.targets.wheel"])
def test_a_table_in_the_wrong_place_is_marked(place: str) -> None:
    """`hooks` forgotten in the table's name: hatchling reads nothing there, and an editor says so."""
    table = tomlkit.parse(f"[{place}.torch-ext]\nsource = 'csrc'\n").unwrap()
    validator = jsonschema.Draft7Validator(SCHEMA)
    assert not validator.is_valid(table)
    assert validator.is_valid(tomlkit.parse(f"[{place}.hooks.torch-ext]\nsource = 'csrc'\n").unwrap())


def test_validate_pyproject_finds_it() -> None:
    """validate-pyproject, installed beside us, checks the hook's table and names the option; hatch's others pass."""
    validator = api.Validator()
    project = {"project": {"name": "p", "version": "1"}}
    table: dict[str, Any] = {"source": "csrc"}
    document = {
        **project,
        "tool": {"hatch": {"build": {"hooks": {"torch-ext": table}}, "envs": {"a": {"python": "3"}}}},
    }
    validator(document)
    table["sdk"] = "thick"
    with pytest.raises(errors.ValidationError, match=r"torch-ext\.sdk"):
        validator(document)
