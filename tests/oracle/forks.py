"""A Python with torch imported that forks a child for each project: torch's import is two seconds of processor time."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def environ() -> dict[str, str]:
    """Return the environment of what opens a project: none of its variables changes what is found."""
    left_out = ("PYTHON", "TORCH_EXT_", "LD_LIBRARY_PATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


class Forks:
    """The process; it starts with the first project and ends with this object. ``seconds`` are its children's."""

    def __init__(self, python: Path, script: Path) -> None:
        self._command: list[str | Path] = [python, "-P", script, "--serve"]
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self.seconds = 0.0

    def run(self, spec: str) -> tuple[int, str, str]:
        """Return the exit status, the output and the errors of a child that does as ``spec`` says."""
        with self._lock:
            if self._process is None:
                pipe = subprocess.PIPE
                self._process = subprocess.Popen(self._command, env=environ(), stdin=pipe, stdout=pipe, text=True)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{spec}\n")
            self._process.stdin.flush()
            status, output, errors, seconds = json.loads(self._process.stdout.readline())
            self.seconds += seconds
            return status, output, errors

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None
