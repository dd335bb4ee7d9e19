"""The order of the work: configuration, matrix, every entry, merge, loader.

hook config -> Config; matrix -> entries; each entry: environment -> SDK -> CMake -> repair -> audit -> variant; all
variants -> Layout -> text of ``_variants.py``.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hatch_torch_ext import audit, merge, store
from hatch_torch_ext.base.errors import AuditError, BuildError, ConfigurationError
from hatch_torch_ext.facts import archs, labels, project
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.facts.content import size
from hatch_torch_ext.facts.variant import BUILD, HELP
from hatch_torch_ext.matrix import CURRENT
from hatch_torch_ext.merge import loader, sbom
from hatch_torch_ext.pipeline import capacity, events, folders, shards
from hatch_torch_ext.pipeline.history import HISTORY, History
from hatch_torch_ext.pipeline.inputs import Inputs, origin, sources_digest
from hatch_torch_ext.pipeline.memory import Memory
from hatch_torch_ext.pipeline.packagefiles import PackageFiles, no_package
from hatch_torch_ext.values import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.facts.manifest import Sources
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.pipeline.crew import Outcome
    from hatch_torch_ext.pipeline.events import View
    from hatch_torch_ext.pipeline.memory import RecordedVariant
    from hatch_torch_ext.pipeline.selection import Selected
    from hatch_torch_ext.values import Entry, Layout, Packaging
    from hatch_torch_ext.wheel import Wheel

    Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The content of the wheel: the layout of the variants, and generated files on disk."""

    layout: Layout
    variants_module: Path
    """The generated ``_variants.py``."""
    manifest: Path
    sbom: Path
    others: tuple[Layout, ...] = ()
    """The layouts of the other machines' wheels, if each machine has its own wheel."""


def check_platform() -> None:
    """Raise ``ConfigurationError`` on a machine for which no wheels are made."""
    if sys.platform != "linux" or platform.machine() not in labels.MACHINES:
        raise ConfigurationError(
            f"hatch-torch-ext builds on Linux x86-64 and aarch64, and this is {platform.system()} "
            f"{platform.machine()}: build in a manylinux container or on a Linux machine."
        )


def build(
    selected: Selected,
    packaging: Packaging,
    *,
    views: Sequence[View],
    work: Path,
    whole: Sequence[Entry] = (),
    sources: Sources | None = None,
) -> Product:
    """Build every selected entry, side by side, and return the content of the wheel; ``views`` get all events.

    ``work`` is the folder of all work, which the caller holds (``folders.lock``) for as long as it uses the result;
    ``whole`` are the entries of the complete wheel, if these may be a part of it. ``sources`` go into the wheel for a
    build at first use; with them there may be no entry.

    A failed entry does not stop the others; their work is kept for the next run. Raises ``BuildError`` with every
    entry's failure, or the failure itself if there is one; ``KeyboardInterrupt`` once all started programs have ended.
    """
    check_platform()
    _check_cache()
    config = selected.config
    with store.using(), (work / events.FILE).open("w", encoding="utf-8") as file:
        stream = events.Stream(file, views)
        inputs = Inputs(config, work)
        if inputs.note is not None:
            stream(events.Note(text=inputs.note))
        wheels = _wheels(config, selected.entries)
        tasks = [
            Task(entry=each, config=config, work=work, installed=selected.installed if each.name == CURRENT else None)
            for each in selected.entries
        ]
        files = PackageFiles(config, packaging.shipped, wheels)
        built = _build_all(tasks, inputs, files, stream, packaging) if tasks else []
        if tasks and (idle := archs.unused(config.archs, [each.variant.archs for each in built])) is not None:
            stream(events.Note(text=idle))
        layouts = _layouts(inputs, built, packaging, wheels=wheels, whole=whole, sources=sources)
        layout, *others = merge.alike(layouts)
        python = [file for file in layout.files if file.target.endswith(".py") and file.target not in {HELP, BUILD}]
        if not config.package_dir.is_dir() and not python:
            raise ConfigurationError(no_package(config))
        folder = work / "wheel"
        product = _write(layout, distribution=packaging.distribution, folder=folder, here=selected.here)
        return replace(product, others=tuple(others))


