"""One entry's work, from its environment to its audited variant; no other entry affects it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import audit, cmake, environments, repair, toolchain
from hatch_torch_ext import sdk as torch_sdk
from hatch_torch_ext.base import uv
from hatch_torch_ext.base.errors import EntryError, SdkError
from hatch_torch_ext.facts import project
from hatch_torch_ext.facts.backend import VARIABLE
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.remote import pipconfig, settings
from hatch_torch_ext.sdk import environment as sdk_environment
from hatch_torch_ext.sdk import exports, fetch, thin
from hatch_torch_ext.values import PreparedEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hatch_torch_ext.audit import Finding
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.pipeline.packagefiles import PackageFiles
    from hatch_torch_ext.pipeline.slots import EntrySlots
    from hatch_torch_ext.values import Entry, Environment, Sdk, Setup, Task

    Acquired = tuple[Environment, Sdk]
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
        return environment, sdk_environment.acquire(entry, environment, found=task.installed)
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
        return environment, sdk_environment.acquire(entry, environment)
    environment = environments.without_torch(
        entry, data=work, uv=Path(uv.find()), installer=settings.for_uv(environ), report=report
    )
    if entry.machine is not None:
        environment = environments.for_machine(environment, config.cross_for(entry.machine), data=work)
    return environment, thin.acquire(entry, environment, config, report=report, environ=environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a task, with what it was built by and the messages about it."""

    built: BuiltVariant
    setup: Setup
    warnings: tuple[str, ...]
    peak: int
    cached: tuple[int, int] | None


def build(task: Task, acquired: Acquired, slots: EntrySlots, files: PackageFiles, emit: Emit) -> Result:
    """Compile, repair and audit the entry; the caller holds a token of the pool. Raises ``EntryError``."""
    environment, sdk = acquired
    entry, config, report = task.entry, task.config, _notes(task, emit)

    def step(name: str) -> None:
        emit(events.Step(entry=task.name, step=name))

    step("configure")
    torch_sdk.check(entry, sdk, removal=environment.removal)
    sdk = torch_sdk.for_entry(entry, sdk)
    prepared = PreparedEntry(entry=entry, config=config, environment=environment, sdk=sdk, folder=task.folder)
    setup = prepared.with_tools(toolchain.find(prepared, report=report))
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
        settings=settings.read(entry, config, _environ(entry)),
    )
    others = exports.StoredExports(os.environ, excluding=sdk.version)
    findings = audit.audit_variant(built, setup, tree, exports=names, others=others)
    warnings = _judge(task, findings, emit)
    return Result(
        built=built,
        setup=setup,
        warnings=warnings,
        peak=slots.peak,
        cached=slots.counts,
    )


def _notes(task: Task, emit: Emit) -> Callable[[str], None]:
    return lambda text: emit(events.Note(text=text, entry=task.name))


def _environ(entry: Entry) -> dict[str, str]:
    """Return the variables that say where the entry's packages come from; pip's files count if it has none."""
    return pipconfig.merged(entry.environ(os.environ))


def _judge(task: Task, findings: Sequence[Finding], emit: Emit) -> tuple[str, ...]:
    warnings = [finding for finding in findings if finding.warning]
    lines = (audit.text(warnings),) if warnings else ()
    for text in lines:
        emit(events.Note(text=text, entry=task.name, warning=True))
    faults = [finding for finding in findings if not finding.warning]
    if faults:
        raise EntryError(task.name, f"the audit finds what keeps it from loading\n{audit.text(faults)}")
    return lines
