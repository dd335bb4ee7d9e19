"""How compilers start: what entries share, a compiler cache, and the wait for an entry that compiles the same source.

CMake takes launchers from environment variables, so whatever the author sets overrides them: a variable, a cache entry,
a toolchain file, a line of CMakeLists.txt.
"""

from __future__ import annotations

import contextlib
import enum
import os
import shutil
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hatch_torch_ext.values import Job


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
    """How much may be compiled at once, over all entries."""

    def turn(self) -> AbstractContextManager[Turn]:
        """Register an entry as working on the sources while the context lasts; others may do so too."""

    @property
    def serves(self) -> bool:
        """Return whether compilers, if they can be clients, take their jobs by themselves."""

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


LANGUAGES = ("C", "CXX", "CUDA")
CACHES = ("ccache", "sccache")
STATISTICS = "ccache.log"
_HITS = ("direct_cache_hit", "preprocessed_cache_hit")

SIZE = "5G"
"""How large the cache of our own ccache may grow, beside the torch SDKs, unless ``CCACHE_MAXSIZE`` is set."""


def words(job: Job) -> list[str]:
    """Return the words to put before every compiler call; none without a cache."""
    cache = job.toolchain.cache
    if cache is None:
        return []
    program = str(cache.program)
    if cache.program.name not in CACHES:
        return [program]
    torch = os.pathsep.join(sorted({str(job.sdk.prefix), str(job.torch)}))
    # The entry's own Python, and a copy of the script: an isolated build has ours at a new path each time.
    return [str(job.environment.python), "-I", "-S", str(_script(job)), str(_locks(job)), torch, program]


def write(job: Job) -> None:
    """Write the script into the entry's folder."""
    if len(words(job)) > 1:
        with resources.as_file(resources.files("hatch_torch_ext") / "resources" / "once.py") as path:
            shutil.copyfile(path, _script(job))
        _locks(job).mkdir(exist_ok=True)


def environ(job: Job, given: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables from which CMake takes launchers; those in ``given`` are the user's, and stay."""
    if not (found := words(job)):
        return {}
    names = [f"CMAKE_{language}_COMPILER_LAUNCHER" for language in LANGUAGES]
    launchers: dict[str, str | None] = {name: ";".join(found) for name in names if not given.get(name)}
    return {**launchers, **_settings(job, given)}


def _settings(job: Job, given: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings of our own ccache, except those that the user has set."""
    cache = job.toolchain.cache
    if cache is None or cache.folder is None or given.get("CCACHE_DIR") or given.get("CCACHE_CONFIGPATH"):
        return {}
    return {"CCACHE_DIR": str(cache.folder), "CCACHE_MAXSIZE": given.get("CCACHE_MAXSIZE") or SIZE}


@contextlib.contextmanager
def counted(job: Job, slots: Slots) -> Iterator[dict[str, str | None]]:
    """Provide the variables by which ccache logs its statistics, and pass these to ``slots`` afterwards."""
    cache = job.toolchain.cache
    if cache is None or not cache.ccache or job.entry.environ(os.environ).get("CCACHE_STATSLOG"):
        yield {}
        return
    log = job.folder / STATISTICS
    log.unlink(missing_ok=True)
    try:
        yield {"CCACHE_STATSLOG": str(log)}
    finally:
        with contextlib.suppress(OSError):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            hits = sum(line in _HITS for line in lines)
            slots.cached(hits, hits + lines.count("cache_miss"))


def _script(job: Job) -> Path:
    return job.package / "once.py"


def _locks(job: Job) -> Path:
    return job.folder.parent / "compiling"
