"""Which members of an archive may be unpacked: decided from the directory, before a byte is read."""

from __future__ import annotations

import itertools
import stat
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import WheelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

MAX_MEMBERS = 100_000
# Real wheels, device code included, stay below 20:1; deflate can reach 1000:1.
MAX_RATIO = 30
RATIO_FREE_BYTES = 64 << 20
MAX_NAME = 255
"""Longest component of a path in bytes, the limit of file systems."""
MAX_PATH = 1024
"""Longest path in bytes, the limit of the strictest common system."""
# What writing, copying and unpacking tools use; bzip2 and lzma are valid in a zip, but installers do not test them.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1
LOCAL_HEADER = 30
SHOWN = 50
"""Number of problems of one kind that are listed one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A fault of the archive itself: an audit code, the member, and a message; all texts are printable."""

    code: str
    file: str
    message: str


class Problems:
    """The faults of an archive: the first ones of each kind and how many more there are."""

    def __init__(self) -> None:
        self._found: list[Problem] = []
        self._counts: dict[str, int] = {}

    def add(self, code: str, file: str, message: str) -> None:
        """Record a problem; ``file`` and ``message`` may hold any text."""
        self._counts[code] = self._counts.get(code, 0) + 1
        if self._counts[code] <= SHOWN:
            self._found.append(Problem(code=code, file=escape.name(file), message=escape.line(message)))

    def all(self) -> tuple[Problem, ...]:
        """Return the problems in the order in which they were found, those that were only counted at the end."""
        more = [
            Problem(code=code, file="other files", message=f"{count - SHOWN} more are faulty in the same way")
            for code, count in sorted(self._counts.items())
            if count > SHOWN
        ]
        return (*self._found, *more)


def select(path: Path, archive: zipfile.ZipFile, problems: Problems) -> list[zipfile.ZipInfo]:
    """Return the members that may be read, in the order of the archive; record each other one in ``problems``."""
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise WheelError(
            f"{path}: has {len(infos)} members, more than the {MAX_MEMBERS} that are read. Do not trust this wheel"
        )
    _refuse_bombs(path, archive, infos)
    chosen: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        fault = _name_fault(info)
        if fault is not None:
            problems.add("unsafe-path", info.orig_filename, fault)
        elif info.is_dir():
            continue
        elif info.filename in chosen:
            message = "is in the archive twice: installers take one of them"
            problems.add("duplicate-file", info.filename, message)
        else:
            chosen[info.filename] = info
    return _without_clashes(chosen, problems)


def _without_clashes(chosen: Mapping[str, zipfile.ZipInfo], problems: Problems) -> list[zipfile.ZipInfo]:
    """Leave out a file that is also the folder of another file, which no file system allows."""
    # Sorted by path components, a file is followed directly by the files below a folder of the same name. No name holds
    # a NUL.
    ordered = sorted(name.replace("/", "\0") for name in chosen)
    clashes = {
        one.replace("\0", "/") for one, following in itertools.pairwise(ordered) if following.startswith(f"{one}\0")
    }
    for name in chosen:
        if name in clashes:
            problems.add("duplicate-file", name, "is a file and a folder at once")
    return [info for name, info in chosen.items() if name not in clashes]


def _refuse_bombs(path: Path, archive: zipfile.ZipFile, infos: Iterable[zipfile.ZipInfo]) -> None:
    """Refuse overlapping members and archives with an implausible expansion, before a byte is unpacked."""
    end = 0
    total = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise WheelError(
                f"{path}: members of the archive overlap (as in a zip bomb). Build or fetch the wheel again"
            )
        end = info.header_offset + LOCAL_HEADER + info.compress_size
        total += info.file_size
    if end > archive.start_dir:
        raise WheelError(
            f"{path}: members of the archive reach beyond its end: it is truncated. Build or fetch the wheel again"
        )
    size = path.stat().st_size
    if total > MAX_RATIO * size + RATIO_FREE_BYTES:
        raise WheelError(
            f"{path}: {size} bytes say that they unpack to {total}, as a zip bomb does. "
            "It is not read: build or fetch the wheel again"
        )


def _name_fault(info: zipfile.ZipInfo) -> str | None:
    """Return why a member must not be unpacked, or None."""
    name = info.orig_filename
    size = len(name.encode(errors="replace"))
    if size > MAX_PATH:
        return f"its name has {size} bytes, more than file systems take"
    parts = name.removesuffix("/").split("/")
    mode = info.external_attr >> 16
    faults = (
        (name != info.filename or "\0" in name or "\\" in name, "its name holds a NUL or a backslash"),
        (name.startswith("/"), "its name is an absolute path"),
        (":" in parts[0], "its name begins with a drive"),
        (".." in parts, "its name leads out of the folder that it is unpacked into"),
        ("" in parts or "." in parts, "its name has an empty part"),
        (
            any(len(part.encode(errors="replace")) > MAX_NAME for part in parts),
            "its name is longer than file systems take",
        ),
        (not name.isprintable(), "its name has control characters"),
        (stat.S_ISLNK(mode), "it is a symbolic link: installers write the link's text into a file"),
        (stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}, "it is a device, a pipe or a socket"),
        (bool(info.flag_bits & ENCRYPTED), "it is encrypted"),
        (
            info.compress_type not in METHODS,
            f"it is packed by method {info.compress_type}: installers read stored and deflated",
        ),
    )
    return next((text for wrong, text in faults if wrong), None)
