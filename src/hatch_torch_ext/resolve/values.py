"""What resolving takes and gives: for whom is resolved (``Scope``), and a wheel that was found (``Wheel``)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hatch_torch_ext.environments import Interpreter
    from hatch_torch_ext.matrix import Entry
    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.remote.settings import IndexSettings
    from hatch_torch_ext.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel to be had at ``url`` (http, https, or file; no credentials). ``size`` is in bytes where it is known.

    ``sha256`` is what the index claims: what was read by ranges is not checked against it. ``unverified`` says that the
    server's certificate is not looked at (pip's ``trusted-host``).
    """

    name: str
    version: str
    url: str
    sha256: str | None
    size: int | None
    unverified: bool = False
    pinned: bool = False
    """The author's own requirement names the hash: all bytes are fetched, and held against it."""

    @property
    def path(self) -> Path | None:
        """Return the file of a wheel on this machine's disk, or None."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def key(self) -> str:
        """Return what the wheel is stored under: where its bytes come from, and what is claimed of them.

        The claim alone would let one index speak for another: it is the index's word, and cannot be checked by ranges.
        """
        stamp: tuple[int, ...] = ()
        if (path := self.path) is not None:
            status = path.stat()
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        said = (self.url, self.unverified, self.pinned, self.sha256, self.size, stamp)
        return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def parse(cls, said: Mapping[str, Any]) -> Wheel:
        """Return the wheel that a record describes. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
        wheel = cls(**said)
        texts = (wheel.name, wheel.version, wheel.url)
        if not all(isinstance(text, str) for text in texts) or not {wheel.unverified, wheel.pinned} <= {True, False}:
            raise TypeError("not a wheel")
        if not isinstance(wheel.sha256, str | None) or not isinstance(wheel.size, int | None):
            raise TypeError("not a wheel")
        urlsplit(wheel.url)
        return wheel


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
