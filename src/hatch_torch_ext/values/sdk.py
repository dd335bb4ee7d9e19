"""The torch SDK of an entry: what compiling and linking needs of one build of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hatch_torch_ext.facts.backend import Backend

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdk:
    """Facts of one torch build, all read from that build.

    ``version`` is ``torch.__version__`` (``2.8.0+cu128``); ``cuda``/``hip`` are ``torch.version.cuda/hip``;
    ``cxx11_abi`` is ``torch._C._GLIBCXX_USE_CXX11_ABI``; ``cxx_standard`` is the standard that the release's own CMake
    files require of extensions (17, 20).
    """

    kind: Literal["environment", "thin"]
    version: str
    cuda: str | None
    hip: str | None
    cxx11_abi: bool
    cxx_standard: int
    prefix: Path
    """The folder ``torch``, with ``include`` and ``share/cmake`` in it; CMake's ``TORCH_INSTALL_PREFIX``."""
    library_dir: Path
    """The folder of the link targets: stubs with the SONAMEs of torch's ``lib``, so that both kinds of SDK link alike.
    """
    include_dirs: tuple[Path, ...]
    """torch's own: ``include`` and ``include/torch/csrc/api/include``."""
    cuda_include_dirs: tuple[Path, ...] = ()
    """Headers of the NVIDIA wheels that torch requires (cublas, cusparse, cusolver, cudnn …)."""
    libraries: tuple[str, ...] = ()
    """SONAMEs in torch's own ``lib``, sorted: what an installed torch provides, with a repair tool's hash."""
    nvidia_libraries: tuple[tuple[str, str], ...] = ()
    """(SONAME, folder relative to site-packages) of every library of the NVIDIA wheels that torch requires, sorted."""
    cuda_runtime: Path | None = None
    """The CUDA runtime library that comes with this torch, if available: kernels may call only what it exports."""
    cuda_parts: tuple[Path, ...] = ()
    """Another machine's part of the entry's CUDA toolkit: of each wheel, a folder laid out like site-packages."""
    python_path: tuple[Path, ...] = ()
    """Folders on ``PYTHONPATH`` of the interpreter that CMake finds (the facade of a thin SDK)."""
    left_out: tuple[str, ...] = ()
    """Modules of torch's wheel and of its requirements that a thin SDK lacks, sorted: ``sympy``, ``torchgen`` …"""
    wheel_sha256: str | None = None
    """The wheel's hash as its index states it, if it does; bytes that are read by ranges cannot be compared with it."""

    @property
    def backend(self) -> Backend:
        """Return what this torch was built for."""
        return Backend.of_cuda(self.cuda)

    @property
    def minor(self) -> str:
        """Return ``major.minor`` of the torch version."""
        return ".".join(self.version.split(".")[:2])
