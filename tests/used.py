"""A user's environment: a Python with a tiny torch, and a wheel that holds its sources in plain C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import uv

import fake_torch
import hatch_torch_ext
import plain
from hatch_torch_ext.base import process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Once = Callable[[str, Callable[[Path], None]], Path]

TORCH = """
import ctypes
from torch import version
from torch.version import __version__
class _C:
    _GLIBCXX_USE_CXX11_ABI = True
    def _dispatch_get_all_op_names():
        return []
class ops:
    def load_library(path):
        ctypes.CDLL(path)
class cuda:
    _queued_calls = []
    def is_initialized():
        return False
"""
"""As much of torch as the loader and the audit use."""
CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(plain LANGUAGES C)
if(DEFINED ENV{PAUSE})
  file(WRITE $ENV{PAUSE} "")
  execute_process(COMMAND sleep 60)
endif()
add_library(plain SHARED plain.c)
install(TARGETS plain LIBRARY DESTINATION .)
"""
FALLBACK = 'fallback = "build"'
PYPROJECT = plain.PROJECT.replace(
    "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n",
    f"[tool.hatch.build.targets.wheel.hooks.torch-ext]\n{FALLBACK}\n",
)
INIT = """
import ctypes
from my_pkg import _variants
choice = _variants.load()
def load():
    return choice.label, ctypes.CDLL(_variants.path("libplain.so")).answer()
"""


def project(
    root: Path, shared: Path, *, releases: tuple[str, ...] = ("2.8",), files: Mapping[str, str] | None = None
) -> plain.Project:
    """Return a project whose wheel holds its sources; ``files`` replace those of ``plain``."""
    text = PYPROJECT.format(releases=", ".join(f'"{release}"' for release in releases))
    given = {"pyproject.toml": text, "csrc/CMakeLists.txt": CMAKE, "src/my_pkg/__init__.py": INIT}
    return plain.Project(root, shared, releases=releases, files={**given, **(files or {})})


def shared(once: Once) -> Path:
    """Return a folder with tiny wheels of torch 2.8 and 2.9, made once a session."""
    return once("first-use", lambda folder: plain.make_wheels(folder / "wheels", ["2.8.0+cpu", "2.9.0+cpu"]))


def wheel(once: Once) -> Path:
    """Return a wheel with a variant for torch 2.8, and its sources, made once a session."""

    def make(folder: Path) -> None:
        done = project(folder / "project", shared(once)).build(str(folder / "dist"))
        assert done.returncode == 0, done.stderr

    (path,) = (once("first-use-wheel", make) / "dist").glob("*.whl")
    return path


class User:
    """An environment with a tiny torch; the builder is importable in it unless ``builder`` is False."""

    def __init__(self, root: Path, torch: str = "2.13.0+cpu", *, builder: bool = True, git: str = "f00") -> None:
        self.root = root
        self.cache = root / "cache"
        process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, root / "env"])
        self.python = root / "env" / "bin" / "python"
        (self.site,) = (root / "env" / "lib").glob("python*/site-packages")
        self.set_torch(torch, git=git)
        if builder:
            lines = [str(Path(hatch_torch_ext.__file__).parents[1]), sysconfig.get_path("purelib")]
            (self.site / "builder.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def set_torch(self, version: str, *, git: str = "f00") -> None:
        """Put a torch of that version into the environment, and leave nothing of the previous one, as pip does.

        Python takes a compiled file as current if it has the size and the time, in seconds, of the source. Those of
        "2.13.0" and "2.12.0" have one size, so within one second Python would use the old one.
        """
        shutil.rmtree(self.site / "torch" / "__pycache__", ignore_errors=True)
        extra = {
            "torch/__init__.py": TORCH.encode(),
            "torch/version.py": f"__version__ = {version!r}\ncuda = None\nhip = None\ngit_version = {git!r}\n".encode(),
        }
        for name, data in fake_torch.contents(version, cuda=None, extra=extra).items():
            if not name.startswith("torch/include/ATen/ops/"):
                (self.site / name).parent.mkdir(parents=True, exist_ok=True)
                (self.site / name).write_bytes(data)

    def install(self, wheel: Path) -> None:
        """Install a wheel without its dependencies."""
        process.run([uv.find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--python", self.python, wheel])

    def environ(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Return the environment variables of the user's processes."""
        given: dict[str, str | None] = {"TORCH_EXT_BUILD_CACHE": str(self.cache), "PYTHONPATH": None, **changes}
        return {name: value for name, value in {**os.environ, **given}.items() if value is not None}

    def start(self, *arguments: str, **changes: str | None) -> subprocess.Popen[str]:
        """Start the user's Python in a session of its own."""
        return subprocess.Popen(
            [self.python, *arguments],
            cwd=self.root,
            env=self.environ(changes),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
        """Run the user's Python; it may fail."""
        running = self.start(*arguments, **changes)
        out, error = running.communicate(timeout=300)
        return subprocess.CompletedProcess(arguments, running.returncode, out, error)

    def load(self, **changes: str | None) -> subprocess.CompletedProcess[str]:
        """Import the package and call its function."""
        return self.run("-c", "import my_pkg; print(*my_pkg.load())", **changes)
