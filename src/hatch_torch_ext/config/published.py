"""The declared options in published form: the tables of docs/configuration.md, and a JSON Schema for editors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from hatch_torch_ext.config.declaration import OPTIONS, RESERVED, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hatch_torch_ext.config.declaration import Option

SCHEMA = "torch-ext.schema.json"
"""The file in ``resources`` that holds ``schema()``."""


def table(section: str) -> str:
    """Return the Markdown table of the options of a section of the page."""
    rows = [
        f"| `{option.name}` | {option.kind.words} | {option.says} | {option.sentence} |"
        for option in OPTIONS
        if option.section == section and option.in_projects
    ]
    return "\n".join(["| option | type | default | meaning |", "|---|---|---|---|", *rows])


def variables() -> str:
    """Return the Markdown table of the environment variables that override options."""
    named = [option for option in OPTIONS if option.variable is not None]
    rows = [f"| `{option.variable}` | {_instead(option)} |" for option in named]
    return "\n".join(["| variable | instead of |", "|---|---|", *rows])


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


def schema_text() -> str:
    """Return the text of the published file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def tool_schema(tool: str) -> dict[str, object]:  # noqa: ARG001 -- the signature of validate-pyproject
    """Check the tables of the build hook `torch-ext` of hatch-torch-ext below `tool.${tool}`."""
    return schema()


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
    text = f"{sentence[0].upper()}{sentence[1:]}. Default: {option.says}."
    return f"{text} Environment variable: `{option.variable}`." if option.variable else text


def _instead(option: Option) -> str:
    if not option.in_projects:
        return f"`hatch-torch-ext build --{option.name}`: {option.sentence}"
    return f"`{option.name}`" + ("; separated by commas or spaces" if option.kind.words.startswith("array") else "")
