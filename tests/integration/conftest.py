"""The environment that stages are given: that of the Python which has torch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hatch_torch_ext import cmake
from hatch_torch_ext.environments import Environment, Interpreter

FACTS = Path(cmake.__file__).resolve().parent.parent / "resources" / "interpreter.py"


@pytest.fixture(scope="session")
def environment(torch_cpu_python: Path) -> Environment:
    """Return the environment that the Python with torch belongs to."""
    said = json.loads(subprocess.check_output([torch_cpu_python, FACTS], text=True).split(":", 1)[1])
    interpreter = Interpreter(
        **{name: said[name] for name in ("version", "tag", "ext_suffix", "machine")}, include=Path(said["include"])
    )
    return Environment(
        prefix=Path(said["prefix"]),
        python=torch_cpu_python,
        bin=Path(said["bin"]),
        site_packages=Path(said["site_packages"]),
        interpreter=interpreter,
    )
