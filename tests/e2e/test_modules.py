"""Extension modules for two Pythons in one wheel, beside a library that serves both."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError

from .conftest import PROJECT, build, hasten, install, outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Once

CHECK = """
import pickle, sys, torch, torch_ext_modules
from torch_ext_modules import _C
from torch_ext_modules.below import NAME, _D
assert _C.__name__ == "torch_ext_modules._C", _C.__name__
assert (NAME, _D.answer, _D.__name__) == ("below", 42, "torch_ext_modules.below._D")
x = torch.ones(3)
assert torch.equal(_C.negate(x), -x)
assert torch.equal(torch.ops.torch_ext_modules.thrice(x), 3 * x)
point = pickle.loads(pickle.dumps(_C.Point(2.5)))
assert point.x == 2.5 and type(point).__module__ == "torch_ext_modules._C"
print(torch_ext_modules._variants.load().label)
"""


def python312() -> Path | None:
    """Return a Python 3.12 of this machine, wherever pyenv or the system keep it."""
    places = [*Path(os.environ.get("PYENV_ROOT", "/nonexistent")).glob("versions/3.12.*/bin/python3.12")]
    places += [Path(found)] if (found := shutil.which("python3.12")) else []
    for place in places:
        try:
            process.run([place, "-c", "import ctypes, ssl"])
        except ProcessError:
            continue
        return place
    return None


@pytest.fixture(scope="session")
def modules_wheel(once: Once, store: Path) -> Path:
    """Return the wheel of tests/packages/modules, built for Python 3.11 and 3.12."""
    other = python312()
    if other is None:
        pytest.skip("there is no Python 3.12 on this machine")

    def make(folder: Path) -> None:
        root = folder / "project"
        shutil.copytree(PROJECT / "tests/packages/modules", root)
        hasten(root / "pyproject.toml")
        pythons = f"{other.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        # Both from the index: a CPU build of torch for only one of them would make other bytes of the library.
        build(root, folder / "dist", store, PATH=pythons, PIP_FIND_LINKS="")

    (wheel,) = (once("modules_wheel", make) / "dist").glob("*.whl")
    return wheel


def test_one_wheel_holds_the_modules_of_both_pythons_and_the_library_once(modules_wheel: Path) -> None:
    """The tag names no Python; the library, the same bytes for both, is stored once; Python files land once."""
    with zipfile.ZipFile(modules_wheel) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    inside = sorted(name.removeprefix("torch_ext_modules/") for name in names)
    (shared,) = [name for name in inside if name.startswith("_torch_ext/shared/")]
    assert shared.endswith("/libops.so")
    machine = os.uname().machine
    label = f"torch2.13_cpu_cxx11_{machine}"
    assert inside == sorted(
        [
            "__init__.py",
            "_variants.py",
            "_torch_ext/help.py",
            "_torch_ext/manifest.json",
            shared,
            *(
                f"_torch_ext/{label}_cp{python}/{module}.cpython-{python}-{machine}-linux-gnu.so"
                for python in (311, 312)
                for module in ("_C", "below/_D")
            ),
            "below/__init__.py",
            "include/api.h",
        ]
    )
    assert modules_wheel.name.startswith("torch_ext_modules-1-py3-none-manylinux_")


def test_python_3_11_imports_its_own_modules(
    modules_wheel: Path, torch_cpu_python: Path, beside: Callable[[Path, Path], Path], tmp_path: Path
) -> None:
    """Stable names (pickle), a module of a package below, operators of the shared library."""
    python = beside(torch_cpu_python, modules_wheel)
    said = outside(python, "-c", CHECK, cwd=tmp_path).stdout
    assert said.strip() == f"torch2.13_cpu_cxx11_{os.uname().machine}_cp311"


@pytest.mark.slow
def test_python_3_12_imports_its_own_modules(modules_wheel: Path, once: Once, tmp_path: Path) -> None:
    """The same wheel in another Python, with the full torch of the index."""

    def make(folder: Path) -> None:
        process.run([uv.find_uv_bin(), "venv", "--quiet", "--clear", "--python", str(python312()), folder])
        install(folder / "bin" / "python", "torch==2.13.0", deps=True)

    python = once("torch-2.13-cp312", make) / "bin" / "python"
    install(python, modules_wheel)
    said = outside(python, "-c", CHECK, cwd=tmp_path).stdout
    assert said.strip() == f"torch2.13_cpu_cxx11_{os.uname().machine}_cp312"


def test_the_lack_of_torch_is_reported(modules_wheel: Path, tmp_path: Path) -> None:
    """Installed beside no torch at all, the import is the same clear error."""
    folder = tmp_path / "bare"
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, folder])
    install(folder / "bin" / "python", modules_wheel)
    done = outside(folder / "bin" / "python", "-c", "import torch_ext_modules", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "Here: no torch, cp311, linux" in done.stderr
