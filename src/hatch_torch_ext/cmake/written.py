"""Files that a project's CMake files write into the author's sources: reported, since other builds read them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hatch_torch_ext.cmake.job import Job
    from hatch_torch_ext.cmake.replies import Target

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


def make_outdated(job: Job, targets: Iterable[Target]) -> None:
    """Make Ninja write again what lies outside of the build folder: another entry's would pass for this entry's own.

    A source that the project calls generated may be the author's all the same, so it is not removed: Ninja writes it
    again because its log does not say that it did.
    """
    generated = {os.fspath(path) for target in targets for path in target.generated}
    for path in (path for target in targets for path in target.outside):
        with contextlib.suppress(OSError):
            path.unlink()
    log = job.build / ".ninja_log"
    if generated and log.is_file():
        lines = log.read_text(encoding="utf-8", errors="surrogateescape").splitlines(keepends=True)
        kept = [line for line in lines if generated.isdisjoint(line.split("\t"))]
        log.write_text("".join(kept), encoding="utf-8", errors="surrogateescape")


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
