"""`build --dask` on a real scheduler with two worker processes, of which one is killed in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base import process
from plain import CMAKE, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("distributed", reason="dask.distributed, the extra `dask`, is not installed")
pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")
DASK = str(Path(sys.executable).with_name("dask"))
WAITS_ONCE = 'if(EXISTS "{flag}")\n  file(REMOVE "{flag}")\n  execute_process(COMMAND {line})\nendif()\n'


class Cluster:
    """A scheduler and its workers, as programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._scheduler = self._start("scheduler", "--port", "0", "--host", "127.0.0.1")
        self._workers: list[subprocess.Popen[bytes]] = []
        file, deadline = folder / "scheduler.json", time.monotonic() + 120
        self.address = ""
        while not self.address and time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):  # not there, or half of it
                self.address = str(json.loads(file.read_text(encoding="utf-8"))["address"])
            time.sleep(0.05)

    def worker(self, **environ: str) -> subprocess.Popen[bytes]:
        """Start a worker of one thread."""
        self._workers.append(self._start("worker", "--nthreads", "1", "--no-nanny", **environ))
        return self._workers[-1]

    def _start(self, what: str, *arguments: str, **environ: str) -> subprocess.Popen[bytes]:
        file = ["--scheduler-file", str(self.folder / "scheduler.json")]
        command = [DASK, what, *file, "--no-dashboard", *arguments]
        env = {**os.environ, **environ}
        with (self.folder / f"{what}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=log)

    def end_workers(self) -> None:
        """End the workers; the scheduler stays for the next test."""
        _end(self._workers)
        self._workers.clear()

    def close(self) -> None:
        """End all of it."""
        _end([*self._workers, self._scheduler])


def _end(programs: list[subprocess.Popen[bytes]]) -> None:
    for program in programs:
        program.terminate()
    for program in programs:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(30)
        program.kill()
        program.wait()


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a scheduler for all tests here: starting one takes longer than most of them."""
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    yield found
    found.close()


@pytest.fixture
def cluster(scheduler: Cluster) -> Iterator[Cluster]:
    """Return the scheduler without workers."""
    yield scheduler
    scheduler.end_workers()


@pytest.fixture
def shared(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder with tiny wheels of two releases."""
    return once("cluster", lambda folder: make_wheels(folder / "wheels", ["2.8.0", "2.9.0"]))


class Waiting:
    """A project of which one configure step waits, the first that finds a flag; and builds of it on a cluster."""

    def __init__(self, folder: Path, shared: Path, cluster: Cluster) -> None:
        self.flag, self.line = folder / "flag", f"sleep 300.{os.getpid()}"
        self.files = {"csrc/CMakeLists.txt": CMAKE + WAITS_ONCE.format(flag=self.flag, line=self.line)}
        self.flag.touch()
        self.project = Project(folder / "project", shared, files=self.files)
        self.store = {"HATCH_TORCH_EXT_CACHE": str(shared / "store")}
        self._cluster = cluster

    @contextlib.contextmanager
    def started(self, **environ: str) -> Iterator[subprocess.Popen[str]]:
        """Start a build."""
        command = [sys.executable, "-m", "hatch_torch_ext", "build", "-d", "dist", "--dask", self._cluster.address]
        set_here = {name: value for name, value in self.project.environ.items() if value is not None}
        env = {**os.environ, **set_here, **environ}
        merged = subprocess.STDOUT
        root = self.project.root
        with subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.PIPE, stderr=merged, text=True) as program:
            try:
                yield program
            finally:
                program.kill()

    def waits(self) -> int:
        """Return the process that waits, once there is one."""
        deadline = time.monotonic() + 240
        while self.flag.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        (waiting,) = _running(self.line, expected=1)
        return waiting

    def told(self, *entries: str) -> None:
        """Wait until the build knows that these entries configure: before that, a lost worker would not be noticed."""
        deadline, known = time.monotonic() + 240, set[str]()
        while not known.issuperset(entries) and time.monotonic() < deadline:
            known = {event["entry"] for event in self.project.events("step") if event["step"] == "configure"}
            time.sleep(0.1)


@pytest.mark.slow
def test_the_same_bytes_though_a_worker_is_lost(tmp_path: Path, shared: Path, cluster: Cluster) -> None:
    """One of two workers is killed while it configures: its entry is built elsewhere, its programs die with it."""
    waiting = Waiting(tmp_path, shared, cluster)
    project = waiting.project
    workers = [cluster.worker(**waiting.store) for _ in range(2)]
    with waiting.started() as started:
        pid = waiting.waits()
        waiting.told("matrix.2.8", "matrix.2.9")
        killed = next(worker for worker in workers if worker.pid in _ancestors(pid))
        killed.send_signal(signal.SIGKILL)
        output, _ = started.communicate(timeout=400)
    assert started.returncode == 0, output
    assert "was lost; the entry is built again on" in output
    assert _running(waiting.line, expected=0) == []
    assert {event["entry"] for event in project.events("done")} == {"matrix.2.8", "matrix.2.9"}
    assert {event["step"] for event in project.events("step")} >= {"configure", "repair", "audit"}
    again = project.cli("build", "-d", "again", "--dask", cluster.address)
    assert "0 built, 2 unchanged" in again.stderr
    local = Project(tmp_path / "local", shared, files=waiting.files)
    assert local.build().returncode == 0
    assert project.digest() == local.digest() == project.digest("again")


