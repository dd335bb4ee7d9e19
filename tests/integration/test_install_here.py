"""Building at install: for the torch of the environment it is installed into; never `No module named 'torch'`."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

import plain
import used
import warm
from hatch_torch_ext import environments
from hatch_torch_ext.base import process
from hatch_torch_ext.environments.frontend import Parent

if TYPE_CHECKING:
    from collections.abc import Callable

    Once = Callable[[str, Callable[[Path], None]], Path]

OFFLINE = {
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
}
"""Nothing can be fetched."""


@pytest.fixture(scope="session")
def shared(once: Once) -> Path:
    """Return a folder with tiny wheels of torch 2.8 and 2.9."""
    return once("install-here", lambda folder: plain.make_wheels(folder / "wheels", ["2.8.0+cpu", "2.9.0+cpu"]))


@pytest.fixture(scope="session")
def sdist(once: Once, shared: Path) -> Path:
    """Return the sdist of a project whose matrix has torch 2.8 and 2.9."""

    def make(folder: Path) -> None:
        files = {"src/my_pkg/__init__.py": used.INIT}
        project = plain.Project(folder / "project", shared, files=files)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder / "dist")]
        warm.run(command, cwd=project.root)

    (path,) = (once("install-here-sdist", make) / "dist").glob("*.tar.gz")
    return path


def front_end(user: used.User, *command: str | Path, **changes: str | None) -> process.Completed:
    """Run a front end for the user's environment, not as a child of hatch."""
    given: dict[str, str | None] = {
        "VIRTUAL_ENV": str(user.root / "env"),
        "PYTHONPATH": None,
        "HATCH_ENV_ACTIVE": None,
        "HATCH_ENV": None,
        **changes,
    }
    return process.run(list(command), cwd=user.root, env_changes=given, check=False)


PIP = ("-m", "pip", "install", "-v", "--no-deps", "--no-cache-dir")


def variants(user: used.User) -> list[str]:
    """Return the labels of what was installed."""
    manifest = json.loads((user.site / "my_pkg" / "_torch_ext" / "manifest.json").read_text(encoding="utf-8"))
    return sorted(each["label"] for each in manifest["variants"])


