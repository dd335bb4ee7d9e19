"""The pool of jobs: never more than its size, waiting that ends, tokens that come back; Ninja itself takes part."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import signal
import subprocess
import sysconfig
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base.errors import ProcessError, Stopped
from hatch_torch_ext.cmake.ninja import Clients
from hatch_torch_ext.pipeline import capacity
from hatch_torch_ext.pipeline.pool import Held, Pool, SharedLock
from hatch_torch_ext.pipeline.slots import Shares
from workbench import token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NINJA = Path(sysconfig.get_path("scripts")) / "ninja"
F_SETPIPE_SZ = 1031  # of Linux; Python 3.10 has the name
RULES = """
rule nap
  command = echo start >> {log} && sleep {seconds} && echo end >> {log}
"""


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Return a pool of three."""
    with contextlib.closing(Pool(3)) as made:
        yield made


@pytest.fixture
def shares(pool: Pool) -> Shares:
    """Return the shares of that pool."""
    return Shares(pool)


def edges(folder: Path, count: int, *, log: Path, seconds: float = 0.2) -> Path:
    """Write a build of ``count`` naps that note in ``log`` when they start and end."""
    folder.mkdir()
    text = RULES.format(log=log, seconds=seconds) + "".join(f"build out{i}: nap\n" for i in range(count))
    (folder / "build.ninja").write_text(text, encoding="utf-8")
    return folder


def most_at_once(log: Path) -> int:
    """Return how many naps ran at once at most."""
    now = most = 0
    for line in log.read_text(encoding="utf-8").split():
        now += 1 if line == "start" else -1
        most = max(most, now)
    return most


