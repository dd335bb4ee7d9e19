"""Compilers that take their tokens by themselves: never too many, none lost, whatever ends them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base.errors import Stopped
from hatch_torch_ext.cmake.ninja import Clients
from hatch_torch_ext.pipeline.pool import Pool
from hatch_torch_ext.pipeline.slots import Shares
from hatch_torch_ext.pipeline.tokenserver import TokenServer
from hatch_torch_ext.resources import once
from workbench import token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NINJA = Path(sysconfig.get_path("scripts")) / "ninja"


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Return a pool of three."""
    with contextlib.closing(Pool(3)) as made:
        yield made


@pytest.fixture
def server(pool: Pool) -> Iterator[TokenServer]:
    """Return the service of an entry, which holds one of the tokens."""
    with token(pool), contextlib.closing(TokenServer(pool, pool.folder / "tokens")) as made:
        yield made


def launcher(folder: Path, *command: str) -> list[str]:
    """Return the command line of a launcher before ``command``."""
    return [sys.executable, "-I", "-S", once.__file__, str(folder), str(folder / "torch"), *command]


def compiler(server: TokenServer, folder: Path, command: str = "exec sleep 60") -> subprocess.Popen[str]:
    """Start a launcher of a shell's command."""
    return subprocess.Popen(
        launcher(folder, "sh", "-c", command),
        env={**os.environ, once.TOKENS: str(server.path)},
        stderr=subprocess.PIPE,
        text=True,
    )


