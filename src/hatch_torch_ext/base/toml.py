"""TOML, by the standard library or, before Python 3.11, by the reader that hatchling requires."""

from __future__ import annotations

import importlib
import sys
from typing import Any

_reader = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def loads(text: str) -> dict[str, Any]:
    """Return the document. Raises ``ValueError`` for anything else."""
    document: dict[str, Any] = _reader.loads(text)
    return document