def start(folder: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start Ninja in a folder."""
    env = {**os.environ, **environ}
    return subprocess.Popen([NINJA, "-C", folder], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_the_largest_pool_has_room_for_all_its_tokens() -> None:
    """In the smallest FIFO that the kernel gives to a user of many, two pages, no token that is put back waits."""
    with contextlib.closing(Pool(capacity.MOST)) as pool:
        fcntl.fcntl(pool.looking, F_SETPIPE_SZ, 2 * resource.getpagesize())
        for count in (1, 1000, capacity.MOST, capacity.MOST - 1):
            assert all(pool.take_free() for _ in range(count))
            for _ in range(count):
                pool.give()
        assert pool.free == capacity.MOST


def test_two_ninjas_share_the_pool(pool: Pool, shares: Shares, tmp_path: Path) -> None:
    """Never more than three jobs run in both together, three do, and every token is back afterwards."""
    log = tmp_path / "log"
    folders = [edges(tmp_path / name, 6, log=log) for name in ("a", "b")]

    def build(folder: Path) -> None:
        with token(pool), shares.share(Clients.NINJA) as share:
            assert start(folder, dict(share.environ)).wait() == 0

    threads = [threading.Thread(target=build, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most_at_once(log) == 3
    assert pool.free == 3


def test_tokens_of_a_killed_ninja_come_back(pool: Pool, shares: Shares, tmp_path: Path) -> None:
    """Exactly its tokens, as soon as no Ninja runs: until then another one keeps those that it holds."""
    log = tmp_path / "log"
    with token(pool), token(pool):
        with shares.share(Clients.NINJA) as other:
            with shares.share(Clients.NINJA) as share:
                killed = start(edges(tmp_path / "a", 4, log=log, seconds=0.6), dict(share.environ))
                deadline = time.monotonic() + 30
                while pool.free and time.monotonic() < deadline:
                    time.sleep(0.02)
                assert pool.free == 0
                killed.send_signal(signal.SIGKILL)
                killed.wait()
            assert pool.free == 0  # another Ninja might hold it
            assert start(edges(tmp_path / "b", 2, log=log), dict(other.environ)).wait() == 0
        assert pool.free == 1
    assert pool.free == 3


def test_lost_tokens_come_back_though_others_wait_for_one(pool: Pool, shares: Shares) -> None:
    """A thread that waits is not taken for one that has just read a token, and none is made too many."""
    got = threading.Event()

    def want() -> None:
        with token(pool):
            got.set()

    with token(pool), shares.share(Clients.NINJA):
        os.read(pool.looking, 2)  # as Ninja does before it is killed
        thread = threading.Thread(target=want)
        thread.start()
        deadline = time.monotonic() + 30
        while not pool.has_waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not got.is_set()
    assert got.wait(30)
    thread.join()
    assert pool.free == 3
    with shares.share(Clients.NINJA), pool.path.open("ab") as file:
        file.write(b"++")  # lent by launchers whose Ninja was killed
    assert pool.free == 3


def test_without_the_jobserver_the_share_is_even(pool: Pool, shares: Shares) -> None:
    """An older Ninja gets a number of jobs: its own token and an equal share of the free ones."""
    with token(pool), shares.share(Clients.NONE) as share:
        assert share.arguments == ("-j", "3")
        assert not share.environ
        assert pool.free == 0
    with token(pool), token(pool), shares.share(Clients.NONE) as share:
        assert share.arguments == ("-j", "1")
    assert pool.free == 3


def test_a_thread_keeps_its_token_between_two_entries(pool: Pool) -> None:
    """A Ninja that looks for a token meanwhile finds two of three; the third is back once the thread has ended."""
    held = Held(pool)
    for _ in range(2):
        with held.token():
            assert pool.free == 2
        assert pool.free == 2
    held.give()
    held.give()
    assert pool.free == 3


def test_a_token_that_somebody_waits_for_is_given_between_two_entries(pool: Pool) -> None:
    """The watch on memory, and an entry that wants all tokens, get it before the thread's next entry begins."""
    held, got = Held(pool), threading.Event()
    pool.take()
    pool.take()

    def want() -> None:
        pool.take()
        got.set()

    with held.token():
        thread = threading.Thread(target=want)
        thread.start()
        deadline = time.monotonic() + 10
        while not pool.has_waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not got.is_set()
    assert got.wait(10)
    thread.join()
    pool.give()
    with held.token():
        assert pool.free == 0
    held.give()
    assert pool.free == 1


def test_exclusive_is_exclusive_and_two_take_turns(pool: Pool, shares: Shares) -> None:
    """Nobody else compiles meanwhile; a second who asks waits, those who compile come to their end before."""
    inside: list[str] = []
    running = threading.Event()

    def ask() -> None:
        with token(pool), shares.exclusive() as share:
            assert share.arguments == ("-j", "1")
            inside.append("begun")
            time.sleep(0.05)
            inside.append("ended")

    def compiles() -> None:
        with token(pool), shares.share(Clients.NINJA):
            running.set()
            time.sleep(0.2)
            inside.append("compiled")

    threads = [threading.Thread(target=compiles), *(threading.Thread(target=ask) for _ in range(3))]
    for thread in threads:
        thread.start()
        assert running.wait(10)
    for thread in threads:
        thread.join(10)
    assert inside == ["compiled", *["begun", "ended"] * 3]
    assert pool.free == 3


def test_an_entry_that_fails_alone_gives_back_one_token(pool: Pool, shares: Shares) -> None:
    """After a compiler was killed and its retry failed, the pool has neither a token more than jobs, nor one less."""
    held = Held(pool)
    for _ in range(2):
        with pytest.raises(ProcessError), held.token(), shares.exclusive():
            raise ProcessError("", returncode=1, output="")
        assert pool.free == 2
    held.give()
    assert pool.free == 3


def test_who_waits_for_a_lock_gives_its_token_back(pool: Pool) -> None:
    """Those at work need it to come to their end; who waits to be by itself goes before those that come later."""
    lock, order = SharedLock(pool), list[str]()

    def hold(name: str, *, exclusive: bool) -> None:
        with token(pool), lock.held(exclusive=exclusive):
            order.append(name)

    def soon(true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not true():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    with token(pool), lock.held(exclusive=False):
        first = threading.Thread(target=hold, args=("exclusive",), kwargs={"exclusive": True})
        first.start()
        soon(lambda: lock._exclusive_waiting == 1)
        second = threading.Thread(target=hold, args=("beside",), kwargs={"exclusive": False})
        second.start()
        soon(lambda: pool.free == 2)
        assert order == []
    for thread in (first, second):
        thread.join(30)
    assert order == ["exclusive", "beside"]
    assert pool.free == 3


def test_a_lock_is_not_waited_for_once_the_build_stops(pool: Pool) -> None:
    """Whoever waits gets ``Stopped``."""
    lock, ended = SharedLock(pool), list[str]()
    pool.take()
    lock.acquire(exclusive=True)

    def wait() -> None:
        pool.take()
        try:
            lock.acquire(exclusive=False)
        except Stopped:
            ended.append("stopped")

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    pool.close()
    for thread in threads:
        thread.join(30)
    assert ended == ["stopped"] * 2


def test_closing_ends_every_wait(pool: Pool) -> None:
    """Threads that wait for a token get ``Stopped``; the pool leaves no files."""
    ended: list[str] = []

    def wait() -> None:
        try:
            pool.take()
        except Stopped:
            ended.append("stopped")

    for _ in range(3):
        pool.take()
    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    pool.close()
    for thread in threads:
        thread.join(10)
    assert ended == ["stopped"] * 4
    assert not pool.folder.exists()
    with pytest.raises(Stopped):
        pool.take()


@pytest.mark.parametrize("name", ["with blank", "long" * 25])
def test_the_path_is_short_and_has_no_blank(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MAKEFLAGS are split at blanks, and a socket's path has 107 bytes: where need be, another folder is taken."""
    unfit = tmp_path / name
    unfit.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(unfit))
    with contextlib.closing(Pool(1)) as made:
        assert not re.search(r"\s", str(made.path))
        assert len(str(made.path)) < 100
        assert Shares(made, compilers_wait=True).compilers_wait
    monkeypatch.setattr("os.access", lambda *_: False)
    with contextlib.closing(Pool(1)) as made:  # no other folder can be written
        assert made.folder.parent == unfit
        assert Shares(made, compilers_wait=True).compilers_wait is (len(str(unfit)) <= 80)