def soon(true: Callable[[], bool]) -> bool:
    """Wait until something is true, for a minute at most."""
    deadline = time.monotonic() + 60
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def test_two_ninjas_share_the_pool(pool: Pool, tmp_path: Path) -> None:
    """Each starts as many launchers as there are tokens: never more than three compilers, and no token is lost."""
    log, shares = tmp_path / "log", Shares(pool, compilers_wait=True)

    def build(folder: Path) -> None:
        folder.mkdir()
        nap = shlex.join(launcher(folder, "sh", "-c", f"echo start >> {log}; sleep 0.1; echo end >> {log}"))
        text = f"rule nap\n  command = {nap}\n" + "".join(f"build out{i}: nap\n" for i in range(6))
        (folder / "build.ninja").write_text(text, encoding="utf-8")
        with token(pool), shares.share(Clients.COMPILERS) as share:
            command = [str(NINJA), "-C", str(folder), *share.arguments]
            said = subprocess.run(command, env={**os.environ, **share.environ}, capture_output=True, check=True)
            assert b"warning" not in said.stderr + said.stdout

    threads = [threading.Thread(target=build, args=(tmp_path / name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = most = 0
    steps = log.read_text(encoding="utf-8").split()
    for step in steps:
        now += 1 if step == "start" else -1
        most = max(most, now)
    assert len(steps) == 24
    assert 2 <= most <= 3
    assert pool.free == 3
    assert list(pool.folder.iterdir()) == [pool.path]


def test_status_and_output_are_the_compilers(server: TokenServer, tmp_path: Path) -> None:
    """The launcher becomes the compiler: its exit status and its signal reach Ninja."""
    assert compiler(server, tmp_path, "exit 7").wait() == 7
    with compiler(server, tmp_path, "echo said >&2; kill -9 $$") as ended:
        assert ended.wait() == -signal.SIGKILL
        assert ended.stderr is not None
        assert ended.stderr.read() == "said\n"


def test_a_killed_compiler_gives_its_token_back(server: TokenServer, pool: Pool, tmp_path: Path) -> None:
    """One that waits does as well: the next one gets the token."""
    running = [compiler(server, tmp_path, f"touch {tmp_path}/{number}; exec sleep 60") for number in range(3)]
    assert soon(lambda: server.running == 3)
    assert pool.free == 0
    waiting = [compiler(server, tmp_path) for _ in range(2)]
    assert soon(lambda: len(server._asking) == 2)
    waiting[0].kill()
    assert soon(lambda: len(server._asking) == 1)
    running[0].kill()
    assert soon(lambda: not server._asking)
    assert server.running == 3
    for each in (*running, *waiting):
        each.kill()
    assert soon(lambda: server.running == 0)
    assert pool.free == 2  # the entry has the third
    for each in (*running, *waiting):
        each.communicate()


def test_a_token_is_held_by_all_that_a_compiler_started(pool: Pool, tmp_path: Path) -> None:
    """The driver ends, its compiler goes on: the token is not free. A daemon has it until Ninja's run is over."""
    daemon = tmp_path / "daemon"
    with token(pool):
        with contextlib.closing(TokenServer(pool, pool.folder / "tokens")) as server:
            with compiler(server, tmp_path, f"sleep 60 2>&1 >/dev/null & echo $! > {daemon}") as ended:
                ended.wait()
                assert server.running == 1
                os.kill(int(daemon.read_text(encoding="ascii")), signal.SIGKILL)
            assert soon(lambda: server.running == 0)
            with compiler(server, tmp_path, f"sleep 60 2>/dev/null & echo $! > {daemon}") as ended:
                ended.wait()
        assert pool.free == 2
        os.kill(int(daemon.read_text(encoding="ascii")), signal.SIGKILL)
    assert pool.free == 3


def test_who_waits_for_another_entry_lends_its_job(pool: Pool, tmp_path: Path) -> None:
    """In a pool of two, an entry that has nothing else to do lends even its own token, and has it back at the end."""
    kernel = ["sh", "-c", f"touch {tmp_path}/began; exec sleep 60", "-o", "kernel.o", "kernel.c"]
    with contextlib.ExitStack() as stack, contextlib.closing(Pool(2)) as two:
        servers = []
        for name in ("a", "b"):
            stack.enter_context(token(two))
            servers.append(stack.enter_context(contextlib.closing(TokenServer(two, two.folder / name))))
        environs = [{**os.environ, once.TOKENS: str(each.path)} for each in servers]
        first = subprocess.Popen(launcher(tmp_path, *kernel), env=environs[0])
        assert soon((tmp_path / "began").exists)
        second = subprocess.Popen(launcher(tmp_path, "true", *kernel[3:]), env=environs[1])
        assert soon(lambda: two.free == 1)
        third = compiler(servers[0], tmp_path)
        assert soon(lambda: servers[0].running == 2)
        third.kill()
        third.communicate()
        assert soon(lambda: two.free == 1)
        first.kill()
        first.wait()
        assert second.wait() == 0
        assert servers[0].started.keys() >= {"kernel.o"}
        stack.close()
        assert two.free == 2
    assert pool.free == 3


def test_messages_that_follow_each_other_stay_apart(server: TokenServer) -> None:
    """A token that is given back and requested at once: the lock that it was lent for was free a moment later."""
    client = once.Connection(str(server.path), "kernel.o")
    client.socket.settimeout(20)
    client.take()
    for _ in range(300):
        client.give()
        client.take()
    client.socket.close()


def test_after_a_failure_nothing_is_begun(server: TokenServer, pool: Pool, tmp_path: Path) -> None:
    """Launchers that wait end with a message of their own; compilers that run are left to end."""
    running = [compiler(server, tmp_path) for _ in range(3)]
    assert soon(lambda: server.running == 3)
    waiting = compiler(server, tmp_path)
    assert soon(lambda: len(server._asking) == 1)
    server.refuse()
    later = compiler(server, tmp_path)
    for each in (waiting, later):
        _, said = each.communicate()
        assert each.returncode == once.REFUSED
        assert said == "not compiled: another file of this entry failed, or its build has ended\n"
    assert [each.poll() for each in running] == [None] * 3
    for each in running:
        each.kill()
        each.communicate()
    assert soon(lambda: pool.free == 2)


def test_the_end_of_the_build_ends_every_wait(pool: Pool, tmp_path: Path) -> None:
    """The pool is closed, as by Ctrl-C: launchers end; those that come later find no server, and end too."""
    with contextlib.closing(TokenServer(pool, pool.folder / "tokens")) as server:
        pool.take()
        running = [compiler(server, tmp_path) for _ in range(3)]
        assert soon(lambda: server.running == 3)
        waiting = compiler(server, tmp_path)
        assert soon(lambda: len(server._asking) == 1)
        pool.close()
        for each in running:
            each.kill()
            each.communicate()
        assert waiting.wait() == once.REFUSED
    assert compiler(server, tmp_path).wait() == once.REFUSED
    with pytest.raises(Stopped):
        pool.take_free()


def test_a_killed_builder_leaves_no_launcher_waiting(tmp_path: Path) -> None:
    """Its sockets close with it."""
    text = (
        "import sys; from pathlib import Path; from hatch_torch_ext.pipeline.pool import Pool\n"
        "from hatch_torch_ext.pipeline.tokenserver import TokenServer\n"
        "pool = Pool(1); pool.take(); server = TokenServer(pool, Path(sys.argv[1]))\n"
        "print(pool.folder, flush=True); input()"
    )
    path = tmp_path / "tokens"
    builder = subprocess.Popen(
        [sys.executable, "-c", text, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert builder.stdout is not None
    folder = Path(builder.stdout.readline().strip())
    env = {**os.environ, once.TOKENS: str(path)}
    began = tmp_path / "began"
    running = subprocess.Popen(launcher(tmp_path, "sh", "-c", f"touch {began}; exec sleep 60"), env=env)
    assert soon(began.exists)
    waiting = subprocess.Popen(launcher(tmp_path, "touch", str(tmp_path / "second")), env=env, stderr=subprocess.PIPE)
    time.sleep(0.3)
    builder.kill()
    builder.communicate()
    waiting.communicate()
    assert waiting.returncode == once.REFUSED
    assert not (tmp_path / "second").exists()
    running.kill()
    running.wait()
    (folder / "jobs").unlink()
    folder.rmdir()
