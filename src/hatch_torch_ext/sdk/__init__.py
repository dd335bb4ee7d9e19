"""The torch SDK: the part of torch that compiling and linking needs, wherever it comes from.

Two modules return the same value: ``environment`` reads the torch installed in the entry's hatch environment; ``thin``
gets headers and names of libraries out of the wheel, without installing it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from hatch_torch_ext.base.errors import SdkError
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.facts.releases import TORCH_INDEX

if TYPE_CHECKING:
    from hatch_torch_ext.values import Entry, Sdk


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
    # `cpu` is what the variant shall be, not what it is compiled against: any build of torch will do.
    if entry.gpu is None or entry.gpu == sdk.backend:
        return
    build = sdk.backend.words if sdk.backend.is_gpu else "the CPU only"
    if sdk.kind == "thin":
        build_index = f"{TORCH_INDEX}/{entry.gpu.tag}"
        remedy = f'Correct the matrix, or use the build of torch\'s own index: `index-url = "{build_index}"`'
    raise SdkError(
        entry.name,
        f"the matrix asks for cuda = {entry.variable('cuda')!r}, but torch {sdk.version} is a build for {build}. "
        f"{remedy}",
    )


def for_entry(entry: Entry, sdk: Sdk) -> Sdk:
    """Return the SDK as the entry uses it: an entry that declares ``cuda = "cpu"`` gets a torch without CUDA."""
    if not entry.is_cpu:
        return sdk
    return replace(sdk, backend=Backend("cpu"), toolkit_include_dirs=())
