"""A new package is green at once: built for one release, installed beside torch, its own tests passing."""

from __future__ import annotations

import itertools
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import cli, process
from hatch_torch_ext.errors import ConfigurationError
from hatch_torch_ext.init import fresh
from hatch_torch_ext.init.fresh import Choices

if TYPE_CHECKING:
    from pathlib import Path

COMBINATIONS = [
    Choices(cuda=cuda, module=module, stable=stable, jit=jit)
    for cuda, module, stable, jit in itertools.product((False, True), repeat=4)
]


def named(choices: Choices) -> str:
    """Return the options of a combination as a test's name."""
    chosen = [name for name in ("cuda", "module", "stable", "jit") if getattr(choices, name)]
    return "-".join(chosen) or "plain"


@pytest.mark.parametrize("choices", COMBINATIONS, ids=named)
def test_every_combination_has_a_matrix_that_resolves(choices: Choices, tmp_path: Path) -> None:
    """Each is a whole project: hatch reads its matrix, and our configuration has no fault."""
    fresh.create("my-ops", tmp_path, choices)
    done = process.run(
        [sys.executable, "-m", "hatch_torch_ext", "matrix", "--json"], cwd=tmp_path / "my-ops", check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"selected": true') >= (2 if choices.cuda else 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices",
    [Choices(stable=True, jit=True), Choices(module=True)],
    ids=["the stable ABI", "an operator and a module"],
)
def test_it_is_green_at_once(choices: Choices, torch_cpu_python: Path, tmp_path: Path) -> None:
    """`hatch build`, then the package's own tests in the wheel, beside torch 2.13."""
    fresh.create("my-ops", tmp_path, choices)
    root = tmp_path / "my-ops"
    only = "matrix.*2.13*" if choices.module else "*"
    process.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=root,
        env_changes={"HATCH_TORCH_EXT_ONLY": only},
    )
    (wheel,) = (root / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as zipped:
        assert choices.jit == any(name.endswith("_torch_ext/sources/csrc/ops.cpp") for name in zipped.namelist())
    site = tmp_path / "site"
    process.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, wheel])
    done = subprocess.run(
        [torch_cpu_python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", root / "tests"],
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["", "9lives", "a b", "class", "torch", "json", "../up", "-x"])
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    """Nothing is written for them."""
    with pytest.raises(ConfigurationError):
        fresh.create(name, tmp_path, Choices())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of it is replaced; a second call is refused too."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "my-ops"]) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "my-ops").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert cli.main(["init", "my-ops", "--cuda"]) == 1
    assert "has files in it: choose another name" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "my-ops").rglob("*") if path.is_file()} == before
