"""The work on the entries that must be built, side by side: one pool of jobs, one family of programs."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import EntryError, Stopped
from hatch_torch_ext.base.process import Family
from hatch_torch_ext.pipeline import capacity, events, schedule, stages
from hatch_torch_ext.pipeline.history import History, Took
from hatch_torch_ext.pipeline.jobserver import Pool
from hatch_torch_ext.pipeline.leftovers import Leftovers
from hatch_torch_ext.pipeline.pressure import Pressure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.pipeline.capacity import Capacity
    from hatch_torch_ext.pipeline.jobserver import Held
    from hatch_torch_ext.pipeline.planned import Planned
    from hatch_torch_ext.pipeline.record import EntryInputs, Records
    from hatch_torch_ext.pipeline.stages import Acquired, Result
    from hatch_torch_ext.pipeline.task import Task

INTERRUPTED = 0.2
"""Seconds for which a failure is held back: Ctrl-C ends a compiler before this process receives the signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Means:
    """What the entries of one build share while they are worked on."""

    pool: Pool
    family: Family
    leftovers: Leftovers | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The work on the entries that must be built."""

    config: Config
    capacity: Capacity
    per_job: int
    tasks: Sequence[Task]
    records: Records
    planned: Planned
    inputs: Mapping[str, EntryInputs]
    history: History
    stream: events.Stream

    def run(self, jobs: int) -> list[schedule.Outcome[Task, BuiltVariant]]:
        """Build every entry with ``jobs`` compile jobs for all, and return the outcomes, in the order of the tasks."""
        work = self.tasks[0].work
        family = Family(hashlib.sha256(str(work).encode()).hexdigest()[:16])
        family.end_orphans()  # of a killed build in this folder: its lock is held, so no other build is running
        pool = Pool(jobs, serves=capacity.serves(self.capacity, entries=len(self.tasks), jobs=jobs))
        pressure = Pressure(pool, self.capacity, self.per_job, self.stream)
        leftovers = Leftovers(work, most=jobs + 1) if self.config.keep == "results" else None
        with contextlib.closing(pool), family.guarded(pool.folder), pressure.watching():
            return schedule.run(
                self.tasks,
                prepare=partial(self._prepare, family, leftovers),
                work=partial(self._work_on, _Means(pool=pool, family=family, leftovers=leftovers)),
                threads=jobs,
                family=family,
                pool=pool,
                keep_going=self.config.keep_going,
            )

    def _prepare(self, family: Family, leftovers: Leftovers | None, task: Task) -> Acquired:
        if leftovers is None:
            return stages.prepare(task, self.stream)
        with leftovers.preparing(family) as note:
            acquired = stages.prepare(task, self.stream)
            note(acquired[0].prefix)
        return acquired

    def _work_on(self, means: _Means, task: Task, acquired: Future[Acquired], held: Held) -> BuiltVariant:
        try:
            return self._built(means, task, acquired, held)
        finally:
            if means.leftovers is not None:
                means.leftovers.ended()

    def _built(self, means: _Means, task: Task, acquired: Future[Acquired], held: Held) -> BuiltVariant:
        began = time.monotonic()
        own = Family(hashlib.sha256(task.name.encode()).hexdigest()[:16], within=means.family)
        task.log.unlink(missing_ok=True)  # of an earlier build, with errors that may be mended
        try:
            if not acquired.done():
                held.give()
            ready = acquired.result()
            self.stream(events.Step(entry=task.name, step="wait"))
            with held.token(), own.active():
                began = time.monotonic()
                if (unseen := self.records.begin(task)) is not None:
                    text = (
                        f"{unseen} changed, but is older than the last build: Ninja compares times, so everything is "
                        "compiled again"
                    )
                    self.stream(events.Note(text=text, entry=task.name))
                slots = stages.PoolSlots(task, means.pool, own, self.stream)
                result = stages.build(task, ready, slots, self.planned, self.stream)
                built = self._keep(means.leftovers, task, result)
        except EntryError as error:
            time.sleep(INTERRUPTED)
            if means.family.stopped:
                raise Stopped from error
            log = str(task.log) if task.log.exists() else ""
            seconds = time.monotonic() - began
            self.stream(events.Failed(entry=task.name, message=error.message, seconds=seconds, log=log))
            raise
        seconds = time.monotonic() - began
        self.history.note(task.name, Took(seconds=seconds, peak=result.peak))
        self.stream(
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

    def _keep(self, leftovers: Leftovers | None, task: Task, result: Result) -> BuiltVariant:
        used = self.records.used(task, result.environment, result.sdk, result.toolchain)
        built = self.records.keep(task, self.inputs[task.name], result, used)
        if leftovers is not None:
            leftovers.finished(task, result.environment.prefix)
        return built
