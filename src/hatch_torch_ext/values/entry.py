"""hatch's matrix, and one entry of it: what its variables, its environment and its torch requirement are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.base import untrusted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hatch_torch_ext.facts.backend import Backend

RESERVED = frozenset({"cache", "compiling", "cuda", "environments", "hatch", "lock", "owner", "wheel", "events.jsonl"})
"""Names in the work folder that are not folders of entries."""


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
    """The release line (``2.8``) that variable or requirement declares; None: only the installed torch tells."""
    backend: Backend | None = None
    """What the variable ``cuda`` names (``cpu``, ``12.8``, ``cu128``); None if it is absent."""
    env_vars: tuple[tuple[str, str], ...] = ()
    """Environment variables that the hatch environment sets."""
    machine: str | None = None
    """The value of the variable ``machine`` (``aarch64``); None for the machine that builds."""

    @property
    def gpu(self) -> Backend | None:
        """Return the GPU's backend that the matrix asks for; None for the CPU, and where it asks for none."""
        return self.backend if self.backend is not None and self.backend.is_gpu else None

    @property
    def is_cpu(self) -> bool:
        """Return whether the matrix asks for a variant for the CPU, whatever torch it is compiled against."""
        return self.backend is not None and not self.backend.is_gpu

    @property
    def folder(self) -> str:
        """Return the name of the entry's folder in the work folder; no value of the matrix can lead out of it."""
        return untrusted.safe(self.name, reserved=RESERVED)

    def variable(self, name: str) -> str | None:
        """Return the value of the matrix variable ``name``, or None."""
        return dict(self.variables).get(name)

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of the build: ``base``, overridden by those of the hatch environment."""
        return {**base, **dict(self.env_vars)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """hatch's answer on one environment and its matrix, entry names in hatch's order.

    ``variables`` are the matrix's, ``dependencies`` resolved for each entry, ``pythons`` the Pythons that entries ask
    for, ``env_vars`` the environment variables that they set.
    """

    variables: Mapping[str, Mapping[str, str]]
    dependencies: Mapping[str, tuple[str, ...]]
    pythons: Mapping[str, str | None]
    env_vars: Mapping[str, tuple[tuple[str, str], ...]]
