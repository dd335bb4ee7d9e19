"""One entry's build: the inputs of all its steps, the places of its files, and what it installs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values.entry import Entry
    from hatch_torch_ext.values.environment import Environment
    from hatch_torch_ext.values.sdk import Sdk
    from hatch_torch_ext.values.toolchain import Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The build of ``entry`` in ``folder``, the entry's work folder."""

    entry: Entry
    config: Config
    environment: Environment
    sdk: Sdk
    toolchain: Toolchain
    folder: Path

    @property
    def build(self) -> Path:
        """Return CMake's build folder."""
        return self.folder / "build"

    @property
    def prefix(self) -> Path:
        """Return the install prefix."""
        return self.folder / "install"

    @property
    def log(self) -> Path:
        """Return the file to which every command and its output is written."""
        return self.folder / "log.txt"

    @property
    def package(self) -> Path:
        """Return the folder of our CMake package for this entry."""
        return self.folder / "cmake"

    @property
    def torch(self) -> Path:
        """Return a folder with the SDK's ``include``, ``lib`` and ``share``, wherever those of the SDK lie.

        Relative to the build folder its path is the same in every entry, so a compiler cache sees the same paths.
        """
        return self.folder / "torch"

    @property
    def upstream(self) -> bool:
        """Return whether find_package(Torch) is left to torch's own CMake files."""
        return self.config.cmake.torch_package == "upstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallTree:
    """What ``cmake --install`` left in ``prefix``: relative POSIX paths of its files and links, sorted.

    ``compiler`` describes the C++ compiler as CMake saw it (``GNU 12.2.0``), ``cuda_compiler`` likewise, or None;
    ``flags`` are the effective C++ and CUDA flags of the targets (CMake File API), for the manifest;
    ``build_dirs`` are the absolute paths that must not appear inside a file of the wheel.
    """

    prefix: Path
    files: tuple[str, ...]
    log: Path
    compiler: str
    cuda_compiler: str | None = None
    flags: tuple[tuple[str, str], ...] = ()
    build_dirs: tuple[Path, ...] = ()
