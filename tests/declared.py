"""Writes the files that are generated from the declared options: tables of docs/configuration.md and the JSON Schema.

Run `hatch run declared` after an option was added or changed; a test fails as long as the files differ.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.config import SCHEMA
from hatch_torch_ext.config.declaration import OPTIONS, RESERVED, SECTIONS, TABLES, Option, Section

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
VARIABLES = "Environment variables"


def table(section: Section) -> str:
    """Return the Markdown table of the options of a section of the page."""
    rows = [
        f"| `{option.name}` | {option.kind.words} | {option.default_words} | {option.sentence} |"
        for option in OPTIONS
        if option.section == section and option.in_projects
    ]
    return "\n".join(["| option | type | default | meaning |", "|---|---|---|---|", *rows])


def variables() -> str:
    """Return the Markdown table of the environment variables that override options."""
    named = [option for option in OPTIONS if option.variable is not None]
    rows = [f"| `{option.variable}` | {_instead(option)} |" for option in named]
    return "\n".join(["| variable | instead of |", "|---|---|", *rows])


def _instead(option: Option) -> str:
    if not option.in_projects:
        return f"`hatch-torch-ext build --{option.name}`: {option.sentence}"
    return f"`{option.name}`" + ("; separated by commas or spaces" if option.kind.words.startswith("array") else "")


def schema() -> dict[str, object]:
    """Return the JSON Schema (draft 7) of hatch.toml, which is the table ``tool.hatch`` of pyproject.toml too.

    It restricts the hook's tables to the declared options, and accepts everything else; the definition ``torch-ext`` is
    only the hook's table.
    """
    hooks = {"type": "object", "properties": {"torch-ext": {"$ref": "#/definitions/torch-ext"}}}
    misplaced = {"not": {}, "description": "Nothing reads this table: the build hook's table is `hooks.torch-ext`."}
    target = {"type": "object", "properties": {"hooks": hooks, "torch-ext": misplaced}}
    targets = {"type": "object", "additionalProperties": target}
    build = {"type": "object", "properties": {"hooks": hooks, "targets": targets, "torch-ext": misplaced}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://hatch-torch-ext.invalid/torch-ext.schema.json",
        "title": "The build hook torch-ext of hatch-torch-ext",
        "description": "hatch.toml, or the table `tool.hatch` of pyproject.toml.",
        "type": "object",
        "properties": {"build": build},
        "definitions": {"torch-ext": _hook()},
    }


def _hook() -> dict[str, object]:
    described = "Options of the build hook `torch-ext`; each has a default."
    top = _properties(
        option for option in OPTIONS if option.in_projects and option.name.partition(".")[0] not in TABLES
    )
    for name in TABLES:
        inner = _properties(option for option in OPTIONS if option.name.startswith(f"{name}."))
        top[name] = {"type": "object", "properties": inner, "additionalProperties": False}
    top |= {name: {"description": "An option of every hook, read by hatchling."} for name in RESERVED}
    return {
        "type": "object",
        "description": described,
        "properties": dict(sorted(top.items())),
        "additionalProperties": False,
    }


def _properties(options: Iterable[Option]) -> dict[str, object]:
    return {
        option.name.rpartition(".")[2]: {"description": _description(option), **option.kind.schema}
        for option in options
    }


def _description(option: Option) -> str:
    """Return the sentence without the page's links, with the default and the variable."""
    sentence = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", option.sentence)
    text = f"{sentence[0].upper()}{sentence[1:]}. Default: {option.default_words}."
    return f"{text} Environment variable: `{option.variable}`." if option.variable else text


def schema_text() -> str:
    """Return the text of the published file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def page(text: str) -> str:
    """Return the page with the first table under each heading of options as it is declared."""
    tables = {section.heading: table(section) for section in SECTIONS} | {VARIABLES: variables()}
    for title, declared in tables.items():
        before, heading, rest = text.partition(f"\n## {title}\n\n")
        written, _, after = rest.partition("\n\n")
        assert written.startswith("| "), f"`## {title}` of {PAGE} does not begin with a table"
        text = f"{before}{heading}{declared}\n\n{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
