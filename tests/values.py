"""Values of the stages for tests: each has sensible fields, and a test names only those that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.values import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable


def entry(
    name: str = "matrix.2.8", *, variables: Iterable[tuple[str, str]] = (), cuda: str | None = None, **fields: Any
) -> Entry:
    """Return an entry of a matrix; its variable ``cuda``, or the argument, is read as the matrix reads it."""
    named = dict(variables) if cuda is None else {**dict(variables), "cuda": cuda}
    found = Backend.parse(named["cuda"]) if "cuda" in named else None
    defaults = {"dependencies": (), "torch_requirement": "torch==2.8.*", "python": None, "backend": found}
    return Entry(name=name, variables=tuple(named.items()), **{**defaults, **fields})
