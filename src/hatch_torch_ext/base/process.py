"""The only module that starts programs: argument lists, logged as typed in a shell, with output in their errors.

No secret is logged: command lines, and programs' output line by line, go through ``scrub``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import selectors
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from hatch_torch_ext.base import mounts, redact
from hatch_torch_ext.base.errors import ProcessError, Stopped, TooMuchOutputError, crowded
from hatch_torch_ext.resources import reaper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    Line = Callable[[str], str | None]
    Cleaned = Callable[[bytes], bytes | None]

TAIL_LINES = 40

QUIET = 0.2  # seconds without output after the program's end: a daemon that it started may hold the pipe open forever
_BATCH = 1 << 16
_LONGEST_LINE = 1 << 20
"""Bytes after which an unfinished line is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A finished program and its output (``stdout`` and ``stderr`` apart unless merged).

    ``peak`` is the largest resident memory, in bytes, of any one process among the program and those that it started.
    """

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    peak: int = 0


class Family:
    """Programs that are stopped together, with all that they started: those of one build, or of one entry of it.

    ``name`` is unique on the machine and has no blanks. A family ``within`` another is stopped with it.
    """

    def __init__(self, name: str, within: Family | None = None) -> None:
        self.name: str = name if within is None else f"{within.name}.{name}"
        self._within = within
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Return whether ``stop`` was called, after which no program is started."""
        return self._stopped.is_set() or (self._within is not None and self._within.stopped)

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment variable by which the family's processes are recognised."""
        return {reaper.VARIABLE: f"{self.name}.{os.getsid(0)}"}

    def stop(self) -> None:
        """End every program of the family, and refuse to start any more."""
        self._stopped.set()
        reaper.end(self.name)

    def end_orphans(self) -> int:
        """End processes that outlived their parent, such as compilers of a killed ninja; return their number."""
        return reaper.end(self.name)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Make the programs that this context (thread) starts members of the family."""
        token = _FAMILY.set(self)
        try:
            yield
        finally:
            _FAMILY.reset(token)

    @contextlib.contextmanager
    def guarded(self, *folders: Path) -> Iterator[None]:
        """End the family if the context ends in an exception or this process is killed; then remove ``folders``."""
        command = [sys.executable, "-I", "-S", reaper.__file__, self.name, *map(os.fspath, folders)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:
            try:
                yield
            except BaseException:
                self.stop()
                raise
            finally:
                with contextlib.suppress(BrokenPipeError):
                    guard.communicate(b"ended")


_FAMILY: ContextVar[Family | None] = ContextVar("family", default=None)


def command_line(command: Sequence[str], env_changes: Mapping[str, str | None] | None = None) -> str:
    """Return the command as a person would type it into a POSIX shell, changed variables first, without secrets."""
    changes = sorted((env_changes or {}).items())
    removed = [f"-u {shlex.quote(name)}" for name, value in changes if value is None]
    given = [
        f"{name}={redact.HIDDEN if redact.is_secret_name(name) else shlex.quote(value)}"
        for name, value in changes
        if value is not None
    ]
    prefix = ["env", *removed, *given] if changes else []  # env expects its options before the variables
    return redact.clean(" ".join([*prefix, shlex.join(command)]))


def tail(output: str, lines: int = TAIL_LINES) -> str:
    """Return the last ``lines`` non-empty lines of ``output``."""
    return "\n".join([line for line in output.splitlines() if line.strip()][-lines:])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A program to start: its whole environment, and the command ``typed`` as a person would type it."""

    arguments: tuple[str, ...]
    env: dict[str, str]
    cwd: Path | None
    timeout: float | None
    typed: str

    def start(self, *, stderr: int) -> subprocess.Popen[bytes]:
        """Start the program without input; its output is read from pipes."""
        return subprocess.Popen(
            self.arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=self.cwd,
            env=self.env,
        )


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env_changes: Mapping[str, str | None] | None = None,
    check: bool = True,
    timeout: float | None = None,
    given: str | None = None,
    limit: int | None = None,
) -> Completed:
    """Run ``command``, and return what it printed.

    ``env_changes`` are applied to this process's environment (``None`` removes a name). ``timeout`` is in seconds;
    ``given`` is the program's input. ``limit`` is the most that is read of its output, in bytes, for programs that are
    not trusted, which get no input.

    Raises ``ProcessError``, without secrets, if the program cannot be started, exceeds ``timeout`` or ``limit``, or
    (with ``check``) exits non-zero; ``Stopped`` if its family was stopped.
    """
    how = partial(_capture, given=given) if limit is None else partial(_bounded, limit=limit)
    return _ended(command, how, cwd=cwd, env_changes=env_changes, timeout=timeout, check=check)


