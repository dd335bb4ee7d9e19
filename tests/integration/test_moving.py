"""A setuptools project with everything that was ever lost by a move: its wheel and ours are compared."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
import uv

import disk
import warm
from hatch_torch_ext.base import process

if TYPE_CHECKING:
    from pathlib import Path

SETUP = """
import atexit, os, sys
from glob import glob
import torch
import versioneer
from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

del sys.modules["versioneer"]  # as the real one does

def configs():
    if "build_ext" not in sys.argv and not os.path.lexists("trap/zoo/configs"):
        os.symlink("../../configs", "trap/zoo/configs")
        atexit.register(os.unlink, "trap/zoo/configs")
    return [os.path.relpath(each, "trap/zoo") for each in glob("trap/zoo/configs/**/*.yaml", recursive=True)]

headers = os.path.abspath("trap/csrc/inc")
flags = ["-DNEW_TORCH"] if torch.__version__ >= (2, 13) else ["-DOLD_TORCH"]
setup(
    name="trap",
    version=versioneer.get_version(),
    description="Traps",
    author="A B",
    author_email="a@b.example",
    url="https://trap.example",
    license="MIT",
    python_requires=">=3.9",
    install_requires=["torch>=2.12", "numpy>=1 # the one and only"],
    extras_require={"test": ["hypothesis # finds more"]},
    packages=[*find_packages(exclude=("extra", "tests", "scripts", "trap.testing")), "trap.extra"],
    package_dir={"trap.extra": "extra"},
    package_data={"trap": ["jit/*.cpp", "py.typed"], "trap.zoo": configs()},
    py_modules=["trap_alone"],
    entry_points={"console_scripts": ["trap-run = trap.extra.main:run", "trap-alone = trap_alone:run"]},
    scripts=["bin/trap-script"],
    ext_modules=[
        CppExtension("trap._C", ["trap/csrc/ops.cpp"], include_dirs=[headers], extra_compile_args=flags),
        CppExtension("trap_helpers", ["trap/csrc/helpers.c"]),
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
OPS = """
#include <torch/library.h>
#include <Python.h>
#include "twice.h"
#ifndef NEW_TORCH
#error "recorded under another torch"
#endif
static at::Tensor twice(const at::Tensor &x) { return x.mul(TWO); }
TORCH_LIBRARY(trap, m) { m.def("twice(Tensor x) -> Tensor"); m.impl("twice", TORCH_FN(twice)); }
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr};
extern "C" __attribute__((visibility("default"))) PyObject *PyInit__C(void) { return PyModule_Create(&def); }
"""
HELPERS = """
#include <Python.h>
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "trap_helpers", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_trap_helpers(void) {
    PyObject *m = PyModule_Create(&def);
    PyModule_AddIntConstant(m, "answer", 42);
    return m;
}
"""
INIT = """
import glob, os
import torch

try:
    for path in glob.glob(os.path.join(os.path.dirname(__file__), "_C*.so")):
        torch.ops.load_library(path)
    from . import meta
except ImportError:
    meta = None

from trap_helpers import answer
"""
FILES = {
    "setup.py": SETUP,
    "setup.cfg": "[versioneer]\nVCS = git\n",
    "versioneer.py": 'def get_version():\n    return "1." + "5"\n',
    "README.md": "# Trap\n",
    "LICENSE": "free\n",
    "trap/__init__.py": INIT,
    "trap/meta.py": "def known():\n    return True\n",
    "trap/py.typed": "",
    "trap/notes.txt": "setuptools does not pack it\n",
    "trap/csrc/ops.cpp": OPS,
    "trap/csrc/helpers.c": HELPERS,
    "trap/csrc/inc/twice.h": "#define TWO 2\n",
    "trap/jit/kernel.cpp": "// compiled on the user's machine\n",
    "trap/testing/__init__.py": "",
    "trap/zoo/__init__.py": "",
    "extra/__init__.py": "",
    "extra/main.py": "def run():\n    return 0\n",
    "extra/notes.txt": "setuptools does not pack it\n",
    "configs/a.yaml": "a: 1\n",
    "configs/more/b.yaml": "b: 1\n",
    "trap_alone.py": "def run():\n    return 0\n",
    "bin/trap-script": "#!/usr/bin/env python\n",
    "tests/__init__.py": "",
    "tests/test_it.py": "",
    "scripts/__init__.py": "",
    "scripts/release.py": "",
}


def git(root: Path, *words: str) -> None:
    """Run git as somebody."""
    named = ("-c", "user.name=A", "-c", "user.email=a@b.example")
    process.run(["git", *named, *words], cwd=root)


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """Return the project, in a repository."""
    root = tmp_path / "trap"
    disk.write(root, FILES)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "all")
    return root


def hatch_torch_ext(root: Path, *words: str) -> process.Completed:
    """Run a command of ours."""
    return warm.run([sys.executable, "-m", "hatch_torch_ext", *words], cwd=root, check=False)


@pytest.mark.slow
def test_a_project_with_every_trap_moves_whole(traps: Path, tmp_path: Path, torch_cpu_python: Path) -> None:
    """What setuptools packs is packed; what differs is what ``init`` lists; its last lines make and compare the wheels.

    The package then runs from our wheel as it did from the old one.
    """
    done = hatch_torch_ext(traps, "init", "--torch", "2.13", "--python", "3.11")
    assert done.returncode == 0, done.stderr
    told = done.stderr.splitlines()
    moved = "`trap_helpers` is put into `trap`, since a wheel's variants are in one package: import it from there"
    assert f"by hand: {moved}" in told
    assert any("its version is versioneer's" in line for line in told)
    assert any("setuptools packs `configs/` as `trap/zoo/configs`" in line for line in told)
    assert any("the Python module that trap/csrc/ops.cpp:" in line and "is empty" in line for line in told)
    tools = tmp_path / "tools"
    install: list[str | Path] = [uv.find_uv_bin(), "pip", "install", "-q", "--python", torch_cpu_python]
    process.run([*install, "--target", tools, "setuptools<81", "wheel", "ninja"])
    last = [line.strip() for line in told if line.startswith("  ")]
    assert last == [
        "git worktree add ../trap-old HEAD",
        "pip wheel --no-deps --no-build-isolation -w ../trap-old/wheel ../trap-old",
        "hatch-torch-ext compare ../trap-old/wheel/*.whl dist/*.whl",
    ]
    git(traps, *last[0].split()[1:])
    pip = [str(torch_cpu_python), "-m", *last[1].split()]
    path = f"{torch_cpu_python.parent}{os.pathsep}{os.environ['PATH']}"
    process.run(pip, cwd=traps, env_changes={"PYTHONPATH": str(tools), "MAX_JOBS": "2", "PATH": path})
    warm.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=traps)
    (old,), (new,) = (tmp_path / "trap-old" / "wheel").glob("*.whl"), (traps / "dist").glob("*.whl")
    compared = hatch_torch_ext(traps, "compare", str(old), str(new), "--json")
    found = json.loads(compared.stdout)
    lost = [(each["topic"], each["subject"]) for each in found["differences"] if each["verdict"] == "lost"]
    assert lost == [("module", "trap_helpers")], compared.stdout
    new_files = [each for each in found["differences"] if (each["verdict"], each["topic"]) == ("new", "file")]
    assert new_files == []
    site = tmp_path / "site"
    process.run([*install, "--target", site, "--no-deps", new])
    code = "import torch, trap, trap.extra.main, trap_alone; from trap import answer, meta; "
    code += "print(torch.ops.trap.twice(torch.ones(1)).item(), answer, meta.known())"
    ran = process.run([torch_cpu_python, "-P", "-c", code], cwd=tmp_path, env_changes={"PYTHONPATH": str(site)})
    assert ran.stdout == "2.0 42 True\n"


def test_what_differs_between_releases_is_reported(traps: Path) -> None:
    """The recording finds the torch of the matrix, each of its releases: what an older one gets otherwise is named."""
    done = hatch_torch_ext(traps, "init", "--dry-run", "--torch", "2.12", "--torch", "2.13")
    assert done.returncode == 0, done.stderr
    told = (
        "by hand: under torch 2.12 setup.py declares `-DOLD_TORCH` among cxx of `trap._C`; no `-DNEW_TORCH` among cxx "
        "of `trap._C`. What it declares under 2.13 is carried over: write the rest as `if(Torch_VERSION VERSION_LESS "
        "2.13)` into CMakeLists.txt"
    )
    assert [line for line in done.stderr.splitlines() if "under torch" in line] == [told]
    assert "-DNEW_TORCH" in done.stdout
    assert "-DOLD_TORCH" not in done.stdout