def _check_cache() -> None:
    """Raise ``ConfigurationError`` before anything is fetched into a cache in which CMake could not work."""
    if (why := project.unusable(store.path(os.environ))) is not None:
        raise ConfigurationError(f"{why}. That is the cache: name another folder with {store.VARIABLE}")


def _layouts(
    inputs: Inputs,
    built: Sequence[BuiltVariant],
    packaging: Packaging,
    *,
    wheels: Mapping[str, str | None],
    whole: Sequence[Entry],
    sources: Sources | None,
) -> list[Layout]:
    """Return the layout of each machine's wheel, this machine's first; ``wheels`` are the entries' machines."""
    config, here, sdist = inputs.config, platform.machine(), packaging.sdist
    made_from = None if sdist is None else origin(config, files=inputs.project, sdist=sdist)
    layouts = []
    for machine in sorted(set(wheels.values()) or {None}, key=lambda machine: (machine != here, machine or "")):
        names = [name for name, own in wheels.items() if own == machine]
        lacking = shards.describe(
            config,
            files=inputs.project,
            whole=[each for each in whole if machine in {None, each.machine or here}],
            built=names,
        )
        layout = merge.merge(
            [each for each in built if each.variant.build.entry in names],
            package=config.package,
            distribution=packaging.distribution,
            manylinux=config.manylinux,
            partial=lacking,
            sources=sources,
            made_from=made_from,
        )
        layouts.append(layout)
    return layouts


def _wheels(config: Config, entries: Sequence[Entry]) -> dict[str, str | None]:
    """Return the machine whose wheel each entry is for, by name; None if there is one wheel."""
    one = config.machines == "one-wheel"
    return {entry.name: None if one else entry.machine or platform.machine() for entry in entries}


def check_wheel(wheel: Path, config: Config, layout: Layout, *, report: Report, before: Wheel | None = None) -> None:
    """Audit the finished wheel, and report its size. Raises ``AuditError`` if it must not be published.

    ``before`` is the wheel that it adds variants to.
    """
    findings = audit.audit_wheel(
        wheel, ignore=config.ignore, max_size=config.max_size, sources=config.source, before=before
    )
    # The variants' own warnings were reported when each was built.
    faults = [finding for finding in findings if not finding.warning]
    if faults:
        raise AuditError(f"{wheel.name} is not fit to be published:\n{audit.text(faults)}")
    of_the_package = [finding for finding in findings if finding.variant is None and finding.code != "no-policy"]
    if of_the_package:
        report(audit.text(of_the_package))
    largest = ", ".join(f"{target} {size(count)}" for target, count in merge.largest(layout, 3))
    count = len(layout.variants)
    variants = f"{count} variant{'s' if count != 1 else ''}"
    report(f"{wheel.name}: {size(wheel.stat().st_size)}, {variants}; largest: {largest}")


def check_package(config: Config, layout: Layout, *, report: Report) -> None:
    """Warn if the package loads no variant: an editable install has no wheel to audit."""
    folder = config.package.replace(".", "/")
    own = {path.relative_to(config.package_dir).as_posix(): path for path in config.package_dir.rglob("*.py")}
    installed = {file.target: file.source for file in layout.files if file.target.endswith(".py")}
    files: dict[str, str | None] = {
        f"{folder}/{target}": path.read_text(encoding="utf-8", errors="replace")
        for target, path in sorted({**installed, **own}.items())
    }
    modules = {file.module for placed in layout.variants for file in placed.variant.files if file.module}
    compiled = (path.relative_to(config.package_dir) for path in config.package_dir.rglob("*.so"))
    elsewhere = [f"{folder}/{path.as_posix()}" for path in compiled if path.parts[0] != "_torch_ext"]
    places = {file.target: file.source for file in layout.files}
    variants = [
        (placed.variant, {path: places[target] for path, target in placed.places if target in places})
        for placed in layout.variants
    ]
    findings = audit.check_package(
        config.package, files, variants, modules=modules, elsewhere=elsewhere, sources=config.source
    )
    found = audit.settle(findings, ignore=config.ignore)
    if found:
        report(audit.text(found))


