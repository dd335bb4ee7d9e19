"""Gives an entry's compilers a token of the pool each, by a Unix socket: one that becomes free is used at once.

A Ninja that is itself a client of the jobserver takes a free token only when one of its own jobs ends
(https://github.com/ninja-build/ninja/issues/2683). Here it starts as many jobs as the pool has, and each waits in the
launcher ``resources/once.py``: a message asks for a token, the answer is the token, the next message gives it back. The
kernel closes the connection when the compiler and all that it started have ended, however they ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import Stopped
from hatch_torch_ext.pipeline.pool import TOKEN

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.pipeline.pool import Pool

_MESSAGE = 4096


class TokenServer:
    """The tokens of one run of Ninja, whose entry holds one: the first compiler gets that, the others take their own.

    So the entry has its token at the end without waiting for it. It is lent to the pool only while all that its Ninja
    started wait for other entries' compilers.
    """

    def __init__(self, pool: Pool, path: Path) -> None:
        self._pool, self.path = pool, path
        self.started: dict[str, float] = {}
        """When each output's compiler got its token, in seconds since 1970."""
        self._tokens = 1
        self._clients: dict[int, socket.socket] = {}
        self._asking: dict[int, str] = {}
        self._running: set[int] = set()
        self._lending: set[int] = set()
        self._refusing = self._ended = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(os.fspath(path))
        self._listener.listen(socket.SOMAXCONN)
        self._waker, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name=path.name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        """Return how many compilers have a token."""
        return len(self._running)

    def refuse(self) -> None:
        """End the launchers that wait and those still to come: a file failed, and Ninja would wait for all of them."""
        self._refusing = True
        self._wake()

    def close(self) -> None:
        """End the service; afterwards the entry holds one token, as before."""
        self._ended = True
        self._wake()
        self._thread.join()
        self.path.unlink(missing_ok=True)
        for _ in range(1, self._tokens):
            self._pool.give()
        if not self._tokens:
            self._pool.take()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # closed: the thread has ended
            self._waker.send(TOKEN)

    def _serve(self) -> None:
        try:
            while not self._ended:
                self._turn()
        finally:  # whoever still waits gets an answer
            for each in (self._listener, self._waker, self._woken, *self._clients.values()):
                each.close()

    def _turn(self) -> None:
        """Wait until something happens, and react to all that did."""
        waiting = select.poll()
        for descriptor in (self._listener.fileno(), self._woken.fileno(), *self._clients):
            waiting.register(descriptor, select.POLLIN)
        if self._asking:
            waiting.register(self._pool.looking, select.POLLIN)
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if self._woken.fileno() in ready:
            self._woken.recv(_MESSAGE)
        for descriptor in ready & self._clients.keys():
            self._hear(descriptor)
        if self._listener.fileno() in ready:
            client = self._listener.accept()[0]
            self._clients[client.fileno()] = client
        self._hand_out()
        while self._tokens > max(len(self._running), 0 if self._lending else 1):
            self._tokens -= 1
            self._pool.give()

    def _hear(self, descriptor: int) -> None:
        """Take a client's message: it gives its token back if it has one, and asks for one if not."""
        try:
            message = self._clients[descriptor].recv(_MESSAGE)
        except OSError:
            message = b""
        if not message:
            self._forget(descriptor)
        elif descriptor in self._running:
            self._running.discard(descriptor)
            self._lending.add(descriptor)
        else:
            self._lending.discard(descriptor)
            self._asking[descriptor] = os.fsdecode(message)

    def _forget(self, descriptor: int) -> None:
        self._clients.pop(descriptor).close()
        self._asking.pop(descriptor, None)
        self._running.discard(descriptor)
        self._lending.discard(descriptor)

    def _hand_out(self) -> None:
        try:
            while self._asking and not self._refusing:
                if self._tokens == len(self._running):
                    if not self._pool.take_free():
                        break
                    self._tokens += 1
                descriptor, output = next(iter(self._asking.items()))
                del self._asking[descriptor]
                self._running.add(descriptor)
                self.started[output] = time.time()
                with contextlib.suppress(OSError):  # it has ended, as the next look at it will tell
                    self._clients[descriptor].send(TOKEN)
        except Stopped:
            self._refusing = True
        if self._refusing:
            for descriptor in list(self._asking):
                self._forget(descriptor)
