"""Which uv is run: one place decides, for everything that runs it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
import uv as package

import hatch_torch_ext
from hatch_torch_ext.base import process, uv
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError

SOURCES = Path(hatch_torch_ext.__file__).parent


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    """Return a program that writes down that it was run, and runs uv."""
    program = tmp_path / "bin" / "my-uv"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/runs\nexec {package.find_uv_bin()} "$@"\n')
    program.chmod(0o755)
    return program


def test_the_variable_names_it(wrapper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its path, from any folder, or by a name that PATH has; an empty variable is none."""
    monkeypatch.setenv("HATCH_UV", str(wrapper))
    assert uv.find() == str(wrapper)
    monkeypatch.chdir(wrapper.parent)
    monkeypatch.setenv("HATCH_UV", "./my-uv")
    assert uv.find() == str(wrapper)
    monkeypatch.setenv("HATCH_UV", "my-uv")
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=os.pathsep)
    assert uv.find() == str(wrapper)
    monkeypatch.setenv("HATCH_UV", "")
    assert uv.find() == package.find_uv_bin()


@pytest.mark.performs("set it to uv's path, or unset it")
def test_a_name_that_is_not_a_program(wrapper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable, not a command that cannot be started; both of its remedies help."""
    monkeypatch.setenv("HATCH_UV", "/nowhere/uv")
    with pytest.raises(ConfigurationError, match="HATCH_UV is `/nowhere/uv`, which is not a program: set it to uv's"):
        uv.find()
    monkeypatch.setenv("HATCH_UV", str(wrapper))
    assert uv.find() == str(wrapper)
    monkeypatch.delenv("HATCH_UV")
    assert uv.find() == package.find_uv_bin()


@pytest.mark.performs("pip install uv, or set {} to")
def test_without_any_uv(wrapper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is not installed: the uv that started this process, then that of PATH, then an error."""
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.delenv("HATCH_UV", raising=False)
    monkeypatch.setenv("UV", str(wrapper))
    monkeypatch.setenv("PATH", str(wrapper.parent))
    assert uv.installed() == str(wrapper)
    monkeypatch.setenv("UV", "/nowhere")
    assert uv.installed() is None
    shutil.copy(wrapper, wrapper.with_name("uv"))
    assert uv.find() == str(wrapper.with_name("uv"))
    wrapper.with_name("uv").unlink()
    with pytest.raises(ConfigurationError, match="uv is not installed: pip install uv, or set HATCH_UV to its path"):
        uv.find()
    monkeypatch.setenv("HATCH_UV", str(wrapper))
    assert uv.find() == str(wrapper)
    monkeypatch.delitem(sys.modules, "uv")
    monkeypatch.delenv("HATCH_UV")
    assert uv.find() == package.find_uv_bin()


def test_packages_in_a_folder(wrapper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are installed by that uv, and their files are read-only."""
    monkeypatch.setenv("HATCH_UV", str(wrapper))
    project = tmp_path / "project"
    (project / "thing").mkdir(parents=True)
    (project / "thing" / "__init__.py").write_text("value = 1\n")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "thing"\nversion = "1"\n'
    )
    made = tmp_path / "made"
    made.mkdir()
    uv.install_into(made, [str(project)], changes={}, options=("--no-deps", "--no-build-isolation"))
    assert "--target" in (tmp_path / "runs").read_text()
    assert (made / "thing" / "__init__.py").stat().st_mode & 0o777 == 0o444
    assert process.run([sys.executable, "-c", "import thing; print(thing.value)"], cwd=made).stdout == "1\n"


def test_packages_without_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No index is searched, whatever the variables name."""
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ProcessError) as caught:
        uv.install_into(tmp_path, ["thing"], changes={"UV_FIND_LINKS": str(tmp_path)}, without_index=True)
    assert "not found in the provided package locations" in " ".join(caught.value.output.split())


def test_nothing_else_looks_for_it() -> None:
    """No other module names the variable, or imports the package."""
    words = ("HATCH_UV", "find_uv_bin", "import uv\n", 'which("uv")')
    naming = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if any(word in path.read_text(encoding="utf-8").replace("base import uv", "") for word in words)
    }
    assert naming == {"base/uv.py"}
