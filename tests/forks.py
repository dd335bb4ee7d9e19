"""A Python with modules imported, of which each program is a fork: torch's import is two seconds of processor time.

Only for programs to which it makes no difference that the modules are imported before them. As a program, run by that
Python with the modules' names, this file is the server: it forks a child for each line of its input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def environ() -> dict[str, str]:
    """Return the environment of what opens a project: none of its variables changes what is found."""
    left_out = ("PYTHON", "TORCH_EXT_", "LD_LIBRARY_PATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


class Forks:
    """The server; it starts with the first program and ends with ``close``. ``seconds`` are its children's."""

    def __init__(self, python: Path, imported: Sequence[str] = ("torch",)) -> None:
        self._command: list[str | Path] = [python, "-P", __file__, *imported]
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self.seconds = 0.0

    def run(
        self, *arguments: str | Path, cwd: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        """Return the exit status, the output and the errors of ``python ARGUMENTS``: ``-c``, ``-m`` or a file.

        ``variables`` are its environment in place of ``environ()``; of Python's own, only PYTHONPATH has an effect.
        """
        request = {
            "arguments": list(map(str, arguments)),
            "cwd": str(cwd or Path.cwd()),
            "environ": environ() if variables is None else dict(variables),
        }
        with self._lock:
            if self._process is None:
                pipe = subprocess.PIPE
                self._process = subprocess.Popen(self._command, env=environ(), stdin=pipe, stdout=pipe, text=True)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
            status, output, errors, seconds = json.loads(self._process.stdout.readline())
            self.seconds += seconds
            return status, output, errors

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


def become(request: dict[str, Any]) -> None:
    """Do as Python does with these arguments."""
    first, *rest = request["arguments"]
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    searched = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if first == "-c":
        sys.argv, program = ["-c", *rest[1:]], compile(rest[0], "<string>", "exec")
        sys.path[:0] = ["", *searched]
        exec(program, sys.modules["__main__"].__dict__)  # noqa: S102 -- a test's own text
    elif first == "-m":
        sys.argv = rest
        sys.path[:0] = [request["cwd"], *searched]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = request["arguments"]
        sys.path[:0] = [str(Path(first).parent), *searched]
        runpy.run_path(first, run_name="__main__")


def serve(imported: Sequence[str]) -> None:
    """Import; then fork a child for each line of the input, and write its status, output, errors, and seconds."""
    gc.disable()  # while torch is imported: 0.3 s
    for module in imported:
        importlib.import_module(module)
    gc.freeze()  # Python would look through all of torch's objects when a child ends: 0.4 s
    gc.enable()
    for line in sys.stdin:
        with Path(os.devnull).open() as none, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                for number, file in enumerate((none, output, errors)):
                    os.dup2(file.fileno(), number)
                become(json.loads(line))
                return  # and ends as any Python does
            _, status, used = os.wait4(child, 0)
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
            ended = os.waitstatus_to_exitcode(status)
            sys.stdout.write(f"{json.dumps([ended, *texts, used.ru_utime + used.ru_stime])}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1:])
