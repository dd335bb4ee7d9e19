"""Hashes of files, cached while a file's time and size stay the same, so that changes are found without reading all.

A file that was changed just before it was read is read again next time: it could have changed once more within the
resolution of the file system's times.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import untrusted
from hatch_torch_ext.facts import content, project
from hatch_torch_ext.pipeline.folders import replace_text

if TYPE_CHECKING:
    from collections.abc import Iterable

FRESH = 2.0  # seconds
LARGE = 64 << 20  # bytes; projects contain data sets, and no source is that large
MISSING = "missing"
FOLDER = "folder"
_WRITTEN = (".log", ".whl")
_PROSE = (".ipynb", ".md", ".py", ".pyi", ".rst")


class Digests:
    """Hashes by path, kept in ``file`` between builds; thread-safe."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._new: dict[str, tuple[int, int, str]] = {}
        try:
            known = untrusted.json(file.read_text(encoding="utf-8"))
            self._known = {path: tuple(each) for path, each in known.items()}
        except (AttributeError, OSError, TypeError, ValueError):
            self._known = {}

    def of(self, path: str) -> str:
        """Return the SHA-256 of the file, in hex; ``MISSING`` if there is none, ``FOLDER`` for a folder.

        Large files are identified by size and time.
        """
        if (new := self._new.get(path)) is not None:
            return new[2]
        try:
            status = os.stat(path)  # noqa: PTH116 -- thousands of files
        except OSError:
            return MISSING
        if status.st_size > LARGE:
            return f"{status.st_size} bytes of {status.st_mtime_ns}"
        known = self._known.get(path)
        if known is not None and known[:2] == (status.st_mtime_ns, status.st_size):
            found = str(known[2])
        else:
            try:
                found = content.sha256(Path(path))
            except IsADirectoryError:
                return FOLDER
            except OSError:
                return MISSING
        if time.time() - status.st_mtime > FRESH:
            with self._lock:
                self._new[path] = (status.st_mtime_ns, status.st_size, found)
        return found

    def save(self) -> None:
        """Write the hashes that were used."""
        with self._lock:
            text = json.dumps(self._new)
        replace_text(self._file, text)


def project_files(root: Path, source: Path, work: Path) -> list[str]:
    """Return the files that a build of the project may read, sorted: all except those that cannot matter to it.

    Those are hidden files, files that builds and other tools write (``build``, ``dist``, environments, logs, what this
    build's output goes to), and outside of ``source`` files that only Python and people read.
    """
    top, ours = os.fspath(root), project.output_files()
    found: list[str] = []
    for folder, names in project.walk(root, source, without=[root / "build", root / "dist", work]):
        outside = not Path(folder).is_relative_to(source) or source == root
        unread = (*_WRITTEN, *(_PROSE if outside else ()))
        found += [
            f"{folder}/{name}"
            for name in names
            if not name.endswith(unread) and not (name == "PKG-INFO" and folder == top)
        ]
    return sorted(found if not ours else (path for path in found if project.identity(Path(path)) not in ours))


def all_of(digests: Digests, paths: Iterable[str]) -> dict[str, str]:
    """Return path -> hash."""
    return {path: digests.of(path) for path in paths}
