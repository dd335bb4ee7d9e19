"""Paths made of names from outside: no path leaves its root, and no two names get the same path."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")
KEPT = 60  # characters of an unsafe name that stay readable
MARK = "~"
"""Separates the readable part from the hash. It stands in no safe name, so no replaced name equals a safe one."""


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
