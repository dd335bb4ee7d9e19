"""Reads the matrix of an environment, as hatch resolves it."""

from __future__ import annotations

import os
from importlib import resources
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base import untrusted
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.environments import homes, program
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
            [f"The matrix has no entries: give the environment `{name}` a variable `torch` with at least one value."]
        )
    if not variables:
        raise ConfigurationError(
            [f"No entry of the environment `{name}` is for Linux: add `linux` to its `platforms`."]
        )
    problems = _recursions(variables, configured, project_name)
    if problems:
        raise ConfigurationError(problems)
    return Matrix(
        variables=variables,
        dependencies={entry: _dependencies(configured[entry]) for entry in variables},
        pythons={entry: configured[entry].get("python") for entry in variables},
        env_vars={entry: tuple(configured[entry].get("env-vars", {}).items()) for entry in variables},
    )


def _show(root: Path) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, dict[str, str]]]]:
    """Return hatch's answer: environment -> its configuration, matrix -> its environments -> their variables."""
    with resources.as_file(resources.files("hatch_torch_ext") / "resources" / "matrices.py") as script:
        try:
            shown = program.run_script(script, cwd=root)
        except ProcessError as error:
            remedy = homes.fault(os.environ, error.output) or (
                "Correct the environments in pyproject.toml or hatch.toml; `hatch env show` reads only them."
            )
            raise ConfigurationError(
                [f"hatch cannot read the environments of {root}:\n{program.message(error.output)}\n{remedy}"]
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
        [
            f"Option `environment` for build hook `torch-ext` names `{name}`, which is not a hatch environment of this "
            f"project (there are: {known}). Add `[tool.hatch.envs.{name}]` with a matrix over `torch`."
        ]
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
