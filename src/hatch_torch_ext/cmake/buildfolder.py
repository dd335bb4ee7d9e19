"""Whether a build folder is kept, and configured again; and what a project writes into the sources, which all share.

A file in the folder remembers what it was made from. It is made anew where anything changes that Ninja does not see.
It is configured again where CMake might give something else, which it does not while nothing that it read has changed:
its command line and environment, the files that it says it read, which files the project has (``file(GLOB)``), and what
is installed. A project whose CMake files read others while they run (``execute_process``, ``file(READ)``) is always
configured, and so are a build that did not come to its end, and a project that writes into its sources: another entry's
may have written there since.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hatch_torch_ext.base import atomic, escape, untrusted
from hatch_torch_ext.cmake import launchers, package, replies
from hatch_torch_ext.facts import content, project, variables
from hatch_torch_ext.facts.variables import Use

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from hatch_torch_ext.cmake.replies import Reply
    from hatch_torch_ext.values import Setup

FILE = "torch_ext.json"
"""Holds ``key`` (what the folder was made of), ``found_by`` (by which variables CMake found what its cache has),
``configuring`` (while CMake runs, and after it was killed), ``configured`` (from what, once all went well) and, as soon
as something was installed, ``placed`` (what compiling has put into the prefix, a path after each zero byte).

It is in the folder, so that it ends with it, and replaced whole; what it claims is taken back before that changes.
"""
NOTES = "torch_ext_notes.txt"
"""What our CMake files say to the user, each on a line; the file is there once they ran."""
RUN_PATH = "torch_ext_run_path.txt"
"""Where the project's programs and modules find libraries while it is built, as ``LD_LIBRARY_PATH`` has it."""
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


def prepare(setup: Setup, cache: Sequence[str]) -> None:
    """Keep the build folder if it was made of what is there now; ``cache`` are cache entries of the command line."""
    key, found_by, known = _key(setup, cache), _found_by(setup), _read(setup)
    if setup.build.exists() and known.get("key") != key:
        (setup.build / FILE).unlink(missing_ok=True)
        shutil.rmtree(setup.build)
    elif known.get("found_by") != found_by:
        _forget_findings(setup)
    if not setup.build.exists():
        shutil.rmtree(setup.prefix, ignore_errors=True)
        setup.build.mkdir(parents=True)
    _take_out_what_was_installed(setup)
    _change(setup, key=key, found_by=found_by)


def note_placed(setup: Setup) -> None:
    """Take note of what compiling has put into the prefix: all that is there later was installed.

    ExternalProject and commands of a target (``POST_BUILD``) put files there, which Ninja does not make again.
    """
    _change(setup, placed="".join(f"\0{place}" for place in contents(setup.prefix)))


def _take_out_what_was_installed(setup: Setup) -> None:
    if (placed := _read(setup).get("placed")) is None:  # nothing was installed from this build folder
        return
    for place in set(contents(setup.prefix)) - set(placed.split("\0")):
        (setup.prefix / place).unlink()
    for folder, _, _ in os.walk(setup.prefix, topdown=False):
        with contextlib.suppress(OSError):  # it has files
            Path(folder).rmdir()
    _change(setup, placed=None)


def contents(prefix: Path) -> tuple[str, ...]:
    """Return the place below the prefix of all that is there but folders; links are not followed."""
    found = []
    for folder, folders, names in os.walk(prefix):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118  many files
        found += [os.path.relpath(os.path.join(folder, name), prefix) for name in (*names, *links)]  # noqa: PTH118
    return tuple(sorted(found))


def begin_configuring(setup: Setup) -> None:
    """Take note that CMake runs. Where it was killed the last time, its cache may call the killed check failed."""
    if "configuring" in _read(setup):
        _forget_findings(setup)
    _change(setup, configuring="yes", configured=None)


def end_configuring(setup: Setup) -> None:
    """Take note that CMake came to its end."""
    _change(setup, configuring=None)


def configured(
    setup: Setup, command: Sequence[str], env: Mapping[str, str | None], before: Mapping[Path, State]
) -> Reply | None:
    """Return CMake's description of the build folder if it need not be configured again.

    It was configured by ``command`` from what is there now (``before``: the project), and nothing of it is damaged.
    """
    if is_distrusted(setup) or (known := _read(setup).get("configured")) is None:
        return None
    try:
        reply = replies.read(setup.build)
    except untrusted.DAMAGED:
        return None
    with contextlib.suppress(OSError):
        if known == _digest(setup, reply, command, env, before):
            return reply
    return None


