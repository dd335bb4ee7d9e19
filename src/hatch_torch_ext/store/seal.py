"""Whether the store is its user's only, and the seal of an item: a hash of every file, and facts of its inode.

Equal facts show that nothing was written since. If one differs (a header got another hard link, the store was restored
from a backup), the bytes are hashed again, and only different bytes count as a change.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.base import escape, untrusted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

LARGEST = 1 << 26
"""Longest record that is read, in bytes: the seal of 10,000 files has 1.5 MB."""
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
MARKER = "finished.json"
"""Each use sets the time of this file, so only its hash is compared."""
_DIGEST = 1 + 2 * hashlib.sha256().digest_size
"""Letters at the end of a file's text: a blank and the SHA-256."""
RECENTLY = 10.0
"""Seconds for which a file that several items share as a hard link (equal headers of torch) is checked only once."""


class RecordError(ValueError):
    """A record of the store is damaged; the message is a clause."""


class ChangedError(Exception):
    """An item was changed; ``names`` are the files that differ, relative to its folder."""

    def __init__(self, names: list[str]) -> None:
        self.names = sorted(names)
        super().__init__(escape.few([ascii(name)[1:-1] for name in self.names]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """``files``: name -> ``<size> <mtime_ns> <ctime_ns> <inode> <SHA-256>``; ``folders``: ``<mtime_ns> <inode>``.

    One text for each of ten thousand files is read three times as fast as a list of five values.
    """

    files: Mapping[str, str]
    folders: Mapping[str, str]

    def dump(self) -> bytes:
        """Return the seal as the bytes of a record."""
        return json.dumps({"files": self.files, "folders": self.folders}, separators=(",", ":")).encode()

    @classmethod
    def load(cls, data: bytes) -> Seal:
        """Return the seal in a record. Raises ``RecordError``."""
        fields = record(data)
        files, folders = fields.get("files"), fields.get("folders")
        if not (untrusted.is_texts(files) and untrusted.is_texts(folders)):
            raise RecordError("it is not a seal")
        return cls(files=files, folders=folders)  # a text that is cut off equals no file's facts


def record(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a record of the store. Raises ``RecordError`` for anything else."""
    if len(data) > LARGEST:
        raise RecordError("it is too large")
    try:
        value = untrusted.json(data.decode())
        if b"\\" in data and b"\\ud" in data.lower():  # a lone surrogate cannot be encoded
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError, MemoryError) as error:
        raise RecordError("it is not JSON") from error
    if not isinstance(value, dict):
        raise RecordError("it is not an object")
    return value


def of(folder: Path) -> Seal:
    """Return the seal of a folder in its present state."""
    files, folders = {}, {}
    for name, is_folder in _walk(str(folder)):
        path = f"{folder}/{name}"
        if is_folder:
            status = os.stat(path)  # noqa: PTH116 -- ten thousand of them
            folders[name] = _folder_facts(status)
        else:
            digest = hash_file(path)
            files[name] = f"{_facts(os.lstat(path))} {digest}"
    return Seal(files=files, folders=folders)


def check(folder: Path, seal: Seal, *, fully: bool = False) -> Seal | None:
    """Compare a folder with its seal; return None if every fact is the same, else the seal with today's facts.

    With ``fully``, every byte is read. Raises ``ChangedError`` if bytes, owners or names differ.
    """
    if not fully and _is_untouched(str(folder), seal):
        return None
    present = dict(_walk(str(folder)))
    changed = [name for name, is_folder in present.items() if name not in (seal.folders if is_folder else seal.files)]
    changed += [name for name in (*seal.files, *seal.folders) if name not in present]
    files, folders = dict(seal.files), dict(seal.folders)
    for name, is_folder in present.items():
        status = os.lstat(f"{folder}/{name}")
        if status.st_uid != os.geteuid() or status.st_mode & OTHERS_MAY_WRITE:
            changed.append(name)
        elif is_folder:
            folders[name] = _folder_facts(status)
        elif name in files and (fully or name == MARKER or files[name][:-_DIGEST] != _facts(status)):
            digest = files[name].rpartition(" ")[2]
            if not stat.S_ISREG(status.st_mode) or hash_file(f"{folder}/{name}") != digest:
                changed.append(name)
            files[name] = f"{_facts(status)} {digest}"
    if changed:
        raise ChangedError(list(dict.fromkeys(changed)))
    return Seal(files=files, folders=folders)


def _is_untouched(folder: str, seal: Seal) -> bool:
    if MARKER not in seal.files or hash_file(f"{folder}/{MARKER}") != seal.files[MARKER].rpartition(" ")[2]:
        return False
    try:
        base = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:  # ten thousand of them: from the folder on, a look takes half as long
        seen = _recently_seen(os.fstat(base).st_dev)
        for name, sealed in seal.files.items():
            facts = sealed[:-_DIGEST]
            # By another item: the times of this one's folders show that the name still leads to that file.
            if name == MARKER or seen.get(facts, folder) != folder:
                continue
            if _facts(os.stat(name, dir_fd=base, follow_symlinks=False)) != facts:
                return False
            seen[facts] = folder
        for name, known in seal.folders.items():
            if _folder_facts(os.stat(name, dir_fd=base, follow_symlinks=False)) != known:
                return False
    except (OSError, ValueError):
        return False
    finally:
        os.close(base)
    return True


def _recently_seen(device: int) -> dict[str, str]:
    """Return the facts of files of this device that were seen unchanged in the last seconds, and in which item."""
    global _seen  # noqa: PLW0603 -- what several threads share
    now = time.monotonic()
    if _seen[0] != device or now - _seen[1] > RECENTLY:
        _seen = device, now, {}
    return _seen[2]


_seen: tuple[int, float, dict[str, str]] = (0, 0.0, {})


def _facts(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _folder_facts(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns} {status.st_ino}"


def hash_file(path: str) -> str:
    """Return the SHA-256 of a regular file; of anything else, and of an unreadable file, an empty string."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with open(descriptor, "rb", buffering=0) as stream:  # noqa: PTH123 -- a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        digest = hashlib.sha256()
        while data := stream.read(1 << 20):
            digest.update(data)
        return digest.hexdigest()


def _walk(folder: str) -> Iterator[tuple[str, bool]]:
    """Yield (name relative to ``folder``, whether it is a folder) of everything below; the folder itself is ``.``."""
    yield ".", True
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(f"{folder}/{below}") as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                yield below + entry.name, is_folder
                if is_folder:
                    waiting.append(f"{below}{entry.name}/")


KINDS = ("torch", "nvidia", "stubs", "ccache", "hatch")
"""Folders of complete items."""
FOLDERS = (*KINDS, "blobs", "compiled", "exports", "locks", "resolved", "seals", "unfinished", "work")
OTHERS_MAY_ENTER = stat.S_IXGRP | stat.S_IXOTH
WRITABLE = "other users can write it, and it is not empty"
A_LINK = "it is a link, and a cache has real folders there"
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


def check_private(root: Path, report: Callable[[str], None]) -> None:
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
