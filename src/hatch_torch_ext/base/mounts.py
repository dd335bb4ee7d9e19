"""File systems that run no programs (mounted ``noexec``), as some machines mount /tmp and home folders."""

from __future__ import annotations

import os
import tempfile

_OF_UV = "/builds-v0/"
"""In the path of each isolated build of uv, which is in uv's cache."""
_VARIABLES = ("HATCH_TORCH_EXT_CACHE", "HATCH_DATA_DIR", "UV_CACHE_DIR", "TMPDIR")
"""The variables that name folders in which there are programs that a build runs."""


def runs_programs(path: str) -> bool:
    """Return whether programs on the file system of ``path`` can be run, as far as its mount decides."""
    try:
        return not os.statvfs(path).f_flag & os.ST_NOEXEC
    except OSError:
        return True


def refusal(program: str) -> str | None:
    """Return why a program that is there cannot be run, and what helps, if its file system runs none; else None."""
    if runs_programs(program):
        return None
    return f"it is on a file system that runs no programs (mounted `noexec`): {_remedy(program)}"


def _remedy(program: str) -> str:
    folders = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    folders.setdefault("TMPDIR", tempfile.gettempdir())
    of_uv = "UV_CACHE_DIR" if _OF_UV in program else None
    variable = of_uv or next((name for name, folder in folders.items() if _is_below(program, folder)), None)
    return "move it to another one" if variable is None else f"set {variable} to a folder on another one"


def _is_below(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(f"{os.path.realpath(folder)}/")
