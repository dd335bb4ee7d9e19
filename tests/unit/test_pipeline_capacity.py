"""How much is taken at once: the smallest bound of cgroups of both layouts and the machine's own counts."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

import disk
from hatch_torch_ext.cmake.ninja import Clients
from hatch_torch_ext.pipeline import capacity, events
from hatch_torch_ext.pipeline.capacity import GB, Capacity, Pressure
from hatch_torch_ext.pipeline.pool import Held, Pool
from hatch_torch_ext.pipeline.slots import Shares
from workbench import token

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FREE = "MemTotal: 64000000 kB\nMemAvailable: 32000000 kB\n"


def made(root: Path, files: Mapping[str, str]) -> Capacity:
    """Return a machine whose files below ``root`` are these."""
    disk.write(root, {"proc/meminfo": FREE, **files})
    return Capacity(root)


def test_a_machine_without_bounds(tmp_path: Path) -> None:
    """What the kernel says is available, and the processors that this process may run on."""
    plain = made(tmp_path, {})
    assert plain.available() == 32_000_000 * 1024
    assert plain.cpus() == len(os.sched_getaffinity(0))
    assert plain.processes_left() is None


def test_the_newer_layout_counts_every_folder_above(tmp_path: Path) -> None:
    """A limit of a parent folder holds too; file caches do not count as used; `max` is not a limit."""
    bounded = made(
        tmp_path,
        {
            "proc/self/cgroup": "0::/jobs/one\n",
            "sys/fs/cgroup/jobs/one/memory.max": "max\n",
            "sys/fs/cgroup/jobs/one/memory.current": "1\n",
            "sys/fs/cgroup/jobs/memory.max": "8000000000\n",
            "sys/fs/cgroup/jobs/memory.current": "7000000000\n",
            "sys/fs/cgroup/jobs/memory.stat": "active_file 5\ninactive_file 2000000000\n",
            "sys/fs/cgroup/jobs/one/cpu.max": "100000 100000\n",
            "sys/fs/cgroup/jobs/pids.max": "100\n",
            "sys/fs/cgroup/jobs/pids.current": "60\n",
        },
    )
    assert bounded.available() == 3_000_000_000
    assert bounded.cpus() == 1
    assert bounded.processes_left() == 40


def test_the_older_layout_and_a_container_that_sees_only_its_mount(tmp_path: Path) -> None:
    """The path is that of the host, and does not exist here: the limits are those of the mount."""
    bounded = made(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n8:pids:/docker/abc\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000000000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000000000\n",
            "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 500000000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/pids/pids.max": "max\n",
        },
    )
    assert bounded.available() in {3_500_000_000, 3_000_000_001}
    assert bounded.cpus() == 1
    assert bounded.processes_left() is None


class Fixed(Capacity):
    """A machine of given numbers."""

    def __init__(self, *, cpus: int = 8, free: float = 32 * GB, processes: int | None = None) -> None:
        self.free, self._cpus, self._processes = free, cpus, processes

    def cpus(self) -> int:
        """Return the number given."""
        return self._cpus

    def available(self) -> int:
        """Return the number given."""
        return int(self.free)

    def processes_left(self) -> int | None:
        """Return the number given."""
        return self._processes


@pytest.mark.parametrize(
    ("given", "limit", "per_job", "expected", "word"),
    [
        pytest.param(Fixed(), None, 1 * GB, 8, None, id="processors"),
        pytest.param(Fixed(), 3, 1 * GB, 3, None, id="limit"),
        pytest.param(Fixed(free=10 * GB), None, 3 * GB, 3, "10.0 GB of memory are free", id="memory"),
        pytest.param(Fixed(free=10 * GB), 2, 64 * GB, 1, "`memory-per-job`", id="larger-than-the-machine"),
        pytest.param(Fixed(free=0), None, 1 * GB, 1, "0.0 GB", id="nothing-free"),
        pytest.param(Fixed(processes=20), None, 1 * GB, 2, "only 20 more processes", id="processes"),
        pytest.param(Fixed(free=100 * GB), 70_000, 1, capacity.MOST, "4096 of 70000 jobs at once", id="the-pool"),
    ],
)
def test_jobs(given: Fixed, limit: int | None, per_job: int, expected: int, word: str | None) -> None:
    """Processors, memory less a reserve, processes; at least one job; a message names what limits them."""
    count, why = capacity.jobs(given, limit=limit, per_job=per_job)
    assert count == expected
    assert why is None if word is None else word in (why or "")


@pytest.mark.parametrize(
    ("entries", "jobs", "processes", "expected"),
    [
        pytest.param(3, 4, None, True, id="few"),
        pytest.param(4, 4, None, False, id="one-for-each-job"),
        pytest.param(1, 4, None, False, id="nobody-to-share-with"),
        pytest.param(4, 64, None, True, id="many-jobs"),
        pytest.param(5, 64, None, False, id="too-many-would-wait"),
        pytest.param(3, 4, 56, True, id="processes"),
        pytest.param(3, 4, 55, False, id="too-few-processes"),
    ],
)
def test_when_compilers_wait_for_jobs_by_themselves(
    entries: int, jobs: int, processes: int | None, *, expected: bool
) -> None:
    """Only where entries take over jobs of others, and the processes that wait are few."""
    assert capacity.compilers_wait(Fixed(processes=processes), entries=entries, jobs=jobs) is expected


def test_an_entry_that_compiles_alone_gets_a_job_though_memory_is_short() -> None:
    """A killed compiler is tried again alone, though other programs hold memory for good."""
    with contextlib.closing(Pool(3)) as pool:
        shares = Shares(pool)
        pressure = Pressure(pool, Fixed(free=0.5 * GB), 2 * GB, lambda _: None)
        pressure.look()
        inside, ended = threading.Event(), threading.Event()

        def ask() -> None:
            with token(pool), shares.exclusive():
                inside.set()
                ended.wait(30)

        other = Held(pool)
        with other.token(), shares.share(Clients.NINJA):
            waiting = threading.Thread(target=ask)
            waiting.start()
            deadline = time.monotonic() + 30
            while pool.taken - pool.kept_back > 1 or not pool.free:  # it has given its job back
                assert time.monotonic() < deadline
                time.sleep(0.01)
            pressure.look()
            assert (pool.free, pool.kept_back) == (0, 2)
            assert not inside.wait(0.2)
        assert not inside.is_set()
        other.give()
        assert inside.wait(30)
        ended.set()
        waiting.join(30)
        pool.put_back(2)
        assert pool.free == 3


def test_short_memory_takes_jobs_out_and_gives_them_back() -> None:
    """One job at each check, never the last; they come back one by one when memory is free again."""
    told: list[events.Event] = []
    short = Fixed(free=0.5 * GB)
    with contextlib.closing(Pool(3)) as pool:
        pressure = Pressure(pool, short, 2 * GB, told.append)
        free = []
        for _ in range(3):
            pressure.look()
            free.append(pool.free)
        assert free == [2, 1, 1]
        short.free = 2.5 * GB
        pressure.look()
        assert pool.free == 1
        short.free = 4 * GB
        pressure.look()
        pressure.look()
        assert pool.free == 3
    assert [event.kept_back for event in told if isinstance(event, events.Machine)] == [1, 2, 1, 0]
