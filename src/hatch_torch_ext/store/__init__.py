"""The per-user cache of torch SDKs, shared by projects and by builds that run at once. It believes nobody.

A thing is made in a folder of its own, gets its marker last, is sealed, and is renamed into place: what is there is
whole, whenever the maker was stopped. It is read-only from then on, and held against its seal before each use. Its key
says where its bytes came from: what one index gave is never used for another. Headers that are the same in several
releases are one file with several names (hard links).

The store is its user's alone: a folder that others own or can write is not used. What a build uses it holds until it
ends (``release``), and pruning leaves that alone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hatch_torch_ext import locks
from hatch_torch_ext.store import seal
from hatch_torch_ext.store.seal import MARKER, OTHERS_MAY_WRITE, ChangedError, RecordError, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Whole: TypeAlias = Callable[[Mapping[str, Any]], object]
    Report: TypeAlias = Callable[[str], None]

__all__ = [
    "MARKER",
    "VARIABLE",
    "RecordError",
    "Store",
    "Stored",
    "opened",
    "path",
    "private",
    "record",
    "release",
    "usable",
]

VARIABLE = "HATCH_TORCH_EXT_CACHE"
LEFT_OVER = 24 * 3600.0
"""Seconds after which an unfinished folder belongs to nobody, on a file system that cannot say so by a lock."""
KINDS = ("torch", "nvidia", "stubs", "ccache", "hatch")
FOLDERS = (*KINDS, "blobs", "compiled", "exports", "locks", "resolved", "seals", "unfinished", "work")
TAG = """\
Signature: 8a477f597d28d172789f06886806bc55
# A cache of hatch-torch-ext; `hatch-torch-ext sdk prune` empties it.
"""
FAULTS = (AttributeError, IndexError, KeyError, OSError, TypeError, ValueError, RecursionError, MemoryError)
"""What reading a damaged record can end in."""

_leases: dict[str, int] = {}
_leasing = threading.Lock()


class NotPrivateError(OSError):
    """Others own the store's folder or can write it; ``strerror`` is a clause."""

    def __init__(self, path: Path, clause: str) -> None:
        super().__init__(errno.EPERM, clause, str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One finished thing of the store. ``size`` counts bytes that would be freed with it (links shared: once)."""

    kind: str
    key: str
    title: str
    path: Path
    size: int
    last_used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What reading every byte of the store found: ``damaged`` (title, what differs) is removed already."""

    whole: int
    damaged: tuple[tuple[str, str], ...]


class Store:
    """The store in the folder ``root``, which exists and can be written. What it has to say goes to ``report``."""

    def __init__(self, root: Path, report: Report | None = None) -> None:
        self.root = root
        self.report: Report = report or (lambda _: None)

    def finished(self, kind: str, key: str, whole: Whole = dict) -> tuple[Path, Mapping[str, Any]] | None:
        """Return the folder of a finished thing and what its marker says, or None. Marks it as used, and holds it.

        ``whole`` reads what the marker says: where that fails, or where anything was changed since it was finished, the
        thing is not finished.
        """
        folder = self.root / kind / key
        try:
            lease = locks.take(folder, shared=True)
        except OSError:  # a link, or no folder at all
            return None
        if lease is None:
            return None
        try:
            said = self._believed(kind, key)
            whole(said)
        except ChangedError as error:
            self.report(f"{kind} {key[:12]} in the cache was changed since it was made ({error}): it is made again")
        except FAULTS:
            pass
        else:
            _hold(folder, lease)
            with contextlib.suppress(OSError):
                os.utime(folder / MARKER)
            return folder, said
        os.close(lease)
        return None

    def _believed(self, kind: str, key: str, *, fully: bool = False) -> Mapping[str, Any]:
        """Return what the marker of an unchanged thing says. Raises ``ChangedError``, or one of ``FAULTS``."""
        folder = self.root / kind / key
        name = f"{kind}-{key}.json"
        sealed = self.text("seals", name)
        if sealed is None:
            raise RecordError("it has no seal")
        now = seal.check(folder, seal.Seal.load(sealed), fully=fully)
        if now is not None:
            with contextlib.suppress(OSError):  # a store that is read alone: hashed again the next time
                self.set_text("seals", name, now.dump())
        return record((folder / MARKER).read_bytes())

    @contextlib.contextmanager
    def lock(self, kind: str, key: str) -> Iterator[None]:
        """Hold off every other process and thread that makes the same thing."""
        self.folder("locks")
        path = self.root / "locks" / f"{kind}-{key}.lock"
        with locks.held(path, what=f"{kind} {key[:12]} of the cache", report=self.report):
            yield

    def make(
        self, kind: str, key: str, fill: Callable[[Path], Mapping[str, object]], whole: Whole = dict
    ) -> tuple[Path, Mapping[str, Any]]:
        """Return a finished thing, filled by ``fill`` (folder -> what the marker says) unless it is there already."""
        if (there := self.finished(kind, key, whole)) is not None:
            return there
        with self.lock(kind, key):
            if (there := self.finished(kind, key, whole)) is not None:
                return there
            final = self.root / kind / key
            remove(final)  # not finished: the rest of an older layout, or of a hand that changed files
            with self.scratch() as scratch:
                made = scratch / "made"
                made.mkdir()
                said = dict(fill(made))
                marker = made / MARKER
                marker.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n", encoding="utf-8")
                marker.chmod(0o444)
                _make_read_only(made)
                self.folder(kind)
                self.set_text("seals", f"{kind}-{key}.json", seal.of(made).dump())
                made.rename(final)
                final.chmod(0o555)
                if (lease := locks.take(final, shared=True)) is not None:
                    _hold(final, lease)
        return final, said

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a folder on the store's file system that is removed afterwards, as are left-overs of killed runs."""
        parent = self.folder("unfinished")
        _sweep(parent)
        lease = None
        while lease is None:  # another's sweep may come between
            folder = Path(tempfile.mkdtemp(dir=parent))
            lease = locks.take(folder)
        try:
            yield folder
        finally:
            remove(folder)
            os.close(lease)

    def put(self, data: bytes, folder: Path, name: str) -> None:
        """Write the new file ``name`` below ``folder``, sharing the bytes with every file of the store that has them.

        Called ten thousand times for one SDK: paths are strings here, since ``pathlib`` would take half of the time.
        """
        target = f"{folder}/{name}"
        digest = hashlib.sha256(data).hexdigest()
        blob = f"{self.root}/blobs/{digest[:2]}/{digest}"
        there = _holds(blob, data)
        if there:
            try:
                _with_parent(target, lambda: os.link(blob, target, follow_symlinks=False))
            except OSError:  # no hard links on this file system, too many of this file, or pruned at this moment
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

    def text(self, kind: str, name: str) -> bytes | None:
        """Return the small record ``name``, or None: also for a link, and for one that another user wrote."""
        try:
            descriptor = os.open(self.root / kind / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        with open(descriptor, "rb") as stream:  # noqa: PTH123 -- a descriptor
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > seal.LARGEST:
                return None
            try:
                return stream.read(seal.LARGEST)
            except OSError:
                return None

    def set_text(self, kind: str, name: str, data: bytes) -> None:
        """Write the small record ``name`` in one step."""
        target = self.root / kind / name
        self.folder(kind)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        with self.scratch() as scratch:
            (scratch / "record").write_bytes(data)
            (scratch / "record").replace(target)

    def remove_text(self, kind: str, name: str) -> None:
        """Remove a record that is damaged: the next run is well."""
        with contextlib.suppress(OSError):
            (self.root / kind / name).unlink()

    def listing(self) -> tuple[Stored, ...]:
        """Return every finished SDK and CUDA header set, sorted by title and key."""
        found = []
        for kind in KINDS:
            for folder in sorted((self.root / kind).glob("*/")):
                marker = folder / MARKER
                try:
                    said, used = record(marker.read_bytes()), marker.stat().st_mtime
                except (OSError, ValueError):
                    continue
                title = str(said.get("title", folder.name))
                size = _own_size(folder)
                found.append(Stored(kind=kind, key=folder.name, title=title, path=folder, size=size, last_used=used))
        return tuple(sorted(found, key=lambda one: (one.kind != "torch", one.title, one.key)))

    def prune(self, *, older_than: float = 0.0, dry_run: bool = False) -> tuple[Stored, ...]:
        """Remove what was not used for ``older_than`` seconds, and blobs and records that nothing needs then.

        Returns what was (or with ``dry_run`` would be) removed. What another build makes or uses at this moment stays,
        which is said.
        """
        now = time.time()
        old = tuple(one for one in self.listing() if now - one.last_used >= older_than)
        compiled = self.compiled(older_than=older_than)
        if dry_run:
            return (*old, *compiled)
        removed = tuple(one for one in old if self._prune_one(one))
        kept = {f"{one.kind}-{one.key}.json" for one in self.listing()}
        records = [*self.root.glob("exports/*/*"), *self.root.glob("resolved/*")]
        for old_record in [*records, *(file for file in self.root.glob("seals/*") if file.name not in kept)]:
            with contextlib.suppress(OSError):
                if now - old_record.stat().st_mtime >= older_than:
                    old_record.unlink()
        for path, _ in self._objects(older_than):
            with contextlib.suppress(OSError):
                path.unlink()
        for blob in self.root.glob("blobs/*/*"):
            with contextlib.suppress(OSError):
                if blob.lstat().st_nlink == 1:
                    blob.unlink()
        return (*removed, *compiled)

    def compiled(self, *, older_than: float = 0.0) -> tuple[Stored, ...]:
        """Return what the compiler cache keeps, as one row; nothing where it is empty."""
        found = [status for _, status in self._objects(older_than)]
        row = Stored(
            kind="compiled",
            key="",
            title=f"{len(found)} objects of the compiler cache",
            path=self.root / "compiled",
            size=sum(status.st_size for status in found),
            last_used=max((status.st_mtime for status in found), default=0.0),
        )
        return (row,) if found else ()

    def _objects(self, older_than: float) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the files of the compiler cache that were not used for so long; ccache touches what it uses."""
        now = time.time()
        for path in self.root.glob("compiled/[0-9a-f]/**/*"):
            with contextlib.suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and now - status.st_mtime >= older_than:
                    yield path, status

    def _prune_one(self, one: Stored) -> bool:
        with self.lock(one.kind, one.key), self.scratch() as scratch:
            lease = locks.take(one.path)
            if lease is None:
                if one.path.exists():
                    self.report(f"{one.title} is in use by a build and stays; prune again when that has ended")
                return False
            one.path.chmod(0o755)  # renaming a folder writes its `..`
            one.path.rename(scratch / "doomed")
            os.close(lease)
        return True

    def verify(self) -> Verified:
        """Read every byte of the store; remove what is not as it was made, so that the next build makes it again."""
        whole, damaged = 0, []
        for one in self.listing():
            problem = self._problem(one)
            whole += problem is None
            if problem is not None:
                damaged.append((one.title, problem))
                with self.lock(one.kind, one.key):
                    remove(one.path)
        for blob in sorted(self.root.glob("blobs/*/*")):
            if seal.hashed(str(blob)) != blob.name:
                damaged.append((f"shared file {blob.name[:12]}", "its bytes differ"))
                blob.unlink()
        return Verified(whole=whole, damaged=tuple(damaged))

    def _problem(self, one: Stored) -> str | None:
        try:
            self._believed(one.kind, one.key, fully=True)
        except (ChangedError, *FAULTS) as error:
            return str(error)
        return None

    def folder(self, name: str) -> Path:
        """Return one of the store's own folders, made if need be. Raises ``OSError`` for a link in its place."""
        folder = self.root / name
        folder.mkdir(mode=0o700, exist_ok=True)
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise NotPrivateError(folder, "it is a link, and a cache has folders of its own there")
        return folder


@contextlib.contextmanager
def using() -> Iterator[None]:
    """Hold what is used of any store until the context ends: a build."""
    try:
        yield
    finally:
        release()


def release() -> None:
    """Let go of everything that this process used of any store: a build has ended."""
    with _leasing:
        for descriptor in _leases.values():
            os.close(descriptor)
        _leases.clear()


def _hold(folder: Path, lease: int) -> None:
    with _leasing:
        previous = _leases.pop(str(folder), None)
        _leases[str(folder)] = lease
    if previous is not None:
        os.close(previous)


def path(environ: Mapping[str, str]) -> Path:
    """Return where the store is, or would be."""
    named = environ.get(VARIABLE)
    if named:
        return Path(named).absolute()
    home = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 -- no error without a home
    return Path(home, "hatch-torch-ext").absolute()


def usable(environ: Mapping[str, str], fallback: Path, report: Report) -> Store:
    """Return the user's store; where it cannot be written or trusted, one in the folder ``fallback``, and say so."""
    wanted = path(environ)
    try:
        return opened(wanted, report)
    except NotPrivateError as error:
        report(
            f"the cache {wanted} is not used: {error.filename}: {error.strerror}; using {fallback} instead. "
            f"Name a folder of your own with {VARIABLE}"
        )
    except OSError as error:
        report(f"the cache {wanted} cannot be written ({error.strerror}): using {fallback} instead")
    return opened(fallback, report)


def remove(folder: Path) -> None:
    """Remove a folder of the store, read-only as it may be; of a link, the link."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink(missing_ok=True)
        return
    for parent, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(parent).chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


def private(root: Path) -> Path:
    """Return the store's folder, made if need be, for its user alone."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root


def opened(root: Path, report: Report | None = None) -> Store:
    """Return the store in ``root``, made if need be. Raises ``OSError`` when it cannot be written or trusted."""
    report = report or (lambda _: None)
    private(root)
    tag = root / "CACHEDIR.TAG"  # backup programs leave such folders out
    ours = tag.exists() or not any(root.iterdir())
    _check_private(root, root.stat(), ours=ours, report=report)
    for name in FOLDERS:
        try:
            status = (root / name).lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise NotPrivateError(root / name, "it is a link, and a cache has folders of its own there")
        _check_private(root / name, status, ours=ours, report=report)
    with tempfile.TemporaryFile(dir=root):
        pass
    if not tag.exists():
        tag.write_text(TAG, encoding="utf-8")
    return Store(root, report)


def _check_private(folder: Path, status: os.stat_result, *, ours: bool, report: Report) -> None:
    """Raise ``NotPrivateError`` where others own ``folder`` or can write it; take that from them where it is ``ours``.

    What others may have written before is noticed by the seals, which look at each file's owner.
    """
    if status.st_uid != os.geteuid():
        raise NotPrivateError(folder, f"it belongs to another user (uid {status.st_uid})")
    if not status.st_mode & OTHERS_MAY_WRITE:
        return
    if not ours:
        raise NotPrivateError(folder, "other users can write it, and it holds more than a cache")
    folder.chmod(stat.S_IMODE(status.st_mode) & ~(stat.S_IRWXG | stat.S_IRWXO))
    report(f"{folder}, of the cache, could be written by other users: it is private now")


def _sweep(unfinished: Path) -> None:
    """Remove what dead processes left: a living one holds its folder."""
    for old in unfinished.iterdir():
        with contextlib.suppress(OSError):
            if old.is_symlink():
                old.unlink()
                continue
            try:
                lease = locks.take(old, certain=True)
            except OSError as error:
                if error.errno not in locks.UNSUPPORTED or time.time() - old.stat().st_mtime < LEFT_OVER:
                    continue
                lease = None
            else:
                if lease is None:
                    continue
            try:
                remove(old)
            finally:
                if lease is not None:
                    os.close(lease)


def _holds(blob: str, data: bytes) -> bool | None:
    """Say whether the shared file ``blob`` has the bytes ``data``; None where there is none. What lies is removed."""
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
    """Call ``make``, which makes the file ``path``; make the folders above it only when they are missing."""
    try:
        make()
    except FileNotFoundError:
        os.makedirs(path.rpartition("/")[0], exist_ok=True)  # noqa: PTH103
        make()


def _read_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o444)


def _make_read_only(folder: Path) -> None:
    """Make every folder below ``folder`` read-only; the files are already."""
    for parent, _, _ in os.walk(folder, topdown=False):
        if Path(parent) != folder:  # a folder must be writable to be renamed
            Path(parent).chmod(0o555)


def _own_size(folder: Path) -> int:
    """Return the bytes that only this folder holds: a file with other names elsewhere counts in part."""
    total = 0.0
    for parent, _, names in os.walk(folder):
        for name in names:
            status = Path(parent, name).stat()
            total += status.st_size / max(status.st_nlink - 1, 1)  # one of the links is the blob's own
    return int(total)
