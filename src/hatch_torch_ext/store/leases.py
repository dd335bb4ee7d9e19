"""The items of the store that this process uses: shared locks, held until the build ends, keep pruning from them."""

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
    """Keep the items that are used within the context, which is a build, locked until its end."""
    try:
        yield
    finally:
        release()


def release() -> None:
    """Unlock all items that this process used: the build has ended."""
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
