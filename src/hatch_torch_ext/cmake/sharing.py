"""Interfaces by which an entry's build gets its jobs and its turn at the sources: ``pipeline/slots.py`` has them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager


class Clients(enum.Enum):
    """Which programs of a build can take their jobs from the pool."""

    NONE = enum.auto()
    NINJA = enum.auto()
    """Ninja itself, and every make that it starts."""
    COMPILERS = enum.auto()
    """These, and each compiler by its launcher."""


class Server(Protocol):
    """Gives each compiler a job; Ninja counts a compiler that waits for one as running."""

    @property
    def running(self) -> int:
        """Return how many compilers have a job."""

    @property
    def started(self) -> Mapping[str, float]:
        """Return when the compiler of each output got its job, in seconds since 1970."""

    def refuse(self) -> None:
        """End the launchers that wait for a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Ninja's share of the machine: arguments and environment variables, and who gives compilers their jobs."""

    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    server: Server | None = None


class Turn(Protocol):
    """An entry's turn at the sources, from its configure step to its install step."""

    def by_itself(self) -> None:
        """Wait until no other entry is at work, and let none begin before this one has ended."""

    def configuring(self) -> AbstractContextManager[None]:
        """Be the only entry in its configure step, which may write into the sources."""

    @property
    def is_shared(self) -> bool:
        """Whether another entry is or was at work during this turn."""

    @property
    def others_configure(self) -> bool:
        """Whether another entry may be writing into the sources now."""


class Slots(Protocol):
    """How much may be compiled at once, over all entries."""

    def turn(self) -> AbstractContextManager[Turn]:
        """Register an entry as working on the sources while the context lasts; others may do so too."""

    @property
    def compilers_wait(self) -> bool:
        """Return whether compilers, if they can be clients, wait for their jobs by themselves."""

    def share(self, clients: Clients) -> AbstractContextManager[Share]:
        """Provide this entry's share for one run of Ninja; without clients it is a fixed number of jobs."""

    def exclusive(self) -> AbstractContextManager[Share]:
        """Wait until no other entry compiles, and keep it so while the context lasts."""

    def progress(self, finished: int, total: int, running: int) -> None:
        """Record the finished build steps, of the total, and those that run."""

    def took(self, peak: int) -> None:
        """Record the memory of the largest compiler process, in bytes."""

    def cached(self, hits: int, files: int) -> None:
        """Record how many files the compiler cache had, of how many lookups."""
