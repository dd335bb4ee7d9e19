"""Entries of the matrix, the selectors over them, and labels; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One generated environment of the matrix.

    ``variables`` are the matrix's own, by name, in hatch's order (``torch``, ``python``, ``cuda``, others).
    ``dependencies`` are the environment's, fully resolved by hatch, torch's requirement among them.
    ``torch_requirement`` is that one requirement as written (``torch==2.8.*``).
    """

    name: str
    variables: tuple[tuple[str, str], ...]
    dependencies: tuple[str, ...]
    torch_requirement: str
    python: str | None
    """The Python that the environment asks for (``3.11``), or None for hatch's default."""
    stable_abi: bool = False

    def variable(self, name: str) -> str | None:
        """Return the value of the matrix variable ``name``, or None."""
        return dict(self.variables).get(name)
