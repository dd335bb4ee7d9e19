"""The cache of builds at first use: what is in it, what one installed torch loads, and what is removed from it.

It is a ``Store`` with these folders:

- ``built/<distribution>-<key>``: the files of one build; the key holds everything that the build depends on.
- ``views/<name>``: what one installed torch loads: the same files, and symbolic links to that torch where their RPATHs
  lead. The loader knows the name without asking a compiler or a GPU.
- ``failed``: the whole output of the last failed build of each view.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext import store
from hatch_torch_ext.base import escape, mounts, untrusted
from hatch_torch_ext.base.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from hatch_torch_ext.store import Store

OTHERS_MAY_WRITE = 0o022
VARIABLE = "TORCH_EXT_BUILD_CACHE"
LIMIT = "TORCH_EXT_BUILD_CACHE_SIZE"
DEFAULT_LIMIT = 5_000_000_000
"""Limit of the cache in bytes; the builds that were unused for longest are removed first."""
BUILT, VIEWS, FAILED = "built", "views", "failed"
VARIANT = "variant.json"
ELSEWHERE = f"Name a folder of your own, with room for it: {VARIABLE}=/path/to/folder"


def check_place(cache: Path) -> None:
    """Raise ``ConfigurationError`` if files in this folder cannot be loaded, or if CMake cannot name it."""
    try:
        str(cache).encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"the name of the cache {escape.name(cache)} is not text. {ELSEWHERE}") from error
    if not mounts.runs_programs(str(cache)):
        raise ConfigurationError(
            f"the cache {cache} is on a file system mounted `noexec`: no library there can be loaded. {ELSEWHERE}"
        )


def is_whole(cache: Store, view: str) -> bool:
    """Return whether the loader takes the view: every file has its size, and only this user can have written it."""
    folder = cache.root / VIEWS / view
    try:
        record = (folder / VARIANT).read_text(encoding="utf-8")
        files = [(folder / file["path"], file["size"]) for file in untrusted.json(record)["variant"]["files"]]
        if any(os.path.realpath(path) != f"{os.path.realpath(folder)}/{path.relative_to(folder)}" for path, _ in files):
            return False  # a path leads out of the folder
        return all(map(_is_own, (folder, folder / VARIANT, *(path for path, _ in files)))) and all(
            path.stat().st_size == size for path, size in files
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _is_own(path: Path) -> bool:
    status = path.lstat()
    return status.st_uid == os.geteuid() and not status.st_mode & OTHERS_MAY_WRITE


def keep_log(cache: Store, view: str, log: Path) -> Path:
    """Keep the log of a failed build in the cache, and return its path."""
    folder = cache.root / FAILED
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / f"{view}.txt"
    with contextlib.suppress(OSError):
        shutil.copyfile(log, target)
    return target


def keep_within_limit(cache: Store, view: str, say: Callable[[str], None]) -> None:
    """Remove the builds unused for longest until the cache is within its limit; the newest build always stays."""
    limit = _limit_of(os.environ, say)
    builds = sorted(_builds(cache), key=lambda each: each.used)
    total = sum(each.size for each in builds)
    newest = max(builds, key=lambda each: each.used, default=None)
    for each in builds:
        if total <= limit:
            return
        if each is newest or view in {path.name for path in each.views}:
            continue
        say(f"the cache is larger than {limit} bytes ({LIMIT}): removing {each.folder.name}")
        for path in (*each.views, each.folder):
            store.remove(path)
        total -= each.size


def _limit_of(environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    from hatch_torch_ext.config import kinds

    text = environ.get(LIMIT, "").strip()
    if not text:
        return DEFAULT_LIMIT
    try:
        return kinds.size(int(text) if text.isdigit() else text)
    except ValueError as error:
        say(f"{LIMIT} {error}: {DEFAULT_LIMIT} bytes are kept")
        return DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedBuild:
    """A build in the cache: its bytes, and when one of its views was last loaded, in seconds since 1970."""

    folder: Path
    size: int
    used: float
    views: tuple[Path, ...]


def _builds(cache: Store) -> Iterator[_CachedBuild]:
    views: dict[str, list[Path]] = {}
    for file in (cache.root / VIEWS).glob(f"*/{VARIANT}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            views.setdefault(untrusted.json(file.read_text(encoding="utf-8"))["key"], []).append(file.parent)
    for folder in (cache.root / BUILT).glob("*/"):
        own = views.get(folder.name, [])
        times = [0.0]
        for each in own:
            with contextlib.suppress(OSError):
                times.append((each / VARIANT).stat().st_mtime)
        size = 0
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                size += path.lstat().st_size if path.is_file() else 0
        yield _CachedBuild(folder=folder, size=size, used=max(times), views=tuple(own))