def forget(setup: Setup) -> None:
    """Let the next build configure, whatever becomes of this one."""
    _change(setup, configured=None)


def note(setup: Setup, command: Sequence[str], env: Mapping[str, str | None], before: Mapping[Path, State]) -> None:
    """Remember what a build that went well was configured from: ``before`` is the project as it was when it began."""
    try:
        reply = replies.read(setup.build)  # Ninja may have started CMake again
    except untrusted.DAMAGED:
        return  # it is made again
    with contextlib.suppress(OSError):
        if not any(_reads(setup, path) for path in reply.files):
            _change(setup, configured=_digest(setup, reply, command, env, before))


def _read(setup: Setup) -> dict[str, str]:
    """Return what the folder's file says; nothing where it is missing or damaged."""
    try:
        data = untrusted.json((setup.build / FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return {}
    return data if untrusted.is_texts(data) else {}


def _change(setup: Setup, **parts: str | None) -> None:
    """Replace parts of the folder's file, all at once; None removes one."""
    known = _read(setup)
    changed = {name: value for name, value in {**known, **parts}.items() if value is not None}
    if changed != known:
        atomic.write_held(setup.build / FILE, json.dumps(changed))


def _key(setup: Setup, cache: Sequence[str]) -> str:
    """Return a digest of all that a build folder was made from; a build folder with another digest is not resumed.

    CMake and Ninja are in it by version: an isolated build has them at a new path each time, which they tolerate.
    """
    toolchain, environ = setup.toolchain, setup.entry.environ(os.environ)
    passing = (str(toolchain.ninja.path),)
    facts = {
        "cache": [entry for entry in cache if not entry.endswith(passing)],
        "args": setup.config.cmake.args,
        "source": str(setup.config.source),
        "sdk": repr(setup.sdk),
        "interpreter": repr(setup.environment.interpreter),
        "tools": [toolchain.cmake.version, toolchain.ninja.version, repr(toolchain.cxx), repr(toolchain.toolkit)],
        "target": repr(toolchain.target),
        "launcher": launchers.words(setup),
        "environ": variables.of(Use.COMPILE, environ),
        "files": project.read_once(setup.config.source, setup.config.cmake.args, setup.config.cmake.define, environ),
        "package": package.digest(),
    }
    return content.digest(facts)


def _found_by(setup: Setup) -> str:
    """Return a digest of the variables that decide what CMake finds, and what the project's CMake files read.

    CMake keeps in its cache what it found, and what a project keeps there: with another digest it begins anew, and
    Ninja compiles what that changes.
    """
    environ = setup.entry.environ(os.environ)
    texts = map(project.text, project.cmake_files(setup.config.source))
    named = {*variables.names(Use.FIND | Use.LAUNCH), *variables.of_cmake(texts)}
    return content.digest({name: environ[name] for name in named if name in environ})


def _forget_findings(setup: Setup) -> None:
    """Remove what CMake found on the machine and what it tried out; the objects stay."""
    (setup.build / "CMakeCache.txt").unlink(missing_ok=True)
    for checked in (setup.build / "CMakeFiles").glob("[0-9]*"):
        shutil.rmtree(checked)


def _reads(setup: Setup, path: Path) -> bool:
    """Say whether a CMake file of the project, or of a package of the system, may read files of the project."""
    given = (setup.package, setup.torch, setup.sdk.prefix, setup.environment.prefix)
    if any(path.is_relative_to(folder) for folder in given):
        return False
    return READS.search(path.read_text(encoding="utf-8", errors="replace")) is not None


def _digest(
    setup: Setup, reply: Reply, command: Sequence[str], env: Mapping[str, str | None], before: Mapping[Path, State]
) -> str:
    environ = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    outside = {path.parent for path in reply.sources if path not in before and not path.is_relative_to(setup.folder)}
    places = {*SYSTEM, *(f"{folder}/{setup.environment.interpreter.machine}-linux-gnu" for folder in SYSTEM)}
    looked_at = {*map(Path, places), *map(Path, environ.get("PATH", "").split(os.pathsep)), *outside}
    facts = {
        "command": list(command),
        "environ": {name: value for name, value in environ.items() if name not in OF_THE_SHELL},
        "made": {name: _state(setup.build / name) for name in ("CMakeCache.txt", "build.ninja", NOTES, RUN_PATH)},
        "files": {str(path): before.get(path) or _state(path) for path in reply.files},
        "project": sorted(map(str, before)),
        "packages": sorted(path.name for path in setup.environment.site_packages.iterdir()),
        "folders": {str(folder): _state(folder)[0] for folder in looked_at if folder.is_dir()},
    }
    return content.digest(facts)


def _state(path: Path) -> State:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


WRITES = "torch_ext_writes_into_sources"
"""The file in the work folder that says that some entry wrote into the sources."""
_UNREAD = (".log", ".md", ".rst", ".swp", ".whl", "~")
"""Ends of names of files that no compiler reads: editors and people write them at any time."""
_LINKED = re.compile(r"\.(?:ptx|cubin|fatbin|o|a|so(?:\.\d+)*)$")
"""Names of compiled files that a linker may read though no CMake file names them."""

State = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""


class Turn(Protocol):
    """An entry's turn at the sources, from its configure step to its install step: ``pipeline/pool.py`` has it."""

    def by_itself(self) -> None:
        """Wait until no other entry is at work, and let none begin before this one has ended."""

    def configuring(self) -> AbstractContextManager[None]:
        """Be the only entry in its configure step, which may write into the sources."""

    @property
    def is_shared(self) -> bool:
        """Whether another entry is or was at work during this turn."""

    @property
    def others_configure(self) -> bool:
        """Whether another entry may be writing into the sources now."""


def snapshot(setup: Setup) -> dict[Path, State]:
    """Return the files of the project and of its CMake folder that a compiler may read.

    Folders of tools and what builds leave are passed over, and so are files that people and editors write while CMake
    runs. Hidden folders count only below the CMake folder.
    """
    found: dict[Path, State] = {}
    root, without = setup.config.root, [setup.config.root / "dist", setup.folder.parent]
    for folder, names in project.walk(root, setup.config.source, without=without, hidden=True):
        for name in names:
            if not name.endswith(_UNREAD):
                path = Path(folder, name)
                with contextlib.suppress(OSError):  # deleted since it was listed
                    status = path.lstat()
                    found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _counting(setup: Setup, changed: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that may be compiled, packed or installed."""
    named = set(project.named(changed, setup.config.source))
    packed = [setup.config.source, setup.config.package_dir]
    with contextlib.suppress(*untrusted.DAMAGED):  # CMake has not come so far
        packed += [folder for rule in replies.read(setup.build).rules for _, folder in rule.folders]
    for path in changed:
        read = path in named or project.is_compiled(path.name) or _LINKED.search(path.name) is not None
        if read or any(path.is_relative_to(folder) for folder in packed):
            yield path


def distrust(setup: Setup) -> None:
    """Note that an entry wrote into the sources: what is there may be another entry's from now on."""
    (setup.folder.parent / WRITES).touch()


def trust(setup: Setup) -> None:
    """Note that an entry was built by itself and wrote nothing into the sources."""
    (setup.folder.parent / WRITES).unlink(missing_ok=True)


def is_distrusted(setup: Setup) -> bool:
    """Say whether an entry of this project wrote into the sources."""
    return (setup.folder.parent / WRITES).exists()


def what_changed(setup: Setup, before: Mapping[Path, State]) -> str | None:
    """Return the message on files that are new or changed since ``before``, or None."""
    changed = sorted(path for path, state in snapshot(setup).items() if before.get(path) != state)
    if changed:
        ours = project.output_files()
        changed = [path for path in _counting(setup, changed) if project.identity(path) not in ours]
    if not changed:
        return None
    shown = escape.few([os.path.relpath(path, setup.config.root) for path in changed])
    return (
        f"sources changed while CMake ran: {shown}. All entries share what CMake writes there, so they are "
        "compiled one after another, and it may end up in an sdist or a wheel: let CMake write below "
        "${CMAKE_CURRENT_BINARY_DIR} instead"
    )
