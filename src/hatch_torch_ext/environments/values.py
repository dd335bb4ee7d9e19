"""The values of hatch's environments: what a matrix says, and an environment that was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Facts of a Python that is compiled for: as it reports them itself, but for that of another machine.

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

    ``bin`` is where its programs lie and ``site_packages`` where its packages are (purelib). ``removal`` is the command
    that removes it, so that the next build makes it again. With ``cross`` its ``interpreter`` is that of another
    machine, which ``python`` stands in for: what is compiled does not run here.
    """

    prefix: Path
    python: Path
    bin: Path
    site_packages: Path
    interpreter: Interpreter
    removal: str = ""
    cross: bool = False
    modules: bool = True
    """Whether modules can be compiled: another machine's Python may lack its headers here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A torch that is installed where a build is for it: its folder, and the folders ``nvidia`` of that Python."""

    environment: Environment
    torch: Path
    nvidia: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """What hatch says of one environment and its matrix, entry names in hatch's order.

    ``variables`` are the matrix's, ``dependencies`` resolved for each entry, ``pythons`` what each asks for,
    ``env_vars`` the environment variables that each sets.
    """

    variables: Mapping[str, Mapping[str, str]]
    dependencies: Mapping[str, tuple[str, ...]]
    pythons: Mapping[str, str | None]
    env_vars: Mapping[str, tuple[tuple[str, str], ...]]
