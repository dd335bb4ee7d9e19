"""What builds clean up: programs that a killed build left; with `keep = "results"`, build trees and environments."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from collections import Counter
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import Stopped
from hatch_torch_ext.base.process import Family
from hatch_torch_ext.pipeline import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hatch_torch_ext.values import Task

KEPT = ("debug", "log.txt", memory.FILE, *memory.RESULTS)
"""What stays in an entry's folder: its results and its logs."""
LOOK = 0.1


def take_over(folder: Path) -> Family:
    """End the programs that a killed build left in ``folder``; return the family of those that builds there start.

    The caller holds the folder's lock, so no other build is running there.
    """
    family = Family(hashlib.sha256(os.fsencode(folder)).hexdigest()[:16])
    family.end_orphans()
    return family


class Cleanup:
    """Limits the entries that have an environment at once to ``most``, and removes what finished entries leave.

    That is their build tree, and an environment that no other entry uses: a later entry makes it again. Environments
    outside of ``work`` are the author's own, and stay; so do those of failed entries, for the next run. Without
    ``most`` everything stays.
    """

    def __init__(self, work: Path, *, most: int | None) -> None:
        self._work, self._room = work, threading.Semaphore(most) if most is not None else None
        self._users: Counter[Path] = Counter()
        self._preparing = False
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def preparing(self, family: Family) -> Iterator[Callable[[Path], None]]:
        """Wait for a free place; provide the function that records the environment which the context makes.

        During the context nothing is removed, since it may be what is about to be used. Raises ``Stopped`` with
        ``family``.
        """
        while self._room is not None and not self._room.acquire(timeout=LOOK):
            if family.stopped:
                raise Stopped
        with self._lock:
            self._preparing = True
        made: list[Path] = []
        try:
            yield made.append
        finally:
            with self._lock:
                self._preparing = False
                self._users.update(made)
                self._remove_unused()

    def finished(self, task: Task, environment: Path) -> None:
        """Remove the build tree of a finished entry, and its environment unless another entry uses it."""
        if self._room is None:
            return
        for path in task.folder.iterdir():
            if path.name not in KEPT:
                _remove(path)
        with self._lock:
            self._users[environment] -= 1
            self._remove_unused()

    def ended(self) -> None:
        """Free the place of an entry that finished or failed."""
        if self._room is not None:
            self._room.release()

    def _remove_unused(self) -> None:
        if self._preparing:
            return
        for environment in [each for each, users in self._users.items() if users == 0]:
            del self._users[environment]
            if environment.is_relative_to(self._work):
                (environment.parent / "finished.json").unlink(missing_ok=True)
                _remove(environment)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
