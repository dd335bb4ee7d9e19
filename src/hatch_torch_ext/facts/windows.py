"""Reads a file in overlapping windows: searching bytes is many times faster than searching a memory map before 3.12."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 4 << 20
OVERLAP = 16 << 10
"""Longer than anything that is searched for, so what one window cuts is whole in the next."""


def windows(path: Path) -> Iterator[bytes]:
    """Yield the bytes of ``path`` window by window; an occurrence may be in two of them."""
    with path.open("rb") as stream:
        kept = b""
        while chunk := stream.read(SIZE):
            yield kept + chunk
            kept = (kept + chunk)[-OVERLAP:] if len(chunk) < OVERLAP else chunk[-OVERLAP:]
