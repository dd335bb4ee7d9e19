"""Locks between processes; a process that waits says for whom, at once and again every half minute.

They are kernel locks (``flock``) on a file or a folder, so the lock of a killed process is free at once. Two
descriptors in one process exclude each other too, so the locks also work between threads.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AGAIN = 30.0
"""Seconds between two messages of a process that waits."""
PAUSE = 0.1
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL)
"""Error numbers of file systems without locks."""
LONGEST_HOLDER = 500


@contextlib.contextmanager
def held(path: Path, *, what: str, report: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock file ``path`` while the context lasts; its folder must exist.

    ``what`` names what the lock protects, for the messages of waiting processes, which go to ``report``. The holder may
    delete the file: the next process creates it again.
    """
    descriptor = _acquire(path, what, report or (lambda _: None))
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _myself().encode("utf-8", "replace"), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


def take(path: Path, *, shared: bool = False, certain: bool = False) -> int | None:
    """Lock the folder or file ``path`` without waiting. Return the descriptor, or None if others hold it or it is gone.

    Closing the descriptor unlocks. On a file system without locks the descriptor holds nothing; with ``certain``, an
    ``OSError`` (one of ``UNSUPPORTED``) is raised instead. Raises ``OSError`` too if the path cannot be opened, which
    includes symbolic links.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if _locked(descriptor, shared=shared, certain=certain) and _is_still(descriptor, path):
            kept, descriptor = descriptor, -1
            return kept
    finally:
        if descriptor != -1:
            os.close(descriptor)
    return None


def _acquire(path: Path, what: str, report: Callable[[str], None]) -> int:
    reported = float("-inf")
    began = time.monotonic()
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if _locked(descriptor, shared=False):
            if _is_still(descriptor, path):
                return descriptor
            os.close(descriptor)
            continue
        now = time.monotonic()
        if now - reported >= AGAIN:
            holder = os.pread(descriptor, LONGEST_HOLDER, 0).decode("utf-8", "replace") or "another process"
            waited = f" ({now - began:.0f} s so far)" if reported > 0 else ""
            report(f"waiting for {what}, which {holder} holds{waited}")
            reported = now
        os.close(descriptor)
        time.sleep(PAUSE)


def _locked(descriptor: int, *, shared: bool, certain: bool = False) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if certain or error.errno not in UNSUPPORTED:
            raise
    return True


def _is_still(descriptor: int, path: Path) -> bool:
    """Return whether the path still names the opened file: its last holder may have deleted it."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _myself() -> str:
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    try:
        where = f" in {os.getcwd()}"  # noqa: PTH109 -- a text
    except FileNotFoundError:
        where = ""
    return f"process {os.getpid()} ({program}{where})"
