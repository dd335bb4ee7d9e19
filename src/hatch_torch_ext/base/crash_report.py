"""The last boundary: an unexpected exception becomes a message for the user, with a file to attach to a report."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
import tempfile
import traceback
from pathlib import Path

from hatch_torch_ext import __version__
from hatch_torch_ext.base import escape, redact

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
        f"No more processes may be started here ({bounds}a container has a limit of its own, pids.max): raise the "
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
