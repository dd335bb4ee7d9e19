"""Environments with another machine's Python, run by qemu; their ``python`` is a script, so callers need not know.

A virtual environment is identified by the path of its ``python``, which qemu passes on: installers run that Python to
learn what it is, and take wheels for its machine.
"""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.facts.labels import DEBIAN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.config import Cross

BINFMT = Path("/proc/sys/fs/binfmt_misc")
"""Where the kernel states which interpreter (binfmt_misc) runs programs of other machines."""
TIMEOUT = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """A Python of another machine: ``qemu`` runs it, with the C library below ``libraries``."""

    qemu: Path
    libraries: Path
    python: Path


def find(machine: str, version: str, cross: Cross | None) -> Emulated:
    """Return what runs Python ``version`` (``3.11``) of ``machine``.

    Raises ``ConfigurationError`` if something is missing.
    """
    problems = []
    qemu = _qemu(machine)
    if qemu is None:
        problems.append(
            f"qemu for {machine} is not here: `apt-get install qemu-user-static` (Debian, Ubuntu) or `dnf install "
            "qemu-user-static` (Fedora)"
        )
    root = cross.python.replace("{python}", version) if cross is not None and cross.python is not None else None
    python = next(filter(Path.is_file, _pythons(Path(root), version)), None) if root is not None else None
    if root is None:
        problems.append(
            f"no Python of {machine} is named: put the folder of one, with its interpreter, into the option "
            f"`cross.{machine}.python`"
        )
    elif python is None:
        problems.append(f"the option `cross.{machine}.python` names {root}, which has no `bin/python{version}`")
    libraries = next(filter(_has_linker, _libraries(machine, root, cross)), None)
    if python is not None and libraries is None:
        problems.append(
            f"there is no C library of {machine} to run Python with: `apt-get install "
            f"libstdc++6-{DEBIAN.get(machine, machine)}-cross` (Debian, Ubuntu), or name a sysroot by the option "
            f"`cross.{machine}.sysroot`"
        )
    if qemu is None or python is None or libraries is None:
        raise ConfigurationError(problems)
    return Emulated(qemu=qemu, libraries=libraries, python=python)


def make(folder: Path, emulated: Emulated, version: str) -> None:
    """Make a virtual environment of ``emulated`` in ``folder``, and check that it runs. Raises ``ProcessError``."""
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    (folder / "lib" / f"python{version}" / "site-packages").mkdir(parents=True, exist_ok=True)
    (folder / "pyvenv.cfg").write_text(
        f"home = {emulated.python.parent}\ninclude-system-site-packages = false\nversion = {version}\n",
        encoding="utf-8",
    )
    words = [emulated.qemu, "-L", emulated.libraries]
    run = shlex.join(map(str, words))
    python = programs / "python"
    python.write_text(f'#!/bin/sh\nexec {run} -0 "$0" {shlex.quote(str(emulated.python))} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    for name in ("python3", f"python{version}"):
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to("python")
    try:
        process.run([python, "-I", "-c", "import sys, ssl; sys.exit(sys.prefix == sys.base_prefix)"], timeout=TIMEOUT)
    except ProcessError as error:
        shutil.rmtree(folder)
        raise ConfigurationError(
            [f"{emulated.python} does not run by {run}:\n{error.output.strip() or error}"]
        ) from error


def _qemu(machine: str) -> Path | None:
    for name in (f"qemu-{machine}", f"qemu-{machine}-static"):
        if (path := shutil.which(name)) is not None:
            return Path(path)
    try:
        registration = (BINFMT / f"qemu-{machine}").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"^interpreter (\S+)$", registration, re.MULTILINE)
    return Path(match[1]) if match and Path(match[1]).is_file() else None


def _pythons(root: Path, version: str) -> Iterator[Path]:
    yield from (root / folder / "bin" / f"python{version}" for folder in ("usr", "usr/local", "."))


def _libraries(machine: str, root: str | None, cross: Cross | None) -> Iterator[Path]:
    if root is not None:
        yield Path(root)
    if cross is not None and cross.sysroot is not None:
        yield Path(cross.sysroot)
    yield Path(f"/usr/{machine}-linux-gnu")


def _has_linker(root: Path) -> bool:
    """Return whether the dynamic linker, which every program names by an absolute path, is below ``root``."""
    return any(path.exists() for folder in ("lib", "lib64") for path in (root / folder).glob("ld-linux-*.so.*"))
