"""What this process uses of any store: held by shared locks until the build ends, so that pruning leaves it alone."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_leases: dict[str, int] = {}
"""Folder -> descriptor of the lock on it."""
_leasing = threading.Lock()


@contextlib.contextmanager
def using() -> Iterator[None]:
    """Hold what is used of any store until the context ends: a build."""
    try:
        yield
    finally:
        release()


def release() -> None:
    """Let go of everything that this process used of any store: a build has ended."""
    with _leasing:
        for descriptor in _leases.values():
            os.close(descriptor)
        _leases.clear()


def hold(folder: Path, lease: int) -> None:
    """Keep the lock ``lease`` on ``folder`` until ``release``."""
    with _leasing:
        previous = _leases.pop(str(folder), None)
        _leases[str(folder)] = lease
    if previous is not None:
        os.close(previous)
