"""The store belongs only to its user: a folder that others own or can write is not used."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from typing import TYPE_CHECKING

from hatch_torch_ext.store.seal import OTHERS_MAY_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS = ("torch", "nvidia", "stubs", "ccache", "hatch")
"""Folders of complete items."""
FOLDERS = (*KINDS, "blobs", "compiled", "exports", "locks", "resolved", "seals", "unfinished", "work")
OTHERS_MAY_ENTER = stat.S_IXGRP | stat.S_IXOTH
WRITABLE = "other users can write it, and it is not empty"
A_LINK = "it is a link, and a cache has folders of its own there"
TAG = """\
Signature: 8a477f597d28d172789f06886806bc55
# A cache of hatch-torch-ext; `hatch-torch-ext sdk prune` empties it.
"""


class NotPrivateError(OSError):
    """Others own the store's folder or can write it; ``strerror`` is a clause for a message."""

    def __init__(self, path: Path, clause: str) -> None:
        super().__init__(errno.EPERM, clause, str(path))


def private(root: Path) -> Path:
    """Return the folder ``root``, and make it if need be, readable and writable only by its user."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root


def folder(root: Path, name: str) -> Path:
    """Return a folder of the store, and make it if need be.

    Raises ``NotPrivateError`` if a symbolic link is in its place.
    """
    path = root / name
    path.mkdir(mode=0o700, exist_ok=True)
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise NotPrivateError(path, A_LINK)
    return path


def check(root: Path, report: Callable[[str], None]) -> None:
    """Make the store's folder if need be; an empty one that others can write becomes private.

    Raises ``OSError`` if it cannot be written, ``NotPrivateError`` if it is not private: others may have moved or
    replaced what they can write, and not everything in a store is sealed.
    """
    private(root)
    status = root.stat()
    _check_owner(root, status)
    empty = not any(root.iterdir())
    if status.st_mode & OTHERS_MAY_WRITE:
        if not empty:
            raise NotPrivateError(root, WRITABLE)
        root.chmod(0o700)
        report(f"{root}, for the cache, could be written by other users: it is private now")
        status = root.stat()
    for name in FOLDERS:
        try:
            inner = (root / name).lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(inner.st_mode):
            raise NotPrivateError(root / name, A_LINK)
        _check_owner(root / name, inner)
        if inner.st_mode & OTHERS_MAY_WRITE and status.st_mode & OTHERS_MAY_ENTER:
            raise NotPrivateError(root / name, WRITABLE)
    with tempfile.TemporaryFile(dir=root):
        pass
    if empty:  # in a folder with other things, backups would skip these too
        (root / "CACHEDIR.TAG").write_text(TAG, encoding="utf-8")


def _check_owner(folder: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise NotPrivateError(folder, f"it belongs to another user (uid {status.st_uid})")
