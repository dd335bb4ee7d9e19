"""The per-user cache of torch SDKs: content-keyed, shared by projects and by builds that run at once.

A thing is made in a folder of its own, gets its marker last, and is renamed into place: what is there is whole,
whenever the maker was stopped. It is read-only from then on. Headers that are the same in several releases are one
file with several names (hard links).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import filelock
import platformdirs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Whole: TypeAlias = Callable[[Mapping[str, Any]], object]

VARIABLE = "HATCH_TORCH_EXT_CACHE"
MARKER = "finished.json"
LEFT_OVER = 24 * 3600.0  # seconds after which an unfinished folder belongs to nobody
KINDS = ("torch", "nvidia", "stubs")
TAG = """\
Signature: 8a477f597d28d172789f06886806bc55
# A cache of hatch-torch-ext; `hatch-torch-ext sdk prune` empties it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One finished thing of the store. ``size`` counts bytes that would be freed with it (links shared: once)."""

    kind: str
    key: str
    title: str
    path: Path
    size: int
    last_used: float


class Store:
    """The store in the folder ``root``, which exists and can be written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def finished(self, kind: str, key: str, whole: Whole = dict) -> tuple[Path, Mapping[str, Any]] | None:
        """Return the folder of a finished thing and what its marker says, or None. Marks it as used now.

        ``whole`` reads what the marker says: where that fails, the marker is damaged and the thing not finished.
        """
        folder = self.root / kind / key
        try:
            said = json.loads((folder / MARKER).read_text(encoding="utf-8"))
            whole(said)
        except (AttributeError, KeyError, OSError, TypeError, ValueError):
            return None
        with contextlib.suppress(OSError):
            os.utime(folder / MARKER)
        return folder, said

    @contextlib.contextmanager
    def lock(self, kind: str, key: str) -> Iterator[None]:
        """Hold off every other process and thread that makes the same thing."""
        locks = self.root / "locks"
        locks.mkdir(exist_ok=True)
        with filelock.FileLock(locks / f"{kind}-{key}.lock", thread_local=False):
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
            remove(final)  # without a marker: the rest of an older layout or of a hand that deleted files
            with self.scratch() as scratch:
                made = scratch / "made"
                made.mkdir()
                said = dict(fill(made))
                marker = made / MARKER
                marker.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n", encoding="utf-8")
                marker.chmod(0o444)
                _seal(made)
                final.parent.mkdir(exist_ok=True)
                made.rename(final)
                final.chmod(0o555)
        return final, said

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a folder on the store's file system that is removed afterwards, as are left-overs of killed runs."""
        parent = self.root / "unfinished"
        parent.mkdir(exist_ok=True)
        for old in parent.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - old.stat().st_mtime > LEFT_OVER:
                    remove(old)
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        finally:
            remove(folder)

    def put(self, data: bytes, folder: Path, name: str) -> None:
        """Write the new file ``name`` below ``folder``, sharing the bytes with every file of the store that has them.

        Called ten thousand times for one SDK: paths are strings here, since ``pathlib`` would take half of the time.
        """
        target = f"{folder}/{name}"
        digest = hashlib.sha256(data).hexdigest()
        shelf = f"{self.root}/blobs/{digest[:2]}"
        blob = f"{shelf}/{digest}"
        try:
            known = os.stat(blob).st_size == len(data)  # noqa: PTH116
            if known:
                _with_parent(target, lambda: os.link(blob, target))
                return
        except FileNotFoundError:
            known = False
        except OSError:  # no hard links on this file system, or too many of this file
            known = True

        def write() -> None:
            with open(target, "xb", opener=_read_only) as stream:
                stream.write(data)

        _with_parent(target, write)
        if not known:
            with contextlib.suppress(OSError):
                _with_parent(blob, lambda: os.link(target, blob))

    def text(self, kind: str, name: str) -> bytes | None:
        """Return the small record ``name``, or None."""
        try:
            return (self.root / kind / name).read_bytes()
        except OSError:
            return None

    def set_text(self, kind: str, name: str, data: bytes) -> None:
        """Write the small record ``name`` in one step."""
        target = self.root / kind / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with self.scratch() as scratch:
            (scratch / "record").write_bytes(data)
            (scratch / "record").replace(target)

    def listing(self) -> tuple[Stored, ...]:
        """Return every finished SDK and CUDA header set, sorted by title and key."""
        found = []
        for kind in KINDS:
            for folder in sorted((self.root / kind).glob("*/")):
                marker = folder / MARKER
                try:
                    said, used = json.loads(marker.read_text(encoding="utf-8")), marker.stat().st_mtime
                except (OSError, ValueError):
                    continue
                title = str(said.get("title", folder.name))
                size = _own_size(folder)
                found.append(Stored(kind=kind, key=folder.name, title=title, path=folder, size=size, last_used=used))
        return tuple(sorted(found, key=lambda one: (one.kind != "torch", one.title, one.key)))

    def prune(self, *, older_than: float = 0.0, dry_run: bool = False) -> tuple[Stored, ...]:
        """Remove what was not used for ``older_than`` seconds, and blobs and records that nothing needs then.

        Returns what was (or with ``dry_run`` would be) removed. What another build makes at this moment stays.
        """
        now = time.time()
        old = tuple(one for one in self.listing() if now - one.last_used >= older_than)
        if dry_run:
            return old
        for one in old:
            with self.lock(one.kind, one.key), self.scratch() as scratch:
                doomed = scratch / "doomed"
                one.path.chmod(0o755)  # renaming a folder writes its `..`
                one.path.rename(doomed)
        for record in [*self.root.glob("exports/*/*"), *self.root.glob("resolved/*")]:
            with contextlib.suppress(OSError):
                if now - record.stat().st_mtime >= older_than:
                    record.unlink()
        for blob in self.root.glob("blobs/*/*"):
            with contextlib.suppress(OSError):
                if blob.stat().st_nlink == 1:
                    blob.unlink()
        return old


def path(environ: Mapping[str, str]) -> Path:
    """Return where the store is, or would be."""
    named = environ.get(VARIABLE)
    return Path(named).absolute() if named else platformdirs.user_cache_path("hatch-torch-ext", appauthor=False)


def usable(environ: Mapping[str, str], fallback: Path, report: Callable[[str], None]) -> Store:
    """Return the user's store; where it cannot be written, one in the folder ``fallback``, and say so."""
    wanted = path(environ)
    try:
        return opened(wanted)
    except OSError as error:
        report(f"the cache {wanted} cannot be written ({error.strerror}): using {fallback} instead")
    return opened(fallback)


def remove(folder: Path) -> None:
    """Remove a folder of the store, read-only as it may be."""
    if not folder.is_dir():
        return
    for parent, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(parent).chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


def opened(root: Path) -> Store:
    """Return the store in ``root``, made if need be. Raises ``OSError`` when it cannot be written."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=root):
        pass
    tag = root / "CACHEDIR.TAG"  # backup programs leave such folders out
    if not tag.exists():
        tag.write_text(TAG, encoding="utf-8")
    return Store(root)


def _with_parent(path: str, make: Callable[[], None]) -> None:
    """Call ``make``, which makes the file ``path``; make the folders above it only when they are missing."""
    try:
        make()
    except FileNotFoundError:
        os.makedirs(path.rpartition("/")[0], exist_ok=True)  # noqa: PTH103
        make()


def _read_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o444)


def _seal(folder: Path) -> None:
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
