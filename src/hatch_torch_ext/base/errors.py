"""Every error that the project raises on purpose, and what an unexpected exception becomes: a message and a file.

A message names the entry, the file or the option, says what was expected, and ends with the remedy.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import __version__
from hatch_torch_ext.base import escape, redact

if TYPE_CHECKING:
    from collections.abc import Sequence


class TorchExtError(Exception):
    """Base of all errors whose message is written for the user; any other exception is a defect of this project."""

    def __str__(self) -> str:
        """Return the message without secrets and with characters that a terminal cannot show escaped."""
        return escape.text(redact.clean(super().__str__()))


class ConfigurationError(TorchExtError):
    """The configuration is wrong; ``problems`` holds one sentence for each fault, in a stable order."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        if len(problems) == 1:
            (text,) = problems
        else:
            text = "\n".join([f"{len(problems)} problems in the configuration:", *(f"  - {each}" for each in problems)])
        super().__init__(text)


class EntryError(TorchExtError):
    """One entry of the matrix failed; ``entry`` is its name. What the other entries built is kept."""

    def __init__(self, entry: str, message: str, *, cause: str = "") -> None:
        self.entry = entry
        self.message = message
        self.cause = cause
        """The message without the parts that differ between entries; empty if the message has no such parts."""
        super().__init__(f"{entry}: {message}")


class EnvironmentCreationError(EntryError):
    """hatch could not find or create the entry's environment."""


class SdkError(EntryError):
    """torch's headers and link targets could not be fetched, or belong to another torch than the matrix asks for."""


class ToolchainError(EntryError):
    """A tool (CMake, Ninja, compiler, nvcc, patchelf) is missing, is too old, or does not fit the torch."""


class CompileError(EntryError):
    """CMake or the compiler failed."""


class RepairError(EntryError):
    """A file of the install tree cannot go into a wheel, and could not be repaired."""


class BuildError(TorchExtError):
    """Several entries failed; ``failures`` holds the error of each, in the order of the matrix.

    A message that is the same for several entries, apart from their names, is written once, below the names of all of
    them.
    """

    def __init__(self, failures: Sequence[EntryError], *, total: int) -> None:
        self.failures = tuple(failures)
        alike: dict[str, list[EntryError]] = {}
        for failure in self.failures:
            alike.setdefault((failure.cause or failure.message).replace(failure.entry, "\0"), []).append(failure)
        listed = "\n\n".join(
            f"{', '.join(failure.entry for failure in group)}: {group[0].message}" for group in alike.values()
        )
        super().__init__(
            f"{len(self.failures)} of {total} entries failed; the others' work is kept for the next run.\n\n{listed}"
        )


class Stopped(TorchExtError):  # noqa: N818 -- no fault, so not called an error
    """The build was stopped (by Ctrl-C, a signal, or the failure of another entry); finished variants are kept."""

    def __init__(self) -> None:
        super().__init__("stopped; the same command continues with what is finished")


class AuditError(TorchExtError):
    """The audit has findings that do not allow a wheel to be made."""


class MergeError(TorchExtError):
    """Variants do not fit into one wheel: two have the same label, or two different files have the same place."""


class WheelError(TorchExtError):
    """A wheel given to ``inspect``, ``audit`` or ``merge`` cannot be read."""


class NewerManifestError(TorchExtError):
    """A manifest is of a format that a later hatch-torch-ext writes; the wheel itself is sound."""


class ElfError(TorchExtError):
    """A file is not an ELF file, or its structures contradict each other."""


class FatbinError(TorchExtError):
    """The CUDA device code inside a file cannot be read."""


class ProcessError(TorchExtError):
    """A program failed. The stage that started it catches this and raises its own error."""

    def __init__(self, message: str, *, returncode: int | None, output: str) -> None:
        self.returncode = returncode
        self.output = output
        super().__init__(message)

    @property
    def words(self) -> str:
        """What the program printed or, where it printed nothing or could not be started, what is known instead."""
        return self.output if self.output.strip() else str(self)


class TooMuchOutputError(ProcessError):
    """A program that is not trusted printed more than is read of it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, returncode=None, output="")


LONGEST = 200
"""Longest part of the exception's own text in the message, in characters; the file holds all of it."""
OURSELVES = "hatch_torch_ext"
_CROWDED = re.compile(r"resource temporarily unavailable|cannot fork|can't start new thread", re.IGNORECASE)
HOSTS = ("hatchling", "hatch")
"""Programs that call our hooks and that our hooks call.

The errors that they raise themselves have messages for the user.
"""


def is_ours(error: BaseException) -> bool:
    """Return whether our code, or a library that it called, raised an exception, rather than hatchling or hatch."""
    names = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    known = [top for name in names if (top := name.partition(".")[0]) in {*HOSTS, OURSELVES}]
    return not known or known[-1] == OURSELVES


def crowded(output: object) -> str | None:
    """Return the remedy if ``output`` (an error, a program's output) shows that no process can start, else None."""
    if _CROWDED.search(str(output)) is None:
        return None
    bound = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    bounds = "" if bound == resource.RLIM_INFINITY else f"`ulimit -u` is {bound}; "
    return (
        f"No more processes may be started here ({bounds}a container has its own limit, pids.max): raise the "
        "limit, end other programs, or compile one file at a time with HATCH_TORCH_EXT_JOBS=1"
    )


def sentence(error: BaseException) -> str:
    """Write the traceback to a file, and return the message that tells the user what to do with it."""
    if (helps := crowded(error)) is not None:
        return f"{escape.line(error)}. {helps}"
    message = escape.line(redact.clean(str(error)), LONGEST)
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    file = _write(error)
    where = f", with the file {file}" if file is not None else ""
    return f"this is a fault of hatch-torch-ext ({what}); please report it{where}"


def _write(error: BaseException) -> Path | None:
    lines = [
        f"hatch-torch-ext {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
        f"command: {' '.join(sys.argv)}\n\n",
        *traceback.format_exception(error),
    ]
    try:
        descriptor, name = tempfile.mkstemp(prefix="hatch-torch-ext-fault-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(redact.clean("".join(lines)))
    except OSError:
        return None
    return Path(name)
