"""How a build's entries divide the pool of jobs: each run of Ninja has a share, or compiles while no other does."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.cmake import ninja
from hatch_torch_ext.cmake.ninja import Clients, Share
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.pipeline.pool import SharedLock
from hatch_torch_ext.pipeline.tokenserver import TokenServer
from hatch_torch_ext.resources import once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hatch_torch_ext.base.process import Family
    from hatch_torch_ext.cmake.buildfolder import Turn
    from hatch_torch_ext.cmake.ninja import Server
    from hatch_torch_ext.pipeline.pool import Pool, Sources
    from hatch_torch_ext.values import Task

    Emit = Callable[[events.Event], None]


class Shares:
    """The shares of one build's Ninjas; with ``compilers_wait``, those that can wait for a token by themselves do so.

    A Ninja that is killed takes its tokens with it. Whenever no Ninja runs, those that are lost are known exactly, and
    come back; until then the pool is smaller, and no entry waits for more than it: each holds its own token.
    """

    def __init__(self, pool: Pool, *, compilers_wait: bool = False) -> None:
        self._pool, self.compilers_wait = pool, compilers_wait and pool.has_short_path
        self._compiling = SharedLock(pool, idle=pool.refill)
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def share(self, clients: Clients) -> Iterator[Share]:
        """Give a token's holder a share of the pool: for compilers, for Ninja, or a fixed number of free tokens."""
        environ = {"MAKEFLAGS": f"--jobserver-auth=fifo:{self._pool.path}"}
        with self._compiling.held(exclusive=False):
            if clients is Clients.COMPILERS:
                path = self._pool.folder / f"tokens{next(self._numbers)}"
                with contextlib.closing(TokenServer(self._pool, path)) as server:
                    # With -j, Ninja leaves the jobserver to the programs that it starts.
                    environ[once.TOKENS] = str(server.path)
                    yield Share(arguments=("-j", str(self._pool.size)), environ=environ, server=server)
            elif clients is Clients.NINJA:
                yield Share(environ=environ)
            else:
                more = self._take_even()
                try:
                    yield Share(arguments=("-j", str(1 + more)))
                finally:
                    for _ in range(more):
                        self._pool.give()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Share]:
        """Wait until no Ninja runs, and let none begin while the context lasts."""
        with self._compiling.held(exclusive=True):
            yield Share(arguments=("-j", "1"))

    def _take_even(self) -> int:
        """Take free tokens, up to an even share, and return how many."""
        most, taken = self._pool.size // max(1, self._pool.taken) - 1, 0
        while taken < most and self._pool.take_free():
            taken += 1
        return taken


class EntrySlots:
    """An entry's share of the pool for Ninja's jobs, its turn at the sources, and its figures."""

    def __init__(self, task: Task, shares: Shares, sources: Sources, family: Family, emit: Emit) -> None:
        self._task, self._shares, self._sources, self._family, self._emit = task, shares, sources, family, emit
        self.peak = 0
        self.counts: tuple[int, int] | None = None

    @property
    def compilers_wait(self) -> bool:
        """Return whether compilers, if they can be clients, wait for their jobs by themselves."""
        return self._shares.compilers_wait

    def turn(self) -> contextlib.AbstractContextManager[Turn]:
        """Return this entry's turn at the sources."""
        return self._sources.turn()

    @contextlib.contextmanager
    def share(self, clients: Clients) -> Iterator[Share]:
        """Provide Ninja's share; if Ninja is killed, end what it started, which may hold tokens."""
        self._emit(events.Step(entry=self._task.name, step="compile"))
        began, before = time.time(), frozenset(self._log())
        with self._shares.share(clients) as share:
            try:
                yield share
            except ProcessError as error:
                if error.returncode is not None and error.returncode < 0:
                    self._family.end_orphans()
                raise
            finally:
                self._note_times(began, before, share.server)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Share]:
        """Let no other entry compile meanwhile."""
        began, before = time.time(), frozenset(self._log())
        with self._shares.exclusive() as share:
            try:
                yield share
            finally:
                self._note_times(began, before)

    def progress(self, finished: int, total: int, running: int) -> None:
        """Report Ninja's progress."""
        self._emit(events.Progress(entry=self._task.name, finished=finished, total=total, running=running))

    def took(self, peak: int) -> None:
        """Record the peak memory of the largest process, in bytes."""
        self.peak = max(self.peak, peak)

    def cached(self, hits: int, files: int) -> None:
        """Record how many files the compiler cache had, of how many lookups; unset if there was none."""
        self.counts = (hits, files) if files else None

    def _log(self) -> list[str]:
        return ninja.log_lines(self._task.folder / "build")

    def _note_times(self, began: float, before: frozenset[str], server: Server | None = None) -> None:
        """Report what Ninja's log says of this run; its times are milliseconds since Ninja's start.

        A compiler that waited for its token started when it got that.
        """
        started = {} if server is None else server.started
        for line in self._log():
            fields = ninja.log_fields(line)
            if fields is not None and line not in before:
                start, end = (began + int(field) / 1000 for field in fields[:2])
                start = min(end, max(start, started.get(fields[3], start)))
                self._emit(events.Compiled(entry=self._task.name, output=fields[3], start=start, end=end))
