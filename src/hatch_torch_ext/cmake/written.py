"""Files that a project's CMake files write into the author's sources: reported, since other builds read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hatch_torch_ext.cmake.job import Job

SHOWN = 3
_PASSED_OVER = ("__pycache__", "dist", "node_modules")

State = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""


def snapshot(job: Job) -> dict[Path, State]:
    """Return every file of the project and of its CMake folder, except hidden folders and what builds leave.

    Logs are left out too: that of `hatch build > build.log` grows while CMake runs.
    """
    found: dict[Path, State] = {}
    roots = [job.config.root]
    if not job.config.source.is_relative_to(job.config.root):
        roots.append(job.config.source)
    for root in roots:
        for folder, folders, names in os.walk(root):
            here = Path(folder)
            folders[:] = [
                name
                for name in folders
                if not name.startswith(".") and name not in _PASSED_OVER and here / name != job.folder.parent
            ]
            for name in names:
                path = here / name
                if path.suffix == ".log":
                    continue
                try:
                    status = path.lstat()
                except OSError:
                    continue  # deleted since it was listed
                found[path] = (status.st_mtime_ns, status.st_size)
    return found


def note(job: Job, before: Mapping[Path, State]) -> str | None:
    """Return the message on files that are new or changed since ``before``, or None."""
    changed = sorted(path for path, state in snapshot(job).items() if before.get(path) != state)
    if not changed:
        return None
    shown = ", ".join(os.path.relpath(path, job.config.root) for path in changed[:SHOWN])
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return (
        f"sources changed while CMake ran: {shown}{more}. All entries share what CMake writes there, and it may end up "
        "in an sdist or a wheel: let CMake write below ${CMAKE_CURRENT_BINARY_DIR} instead"
    )
