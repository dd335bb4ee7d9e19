"""One entry's work, from its environment to its audited variant; others affect only whether its files may be packed."""

from __future__ import annotations

import os
import platform
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import audit, cmake, elf, environments, merge, repair, toolchain
from hatch_torch_ext import sdk as torch_sdk
from hatch_torch_ext.base import uv
from hatch_torch_ext.base.errors import CompileError, EntryError, SdkError
from hatch_torch_ext.facts import content, project
from hatch_torch_ext.facts.backend import VARIABLE
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.remote import pipfiles, settings
from hatch_torch_ext.repair import contents
from hatch_torch_ext.sdk import environment as sdk_environment
from hatch_torch_ext.sdk import exports, fetch, thin
from hatch_torch_ext.values import Setup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hatch_torch_ext.audit import Finding
    from hatch_torch_ext.cmake.replies import InstallPlan
    from hatch_torch_ext.config import Config
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.pipeline.slots import EntrySlots
    from hatch_torch_ext.values import Entry, Environment, Sdk, Task, Toolchain

    Acquired = tuple[Environment, Sdk, Mapping[str, str]]
    Emit = Callable[[events.Event], None]


def prepare(task: Task, emit: Emit) -> Acquired:
    """Make the entry's environment and fetch its SDK, which mostly waits for the network."""
    emit(events.Step(entry=task.name, step="prepare"))
    fetch.WATCHER.set(
        lambda title, received, total: emit(
            events.Fetched(entry=task.name, title=title, received=received, total=total)
        )
    )
    entry, config, work = task.entry, task.config, task.work
    environ, report = _environ(entry), _notes(task, emit)
    if task.installed is not None:
        environment = task.installed.environment
        return environment, sdk_environment.acquire(entry, environment, found=task.installed), environ
    if config.sdk == "environment":
        if entry.machine not in {None, platform.machine()}:
            raise SdkError(
                entry.name,
                f'`sdk = "environment"` compiles against an installed torch, and one for {entry.machine} cannot be '
                f'installed on {platform.machine()}: take `sdk = "thin"`, or build this entry on {entry.machine}',
            )
        # The metadata of an unpacked sdist are beside it; an environment for them would be left behind forever.
        lasting = not project.is_unpacked(config.root)
        environment = environments.of_entry(
            entry, root=config.root, shared_with_author=lasting, data=work, report=report
        )
        return environment, sdk_environment.acquire(entry, environment), environ
    environment = environments.without_torch(
        entry, data=work, uv=Path(uv.find()), installer=settings.for_uv(environ), report=report
    )
    environment = environments.for_machine(environment, entry.machine, config.cross_for(entry.machine), data=work)
    sdk = thin.acquire(
        entry,
        environment.interpreter,
        environment.python,
        config,
        report=report,
        environ=environ,
        crossed=environment.site_packages if environment.cross else None,
    )
    return environment, sdk, environ


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a task, with the tools that built it and the messages about it."""

    built: BuiltVariant
    environment: Environment
    sdk: Sdk
    toolchain: Toolchain
    warnings: tuple[str, ...]
    peak: int
    cached: tuple[int, int] | None


def build(task: Task, acquired: Acquired, slots: EntrySlots, files: PackageFiles, emit: Emit) -> Result:
    """Compile, repair and audit the entry; the caller holds a token of the pool. Raises ``EntryError``."""
    environment, sdk, environ = acquired
    entry, config, work, report = task.entry, task.config, task.work, _notes(task, emit)

    def step(name: str) -> None:
        emit(events.Step(entry=task.name, step=name))

    step("configure")
    torch_sdk.check(entry, sdk, removal=environment.removal)
    sdk = torch_sdk.narrowed(entry, sdk)
    tools = toolchain.find(entry, config, environment, sdk, work=work, report=report)
    setup = Setup(
        entry=entry, config=config, environment=environment, sdk=sdk, toolchain=tools, folder=work / entry.folder
    )
    tree = cmake.build(setup, slots=slots, report=report, check_plan=files.check)
    step("repair")
    built = repair.repair(setup, tree, report=report)
    step("audit")
    if entry.gpu and not built.variant.runs_on.is_gpu:
        report(f"uses no {entry.gpu.toolkit}; packaged as a CPU variant although the entry sets `{VARIABLE}`")
    names = exports.of(
        sdk,
        {name for file in built.variant.files for name in file.needed},
        fetch=config.audit_symbols == "fetch",
        report=report,
        settings=settings.read(entry, config, environ),
    )
    others = exports.StoredExports(os.environ, besides=sdk.version)
    findings = audit.audit_variant(built, setup, tree, exports=names, others=others)
    warnings = _judge(task, findings, emit)
    return Result(
        built=built,
        environment=environment,
        sdk=sdk,
        toolchain=tools,
        warnings=warnings,
        peak=slots.peak,
        cached=slots.counts,
    )


def _notes(task: Task, emit: Emit) -> Callable[[str], None]:
    return lambda text: emit(events.Note(text=text, entry=task.name))


def _environ(entry: Entry) -> dict[str, str]:
    """Return the variables that say where the entry's packages come from; pip's files count if it has none."""
    environ = {**os.environ, **dict(entry.env_vars)}
    return {**pipfiles.variables(environ), **environ}


def _judge(task: Task, findings: Sequence[Finding], emit: Emit) -> tuple[str, ...]:
    warnings = [finding for finding in findings if finding.warning]
    lines = (audit.text(warnings),) if warnings else ()
    for text in lines:
        emit(events.Note(text=text, entry=task.name, warning=True))
    faults = [finding for finding in findings if not finding.warning]
    if faults:
        raise EntryError(task.name, f"the audit finds what keeps it from loading\n{audit.text(faults)}")
    return lines


class PackageFiles:
    """The files of one build's package: ``shipped`` are the author's, by place in the wheel. Thread-safe.

    CMake's install plan is checked before compiling, so that a certain clash is reported at once instead of minutes
    later. Files that Ninja makes, or that install rules with code install, are checked afterwards.

    ``wheels`` holds, for each entry, the machine of its wheel, or None if there is one wheel.
    """

    def __init__(self, config: Config, shipped: Mapping[str, Path], wheels: Mapping[str, str | None]) -> None:
        self._config, self._shipped, self._wheels = config, shipped, wheels
        self._folder = config.package.replace(".", "/")
        self._lock = threading.Lock()
        self._seen: dict[tuple[str | None, str], tuple[str, str]] = {}

    def know(self, built: BuiltVariant) -> None:
        """Record the files of an entry that is finished already."""
        for target, path in built.package_files:
            entry = built.variant.build.entry
            self._seen.setdefault((self._wheels[entry], target), (entry, content.sha256(path)))

    def check(self, entry: str, plan: InstallPlan) -> None:
        """Raise ``CompileError`` if the files of ``entry`` cannot be in one package with those of the others."""
        files = {contents.fold(place, self._config.package): source for place, source in plan.files}
        if not (self._config.package_dir.is_dir() or plan.code or _brings_python(plan)):
            raise CompileError(entry, no_package(self._config))
        for target, source in sorted(files.items()):
            if contents.matches(target, self._config.variant_data) or elf.is_elf(source):
                continue
            if (own := self._shipped.get(f"{self._folder}/{target}")) is not None:
                if own.read_bytes() != source.read_bytes():
                    raise CompileError(entry, in_both(target, own))
            elif not merge.may_differ(target):
                found = content.sha256(source)
                with self._lock:
                    other, first = self._seen.setdefault((self._wheels[entry], target), (entry, found))
                    if other == entry:  # configured again
                        first = found
                        self._seen[self._wheels[entry], target] = entry, found
                if found != first:
                    raise CompileError(entry, merge.not_the_same(target, other, entry))


def in_both(target: str, own: Path) -> str:
    """Return the message for a file that both CMake and the author's package install, with different content."""
    return (
        f"CMake installs `{target}`, which is in the package already, not the same (`{own}`): take one of them out, or "
        "install it under another name."
    )


def no_package(config: Config) -> str:
    """Return the message for a package that is neither in the sources nor among the files that CMake installs."""
    place = config.package_dir.relative_to(config.root).as_posix()
    return (
        f"The package `{config.package}` has no folder `{place}`, and CMake installs no Python file for it. Create the "
        "folder, name another package with option `package`, or let CMake install the package's files: "
        f"`install(DIRECTORY <folder>/ DESTINATION {config.package.replace('.', '/')})`."
    )


def _brings_python(plan: InstallPlan) -> bool:
    return any(place.endswith(".py") for place, _ in plan.files) or any(
        next(folder.rglob("*.py"), None) is not None for _, folder in plan.folders
    )
