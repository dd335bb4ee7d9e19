"""The torch SDK: what compiling and linking needs of torch, wherever it comes from.

Two modules return the same value: ``environment`` reads the torch installed in the entry's hatch environment; ``thin``
takes headers and names of libraries from the wheel, without installing it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from hatch_torch_ext.base.errors import SdkError
from hatch_torch_ext.facts.labels import parse_cuda
from hatch_torch_ext.facts.releases import TORCH_INDEX

if TYPE_CHECKING:
    from hatch_torch_ext.values.entry import Entry
    from hatch_torch_ext.values.sdk import Sdk


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
