"""The folders of an author's project: its CMake files, and what tools made there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LEFT_OUT = frozenset({"build", "dist", "node_modules"})
MADE_BY_TOOLS = frozenset({"pyvenv.cfg", "CMakeCache.txt", "CACHEDIR.TAG"})


def cmake_files(source: Path) -> Iterator[Path]:
    """Yield the CMake files below ``source``, except those in environments, build folders, caches and the like."""
    for parent, folders, names in os.walk(source):
        here = Path(parent)
        if here != source and not MADE_BY_TOOLS.isdisjoint(names):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name[0] not in "._" and name not in LEFT_OUT)
        yield from (here / name for name in sorted(names) if name == "CMakeLists.txt" or name.endswith(".cmake"))


SKIPPED = ("__pycache__", "node_modules")
SIGNS = ("pyvenv.cfg", "CACHEDIR.TAG")
"""Files that mark their folder as generated."""
