"""The folders of an author's project: its CMake files, and what tools made there."""

from __future__ import annotations

import fnmatch
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


def named(files: Iterable[Path], source: Path) -> Iterator[Path]:
    """Yield those of ``files`` that a CMake file below ``source`` names, by a name or, below ``source``, a pattern."""
    words: set[str] = set()
    for path in cmake_files(source):
        words.update(_WORD.findall(path.read_text(encoding="utf-8", errors="replace")))
    names = {word.rpartition("/")[2] for word in words}
    patterns = [re.compile(fnmatch.translate(word.lstrip("/"))) for word in words if "*" in word or "?" in word]
    for path in files:
        if path.name in names:
            yield path
        elif path.is_relative_to(source):
            parts = path.relative_to(source).parts
            tails = ["/".join(parts[index:]) for index in range(len(parts))]
            if any(pattern.match(tail) for pattern in patterns for tail in tails):
                yield path


_WORD = re.compile(r"[^\s\"()<>;{}]+")
SKIPPED = ("__pycache__", "node_modules")
SIGNS = ("pyvenv.cfg", "CACHEDIR.TAG")
"""Files that mark their folder as generated."""
