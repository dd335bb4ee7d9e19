"""Paths on the command line; relative ones are relative to the folder in which the command was typed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def path(text: str) -> Path:
    """Return ``text`` as an absolute path; symbolic links stay, since the Python of a virtual environment is one."""
    if not text:  # what a shell makes of a variable that is not set, and not this folder
        raise argparse.ArgumentTypeError("an empty path")
    return Path(os.path.abspath(text))  # noqa: PTH100 -- Path.resolve follows links
