"""The only place that starts programs: argument lists, logged as a person would type them, errors with their output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.errors import ProcessError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TAIL_LINES = 40
CREDENTIALS = re.compile(r"://[^/@\s]+@")
"""User and password of an address, as in index settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """What a finished program left: its output (``stdout`` apart from ``stderr`` unless merged)."""

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


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
    check: bool = True,
    timeout: float | None = None,
) -> Completed:
    """Run ``command`` and return what it printed.

    ``env_changes`` are applied to this process's environment (``None`` removes a name). With ``log``, the
    command line and its output (stderr merged into stdout) are appended to that file as they come.
    ``timeout`` is in seconds. Raises ``ProcessError`` when the program cannot be started, outlives its time,
    or (with ``check``) exits non-zero.
    """
    arguments = tuple(os.fspath(part) for part in command)
    env = dict(os.environ)
    for name, value in (env_changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    typed = command_line(arguments, env_changes)
    options = {"cwd": cwd, "env": env, "timeout": timeout, "check": False, "stdin": subprocess.DEVNULL}
    try:
        completed = _capture(arguments, options) if log is None else _logged(arguments, options, log, typed)
    except (FileNotFoundError, PermissionError) as error:
        raise ProcessError(f"cannot start `{arguments[0]}`: {error.strerror}", returncode=None, output="") from error
    except subprocess.TimeoutExpired as error:
        raise ProcessError(f"`{typed}` ran longer than {timeout:g} s", returncode=None, output="") from error
    if check and completed.returncode != 0:
        output = completed.stdout + completed.stderr
        raise ProcessError(
            f"`{typed}` failed with exit status {completed.returncode}", returncode=completed.returncode, output=output
        )
    return completed


def _capture(arguments: tuple[str, ...], options: dict[str, Any]) -> Completed:
    done = subprocess.run(arguments, capture_output=True, encoding="utf-8", errors="replace", **options)  # noqa: PLW1510 -- in options
    return Completed(command=arguments, returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)


def _logged(arguments: tuple[str, ...], options: dict[str, Any], log: Path, typed: str) -> Completed:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        stream.write(f"$ {typed}\n".encode())
        stream.flush()
        start = stream.tell()
        done = subprocess.run(arguments, stdout=stream, stderr=subprocess.STDOUT, **options)  # noqa: PLW1510 -- in options
    with log.open("rb") as stream:
        stream.seek(start)
        output = stream.read().decode("utf-8", errors="replace")
    return Completed(command=arguments, returncode=done.returncode, stdout=output, stderr="")
