"""Paths on the command line: relative ones count from the folder that the command is typed in, whatever runs where."""

from __future__ import annotations

import os
from pathlib import Path


def path(text: str) -> Path:
    """Return ``text`` as an absolute path; links stay, since a Python in a virtual environment is one."""
    return Path(os.path.abspath(text))  # noqa: PTH100 -- Path.resolve follows links
