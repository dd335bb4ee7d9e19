"""Modules of Python's limited API: one file for every Python from 3.9 on, beside torch's stable ABI for every torch."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError

from .conftest import PROJECT, outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Once

LABEL = f"stable2.10_cpu_{os.uname().machine}_abi3"


def build(folder: Path, store: Path, *, operators: bool) -> None:
    """Build tests/packages/limited in ``folder``, with or without the module that needs torch."""
    shutil.copytree(PROJECT / "tests/packages/limited", folder, dirs_exist_ok=True)
    if not operators:
        settings = folder / "pyproject.toml"
        text = settings.read_text(encoding="utf-8")
        settings.write_text(text.replace('WITH_OPERATORS = "ON"', 'WITH_OPERATORS = "OFF"'), encoding="utf-8")
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist"]
    process.run(command, cwd=folder, env_changes={"HATCH_TORCH_EXT_CACHE": str(store)})


@pytest.fixture(scope="session")
def limited_wheel(once: Once, store: Path) -> Path:
    """Return the wheel with both modules."""
    (wheel,) = (once("limited_wheel", lambda folder: build(folder, store, operators=True)) / "dist").glob("*.whl")
    return wheel


def test_the_wheel_is_for_every_python_from_the_oldest_on(limited_wheel: Path) -> None:
    """``USE_SABI 3.9`` of CMake gives ``.abi3.so``, a label that ends in ``_abi3`` and the tag ``cp39-abi3``."""
    assert limited_wheel.name.startswith("torch_ext_limited-1-cp39-abi3-manylinux_")
    with zipfile.ZipFile(limited_wheel) as wheel:
        names = sorted(name for name in wheel.namelist() if name.endswith(".so"))
    assert names == [f"torch_ext_limited/_torch_ext/{LABEL}/{module}.abi3.so" for module in ("_C", "_ops")]


RUN = """
import sys, torch, torch_ext_limited
from torch_ext_limited import _C
assert _C.python() == sys.version
print(torch_ext_limited.loaded.label)
"""


def test_a_module_that_registers_operators_runs_in_a_newer_torch(
    limited_wheel: Path, torch_cpu_python: Path, beside: Callable[[Path, Path], Path], tmp_path: Path
) -> None:
    """The pattern of torch's tutorial: importing the module registers; compiled for 2.10 it runs in 2.13."""
    program = f"{RUN}print(torch.ops.torch_ext_limited.dimensions(torch.ones(2, 3)))"
    said = outside(beside(torch_cpu_python, limited_wheel), "-c", program, cwd=tmp_path).stdout
    assert said.splitlines() == [LABEL, "2"]


# What the loader asks of a torch: the other Pythons of a machine have none, and a module on Python's API needs none.
TORCH = """
from types import SimpleNamespace
__version__ = "2.15.0"
version = SimpleNamespace(cuda=None)
_C = SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
cuda = None
"""


def pythons() -> list[Path]:
    """Return the working Pythons from 3.8 on that this machine has, beside the one that runs the tests."""
    root = Path(os.environ.get("PYENV_ROOT", "/nonexistent")) / "versions"
    found = [*root.glob("3.[89].*/bin/python"), *root.glob("3.1?.*/bin/python")]
    found += [Path(name) for minor in range(8, 16) if (name := shutil.which(f"python3.{minor}"))]
    working: dict[str, Path] = {}
    for path in found:
        try:
            version = process.run([path, "-c", "import sys; print(*sys.version_info[:2])"]).stdout
        except ProcessError:
            continue  # a shim of a version that is not there
        working.setdefault(version, path)
    return list(working.values())


def test_other_pythons_import_the_same_file(store: Path, tmp_path: Path) -> None:
    """Each installed Python of 3.9 to 3.13 imports the module; on Python 3.8 the error names the lowest that can."""
    site = tmp_path / "site"
    build(tmp_path / "project", store, operators=False)
    (built,) = (tmp_path / "project" / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as wheel:
        wheel.extractall(site)
    (site / "torch.py").write_text(TORCH, encoding="utf-8")
    told = {}
    for python in pythons():
        done = process.run([python, "-B", "-c", RUN], cwd=tmp_path, env_changes={"PYTHONPATH": str(site)}, check=False)
        version = process.run([python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"]).stdout.strip()
        told[version] = done.stdout.strip() or done.stderr
    assert f"cp{sys.version_info[0]}{sys.version_info[1]}" in told
    old = told.pop("cp38", f"  {LABEL}: built for abi3-cp39, found cp38\n")
    assert f"  {LABEL}: built for abi3-cp39, found cp38\n" in old
    assert set(told.values()) == {LABEL}
