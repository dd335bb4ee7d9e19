"""A Python to compile for, and a hatch environment that exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Facts of a Python to compile for, as it reports them; for another machine's Python they are derived.

    ``tag`` is the CPython tag with its ABI flags (``cp311``, ``cp313t``); ``ext_suffix`` is that of its extension
    modules; ``machine`` is ``platform.machine()``; ``include`` is the folder of ``Python.h``.
    """

    version: str
    tag: str
    ext_suffix: str
    machine: str
    include: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A hatch environment that exists: ``prefix`` is its folder, ``python`` its interpreter.

    ``bin`` is the folder of its programs and ``site_packages`` that of its packages (purelib). ``removal`` is the
    command that removes it, so that the next build makes it again. With ``cross`` its ``interpreter`` is that of
    another machine, for which ``python`` stands in: what is compiled does not run here.
    """

    prefix: Path
    python: Path
    bin: Path
    site_packages: Path
    interpreter: Interpreter
    removal: str = ""
    cross: bool = False
    modules: bool = True
    """Whether modules can be compiled: the headers of another machine's Python may be missing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFolders:
    """A torch that is installed in the Python of a build: its folder, and the folders ``nvidia`` of that Python."""

    environment: Environment
    torch: Path
    nvidia: tuple[Path, ...]
