"""One entry to be built, as a value; it does not say who builds it, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values import Entry, TorchFolders


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What a machine that builds an entry gets of the project, besides the task."""

    version: str = ""
    """The project's version: where tags say it, it is known only here."""
    files: Callable[[], Sequence[Path]] = tuple
    """Returns the files with which the project can be built elsewhere; called only where something is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one entry is built from: plain values, so that it can be sent to another machine."""

    entry: Entry
    config: Config
    work: Path
    """The folder of all work; the entry's own folder is in it."""
    installed: TorchFolders | None = None
    """The torch to build for, if it is installed already: nothing is fetched, and no environment is made."""

    @property
    def name(self) -> str:
        """Return the entry's name."""
        return self.entry.name

    @property
    def log(self) -> Path:
        """Return the file with the whole output of the entry's build."""
        return self.work / self.entry.folder / "log.txt"
