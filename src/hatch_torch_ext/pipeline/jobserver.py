"""One pool of compile jobs for all entries: GNU make's jobserver, a FIFO with one byte for each job that may run.

Ninja 1.13 takes a byte before each job except its first, and puts it back. The first is covered here: an entry at work
holds one byte, whatever it does. This process does not compile, so the pool has as many bytes as jobs, not one less.
https://www.gnu.org/software/make/manual/html_node/POSIX-Jobserver.html
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import shutil
import tempfile
import termios
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.cmake.ninja import Share
from hatch_torch_ext.errors import Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = b"+"
SAMPLES = 4
PAUSE = 0.1  # seconds between two counts of running jobs


class Pool:
    """``size`` tokens in a FIFO in a folder of its own; waiting ends with ``Stopped`` once the pool is closed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.folder = Path(tempfile.mkdtemp(prefix="hte-", dir=_place()))
        self.path = self.folder / "jobs"
        os.mkfifo(self.path, 0o600)
        # Read-write: opening does not wait for another end, and reading never meets the end of the file.
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._closed = False
        self._lock = threading.Lock()
        self._alone = threading.Lock()
        self._taken = 0
        self._waiting = 0
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

    def give(self) -> None:
        """Put a token back."""
        with self._lock:
            if self._closed:
                return
            self._taken -= 1
            os.write(self._fd, TOKEN)

    @contextlib.contextmanager
    def token(self) -> Iterator[None]:
        """Hold a token while the context lasts."""
        self.take()
        try:
            yield
        finally:
            self.give()

    @property
    def free(self) -> int:
        """Return the number of free tokens."""
        count = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, count)
        return count[0]

    @contextlib.contextmanager
    def share(self, *, jobserver: bool) -> Iterator[Share]:
        """Give a token's holder a share of the pool: access to the FIFO, or a fixed number of free tokens."""
        if jobserver:
            yield Share(environ={"MAKEFLAGS": f"--jobserver-auth=fifo:{self.path}"})
            return
        more = self._take_free()
        try:
            yield Share(arguments=("-j", str(1 + more)))
        finally:
            for _ in range(more):
                self.give()

    @contextlib.contextmanager
    def alone(self) -> Iterator[Share]:
        """Exchange the held token for all tokens of the pool; everything else in the build waits."""
        self.give()  # two that want all tokens would wait for each other's
        with self._alone:
            taken = 0
            try:
                for _ in range(self.size):
                    self.take()
                    taken += 1
                yield Share(arguments=("-j", "1"))
            finally:
                for _ in range(taken):
                    self.give()
        self.take()

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
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take_free(self) -> int:
        """Take free tokens, up to an even share, and return how many."""
        taken = 0
        looking = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with self._lock:
            try:
                while taken < self.size // max(1, self._taken) - 1:
                    os.read(looking, 1)
                    taken += 1
            except BlockingIOError:
                pass
            finally:
                os.close(looking)
                self._taken += taken
        return taken


def _held_by_clients() -> int:
    """Return how many tokens the Ninjas of this process hold: one for each job except their first."""
    names: dict[int, str] = {}
    parents: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text(encoding="utf-8", errors="replace").partition("(")[2].rpartition(")")
            parent = int(rest.split()[1])
            parents.append(parent)
            if parent == os.getpid():
                names[int(stat.parent.name)] = name
    return sum(max(0, parents.count(pid) - 1) for pid, name in names.items() if name == "ninja")


def _place() -> str:
    """Return a folder for the FIFO without blanks in its path, since MAKEFLAGS is split at them."""
    for folder in (tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108 -- a private folder is made in it
        if not any(letter.isspace() for letter in folder) and os.access(folder, os.W_OK):
            return folder
    return tempfile.gettempdir()
