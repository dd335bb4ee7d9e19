"""Reads the matrix of an environment, as hatch resolves it, and caches the answer: running hatch takes a second."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from importlib import metadata
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext import __version__
from hatch_torch_ext.base import redact, resources, untrusted
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.environments import program
from hatch_torch_ext.facts import content
from hatch_torch_ext.store import open_store, path
from hatch_torch_ext.values import Matrix

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ANSWER = "torch-ext-matrices:"


def read(root: Path, name: str, *, project_name: str, optional: bool = False) -> Matrix:
    """Return the matrix of the environment ``name`` of the project in ``root``.

    An environment without a matrix is one entry; with ``optional``, a missing environment has no entries. Entries whose
    ``platforms`` lack Linux are skipped, as hatch does. Raises ``ConfigurationError`` if there is no such environment
    or no entry, if hatch refuses the configuration, or if an entry would install the project itself.
    """
    configured, matrices = _show(root)
    if optional and name not in {*matrices, *configured}:
        return Matrix(variables={}, dependencies={}, pythons={}, env_vars={})
    every = _variables(name, configured, matrices)
    variables = {entry: found for entry, found in every.items() if _for_linux(configured[entry])}
    if not every:
        raise ConfigurationError(
            f"The matrix has no entries: give the environment `{name}` a variable `torch` with at least one value."
        )
    if not variables:
        raise ConfigurationError(f"No entry of the environment `{name}` is for Linux: add `linux` to its `platforms`.")
    problems = _recursions(variables, configured, project_name)
    if problems:
        raise ConfigurationError(*problems)
    return Matrix(
        variables=variables,
        dependencies={entry: _dependencies(configured[entry]) for entry in variables},
        pythons={entry: configured[entry].get("python") for entry in variables},
        env_vars={entry: tuple(configured[entry].get("env-vars", {}).items()) for entry in variables},
    )


def _show(root: Path) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, dict[str, str]]]]:
    """Return, from hatch: environment -> its configuration, and matrix -> its environments -> their variables."""
    try:
        shown = program.run_script(resources.FOLDER / "matrices.py", cwd=root)
    except ProcessError as error:
        remedy = program.home_fault(os.environ, error.output) or (
            "Correct the environments in pyproject.toml or hatch.toml; `hatch env show` reads only them."
        )
        raise ConfigurationError(
            f"hatch cannot read the environments of {root}:\n{program.last_output(error.words)}\n{remedy}"
        ) from error
    answer = untrusted.json(shown.stdout.rpartition(_ANSWER)[2])
    return answer["environments"], answer["matrices"]


def _variables(
    name: str, configured: Mapping[str, object], matrices: Mapping[str, dict[str, dict[str, str]]]
) -> dict[str, dict[str, str]]:
    if name in matrices:
        return matrices[name]
    if name in configured:
        return {name: {}}
    known = ", ".join(f"`{known}`" for known in sorted({*matrices, *configured}) if not known.startswith("hatch-"))
    raise ConfigurationError(
        f"Option `environment` for build hook `torch-ext` names `{name}`, which is not a hatch environment of this "
        f"project (there are: {known}). Add `[tool.hatch.envs.{name}]` with a matrix over `torch`."
    )


def _recursions(
    variables: Mapping[str, object], configured: Mapping[str, dict[str, Any]], project_name: str
) -> list[str]:
    problems = []
    for entry in variables:
        if not configured[entry].get("skip-install", False):
            problems.append(
                f"Environment `{entry}` installs the project itself, which would start this build again: "
                f"set `skip-install = true` in the environment."
            )
        for line in _dependencies(configured[entry]):
            try:
                itself = canonicalize_name(Requirement(line).name) == canonicalize_name(project_name)
            except InvalidRequirement:
                continue
            if itself:
                problems.append(
                    f"Environment `{entry}` depends on `{line}`, which is this project: building it would start this "
                    f"build again. Remove it, and install the built wheel in a script of the environment."
                )
    return problems


def _for_linux(configured: Mapping[str, Any]) -> bool:
    platforms = configured.get("platforms", [])
    return not platforms or "linux" in (platform.lower() for platform in platforms)


def _dependencies(configured: Mapping[str, Any]) -> tuple[str, ...]:
    return (*configured.get("dependencies", ()), *configured.get("extra-dependencies", ()))


FILES = ("pyproject.toml", "hatch.toml")
_COLLECTORS = "collectors"  # code of the author or of a plugin, which may read anything


def read_cached(
    root: Path, name: str, *, project_name: str, environ: Mapping[str, str], optional: bool = False
) -> Matrix:
    """Return what ``read`` returns, cached in the user's store until what hatch reads has changed.

    That is the project's files, the user's configuration of hatch, hatch's own variables, and every environment
    variable whose name is in one of the files.
    """
    texts = [_text(file) for file in (*(root / each for each in FILES), program.configuration(environ))]
    if any(_COLLECTORS in text for text in texts):
        return read(root, name, project_name=project_name, optional=optional)
    words = {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}
    facts = {
        "texts": texts,
        "environ": {key: value for key, value in environ.items() if key in words or key.startswith("HATCH_")},
        "request": [os.fspath(root), name, project_name, optional],
        "versions": [__version__, program.version(), metadata.version("hatchling")],
    }
    record = f"matrix-{content.digest(facts)}.json"
    try:
        store = open_store(path(environ))
    except OSError:
        return read(root, name, project_name=project_name, optional=optional)
    with contextlib.suppress(*untrusted.DAMAGED):
        return _parse(untrusted.json(store.text("resolved", record) or b""))
    matrix = read(root, name, project_name=project_name, optional=optional)
    for variables in matrix.env_vars.values():
        redact.learn_environ(dict(variables))
    answer = json.dumps(dataclasses.asdict(matrix))
    if redact.clean(answer) == answer:  # a secret is not stored: hatch is run again
        with contextlib.suppress(OSError):
            store.set_text("resolved", record, answer.encode())
    return matrix


def _parse(data: Mapping[str, Mapping[str, object]]) -> Matrix:
    """Return the matrix from its JSON form, which has only lists. Raises one of ``untrusted.DAMAGED``."""
    fields = {name: {entry: _frozen(value) for entry, value in each.items()} for name, each in data.items()}
    return Matrix(**fields)  # type: ignore[arg-type]


def _frozen(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if value is not None and not isinstance(value, str) and not untrusted.is_texts(value):
        raise TypeError(value)
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
