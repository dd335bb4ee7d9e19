"""Where a build works: ``build/torch-ext`` of the project, else a folder in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from hatch_torch_ext import store
from hatch_torch_ext.base import locks
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import project

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

PROJECT = "project"
"""A file in the work folder of sdists: it holds the path of the project's own work folder."""


def work(root: Path, *, distribution: str, aside: bool = False, from_sdist: bool = False) -> Path:
    """Return the folder of all work: ``build/torch-ext`` of the project, else one in the user's cache.

    With ``aside``, and if the project's folder is read-only, it is in the cache. A build ``from_sdist`` runs in a
    folder that is removed afterwards, so its work folder is in the cache too, one for each distribution; the path of
    the project's own work folder is recorded there.
    """
    preferred, fallback = _work_folders(root)
    unpacked = _of_sdists(distribution)
    if from_sdist and _in_cache(unpacked) is None:
        found = unpacked
    elif not aside and _inside(preferred):
        found = preferred
    elif (problem := _in_cache(fallback)) is None:
        found = fallback
    else:
        raise ConfigurationError(
            f"The work cannot be done in {preferred}, nor in the cache ({problem.filename}: {problem.strerror}): "
            f"name a folder of your own with {store.VARIABLE}."
        )
    # With a read-only cache, sdists are built from the start.
    if not from_sdist and not project.is_unpacked(root) and _in_cache(unpacked) is None:
        with contextlib.suppress(OSError):
            (unpacked / PROJECT).write_text(str(found), encoding="utf-8")
    return found


def _in_cache(folder: Path) -> OSError | None:
    """Make a work folder in the user's cache; return why it cannot be used, if others could write there for one."""
    try:
        store.open_store(store.path(os.environ)).folder("work")
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return error
    return None


def _of_sdists(distribution: str) -> Path:
    """Return the work folder for a distribution's sdists, wherever they are unpacked."""
    return store.path(os.environ) / "work" / f"sdist-{canonicalize_name(distribution)}"


def earlier(work: Path) -> Path | None:
    """Return the work folder of the project whose sdist is built in ``work``."""
    try:
        return Path((work / PROJECT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _inside(folder: Path) -> bool:
    """Make the work folder of a project; return whether it is writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    if not os.access(folder, os.W_OK):
        return False
    # For projects whose own .gitignore lacks `build`. hatchling reads only the .gitignore of the root.
    (folder / ".gitignore").write_text("*\n", encoding="ascii")
    return True


def _work_folders(root: Path) -> tuple[Path, Path]:
    name = hashlib.sha256(str(root).encode()).hexdigest()[:16]
    return root / "build" / "torch-ext", store.path(os.environ) / "work" / name


def left(root: Path, name: str) -> Path | None:
    """Return the file ``name`` that the last build left in its work folder, None if no build of the project did."""
    found = [file for folder in _work_folders(root) if (file := folder / name).is_file()]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def clean(root: Path, *, distribution: str, report: Callable[[str], None]) -> None:
    """Remove everything that builds of the project in ``root`` left, wherever they worked, once none is running."""
    for folder in (*_work_folders(root), _of_sdists(distribution)):
        if folder.is_symlink():
            folder.unlink()
        elif folder.is_dir():
            with lock(folder, report):
                shutil.rmtree(folder)


def lock(work: Path, report: Callable[[str], None]) -> AbstractContextManager[None]:
    """Exclude other builds in this folder; a message says which build is waited for."""
    return locks.held(work / "lock", what=f"the work folder {work}", report=report)


def editing(root: Path, report: Callable[[str], None]) -> AbstractContextManager[None]:
    """Exclude others who edit the project's matrix; a message says who is waited for.

    The lock is in the user's cache, so that no sdist holds it; without a cache, none is excluded.
    """
    _, folder = _work_folders(root)
    if not (root / "pyproject.toml").is_file() or _in_cache(folder) is not None:
        return contextlib.nullcontext()
    return locks.held(folder / "editing", what=f"the matrix of {root}", report=report)