def run_logged(
    command: Sequence[str | Path],
    log: Path,
    *,
    cwd: Path | None = None,
    env_changes: Mapping[str, str | None] | None = None,
    line: Line | None = None,
    timeout: float | None = None,
) -> Completed:
    """Run ``command`` likewise; append its command line and output to the file ``log`` as they come, without secrets.

    stderr is merged into stdout. ``line`` is called with each line first, and returns what is written (None: nothing).
    """
    how = partial(_logged, log=log, line=line)
    return _ended(command, how, cwd=cwd, env_changes=env_changes, timeout=timeout, check=True)


def _ended(
    command: Sequence[str | Path],
    how: Callable[[_Call], Completed],
    *,
    cwd: Path | None,
    env_changes: Mapping[str, str | None] | None,
    timeout: float | None,
    check: bool,
) -> Completed:
    """Run a program of this context's family, and return how it ended; raises as ``run`` does."""
    arguments = tuple(os.fspath(part) for part in command)
    family = _FAMILY.get()
    changes = {**(env_changes or {}), **(family.environ if family else {})}
    env = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
    redact.learn_environ(env)
    typed = command_line(arguments, env_changes)
    if family is not None and family.stopped:
        raise Stopped
    try:
        completed = how(_Call(arguments=arguments, env=env, cwd=cwd, timeout=timeout, typed=typed))
    except (FileNotFoundError, PermissionError, BlockingIOError) as error:
        why = crowded(error) or mounts.refusal(arguments[0]) or error.strerror
        raise ProcessError(f"cannot start `{arguments[0]}`: {why}", returncode=None, output="") from error
    except subprocess.TimeoutExpired as error:
        raise ProcessError(f"`{typed}` ran longer than {timeout:g} s", returncode=None, output="") from error
    if family is not None and family.stopped:
        raise Stopped  # whatever the exit status: an interrupted ninja may exit with 0
    if check and completed.returncode != 0:
        output = redact.clean(completed.stdout + completed.stderr)
        raise ProcessError(
            f"`{typed}` failed with exit status {completed.returncode}", returncode=completed.returncode, output=output
        )
    return completed


def answer(program: Path, *arguments: str, timeout: float | None = None) -> str:
    """Return what a program prints about itself, such as its version; cached while it and the environment last.

    Raises ``ProcessError`` as ``run`` does.
    """
    try:
        stat = program.stat()
    except OSError:
        return run([program, *arguments], timeout=timeout).stdout
    stamp = stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
    return _answer((program, *arguments), timeout, stamp, frozenset(os.environ.items()))


@functools.cache
def _answer(command: tuple[Path | str, ...], timeout: float | None, *_: object) -> str:
    return run(command, timeout=timeout).stdout


def _capture(call: _Call, *, given: str | None) -> Completed:
    source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
    done = subprocess.run(
        call.arguments,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        cwd=call.cwd,
        env=call.env,
        timeout=call.timeout,
        check=False,
        **source,
    )
    return Completed(command=call.arguments, returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)


