"""What others wrote, or a killed process left incomplete: data read whole or refused, and names made into paths.

No path leaves its root, and no two names get the same path.
"""

from __future__ import annotations

import hashlib
import importlib
import json as _json
import os
import re
import stat
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path
    from typing import TypeGuard


def json(text: str | bytes) -> Any:  # noqa: ANN401 -- whatever it holds
    """Return the value of the JSON ``text``.

    Raises ``ValueError`` for every kind of invalid text, too deep a nesting included.
    """
    try:
        return _json.loads(text)
    except (RecursionError, MemoryError) as error:
        raise ValueError("it is nested too deeply") from error


DAMAGED = (AttributeError, LookupError, OSError, OverflowError, TypeError, ValueError)
"""What reading a file of JSON raises that is missing, cut short, or of another shape than was written."""


def is_texts(value: object) -> TypeGuard[dict[str, str]]:
    """Return whether a value of JSON is an object whose values are all texts."""
    return isinstance(value, dict) and not set(map(type, value.values())) - {str}


def toml(text: str) -> dict[str, Any]:
    """Return the TOML document ``text``. Raises ``ValueError`` for anything else."""
    reader = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")  # hatchling requires tomli
    document: dict[str, Any] = reader.loads(text)
    return document


def is_file(path: Path) -> bool:
    """Return whether ``path`` is a file; False in a folder that this user cannot enter.

    ``Path.is_file`` raises ``PermissionError`` there, up to Python 3.13.
    """
    return os.path.isfile(path)  # noqa: PTH113 -- see above


def text(path: Path, limit: int) -> str:
    """Return the text of a file, as ``data`` does its bytes; ``ValueError`` if it is not UTF-8."""
    return data(path, limit).decode("utf-8")


def data(path: Path, limit: int) -> bytes:
    """Return the bytes of a file of at most ``limit`` bytes.

    Raises ``OSError``; ``ValueError`` if the file is longer or is not a regular file (so a pipe is never waited for).
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ValueError("it is not a file")
        found = stream.read(limit + 1)
    if len(found) > limit:
        raise ValueError(f"it has more than {limit >> 20} MiB")
    return found


SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")
KEPT = 60  # characters of an unsafe name that stay readable
MARK = "~"
"""Separates the readable part from the hash. No safe name has it, so no replaced name equals a safe one."""


def safe(name: str, *, reserved: Collection[str] = ()) -> str:
    """Return a file name for ``name``: the name itself if it is safe, else its safe characters and a hash.

    ``reserved`` are names that the folder uses for its own files.
    """
    if SAFE.fullmatch(name) and name not in reserved:
        return name
    plain = re.sub(r"[^A-Za-z0-9_+-]+", "_", name)[:KEPT].strip("_") or "name"
    return f"{plain}{MARK}{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def place(root: Path, name: str, *, reserved: Collection[str] = ()) -> Path:
    """Return the path of ``name`` directly inside the folder ``root``, whatever characters the name has."""
    return root / safe(name, reserved=reserved)
