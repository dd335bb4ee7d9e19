"""Registers the hooks with hatchling and hatch, and does nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatchling.plugin import hookimpl

if TYPE_CHECKING:
    from hatch_torch_ext.hooks.build import TorchExtBuildHook
    from hatch_torch_ext.hooks.environment import MachineEnvironment
    from hatch_torch_ext.hooks.metadata import TorchExtMetadataHook


@hookimpl
def hatch_register_build_hook() -> list[type[TorchExtBuildHook]]:
    """Return the class of the build hook ``torch-ext``, and the class that refuses the misspelling ``torch_ext``."""
    from hatch_torch_ext.hooks.build import Misspelt, TorchExtBuildHook

    return [TorchExtBuildHook, Misspelt]


@hookimpl
def hatch_register_metadata_hook() -> type[TorchExtMetadataHook]:
    """Return the class of the metadata hook ``torch-ext``."""
    from hatch_torch_ext.hooks.metadata import TorchExtMetadataHook

    return TorchExtMetadataHook


@hookimpl
def hatch_register_environment() -> type[MachineEnvironment]:
    """Return the class of environments that run another machine's Python.

    Only hatch asks for it; hatchling does not.
    """
    from hatch_torch_ext.hooks.environment import MachineEnvironment

    return MachineEnvironment