def _bounded(call: _Call, *, limit: int) -> Completed:
    """Run a program that is ended when it prints more than ``limit`` bytes."""
    with call.start(stderr=subprocess.PIPE) as running:
        printed = {pipe: bytearray() for pipe in (running.stdout, running.stderr) if pipe is not None}
        try:
            _read(printed, call, limit)
            returncode = running.wait(call.timeout)
        except BaseException:
            running.kill()
            raise
    output, errors = (data.decode("utf-8", "replace") for data in printed.values())
    return Completed(command=call.arguments, returncode=returncode, stdout=output, stderr=errors)


def _read(printed: Mapping[IO[bytes], bytearray], call: _Call, limit: int) -> None:
    """Read each pipe to its end. Raises ``TimeoutExpired`` and ``TooMuchOutputError``."""
    end = None if call.timeout is None else time.monotonic() + call.timeout
    with selectors.DefaultSelector() as waiting:
        for pipe, data in printed.items():
            waiting.register(pipe, selectors.EVENT_READ, data)
        while waiting.get_map():
            ready = waiting.select(None if end is None else max(0.0, end - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(call.arguments, call.timeout or 0)
            for key, _ in ready:
                batch = os.read(key.fd, _BATCH)
                key.data.extend(batch)
                if not batch:
                    waiting.unregister(key.fileobj)
                if len(key.data) > limit:
                    raise TooMuchOutputError(f"`{call.arguments[0]}` prints more than {limit >> 10} kB")


def _logged(call: _Call, *, log: Path, line: Line | None) -> Completed:
    log.parent.mkdir(parents=True, exist_ok=True)
    cleaner = redact.Cleaner()

    def kept(raw: bytes) -> bytes | None:
        output = raw.decode("utf-8", errors="replace")
        text = output if line is None else line(output)
        return None if text is None else cleaner(text.encode("utf-8", errors="replace"))

    with log.open("ab") as stream:
        stream.write(f"$ {call.typed}\n".encode("utf-8", errors="replace"))
        stream.flush()
        start = stream.tell()
        with call.start(stderr=subprocess.STDOUT) as running:
            try:
                _tee(running, stream, kept, call.timeout)
            except subprocess.TimeoutExpired:
                running.kill()
                raise
            peak = _wait(running)
    with log.open("rb") as written:
        written.seek(start)
        output = written.read().decode("utf-8", errors="replace")
    return Completed(command=call.arguments, returncode=running.returncode, stdout=output, stderr="", peak=peak)


def _tee(running: subprocess.Popen[bytes], stream: IO[bytes], kept: Cleaned, timeout: float | None) -> None:
    """Write the program's output into ``stream``, line by line, until it ends."""
    rest = b""
    for batch in _batches(running, timeout):
        *lines, rest = (rest + batch).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        for raw in lines:
            if (data := kept(raw)) is not None:
                stream.write(data + b"\n")
        stream.flush()
    if rest and (data := kept(rest)) is not None:
        stream.write(data + b"\n")


def _batches(running: subprocess.Popen[bytes], timeout: float | None) -> Iterator[bytes]:
    """Yield the output until it or the program ends. Raises ``TimeoutExpired``."""
    assert running.stdout is not None  # noqa: S101 -- it is a pipe
    descriptor = running.stdout.fileno()
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    end = None if timeout is None else time.monotonic() + timeout
    ended = None
    while True:
        if waiting.poll(QUIET * 1000):
            if not (batch := os.read(descriptor, _BATCH)):
                return
            yield batch
        elif ended is not None and time.monotonic() - ended >= QUIET:
            return
        elif ended is None and _has_ended(running):
            ended = time.monotonic()
        if end is not None and ended is None and time.monotonic() > end and not _has_ended(running):
            raise subprocess.TimeoutExpired(running.args, timeout or 0)


def _has_ended(running: subprocess.Popen[bytes]) -> bool:
    """Return whether the program ended, without reaping it: ``_wait`` reads its resource usage."""
    return os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _wait(running: subprocess.Popen[bytes]) -> int:
    """Wait for the program, and return its peak memory (see ``Completed``) in bytes."""
    try:
        _, status, usage = os.wait4(running.pid, 0)
    except KeyboardInterrupt:
        running.send_signal(signal.SIGINT)
        raise
    running.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024