def _build_all(
    tasks: Sequence[Task], inputs: Inputs, files: PackageFiles, stream: events.Stream, packaging: Packaging
) -> list[BuiltVariant]:
    """Return every entry's variant, reused ones first. Raises ``BuildError``."""
    config, began = inputs.config, time.monotonic()
    memory = Memory(inputs, earlier=folders.earlier(inputs.work))
    kept = {task.name: found for task in tasks if (found := memory.take(task)) is not None}
    history = History(inputs.work / HISTORY)
    waiting = history.longest_first([task for task in tasks if task.name not in kept])
    available = capacity.Capacity()
    per_job = _per_job(config, waiting, history)
    jobs, why = capacity.jobs(available, limit=config.jobs, per_job=per_job)
    last = {task.name: took.seconds for task in waiting if (took := history.of(task.name)) is not None}
    stream(events.Begun(entries=tuple(task.name for task in tasks), jobs=jobs, last=last))
    for task in tasks:
        if (found := kept.get(task.name)) is not None:
            files.know(found.built)
            _say_kept(task, found, stream)
    if waiting and why is not None:
        stream(events.Note(text=why))
    outcomes: list[Outcome[Task, BuiltVariant]] = []
    if waiting and config.dask:
        from hatch_torch_ext.pipeline.cluster import Cluster

        sources = sources_digest(config, inputs.project)
        outcomes = Cluster(config, packaging).run(waiting, sources=sources, stream=stream)
    elif waiting:
        from hatch_torch_ext.pipeline.crew import Crew

        crew = Crew(
            waiting,
            jobs=jobs,
            per_job=per_job,
            available=available,
            memory=memory,
            files=files,
            history=history,
            stream=stream,
        )
        outcomes = crew.run()
    inputs.digests.save()
    return _ended(tasks, kept, outcomes, stream, began=began)


def _ended(
    tasks: Sequence[Task],
    kept: Mapping[str, RecordedVariant],
    outcomes: Sequence[Outcome[Task, BuiltVariant]],
    stream: events.Stream,
    *,
    began: float,
) -> list[BuiltVariant]:
    """Report how the work ended, and return every entry's variant. Raises ``BuildError``."""
    errors = {outcome.item.name: outcome.error for outcome in outcomes if outcome.error is not None}
    failures = [errors[task.name] for task in tasks if task.name in errors]
    made = {outcome.item.name: outcome.value for outcome in outcomes if outcome.value is not None}
    stream(
        events.Ended(
            built=len(made),
            reused=len(kept),
            failed=len(failures),
            left=len(tasks) - len(kept) - len(made) - len(failures),
            seconds=time.monotonic() - began,
        )
    )
    if failures:
        raise failures[0] if len(failures) == 1 else BuildError(failures, total=len(tasks))
    return [made[task.name] if task.name in made else kept[task.name].built for task in tasks]


def _say_kept(task: Task, kept: RecordedVariant, stream: events.Stream) -> None:
    for text in kept.warnings:
        stream(events.Note(text=text, entry=task.name, warning=True))
    stream(
        events.Done(
            entry=task.name,
            label=kept.built.variant.label,
            size=kept.built.size,
            seconds=0.0,
            peak=kept.peak,
            reused=True,
            log=str(task.log),
        )
    )


def _write(layout: Layout, *, distribution: str, folder: Path, here: bool) -> Product:
    folder.mkdir(parents=True, exist_ok=True)
    product = Product(
        layout=layout,
        variants_module=folder / "_variants.py",
        manifest=folder / "manifest.json",
        sbom=folder / "torch-ext.cdx.json",
    )
    text = loader.render(layout, distribution=distribution, here=here)
    product.variants_module.write_text(text, encoding="utf-8")
    product.manifest.write_text(layout.manifest, encoding="utf-8")
    product.sbom.write_text(sbom.render(layout, distribution=distribution), encoding="utf-8")
    return product


def _per_job(config: Config, tasks: Sequence[Task], history: History) -> int:
    """Return the estimated memory of a compile job in bytes: the author's value, else the highest known peak."""
    if config.memory_per_job is not None:
        return config.memory_per_job
    known = [took.peak for task in tasks if (took := history.of(task.name)) is not None and took.peak]
    if len(known) == len(tasks) and known:
        return max(known)
    return max([Backend("cpu").memory, *(task.entry.assumed.memory for task in tasks), *known])
