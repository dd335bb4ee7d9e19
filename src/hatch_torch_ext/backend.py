"""hatchling's build backend, for front ends that would build a wheel only to learn what the project requires.

uv does so for every project that uses ``hatchling.build`` and has dynamic dependencies, pip for every project:
hatchling cannot know that a build hook leaves the metadata unchanged. Ours does, so this backend gives both the
metadata without a build.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from hatchling import build as hatchling
from hatchling.build import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: dict[str, Any] | None = None) -> str:  # noqa: ARG001 -- PEP 517's
    """Write the ``.dist-info`` folder into ``metadata_directory``, and return its name."""
    from hatch_torch_ext.hooks import metadata

    return metadata.write(metadata_directory)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Do the same for an editable install, whose metadata are the same."""
    return prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel by hatchling, and return its name."""
    _note(config_settings)
    return hatchling.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Do the same for an editable install."""
    _note(config_settings)
    return hatchling.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Build an sdist by hatchling, and return its name; warn afterwards if it lacks the CMake sources."""
    _note(config_settings)
    name = hatchling.build_sdist(sdist_directory, config_settings)
    from hatch_torch_ext.hooks import shipping

    if (note := shipping.sdist_without_hook(os.getcwd())) is not None:  # noqa: PTH109 -- as hatchling names it
        sys.stderr.write(f"torch-ext: {note}\n")
    return name


def _note(config_settings: dict[str, Any] | None) -> None:
    """Show which settings of the front end (``-C``) have no effect: neither hatchling nor the hook reads any."""
    if config_settings:
        sys.stderr.write(
            f"torch-ext: config settings (-C) are not read: {', '.join(config_settings)}; the options of the hook "
            "torch-ext in pyproject.toml are, and the HATCH_TORCH_EXT_* variables\n"
        )
