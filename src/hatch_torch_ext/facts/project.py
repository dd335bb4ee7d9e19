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
    """Yield the CMake files below ``source``, except those in environments, build folders, caches and the like.

    Hidden ones (an editor's lock is a link that leads nowhere) and what cannot be read are none.
    """
    for parent, folders, names in os.walk(source):
        here = Path(parent)
        if here != source and not MADE_BY_TOOLS.isdisjoint(names):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name[0] not in "._" and name not in LEFT_OUT)
        for name in sorted(names):
            path = here / name
            of_cmake = name == "CMakeLists.txt" or (name.endswith(".cmake") and not name.startswith("."))
            if of_cmake and path.is_file() and os.access(path, os.R_OK):
                yield path


def text(path: Path) -> str:
    """Return the text of a file of the project; nothing where it cannot be read: what needs the file says so."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def named(files: Iterable[Path], source: Path) -> Iterator[Path]:
    """Yield those of ``files`` that a CMake file below ``source`` names, by a name or, below ``source``, a pattern."""
    words: set[str] = set()
    for path in cmake_files(source):
        words.update(_WORD.findall(text(path)))
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
_OF_TOOLS = frozenset(
    (
        *(".cache", ".git", ".hg", ".idea", ".jj", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".svn"),
        *(".tox",),
    )
)


def walk(
    root: Path, source: Path, *, without: Iterable[Path] = (), hidden: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder of the project with the names of its files, sorted, which include no hidden one.

    ``source``, the folder of CMakeLists.txt, may be outside of ``root``. What tools make is left out, and so are the
    folders ``without`` (or files of these names), and hidden ones, unless ``hidden`` requests those below ``source``.
    """
    left_out = {os.fspath(folder) for folder in without}
    for start in dict.fromkeys([root] if source.is_relative_to(root) else [root, source]):
        top = os.fspath(start)
        for folder, folders, names in os.walk(top):
            if folder != top and any(sign in names for sign in SIGNS):
                folders.clear()
                continue
            shows = hidden and Path(folder).is_relative_to(source)
            folders[:] = sorted(
                name
                for name in folders
                if name not in SKIPPED
                and not (name.startswith(".") and (not shows or name in _OF_TOOLS))
                and not name.endswith(".egg-info")
                and f"{folder}/{name}" not in left_out
            )
            yield (
                folder,
                sorted(name for name in names if not name.startswith(".") and f"{folder}/{name}" not in left_out),
            )
