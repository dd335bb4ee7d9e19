"""Runs Ninja in a configured build folder, within this entry's share of the machine (``Slots``); reads its log."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from packaging.version import Version

from hatch_torch_ext.base import atomic, process, untrusted
from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.cmake import launchers
from hatch_torch_ext.resources import once

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hatch_torch_ext.cmake.buildfolder import Turn
    from hatch_torch_ext.values import Setup

JOBSERVER_SINCE = Version("1.13.2")
"""1.13.0 is a client too, but exits with 0 when it is interrupted."""
WAITS_SINCE = Version("1.13.3")
"""Takes a free job at once, not only when one of its own ends (ninja's pull request 2726): it needs no token server."""
MAKE_FIFO_SINCE = (4, 4)
"""Older versions of GNU make end with an internal error if MAKEFLAGS name a FIFO."""
STATUS = "@@%s %f %t %r@@"
REMOVED = ("CMAKE_BUILD_PARALLEL_LEVEL", "GNUMAKEFLAGS", "MAKEFLAGS", "MAX_JOBS", "MFLAGS", once.TOKENS)
"""Variables with other limits; the first three also disable Ninja's jobserver, or name another one."""

_THREADS = re.compile(r"(?:^| )((?:--threads|-t|--split-compile|-split-compile)[ =]?\d+)(?= |$)")
_STATUS = re.compile(r"@@(\d+) (\d+) (\d+) (\d+)@@")
_LINK = re.compile(r"^: && .* && :$| -dlink ")
"""A link, with nothing of the project before (PRE_LINK) or after it (POST_BUILD): CMake writes ``:`` for none."""
_FAILED = re.compile(r"FAILED: \[code=-?\d+\] ")
_REFUSED = f"FAILED: [code={once.REFUSED}]"
_OLD_MAKE = re.compile(r"internal error: invalid --jobserver-auth string 'fifo:")
_MAKE = re.compile(rb"(?:^|[\s/])g?make(?:\s|$)", re.MULTILINE)
KILLED = re.compile(
    r"Killed signal terminated program|^Killed$|^FAILED: \[code=(?:137|-9)\]|: out of memory allocating"
    r"|virtual memory exhausted|: Cannot allocate memory|died due to signal 9"
    r"|^FAILED: \[code=255\].*\n.*\n(?=\[\d+/\d+\] |FAILED: |ninja: )",
    re.MULTILINE,
)
"""What GCC, Clang, nvcc, a shell and Ninja print when the kernel killed a compiler, or gave it no more memory.

ccache ends with 255 where the compiler that it started was killed, and prints nothing: Ninja's next line follows the
command.
"""


class Clients(enum.Enum):
    """Which programs of a build can take their jobs from the pool."""

    NONE = enum.auto()
    NINJA = enum.auto()
    """Ninja itself, and every make that it starts."""
    COMPILERS = enum.auto()
    """These, and each compiler by its launcher."""


class Server(Protocol):
    """Gives each compiler a job; Ninja counts a compiler that waits for one as running."""

    @property
    def running(self) -> int:
        """Return how many compilers have a job."""

    @property
    def started(self) -> Mapping[str, float]:
        """Return when the compiler of each output got its job, in seconds since 1970."""

    def refuse(self) -> None:
        """End the launchers that wait for a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Ninja's share of the machine: arguments and environment variables, and who gives compilers their jobs."""

    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    server: Server | None = None


class Slots(Protocol):
    """How much may be compiled at once, over all entries: ``pipeline/slots.py`` has it."""

    def turn(self) -> AbstractContextManager[Turn]:
        """Register an entry as working on the sources while the context lasts; others may do so too."""

    @property
    def compilers_wait(self) -> bool:
        """Return whether compilers, if they can be clients, wait for their jobs by themselves."""

    def share(self, clients: Clients) -> AbstractContextManager[Share]:
        """Provide this entry's share for one run of Ninja; without clients it is a fixed number of jobs."""

    def exclusive(self) -> AbstractContextManager[Share]:
        """Wait until no other entry compiles, and keep it so while the context lasts."""

    def progress(self, finished: int, total: int, running: int) -> None:
        """Record the finished build steps, of the total, and those that run."""

    def took(self, peak: int) -> None:
        """Record the memory of the largest compiler process, in bytes."""

    def cached(self, hits: int, files: int) -> None:
        """Record how many files the compiler cache had, of how many lookups."""


def build(setup: Setup, env: Mapping[str, str | None], slots: Slots, report: Callable[[str], None]) -> None:
    """Run Ninja. If a compiler is killed because memory is short, run it again with one compiler at a time.

    If some program that Ninja runs started a make that is too old for the jobserver, Ninja runs again without one.
    Raises ``ProcessError`` if it fails.
    """
    clients = _clients(setup, env, slots)
    try:
        try:
            _run_shared(setup, env, clients, slots)
        except ProcessError as error:
            if clients is Clients.NONE or not _OLD_MAKE.search(error.output):
                raise
            _run_shared(setup, env, Clients.NONE, slots)
    except ProcessError as error:
        if error.returncode is None or not KILLED.search(error.output):
            raise
    else:
        return
    report(
        "a compiler was killed, most likely because memory ran out: compilation continues with "
        "one file at a time, and no other entry compiles meanwhile. `memory-per-job` prevents this"
    )
    with slots.exclusive() as share:
        _run(setup, env, share, slots)


def outside(setup: Setup, env: Mapping[str, str | None]) -> frozenset[str]:
    """Return the files outside of the build folder that Ninja would write, where every entry writes the same file."""
    inside = os.fspath(setup.build) + "/"

    def find() -> list[str]:
        listing = process.run([*command(setup, Share()), "-t", "targets", "all"], env_changes=env).stdout
        outputs = (line.rpartition(": ") for line in listing.splitlines() if line.startswith("/"))
        return [path for path, _, rule in outputs if rule != "phony" and not path.startswith(inside)]

    try:
        return frozenset(known(setup.build, "outside", find))
    except ProcessError:
        return frozenset()  # what is wrong with it, Ninja says when it builds


KNOWN = "torch_ext_ninja.json"
_BUILD_FILES = ("build.ninja", "CMakeFiles/rules.ninja")


def known(build: Path, name: str, find: Callable[[], list[str]]) -> list[str]:
    """Return what ``find`` reads from Ninja's build files; it is kept in the build folder until CMake writes these."""
    state: list[int] = []
    for file in _BUILD_FILES:
        with contextlib.suppress(OSError):
            status = (build / file).stat()
            state += [status.st_mtime_ns, status.st_size]
    kept: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        kept = untrusted.json((build / KNOWN).read_text(encoding="utf-8"))
    if not isinstance(kept, dict) or kept.get("state") != state:
        kept = {"state": state}
    if not isinstance(found := kept.get(name), list) or not all(isinstance(each, str) for each in found):
        found = kept[name] = find()
        atomic.update(build / KNOWN, json.dumps(kept))
    return found


def threads(flags: Iterable[tuple[str, str]]) -> str | None:
    """Return a note on nvcc's own threads if ``flags`` (target and language, its flags) ask for them."""
    for target, text in flags:
        if target.endswith(" CUDA") and (match := _THREADS.search(text)) is not None:
            return (
                f"nvcc is called with `{match[1]}`: each compile job then takes that many processors and as much more "
                "memory, which `jobs` and `memory-per-job` do not count. Leave it out of the CUDA flags"
            )
    return None


def command(setup: Setup, share: Share) -> list[str]:
    """Return the command line of Ninja."""
    return [str(setup.toolchain.ninja.path), "-C", str(setup.build), *share.arguments]


def _run_shared(setup: Setup, env: Mapping[str, str | None], clients: Clients, slots: Slots) -> None:
    with slots.share(clients) as share:
        _run(setup, env, share, slots)


def _run(setup: Setup, env: Mapping[str, str | None], share: Share, slots: Slots) -> None:
    changes = {**env, **dict.fromkeys(REMOVED), "NINJA_STATUS": STATUS, **share.environ}
    server, failed, refused = share.server, False, False

    def line(text: str) -> str | None:
        nonlocal failed, refused
        if refused:  # the command; what the launcher says of it follows
            refused = False
            return None
        if server is not None and _FAILED.match(text):
            refused, failed = failed and text.startswith(_REFUSED), True
            server.refuse()
            return None if refused else text
        if (match := _STATUS.match(text)) is None:
            return text
        _, finished, total, running = (int(number) for number in match.groups())
        slots.progress(finished, total, running if server is None else server.running)
        return f"[{finished}/{total}] {text[match.end() :]}"

    done = process.run_logged(command(setup, share), setup.log, env_changes=changes, line=line)
    slots.took(done.peak)


def _clients(setup: Setup, env: Mapping[str, str | None], slots: Slots) -> Clients:
    if not _takes_part(setup, env):
        return Clients.NONE
    wait = slots.compilers_wait and Version(setup.toolchain.ninja.version) < WAITS_SINCE
    return Clients.COMPILERS if wait and _only_compiles(setup, env) else Clients.NINJA


def _only_compiles(setup: Setup, env: Mapping[str, str | None]) -> bool:
    """Return whether all that this build runs, except for links, has a launcher that can wait for a job."""
    script, cache = str(launchers.script(setup)), setup.toolchain.cache
    if cache is None or not cache.ccache:  # sccache compiles in a process that stays
        return False

    def find() -> list[str]:
        lines = process.run([*command(setup, Share()), "-t", "commands"], env_changes=env).stdout.splitlines()
        others = [each for each in lines if script not in each and not _LINK.search(each)]
        return [each for each in others if not each.startswith("ninja: ")][:1]

    try:
        return not known(setup.build, f"without {script}", find)
    except ProcessError:
        return False


def _takes_part(setup: Setup, env: Mapping[str, str | None]) -> bool:
    """Return whether this Ninja, and every make that it starts, can be clients of a jobserver that is a FIFO."""
    if Version(setup.toolchain.ninja.version) < JOBSERVER_SINCE:
        return False
    try:
        text = (setup.build / "build.ninja").read_bytes()
    except OSError:
        return True
    return _MAKE.search(text) is None or _make_version(env) >= MAKE_FIFO_SINCE


def _make_version(env: Mapping[str, str | None]) -> tuple[int, ...]:
    try:
        answer = process.run(["make", "--version"], env_changes=env).stdout
    except ProcessError:
        return MAKE_FIFO_SINCE  # there is none: the build will fail for another reason
    match = re.search(r"GNU Make (\d+)\.(\d+)", answer)
    return tuple(int(part) for part in match.groups()) if match else MAKE_FIFO_SINCE


LOG = ".ninja_log"
_FIELDS = 5  # start, end, time of the output, output, hash of the command


def log_lines(build: Path) -> list[str]:
    """Return the lines of the log, none before Ninja's first run."""
    try:
        text = (build / LOG).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    return text.removesuffix("\n").split("\n")  # names of files may have other ends of lines in them


def log_fields(line: str) -> list[str] | None:
    """Return start and end in milliseconds, time of the output, output, and hash of the command; None for the title."""
    found = line.split("\t")
    return found if len(found) == _FIELDS else None


def forget(build: Path, outputs: Collection[str] | None = None) -> None:
    """Let Ninja write ``outputs`` again, by default all but objects.

    It writes again what its log does not say that it wrote; nothing is removed.
    """
    if known := log_lines(build):
        kept = [line for line in known if (fields := log_fields(line)) is None or not _is_in(fields[3], outputs)]
        text = "".join(f"{line}\n" for line in kept)
        (build / LOG).write_text(text, encoding="utf-8", errors="surrogateescape")


def _is_in(output: str, outputs: Collection[str] | None) -> bool:
    return not output.endswith((".o", ".obj")) if outputs is None else output in outputs
