"""One pool of compile jobs for all entries: GNU make's jobserver, a FIFO with one byte for each job that may run.

Ninja 1.13 takes a byte before each job except its first, and puts it back. The first is covered here: an entry at work
holds one byte, whatever it does. This process does not compile, so the pool has as many bytes as jobs, not one less.
https://www.gnu.org/software/make/manual/html_node/POSIX-Jobserver.html
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
import termios
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import Stopped
from hatch_torch_ext.cmake.ninja import Clients, Share
from hatch_torch_ext.pipeline.tokenserver import TOKEN, TokenServer
from hatch_torch_ext.pipeline.turns import Turns
from hatch_torch_ext.resources import once

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = 4
PAUSE = 0.1  # seconds between two counts of running jobs
_LONGEST = 80  # bytes; a folder's and a socket's name follow


class Pool:
    """``size`` tokens in a FIFO in a folder of its own; waiting ends with ``Stopped`` once the pool is closed.

    With ``serves``, compilers that can wait for a token by themselves do so (``TokenServer``).
    """

    def __init__(self, size: int, *, serves: bool = False) -> None:
        place = _place()
        self.size, self.serves = size, serves and len(os.fsencode(place)) <= _LONGEST
        self.folder = Path(tempfile.mkdtemp(prefix="hte-", dir=place))
        self.path = self.folder / "jobs"
        os.mkfifo(self.path, 0o600)
        # Read-write: opening does not wait for another end, and reading never meets the end of the file.
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self.looking = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        """The FIFO's descriptor for those that do not wait in ``take``."""
        self._numbers = itertools.count()
        self.turns = Turns()
        self._closed = False
        self._lock = threading.Lock()
        self._alone = threading.Lock()
        self._taken = 0
        self._waiting = 0
        self.kept_back = 0
        """The number of tokens that ``keep_back`` took out of the pool."""
        os.write(self._fd, TOKEN * size)

    def take(self) -> None:
        """Wait for a token; a reader that waits gets it before a Ninja that polls between two jobs."""
        with self._lock:
            if self._closed:
                raise Stopped
            self._waiting += 1
        try:
            os.read(self._fd, 1)
        finally:
            with self._lock:
                self._waiting -= 1
        with self._lock:
            if self._closed:
                raise Stopped
            self._taken += 1

    def take_free(self) -> bool:
        """Take a token if there is a free one."""
        with self._lock:
            if self._closed:
                raise Stopped
            try:
                os.read(self.looking, 1)
            except BlockingIOError:
                return False
            self._taken += 1
        return True

    def give(self) -> None:
        """Put a token back."""
        with self._lock:
            if self._closed:
                return
            self._taken -= 1
            os.write(self._fd, TOKEN)

    def keep_back(self) -> None:
        """Wait for a token, and take it out of the pool until ``put_back``, or until an entry wants all tokens."""
        self.take()
        with self._lock:
            self.kept_back += 1

    def put_back(self, most: int) -> None:
        """Put back tokens that were taken out of the pool, ``most`` of them at most."""
        with self._lock:
            if self._closed or not (count := min(most, self.kept_back)):
                return
            self.kept_back -= count
            self._taken -= count
            os.write(self._fd, TOKEN * count)

    @contextlib.contextmanager
    def token(self) -> Iterator[None]:
        """Hold a token while the context lasts."""
        self.take()
        try:
            yield
        finally:
            self.give()

    def held(self) -> Held:
        """Return what holds a token of a thread that works on one entry after another."""
        return Held(self)

    @property
    def is_wanted(self) -> bool:
        """Return whether somebody waits in ``take``."""
        return self._waiting > 0

    @property
    def closed(self) -> bool:
        """Return whether the build ends, or was stopped."""
        return self._closed

    @property
    def free(self) -> int:
        """Return the number of free tokens."""
        count = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, count)
        return count[0]

    @property
    def wants_all(self) -> bool:
        """Return whether an entry waits for all tokens, or has them."""
        return self._alone.locked()

    @contextlib.contextmanager
    def share(self, clients: Clients) -> Iterator[Share]:
        """Give a token's holder a share of the pool: for compilers, for Ninja, or a fixed number of free tokens."""
        environ = {"MAKEFLAGS": f"--jobserver-auth=fifo:{self.path}"}
        if clients is Clients.COMPILERS:
            with contextlib.closing(TokenServer(self, self.folder / f"tokens{next(self._numbers)}")) as server:
                # With -j, Ninja leaves the jobserver to the programs that it starts.
                environ[once.TOKENS] = str(server.path)
                yield Share(arguments=("-j", str(self.size)), environ=environ, server=server)
            return
        if clients is Clients.NINJA:
            yield Share(environ=environ)
            return
        more = self._take_even()
        try:
            yield Share(arguments=("-j", str(1 + more)))
        finally:
            for _ in range(more):
                self.give()

    @contextlib.contextmanager
    def alone(self) -> Iterator[Share]:
        """Exchange the held token for all tokens of the pool; everything else in the build waits."""
        self.give()  # two that want all tokens would wait for each other's
        try:
            with self._alone:
                self.put_back(self.size)  # the watch on memory may wait for one more, which is taken here
                taken = 0
                try:
                    for _ in range(self.size):
                        self.take()
                        taken += 1
                    yield Share(arguments=("-j", "1"))
                finally:
                    for _ in range(taken):
                        self.give()
        finally:
            self.take()  # also after a failure: its holder gives it back

    def restore(self) -> int:
        """Put back the tokens that a killed client had taken; return how many there were.

        It is called when nothing of that client runs any more. The tokens of other clients are computed from their
        running jobs; since jobs end at any moment, the lowest of several counts is used.
        """
        lost = self.size
        for _ in range(SAMPLES):
            with self._lock:
                lost = min(lost, self.size - self.free - self._taken - _held_by_clients())
            if lost <= 0:
                return 0
            time.sleep(PAUSE)
        with self._lock:
            if not self._closed:
                os.write(self._fd, TOKEN * lost)
        return lost

    def close(self) -> None:
        """Wake all waiting threads, and remove the FIFO."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        deadline = time.monotonic() + 5
        while self._waiting and time.monotonic() < deadline:
            os.write(self._fd, TOKEN * self._waiting)
            time.sleep(0.01)
        os.close(self._fd)
        os.close(self.looking)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take_even(self) -> int:
        """Take free tokens, up to an even share, and return how many."""
        most, taken = self.size // max(1, self._taken) - 1, 0
        while taken < most and self.take_free():
            taken += 1
        return taken


class Held:
    """A thread's token, which it keeps from one entry to the next.

    A Ninja at work would take it in between, and may then have two with one long job left: its first, which it cannot
    give back, is idle until that job ends.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool, self._is_held = pool, False

    @contextlib.contextmanager
    def token(self) -> Iterator[None]:
        """Hold a token while the context lasts, and afterwards unless somebody waits for one."""
        if not self._is_held:
            self._pool.take()
            self._is_held = True
        try:
            yield
        finally:
            if self._pool.is_wanted:
                self.give()

    def give(self) -> None:
        """Put the token back, if there is one."""
        if self._is_held:
            self._is_held = False
            self._pool.give()


def _held_by_clients() -> int:
    """Return how many tokens the Ninjas of this process hold: one for each job except their first; with -j none."""
    names: dict[int, str] = {}
    parents: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text(encoding="utf-8", errors="replace").partition("(")[2].rpartition(")")
            parent = int(rest.split()[1])
            parents.append(parent)
            if parent == os.getpid() and b"\0-j\0" not in (stat.parent / "cmdline").read_bytes():
                names[int(stat.parent.name)] = name
    return sum(max(0, parents.count(pid) - 1) for pid, name in names.items() if name == "ninja")


def _place() -> str:
    """Return a folder with a short path without blanks: MAKEFLAGS is split at them, a socket's path has 107 bytes."""
    for folder in (tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108 -- a private folder is made in it
        if len(os.fsencode(folder)) > _LONGEST or any(letter.isspace() for letter in folder):
            continue
        if os.access(folder, os.W_OK):
            return folder
    return tempfile.gettempdir()
