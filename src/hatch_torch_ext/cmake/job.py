"""One entry's build: the inputs of all its steps, and the places of its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.environments import Environment
    from hatch_torch_ext.matrix import Entry
    from hatch_torch_ext.sdk import Sdk
    from hatch_torch_ext.toolchain import Toolchain


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
