"""Files with equal bytes are one file with several names (hard links), whichever release they belong to."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from typing import TYPE_CHECKING

from hatch_torch_ext.store.seal import OTHERS_MAY_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def put(root: Path, data: bytes, folder: Path, name: str) -> None:
    """Write the new file ``name`` below ``folder``, as one more hard link to the file in ``root`` with the same bytes.

    It is called ten thousand times for one SDK. Paths are strings here because ``pathlib`` would take half of the time.
    """
    target = f"{folder}/{name}"
    digest = hashlib.sha256(data).hexdigest()
    blob = f"{root}/blobs/{digest[:2]}/{digest}"
    there = _holds(blob, data)
    if there:
        try:
            _with_parent(target, lambda: os.link(blob, target, follow_symlinks=False))
        except OSError:  # no hard links on this file system, too many of this file, or the blob was pruned in between
            pass
        else:
            return

    def write() -> None:
        with open(target, "xb", opener=_read_only) as stream:
            stream.write(data)

    _with_parent(target, write)
    if there is None:
        with contextlib.suppress(OSError):
            _with_parent(blob, lambda: os.link(target, blob))


def _holds(blob: str, data: bytes) -> bool | None:
    """Return whether the blob has the bytes ``data``, or None if it does not exist. One with other bytes is removed."""
    try:
        descriptor = os.open(blob, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        descriptor = -1
    if descriptor != -1:
        with open(descriptor, "rb", buffering=0) as stream:  # noqa: PTH123
            status = os.fstat(descriptor)
            trusted = status.st_uid == os.geteuid() and not status.st_mode & OTHERS_MAY_WRITE
            if trusted and stat.S_ISREG(status.st_mode) and status.st_size == len(data):
                read = b"".join(iter(lambda: stream.read(1 << 20), b""))
                if read == data:
                    return True
    with contextlib.suppress(OSError):
        os.unlink(blob)  # noqa: PTH108 -- a text
    return None


def _with_parent(path: str, make: Callable[[], None]) -> None:
    """Call ``make``, which creates the file ``path``; create its parent folders only if they are missing."""
    try:
        make()
    except FileNotFoundError:
        os.makedirs(path.rpartition("/")[0], exist_ok=True)  # noqa: PTH103
        make()


def _read_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o444)
