"""Raw hook configuration -> ``Config``; pure except that it looks for folders. All problems are reported at once."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.base import escape, untrusted
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.config import folders, kinds
from hatch_torch_ext.config.declaration import (
    KNOWN,
    OPTIONS,
    RESERVED,
    RETIRED,
    RETIRED_VARIABLES,
    TABLES,
    CMakeConfig,
    Config,
    Option,
    declared,
)
from hatch_torch_ext.config.kinds import Cross
from hatch_torch_ext.config.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "KNOWN",
    "OPTIONS",
    "RESERVED",
    "CMakeConfig",
    "Config",
    "Cross",
    "Selection",
    "epoch_faults",
    "parse",
    "selection",
]

END_OF_ZIP = 4354819200
"""2108-01-01 in seconds since 1970."""


SCHEMA = Path(__file__).parent.parent / "resources" / "torch-ext.schema.json"
"""The declared options as a JSON Schema, for editors and validate-pyproject."""
SELECTING = ("environment", "only", "skip", "fallback", "fallback_requires")
"""Fields of ``Config`` on which the metadata depend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options that select the entries to build; the project's metadata depend on no others."""

    environment: str
    only: tuple[str, ...]
    skip: tuple[str, ...]
    fallback: str
    fallback_requires: tuple[str, ...]

    @property
    def builds_anywhere(self) -> bool:
        """Return whether the wheel can be built at first use for a torch that the matrix does not serve."""
        return self.fallback == "build"


def selection(raw: Mapping[str, object], environ: Mapping[str, str]) -> Selection:
    """Return which entries the hook's table ``raw`` and ``environ`` select, whatever else the table holds.

    The project's folders need not exist: `uv sync --no-install-project` reads metadata before they are copied.

    Raises ``ConfigurationError`` for faults of these options.
    """
    problems: list[str] = []
    table = Options(raw=raw, problems=problems)
    options = declared(Config)
    found: dict[str, Any] = {name: _value(options[name], options[name].name, table, environ) for name in SELECTING}
    if problems:
        raise ConfigurationError(problems)
    return Selection(**found)


def tool_schema(tool: str) -> dict[str, object]:  # noqa: ARG001 -- the signature of validate-pyproject
    """Check the tables of the build hook `torch-ext` of hatch-torch-ext below `tool.${tool}`."""
    return dict(untrusted.json(SCHEMA.read_text(encoding="utf-8")))


def parse(
    raw: Mapping[str, object],
    *,
    root: Path,
    project_name: str,
    environ: Mapping[str, str],
    sources: Mapping[str, str] = MappingProxyType({}),
) -> Config:
    """Return the configuration that the hook's table ``raw`` and the environment variables ``environ`` give.

    ``root`` is the project's folder; ``project_name`` is ``project.name`` as written; ``sources`` are the folders from
    which the wheel takes its packages, as hatchling's builder has them.

    Raises ``ConfigurationError`` with every problem: unknown options first, in the author's order, then the faults of
    each option in the order of declaration.
    """
    root = root.resolve()
    problems: list[str] = []
    options = Options(raw=raw, problems=problems)
    tables = {"": options, **{name: options.table(name) for name in TABLES}}
    for name in RETIRED.keys() & raw.keys():
        options.fault(name, RETIRED[name])
    options.unknown(KNOWN, (*RESERVED, *RETIRED))
    problems += [
        f"Environment variable `{name}` {text}" for name, text in RETIRED_VARIABLES.items() if environ.get(name)
    ]
    for name in TABLES:
        tables[name].unknown(KNOWN)

    def value(option: Option) -> object:
        table, _, name = option.name.rpartition(".")
        return _value(option, name, tables[table], environ)

    values = {option.name: value(option) for option in OPTIONS}
    package, package_dir = folders.package(options, root, project_name, sources)
    source = folders.source(options, root)
    problems += [*epoch_faults(environ), *_unreadable(root)]

    def fields(config: type[Config | CMakeConfig]) -> dict[str, Any]:
        return {name: values[option.name] for name, option in declared(config).items()}

    found = {"root": root, "package": package, "package_dir": package_dir, "source": source}
    config = Config(**{**fields(Config), "cmake": CMakeConfig(**fields(CMakeConfig)), **found})
    if problems:
        raise ConfigurationError(problems)
    return replace(
        config,
        compiler_launcher=_below(root, config.compiler_launcher),
        cross=tuple(kinds.below(root, each) for each in config.cross),
        cuda_home=config.cuda_home and os.path.join(root, config.cuda_home),  # noqa: PTH118 - a template, not yet a path
    )


def epoch_faults(environ: Mapping[str, str]) -> list[str]:
    """Return the faults of ``SOURCE_DATE_EPOCH``, on which hatchling and compilers would fail without naming it."""
    text = environ.get("SOURCE_DATE_EPOCH")
    if text is None or (re.fullmatch("[0-9]{1,18}", text) and int(text) < END_OF_ZIP):
        return []
    expected = f"must be a whole number of seconds since 1970, below {END_OF_ZIP} (2108, where dates of zip files end)"
    seconds = f"; in seconds it would be `{text[:-3]}`" if re.fullmatch("[0-9]{13}", text) else ""
    return [f"Environment variable `SOURCE_DATE_EPOCH` {expected}, not `{text}`{seconds}"]


def _unreadable(root: Path) -> list[str]:
    try:
        str(root).encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        remedy = "rename the folder" if encoding == "utf-8" else "run `export PYTHONUTF8=1`, or rename the folder"
        return [
            f"The path of the project, {escape.name(root)}, is not text to this Python, which reads names of files "
            f"as {encoding}: {remedy}"
        ]
    return []


def _value(option: Option, name: str, table: Options, environ: Mapping[str, str]) -> object:
    """Return the value of the option's environment variable, else of the table, else the default.

    The first two are checked.
    """
    value = option.kind.read(table, name) if option.in_projects else None
    text = environ.get(option.variable, "").strip() if option.variable else ""
    raw = option.kind.raw(text) if text else None
    if raw is not None:
        variable = Options(raw={name: raw}, problems=table.problems, variable=option.variable)
        return option.kind.read(variable, name)
    return option.default if value is None else value


def _below(root: Path, program: str) -> str:
    """Return the path of a program, relative to the root; a bare name is looked up later."""
    return str(root / program) if "/" in program else program
