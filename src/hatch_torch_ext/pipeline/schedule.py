"""Runs tasks side by side in threads, each of which holds a token of the pool; stops all at once on request."""

from __future__ import annotations

import contextlib
import contextvars
import queue
import signal
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from hatch_torch_ext.base.errors import EntryError, Stopped
from hatch_torch_ext.pipeline import ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from types import FrameType

    from hatch_torch_ext.base.process import Family
    from hatch_torch_ext.pipeline.jobserver import Held, Pool

Item = TypeVar("Item")
Made = TypeVar("Made")
Value = TypeVar("Value")

PATIENCE = 10.0  # seconds to wait for a download that is not needed any more
LOOK = 0.1  # seconds between two checks whether a stopped thread has ended
ENDING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal asked this process to end; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[Item, Value]):
    """The result of an item: its value or its error; neither if it was never begun."""

    item: Item
    value: Value | None = None
    error: EntryError | None = None


def run(
    items: Sequence[Item],
    *,
    prepare: Callable[[Item], Made],
    work: Callable[[Item, Future[Made], Held], Value],
    threads: int,
    family: Family,
    pool: Pool,
    keep_going: bool,
) -> list[Outcome[Item, Value]]:
    """Prepare and work on every item, and return the outcomes in the order of ``items``.

    One thread prepares items in their order; ``threads`` threads work on them. A failed item (``EntryError``) does not
    affect the others, or if ``keep_going`` is false stops them. ``work`` takes its thread's token itself. Any other
    exception, Ctrl-C and SIGTERM stop the whole family and are raised once nothing runs any more.
    """
    running = _Threads(items, work, family, pool, keep_going=keep_going)
    with signals_raise(), family.active():
        try:
            with ahead.of(items, prepare) as made:
                running.start(made, threads)
                running.wait()
        except BaseException as error:
            _stop(family, pool, running.threads)
            if not (isinstance(error, Stopped) and any(outcome.error for outcome in running.outcomes)):
                raise
    return running.outcomes


class _Threads(Generic[Item, Made, Value]):
    """The threads, and what they share."""

    def __init__(
        self,
        items: Sequence[Item],
        work: Callable[[Item, Future[Made], Held], Value],
        family: Family,
        pool: Pool,
        *,
        keep_going: bool,
    ) -> None:
        self._items, self._work, self._keep_going = items, work, keep_going
        self._family, self._pool = family, pool
        self.outcomes: list[Outcome[Item, Value]] = [Outcome(item=item) for item in items]
        self.threads: list[threading.Thread] = []
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def start(self, made: Sequence[Future[Made]], threads: int) -> None:
        """Start the threads, each of which takes one item after another."""
        for index in range(len(self._items)):
            self._waiting.put(index)
        for number in range(min(threads, len(self._items))):
            context = contextvars.copy_context()
            run = partial(context.run, self._all, made)
            thread = threading.Thread(target=run, name=f"entry-{number}", daemon=True)
            self.threads.append(thread)
            thread.start()

    def wait(self) -> None:
        """Wait for all threads; raise the exception that ended one of them early."""
        for _ in self.threads:
            if (error := self._ended.get()) is not None:
                raise error

    def _all(self, made: Sequence[Future[Made]]) -> None:
        error: BaseException | None = None
        held = self._pool.held()
        try:
            while not self._family.stopped:
                self._one(self._waiting.get_nowait(), made, held)
        except queue.Empty:
            pass
        except BaseException as raised:  # noqa: BLE001 -- raised again in the main thread
            error = raised
        held.give()
        self._ended.put(error)

    def _one(self, index: int, made: Sequence[Future[Made]], held: Held) -> None:
        item = self._items[index]
        try:
            self.outcomes[index] = Outcome(item=item, value=self._work(item, made[index], held))
        except EntryError as error:
            self.outcomes[index] = Outcome(item=item, error=error)
            if not self._keep_going:
                raise Stopped from error


def _stop(family: Family, pool: Pool, workers: Sequence[threading.Thread]) -> None:
    """Stop the programs of the family until no thread starts any more; further Ctrl-C are ignored meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            family.stop()
            pool.close()
            for thread in workers:
                if thread.ident is not None:
                    thread.join(LOOK)
            if not any(thread.is_alive() for thread in workers) or time.monotonic() > deadline:
                family.stop()
                return


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Make the signals that end a process raise ``Terminated``; only the main thread can do so."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 -- Python's signature
        raise Terminated(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