@pytest.mark.slow
def test_a_finished_entry_is_counted_though_its_worker_is_lost(tmp_path: Path, shared: Path, cluster: Cluster) -> None:
    """The worker that has built one entry is killed while the other entry is built: nothing is built again."""
    waiting = Waiting(tmp_path, shared, cluster)
    workers = [cluster.worker(**waiting.store) for _ in range(2)]
    with waiting.started() as started:
        pid = waiting.waits()
        deadline = time.monotonic() + 240
        while not waiting.project.events("done") and time.monotonic() < deadline:
            time.sleep(0.1)
        kept = next(worker for worker in workers if worker.pid in _ancestors(pid))
        for worker in workers:
            if worker is not kept:
                worker.kill()
                worker.wait()
        time.sleep(1)  # the scheduler notices; an entry that it gave to the other worker would have to wait
        os.kill(pid, signal.SIGTERM)
        output, _ = started.communicate(timeout=400)
    assert started.returncode == 0, output
    assert "2 built, 0 unchanged, 0 failed" in output
    assert "not begun" not in output
    assert "was lost" not in output
    configured = [event["entry"] for event in waiting.project.events("step") if event["step"] == "configure"]
    assert sorted(configured) == ["matrix.2.8", "matrix.2.9"]


@pytest.mark.slow
def test_interrupted(tmp_path: Path, shared: Path, cluster: Cluster) -> None:
    """A worker that joins late gets the entry; Ctrl-C ends its programs, not the worker; the same command goes on."""
    waiting = Waiting(tmp_path, shared, cluster)
    one = {"HATCH_TORCH_EXT_ONLY": "matrix.2.9"}
    with waiting.started(**one) as started:
        assert started.stdout is not None
        said = ""
        while "has no worker yet: waiting for one" not in said and (line := started.stdout.readline()):
            said += line
        assert "has no worker yet: waiting for one" in said
        worker = cluster.worker(**waiting.store)
        waiting.waits()
        started.send_signal(signal.SIGINT)
        output, _ = started.communicate(timeout=120)
    assert started.returncode == 130, output
    assert "interrupted" in output.splitlines()[-1]
    assert "failed" not in output
    assert _running(waiting.line, expected=0) == []
    assert worker.poll() is None
    (waiting.project.root / "csrc/plain.c").write_text("#error broken\n", encoding="utf-8")
    failed = waiting.project.cli("build", "-d", "failed", "--dask", cluster.address, **one)
    assert failed.returncode == 1
    assert "#error broken" in failed.stderr


def _running(line: str, *, expected: int) -> list[int]:
    """Return the processes of that command line, once there are as many as expected, else after some seconds."""
    found: list[int] = []
    wanted = "\0".join([*line.split(), ""]).encode()
    for _ in range(100):
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "cmdline").read_bytes() == wanted:
                    found.append(int(folder.name))
        if len(found) == expected:
            break
        time.sleep(0.1)
    return found


def _ancestors(pid: int) -> set[int]:
    found = set()
    while pid > 1:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return found


WAITS_BRIEFLY = """
import sys
from hatch_torch_ext import cli
from hatch_torch_ext.pipeline import cluster
cluster.FIRST_WORKER = 1.0
sys.exit(cli.main(["build", "--dask", sys.argv[1]]))
"""


@pytest.mark.performs("add one, as in `dask worker", "give that worker's CXX", "start one")
def test_a_cluster_that_is_not_there(tmp_path: Path, shared: Path, cluster: Cluster) -> None:
    """No scheduler, no worker, a worker without a compiler: each is reported before the work, with what to start.

    The programs that the messages name, and the variable `CXX`, make a cluster that builds.
    """
    project = Project(tmp_path / "project", shared)
    said = project.cli("build", "--dask", "tcp://127.0.0.1:1")
    assert said.returncode == 1
    assert "No Dask scheduler answers at `tcp://127.0.0.1:1`" in said.stderr
    assert "start one, as in `dask scheduler`, and give `--dask` the address that it prints" in said.stderr
    printed = (cluster.folder / "scheduler.log").read_text(encoding="utf-8")
    (address,) = set(re.findall(r"Scheduler at:\s+(\S+)", printed))
    briefly = [sys.executable, "-c", WAITS_BRIEFLY, address]
    said = process.run(briefly, cwd=project.root, env_changes=project.environ, check=False)
    (line,) = re.findall("got no worker in 1 s: add one, as in `(.*?)`", said.stderr)
    assert line.split() == ["dask", "worker", cluster.address]
    path = tmp_path / "bin"
    path.mkdir()
    for name in ("as", "ld", "strip"):
        (path / name).symlink_to(str(shutil.which(name)))
    store = str(shared / "store")
    without = cluster.worker(PATH=str(path), HATCH_TORCH_EXT_CACHE=store)
    said = project.cli("build", "--dask", cluster.address)
    assert said.returncode == 1
    assert "has no C++ compiler: install one there, or give that worker's CXX the path of one" in said.stderr
    without.terminate()
    without.wait()
    compilers = {name: str(shutil.which(program)) for name, program in (("CXX", "c++"), ("CC", "cc"))}
    cluster.worker(PATH=str(path), HATCH_TORCH_EXT_CACHE=store, **compilers)
    one = {"HATCH_TORCH_EXT_ONLY": "matrix.2.9"}
    said = project.cli("build", "--dask", address, **one)
    assert said.returncode == 0, said.stderr
