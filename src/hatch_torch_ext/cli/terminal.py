"""What commands print on."""

from __future__ import annotations

import sys

from rich.console import Console

LOG_WIDTH = 150
"""Columns of a table that goes elsewhere than to a terminal."""


def console() -> Console:
    """Return a console of the terminal's width; what is read by a program or kept in a log is as wide as it needs."""
    return Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
