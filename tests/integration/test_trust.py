"""Whole builds of a library in C: no secret in files or output, no files outside the work folder, waits reported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base import locks, process
from hatch_torch_ext.pipeline import folders
from plain import CMAKE, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")

SPEAKS = CMAKE + 'message(STATUS "seen: $ENV{OPAQUE} $ENV{MY_TOKEN} $ENV{UV_INDEX_INNER_PASSWORD}")\n'
FAILS = SPEAKS + 'message(FATAL_ERROR "broken by $ENV{OPAQUE}")\n'


@pytest.fixture
def shared(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return the folder of the wheels of torch and of the store."""
    return once("trust", lambda folder: make_wheels(folder / "wheels", ["2.8.0"]))


def project(root: Path, shared: Path, *, cmake: str = SPEAKS, matrix: str = "") -> Project:
    """Return a project whose environment takes a value of the process in, under a name that says nothing."""
    made = Project(root, shared, releases=["2.8"], files={"csrc/CMakeLists.txt": cmake})
    file = made.root / "pyproject.toml"
    text = file.read_text().replace(
        'env-vars = { CFLAGS = "-DANSWER=42" }',
        'env-vars = { CFLAGS = "-DANSWER=42", OPAQUE = "{env:FROM_OUTSIDE}", MY_TOKEN = "t0ken-S3CRET" }',
    )
    file.write_text(text + matrix)
    return made


@pytest.mark.parametrize("cmake", [SPEAKS, FAILS])
def test_secrets_are_in_no_file_and_no_output(cmake: str, tmp_path: Path, shared: Path) -> None:
    """Secrets in the environment of hatch or of the process are in no log, event, message, wheel or other file.

    The author's own CMake files print them all, and fail with them.
    """
    built = project(tmp_path / "project", shared, cmake=cmake)
    done = built.build(FROM_OUTSIDE="from-S3CRET", UV_INDEX_INNER_PASSWORD="inner-S3CRET")  # noqa: S106
    assert (done.returncode == 0) is (cmake is SPEAKS), done.stdout + done.stderr
    assert "S3CRET" not in done.stdout + done.stderr
    log = (tmp_path / "project/build/torch-ext/matrix.2.8/log.txt").read_text()
    assert "seen: **** **** ****" in log
    if cmake is FAILS:
        assert "broken by ****" in done.stdout + done.stderr
    files = [path for top in (built.root, shared / "store") for path in top.rglob("*") if path.is_file()]
    named = {path for path in files if b"S3CRET" in path.read_bytes()}
    assert {path.name for path in named} == {"pyproject.toml"}  # what the author wrote there himself


def test_a_value_that_climbs_out(tmp_path: Path, shared: Path) -> None:
    """A matrix value `../../outside` names no folder outside the work folder: what the author has there stays."""
    built = project(tmp_path / "project", shared, cmake=CMAKE, matrix='way = ["../../../outside"]\n')
    precious = [
        built.root / "outside/build/precious",
        tmp_path / "outside/build/precious",
        built.root / "build/outside/build/x",
    ]
    for file in precious:
        file.parent.mkdir(parents=True)
        file.write_text("mine")
    done = built.build(FROM_OUTSIDE="unused")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.read_text() for file in precious] == ["mine"] * 3
    (log,) = (built.root / "build/torch-ext").glob("*/log.txt")
    assert log.parent.parent == built.root / "build/torch-ext"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "project"]


def test_a_value_that_cmake_would_change_is_refused(tmp_path: Path, shared: Path) -> None:
    """Before any work, in the usual words."""
    built = project(tmp_path / "project", shared, cmake=CMAKE, matrix='way = ["a "]\n')
    done = built.build(FROM_OUTSIDE="unused")
    assert done.returncode == 1
    assert (
        "hatch-torch-ext: matrix.2.8-a : the variable `way` is 'a ', which begins or ends with a space, which CMake "
        "drops; write it without"
    ) in done.stdout + done.stderr
    assert not list((built.root / "build/torch-ext").glob("*/log.txt"))


def test_a_build_waits_and_says_for_whom(tmp_path: Path, shared: Path) -> None:
    """If another process holds the work folder, a build names that process, waits, and then goes on."""
    built = project(tmp_path / "project", shared, cmake=CMAKE)
    work = folders.work(built.root, distribution="my-pkg")
    with locks.held(work / "lock", what="it"):
        started = built.started(FROM_OUTSIDE="unused")
        assert started.stdout is not None
        for line in started.stdout:
            if "waiting" in line:
                break
    rest = started.stdout.read()
    assert started.wait() == 0, rest
    assert f"waiting for the work folder {work}, which process " in line
    assert process.run(["ls", "dist"], cwd=built.root).stdout.endswith(".whl\n")
