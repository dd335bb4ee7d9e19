"""The torch SDK: what compiling and linking needs of torch, wherever it comes from.

Two modules return the same value: ``environment`` reads the torch installed in the entry's hatch environment; ``thin``
takes headers and names of libraries from the wheel, without installing it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from packaging.requirements import InvalidRequirement, Requirement

from hatch_torch_ext.base.errors import SdkError
from hatch_torch_ext.facts.labels import parse_cuda
from hatch_torch_ext.facts.releases import TORCH_INDEX

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.matrix import Entry


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
    def minor(self) -> str:
        """Return ``major.minor`` of the torch version."""
        return ".".join(self.version.split(".")[:2])


def check(entry: Entry, sdk: Sdk, *, removal: str = "") -> None:
    """Raise ``SdkError`` if this torch is not the one that the matrix asks for.

    The installed torch can differ from the declared one: the environment is older than a change of the matrix, the
    index serves another build, or a variable ``cuda`` selects nothing. ``removal`` is the command that removes the
    entry's environment.
    """
    try:
        specifier = Requirement(entry.torch_requirement).specifier
    except InvalidRequirement as error:
        raise SdkError(entry.name, f"`{entry.torch_requirement}` is not a requirement: {error}") from error
    remedy = (
        f"Remove the environment; the next build makes it again: `{removal}`"
        if sdk.kind == "environment"
        else "Check `index-url` of the hook and the matrix"
    )
    if not specifier.contains(sdk.version, prereleases=True):
        raise SdkError(
            entry.name, f"the matrix asks for `{entry.torch_requirement}`, but torch {sdk.version} was found. {remedy}"
        )
    wanted = entry.variable("cuda")
    # `cpu` says what the variant shall be, not what it is compiled against: any build of torch will do.
    if wanted is None or (version := parse_cuda(wanted)) is None or version == sdk.cuda:
        return
    build = f"CUDA {sdk.cuda}" if sdk.cuda else "the CPU alone"
    if sdk.kind == "thin":
        label = f"cu{version.replace('.', '')}"
        remedy = f'Correct the matrix, or take the build of torch\'s own index: `index-url = "{TORCH_INDEX}/{label}"`'
    raise SdkError(
        entry.name, f"the matrix asks for cuda = {wanted!r}, but torch {sdk.version} is a build for {build}. {remedy}"
    )


def narrowed(entry: Entry, sdk: Sdk) -> Sdk:
    """Return the SDK as the entry sees it: an entry that declares ``cuda = "cpu"`` gets a torch without CUDA."""
    if entry.variable("cuda") != "cpu":
        return sdk
    return replace(sdk, cuda=None, cuda_include_dirs=())
