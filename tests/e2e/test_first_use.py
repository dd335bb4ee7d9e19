"""A build at first use for a real torch that the wheel has no variant for."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import hatch_torch_ext
from hatch_torch_ext.base import process

from .conftest import build

if TYPE_CHECKING:
    from collections.abc import Callable

PYPROJECT = """
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"
[project]
name = "my-pkg"
version = "1"
[tool.hatch.build.targets.wheel.hooks.torch-ext]
fallback = "build"
cmake.build-type = "Quick"
[tool.hatch.envs.matrix]
skip-install = true
python = "3.11"
dependencies = ["torch=={matrix:torch}.*"]
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.8"]
"""
SOURCE = """
#include <torch/library.h>
static at::Tensor twice(const at::Tensor& x) { return x.add(x); }
TORCH_LIBRARY(my_pkg, m) { m.def("twice(Tensor x) -> Tensor"); m.impl("twice", c10::DispatchKey::CPU, &twice); }
"""
CMAKE = """
cmake_minimum_required(VERSION 3.26)
project(my_ops CXX)
find_package(Torch REQUIRED)
add_library(my_ops SHARED my_ops.cpp)
target_link_libraries(my_ops PRIVATE torch)
install(TARGETS my_ops LIBRARY DESTINATION .)
"""
REAL = (
    "import pathlib, torch; "
    "print(torch.__version__, pathlib.Path(torch.__file__).with_name('lib').joinpath('libtorch_cpu.so').stat().st_size)"
)
USE = "import torch, my_pkg; print(torch.ops.my_pkg.twice(torch.ones(3)).tolist(), my_pkg.choice.label)"


def test_an_operator_is_built_for_the_torch_that_is_there(
    torch_cpu_python: Path, beside: Callable[[Path, Path], Path], store: Path, tmp_path: Path
) -> None:
    """The wheel lacks torch 2.13: an import says so, one that may builds it, audited there, and the next ones load."""
    root = tmp_path / "project"
    for name, text in {
        "pyproject.toml": PYPROJECT,
        ".gitignore": "/build/\n",
        "src/my_pkg/__init__.py": "from my_pkg import _variants\nchoice = _variants.load()\n",
        "csrc/CMakeLists.txt": CMAKE,
        "csrc/my_ops.cpp": SOURCE,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    build(root, tmp_path / "dist", store)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    python = beside(torch_cpu_python, wheel)
    (site,) = (python.parent.parent / "lib").glob("python*/site-packages")
    paths = [str(Path(hatch_torch_ext.__file__).parents[1]), sysconfig.get_path("purelib")]
    (site / "zz_zz_builder.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    cache = {"TORCH_EXT_BUILD_CACHE": str(tmp_path / "cache"), "PYTHONPATH": None}
    real = process.run([python, "-P", "-c", REAL], cwd=tmp_path, env_changes=cache).stdout.split()
    assert (real[0].partition("+")[0], int(real[1]) > 100_000_000) == ("2.13.0", True)
    unasked = process.run([python, "-P", "-c", USE], cwd=tmp_path, env_changes=cache, check=False)
    assert "torch2.8_cpu_cxx11_x86_64: built for torch 2.8, found 2.13.0+cpu" in unasked.stderr
    assert "\n  python -m my_pkg._variants --build\n" in unasked.stderr
    cache["TORCH_EXT_BUILD"] = "1"
    first = process.run([python, "-P", "-c", USE], cwd=tmp_path, env_changes=cache)
    expected = "[2.0, 2.0, 2.0] torch2.13_cpu_cxx11_x86_64\n"
    assert first.stdout == expected
    assert "my_pkg: no compiled variant fits torch 2.13.0+cpu: one is built, once" in first.stderr
    shutil.rmtree(root)
    again = process.run([python, "-P", "-c", USE], cwd=tmp_path, env_changes=cache)
    assert (again.stdout, again.stderr) == (expected, "")
    checked = process.run([python, "-P", "-m", "my_pkg._variants", "--check"], cwd=tmp_path, env_changes=cache)
    assert checked.stdout == "torch2.13_cpu_cxx11_x86_64 works; its operators: my_pkg::twice\n"
