"""Paths that are made of names from outside: none leaves its root, and no two names share a place."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")
KEPT = 60  # characters of an odd name that stay readable
MARK = "~"
"""Stands in no safe name: what an odd name becomes is never what another name is."""


def safe(name: str, *, reserved: Collection[str] = ()) -> str:
    """Return a file name for ``name``: itself where it is plain, else what is plain of it and a hash.

    ``reserved`` are names that the folder uses for itself.
    """
    if SAFE.fullmatch(name) and name not in reserved:
        return name
    plain = re.sub(r"[^A-Za-z0-9_+-]+", "_", name)[:KEPT].strip("_") or "name"
    return f"{plain}{MARK}{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def place(root: Path, name: str, *, reserved: Collection[str] = ()) -> Path:
    """Return the path of ``name`` in the folder ``root``: one step below it, whatever the name is."""
    return root / safe(name, reserved=reserved)
