"""Commands of ours and of hatchling in processes that have imported them already: half a second less for each.

A test says what a person would type; `run` forks it from one process for each worker of the tests, in which nothing but
imports happened. What a new interpreter would read at its start (``PYTHON…``, the locale) gets a new interpreter.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forks import Forks
from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IMPORTED = ("hatchling.cli.build", "hatchling.builders.wheel", "hatch_torch_ext.hooks.build", "hatch_torch_ext.cli")
"""What is imported once: the modules that a build and the command line begin with."""
FORKED = ("hatchling", "hatch_torch_ext")
"""The programs (``python -m NAME``) that are run so."""
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE")
"""Beginnings of the variables that an interpreter reads before any module."""
_SERVER = Forks(Path(sys.executable), IMPORTED)
atexit.register(_SERVER.close)


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env_changes: Mapping[str, str | None] | None = None,
    check: bool = True,
) -> process.Completed:
    """Run ``command`` as ``process.run`` does."""
    arguments = tuple(os.fspath(each) for each in command)
    changes = {name: value for name, value in (env_changes or {}).items() if os.environ.get(name) != value}
    ours = arguments[:2] == (sys.executable, "-m") and arguments[2] in FORKED
    if not ours or any(name.startswith(AT_START) for name in changes):
        return process.run(command, cwd=cwd, env_changes=env_changes, check=check)
    environ = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
    status, stdout, stderr = _SERVER.run(*arguments[1:], cwd=cwd, variables=environ)
    if check and status:
        typed = process.command_line(arguments, env_changes)
        raise ProcessError(f"`{typed}` failed with exit status {status}", returncode=status, output=stdout + stderr)
    return process.Completed(command=arguments, returncode=status, stdout=stdout, stderr=stderr)
