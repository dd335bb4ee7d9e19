"""Makes the environments that entries are built in, and asks their Python what it is."""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext import process
from hatch_torch_ext.environments import program
from hatch_torch_ext.environments.values import Environment, Interpreter
from hatch_torch_ext.errors import EnvironmentCreationError, ProcessError
from hatch_torch_ext.facts import labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.matrix import Entry

_ANSWER = "torch-ext-interpreter:"


def of_entry(entry: Entry, *, root: Path, shared_with_author: bool, data: Path) -> Environment:
    """Make (or bring up to date) the entry's own environment, torch included, and return it.

    With ``shared_with_author`` it is the one that ``hatch run`` uses; otherwise it is made below ``data``, so that a
    project unpacked from an sdist leaves nothing behind.
    """
    changes: dict[str, str | None] = {} if shared_with_author else {"HATCH_DATA_DIR": str(data / "hatch")}
    return _parse(_run(entry, root, entry.name, changes))


def without_torch(entry: Entry, *, data: Path, uv: Path, installer: Mapping[str, str]) -> Environment:
    """Make an environment with the entry's dependencies less torch, and return it.

    It is a hatch environment of a scratch project below ``data``, keyed by its content, so entries that differ in
    torch alone share it. Another dependency that requires torch gets none: uv is told to leave it out.
    ``installer`` are environment variables for uv (index settings).
    """
    dependencies = [line for line in entry.dependencies if canonicalize_name(Requirement(line).name) != "torch"]
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
        overrides.write_text("torch; python_version < '0'\n", encoding="utf-8")
        _write_scratch(folder, entry.python, dependencies, uv)
        # By its bare name, seen from the scratch project: uv reads a list in the variable, parted by spaces.
        changes = {**installer, "UV_OVERRIDE": overrides.name, "HATCH_DATA_DIR": str(folder / "hatch")}
        answer = _run(entry, folder, "build", changes)
        finished.write_text(json.dumps(answer), encoding="utf-8")
        return _parse(answer)


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
            done = program.run(["run", f"{name}:python", "-I", str(path)], cwd=cwd, changes=changes)
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
    said = program.said(error.output)
    if any(f"{text}: {entry.python}" in said for text in ("Installing Python distribution", "cannot locate Python")):
        remedy = (
            f"Python {entry.python} is not on PATH, and hatch could not get it: install it and put it on PATH, or "
            f"leave the entry out with the option `skip`."
        )
    else:
        remedy = f"Run `hatch env create {entry.name}` to see it alone."
    return EnvironmentCreationError(entry.name, f"hatch cannot make the environment.\n{said}\n{remedy}")


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
