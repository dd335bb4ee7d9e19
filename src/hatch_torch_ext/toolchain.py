"""CMake, Ninja, the C++ compiler, nvcc and patchelf of one entry: found, checked, described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program: its absolute path and the version that it reports."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaToolkit:
    """A CUDA toolkit: ``root`` has ``bin/nvcc``, ``include`` and ``lib64``; ``version`` is nvcc's (``13.0``)."""

    root: Path
    nvcc: Tool
    version: str
    source: str
    """Where it came from, in words for messages (``the entry's environment``, ``CUDA_HOME`` …)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Everything that turns sources into an install tree. ``launcher`` goes before every compiler call."""

    cmake: Tool
    ninja: Tool
    cxx: Tool
    cuda: CudaToolkit | None = None
    launcher: Path | None = None
