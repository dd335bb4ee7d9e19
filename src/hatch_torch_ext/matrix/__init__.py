"""Entries of the matrix, and selectors that choose among them; pure functions."""

from hatch_torch_ext.matrix.declaring import expand, expanded
from hatch_torch_ext.matrix.selecting import (
    CURRENT,
    Common,
    common,
    current,
    glob_of,
    left,
    newest,
    of_this_machine,
    reached,
    select,
    serving,
)

__all__ = [
    "CURRENT",
    "Common",
    "common",
    "current",
    "expand",
    "expanded",
    "glob_of",
    "left",
    "newest",
    "of_this_machine",
    "reached",
    "select",
    "serving",
]
