"""Entries at work on the author's sources side by side, or one by itself.

A project may write into its sources (a header that CMake configures, ``LIBRARY_OUTPUT_DIRECTORY``), which all entries
share: an entry of such a project needs them for itself, from its configure step to its install step.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from hatch_torch_ext.pipeline.pool import SharedLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from hatch_torch_ext.pipeline.pool import Pool


class Sources:
    """The sources of a build's entries: worked on by several beside one another, or by one."""

    def __init__(self, pool: Pool) -> None:
        self.lock, self.configure = SharedLock(pool), SharedLock(pool)
        self.begun = 0  # turns so far

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """Be at work beside other entries while the context lasts; the caller holds a token of the pool."""
        turn = Turn(self)
        try:
            turn.begin(exclusive=False)
            yield turn
        finally:
            turn.end()


class Turn:
    """One entry's turn."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._exclusive: bool | None = None  # None: not at work
        self._others = False  # at the beginning of the turn
        self._number = 0

    def configuring(self) -> AbstractContextManager[None]:
        """Be the only entry in its configure step: of two CMakes that write one file at once, neither has its own."""
        return self._sources.configure.held(exclusive=True)

    @property
    def others_configure(self) -> bool:
        """Whether another entry may be writing into the sources now; this one is not in its configure step."""
        return self._sources.configure.is_exclusive

    def by_itself(self) -> None:
        """Wait until no other entry is at work, and let none begin before this one has ended."""
        if not self._exclusive:
            self.end()
            self.begin(exclusive=True)

    @property
    def is_shared(self) -> bool:
        """Whether another entry is or was at work during this turn."""
        return not self._exclusive and (self._others or self._sources.begun != self._number)

    def begin(self, *, exclusive: bool) -> None:
        """Wait until this entry may be at work."""
        self._sources.lock.acquire(exclusive=exclusive, begun=partial(self._note, exclusive=exclusive))

    def end(self) -> None:
        """Be at work no more."""
        if self._exclusive is not None:
            exclusive, self._exclusive = self._exclusive, None
            self._sources.lock.release(exclusive=exclusive)

    def _note(self, *, exclusive: bool) -> None:
        self._exclusive = exclusive
        self._sources.begun += 1
        self._number = self._sources.begun
        self._others = self._sources.lock.beside > 1
