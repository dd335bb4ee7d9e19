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
from hatch_torch_ext.pipeline.jobserver import Pool

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_two_ninjas_share_the_pool(pool: Pool, tmp_path: Path) -> None:
    """Never more than three jobs run in both together, three do, and every token is back afterwards."""
    log = tmp_path / "log"
    folders = [edges(tmp_path / name, 6, log=log) for name in ("a", "b")]

    def build(folder: Path) -> None:
        with pool.token(), pool.share(Clients.NINJA) as share:
            assert start(folder, dict(share.environ)).wait() == 0

    threads = [threading.Thread(target=build, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most_at_once(log) == 3
    assert pool.free == 3


def test_tokens_of_a_killed_ninja_come_back(pool: Pool, tmp_path: Path) -> None:
    """Exactly its tokens are put back; another Ninja keeps those that it holds."""
    log = tmp_path / "log"
    with pool.token(), pool.token(), pool.share(Clients.NINJA) as share:
        killed = start(edges(tmp_path / "a", 4, log=log, seconds=0.6), dict(share.environ))
        deadline = time.monotonic() + 10
        while pool.free and time.monotonic() < deadline:
            time.sleep(0.02)
        assert pool.free == 0
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert pool.free == 0
        assert pool.restore() == 1
        assert pool.free == 1
        other = start(edges(tmp_path / "b", 4, log=log, seconds=0.6), dict(share.environ))
        while pool.free and time.monotonic() < deadline:
            time.sleep(0.02)
        assert pool.restore() == 0
        assert other.wait() == 0
    assert pool.free == 3


def test_a_ninja_with_a_fixed_number_holds_no_token(pool: Pool, tmp_path: Path) -> None:
    """Its jobs are not taken for those of a client, or what another lost would not come back."""
    folder, log = edges(tmp_path / "a", 3, log=tmp_path / "log", seconds=1), tmp_path / "log"
    running = subprocess.Popen([NINJA, "-C", folder, "-j", "3"], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while (not log.exists() or log.read_text(encoding="utf-8").count("start") < 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    with pool.token():
        os.read(pool.looking, 1)  # a token that is lost
        assert pool.restore() == 1
    assert running.wait() == 0


def test_without_the_jobserver_the_share_is_even(pool: Pool) -> None:
    """An older Ninja gets a number of jobs: its own token and an equal share of the free ones."""
    with pool.token(), pool.share(Clients.NONE) as share:
        assert share.arguments == ("-j", "3")
        assert not share.environ
        assert pool.free == 0
    with pool.token(), pool.token(), pool.share(Clients.NONE) as share:
        assert share.arguments == ("-j", "1")
    assert pool.free == 3


def test_a_thread_keeps_its_token_between_two_entries(pool: Pool) -> None:
    """A Ninja that looks for a token meanwhile finds two of three; the third is back once the thread has ended."""
    held = pool.held()
    for _ in range(2):
        with held.token():
            assert pool.free == 2
        assert pool.free == 2
    held.give()
    held.give()
    assert pool.free == 3


def test_a_token_that_somebody_waits_for_is_given_between_two_entries(pool: Pool) -> None:
    """The watch on memory, and an entry that wants all tokens, get it before the thread's next entry begins."""
    held, got = pool.held(), threading.Event()
    pool.take()
    pool.take()

    def want() -> None:
        pool.take()
        got.set()

    with held.token():
        thread = threading.Thread(target=want)
        thread.start()
        deadline = time.monotonic() + 10
        while not pool.is_wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not got.is_set()
    assert got.wait(10)
    thread.join()
    pool.give()
    with held.token():
        assert pool.free == 0
    held.give()
    assert pool.free == 1


def test_alone_is_alone_and_two_take_turns(pool: Pool) -> None:
    """Whoever asks for the machine holds every token; a second who asks meanwhile waits, and neither waits for ever."""
    inside: list[int] = []

    def ask() -> None:
        with pool.token(), pool.alone() as share:
            assert share.arguments == ("-j", "1")
            inside.append(pool.free)
            time.sleep(0.05)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert inside == [0, 0, 0]
    assert pool.free == 3


def test_alone_waits_for_no_token_that_is_kept_back(pool: Pool) -> None:
    """The watch on memory has a token and waits for another, which an entry that wants all tokens gets before it."""
    pool.keep_back()
    pool.take()
    pool.take()
    ended = threading.Event()

    def ask() -> None:
        with pool.alone():
            ended.set()
        pool.give()

    threads = [threading.Thread(target=ask, daemon=True), threading.Thread(target=pool.keep_back, daemon=True)]
    threads[0].start()
    deadline = time.monotonic() + 30
    while not pool.is_wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    threads[1].start()
    time.sleep(0.1)
    pool.give()
    assert ended.wait(30)
    for thread in threads:
        thread.join(30)
    pool.put_back(pool.size)
    assert pool.free == 3


def test_an_entry_that_fails_alone_gives_back_one_token(pool: Pool) -> None:
    """After a compiler was killed and its retry failed, the pool has neither a token more than jobs, nor one less."""
    held = pool.held()
    for _ in range(2):
        with pytest.raises(ProcessError), held.token(), pool.alone():
            raise ProcessError("", returncode=1, output="")
        assert pool.free == 2
    held.give()
    assert pool.free == 3


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
    with contextlib.closing(Pool(1, serves=True)) as made:
        assert not re.search(r"\s", str(made.path))
        assert len(str(made.path)) < 100
        assert made.serves
    monkeypatch.setattr("os.access", lambda *_: False)
    with contextlib.closing(Pool(1, serves=True)) as made:  # no other folder can be written
        assert made.folder.parent == unfit
        assert made.serves is (len(str(unfit)) <= 80)
