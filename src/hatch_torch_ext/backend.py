"""hatchling's build backend, for front ends that would build a wheel to learn what a project requires.

uv does so for every project on ``hatchling.build`` with dynamic dependencies, and pip for all of them: hatchling cannot
know that hooks of a build leave the metadata alone. Here they do, so both are given the metadata alone.
"""

from __future__ import annotations

from typing import Any

from hatchling.build import (
    build_editable,
    build_sdist,
    build_wheel,
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
    from hatch_torch_ext import metadata

    return metadata.write(metadata_directory)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Do the same for an editable install, which requires nothing else."""
    return prepare_metadata_for_build_wheel(metadata_directory, config_settings)