def test_without_isolation_it_is_built_for_the_torch_that_is_there(sdist: Path, tmp_path: Path) -> None:
    """Docker-style: torch and the build's packages first, then no network; the matrix need not have that torch."""
    user = used.User(tmp_path)
    done = front_end(user, user.python, *PIP, "--no-build-isolation", sdist, **OFFLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch-ext: for torch 2.13.0+cpu of " in done.stdout + done.stderr
    assert variants(user) == ["torch2.13_cpu_cxx11_x86_64"]
    assert user.load().stdout == "torch2.13_cpu_cxx11_x86_64 42\n"


@pytest.mark.performs("--no-cache-dir --no-binary", "Install a variant for this torch where")
@pytest.mark.slow
def test_another_torch_later_is_reported_and_the_command_builds_for_it(sdist: Path, tmp_path: Path) -> None:
    """An installer would keep the wheel that it built; the command that the error gives builds again."""
    user = used.User(tmp_path)
    isolated: list[str | Path] = ["--no-build-isolation", "--find-links", sdist.parent]
    assert front_end(user, user.python, *PIP, "--no-build-isolation", sdist, **OFFLINE).returncode == 0
    user.set_torch("2.12.0+cpu")
    lines = user.load().stderr.partition("ImportError: ")[2].splitlines()
    command = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary my-pkg my-pkg"
    assert f"  {command}" in lines
    done = front_end(user, user.python, "-m", *command.split(), *isolated, **OFFLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert user.load().stdout == "torch2.12_cpu_cxx11_x86_64 42\n"


def test_uv_without_isolation(sdist: Path, tmp_path: Path) -> None:
    """The build of uv runs the environment's Python; nothing is fetched."""
    user = used.User(tmp_path)
    command: list[str | Path] = [
        "pip",
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--no-cache",
        "--python",
        user.python,
        sdist,
    ]
    done = front_end(user, uv.find_uv_bin(), *command, **OFFLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert variants(user) == ["torch2.13_cpu_cxx11_x86_64"]


@pytest.mark.performs("install torch first")
def test_requested_by_name(sdist: Path, tmp_path: Path) -> None:
    """`current` is the torch that is installed, in a front end that installs nothing too; without one, an error.

    What the error says to type then builds for the torch that was installed first.
    """
    user = used.User(tmp_path)
    wheel: list[str | Path] = [
        "-m",
        "pip",
        "wheel",
        "-v",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path / "out",
        sdist,
    ]
    done = front_end(user, user.python, *wheel, HATCH_TORCH_EXT_ONLY="current", **OFFLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "bare").mkdir()
    bare = used.User(tmp_path / "bare")
    torch = bare.site / "torch"
    torch.rename(tmp_path / "torch")
    done = front_end(bare, bare.python, *wheel, HATCH_TORCH_EXT_ONLY="current", **OFFLINE)
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "HATCH_TORCH_EXT_ONLY=current asks for the torch that is installed. This build finds no torch" in said
    (command,) = set(re.findall("install torch first, then `(pip install .*?)`", said))
    (tmp_path / "torch").rename(torch)
    line = ["-m", *command.split(), "--no-deps", sdist]
    done = front_end(bare, bare.python, *line, HATCH_TORCH_EXT_ONLY="current", **OFFLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert variants(bare) == ["torch2.13_cpu_cxx11_x86_64"]


@pytest.mark.slow
def test_pip_with_isolation(sdist: Path, wheelhouse: Path, tmp_path: Path, shared: Path) -> None:
    """Pip's isolated build sees the environment's torch; without one, the newest entry is built, with a note."""
    user = used.User(tmp_path, builder=False)
    process.run([uv.find_uv_bin(), "pip", "install", "-q", "--python", user.python, "pip"])
    links = f"{wheelhouse} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
    changes = {"PIP_FIND_LINKS": links}
    isolated = [option for option in PIP if option != "--no-cache-dir"]
    done = front_end(user, user.python, *isolated, sdist, **changes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert variants(user) == ["torch2.13_cpu_cxx11_x86_64"]
    process.run(["rm", "-r", user.site / "torch"])
    tiny = {"UV_FIND_LINKS": str(shared / "wheels"), "HATCH_TORCH_EXT_CACHE": str(shared / "store")}
    done = front_end(user, user.python, *isolated, "--force-reinstall", sdist, **changes, **tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "This build finds no torch" in done.stdout + done.stderr
    assert variants(user) == ["torch2.9_cpu_cxx11_x86_64"]


@pytest.mark.slow
def test_build_with_isolation_makes_the_whole_wheel(
    sdist: Path, wheelhouse: Path, tmp_path: Path, shared: Path
) -> None:
    """As poetry does it: PEP 517 in an environment without torch; what is given on has the whole matrix."""
    user = used.User(tmp_path, builder=False)
    changes = {
        "PIP_FIND_LINKS": f"{wheelhouse} {os.environ.get('PIP_FIND_LINKS', '')}".strip(),
        "UV_FIND_LINKS": f"{wheelhouse},{shared / 'wheels'}",
        "HATCH_TORCH_EXT_CACHE": str(shared / "store"),
    }
    folder = tmp_path / "unpacked"
    folder.mkdir()
    process.run(["tar", "xf", sdist, "-C", folder, "--strip-components=1"])
    command: list[str | Path] = ["-m", "build", "--installer", "uv", "--wheel", "-o", tmp_path / "out", folder]
    done = front_end(user, sys.executable, *command, **changes)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "No module named" not in said
    (wheel,) = (tmp_path / "out").glob("*.whl")
    user.install(wheel)
    assert variants(user) == ["torch2.8_cpu_cxx11_x86_64", "torch2.9_cpu_cxx11_x86_64"]


@pytest.mark.parametrize(
    ("line", "installs"),
    [
        ("/venv/bin/python -m pip install .", True),
        ("/venv/bin/python /venv/bin/pip3 --verbose install -r requirements.txt", True),
        ("/venv/bin/python3.11 -m pip wheel -w out .", False),
        ("uv pip install my-pkg", True),
        ("uv sync", True),
        ("uv run --with my-pkg python", True),
        ("uvx my-pkg", True),
        ("uv build --wheel", False),
        ("/usr/bin/python /usr/bin/poetry install", True),
        ("/usr/bin/python /usr/bin/poetry build", False),
        ("/usr/bin/python -m build --wheel", False),
        ("/usr/bin/python -m hatch build", False),
        ("/usr/bin/python /usr/bin/cibuildwheel", False),
        ("bash", False),
    ],
)
def test_which_front_ends_install(line: str, *, installs: bool) -> None:
    """What is built to be given on has the whole matrix, whoever asks."""
    of = Parent(arguments=tuple(line.split()), environ={}, folder=Path("/"))
    assert environments.installs(of) is installs


@pytest.mark.parametrize(
    ("line", "keeps_one"),
    [
        ("/venv/bin/python3.11 -m pip wheel -w out .", True),
        ("/venv/bin/python /venv/bin/pip3 wheel .", True),
        ("uv build --wheel", False),
        ("/usr/bin/python -m build --wheel", False),
    ],
)
def test_which_front_ends_keep_one_wheel(line: str, *, keeps_one: bool) -> None:
    """Of a matrix of two machines, pip keeps only the wheel of this one: a warning says so."""
    of = Parent(arguments=tuple(line.split()), environ={}, folder=Path("/"))
    assert environments.keeps_one_wheel(of) is keeps_one
