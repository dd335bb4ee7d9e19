"""Write the files of a small project, or of any folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write each file, named by its path below ``root``, with the folders that it needs; return ``root``."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return root
