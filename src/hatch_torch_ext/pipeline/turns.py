"""Entries at work on the author's sources side by side, or one by itself.

A project may write into its sources (a header that CMake configures, ``LIBRARY_OUTPUT_DIRECTORY``), which all entries
share: an entry of such a project needs them for itself, from its configure step to its install step.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hatch_torch_ext.pipeline.jobserver import Pool

LOOK = 0.2  # seconds between two looks whether the build was stopped


class Turns:
    """The turns of a build's entries: several beside one another, or one alone.

    Whoever waits for a turn has given its token of the pool back, or those at work could not come to their end.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.beside = 0
        self.asked = 0  # entries that wait to be alone
        self.alone = False
        self.begun = 0  # turns so far
        self.configuring = False

    @contextlib.contextmanager
    def turn(self, pool: Pool) -> Iterator[Turn]:
        """Be at work beside other entries while the context lasts; the caller holds a token of ``pool``."""
        turn = Turn(self, pool)
        try:
            turn.begin(alone=False)
            yield turn
        finally:
            turn.end()


class Turn:
    """One entry's turn."""

    def __init__(self, turns: Turns, pool: Pool) -> None:
        self._turns, self._pool = turns, pool
        self._alone: bool | None = None  # None: not at work
        self._others = False  # at the beginning of the turn
        self._number = 0

    @contextlib.contextmanager
    def configuring(self) -> Iterator[None]:
        """Be the only entry in its configure step: of two CMakes that write one file at once, neither has its own.

        Raises ``Stopped`` once the pool is closed.
        """
        self._wait(lambda: not self._turns.configuring, self._configure)
        try:
            yield
        finally:
            with self._turns.changed:
                self._turns.configuring = False
                self._turns.changed.notify_all()

    @property
    def others_configure(self) -> bool:
        """Whether another entry may be writing into the sources now; this one is not in its configure step."""
        return self._turns.configuring

    def by_itself(self) -> None:
        """Wait until no other entry is at work, and let none begin before this one has ended."""
        if not self._alone:
            self.end()
            self.begin(alone=True)

    @property
    def is_shared(self) -> bool:
        """Whether another entry is or was at work during this turn."""
        return not self._alone and (self._others or self._turns.begun != self._number)

    def begin(self, *, alone: bool) -> None:
        """Wait until this entry may be at work. Raises ``Stopped`` once the pool is closed."""
        self._ask(by=int(alone))
        try:
            self._wait(lambda: self._is_possible(alone=alone), lambda: self._note(alone=alone))
        finally:
            self._ask(by=-int(alone))

    def _wait(self, is_possible: Callable[[], bool], begin: Callable[[], None]) -> None:
        """Begin as soon as it is possible, and give the token back for as long as it is not."""
        with self._turns.changed:
            if is_possible():
                begin()
                return
        self._pool.give()
        try:
            with self._turns.changed:
                while not is_possible():
                    if self._pool.closed:
                        raise Stopped
                    self._turns.changed.wait(LOOK)
                begin()
        finally:
            self._pool.take()

    def end(self) -> None:
        """Be at work no more."""
        with self._turns.changed:
            if self._alone:
                self._turns.alone = False
            elif self._alone is not None:
                self._turns.beside -= 1
            self._alone = None
            self._turns.changed.notify_all()

    def _is_possible(self, *, alone: bool) -> bool:
        return not self._turns.alone and not (self._turns.beside if alone else self._turns.asked)

    def _ask(self, *, by: int) -> None:
        with self._turns.changed:
            self._turns.asked += by

    def _configure(self) -> None:
        self._turns.configuring = True

    def _note(self, *, alone: bool) -> None:
        if alone:
            self._turns.alone = True
        else:
            self._turns.beside += 1
        self._alone = alone
        self._turns.begun += 1
        self._number = self._turns.begun
        self._others = self._turns.beside > 1
