"""What several rooms are tested with: the environment of the Python that has torch, and a torch of stubs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import cmake
from hatch_torch_ext.environments import Environment, Interpreter
from trees import Site, make_stubs

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.fixture(scope="session")
def stubs(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder of libraries with torch's names, compiled once."""
    return once("stub-torch", make_stubs)


@pytest.fixture
def site(tmp_path: Path, stubs: Path) -> Site:
    """Return a site whose torch is a CPU build."""
    return Site(root=tmp_path, stubs=stubs)
