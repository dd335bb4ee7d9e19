"""Registers the hooks with hatchling, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatchling.plugin import hookimpl

if TYPE_CHECKING:
    from hatch_torch_ext.emulated import MachineEnvironment
    from hatch_torch_ext.metadata import TorchExtMetadataHook
    from hatch_torch_ext.plugin import TorchExtBuildHook


@hookimpl
def hatch_register_build_hook() -> list[type[TorchExtBuildHook]]:
    """Return the hook's class, called by the name ``torch-ext``, and the one that catches ``torch_ext``."""
    from hatch_torch_ext.plugin import Misspelt, TorchExtBuildHook

    return [TorchExtBuildHook, Misspelt]


@hookimpl
def hatch_register_metadata_hook() -> type[TorchExtMetadataHook]:
    """Return the metadata hook's class, of the same name."""
    from hatch_torch_ext.metadata import TorchExtMetadataHook

    return TorchExtMetadataHook


@hookimpl
def hatch_register_environment() -> type[MachineEnvironment]:
    """Return the class of environments that run another machine's Python, for hatch: hatchling asks for none."""
    from hatch_torch_ext.emulated import MachineEnvironment

    return MachineEnvironment
