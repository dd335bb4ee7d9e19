"""The only module that knows hatch: matrices are read from it, and environments are made by it."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext import process
from hatch_torch_ext.errors import ConfigurationError, EnvironmentCreationError, ProcessError
from hatch_torch_ext.matrix import labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.matrix import Entry

ACTIVE = "HATCH_TORCH_EXT_ACTIVE"
"""Set for every program that this hook starts: a build that finds it was started by a build."""

_ANSWER = "torch-ext-interpreter:"

# What the front end of the build set for itself must not reach the environments that are made here.
_FOREIGN = (
    "HATCH_ENV",
    "HATCH_ENV_ACTIVE",
    "HATCH_PYTHON",
    "PIP_BUILD_TRACKER",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Facts of a Python, as it reports them itself.

    ``tag`` is the CPython tag with its ABI flags (``cp311``, ``cp313t``); ``ext_suffix`` is that of its extension
    modules; ``machine`` is ``platform.machine()``; ``include`` is the folder of ``Python.h``.
    """

    version: str
    tag: str
    ext_suffix: str
    machine: str
    include: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A hatch environment that exists: ``prefix`` is its folder, ``python`` its interpreter.

    ``bin`` is where its programs lie and ``site_packages`` where its packages are (purelib).
    """

    prefix: Path
    python: Path
    bin: Path
    site_packages: Path
    interpreter: Interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """What hatch says of one environment and its matrix, entry names in hatch's order.

    ``variables`` are the matrix's, ``dependencies`` resolved for each entry, ``pythons`` what each asks for,
    ``env_vars`` the environment variables that each sets.
    """

    variables: Mapping[str, Mapping[str, str]]
    dependencies: Mapping[str, tuple[str, ...]]
    pythons: Mapping[str, str | None]
    env_vars: Mapping[str, tuple[tuple[str, str], ...]]


def read(root: Path, name: str, *, project_name: str) -> Matrix:
    """Return the matrix of the environment ``name`` of the project in ``root``.

    An environment without a matrix is one entry. Raises ``ConfigurationError`` where there is no such environment,
    where hatch refuses the configuration, and where an entry would install the project itself.
    """
    configured = _show(root)
    variables = _variables(root, name, configured)
    problems = _recursions(variables, configured, project_name)
    if problems:
        raise ConfigurationError(problems)
    return Matrix(
        variables=variables,
        dependencies={entry: _dependencies(configured[entry]) for entry in variables},
        pythons={entry: configured[entry].get("python") for entry in variables},
        env_vars={entry: tuple(configured[entry].get("env-vars", {}).items()) for entry in variables},
    )


def of_entry(entry: Entry, *, root: Path, shared_with_author: bool, data: Path) -> Environment:
    """Make (or bring up to date) the entry's own environment, torch included, and return it.

    With ``shared_with_author`` it is the one that ``hatch run`` uses; otherwise it is made below ``data``, so that a
    project unpacked from an sdist leaves nothing behind.
    """
    changes: dict[str, str | None] = {} if shared_with_author else {"HATCH_DATA_DIR": str(data / "hatch")}
    return _parse(_run(entry, root, entry.name, changes))


def without_torch(
    entry: Entry, *, data: Path, uv: Path, installer: Mapping[str, str], drop: Sequence[str] = ("torch",)
) -> Environment:
    """Make an environment with the entry's dependencies less those named in ``drop``, and return it.

    It is a hatch environment of a scratch project below ``data``, keyed by its content, so entries that differ in
    torch alone share it. Another dependency that requires torch gets none: uv is told to leave it out.
    ``installer`` are environment variables for uv (index settings).
    """
    dropped = {canonicalize_name(name) for name in drop}
    dependencies = [line for line in entry.dependencies if canonicalize_name(Requirement(line).name) not in dropped]
    settings = {
        "python": entry.python,
        "dependencies": dependencies,
        "installer": dict(sorted(installer.items())),
        "base": sys.executable,
    }
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    folder = data / "environments" / key
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        finished = folder / "finished.json"
        if finished.is_file():
            environment = _parse(json.loads(finished.read_text(encoding="utf-8")))
            if environment.python.exists():
                return environment
        overrides = folder / "overrides.txt"
        overrides.write_text("".join(f"{name}; python_version < '0'\n" for name in sorted(dropped)), encoding="utf-8")
        _write_scratch(folder, entry.python, dependencies, uv)
        # By its bare name, seen from the scratch project: uv reads a list in the variable, parted by spaces.
        changes = {**installer, "UV_OVERRIDE": overrides.name, "HATCH_DATA_DIR": str(folder / "hatch")}
        answer = _run(entry, folder, "build", changes)
        finished.write_text(json.dumps(answer), encoding="utf-8")
        return _parse(answer)


def _show(root: Path) -> dict[str, dict[str, Any]]:
    try:
        shown = _hatch(["env", "show", "--json"], cwd=root, changes={})
    except ProcessError as error:
        raise ConfigurationError(
            [
                f"hatch cannot read the environments of {root}:\n{_said(error.output)}\nCorrect the environments in "
                f"pyproject.toml or hatch.toml; `hatch env show` reads them alone."
            ]
        ) from error
    result: dict[str, dict[str, Any]] = json.loads(shown.stdout)
    return result


def _variables(root: Path, name: str, configured: Mapping[str, object]) -> dict[str, dict[str, str]]:
    # The variables of a matrix are in no output of hatch's command line: this is hatch's own, undocumented, reader.
    from hatch.project.core import Project
    from hatch.utils.fs import Path as HatchPath

    matrices = Project(HatchPath(root), locate=False).config.matrices
    if name in matrices:
        return {entry: dict(variables) for entry, variables in matrices[name]["envs"].items()}
    if name in configured:
        return {name: {}}
    known = ", ".join(f"`{known}`" for known in sorted({*matrices, *configured}) if not known.startswith("hatch-"))
    raise ConfigurationError(
        [
            f"Option `environment` for build hook `torch-ext` names `{name}`, which is no hatch environment of this "
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


def _dependencies(configured: Mapping[str, Any]) -> tuple[str, ...]:
    return (*configured.get("dependencies", ()), *configured.get("extra-dependencies", ()))


def _write_scratch(folder: Path, python: str | None, dependencies: Sequence[str], uv: Path) -> None:
    lines = [
        "[envs.build]",
        "skip-install = true",
        'path = ".venv"',
        'installer = "uv"',
        f"uv-path = {json.dumps(str(uv))}",
        f"dependencies = {json.dumps(list(dependencies))}",
    ]
    if python is not None:
        lines.append(f"python = {json.dumps(python)}")
    (folder / "hatch.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "pyproject.toml").write_text('[project]\nname = "torch-ext-build"\nversion = "0"\n', encoding="utf-8")


def _run(entry: Entry, cwd: Path, name: str, changes: Mapping[str, str | None]) -> dict[str, str]:
    script = resources.files("hatch_torch_ext") / "resources" / "interpreter.py"
    with resources.as_file(script) as path:
        try:
            done = _hatch(["run", f"{name}:python", "-I", str(path)], cwd=cwd, changes=changes)
        except ProcessError as error:
            raise _not_made(entry, error) from error
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_ANSWER):
            answer: dict[str, str] = json.loads(line.removeprefix(_ANSWER))
            _check_interpreter(entry, answer)
            return answer
    raise EnvironmentCreationError(
        entry.name, f"the environment's Python did not answer:\n{process.tail(done.stdout + done.stderr)}"
    )


def _not_made(entry: Entry, error: ProcessError) -> EnvironmentCreationError:
    said = _said(error.output)
    if any(f"{text}: {entry.python}" in said for text in ("Installing Python distribution", "cannot locate Python")):
        remedy = (
            f"Python {entry.python} is not on PATH, and hatch could not get it: install it and put it on PATH, or "
            f"leave the entry out with the option `skip`."
        )
    else:
        remedy = f"Run `hatch env create {entry.name}` to see it alone."
    return EnvironmentCreationError(entry.name, f"hatch cannot make the environment.\n{said}\n{remedy}")


def _said(output: str) -> str:
    """Return the end of hatch's output without its tracebacks, which it draws in boxes: the rest says what happened."""
    return process.tail("\n".join(line for line in output.splitlines() if line[:1] not in "╭│╰"))


