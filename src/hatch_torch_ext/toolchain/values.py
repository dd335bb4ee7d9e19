"""The values of the toolchain: what was found, and what CMake is told of it."""

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
    """What kernels are compiled for, sorted."""
    archs_source: str = ""
    """Where ``archs`` come from, in words for messages."""
    flags: tuple[str, ...] = ()
    """nvcc's arguments besides those of the architectures (compression)."""
    newer_minor: bool = False
    """nvcc is newer than torch's CUDA, of one major: the audit must find every runtime symbol in torch's runtime."""

    def described(self) -> tuple[str, str]:
        """Return the two sentences about the toolkit that the user is told where CMake uses it."""
        listed = " ".join(arch.name for arch in self.archs)
        return (
            f"nvcc {self.nvcc.version} from {self.source} ({self.root})",
            f"CUDA architectures {listed}, from {self.archs_source}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Another machine that is compiled for: the C compiler, where there is one, and how compilers are called.

    ``flags`` go before all others (``--target=aarch64-linux-gnu``); ``emulator`` runs that machine's programs here.
    """

    machine: str
    cc: Path | None = None
    flags: tuple[str, ...] = ()
    sysroot: Path | None = None
    libraries: Path | None = None
    """Without a sysroot, the folder whose ``lib`` and ``include`` are that machine's, where the compiler has one."""
    emulator: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    """Of the process's ``CXXFLAGS`` and the like, those that hold flags for this processor: without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerCache:
    """The program that goes before every compiler call; one that is not a cache of compiled files may be named, too.

    ``folder`` and ``size`` (bytes) are those of our own ccache; a program of the user's keeps its own settings.
    """

    program: Path
    folder: Path | None = None
    size: int = 0

    @property
    def ccache(self) -> bool:
        """Whether it is ccache, which is told of folders."""
        return self.program.name == "ccache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Everything that turns sources into an install tree. ``cache`` goes before every compiler call.

    Without a toolkit that fits, ``cuda`` is None and ``cuda_problem`` says why and what to do. That is no error as long
    as CMake asks for no CUDA: an extension without CUDA sources needs no toolkit, whatever torch it is built for.
    """

    cmake: Tool
    ninja: Tool
    cxx: Tool
    cuda: CudaToolkit | None = None
    cuda_problem: str | None = None
    cache: CompilerCache | None = None
    patchelf: Tool | None = None
    strip: Path | None = None
    objcopy: Path | None = None
    target: Target | None = None
    """What is compiled for, where that is another machine than this one."""
