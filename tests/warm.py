"""Commands of ours and of hatchling in processes that have imported them already: half a second less for each.

A test says what a person would type; `run` forks it from one process for each worker of the tests, in which nothing but
imports happened. What a new interpreter would read at its start (``PYTHON…``, the locale) gets a new interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

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
TESTS = Path(__file__).resolve().parent
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([*IMPORTED, __name__])


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
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, "stdout"), Path(folder, "stderr")]
        started = _SERVER.Process(target=_program, args=(arguments[2:], cwd or Path.cwd(), environ, outputs))
        started.start()
        started.join()
        stdout, stderr = (path.read_text(encoding="utf-8", errors="replace") for path in outputs)
    status = started.exitcode
    started.close()
    assert status is not None
    if check and status:
        typed = process.command_line(arguments, env_changes)
        raise ProcessError(f"`{typed}` failed with exit status {status}", returncode=status, output=stdout + stderr)
    return process.Completed(command=arguments, returncode=status, stdout=stdout, stderr=stderr)


def _program(arguments: Sequence[str], cwd: Path, environ: Mapping[str, str], outputs: Sequence[Path]) -> None:
    """Be ``python -m`` with these arguments; ends the process."""
    for number, path in enumerate(outputs, start=1):
        with path.open("wb") as stream:
            os.dup2(stream.fileno(), number)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    tempfile.tempdir = None
    sys.path[:] = [str(cwd), *(place for place in sys.path if place and Path(place) != TESTS)]
    sys.argv = list(arguments)
    with contextlib.ExitStack() as streams:
        sys.stdout = streams.enter_context(os.fdopen(1, "w", encoding="utf-8", closefd=False))
        sys.stderr = streams.enter_context(
            os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        )
        try:
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        finally:
            atexit._run_exitfuncs()
