"""The torch SDK: what compiling and linking needs of torch, wherever it comes from.

Two sources stand beside each other and give the same value: ``environment`` (the torch installed in the entry's
hatch environment) and ``thin`` (headers and link names out of the wheel, without installing it).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from packaging.requirements import InvalidRequirement, Requirement

from hatch_torch_ext.errors import SdkError
from hatch_torch_ext.facts.labels import parse_cuda

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.matrix import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdk:
    """Facts of one torch build, all read from that build.

    ``version`` is ``torch.__version__`` (``2.8.0+cu128``); ``cuda``/``hip`` are ``torch.version.cuda/hip``;
    ``cxx11_abi`` is ``torch._C._GLIBCXX_USE_CXX11_ABI``; ``cxx_standard`` is what the torch release's own CMake files
    ask of those who compile against it (17, 20).
    """

    kind: Literal["environment", "thin"]
    version: str
    cuda: str | None
    hip: str | None
    cxx11_abi: bool
    cxx_standard: int
    prefix: Path
    """The folder ``torch`` itself: ``include`` and ``share/cmake`` below it; ``TORCH_INSTALL_PREFIX``."""
    library_dir: Path
    """Where link targets lie: stubs with the SONAMEs of torch's ``lib``; for both kinds, so that both link alike."""
    include_dirs: tuple[Path, ...]
    """torch's own: ``include`` and ``include/torch/csrc/api/include``."""
    cuda_include_dirs: tuple[Path, ...] = ()
    """Headers of the nvidia wheels that torch requires (cublas, cusparse, cusolver, cudnn …)."""
    libraries: tuple[str, ...] = ()
    """SONAMEs in torch's own ``lib``, sorted: what an installed torch really provides, mangled names included."""
    nvidia_libraries: tuple[tuple[str, str], ...] = ()
    """(SONAME, folder relative to site-packages) of every library of the nvidia wheels that torch requires, sorted."""
    cuda_runtime: Path | None = None
    """The CUDA runtime library that this torch comes with, where it is available: what kernels may call of it."""
    cuda_parts: tuple[Path, ...] = ()
    """Another machine's part of the entry's CUDA toolkit: of each wheel, a folder laid out like site-packages."""
    python_path: tuple[Path, ...] = ()
    """Folders put on ``PYTHONPATH`` of the interpreter that CMake sees (the facade of a thin SDK)."""
    left_out: tuple[str, ...] = ()
    """Modules of torch's wheel and of its requirements that a thin SDK lacks, sorted: ``sympy``, ``torchgen`` …"""
    wheel_sha256: str | None = None
    """The wheel's hash as its index says it, where it does: what was read by ranges is not checked against it."""

    @property
    def minor(self) -> str:
        """Return ``major.minor`` of the torch version."""
        return ".".join(self.version.split(".")[:2])


def check(entry: Entry, sdk: Sdk, *, removal: str = "") -> None:
    """Raise ``SdkError`` when the torch that was acquired is not the one that the matrix asks for.

    What is installed can differ from what is written: an environment made before the matrix was changed, an index
    that serves another build, a variable ``cuda`` that selects nothing. ``removal`` is the command that removes the
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
    # `cpu` says what the variant is to be, not what it is compiled against: any build of torch will do.
    if wanted is None or (version := parse_cuda(wanted)) is None or version == sdk.cuda:
        return
    build = f"CUDA {sdk.cuda}" if sdk.cuda else "the CPU alone"
    raise SdkError(
        entry.name, f"the matrix asks for cuda = {wanted!r}, but torch {sdk.version} is a build for {build}. {remedy}"
    )


def narrowed(entry: Entry, sdk: Sdk) -> Sdk:
    """Return the SDK as the entry sees it: an entry that declares ``cuda = "cpu"`` sees a torch without CUDA."""
    if entry.variable("cuda") != "cpu":
        return sdk
    return replace(sdk, cuda=None, cuda_include_dirs=())
