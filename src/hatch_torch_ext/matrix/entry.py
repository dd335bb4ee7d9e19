"""One entry of the matrix: what its variables, its environment and its requirement of torch say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext import inside

if TYPE_CHECKING:
    from collections.abc import Mapping

RESERVED = frozenset({"cache", "compiling", "cuda", "environments", "hatch", "lock", "owner", "wheel", "events.jsonl"})
"""What lies in the work folder beside the folders of entries."""


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
    torch: str | None = None
    """The release line (``2.8``) that variable or requirement declares; None where only the installed torch tells."""
    cuda: str | None = None
    """What the variable ``cuda`` declares: ``cpu`` or a version (``12.8``); None where it is left open."""
    env_vars: tuple[tuple[str, str], ...] = ()
    """Environment variables that the hatch environment sets."""
    machine: str | None = None
    """What the variable ``machine`` declares (``aarch64``); None for that of the machine that builds."""

    @property
    def folder(self) -> str:
        """Return the name of the entry's folder below the work folder: no value of the matrix leads elsewhere."""
        return inside.safe(self.name, reserved=RESERVED)

    def variable(self, name: str) -> str | None:
        """Return the value of the matrix variable ``name``, or None."""
        return dict(self.variables).get(name)

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of the build: those of ``base`` under the hatch environment's own."""
        return {**base, **dict(self.env_vars)}
