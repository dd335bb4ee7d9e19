"""Data that others wrote, or that a killed process left incomplete: read whole, or refused with one kind of error."""

from __future__ import annotations

import json as _json
import os
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def json(text: str | bytes) -> Any:  # noqa: ANN401 -- whatever it holds
    """Return the value of the JSON ``text``.

    Raises ``ValueError`` for every kind of invalid text, too deep a nesting included.
    """
    try:
        return _json.loads(text)
    except (RecursionError, MemoryError) as error:
        raise ValueError("it is nested too deeply") from error


def is_file(path: Path) -> bool:
    """Return whether ``path`` is a file; False in a folder that this user cannot enter.

    ``Path.is_file`` raises ``PermissionError`` there, up to Python 3.13.
    """
    return os.path.isfile(path)  # noqa: PTH113 -- see above


def text(path: Path, limit: int) -> str:
    """Return the text of a file of at most ``limit`` bytes.

    Raises ``OSError``; ``ValueError`` if the file is longer, is not a regular file (so a pipe is never waited for), or
    is not UTF-8.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ValueError("it is no file")
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it has more than {limit >> 20} MiB")
    return data.decode("utf-8")
