"""The files that the output of this process is written to, wherever a shell or a front end leads it.

They change while a build runs, though nothing of the build writes them: ``hatch build | tee build.txt`` in the project.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Identity = tuple[int, int]

STANDARD = ("1", "2")
_FLAGS = re.compile(r"^flags:\s+([0-7]+)$", re.MULTILINE)


def files() -> set[Identity]:
    """Return these files by device and inode.

    They are the standard output and error of this process and of those that started it, and where one is a pipe, what
    other processes write that have the pipe open.
    """
    found: set[Identity] = set()
    pipes: set[str] = set()
    known: set[int] = set()
    pid = os.getpid()
    while pid > 1:
        known.add(pid)
        _take(pid, STANDARD, found, pipes)
        pid = _parent(pid)
    others = {int(folder.name) for folder in Path("/proc").glob("[0-9]*")}
    while reading := {pid for pid in others - known if pipes & {name for _, name in _open(pid)}}:
        for pid in reading:
            known.add(pid)
            _take(pid, (), found, pipes)
    return found


def identity(path: Path) -> Identity | None:
    """Return the device and inode of a file, None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _take(pid: int, only: tuple[str, ...], found: set[Identity], pipes: set[str]) -> None:
    """Add what the process has open for writing, or ``only`` its descriptors of these numbers."""
    for link, name in _open(pid):
        if (only and link.name not in only) or not _is_written(pid, link.name):
            continue
        if name.startswith("pipe:"):
            pipes.add(name)
        elif (file := identity(link)) is not None:
            found.add(file)


def _is_written(pid: int, number: str) -> bool:
    try:
        match = _FLAGS.search(Path(f"/proc/{pid}/fdinfo/{number}").read_text(encoding="ascii"))
    except OSError:
        return False
    return match is not None and int(match[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _open(pid: int) -> Iterator[tuple[Path, str]]:
    """Yield the open descriptors of a process, each with what it names; none of another user's process."""
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield link, str(link.readlink())


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
