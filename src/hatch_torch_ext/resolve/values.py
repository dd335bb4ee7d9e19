"""The input of resolving (``Scope``: an entry, its Python, its settings), and its result, a ``ResolvedWheel``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.remote.settings import IndexSettings
    from hatch_torch_ext.store import Store
    from hatch_torch_ext.values import Entry, Interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedWheel:
    """A wheel at ``url`` (http, https, or file; no credentials).

    ``size`` is in bytes, if known. ``sha256`` is what the index states; bytes that are read by ranges cannot be
    compared with it. ``unverified``: the server's certificate is not checked (pip's ``trusted-host``).
    """

    name: str
    version: str
    url: str
    sha256: str | None
    size: int | None
    unverified: bool = False
    pinned: bool = False
    """The author's own requirement states the hash: all bytes are fetched and compared with it."""

    @property
    def path(self) -> Path | None:
        """Return the path of a wheel on this machine's disk, or None."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def key(self) -> str:
        """Return the key in the store: a hash of where the wheel's bytes come from and what is stated of them.

        The stated hash is not enough: it cannot be checked by ranges, so one index could pass its bytes off as
        another's.
        """
        stamp: tuple[int, ...] = ()
        if (path := self.path) is not None:
            status = path.stat()
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        facts = (self.url, self.unverified, self.pinned, self.sha256, self.size, stamp)
        return hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> ResolvedWheel:
        """Return the wheel that a record describes. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
        wheel = cls(**fields)
        texts = (wheel.name, wheel.version, wheel.url)
        if not all(isinstance(text, str) for text in texts) or not {wheel.unverified, wheel.pinned} <= {True, False}:
            raise TypeError("not a wheel")
        if not isinstance(wheel.sha256, str | None) or not isinstance(wheel.size, int | None):
            raise TypeError("not a wheel")
        urlsplit(wheel.url)
        return wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The scope of resolving and fetching: one entry, its Python, and the settings and folders to use."""

    entry: Entry
    interpreter: Interpreter
    python: Path
    root: Path
    store: Store
    http: Http
    report: Callable[[str], None]

    @property
    def settings(self) -> IndexSettings:
        """Return the settings of package indexes."""
        return self.http.settings
