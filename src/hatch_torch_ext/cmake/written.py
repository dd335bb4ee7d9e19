"""What a project writes into the sources, which all entries share: found, reported, written again for each entry."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.cmake import replies
from hatch_torch_ext.facts import project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hatch_torch_ext.values import Job

WRITES = "torch_ext_writes_into_sources"
"""The file in the work folder that says that some entry wrote into the sources."""
_UNREAD = (".log", ".md", ".rst", ".swp", ".whl", "~")
"""Ends of names of files that no compiler reads: editors and people write them at any time."""
_LINKED = re.compile(r"\.(?:ptx|cubin|fatbin|o|a|so(?:\.\d+)*)$")
"""Names of compiled files that a linker may read though no CMake file names them."""

State = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""


def snapshot(job: Job) -> dict[Path, State]:
    """Return the files of the project and of its CMake folder that a compiler may read.

    Folders of tools and what builds leave are passed over, and so are files that people and editors write while CMake
    runs. Hidden folders count only below the CMake folder.
    """
    found: dict[Path, State] = {}
    root, without = job.config.root, [job.config.root / "dist", job.folder.parent]
    for folder, names in project.walk(root, job.config.source, without=without, hidden=True):
        for name in names:
            if not name.endswith(_UNREAD):
                path = Path(folder, name)
                with contextlib.suppress(OSError):  # deleted since it was listed
                    status = path.lstat()
                    found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _counts(job: Job, path: Path) -> bool:
    """Return whether a file that CMake names nowhere may be compiled, packed or installed."""
    packed = [job.config.source, job.config.package_dir]
    with contextlib.suppress(KeyError, OSError, ValueError):  # CMake has not come so far
        packed += [folder for rule in replies.read(job.build).rules for _, folder in rule.folders]
    read = project.is_compiled(path.name) or _LINKED.search(path.name) is not None
    return read or any(path.is_relative_to(folder) for folder in packed)


def distrust(job: Job) -> None:
    """Note that an entry wrote into the sources: what is there may be another entry's from now on."""
    (job.folder.parent / WRITES).touch()


def trust(job: Job) -> None:
    """Note that an entry was built by itself and wrote nothing into the sources."""
    (job.folder.parent / WRITES).unlink(missing_ok=True)


def is_distrusted(job: Job) -> bool:
    """Say whether an entry of this project wrote into the sources."""
    return (job.folder.parent / WRITES).exists()


def note(job: Job, before: Mapping[Path, State]) -> str | None:
    """Return the message on files that are new or changed since ``before``, or None."""
    changed = sorted(path for path, state in snapshot(job).items() if before.get(path) != state)
    if changed:
        ours = project.output_files()
        named = set(project.named(changed, job.config.source))
        counting = (path for path in changed if path in named or _counts(job, path))
        changed = [path for path in counting if project.identity(path) not in ours]
    if not changed:
        return None
    shown = escape.few([os.path.relpath(path, job.config.root) for path in changed])
    return (
        f"sources changed while CMake ran: {shown}. All entries share what CMake writes there, so they are "
        "compiled one after another, and it may end up in an sdist or a wheel: let CMake write below "
        "${CMAKE_CURRENT_BINARY_DIR} instead"
    )