def _check_interpreter(entry: Entry, answer: Mapping[str, str]) -> None:
    if answer["implementation"] != "cpython":
        raise EnvironmentCreationError(
            entry.name,
            f"the environment's Python is {answer['implementation']}; torch is made for CPython: ask for one.",
        )
    wanted = labels.python_tag(entry.python)
    if wanted not in {None, answer["tag"]}:
        raise EnvironmentCreationError(
            entry.name,
            f"the matrix asks for Python {entry.python}, but the environment runs Python {answer['version']} "
            f"({answer['python']}, {answer['tag']}). Put the right one on PATH and remove the environment with "
            f"`hatch env remove {entry.name}`.",
        )


def _parse(answer: Mapping[str, str]) -> Environment:
    return Environment(
        prefix=Path(answer["prefix"]),
        python=Path(answer["python"]),
        bin=Path(answer["bin"]),
        site_packages=Path(answer["site_packages"]),
        interpreter=Interpreter(
            version=answer["version"],
            tag=answer["tag"],
            ext_suffix=answer["ext_suffix"],
            machine=answer["machine"],
            include=Path(answer["include"]),
        ),
    )


def _hatch(arguments: Sequence[str], *, cwd: Path, changes: Mapping[str, str | None]) -> process.Completed:
    # hatch is importable here, in the build's own environment, but PYTHONPATH (how some front ends put it there) must
    # not leak into the interpreters that hatch starts: so the path goes in as an argument.
    start = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from hatch.cli import main; sys.exit(main())"
    path = json.dumps([entry for entry in sys.path if entry])
    own: dict[str, str | None] = dict.fromkeys(_FOREIGN)
    own.update({ACTIVE: "1", "HATCH_INTERACTIVE": "0", "NO_COLOR": "1", "COLUMNS": "200"})
    own.update({"HATCH_PROJECT": None, "FORCE_COLOR": None})
    return process.run([sys.executable, "-c", start, path, *arguments], cwd=cwd, env_changes={**own, **changes})
