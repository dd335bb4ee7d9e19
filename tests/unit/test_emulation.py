"""Errors for an environment of another machine that cannot be made: everything that is missing, at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.config import Cross
from hatch_torch_ext.environments import machines

if TYPE_CHECKING:
    from pathlib import Path

QEMU = (
    "qemu for aarch64 is not installed: `apt-get install qemu-user-static` (Debian, Ubuntu) or `dnf install "
    "qemu-user-static` (Fedora)"
)
LIBRARIES = (
    "there is no C library of aarch64, with which Python runs: `apt-get install libstdc++6-arm64-cross` (Debian, "
    "Ubuntu), or name a sysroot by the option `cross.aarch64.sysroot`"
)


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take qemu, binfmt and Debian's cross libraries away."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(machines, "BINFMT", tmp_path)
    found = machines._has_linker  # the system's own cross libraries do not belong to the test
    monkeypatch.setattr(machines, "_has_linker", lambda root: root.is_relative_to(tmp_path) and found(root))


def problems(cross: Cross) -> list[str]:
    """Return what lacks to run Python 3.11 of aarch64."""
    with pytest.raises(ConfigurationError) as caught:
        machines.find("3.11", cross)
    return list(caught.value.problems)


def program(path: Path) -> None:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def test_nothing_is_there() -> None:
    """The program and the Python are named together, with what installs the one and the option for the other."""
    python = (
        "no Python for aarch64 is configured: set the option `cross.aarch64.python` to the folder of one, with its "
        "interpreter"
    )
    assert problems(Cross(machine="aarch64")) == [QEMU, python]


def test_the_folder_has_no_python(tmp_path: Path) -> None:
    """The option is named, with the folder that it gives for this version."""
    cross = Cross(machine="aarch64", python=f"{tmp_path}/python{{python}}")
    assert problems(cross) == [
        QEMU,
        f"the option `cross.aarch64.python` names {tmp_path}/python3.11, which has no `bin/python3.11`",
    ]


@pytest.mark.performs("or name a sysroot by the option")
def test_the_c_library_is_missing(tmp_path: Path) -> None:
    """Python needs its C library, which may be beside it, in the sysroot, or in Debian's folder."""
    program(tmp_path / "root" / "usr" / "bin" / "python3.11")
    program(tmp_path / "bin" / "qemu-aarch64")
    cross = Cross(machine="aarch64", python=str(tmp_path / "root"))
    assert problems(cross) == [LIBRARIES]
    (tmp_path / "sysroot" / "lib").mkdir(parents=True)
    (tmp_path / "sysroot" / "lib" / "ld-linux-aarch64.so.1").touch()
    found = machines.find("3.11", replace(cross, sysroot=str(tmp_path / "sysroot")))
    assert (found.qemu, found.libraries) == (tmp_path / "bin" / "qemu-aarch64", tmp_path / "sysroot")


def test_qemu_is_what_the_kernel_runs_such_programs_by(tmp_path: Path) -> None:
    """Binfmt names the program, wherever it is."""
    program(tmp_path / "elsewhere" / "qemu")
    (tmp_path / "qemu-aarch64").write_text(f"enabled\ninterpreter {tmp_path}/elsewhere/qemu\nflags: OCF\n")
    assert QEMU not in problems(Cross(machine="aarch64"))
