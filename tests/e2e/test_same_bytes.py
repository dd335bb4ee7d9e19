"""The same bytes: in another folder, by another user, at another time, with more jobs, with another kind of SDK."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base import process
from hatch_torch_ext.remote import pipconfig

from .conftest import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Once

PACKAGE = "torch_ext_repeated"
# hatchling as a program, under a mask that leaves nothing to others.
HATCHLING = """
import os, runpy, sys
os.umask(int(sys.argv.pop(1), 8))
runpy.run_module("hatchling", run_name="__main__", alter_sys=True)
"""
EPOCH = "1700000000"


def build(root: Path, *, mask: str = "022", **environ: str | None) -> Path:
    """Build the wheel of tests/packages/repeated in the new folder ``root``."""
    shutil.copytree(PROJECT / "tests/packages/repeated", root)
    if environ.get("HATCH_TORCH_EXT_ENVIRONMENT") == "cuda":
        # nvcc's temporary files, which debug information of device code names, are numbered by the process.
        project = root / "pyproject.toml"
        project.write_text(project.read_text().replace('debug-symbols = "keep"', 'debug-symbols = "strip"'))
    dist = root / "dist"
    # Where torch comes from may be only in pip's own files, which another home does not have.
    installer = {name: value for name, value in pipconfig.variables(os.environ).items() if name not in os.environ}
    process.run(
        [sys.executable, "-c", HATCHLING, mask, "build", "-t", "wheel", "-d", dist],
        cwd=root,
        env_changes={"SOURCE_DATE_EPOCH": EPOCH, **installer, **environ},
    )
    (wheel,) = dist.glob("*.whl")
    return wheel


def elsewhere(folder: Path, store: Path, **environ: str) -> Path:
    """Build once more: another folder, store, user, home, mask and time zone, files of another date, two jobs."""
    (folder / "home").mkdir(parents=True)
    # The compiler of CUDA's wheels lies below the project, and CMake cannot link with it where that has spaces.
    project = folder / ("longer_name" if "HATCH_TORCH_EXT_ENVIRONMENT" in environ else "a name") / "of_the_project"
    changes = {"HOME": str(folder / "home"), "USER": "somebody", "LOGNAME": "somebody", "TZ": "Asia/Tokyo"}
    # Packages that uv has fetched are not what is tested.
    cache = process.run([_uv(), "cache", "dir"]).stdout.strip()
    changes |= {"UV_CACHE_DIR": cache, "HATCH_TORCH_EXT_CACHE": str(store), "HATCH_TORCH_EXT_JOBS": "2"}
    return build(project, mask="077", **changes, **environ)


def _uv() -> str:
    import uv  # noqa: PLC0415 - where it is needed

    return uv.find_uv_bin()


def hashes(wheel: Path) -> dict[str, str]:
    """Return member -> hash: what differs is seen by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


@pytest.fixture(scope="session")
def thin_wheel(once: Once, store: Path) -> Path:
    """Return the wheel for the CPU, built with a thin SDK by one job."""

    def make(folder: Path) -> None:
        wheel = build(folder / "p", HATCH_TORCH_EXT_CACHE=str(store), HATCH_TORCH_EXT_JOBS="1")
        wheel.rename(folder / wheel.name)

    (wheel,) = once("repeated", make).glob("*.whl")
    return wheel


def test_a_cpu_wheel(thin_wheel: Path, tmp_path: Path) -> None:
    """Debug information, archives, __FILE__, __DATE__ and the compressed archive itself: all equal."""
    other = elsewhere(tmp_path, tmp_path / "another store")
    assert hashes(other) == hashes(thin_wheel)
    assert other.read_bytes() == thin_wheel.read_bytes()


def test_a_cuda_wheel(store: Path, tmp_path: Path) -> None:
    """The names that nvcc makes for static symbols, and its fat binaries, are equal in two builds."""
    cuda = {"HATCH_TORCH_EXT_ENVIRONMENT": "cuda"}
    first = build(tmp_path / "p", HATCH_TORCH_EXT_CACHE=str(store), HATCH_TORCH_EXT_JOBS="1", **cuda)
    other = elsewhere(tmp_path, store, **cuda)
    label = f"{PACKAGE}/_torch_ext/torch2.11_cu13.0_cxx11_{os.uname().machine}/librepeated.so"
    assert label in hashes(first)
    assert hashes(other) == hashes(first)
    assert other.read_bytes() == first.read_bytes()


def test_a_thin_and_an_installed_torch(thin_wheel: Path, store: Path, tmp_path: Path) -> None:
    """Headers of the release's CUDA build, and an installed build for the CPU: the variants are the same bytes."""
    installed = build(
        tmp_path / "p",
        HATCH_TORCH_EXT_CACHE=str(store),
        HATCH_TORCH_EXT_SDK="environment",
        HATCH_DATA_DIR=str(tmp_path),
    )
    ours, theirs = hashes(thin_wheel), hashes(installed)
    libraries = [name for name in ours if ".so" in name]
    assert len(libraries) == 2
    assert {name: theirs.get(name) for name in libraries} == {name: ours[name] for name in libraries}
    assert ours.keys() == theirs.keys()
