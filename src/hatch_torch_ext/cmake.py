"""Configure, build and install one entry's CMake project -> ``InstallTree``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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
