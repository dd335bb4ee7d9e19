"""One pool of compile jobs for all entries (GNU make's jobserver), and their turns at the author's sources.

Ninja 1.13 takes a byte before each job except its first, and puts it back. The first is covered here: an entry at work
holds one byte, whatever it does. This process does not compile, so the pool has as many bytes as jobs, not one less.
https://www.gnu.org/software/make/manual/html_node/POSIX-Jobserver.html
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import shutil
import tempfile
import termios
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

TOKEN = b"+"
LOOK = 0.2  # seconds between two looks whether the build was stopped
_LONGEST = 80  # bytes; a folder's and a socket's name follow


class Pool:
    """``size`` tokens in a FIFO in a separate folder; waiting ends with ``Stopped`` once the pool is closed."""

    def __init__(self, size: int) -> None:
        place = _place()
        self.size, self.has_short_path = size, len(os.fsencode(place)) <= _LONGEST
        self.folder = Path(tempfile.mkdtemp(prefix="hte-", dir=place))
        self.path = self.folder / "jobs"
        os.mkfifo(self.path, 0o600)
        # Read-write: opening does not wait for another end, and reading never meets the end of the file.
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self.looking = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        """The FIFO's descriptor for those that do not wait in ``take``."""
        self.closed = False
        """Whether the build ends, or was stopped."""
        self._lock = threading.Lock()
        self.taken = 0
        """The number of tokens that this process has taken; Ninja takes its own."""
        self._waiting = 0
        self.kept_back = 0
        """The number of tokens that ``keep_back`` took out of the pool."""
        os.write(self._fd, TOKEN * size)

    def take(self) -> None:
        """Wait for a token. It is read and counted in one step, so that ``refill`` counts none for lost."""
        with self._lock:
            self._waiting += 1
        try:
            free = select.poll()
            free.register(self.looking, select.POLLIN)
            while not self.take_free():
                free.poll()
        finally:
            with self._lock:
                self._waiting -= 1

    def take_free(self) -> bool:
        """Take a token if there is a free one."""
        with self._lock:
            if self.closed:
                raise Stopped
            try:
                os.read(self.looking, 1)
            except BlockingIOError:
                return False
            self.taken += 1
        return True

    def give(self) -> None:
        """Put a token back."""
        with self._lock:
            if self.closed:
                return
            self.taken -= 1
            os.write(self._fd, TOKEN)

    def keep_back(self) -> None:
        """Wait for a token, and take it out of the pool until ``put_back``."""
        self.take()
        with self._lock:
            self.kept_back += 1

    def put_back(self, most: int) -> None:
        """Put back tokens that were taken out of the pool, ``most`` of them at most."""
        with self._lock:
            if self.closed or not (count := min(most, self.kept_back)):
                return
            self.kept_back -= count
            self.taken -= count
            os.write(self._fd, TOKEN * count)

    def refill(self) -> int:
        """Put back the tokens that clients which were killed had taken; return how many there were.

        It is called while no client runs: each token is then free, taken here, or lost. If a client was killed while a
        launcher had lent it a job, there is one token too many: it is taken out, and the number is negative.
        """
        with self._lock:
            if self.closed:
                return 0
            free = self.free
            lost = self.size - free - self.taken
            if lost > 0:
                os.write(self._fd, TOKEN * lost)
            elif lost < 0 and free:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.looking, min(-lost, free))
        return lost

    @property
    def has_waiting(self) -> bool:
        """Return whether somebody waits in ``take``."""
        return self._waiting > 0

    @property
    def free(self) -> int:
        """Return the number of free tokens."""
        count = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, count)
        return count[0]

    def close(self) -> None:
        """Wake all waiting threads, and remove the FIFO."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        deadline = time.monotonic() + 5
        while self._waiting and time.monotonic() < deadline:
            if not self.free:
                os.write(self._fd, TOKEN)  # all that wait see that there is one
            time.sleep(0.01)
        os.close(self._fd)
        os.close(self.looking)
        shutil.rmtree(self.folder, ignore_errors=True)


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
            if self._pool.has_waiting:
                self.give()

    def give(self) -> None:
        """Put the token back, if there is one."""
        if self._is_held:
            self._is_held = False
            self._pool.give()


class SharedLock:
    """A lock that several hold beside one another, or one by itself; who waits to hold it by itself goes first.

    Whoever waits gives its token of the pool back meanwhile, or those that hold the lock could not come to their end.
    """

    def __init__(self, pool: Pool, *, idle: Callable[[], object] = lambda: None) -> None:
        self._pool, self._idle = pool, idle
        self._changed = threading.Condition()
        self.beside = 0
        self.is_exclusive = False
        self._exclusive_waiting = 0

    def acquire(self, *, exclusive: bool, begun: Callable[[], None] = lambda: None) -> None:
        """Wait until the lock is free, and call ``begun`` before anyone else can take it or let it go.

        The caller holds a token of the pool, afterwards too. Raises ``Stopped`` once the pool is closed.
        """
        with self._changed:
            if self._is_free(exclusive=exclusive):
                self._begin(begun, exclusive=exclusive)
                return
            self._exclusive_waiting += exclusive
        self._pool.give()
        try:
            with self._changed:
                try:
                    while not self._is_free(exclusive=exclusive):
                        if self._pool.closed:
                            raise Stopped
                        self._changed.wait(LOOK)
                    self._begin(begun, exclusive=exclusive)
                finally:
                    self._exclusive_waiting -= exclusive
        finally:
            self._pool.take()

    def release(self, *, exclusive: bool) -> None:
        """Let the lock go. Where nobody else holds it, ``idle`` is called before anyone can take it."""
        with self._changed:
            if exclusive:
                self.is_exclusive = False
            else:
                self.beside -= 1
            if not self.beside:
                self._idle()
            self._changed.notify_all()

    @contextlib.contextmanager
    def held(self, *, exclusive: bool) -> Iterator[None]:
        """Hold the lock while the context lasts."""
        self.acquire(exclusive=exclusive)
        try:
            yield
        finally:
            self.release(exclusive=exclusive)

    def _is_free(self, *, exclusive: bool) -> bool:
        return not self.is_exclusive and not (self.beside if exclusive else self._exclusive_waiting)

    def _begin(self, begun: Callable[[], None], *, exclusive: bool) -> None:
        if exclusive:
            self.is_exclusive = True
        else:
            self.beside += 1
        begun()


def _place() -> str:
    """Return a folder with a short path without blanks: MAKEFLAGS is split at them, a socket's path has 107 bytes."""
    for folder in (tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108 -- a private folder is made in it
        if len(os.fsencode(folder)) > _LONGEST or any(letter.isspace() for letter in folder):
            continue
        if os.access(folder, os.W_OK):
            return folder
    return tempfile.gettempdir()


class Sources:
    """The sources of a build's entries: worked on by several beside one another, or by one."""

    def __init__(self, pool: Pool) -> None:
        self.lock, self.configure = SharedLock(pool), SharedLock(pool)
        self.begun = 0  # turns so far

    @contextlib.contextmanager
    def turn(self) -> Iterator[EntryTurn]:
        """Be at work beside other entries while the context lasts; the caller holds a token of the pool."""
        turn = EntryTurn(self)
        try:
            turn.begin(exclusive=False)
            yield turn
        finally:
            turn.end()


class EntryTurn:
    """One entry's turn at the sources, from its configure step to its install step."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._exclusive: bool | None = None  # None: not at work
        self._others = False  # at the beginning of the turn
        self._number = 0

    def configuring(self) -> AbstractContextManager[None]:
        """Be the only entry in its configure step: of two CMakes that write one file at once, neither has its own."""
        return self._sources.configure.held(exclusive=True)

    @property
    def others_configure(self) -> bool:
        """Whether another entry may be writing into the sources now; this one is not in its configure step."""
        return self._sources.configure.is_exclusive

    def by_itself(self) -> None:
        """Wait until no other entry is at work, and let none begin before this one has ended."""
        if not self._exclusive:
            self.end()
            self.begin(exclusive=True)

    @property
    def is_shared(self) -> bool:
        """Whether another entry is or was at work during this turn."""
        return not self._exclusive and (self._others or self._sources.begun != self._number)

    def begin(self, *, exclusive: bool) -> None:
        """Wait until this entry may be at work."""
        self._sources.lock.acquire(exclusive=exclusive, begun=partial(self._note, exclusive=exclusive))

    def end(self) -> None:
        """Be at work no more."""
        if self._exclusive is not None:
            exclusive, self._exclusive = self._exclusive, None
            self._sources.lock.release(exclusive=exclusive)

    def _note(self, *, exclusive: bool) -> None:
        self._exclusive = exclusive
        self._sources.begun += 1
        self._number = self._sources.begun
        self._others = self._sources.lock.beside > 1
