"""The only place that starts programs: argument lists, logged as a person would type them, errors with their output."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from hatch_torch_ext.errors import ProcessError, Stopped
from hatch_torch_ext.resources import reaper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    Line = Callable[[str], str | None]

TAIL_LINES = 40
CREDENTIALS = re.compile(r"://[^/@\s]+@")
"""User and password of an address, as in index settings."""


QUIET = 0.2  # seconds without output after a program's end: a daemon of it may hold the pipe open for ever
_BATCH = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """What a finished program left: its output (``stdout`` apart from ``stderr`` unless merged).

    ``peak`` is the memory in bytes that the largest process among it and those it started had at once.
    """

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    peak: int = 0


class Family:
    """Programs that are stopped together, with all that they started: those of one build, or of one entry of it.

    ``name`` is theirs alone, without blanks. A family ``within`` another is stopped with it.
    """

    def __init__(self, name: str, within: Family | None = None) -> None:
        self.name: str = name if within is None else f"{within.name}.{name}"
        self._within = within
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called: nothing more is started."""
        return self._stopped.is_set() or (self._within is not None and self._within.stopped)

    @property
    def environ(self) -> dict[str, str]:
        """Return what its programs are known by."""
        return {reaper.VARIABLE: f"{self.name}.{os.getsid(0)}"}

    def stop(self) -> None:
        """End every program of the family now, and start none any more."""
        self._stopped.set()
        reaper.end(self.name)

    def end_orphans(self) -> int:
        """End what is left of it, ninja's compilers when ninja was killed; return how many there were."""
        return reaper.end(self.name)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Make what this context (thread) starts belong to the family."""
        token = _FAMILY.set(self)
        try:
            yield
        finally:
            _FAMILY.reset(token)

    @contextlib.contextmanager
    def guarded(self, *folders: Path) -> Iterator[None]:
        """End the family and remove ``folders`` also where this process is killed meanwhile."""
        command = [sys.executable, "-I", "-S", reaper.__file__, self.name, *map(os.fspath, folders)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:
            try:
                yield
            finally:
                with contextlib.suppress(BrokenPipeError):
                    guard.communicate(b"ended")


_FAMILY: ContextVar[Family | None] = ContextVar("family", default=None)


def command_line(command: Sequence[str], env_changes: Mapping[str, str | None] | None = None) -> str:
    """Return the command as a person would type it into a POSIX shell, changed variables first, no passwords."""
    changes = [
        f"-u {shlex.quote(name)}" if value is None else f"{name}={shlex.quote(value)}"
        for name, value in sorted((env_changes or {}).items())
    ]
    prefix = ["env", *changes] if changes else []
    return CREDENTIALS.sub("://****@", " ".join([*prefix, shlex.join(command)]))


def tail(output: str, lines: int = TAIL_LINES) -> str:
    """Return the last ``lines`` non-empty lines of ``output``."""
    return "\n".join([line for line in output.splitlines() if line.strip()][-lines:])


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env_changes: Mapping[str, str | None] | None = None,
    log: Path | None = None,
    line: Line | None = None,
    check: bool = True,
    timeout: float | None = None,
) -> Completed:
    """Run ``command`` and return what it printed.

    ``env_changes`` are applied to this process's environment (``None`` removes a name). With ``log``, the
    command line and its output (stderr merged into stdout) are appended to that file as they come; ``line`` is given
    each line of it first, and returns what is written (None: nothing).
    ``timeout`` is in seconds. Raises ``ProcessError`` when the program cannot be started, outlives its time,
    or (with ``check``) exits non-zero; ``Stopped`` when the family that it belongs to was stopped.
    """
    arguments = tuple(os.fspath(part) for part in command)
    family = _FAMILY.get()
    env = dict(os.environ)
    for name, value in {**(env_changes or {}), **(family.environ if family else {})}.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    typed = command_line(arguments, env_changes)
    if family is not None and family.stopped:
        raise Stopped
    try:
        if log is None:
            completed = _capture(arguments, env, cwd, timeout)
        else:
            completed = _logged(arguments, env, cwd, log, typed, line)
    except (FileNotFoundError, PermissionError) as error:
        raise ProcessError(f"cannot start `{arguments[0]}`: {error.strerror}", returncode=None, output="") from error
    except subprocess.TimeoutExpired as error:
        raise ProcessError(f"`{typed}` ran longer than {timeout:g} s", returncode=None, output="") from error
    if family is not None and family.stopped:
        raise Stopped  # whatever its exit status says: a ninja that was interrupted may say 0
    if check and completed.returncode != 0:
        output = completed.stdout + completed.stderr
        raise ProcessError(
            f"`{typed}` failed with exit status {completed.returncode}", returncode=completed.returncode, output=output
        )
    return completed


def _capture(arguments: tuple[str, ...], env: dict[str, str], cwd: Path | None, timeout: float | None) -> Completed:
    done = subprocess.run(
        arguments,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        cwd=cwd,
        env=env,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Completed(command=arguments, returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)


def _logged(  # noqa: PLR0917 -- what `run` was given
    arguments: tuple[str, ...], env: dict[str, str], cwd: Path | None, log: Path, typed: str, line: Line | None
) -> Completed:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        stream.write(f"$ {typed}\n".encode())
        stream.flush()
        start = stream.tell()
        with subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=stream if line is None else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=env,
        ) as running:
            if line is not None and running.stdout is not None:
                _tee(running, running.stdout, stream, line)
            peak = _wait(running)
    with log.open("rb") as stream:
        stream.seek(start)
        output = stream.read().decode("utf-8", errors="replace")
    return Completed(command=arguments, returncode=running.returncode, stdout=output, stderr="", peak=peak)


def _tee(running: subprocess.Popen[bytes], pipe: IO[bytes], stream: IO[bytes], line: Line) -> None:
    """Write what comes through ``pipe`` into ``stream``, line by line, until its end or the program's."""
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    rest = b""
    ended = None
    while True:
        if waiting.poll(QUIET * 1000):
            batch = os.read(pipe.fileno(), _BATCH)
            if not batch:
                break
        elif ended is not None and time.monotonic() - ended >= QUIET:
            break
        else:
            batch = b""
            if ended is None and _has_ended(running):
                ended = time.monotonic()
        *lines, rest = (rest + batch).split(b"\n")
        for raw in lines:
            _write(stream, line, raw)
        if batch:
            stream.flush()
    if rest:
        _write(stream, line, rest)


def _write(stream: IO[bytes], line: Line, raw: bytes) -> None:
    kept = line(raw.decode("utf-8", errors="replace"))
    if kept is not None:
        stream.write(kept.encode("utf-8", errors="replace") + b"\n")


def _has_ended(running: subprocess.Popen[bytes]) -> bool:
    """Whether the program ended; it is left for ``_wait`` to ask what it took."""
    return os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _wait(running: subprocess.Popen[bytes]) -> int:
    """Wait for the program and return the memory in bytes of the largest process below it."""
    try:
        _, status, usage = os.wait4(running.pid, 0)
    except KeyboardInterrupt:
        running.send_signal(signal.SIGINT)
        raise
    running.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024
