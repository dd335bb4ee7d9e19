"""Makes the environments in which entries are built, and reads facts of their Python."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base import locks, process, resources, untrusted
from hatch_torch_ext.base.errors import EnvironmentCreationError, ProcessError
from hatch_torch_ext.environments import program
from hatch_torch_ext.facts import content, labels
from hatch_torch_ext.remote import pipconfig
from hatch_torch_ext.remote import settings as index_settings
from hatch_torch_ext.values import Environment, Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from hatch_torch_ext.values import Entry

    Report: TypeAlias = Callable[[str], None]

_ANSWER = "torch-ext-interpreter:"
_OVERRIDES = "overrides.txt"
ANSWER_TIMEOUT = 60.0
"""Timeout in seconds for a Python to state its facts."""


def of_entry(
    entry: Entry, *, root: Path, shared_with_author: bool, data: Path, report: Report | None = None
) -> Environment:
    """Make (or update) the entry's own environment, torch included, and return it.

    With ``shared_with_author`` it is the one that ``hatch run`` uses; otherwise it is made below ``data``, so a project
    unpacked from an sdist leaves nothing behind.
    """
    if ".." in Path(entry.name).parts:
        raise EnvironmentCreationError(
            entry.name,
            f"hatch names the folder of its environment `{entry.name}`, and its `..` leads out of the folder of "
            'environments: change the value in the matrix, or use `sdk = "thin"`, which needs no such environment',
        )
    if shared_with_author:
        removal, changes = f"hatch env remove {entry.name}", {}
    else:
        folder = data / "hatch"
        removal, changes = f"rm -r {shlex.quote(str(folder))}", {"HATCH_DATA_DIR": str(folder)}
    answer = _run(entry, root, entry.name, changes, removal=removal, report=report)
    _check_complete(entry, answer, entry.dependencies, removal=removal)
    return _parse(answer, removal=removal)


def without_torch(
    entry: Entry, *, data: Path, uv: Path, installer: Mapping[str, str], report: Report | None = None
) -> Environment:
    """Make an environment with the entry's dependencies except torch, and return it.

    It is a hatch environment of a scratch project below ``data``, in a folder named by a hash of its content, so
    entries that differ only in torch share it. torch is not installed for other dependencies either: uv excludes it.

    ``installer`` are environment variables for uv (index settings). ``report`` gets a line if another entry has to
    finish first.
    """
    dependencies = [line for line in entry.dependencies if canonicalize_name(Requirement(line).name) != "torch"]
    # The base of this Python: a front end's own environment is gone after the build, and has another path each time.
    base = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    settings = {
        "python": entry.python,
        "dependencies": dependencies,
        "installer": dict(sorted(installer.items())),
        "constraints": [line for _, _, line in pipconfig.limits({**os.environ, **installer}, pip=False)],
        "base": [str(base), sys.version],
    }
    key = content.digest(settings)[:16]
    folder = data / "environments" / key
    folder.mkdir(parents=True, exist_ok=True)
    removal = f"rm -r {shlex.quote(str(folder))}"
    what = f"the environment of {entry.name} and of entries with the same dependencies"
    with locks.held(folder / "lock", what=what, report=report):
        finished = folder / "finished.json"
        with contextlib.suppress(*untrusted.DAMAGED):  # absent or damaged: made again
            answer = untrusted.json(finished.read_text(encoding="utf-8"))
            if Path(answer["python"]).exists() and not _missing_dependencies(answer, dependencies):
                return _parse(answer, removal=removal)
        no_index = index_settings.without_index(installer)
        _write_scratch(folder, entry.python, dependencies, uv, no_index=no_index)
        # Users do not repair this environment: if it is damaged, the next build makes it again.
        shutil.rmtree(folder / ".venv", ignore_errors=True)
        answer = _run(entry, folder, "build", _scratch_variables(folder, installer), removal=None, report=report)
        _check_complete(entry, answer, dependencies, removal=None)
        finished.write_text(json.dumps(answer), encoding="utf-8")
        return _parse(answer, removal=removal)


def _scratch_variables(folder: Path, installer: Mapping[str, str]) -> dict[str, str | None]:
    """Return the environment variables with which hatch makes the environment of the scratch project in ``folder``."""
    # A bare file name, relative to the scratch project: uv reads the variable as a list separated by spaces.
    overrides = f"{_OVERRIDES} {installer.get('UV_OVERRIDE') or os.environ.get('UV_OVERRIDE', '')}".strip()
    return {
        **installer,
        "UV_OVERRIDE": overrides,
        "HATCH_DATA_DIR": str(folder / "hatch"),
        "HATCH_ENV_TYPE_VIRTUAL_PATH": None,
    }


def of_python(python: Path) -> Environment:
    """Return the environment of a Python as it is; nothing is made. Raises ``ProcessError``."""
    output = process.run([python, "-I", resources.PROBE, "interpreter"], timeout=ANSWER_TIMEOUT).stdout
    return _parse(untrusted.json(output.rpartition(_ANSWER)[2]), removal="")


def _write_scratch(folder: Path, python: str | None, dependencies: Sequence[str], uv: Path, *, no_index: bool) -> None:
    """Write a project with the environment ``build``, and a file by which uv excludes torch."""
    (folder / _OVERRIDES).write_text("torch; python_version < '0'\n", encoding="utf-8")
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
    # uv has no variable for `no-index`.
    text = '[project]\nname = "torch-ext-build"\nversion = "0"\n' + "[tool.uv]\nno-index = true\n" * no_index
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


def _run(
    entry: Entry,
    cwd: Path,
    name: str,
    changes: Mapping[str, str | None],
    *,
    removal: str | None,
    report: Report | None,
) -> dict[str, Any]:
    """Make the environment and return the facts of its Python; ``removal`` is None if the next build makes it again."""
    command = ["run", f"{name}:python", "-I", str(resources.PROBE), "interpreter"]
    try:
        done = program.run(command, cwd=cwd, changes=changes, report=report)
    except ProcessError as error:
        raise _creation_error(entry, error, removal=removal) from error
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_ANSWER):
            answer: dict[str, Any] = untrusted.json(line.removeprefix(_ANSWER))
            _check_interpreter(entry, answer, removal=removal)
            return answer
    raise EnvironmentCreationError(
        entry.name, f"the environment's Python did not answer:\n{process.tail(done.stdout + done.stderr)}"
    )


def _creation_error(entry: Entry, error: ProcessError, *, removal: str | None) -> EnvironmentCreationError:
    message = program.last_output(error.words)
    constrained = pipconfig.contradiction({**os.environ, **dict(entry.env_vars)}, entry.dependencies)
    if any(f"{text}: {entry.python}" in message for text in ("Installing Python distribution", "cannot locate Python")):
        remedy = (
            f"Python {entry.python} is not on PATH, and hatch could not get it: install it and put it on PATH, or "
            f"leave the entry out with the option `skip`."
        )
    elif (own := program.home_fault(os.environ, error.output)) is not None:
        remedy = own
    elif constrained is not None:
        remedy = constrained
    elif removal is None or not removal.startswith("hatch "):
        remedy = "Correct the environment's dependencies, or the settings that say where packages come from."
    else:
        # `hatch env create` would report that it exists; it does, but without its packages.
        remedy = f"Run `hatch run {entry.name}:python -V` to see only this."
    return EnvironmentCreationError(entry.name, f"hatch cannot make the environment.\n{message}\n{remedy}")


def _check_interpreter(entry: Entry, answer: Mapping[str, Any], *, removal: str | None) -> None:
    if answer["implementation"] != "cpython":
        raise EnvironmentCreationError(
            entry.name,
            f"the environment's Python is {answer['implementation']}; torch is built only for CPython: request one.",
        )
    tag = labels.python_tag(entry.python)
    if tag not in {None, answer["tag"]}:
        again = f" and remove the environment with `{removal}`" if removal else ""
        raise EnvironmentCreationError(
            entry.name,
            f"the matrix asks for Python {entry.python}, but the environment runs Python {answer['version']} "
            f"({answer['python']}, {answer['tag']}). Put the right one on PATH{again}.",
        )


def _missing_dependencies(answer: Mapping[str, Any], dependencies: Sequence[str]) -> list[str]:
    """Return the dependencies that are missing in the environment."""
    if "markers" not in answer:
        return list(dependencies)
    folders = sorted({answer["site_packages"], answer["platlib"]})
    missing = []
    for line in dependencies:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({**answer["markers"], "extra": ""}):
            continue
        found = next(iter(metadata.distributions(name=requirement.name, path=folders)), None)
        if found is None or not requirement.specifier.contains(found.version, prereleases=True):
            missing.append(line)
    return missing


def _check_complete(
    entry: Entry, answer: Mapping[str, Any], dependencies: Sequence[str], *, removal: str | None
) -> None:
    missing = _missing_dependencies(answer, dependencies)
    if missing:
        listed = ", ".join(f"`{line}`" for line in missing)
        again = f", and remove the environment with `{removal}`" if removal else ""
        raise EnvironmentCreationError(
            entry.name,
            f"hatch made the environment in {answer['prefix']}, and the installer reported success, but {listed} is "
            "missing, since a setting sends packages to another folder. Look for `target`, `prefix`, `root`, `user`, "
            f"`python` or `system` in `pip config list` and in the table `pip` of uv.toml, and remove it{again}.",
        )


def _parse(answer: Mapping[str, Any], *, removal: str) -> Environment:
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
        removal=removal,
    )
