"""A package without a matrix: built at first use against a real torch."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import hatch_torch_ext
from hatch_torch_ext import process

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
"""
SOURCE = """
#include <torch/library.h>
#include <ATen/ATen.h>
static at::Tensor twice(const at::Tensor& x) { return x + x; }
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
USE = "import torch, my_pkg; print(torch.ops.my_pkg.twice(torch.ones(3)).tolist(), my_pkg.choice.label)"


def test_an_operator_is_built_for_the_torch_that_is_there(
    torch_cpu_python: Path, beside: Callable[[Path, Path], Path], tmp_path: Path
) -> None:
    """The wheel holds no variant: the first import builds one, audited in that torch, and the next ones load it."""
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
    process.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"], cwd=root)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name == "my_pkg-1-py3-none-any.whl"
    python = beside(torch_cpu_python, wheel)
    (site,) = (python.parent.parent / "lib").glob("python*/site-packages")
    paths = [str(Path(hatch_torch_ext.__file__).parents[1]), sysconfig.get_path("purelib")]
    (site / "zz_zz_builder.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    cache = {"TORCH_EXT_BUILD_CACHE": str(tmp_path / "cache"), "PYTHONPATH": None}
    first = process.run([python, "-P", "-c", USE], cwd=tmp_path, env_changes=cache)
    expected = "[2.0, 2.0, 2.0] torch2.13_cpu_cxx11_x86_64\n"
    assert first.stdout == expected
    assert "my_pkg: no compiled variant fits torch 2.13.0+cpu: one is built, once" in first.stderr
    shutil.rmtree(root)
    again = process.run([python, "-P", "-c", USE], cwd=tmp_path, env_changes=cache)
    assert (again.stdout, again.stderr) == (expected, "")
    checked = process.run([python, "-P", "-m", "my_pkg._variants", "--check"], cwd=tmp_path, env_changes=cache)
    assert checked.stdout == "torch2.13_cpu_cxx11_x86_64 works; its operators: my_pkg::twice\n"
