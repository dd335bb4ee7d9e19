"""What a project writes into the sources, which all entries share: found, told, and written again for each entry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hatch_torch_ext.cmake.job import Job

SHOWN = 3
_FIELDS = 5  # of a line of Ninja's log: start, end, time of the output, output, hash of the command
_PASSED_OVER = ("__pycache__", "node_modules")
_OF_TOOLS = (
    ".cache",
    ".git",
    ".hg",
    ".idea",
    ".jj",
    ".mypy_cache",
    ".nox",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".tox",
)
_SIGNS = ("CACHEDIR.TAG", "pyvenv.cfg")
"""Files that mark their folder as generated."""
_UNREAD = (".log", ".md", ".rst", ".swp", ".whl", "~")
"""Ends of names of files that no compiler reads: editors and people write them at any time."""

State = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""


def snapshot(job: Job) -> dict[Path, State]:
    """Return the files of the project and of its CMake folder that a compiler may read.

    Folders of tools and what builds leave are passed over, and so are files that people and editors write while CMake
    runs. Hidden folders count below the CMake folder alone.
    """
    found: dict[Path, State] = {}
    top, source = job.config.root, job.config.source
    for root in [top] if source.is_relative_to(top) else [top, source]:
        for folder, folders, names in os.walk(root):
            here = Path(folder)
            if here != root and any(sign in names for sign in _SIGNS):
                folders.clear()
                continue
            is_source = here.is_relative_to(source)
            folders[:] = [
                name
                for name in folders
                if name not in {*_PASSED_OVER, *_OF_TOOLS}
                and (is_source or not name.startswith("."))
                and not name.endswith(".egg-info")
                and not (here == top and name == "dist")
                and here / name != job.folder.parent
            ]
            for name in names:
                if name.startswith(".") or name.endswith(_UNREAD):
                    continue
                path = here / name
                try:
                    status = path.lstat()
                except OSError:
                    continue  # deleted since it was listed
                found[path] = (status.st_mtime_ns, status.st_size)
    return found


def make_outdated(job: Job, outputs: Collection[str] | None = None) -> None:
    """Make Ninja write ``outputs`` again, by default all but objects: another entry's would pass for this entry's own.

    It writes again what its log does not say that it wrote. Nothing is removed: what a project calls generated may be
    the author's all the same.
    """
    log = job.build / ".ninja_log"
    if log.is_file():
        lines = log.read_text(encoding="utf-8", errors="surrogateescape").splitlines(keepends=True)
        kept = [line for line in lines if not _is_in(line.rstrip("\n").split("\t"), outputs)]
        log.write_text("".join(kept), encoding="utf-8", errors="surrogateescape")


def _is_in(fields: list[str], outputs: Collection[str] | None) -> bool:
    if len(fields) != _FIELDS:
        return False
    return not fields[3].endswith((".o", ".obj")) if outputs is None else fields[3] in outputs


def note(job: Job, before: Mapping[Path, State]) -> str | None:
    """Return the message on files that are new or changed since ``before``, or None."""
    changed = sorted(path for path, state in snapshot(job).items() if before.get(path) != state)
    if not changed:
        return None
    shown = ", ".join(os.path.relpath(path, job.config.root) for path in changed[:SHOWN])
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return (
        f"sources changed while CMake ran: {shown}{more}. All entries share what CMake writes there, so that they are "
        "compiled one after another, and it may end up in an sdist or a wheel: let CMake write below "
        "${CMAKE_CURRENT_BINARY_DIR} instead"
    )
