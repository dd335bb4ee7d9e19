"""Another machine: the headers of its Python, for which modules are compiled; and environments that qemu runs.

Of an environment with another machine's Python, ``python`` is a script, so callers need not know. A virtual environment
is identified by the path of its ``python``, which qemu passes on: installers run that Python to learn what it is, and
take wheels for its machine.
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
    from hatch_torch_ext.values import Environment, Interpreter


def for_machine(environment: Environment, machine: str | None, cross: Cross | None, *, data: Path) -> Environment:
    """Return ``environment`` for compiling for ``machine`` (None: this one); ``cross`` are the author's options for it.

    If its Python's headers are missing, a stand-in ``Python.h`` is written below ``data``; its ``#error`` names the
    package to install.
    """
    here = environment.interpreter
    if machine is None or machine == here.machine:
        return environment
    major, minor = here.version.split(".")[:2]
    name = f"python{major}.{minor}{'t' if here.tag.endswith('t') else ''}"
    include = headers(name, machine, cross, data=data)
    there = replace(
        here,
        machine=machine,
        ext_suffix=f".cpython-{here.tag.removeprefix('cp')}-{machine}-linux-gnu.so",
        include=include if include is not None else _stand_in(name, here, machine, _named(name, cross), data),
    )
    return replace(environment, interpreter=there, cross=True, modules=include is not None)


def headers(name: str, machine: str, cross: Cross | None, *, data: Path) -> Path | None:
    """Return the folder of ``Python.h`` of the Python ``name`` (``python3.11``) for ``machine``, or None.

    Debian keeps the ``pyconfig.h`` of each machine apart from the shared headers: they are joined below ``data``. A
    folder with a single ``pyconfig.h`` counts as that machine's only if the author named the folder.
    """
    for root, named in _roots(name, cross):
        for place in (root / "usr" / "include" / name, root / "include" / name):
            own = place.parent / f"{machine}-linux-gnu" / name / "pyconfig.h"
            if not (place / "Python.h").is_file():
                continue
            if own.is_file():
                return _joined(place, own, data / "environments" / f"{name}-{machine}")
            if named and (place / "pyconfig.h").is_file() and not _chooses(place / "pyconfig.h"):
                return place
    return None


def _roots(name: str, cross: Cross | None) -> Iterator[tuple[Path, bool]]:
    """Yield the folders to search, and whether the author named them."""
    if (folder := _named(name, cross)) is not None:
        yield folder, True
    if cross is not None and cross.sysroot is not None:
        yield Path(cross.sysroot), True
    yield Path("/"), False


def _named(name: str, cross: Cross | None) -> Path | None:
    """Return the folder that the option `cross.<machine>.python` names for that Python, or None."""
    if cross is None or cross.python is None:
        return None
    return Path(cross.python.replace("{python}", name.removeprefix("python")))


def _chooses(pyconfig: Path) -> bool:
    """Return whether it is Debian's, which includes that of the machine, depending on macros."""
    return (
        re.search(r"include\s*<[\w.-]+-linux-gnu/", pyconfig.read_text(encoding="utf-8", errors="replace")) is not None
    )


def _joined(place: Path, pyconfig: Path, folder: Path) -> Path:
    """Copy the headers of ``place``, with ``pyconfig``, into a folder of that name.

    Links would not do, as compilers resolve them.
    """
    content = [str(place).encode(), pyconfig.read_bytes(), (place / "patchlevel.h").read_bytes()]
    made = folder.with_name(f"{folder.name}-{hashlib.sha256(bytes(1).join(content)).hexdigest()[:12]}")
    if not made.is_dir():
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
            new = Path(scratch) / made.name
            shutil.copytree(place, new)
            shutil.copyfile(pyconfig, new / "pyconfig.h")
            with contextlib.suppress(OSError):  # another entry made it at the same time
                new.rename(made)
    return made


def _stand_in(name: str, here: Interpreter, machine: str, named: Path | None, data: Path) -> Path:
    """Return a folder whose ``Python.h`` stops compiling with the remedy; CMake finds a Python there nevertheless.

    ``named`` is the folder that the option `cross.<machine>.python` names, which has none of them.
    """
    folder = data / "environments" / f"{name}-{machine}-missing"
    folder.mkdir(parents=True, exist_ok=True)
    debian = f"lib{name}-dev:{DEBIAN[machine]}"
    missing = f"The headers of Python {name.removeprefix('python')} for {machine} are not"
    if named is None:
        message = (
            f"{missing} here: install {debian} (Debian, Ubuntu), or unpack it with `dpkg -x` and name the folder by "
            f"the option cross.{machine}.python"
        )
    else:
        message = (
            f"{missing} in {named}, which the option cross.{machine}.python names (include/{name}/Python.h below it, "
            f"or usr/include/{name}/Python.h): name the folder into which {debian} was unpacked"
        )
    atomic.update(folder / "Python.h", f"#error {message}\n")
    atomic.update(folder / "patchlevel.h", f'#define PY_VERSION "{here.version}"\n')
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
            f"no Python for {machine} is configured: set the option `cross.{machine}.python` to the folder of one, "
            "with its interpreter"
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
