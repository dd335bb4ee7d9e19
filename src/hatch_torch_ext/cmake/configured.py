"""Whether a build folder has to be configured again: CMake gives the same while nothing that it read has changed.

That is its command line and environment, the files that it says it read, which files the project has (``file(GLOB)``),
and what is installed. A project whose CMake files read others while they run (``execute_process``, ``file(READ)``) is
always configured, and so are a build that did not come to its end, and a project that writes into its sources:
another entry's may have written there since.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.cmake import replies, written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.cmake.replies import Inputs
    from hatch_torch_ext.cmake.written import State
    from hatch_torch_ext.values.job import Job

FILE = "torch_ext_configured"
OF_THE_SHELL = ("_", "OLDPWD", "SHLVL")
"""Variables that differ from one command to the next."""
SYSTEM = ("/usr/include", "/usr/lib", "/usr/local/include", "/usr/local/lib")
"""Folders whose times change when packages are installed, which CMake may not have found before."""
READS = re.compile(
    r"\b(?:execute_process|exec_program|FetchContent_\w+)\b|\bfile\s*\(\s*"
    r"(?!(?:APPEND|GLOB|GLOB_RECURSE|MAKE_DIRECTORY|REAL_PATH|RELATIVE_PATH|TO_CMAKE_PATH|TO_NATIVE_PATH|WRITE)\s)",
    re.IGNORECASE,
)
"""Commands of CMake by which it may read a file that it does not tell of."""


def holds(job: Job, command: Sequence[str], env: Mapping[str, str | None], before: Mapping[Path, State]) -> bool:
    """Say whether the build folder was configured by ``command`` from what is there now (``before``: the project)."""
    if written.is_distrusted(job):
        return False
    try:
        known = (job.build / FILE).read_text(encoding="ascii")
        return known == _digest(job, replies.inputs(job.build), command, env, before)
    except (KeyError, OSError, ValueError):
        return False


def forget(job: Job) -> None:
    """Let the next build configure, whatever becomes of this one."""
    (job.build / FILE).unlink(missing_ok=True)


def note(job: Job, command: Sequence[str], env: Mapping[str, str | None], before: Mapping[Path, State]) -> None:
    """Remember what a build that went well was configured from: ``before`` is the project as it was when it began."""
    try:
        inputs = replies.inputs(job.build)
        if not any(_reads(job, path) for path in inputs.files):
            (job.build / FILE).write_text(_digest(job, inputs, command, env, before), encoding="ascii")
    except (KeyError, OSError, ValueError):
        pass  # what CMake says of itself cannot be read: it is asked again


def _reads(job: Job, path: Path) -> bool:
    """Say whether a CMake file of the project, or of a package of the system, may read files of the project."""
    given = (job.package, job.torch, job.sdk.prefix, job.environment.prefix)
    if any(path.is_relative_to(folder) for folder in given):
        return False
    return READS.search(path.read_text(encoding="utf-8", errors="replace")) is not None


def _digest(
    job: Job, inputs: Inputs, command: Sequence[str], env: Mapping[str, str | None], before: Mapping[Path, State]
) -> str:
    environ = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    outside = {path.parent for path in inputs.sources if path not in before and not path.is_relative_to(job.folder)}
    places = {*SYSTEM, *(f"{folder}/{job.environment.interpreter.machine}-linux-gnu" for folder in SYSTEM)}
    looked_at = {*map(Path, places), *map(Path, environ.get("PATH", "").split(os.pathsep)), *outside}
    facts = {
        "command": list(command),
        "environ": {name: value for name, value in environ.items() if name not in OF_THE_SHELL},
        "made": [_state(job.build / name) for name in ("CMakeCache.txt", "build.ninja")],
        "files": {str(path): before.get(path) or _state(path) for path in inputs.files},
        "project": sorted(map(str, before)),
        "packages": sorted(path.name for path in job.environment.site_packages.iterdir()),
        "folders": {str(folder): _state(folder)[0] for folder in looked_at if folder.is_dir()},
    }
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _state(path: Path) -> State:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
