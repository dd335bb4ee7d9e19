"""The files of a project that ``init`` reads and writes again: their texts, and pyproject.toml, as far as it is sound.

What is wrong with one of them is an error that names the file, the entry and what to do, before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomlkit
import tomlkit.exceptions
from packaging.requirements import InvalidRequirement, Requirement

from hatch_torch_ext.base.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PYPROJECT = "pyproject.toml"
AGAIN = "Correct it, then run `init` again"
TABLES = (
    "build-system", "project", "project.optional-dependencies", "project.urls", "tool", "tool.hatch",
    "tool.hatch.build", "tool.hatch.build.hooks", "tool.hatch.build.targets", "tool.hatch.build.targets.sdist",
    "tool.hatch.build.targets.wheel", "tool.hatch.build.targets.wheel.force-include",
    "tool.hatch.build.targets.wheel.hooks", "tool.hatch.build.targets.wheel.hooks.torch-ext", "tool.hatch.envs",
    "tool.hatch.envs.matrix", "tool.hatch.metadata", "tool.hatch.metadata.hooks", "tool.hatch.version",
    "tool.scikit-build", "tool.scikit-build.cmake", "tool.scikit-build.metadata",
    "tool.scikit-build.metadata.version", "tool.scikit-build.sdist", "tool.scikit-build.wheel", "tool.setuptools",
    "tool.setuptools.dynamic", "tool.setuptools.dynamic.version", "tool.setuptools_scm",
)  # fmt: skip
"""What is a table where it is there, since ``init`` reads it or adds to it."""
LISTS = ("project.classifiers", "project.dynamic")
"""What is a list of texts."""
REQUIREMENTS = ("build-system.requires", "project.dependencies")
"""What is a list of requirements."""
TEXTS = ("build-system.build-backend", "project.name", "project.requires-python", "project.version")


def of(path: Path) -> str | None:
    """Return the text of a file, None where there is none.

    Raises ``ConfigurationError`` for what is not UTF-8, and for something that is not a file.
    """
    if not path.is_file():
        if path.exists():
            problem = f"{path} is not a file, and `init` writes one: move it away, then run `init` again"
            raise ConfigurationError([problem])
        return None
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1} is {error.object[error.start]:#04x}"
        raise ConfigurationError([f"{path} is not UTF-8 ({where}): save it so, then run `init` again"]) from error
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror}): make it readable, then run `init` again"
        raise ConfigurationError([problem]) from error


def document(root: Path) -> tomlkit.TOMLDocument:
    """Return the pyproject.toml in ``root``, an empty document where there is none.

    Raises ``ConfigurationError`` with each table, list and requirement that is something else.
    """
    path = root / PYPROJECT
    found = of(path) or ""
    try:
        read = tomlkit.parse(found)
        plain = read.unwrap()
    except (tomlkit.exceptions.TOMLKitError, ValueError, RecursionError) as error:
        mark = found.startswith("\ufeff")
        why = "it begins with a byte order mark, which TOML does not have" if mark else str(error)
        raise ConfigurationError([f"{path} is not TOML: {why}. {AGAIN}"]) from error
    if problems := list(_problems(plain)):
        raise ConfigurationError([f"{path}: {each}. {AGAIN}" for each in problems])
    return read


def _problems(plain: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is not of its kind."""
    for name in TABLES:
        if (value := _at(plain, name)) is not None and not isinstance(value, dict):
            yield f"`{name}` must be a table, not `{_short(value)}`"
    for name in TEXTS:
        if (value := _at(plain, name)) is not None and not isinstance(value, str):
            yield f"`{name}` must be a text, not `{_short(value)}`"
    for name in (*LISTS, *REQUIREMENTS):
        if (value := _at(plain, name)) is not None and not isinstance(value, list):
            yield f"`{name}` must be a list, not `{_short(value)}`"
        elif value is not None:
            yield from _of_entries(name, value)


def _of_entries(name: str, value: list[Any]) -> Iterator[str]:
    for count, each in enumerate(value, 1):
        if not isinstance(each, str):
            yield f"`{name}`, entry {count}, must be a text, not `{_short(each)}`"
        elif name in REQUIREMENTS and (why := _not_required(each)):
            yield f"`{name}`, entry {count}, is not a requirement: `{_short(each)}` ({why})"


def _at(plain: Mapping[str, Any], name: str) -> object:
    """Return the value at a dotted name; None where one of its tables is missing or is something else."""
    value: object = plain
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _not_required(given: str) -> str:
    """Return in a line why a text is not a requirement; "" if it is one."""
    try:
        Requirement(given)
    except InvalidRequirement as error:
        return str(error).partition("\n")[0]
    return ""


def _short(value: object) -> str:
    return " ".join(str(value).split())[:60]
