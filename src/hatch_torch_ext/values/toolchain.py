"""The values of the toolchain: the tools that were found, as CMake is told of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.facts.archs import Arch


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program: its absolute path and the version that it reports."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaToolkit:
    """A CUDA toolkit that fits the entry: ``root`` has ``bin/nvcc`` and headers; ``version`` is nvcc's (``13.0``)."""

    root: Path
    nvcc: Tool
    version: str
    source: str
    """Where it came from, in words for messages (``the entry's environment``, ``CUDA_HOME`` …)."""
    host: Path
    """The C++ compiler that nvcc calls."""
    archs: tuple[Arch, ...] = ()
    """The architectures that kernels are compiled for, sorted."""
    archs_source: str = ""
    """Where ``archs`` come from, in words for messages."""
    flags: tuple[str, ...] = ()
    """nvcc's arguments except those for architectures (compression)."""
    newer_minor: bool = False
    """nvcc is newer than torch's CUDA, of the same major: the audit compares runtime symbols with torch's runtime."""

    def described(self) -> tuple[str, str]:
        """Return the two sentences about the toolkit that the user sees if CMake uses it."""
        listed = " ".join(arch.name for arch in self.archs)
        return (
            f"nvcc {self.nvcc.version} from {self.source} ({self.root})",
            f"CUDA architectures {listed}, from {self.archs_source}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossTarget:
    """Another machine to compile for: the C compiler, if there is one, and how compilers are called.

    ``flags`` go before all others (``--target=aarch64-linux-gnu``); ``emulator`` runs that machine's programs here.
    """

    machine: str
    cc: Path | None = None
    flags: tuple[str, ...] = ()
    sysroot: Path | None = None
    libraries: Path | None = None
    """Without a sysroot, the folder whose ``lib`` and ``include`` are that machine's, if the compiler has one."""
    emulator: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    """The process's ``CXXFLAGS`` and the like without flags for this processor; only variables that had such flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerCache:
    """The compiler launcher; it need not be a compiler cache.

    ``folder`` is that of our own ccache; the user's program keeps its own settings.
    """

    program: Path
    folder: Path | None = None

    @property
    def ccache(self) -> bool:
        """Return whether it is ccache, which gets the folders to map."""
        return self.program.name == "ccache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Everything that turns sources into an install tree; ``cache`` goes before every compiler call.

    Without a toolkit that fits, ``cuda`` is None and ``cuda_problem`` has the reason and the remedy. That is no error
    as long as CMake does not ask for CUDA: an extension without CUDA sources needs no toolkit, whatever torch it is
    built for.
    """

    cmake: Tool
    ninja: Tool
    cxx: Tool
    patchelf: Tool
    cuda: CudaToolkit | None = None
    cuda_problem: str | None = None
    cache: CompilerCache | None = None
    strip: Path | None = None
    objcopy: Path | None = None
    target: CrossTarget | None = None
    """The machine to compile for, if it is not this one."""
