"""Which sources wait for another entry's compile: those that see none of torch's headers."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

import disk
from hatch_torch_ext.resources import once

if TYPE_CHECKING:
    from pathlib import Path


def tree(tmp_path: Path, files: dict[str, str]) -> list[str]:
    """Write files; return the compiler's command line for `csrc/k.cu`, as CMake writes it."""
    disk.write(tmp_path, files)
    folders = [f"-I{tmp_path}/inc", "-isystem", f"{tmp_path}/torch/include", "-isystem", f"{tmp_path}/cuda"]
    return ["ccache", "nvcc", "-DX=1", *folders, "-x", "cu", "-c", f"{tmp_path}/csrc/k.cu", "-o", "CMakeFiles/k.cu.o"]


TORCH = {"torch/include/ATen/ATen.h": "", "cuda/cuda_runtime.h": "#include <ATen/ATen.h>\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"csrc/k.cu": "#include <cuda_runtime.h>\n#include <vector>\n"}, False),
        ({"csrc/k.cu": "#include <ATen/ATen.h>\n"}, True),
        (
            {"csrc/k.cu": '#include "a.h"\n', "inc/a.h": '# include "b.h"\n', "inc/b.h": "#include <ATen/ATen.h>\n"},
            True,
        ),
        ({"csrc/k.cu": '#include "a.h"\n', "csrc/a.h": "", "inc/a.h": "#include <ATen/ATen.h>\n"}, False),
        ({"csrc/k.cu": '#include "a.h"\n', "csrc/a.h": '#include "a.h"\n#include "../csrc/k.cu"\n'}, False),
    ],
    ids=["plain", "at-once", "by-headers", "the-nearest", "in-circles"],
)
def test_what_sees_torch(files: dict[str, str], expected: bool, tmp_path: Path) -> None:  # noqa: FBT001 -- a parameter
    """A source sees torch by its own lines or by the project's headers, looked for as compilers do."""
    source, output, near, system = once.read(tree(tmp_path, {**TORCH, **files}))
    assert (source, output) == (f"{tmp_path}/csrc/k.cu", "CMakeFiles/k.cu.o")
    assert (near, system) == ([f"{tmp_path}/inc"], [f"{tmp_path}/torch/include", f"{tmp_path}/cuda"])
    assert once.sees(str(source), near, system, [str(tmp_path / "torch")]) is expected


def test_who_waits_lends_its_job(tmp_path: Path) -> None:
    """While another compiler works on the same source, the token is in the pool; it is taken again afterwards."""
    if (reading := os.fork()) == 0:  # a process of its own: locks of one process do not wait for each other
        os._exit(_other(tmp_path))
    fifo = tmp_path / "jobs"
    while not (tmp_path / "held").exists():
        pass
    jobs = os.open(fifo, os.O_RDWR)
    once.wait(str(tmp_path / "lock"), once.Fifo(str(fifo)))
    assert os.waitpid(reading, 0)[1] == 0
    os.set_blocking(jobs, False)
    with pytest.raises(BlockingIOError):
        os.read(jobs, 1)
    os.close(jobs)


def _other(folder: Path) -> int:
    """Hold the lock until a token comes, put that back, and let go; 0 where one came."""
    os.mkfifo(folder / "jobs")
    jobs = os.open(folder / "jobs", os.O_RDWR)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "held").touch()
    lent = os.read(jobs, 1)
    os.write(jobs, lent)
    fcntl.flock(lock, fcntl.LOCK_UN)
    return 0 if lent == b"+" else 1


def test_a_fixed_number_of_jobs_does_not_wait(tmp_path: Path) -> None:
    """Without a jobserver the job cannot be lent: the file is compiled a second time."""
    held = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    once.wait(str(tmp_path / "lock"), None)  # by another descriptor: it would wait for ever
    os.close(held)


def test_the_pool_is_that_of_ninja(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named as GNU make names it."""
    monkeypatch.setenv("MAKEFLAGS", " -j2 --jobserver-auth=fifo:/tmp/a-pool/jobs")
    pool = once.pool()
    assert pool is not None
    assert pool.path == "/tmp/a-pool/jobs"  # noqa: S108 -- a name
    monkeypatch.delenv("MAKEFLAGS")
    assert once.pool() is None
