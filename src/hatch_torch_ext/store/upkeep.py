"""Upkeep of a store: its items are listed, removed if long unused, and verified byte by byte."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import locks
from hatch_torch_ext.store import FAULTS, remove, seal
from hatch_torch_ext.store.seal import KINDS, MARKER, ChangedError, record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One item of the store. ``size`` is the bytes that removing it frees; a shared file counts in part.

    An item whose marker cannot be read is named after its folder: no build uses it.
    """

    kind: str
    key: str
    title: str
    path: Path
    size: int
    last_used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of reading every byte of the store. The ``damaged`` items (title, what differs) have been removed."""

    whole: int
    damaged: tuple[tuple[str, str], ...]


def listing(store: Store) -> tuple[Stored, ...]:
    """Return everything among the items of ``store``, SDKs of torch first, then by title and key."""
    found = []
    for kind in KINDS:
        for path in sorted((store.root / kind).glob("*")):
            title, marker = path.name, path / MARKER
            try:
                used = path.lstat().st_mtime
            except OSError:  # another process has removed it
                continue
            with contextlib.suppress(OSError, ValueError):
                if _is_folder(path):
                    title = str(record(marker.read_bytes()).get("title", title))
                    used = marker.stat().st_mtime
            size = _own_size(path)
            found.append(Stored(kind=kind, key=path.name, title=title, path=path, size=size, last_used=used))
    return tuple(sorted(found, key=lambda one: (one.kind != "torch", one.title, one.key)))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def prune(store: Store) -> tuple[Stored, ...]:
    """Remove the items, and the blobs and records that no item needs then; return the removed items.

    An item in use by another build stays, and a message says so.
    """
    objects = compiled(store)
    removed = tuple(one for one in listing(store) if _prune_one(store, one))
    kept = {f"{one.kind}-{one.key}.json" for one in listing(store)}
    records = [*store.root.glob("exports/*/*"), *store.root.glob("resolved/*")]
    for old_record in [*records, *(file for file in store.root.glob("seals/*") if file.name not in kept)]:
        with contextlib.suppress(OSError):
            old_record.unlink()
    for path, _ in _objects(store):
        with contextlib.suppress(OSError):
            path.unlink()
    for blob in store.root.glob("blobs/*/*"):
        with contextlib.suppress(OSError):
            if blob.lstat().st_nlink == 1:
                blob.unlink()
    return (*removed, *objects)


def compiled(store: Store) -> tuple[Stored, ...]:
    """Return the compiler cache as one row, or an empty tuple if the cache is empty."""
    found = [status for _, status in _objects(store)]
    row = Stored(
        kind="compiled",
        key="",
        title=f"{len(found)} objects of the compiler cache",
        path=store.root / "compiled",
        size=sum(status.st_size for status in found),
        last_used=max((status.st_mtime for status in found), default=0.0),
    )
    return (row,) if found else ()


def _objects(store: Store) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files of the compiler cache."""
    for path in store.root.glob("compiled/[0-9a-f]/**/*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield path, status


def _prune_one(store: Store, one: Stored) -> bool:
    with store.lock(one.kind, one.key), store.scratch() as scratch:
        if not _is_folder(one.path):
            remove(one.path)
            return True
        lease = locks.take(one.path)
        if lease is None:
            if one.path.exists():
                store.report(f"{one.title} is in use by a build and stays; prune again when that has ended")
            return False
        one.path.chmod(0o755)  # renaming a folder writes its entry `..`
        one.path.rename(scratch / "doomed")
        os.close(lease)
    return True


def verify(store: Store) -> Verified:
    """Read every byte of the store, and remove items that were changed; the next build makes them again."""
    whole, damaged = 0, []
    for one in listing(store):
        problem = _problem(store, one)
        whole += problem is None
        if problem is not None:
            damaged.append((one.title, problem))
            with store.lock(one.kind, one.key):
                remove(one.path)
    for blob in sorted(store.root.glob("blobs/*/*")):
        if seal.hash_file(str(blob)) != blob.name:
            damaged.append((f"shared file {blob.name[:12]}", "its bytes differ"))
            blob.unlink()
    return Verified(whole=whole, damaged=tuple(damaged))


def _problem(store: Store, one: Stored) -> str | None:
    if not _is_folder(one.path):
        return "it is not a folder"
    try:
        store.verified(one.kind, one.key, fully=True)
    except (ChangedError, *FAULTS) as error:
        return str(error)
    return None


def _own_size(folder: Path) -> int:
    """Return the bytes that removing the folder frees; a file with further hard links counts in part."""
    if not _is_folder(folder):
        return folder.lstat().st_size
    total = 0.0
    for parent, _, names in os.walk(folder):
        for name in names:
            status = Path(parent, name).lstat()
            total += status.st_size / max(status.st_nlink - 1, 1)  # one of the links is the blob
    return int(total)
