"""Removes build trees and environments as entries finish: ``keep = "results"``, for a matrix larger than the disk."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from typing import TYPE_CHECKING

from hatch_torch_ext.pipeline import record

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.pipeline.task import Task

KEPT = ("debug", "log.txt", "package", record.FILE, "repaired")
"""What stays of an entry's folder: what it gave, and what was said."""


class Leftovers:
    """Counts who needs which environment. Those outside ``work`` are the author's own, and stay."""

    def __init__(self, work: Path, entries: int) -> None:
        self._work, self._unprepared = work, entries
        self._users: Counter[Path] = Counter()
        self._lock = threading.Lock()

    def prepared(self, environment: Path | None) -> None:
        """Note that an entry has its environment (None: it will get none)."""
        with self._lock:
            self._unprepared -= 1
            if environment is not None:
                self._users[environment] += 1
            self._remove_unused()

    def finished(self, task: Task, environment: Path) -> None:
        """Remove what is left of a finished entry, and environments that no other needs."""
        for path in (task.work / task.entry.folder).iterdir():
            if path.name not in KEPT:
                _remove(path)
        with self._lock:
            self._users[environment] -= 1
            self._remove_unused()

    def _remove_unused(self) -> None:
        if self._unprepared:
            return  # the next may need any of them
        for environment, users in list(self._users.items()):
            if users == 0 and environment.is_relative_to(self._work):
                (environment.parent / "finished.json").unlink(missing_ok=True)
                _remove(environment)
                del self._users[environment]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
