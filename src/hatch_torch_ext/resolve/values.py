"""What resolving takes and gives: for whom is resolved (``Scope``), and a wheel that was found (``Wheel``)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from hatch_torch_ext.environments import Interpreter
    from hatch_torch_ext.matrix import Entry
    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.remote.settings import IndexSettings
    from hatch_torch_ext.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel to be had at ``url`` (http, https, or file; no credentials). ``size`` is in bytes where it is known."""

    name: str
    version: str
    url: str
    sha256: str | None
    size: int | None

    @property
    def path(self) -> Path | None:
        """Return the file of a wheel on this machine's disk, or None."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def key(self) -> str:
        """Return what the wheel is stored under: its hash; for one without, its address and size (weaker)."""
        if self.sha256 is not None:
            return self.sha256
        path = self.path
        stamp = f"{path.stat().st_size} {path.stat().st_mtime_ns}" if path is not None else self.size
        return "unhashed-" + hashlib.sha256(f"{self.url} {stamp}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """For whom is resolved and fetched: one entry, its Python, and where things come from and go to."""

    entry: Entry
    interpreter: Interpreter
    python: Path
    root: Path
    store: Store
    http: Http
    report: Callable[[str], None]

    @property
    def settings(self) -> IndexSettings:
        """Return where packages come from."""
        return self.http.settings
