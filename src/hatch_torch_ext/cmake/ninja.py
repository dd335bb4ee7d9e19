"""Runs Ninja in a configured build folder, within this entry's share of the machine."""

from __future__ import annotations

import contextlib
import enum
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from packaging.version import Version

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.cmake import launchers
from hatch_torch_ext.resources import once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from hatch_torch_ext.values.job import Job

JOBSERVER_SINCE = Version("1.13.2")
"""1.13.0 is a client too, but exits with 0 when it is interrupted."""
MAKE_FIFO_SINCE = (4, 4)
"""Older versions of GNU make end with an internal error if MAKEFLAGS name a FIFO."""
STATUS = "@@%s %f %t %r@@"
REMOVED = ("CMAKE_BUILD_PARALLEL_LEVEL", "GNUMAKEFLAGS", "MAKEFLAGS", "MAX_JOBS", "MFLAGS", once.TOKENS)
"""Variables with other limits; the first three also disable Ninja's jobserver, or name another one."""

_THREADS = re.compile(r"(?:^| )((?:--threads|-t|--split-compile|-split-compile)[ =]?\d+)(?= |$)")
_STATUS = re.compile(r"@@(\d+) (\d+) (\d+) (\d+)@@")
_LINK = re.compile(r"^: && | -dlink ")
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
    """Gives each compiler its job while Ninja counts those that wait among the running."""

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


class Turn(Protocol):
    """An entry's turn at the sources, from its configure step to its install step."""

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


class NoOthers:
    """The turn of a single entry."""

    is_shared = others_configure = False

    def configuring(self) -> AbstractContextManager[None]:
        """Tell no one."""
        return contextlib.nullcontext()

    def by_itself(self) -> None:
        """Wait for no one."""


class Slots(Protocol):
    """How much may be compiled at once, over all entries; ``Fixed`` for a single entry."""

    def turn(self) -> AbstractContextManager[Turn]:
        """Be at work on the sources beside other entries while the context lasts."""

    @property
    def serves(self) -> bool:
        """Return whether compilers, if they can be clients, take their jobs by themselves."""

    def share(self, clients: Clients) -> AbstractContextManager[Share]:
        """Provide this entry's share for one run of Ninja; without clients it is a fixed number of jobs."""

    def alone(self) -> AbstractContextManager[Share]:
        """Wait until no other entry compiles, and keep it so while the context lasts."""

    def progress(self, finished: int, total: int, running: int) -> None:
        """Record the finished build steps, of the total, and those that run."""

    def took(self, peak: int) -> None:
        """Record the memory of the largest compiler process, in bytes."""

    def cached(self, hits: int, files: int) -> None:
        """Record how many files the compiler cache had, of how many lookups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A fixed number of jobs for a single entry."""

    jobs: int
    serves: bool = False

    def turn(self) -> AbstractContextManager[Turn]:
        """Return the turn of a single entry."""
        return contextlib.nullcontext(NoOthers())

    @contextlib.contextmanager
    def share(self, clients: Clients) -> Iterator[Share]:  # noqa: ARG002 -- of the protocol
        """Provide all jobs."""
        yield Share(arguments=("-j", str(self.jobs)))

    @contextlib.contextmanager
    def alone(self) -> Iterator[Share]:
        """Provide one job."""
        yield Share(arguments=("-j", "1"))

    def progress(self, finished: int, total: int, running: int) -> None:
        """Ignore the progress."""

    def took(self, peak: int) -> None:
        """Ignore the memory."""

    def cached(self, hits: int, files: int) -> None:
        """Ignore the compiler cache."""


