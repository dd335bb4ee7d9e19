"""The output and the paths of commands: the one way to the terminal; foreign text is made printable."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape, redact
from hatch_torch_ext.facts import releases

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LOG_WIDTH = 150
"""Columns of a table that does not go to a terminal."""


def prepare() -> None:
    """Let both streams accept every character: one that their encoding lacks becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def say(value: object, *, end: str = "\n") -> None:
    """Print a line of the command's answer, without secrets."""
    print(escape.text(redact.clean(str(value))), end=end)


def say_json(data: object) -> None:
    """Print the answer as JSON, without secrets."""
    print(redact.clean(escape.json(data)))


def complain(value: object) -> None:
    """Print a message to stderr, if it is open, without secrets."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # closed: there is no reader
            print(escape.text(redact.clean(str(value))), file=sys.stderr)


def table(*columns: str) -> Table:
    """Return an empty table."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for column in columns:
        made.add_column(column)
    return made


def add(made: Table, *cells: str) -> None:
    """Add a row; its cells are plain text, not markup."""
    from rich.text import Text

    made.add_row(*(Text(escape.line(cell)) for cell in cells))


def console() -> Console:
    """Return a console of the terminal's width; output to a program or a log is as wide as it needs."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else LOG_WIDTH)


def path(text: str) -> Path:
    """Return ``text`` as an absolute path; symbolic links stay, since the Python of a virtual environment is one."""
    if not text:  # what a shell makes of a variable that is not set, and not this folder
        raise argparse.ArgumentTypeError("an empty path")
    return Path(os.path.abspath(text))  # noqa: PTH100 -- Path.resolve follows links


TORCH_INDEX = "TORCH_EXT_TORCH_INDEX"


def add_torch_index(command: argparse.ArgumentParser) -> None:
    """Declare the option."""
    command.add_argument("--torch-index", metavar="URL", help=f"a mirror of torch's index, or a folder ({TORCH_INDEX})")


def torch_index(options: argparse.Namespace) -> str:
    """Return the address of torch's index, or a folder: the option's, else the variable's, else torch's own."""
    named = options.torch_index or os.environ.get(TORCH_INDEX) or releases.TORCH_INDEX
    return named if "://" in named else os.path.abspath(named)  # noqa: PTH100 -- a text
