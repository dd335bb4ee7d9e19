"""Other machines: the headers of their Python, with which modules are compiled, and environments that qemu runs.

In such an environment ``python`` is a script that starts the other machine's Python by qemu. Python identifies a
virtual environment by the path of its ``python``, which qemu passes on. So installers that run ``python`` learn its
machine, and install wheels for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import atomic, process
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.facts.labels import DEBIAN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.config import Cross
    from hatch_torch_ext.values import Environment


def for_machine(environment: Environment, cross: Cross, *, data: Path) -> Environment:
    """Return ``environment`` for compiling for the machine of ``cross``, the author's options for it.

    If the headers of its Python are missing, a substitute ``Python.h`` is written below ``data``; its ``#error`` names
    the package to install.
    """
    here, machine = environment.interpreter, cross.machine
    if machine == here.machine:
        return environment
    major, minor = here.version.split(".")[:2]
    name = f"python{major}.{minor}{'t' if here.tag.endswith('t') else ''}"
    include = headers(name, cross, data=data)
    interpreter = replace(
        here,
        machine=machine,
        ext_suffix=f".cpython-{here.tag.removeprefix('cp')}-{machine}-linux-gnu.so",
        include=include if include is not None else _substitute_headers(name, here.version, cross, data=data),
    )
    return replace(environment, interpreter=interpreter, cross=True, modules=include is not None)


def headers(name: str, cross: Cross, *, data: Path) -> Path | None:
    """Return the folder of ``Python.h`` of the Python ``name`` (``python3.11``) for the machine, or None.

    Debian keeps the ``pyconfig.h`` of each machine apart from the shared headers: they are joined below ``data``. A
    folder with a single ``pyconfig.h`` counts as that machine's only if the author named the folder.
    """
    for root, named in _roots(name, cross):
        for folder in (root / "usr" / "include" / name, root / "include" / name):
            pyconfig = folder.parent / f"{cross.machine}-linux-gnu" / name / "pyconfig.h"
            if not (folder / "Python.h").is_file():
                continue
            if pyconfig.is_file():
                return _join_headers(folder, pyconfig, data / "environments" / f"{name}-{cross.machine}")
            if named and (folder / "pyconfig.h").is_file() and not _is_for_several(folder / "pyconfig.h"):
                return folder
    return None


def _roots(name: str, cross: Cross) -> Iterator[tuple[Path, bool]]:
    """Yield the folders to search, and whether the author named them."""
    if (folder := _named_folder(name, cross)) is not None:
        yield folder, True
    if cross.sysroot is not None:
        yield Path(cross.sysroot), True
    yield Path("/"), False


def _named_folder(name: str, cross: Cross) -> Path | None:
    """Return the folder that the option `cross.<machine>.python` names for that Python, or None."""
    if cross.python is None:
        return None
    return Path(cross.python.replace("{python}", name.removeprefix("python")))


def _is_for_several(pyconfig: Path) -> bool:
    """Return whether it is Debian's, which includes that of one machine or another, depending on macros."""
    return (
        re.search(r"include\s*<[\w.-]+-linux-gnu/", pyconfig.read_text(encoding="utf-8", errors="replace")) is not None
    )


def _join_headers(folder: Path, pyconfig: Path, target: Path) -> Path:
    """Copy the headers in ``folder``, with ``pyconfig``, into a folder called ``target`` with a hash; return it.

    They are not linked: compilers resolve links.
    """
    content = [str(folder).encode(), pyconfig.read_bytes(), (folder / "patchlevel.h").read_bytes()]
    joined = target.with_name(f"{target.name}-{hashlib.sha256(bytes(1).join(content)).hexdigest()[:12]}")
    if not joined.is_dir():
        joined.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=joined.parent) as scratch:
            new = Path(scratch) / joined.name
            shutil.copytree(folder, new)
            shutil.copyfile(pyconfig, new / "pyconfig.h")
            with contextlib.suppress(OSError):  # another entry made it at the same time
                new.rename(joined)
    return joined


def _substitute_headers(name: str, version: str, cross: Cross, *, data: Path) -> Path:
    """Return a folder in which CMake finds a Python of ``version``; its ``Python.h`` is an error with the remedy."""
    machine, named = cross.machine, _named_folder(name, cross)
    folder = data / "environments" / f"{name}-{machine}-missing"
    folder.mkdir(parents=True, exist_ok=True)
    debian = f"lib{name}-dev:{DEBIAN[machine]}"
    missing = f"The headers of Python {name.removeprefix('python')} for {machine} are not"
    if named is None:
        message = (
            f"{missing} installed: install {debian} (Debian, Ubuntu), or unpack it with `dpkg -x` and name the folder "
            f"by the option cross.{machine}.python"
        )
    else:
        message = (
            f"{missing} in {named}, which the option cross.{machine}.python names (include/{name}/Python.h below it, "
            f"or usr/include/{name}/Python.h): name the folder into which {debian} was unpacked"
        )
    atomic.update(folder / "Python.h", f"#error {message}\n")
    atomic.update(folder / "patchlevel.h", f'#define PY_VERSION "{version}"\n')
    atomic.update(folder / "pyconfig.h", '#include "Python.h"\n')
    return folder


BINFMT = Path("/proc/sys/fs/binfmt_misc")
"""Where the kernel states which interpreter (binfmt_misc) runs programs of other machines."""
TIMEOUT = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """A Python of another machine: ``qemu`` runs it, with the C library below ``libraries``."""

    qemu: Path
    libraries: Path
    python: Path


def find(version: str, cross: Cross) -> Emulated:
    """Return what runs Python ``version`` (``3.11``) of the machine of ``cross``.

    Raises ``ConfigurationError`` if something is missing.
    """
    machine = cross.machine
    problems: list[str] = []
    qemu = _qemu(machine)
    if qemu is None:
        problems.append(
            f"qemu for {machine} is not installed: `apt-get install qemu-user-static` (Debian, Ubuntu) or `dnf "
            "install qemu-user-static` (Fedora)"
        )
    root = _named_folder(f"python{version}", cross)
    python = next(filter(Path.is_file, _pythons(root, version)), None) if root is not None else None
    if root is None:
        problems.append(
            f"no Python for {machine} is configured: set the option `cross.{machine}.python` to the folder of one, "
            "with its interpreter"
        )
    elif python is None:
        problems.append(f"the option `cross.{machine}.python` names {root}, which has no `bin/python{version}`")
    libraries = next(filter(_has_linker, _libraries(root, cross)), None)
    if python is not None and libraries is None:
        problems.append(
            f"there is no C library of {machine}, with which Python runs: `apt-get install "
            f"libstdc++6-{DEBIAN.get(machine, machine)}-cross` (Debian, Ubuntu), or name a sysroot by the option "
            f"`cross.{machine}.sysroot`"
        )
    if qemu is None or python is None or libraries is None:
        raise ConfigurationError(*problems)
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
    run = shlex.join(map(str, [emulated.qemu, "-L", emulated.libraries]))
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
        raise ConfigurationError(f"{emulated.python} does not run by {run}:\n{error.words.strip()}") from error


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


def _libraries(root: Path | None, cross: Cross) -> Iterator[Path]:
    if root is not None:
        yield root
    if cross.sysroot is not None:
        yield Path(cross.sysroot)
    yield Path(f"/usr/{cross.machine}-linux-gnu")


def _has_linker(root: Path) -> bool:
    """Return whether the dynamic linker, which every program names by an absolute path, is below ``root``."""
    return any(path.exists() for folder in ("lib", "lib64") for path in (root / folder).glob("ld-linux-*.so.*"))
