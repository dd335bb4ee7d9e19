"""The work on the entries that must be built, side by side.

While earlier entries are compiled, later ones are prepared; one request stops all at once.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import queue
import signal
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from hatch_torch_ext.base.errors import EntryError, Stopped
from hatch_torch_ext.base.process import Family
from hatch_torch_ext.pipeline import capacity, events, stages
from hatch_torch_ext.pipeline.cleanup import Cleanup, take_over
from hatch_torch_ext.pipeline.history import History, Took
from hatch_torch_ext.pipeline.pool import Held, Pool, Sources
from hatch_torch_ext.pipeline.slots import EntrySlots, Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.pipeline.capacity import Capacity
    from hatch_torch_ext.pipeline.memory import Memory
    from hatch_torch_ext.pipeline.packagefiles import PackageFiles
    from hatch_torch_ext.pipeline.stages import Acquired
    from hatch_torch_ext.values import Task

INTERRUPTED = 0.2
"""Seconds for which a failure is held back: Ctrl-C ends a compiler before this process receives the signal."""
Item = TypeVar("Item")
Made = TypeVar("Made")
Value = TypeVar("Value")

PATIENCE = 10.0  # seconds to wait for a download that is not needed any more
LOOK = 0.1  # seconds between two checks whether a stopped thread has ended
ENDING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal ends this process; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[Item, Value]):
    """The result of an item: its value or its error; neither if it was never begun."""

    item: Item
    value: Value | None = None
    error: EntryError | None = None


class Crew:
    """The work on the entries that must be built, with ``jobs`` compile jobs for all.

    ``per_job`` is the estimated memory of a job in bytes.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        jobs: int,
        per_job: int,
        available: Capacity,
        memory: Memory,
        files: PackageFiles,
        history: History,
        stream: events.Stream,
    ) -> None:
        self._tasks, self._jobs, self._config, work = tasks, jobs, tasks[0].config, tasks[0].work
        self._memory, self._files, self._history, self._stream = memory, files, history, stream
        self._family, self._pool = take_over(work), Pool(jobs)
        self._pressure = capacity.Pressure(self._pool, available, per_job, stream)
        wait = capacity.compilers_wait(available, entries=len(tasks), jobs=jobs)
        self._shares, self._sources = Shares(self._pool, compilers_wait=wait), Sources(self._pool)
        self._cleanup = Cleanup(work, most=jobs + 1 if self._config.keep == "results" else None)

    def run(self) -> list[Outcome[Task, BuiltVariant]]:
        """Build every entry, and return the outcomes, in the order of the tasks."""
        with contextlib.closing(self._pool), self._family.guarded(self._pool.folder), self._pressure.watching():
            return side_by_side(
                self._tasks,
                prepare=self._prepare,
                work=self._work_on,
                threads=self._jobs,
                family=self._family,
                pool=self._pool,
                keep_going=self._config.keep_going,
            )

    def _prepare(self, task: Task) -> Acquired:
        with self._cleanup.preparing(self._family) as note:
            acquired = stages.prepare(task, self._stream)
            note(acquired[0].prefix)
        return acquired

    def _work_on(self, task: Task, acquired: Future[Acquired], held: Held) -> BuiltVariant:
        try:
            return self._built(task, acquired, held)
        finally:
            self._cleanup.ended()

    def _built(self, task: Task, acquired: Future[Acquired], held: Held) -> BuiltVariant:
        began = time.monotonic()
        own = Family(hashlib.sha256(task.name.encode()).hexdigest()[:16], within=self._family)
        task.log.unlink(missing_ok=True)  # of an earlier build, with errors that may be mended
        try:
            if not acquired.done():
                held.give()
            ready = acquired.result()
            self._stream(events.Step(entry=task.name, step="wait"))
            with held.token(), own.active():
                began = time.monotonic()
                if (unseen := self._memory.begin(task)) is not None:
                    text = (
                        f"{unseen} changed, but is older than the last build: Ninja compares times, so everything is "
                        "compiled again"
                    )
                    self._stream(events.Note(text=text, entry=task.name))
                slots = EntrySlots(task, self._shares, self._sources, own, self._stream)
                result = stages.build(task, ready, slots, self._files, self._stream)
                built = self._memory.keep(task, result)
                self._cleanup.finished(task, result.setup.environment.prefix)
        except EntryError as error:
            time.sleep(INTERRUPTED)
            if self._family.stopped:
                raise Stopped from error
            log = str(task.log) if task.log.exists() else ""
            seconds = time.monotonic() - began
            self._stream(events.Failed(entry=task.name, message=error.message, seconds=seconds, log=log))
            raise
        seconds = time.monotonic() - began
        self._history.note(task.name, Took(seconds=seconds, peak=result.peak))
        self._stream(
            events.Done(
                entry=task.name,
                label=built.variant.label,
                size=built.size,
                seconds=seconds,
                peak=result.peak,
                log=str(task.log),
                cached=result.cached,
            )
        )
        return built


def side_by_side(
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
            with made_ahead(items, prepare) as made:
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
        held = Held(self._pool)
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


@contextlib.contextmanager
def made_ahead(items: Sequence[Item], make: Callable[[Item], Value]) -> Iterator[list[Future[Value]]]:
    """Provide the future of ``make(item)`` for each item; one thread makes them in order, as fast as it can.

    Downloads wait for the network while compilers use the processor.
    When the context ends, futures that have not begun raise ``Stopped``. The thread is a daemon, so that a build
    which stops early, for example by Ctrl-C, does not wait for an unneeded download.
    """
    futures: list[Future[Value]] = [Future() for _ in items]
    stopped = threading.Event()

    def work() -> None:
        for item, future in zip(items, futures, strict=True):
            if stopped.is_set():
                future.set_exception(Stopped())
                continue
            try:
                future.set_result(make(item))
            except BaseException as error:  # noqa: BLE001 -- raised again where the future is read
                future.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="ahead", daemon=True).start()
    try:
        yield futures
    finally:
        stopped.set()
