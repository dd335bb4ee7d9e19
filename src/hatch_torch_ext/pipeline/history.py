"""What entries took in earlier builds, by name: ``history.json``, which is handed to other machines (``--times``)."""

from __future__ import annotations

import dataclasses
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.base import atomic, untrusted
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.pipeline import folders

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from hatch_torch_ext.values import Task

HISTORY = "history.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """The seconds that an entry took when it was last compiled in full, and its largest compiler's memory in bytes."""

    seconds: float
    peak: int


class History:
    """The known figures of entries by name, kept in ``file``; thread-safe."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        try:
            figures = untrusted.json(self._file.read_text(encoding="utf-8"))
            self._took = {
                name: Took(seconds=float(each["seconds"]), peak=int(each["peak"])) for name, each in figures.items()
            }
        except untrusted.DAMAGED:
            self._took = {}

    @classmethod
    def named(cls, file: Path | None, names: Collection[str], *, root: Path) -> History | None:
        """Return the content of the file that ``--times`` names, or None without one.

        Raises ``ConfigurationError`` if it knows none of the entries ``names``; the message says which file does, of
        those that builds of the project in ``root`` left.
        """
        if file is None:
            return None
        history = cls(file)
        if history.knows(names):
            return history
        left = folders.left(root, HISTORY)
        knows = left is not None and cls(left).knows(names)
        remedy = f"name {left}, which does" if knows else "leave `--times` out"
        raise ConfigurationError(f"`--times {file}` does not say what any entry of the matrix took: {remedy}.")

    def knows(self, names: Collection[str]) -> bool:
        """Return whether any of the entries has figures."""
        return any(name in self._took for name in names)

    def of(self, name: str) -> Took | None:
        """Return what the entry took, or None."""
        return self._took.get(name)

    def note(self, name: str, took: Took) -> None:
        """Record the larger figures of this and earlier builds: most builds compile only a part."""
        with self._lock:
            if (before := self._took.get(name)) is not None:
                took = Took(seconds=max(took.seconds, before.seconds), peak=max(took.peak, before.peak))
            self._took[name] = took
            recorded = {each: dataclasses.asdict(figures) for each, figures in self._took.items()}
            atomic.write_held(self._file, json.dumps(recorded))

    def longest_first(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks, the longest first; of those without figures, those with CUDA first."""

        def weight(task: Task) -> tuple[bool, float, bool]:
            took = self.of(task.name)
            return took is None, took.seconds if took else 0.0, task.entry.gpu is not None

        return sorted(tasks, key=weight, reverse=True)
