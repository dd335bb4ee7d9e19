"""The option ``--torch-index`` of commands that ask torch's own index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hatch_torch_ext.facts import releases

if TYPE_CHECKING:
    import argparse

VARIABLE = "TORCH_EXT_TORCH_INDEX"


def add(command: argparse.ArgumentParser) -> None:
    """Declare the option."""
    command.add_argument("--torch-index", metavar="URL", help=f"a mirror of torch's index, or a folder ({VARIABLE})")


def address(options: argparse.Namespace) -> str:
    """Return the address of torch's index, or a folder: the option's, else the variable's, else torch's own."""
    named = options.torch_index or os.environ.get(VARIABLE) or releases.TORCH_INDEX
    return named if "://" in named else os.path.abspath(named)  # noqa: PTH100 -- a text
