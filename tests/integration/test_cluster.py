"""`build --dask` on a real scheduler with two worker processes, of which one is killed in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plain import CMAKE, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("distributed", reason="dask.distributed, the extra `dask`, is not installed")
pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")
WAITS_ONCE = 'if(EXISTS "{flag}")\n  file(REMOVE "{flag}")\n  execute_process(COMMAND {line})\nendif()\n'


class Cluster:
    """A scheduler and its workers, as programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = [self._start("scheduler", "--port", "0", "--host", "127.0.0.1")]
        file = folder / "scheduler.json"
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        self.address = str(json.loads(file.read_text(encoding="utf-8"))["address"])

    def worker(self, **environ: str) -> subprocess.Popen[bytes]:
        """Start a worker of one thread."""
        self.programs.append(self._start("worker", "--nthreads", "1", "--no-nanny", **environ))
        return self.programs[-1]

    def _start(self, what: str, *arguments: str, **environ: str) -> subprocess.Popen[bytes]:
        file = ["--scheduler-file", str(self.folder / "scheduler.json")]
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *file, "--no-dashboard", *arguments]
        env = {**os.environ, **environ}
        with (self.folder / f"{what}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=log)

    def close(self) -> None:
        """End all of it."""
        for program in self.programs[::-1]:
            program.terminate()
        for program in self.programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(30)
            program.kill()
            program.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Return a scheduler without workers."""
    (tmp_path / "cluster").mkdir()
    found = Cluster(tmp_path / "cluster")
    yield found
    found.close()


@pytest.fixture
def shared(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder with tiny wheels of three releases."""
    return once("cluster", lambda folder: make_wheels(folder / "wheels", ["2.7.0", "2.8.0", "2.9.0"]))


def test_the_same_bytes_though_a_worker_is_lost(tmp_path: Path, shared: Path, cluster: Cluster) -> None:
    """One of two workers is killed while it configures: its entry is built elsewhere, its programs die with it."""
    flag = tmp_path / "flag"
    flag.touch()
    line = f"sleep 300.{os.getpid()}"
    files = {"csrc/CMakeLists.txt": CMAKE + WAITS_ONCE.format(flag=flag, line=line)}
    project = Project(tmp_path / "project", shared, releases=("2.7", "2.8", "2.9"), files=files)
    store = {"HATCH_TORCH_EXT_CACHE": str(shared / "store")}
    workers = [cluster.worker(**store) for _ in range(2)]
    command = [sys.executable, "-m", "hatch_torch_ext", "build", "-d", "dist", "--dask", cluster.address]
    env = {**os.environ, **{name: value for name, value in project.environ.items() if value is not None}}
    with subprocess.Popen(
        command, cwd=project.root, env=env, stdout=-1, stderr=subprocess.STDOUT, text=True
    ) as started:
        deadline = time.monotonic() + 120
        while flag.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        (waiting,) = _running(line, expected=1)
        killed = next(worker for worker in workers if worker.pid in _ancestors(waiting))
        killed.send_signal(signal.SIGKILL)
        output, _ = started.communicate(timeout=240)
    assert started.returncode == 0, output
    assert "was lost: built again on" in output
    assert _running(line, expected=0) == []
    built = {event["entry"] for event in project.events("done")}
    assert built == {"matrix.2.7", "matrix.2.8", "matrix.2.9"}
    assert {event["step"] for event in project.events("step")} >= {"configure", "repair", "audit"}
    again = project.cli("build", "-d", "again", "--dask", cluster.address)
    assert "0 built, 3 unchanged" in again.stderr
    (project.root / "csrc/plain.c").write_text("#error broken\n", encoding="utf-8")
    failed = project.cli("build", "-d", "failed", "--dask", cluster.address, HATCH_TORCH_EXT_ONLY="matrix.2.9")
    assert failed.returncode == 1
    assert "#error broken" in failed.stderr
    local = Project(tmp_path / "local", shared, releases=("2.7", "2.8", "2.9"), files=files)
    assert local.build().returncode == 0
    assert project.digest() == local.digest() == project.digest("again")


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


def test_a_cluster_that_is_not_there(tmp_path: Path, shared: Path) -> None:
    """The address, the reason, and how to start one."""
    project = Project(tmp_path / "project", shared)
    said = project.cli("build", "--dask", "tcp://127.0.0.1:1")
    assert said.returncode == 1
    assert "No Dask scheduler answers at `tcp://127.0.0.1:1`" in said.stderr
    assert "start one, as in `dask scheduler`" in said.stderr


def test_a_worker_without_a_compiler(tmp_path: Path, shared: Path, cluster: Cluster) -> None:
    """Told before anything is built; the remedy, `CXX`, works."""
    project = Project(tmp_path / "project", shared)
    (tmp_path / "bin").mkdir()
    without = cluster.worker(PATH=str(tmp_path / "bin"))
    said = project.cli("build", "--dask", cluster.address)
    assert said.returncode == 1
    assert "has no C++ compiler: install one there, or give that worker's CXX the path of one" in said.stderr
    without.terminate()
    without.wait()
