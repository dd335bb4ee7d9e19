"""The CMake stage by itself: its inputs, which a test may change, and its messages."""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import values
from hatch_torch_ext import cmake
from hatch_torch_ext.base import resources
from hatch_torch_ext.cmake.ninja import Share
from hatch_torch_ext.config import CMakeConfig, Config
from hatch_torch_ext.values import Environment, Interpreter, PreparedEntry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from hatch_torch_ext.cmake.buildfolder import Turn
    from hatch_torch_ext.cmake.ninja import Clients
    from hatch_torch_ext.pipeline.pool import Pool
    from hatch_torch_ext.values import Entry, InstallTree, Sdk, Setup, Toolchain

CUDA13 = "cuda-toolkit[nvcc,cudart,cccl]==13.0.*"
"""The requirement of the wheels that have a compiler for CUDA 13.0."""
PACKAGES = Path(__file__).resolve().parent / "packages"
ENTRY = values.entry(
    name="matrix.2.13",
    variables=(("torch", "2.13"), ("cpu-only", "yes")),
    dependencies=("torch==2.13.*",),
    torch_requirement="torch==2.13.*",
)
# No optimisation: the tests do not depend on it, and it takes most of the time.
QUICK = CMakeConfig(build_type="Quick")


def environment_of(python: Path) -> Environment:
    """Return the environment that a Python belongs to."""
    facts = json.loads(subprocess.check_output([python, resources.PROBE, "interpreter"], text=True).split(":", 1)[1])
    interpreter = Interpreter(
        **{name: facts[name] for name in ("version", "tag", "ext_suffix", "machine")}, include=Path(facts["include"])
    )
    return Environment(
        prefix=Path(facts["prefix"]),
        python=python,
        bin=Path(facts["bin"]),
        site_packages=Path(facts["site_packages"]),
        interpreter=interpreter,
    )


class NoOthers:
    """The turn of a single entry."""

    is_shared = others_configure = False

    def configuring(self) -> AbstractContextManager[None]:
        """Tell no one."""
        return contextlib.nullcontext()

    def by_itself(self) -> None:
        """Wait for no one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A fixed number of jobs for a single entry."""

    jobs: int
    compilers_wait: bool = False

    def turn(self) -> AbstractContextManager[Turn]:
        """Return the turn of a single entry."""
        return contextlib.nullcontext(NoOthers())

    @contextlib.contextmanager
    def share(self, clients: Clients) -> Iterator[Share]:  # noqa: ARG002 -- of the protocol
        """Provide all jobs."""
        yield Share(arguments=("-j", str(self.jobs)))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Share]:
        """Provide one job."""
        yield Share(arguments=("-j", "1"))

    def progress(self, finished: int, total: int, running: int) -> None:
        """Ignore the progress."""

    def took(self, peak: int) -> None:
        """Ignore the memory."""

    def cached(self, hits: int, files: int) -> None:
        """Ignore the compiler cache."""


@contextlib.contextmanager
def token(pool: Pool) -> Iterator[None]:
    """Hold a token of a build's pool while the context lasts."""
    pool.take()
    try:
        yield
    finally:
        pool.give()


@dataclass
class Workbench:
    """The inputs of the stage, which a test may change, and its messages."""

    config: Config
    environment: Environment
    sdk: Sdk
    toolchain: Toolchain
    work: Path
    entry: Entry = ENTRY
    reports: list[str] = field(default_factory=list)

    @property
    def prepared(self) -> PreparedEntry:
        """Return the entry as it is before its tools are found."""
        return PreparedEntry(
            entry=self.entry,
            config=self.config,
            environment=self.environment,
            sdk=self.sdk,
            folder=self.work / self.entry.folder,
        )

    def build(self, package: str, **changes: object) -> InstallTree:
        """Build one of tests/packages; ``changes`` go into the configuration."""
        return cmake.build(self.setup(package, **changes), slots=Fixed(jobs=1), report=self.reports.append)

    def setup(self, package: str, **changes: object) -> Setup:
        """Return the build of one of tests/packages; ``changes`` go into the configuration."""
        options = {"source": self.config.root / package, **changes}
        config = replace(self.config, **options)  # type: ignore[arg-type]
        return replace(self.prepared, config=config).with_tools(self.toolchain)
