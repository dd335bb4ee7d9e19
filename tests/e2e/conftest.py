"""The example's wheel and full torch installs, each made once for all end-to-end tests."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
import uv

import quicker
from hatch_torch_ext.base import process

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).resolve().parent.parent.parent
LEFT_OUT = shutil.ignore_patterns("build", "dist", "__pycache__", ".*cache")


class Once(Protocol):
    """Fills a named folder once for all workers of the test run."""

    def __call__(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return the folder ``name``, made by ``make`` unless it is there."""


def install(python: Path, *requirements: str | Path, deps: bool = False) -> None:
    """Install into an existing environment, by default without what the packages require."""
    options = [] if deps else ["--no-deps"]
    process.run([uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python, *options, *requirements])


def outside(python: Path, *arguments: str | Path, cwd: Path, check: bool = True) -> process.Completed:
    """Run a Python as a user would: in an unrelated folder, with nothing of this project on any path."""
    return process.run([python, "-P", *arguments], cwd=cwd, check=check, env_changes={"PYTHONPATH": None})


@pytest.fixture(scope="session")
def store(session_folder: Path) -> Path:
    """Return the store of thin SDKs that all end-to-end builds share."""
    return session_folder / "store"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Return a copy of the example project: what a test builds there leaves no trace in the sources."""
    return copy_example(tmp_path / "example")


def copy_example(target: Path) -> Path:
    """Copy the example's sources, without what earlier builds left; the compiler does not optimize them."""
    shutil.copytree(PROJECT / "example_project", target, ignore=LEFT_OUT)
    hasten(target / "hatch.toml")
    return target


def hasten(config: Path) -> None:
    """Let the compiler not optimize a project, of which the file ``config`` has the options."""
    line = 'source = "csrc"\n'
    text = config.read_text(encoding="utf-8").replace(line, f'{line}cmake.build-type = "Quick"\n')
    config.write_text(text, encoding="utf-8")


def exact_matrix(root: Path, *releases: str) -> None:
    """Give the example in ``root`` a matrix of exact variants only."""
    config = root / "hatch.toml"
    text = config.read_text(encoding="utf-8")
    before, start, rest = text.partition("[[envs.matrix.matrix]]")
    after = rest[rest.index("# The wheel in dist/") :]
    config.write_text(f"{before}{start}\ntorch = {json.dumps(releases)}\n\n{after}", encoding="utf-8")


def build(root: Path, out: Path, store: Path, **environ: str) -> process.Completed:
    """Build the wheel of the project in ``root`` with the plugin that is tested, without isolation."""
    return process.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out],
        cwd=root,
        env_changes={"HATCH_TORCH_EXT_CACHE": str(store), **environ},
    )


@pytest.fixture(scope="session")
def example_wheel(once: Once, store: Path) -> Path:
    """Return the example's wheel with exact variants for torch 2.5 and 2.13."""

    def make(folder: Path) -> None:
        root = copy_example(folder / "example")
        exact_matrix(root, "2.5", "2.13")
        build(root, folder / "dist", store)
        shutil.rmtree(root)

    (wheel,) = (once("example_wheel", make) / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def hybrid_wheel(once: Once, store: Path) -> Path:
    """Return the example's wheel of its own matrix: exact variants (2.5 of them), a stable one for the rest."""

    def make(folder: Path) -> None:
        root = copy_example(folder / "example")
        build(root, folder / "dist", store, HATCH_TORCH_EXT_ONLY="matrix.2.5,matrix.2.10-stable")
        shutil.rmtree(root)

    (wheel,) = (once("example_hybrid", make) / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def full_torch(once: Once) -> Callable[[str], Path]:
    """Return a function: torch version -> a Python 3.11 with the full install of it (a CUDA build, on the CPU)."""

    def python(version: str) -> Path:
        given = os.environ.get("HTE_FULL_TORCH")
        if given and (Path(given) / version).is_dir():
            return Path(given) / version / "bin" / "python"

        def make(folder: Path) -> None:
            process.run([uv.find_uv_bin(), "venv", "--quiet", "--clear", "--python", sys.executable, folder])
            install(folder / "bin" / "python", f"torch=={version}", "numpy", "pytest", deps=True)
            quicker.start(folder)

        return once(f"torch-{version}", make) / "bin" / "python"

    return python


def lent(python: Path, folder: Path) -> Path:
    """Make a fresh environment in ``folder`` that sees the torch of ``python``; return its Python.

    The big environment is lent, not copied: a ``.pth`` file adds its site-packages after the fresh ones, so torch is
    on another entry of ``sys.path`` than what is installed here.
    """
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", python, folder])
    said = process.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "zz_torch.pth").write_text(said.stdout, encoding="utf-8")
    quicker.start(folder)
    return folder / "bin" / "python"


@pytest.fixture
def beside(tmp_path: Path) -> Callable[[Path, Path], Path]:
    """Return a function: (Python with torch, wheel) -> a Python of a fresh environment that has both."""

    def make(python: Path, wheel: Path) -> Path:
        fresh = lent(python, tmp_path / "fresh")
        install(fresh, wheel)
        return fresh

    return make


def few_archs(root: Path, *lines: str) -> None:
    """Give the example in ``root`` two architectures, and CUDA 12 for the release that tests install in full."""
    config = root / "hatch.toml"
    text = config.read_text(encoding="utf-8")
    options = "\n".join(['archs = ["9.0", "7.5+PTX"]', *lines])
    text = text.replace('torch = ["2.6"]\ncuda = ["cu124"]', 'torch = ["2.5"]\ncuda = ["cu124"]')
    config.write_text(text.replace('environment = "matrix"', f'environment = "full"\n{options}'), encoding="utf-8")


@pytest.fixture(scope="session")
def cuda_wheel(once: Once, store: Path) -> Path:
    """Return the example's wheel with a stable variant for CUDA 13 (compiler of the wheels), and one for the CPU."""

    def make(folder: Path) -> None:
        root = copy_example(folder / "example")
        few_archs(root)
        # `skip` says what is served; `only` would make a partial wheel, from which nothing is cut
        done = build(root, folder / "dist", store, HATCH_TORCH_EXT_SKIP="full*cu12*,full.2.[4-9]*")
        (folder / "said").write_text(done.stdout + done.stderr, encoding="utf-8")
        shutil.rmtree(root)

    (wheel,) = (once("cuda_wheel", make) / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def backends_wheel(once: Once, store: Path, cuda12: Path) -> Path:
    """Return the example's wheel with one variant for each backend: CUDA 12 (torch 2.5), CUDA 13 and CPU (stable)."""

    def make(folder: Path) -> None:
        root = copy_example(folder / "example")
        few_archs(root)
        # CUDA 13's compiler is the environment's own: CUDA_HOME is passed over there, being of another major
        skip = "full.2.[4-9]-cpu,full.2.[789]*,full*cu128*"
        build(root, folder / "dist", store, HATCH_TORCH_EXT_SKIP=skip, CUDA_HOME=str(cuda12))
        shutil.rmtree(root)

    (wheel,) = (once("backends_wheel", make) / "dist").glob("*.whl")
    return wheel