def build(job: Job, env: Mapping[str, str | None], slots: Slots, report: Callable[[str], None]) -> None:
    """Run Ninja. If a compiler is killed because memory is short, run it again with one compiler, alone in the build.

    If some program that Ninja runs started a make that is too old for the jobserver, Ninja runs again without one.
    Raises ``ProcessError`` if it fails.
    """
    clients = _clients(job, env, slots)
    try:
        try:
            _run_shared(job, env, clients, slots)
        except ProcessError as error:
            if clients is Clients.NONE or not _OLD_MAKE.search(error.output):
                raise
            _run_shared(job, env, Clients.NONE, slots)
    except ProcessError as error:
        if error.returncode is None or not KILLED.search(error.output):
            raise
    else:
        return
    report(
        f"{job.entry.name}: a compiler was killed, most likely because memory ran out: compilation continues with "
        "one file at a time, and no other entry compiles meanwhile. `memory-per-job` prevents this"
    )
    with slots.alone() as share:
        _run(job, env, share, slots)


def outside(job: Job, env: Mapping[str, str | None]) -> frozenset[str]:
    """Return the files outside of the build folder that Ninja would write, where every entry writes the same file."""
    try:
        said = process.run([*command(job, Share()), "-t", "targets", "all"], env_changes=env).stdout
    except ProcessError:
        return frozenset()  # what is wrong with it, Ninja says when it builds
    inside = os.fspath(job.build) + "/"
    outputs = (line.rpartition(": ") for line in said.splitlines() if line.startswith("/"))
    return frozenset(path for path, _, rule in outputs if rule != "phony" and not path.startswith(inside))


def threads(flags: Iterable[tuple[str, str]]) -> str | None:
    """Return a note on nvcc's own threads if ``flags`` (target and language, its flags) ask for them."""
    for target, text in flags:
        if target.endswith(" CUDA") and (match := _THREADS.search(text)) is not None:
            return (
                f"nvcc is called with `{match[1]}`: each compile job then takes that many processors and as much more "
                "memory, which `jobs` and `memory-per-job` do not count. Leave it out of the CUDA flags"
            )
    return None


def command(job: Job, share: Share) -> list[str]:
    """Return the command line of Ninja."""
    return [str(job.toolchain.ninja.path), "-C", str(job.build), *share.arguments]


def _run_shared(job: Job, env: Mapping[str, str | None], clients: Clients, slots: Slots) -> None:
    with slots.share(clients) as share:
        _run(job, env, share, slots)


def _run(job: Job, env: Mapping[str, str | None], share: Share, slots: Slots) -> None:
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

    done = process.run(command(job, share), env_changes=changes, log=job.log, line=line)
    slots.took(done.peak)


def _clients(job: Job, env: Mapping[str, str | None], slots: Slots) -> Clients:
    if not _takes_part(job, env):
        return Clients.NONE
    return Clients.COMPILERS if slots.serves and _only_compiles(job, env) else Clients.NINJA


def _only_compiles(job: Job, env: Mapping[str, str | None]) -> bool:
    """Return whether all that this build runs, except for links, has a launcher that can wait for a job."""
    words = launchers.words(job)
    cache = job.toolchain.cache
    if cache is None or not cache.ccache:  # sccache compiles in a process that stays
        return False
    try:
        said = process.run([*command(job, Share()), "-t", "commands"], env_changes=env).stdout
    except ProcessError:
        return False
    return all(words[3] in each or _LINK.search(each) for each in said.splitlines() if not each.startswith("ninja: "))


def _takes_part(job: Job, env: Mapping[str, str | None]) -> bool:
    """Return whether this Ninja, and every make that it starts, can be clients of a jobserver that is a FIFO."""
    if Version(job.toolchain.ninja.version) < JOBSERVER_SINCE:
        return False
    try:
        text = (job.build / "build.ninja").read_bytes()
    except OSError:
        return True
    return _MAKE.search(text) is None or _make_version(env) >= MAKE_FIFO_SINCE


def _make_version(env: Mapping[str, str | None]) -> tuple[int, ...]:
    try:
        said = process.run(["make", "--version"], env_changes=env).stdout
    except ProcessError:
        return MAKE_FIFO_SINCE  # there is none: the build will fail for another reason
    match = re.search(r"GNU Make (\d+)\.(\d+)", said)
    return tuple(int(part) for part in match.groups()) if match else MAKE_FIFO_SINCE
