"""Takes jobs out of the pool while memory is short, and gives them back: estimates are wrong, and others use memory.

It waits for the tokens that it takes: a Ninja takes its own back at once, but the kernel gives a byte to a waiting
reader before one that polls.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import Stopped
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.pipeline.capacity import RESERVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hatch_torch_ext.pipeline.capacity import Capacity
    from hatch_torch_ext.pipeline.jobserver import Pool

LOOK = 0.5  # seconds
TELL = 5.0  # seconds between two events without a change


class Pressure:
    """Watches ``capacity`` while a build runs in ``pool``; ``per_job`` is the memory of one compiler in bytes."""

    def __init__(self, pool: Pool, capacity: Capacity, per_job: int, emit: Callable[[events.Event], None]) -> None:
        self._pool, self._capacity, self._per_job, self._emit = pool, capacity, per_job, emit
        self._ended = threading.Event()
        self._told = float("-inf")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch in a thread while the context lasts."""
        thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()

    def look(self) -> None:
        """Take a token if too little memory is available; give one back if there is enough for another job."""
        available = self._capacity.available()
        before = self._pool.kept_back
        if self._pool.wants_all:  # for one compiler: there cannot be fewer
            self._pool.put_back(self._pool.size)
        elif available < RESERVE and before < self._pool.size - 1:
            self._pool.keep_back()
        elif available > RESERVE + self._per_job:
            self._pool.put_back(1)
        if before != (kept_back := self._pool.kept_back) or time.monotonic() - self._told >= TELL:
            self._told = time.monotonic()
            self._emit(events.Machine(jobs=self._pool.size, kept_back=kept_back, available=available))

    def _watch(self) -> None:
        with contextlib.suppress(Stopped):
            while not self._ended.wait(LOOK):
                self.look()
        self._pool.put_back(self._pool.size)
