"""An isolated build installs little, and hatch is made once and kept: real uv, real hatch."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import uv

from hatch_torch_ext import cli
from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.environments import program
from hatch_torch_ext.hooks import requirements

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from pathlib import Path


@pytest.fixture
def without_hatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hatch and rich seem to be missing, as they are in an isolated build."""
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in {"hatch", "rich"} else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)


def count(wheelhouse: Path, folder: Path, *requirements: str) -> int:
    """Return how many packages an isolated build that requires these installs."""
    (folder / "requirements.txt").write_text("\n".join(requirements), encoding="utf-8")
    options = ["--quiet", "--no-annotate", "--no-header", "--find-links", str(wheelhouse), "--python", sys.executable]
    done = process.run([uv.find_uv_bin(), "pip", "compile", *options, "requirements.txt"], cwd=folder)
    return len([line for line in done.stdout.splitlines() if "==" in line])


def test_how_many_packages_are_installed(wheelhouse: Path, tmp_path: Path) -> None:
    """At most 8 for metadata and an sdist (and tomli on Python 3.10), at most 22 for a wheel."""
    old = sys.version_info < (3, 11)
    assert count(wheelhouse, tmp_path, "hatchling", "hatch-torch-ext") <= 8 + old
    assert count(wheelhouse, tmp_path, "hatchling", "hatch-torch-ext", *requirements.of_a_wheel()) <= 22 + old


@pytest.mark.usefixtures("without_hatch")
def test_hatch_is_made_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs from its folder, and a second time nothing is installed."""
    kept = program.folder()
    assert kept is not None
    assert kept.parent.parent == tmp_path / "store"
    assert list(kept.parent.iterdir()) == [kept]
    output = program.run(["--version"], cwd=tmp_path, changes={}).stdout
    assert output.split()[-1] == program.version()
    monkeypatch.setattr(program, "_fill", None)
    assert program.folder() == kept
    assert cli.main(["sdk", "list"]) == 0
    assert f"MB  hatch {program.version()}\n" in capsys.readouterr().out
    monkeypatch.setattr(sys, "path", list(sys.path))
    program.make_rich_importable()
    assert sys.path[-1] == str(kept)
    assert (kept / "rich").is_dir()


@pytest.mark.usefixtures("without_hatch")
def test_a_kept_hatch_that_was_changed_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is run by every build: what was written into it afterwards, by whomever, makes it be made again."""

    def fill(made: Path) -> dict[str, object]:
        (made / "hatch.py").write_text("good")
        return {"title": "hatch"}

    monkeypatch.setattr(program, "_fill", fill)
    kept = program.folder()
    assert kept is not None
    (kept / "hatch.py").write_text("evil")
    assert program.folder() == kept
    assert (kept / "hatch.py").read_text() == "good"


@pytest.mark.usefixtures("without_hatch")
def test_who_waits_for_the_kept_hatch_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While metadata are made, too, where hatchling gives a hook no way to speak: stderr names the other process."""
    begun, go_on = threading.Event(), threading.Event()

    def fill(made: Path) -> dict[str, object]:
        begun.set()
        go_on.wait(30)
        (made / "hatch.py").write_text("")
        return {"title": "hatch"}

    monkeypatch.setattr(program, "_fill", fill)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(program.folder)
        assert begun.wait(30)
        second = pool.submit(program.folder)
        output = ""
        while not output and not second.done():
            time.sleep(0.01)
            output = capsys.readouterr().err
        go_on.set()
        assert first.result() == second.result()
    assert output.startswith("torch-ext: waiting for hatch ")
    assert f"which process {os.getpid()} (" in output


@pytest.mark.usefixtures("without_hatch")
def test_where_hatch_cannot_be_had_the_remedy_is_to_require_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error contains uv's message; with hatch in the build's environment, no other copy is installed."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ConfigurationError) as caught:
        program.folder()
    assert "cannot be installed into" in str(caught.value)
    remedy = 'Add it to the requirements of the build: `requires = ["hatchling", "hatch-torch-ext", "hatch"]`'
    assert remedy in str(caught.value)
    assert not (tmp_path / "store" / "hatch").exists()
    assert {"hatch>=1.14", "rich>=13.0"} <= set(requirements.of_a_wheel())
    monkeypatch.undo()
    assert program.folder() is None
