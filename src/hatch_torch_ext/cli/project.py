"""The project in the folder that a command runs in."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import scrub
from hatch_torch_ext.errors import ConfigurationError

if TYPE_CHECKING:
    from hatch_torch_ext.config import Config


def say(line: str) -> None:
    """Tell the user, beside what the command answers, what it is doing."""
    print(f"hatch-torch-ext: {scrub.clean(line)}", file=sys.stderr)


def read() -> tuple[Config, str]:
    """Return the configuration of the project in this folder and its distribution's name, read as hatchling reads them.

    Raises ``ConfigurationError`` where there is none.
    """
    from hatchling.builders.wheel import WheelBuilder

    from hatch_torch_ext import config as configuration
    from hatch_torch_ext import metadata
    from hatch_torch_ext.plugin import package_sources

    root = Path.cwd()
    if not (root / "pyproject.toml").is_file():
        raise ConfigurationError([f"There is no pyproject.toml in {root}: run this in the folder of your project."])
    builder = WheelBuilder(str(root))
    name = str(builder.metadata.core_raw_metadata["name"])  # not by `core`, which asks metadata hooks
    raw = metadata.build_hook_options(builder)
    if raw is None:
        raise ConfigurationError(
            [
                "The wheel target has no build hook `torch-ext`: "
                "add `[tool.hatch.build.targets.wheel.hooks.torch-ext]` to pyproject.toml."
            ]
        )
    sources = package_sources(builder.config)
    return configuration.parse(raw, root=root, project_name=name, environ=os.environ, sources=sources), name
