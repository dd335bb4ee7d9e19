"""Values of the stages for tests: each has sensible fields, and a test names only those that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.values import Entry, Environment, Matrix

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from hatch_torch_ext.values import Interpreter


def entry(
    name: str = "matrix.2.8", *, variables: Iterable[tuple[str, str]] = (), cuda: str | None = None, **fields: Any
) -> Entry:
    """Return an entry of a matrix; its variable ``cuda``, or the argument, is read as the matrix reads it."""
    named = dict(variables) if cuda is None else {**dict(variables), "cuda": cuda}
    found = Backend.parse(named["cuda"]) if "cuda" in named else None
    defaults = {"dependencies": (), "torch_requirement": "torch==2.8.*", "python": None, "backend": found}
    return Entry(name=name, variables=tuple(named.items()), **{**defaults, **fields})


def matrix(
    variables: Mapping[str, Mapping[str, str]],
    dependencies: Mapping[str, Iterable[str]],
    pythons: Mapping[str, str] | None = None,
) -> Matrix:
    """Return hatch's answer on a matrix; an entry that ``pythons`` lacks asks for no Python."""
    return Matrix(
        variables=variables,
        dependencies={name: tuple(lines) for name, lines in dependencies.items()},
        pythons={name: (pythons or {}).get(name) for name in variables},
        env_vars=dict.fromkeys(variables, ()),
    )


def environment(python: Path, interpreter: Interpreter) -> Environment:
    """Return an environment without packages, whose Python is ``python``."""
    folder = python.parent
    return Environment(prefix=folder, python=python, bin=folder, site_packages=folder / "none", interpreter=interpreter)
