"""Ends the processes of a stopped build: compilers outlive a killed ninja, and a build outlives its killed caller.

The programs of one family inherit one environment variable, at whatever depth they were started, so they are found
without being tracked. Run as a program, this waits until its standard input closes: with a last word, the build ended
by itself; without one, the process that started it was killed, and the family is ended too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

VARIABLE = "HATCH_TORCH_EXT_FAMILY"
"""``<name>.<session>``: daemons that a program leaves behind (sccache's server) have their own session."""
GRACE = 0.5  # seconds between SIGTERM and SIGKILL


def members(name: str) -> list[int]:
    """Return the processes of the family ``name``, those whose parents are not of it first."""
    needle = f"\0{VARIABLE}={name}.".encode()
    found = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():  # a chroot may have none
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{entry}/environ", "rb") as stream:
                environ = b"\0" + stream.read()
            start = environ.find(needle) + 1
            if not start:
                continue
            session = environ[start:].partition(b"\0")[0].rpartition(b".")[2]
            with open(f"/proc/{entry}/stat", "rb") as stream:
                state, parent, _, own_session = stream.read().rpartition(b")")[2].split()[:4]
            if own_session == session and state not in b"ZX":
                found[int(entry)] = int(parent)
    return sorted(found, key=lambda pid: (found[pid] in found, pid))


def end(name: str, *, grace: float = GRACE) -> int:
    """Ask every process of the family to end, kill those that do not, and return how many there were."""
    first = members(name)
    _send(first, signal.SIGTERM)
    deadline = time.monotonic() + grace
    left = first
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = members(name)
    while left:
        _send(left, signal.SIGKILL)
        time.sleep(0.01)
        left = members(name)
    return len(first)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def main(name: str, *folders: str) -> None:
    """Wait for the end of the build; if it was killed, end the family and remove ``folders``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ended = sys.stdin.buffer.read()
    if not ended:
        end(name, grace=0.1)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
