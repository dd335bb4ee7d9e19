"""How much this machine, or the part that this process may use, can do at once: processors, memory, processes.

Containers and batch systems limit a process by cgroups, of which there are two layouts; a limit applies to the whole
subtree of the folder in which it is written.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import Stopped
from hatch_torch_ext.pipeline import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hatch_torch_ext.pipeline.pool import Pool

GB = 10**9
RESERVE = 1 * GB
RESERVE_PART = 10
"""The part of the available memory (one in so many) that is kept free. Estimates are wrong, and others use memory."""
PIDS_PER_JOB = 8
"""Processes of one compile command: a driver, a compiler, an assembler, a shell; nvcc has a dozen, few at once."""
MOST = 4096
"""Jobs for which the pool's FIFO always has room: two pages, where a user has many pipes. A byte more would wait."""
WAITING = 256
"""Launchers that may wait for a job at once; each has 4 MB of memory."""
LOOK = 0.5  # seconds between two looks at the memory
TELL = 5.0  # seconds between two events without a change

UNBOUNDED = 1 << 60  # in the older layout, no limit is a number near 2**63


class Capacity:
    """Reads the limits below ``root`` (``/``; another folder in tests)."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc, self._sys = root / "proc", root / "sys" / "fs" / "cgroup"

    def cpus(self) -> int:
        """Return how many compilers can run at full speed, at least 1."""
        found = float(len(os.sched_getaffinity(0)))
        for folder in self._folders("cpu"):
            quota, period = "max", "100000"
            if (both := _words(folder / "cpu.max")) is not None and len(both) > 1:
                quota, period = both[:2]
            elif (one := _words(folder / "cpu.cfs_quota_us")) is not None:
                quota, period = one[0], (_words(folder / "cpu.cfs_period_us") or ["100000"])[0]
            if quota.isdigit() and int(period):
                found = min(found, int(quota) / int(period))
        return max(1, int(found))

    def available(self) -> int:
        """Return the memory in bytes that can be used before the system swaps or kills processes."""
        found = UNBOUNDED
        text = _text(self._proc / "meminfo") or ""
        if (match := re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)) is not None:
            found = int(match[1]) * 1024
        for folder in self._folders("memory"):
            for limit, usage in ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"):
                bound, used = _number(folder / limit), _number(folder / usage)
                if bound is not None and used is not None and bound < UNBOUNDED:
                    found = min(found, max(0, bound - used + _cache(folder)))
        return found

    def processes_left(self) -> int | None:
        """Return how many processes may still be started, or None if there is no limit."""
        left = None
        for folder in self._folders("pids"):
            bound, used = _number(folder / "pids.max"), _number(folder / "pids.current")
            if bound is not None and used is not None:
                left = min(bound - used, bound if left is None else left)
        return left

    def _folders(self, controller: str) -> Iterator[Path]:
        """Yield the cgroup's folder and those above it; in a container that sees no others, the mount point."""
        for line in (_text(self._proc / "self" / "cgroup") or "").splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            base = self._sys / controller if controllers else self._sys
            here = base / place.lstrip("/")
            while here != base:
                yield here
                here = here.parent
            yield base


def reserve(available: int) -> int:
    """Return how much of the available memory is kept free, in bytes."""
    return max(RESERVE, available // RESERVE_PART)


def jobs(capacity: Capacity, *, limit: int | None, per_job: int) -> tuple[int, str | None]:
    """Return how many jobs may run at once, at least 1, and a message on what keeps it below ``limit``.

    ``per_job`` is the estimated memory of a job in bytes; ``limit`` is the user's limit, or None.
    """
    most = limit or capacity.cpus()
    available = capacity.available()
    by_memory = max(1, (available - reserve(available)) // per_job)
    left = capacity.processes_left()
    possible = min(most, MOST)
    by_processes = possible if left is None else max(1, left // PIDS_PER_JOB)
    if by_memory < possible and by_memory <= by_processes:
        return by_memory, (
            f"{by_memory} of {most} jobs at once: {available / GB:.1f} GB of memory are free, and a job is counted "
            f"with {per_job / GB:.1f} GB (`memory-per-job`)"
        )
    if by_processes < possible:
        return by_processes, f"{by_processes} of {most} jobs at once: only {left} more processes may be started here"
    return possible, None if possible == most else f"{possible} of {most} jobs at once: that is the most"


def compilers_wait(capacity: Capacity, *, entries: int, jobs: int) -> bool:
    """Return whether the compilers of ``entries`` are to wait for jobs by themselves, not in their Ninja.

    It helps where entries take over jobs of others that have ended. Each entry starts a waiting process for each job.
    """
    left = capacity.processes_left()
    waiting = entries * jobs
    return 1 < entries < jobs and waiting <= WAITING and (left is None or 2 * waiting + PIDS_PER_JOB * jobs <= left)


class Pressure:
    """Takes jobs out of ``pool`` while memory is short, and gives them back.

    It is needed since estimates can be wrong, and since other programs use memory.

    ``per_job`` is the memory of one compiler in bytes. It waits for the tokens that it takes.
    """

    def __init__(self, pool: Pool, capacity: Capacity, per_job: int, emit: Callable[[events.Event], None]) -> None:
        self._pool, self._capacity, self._per_job, self._emit = pool, capacity, per_job, emit
        self._ended = threading.Event()
        self._reported = float("-inf")

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
        if available < RESERVE and before < self._pool.size - 1:
            self._pool.keep_back()
        elif available > RESERVE + self._per_job:
            self._pool.put_back(1)
        if before != (kept_back := self._pool.kept_back) or time.monotonic() - self._reported >= TELL:
            self._reported = time.monotonic()
            self._emit(events.Machine(jobs=self._pool.size, kept_back=kept_back, available=available))

    def _watch(self) -> None:
        with contextlib.suppress(Stopped):
            while not self._ended.wait(LOOK):
                self.look()
        self._pool.put_back(self._pool.size)


def _cache(folder: Path) -> int:
    """Return the file cache in bytes: it counts as used, but the kernel drops it when memory is needed."""
    text = _text(folder / "memory.stat") or ""
    match = re.search(r"^(?:total_)?inactive_file (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _words(path: Path) -> list[str] | None:
    return (_text(path) or "").split() or None


def _number(path: Path) -> int | None:
    words = _words(path)
    return int(words[0]) if words and words[0].isdigit() else None
