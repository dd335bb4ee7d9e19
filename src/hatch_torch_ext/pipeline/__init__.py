"""The order of the work: configuration, matrix, every entry, merge, loader.

hook config -> Config; matrix -> entries; each entry: environment -> SDK -> CMake -> repair -> audit -> variant; all
variants -> Layout -> text of ``_variants.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from hatch_torch_ext import audit, environments, locks, matrix, merge, scrub, store
from hatch_torch_ext.environments import TorchFolders
from hatch_torch_ext.errors import AuditError, BuildError, ConfigurationError
from hatch_torch_ext.facts import archs, labels
from hatch_torch_ext.facts.sizes import size
from hatch_torch_ext.matrix import CURRENT
from hatch_torch_ext.merge import loader, sbom
from hatch_torch_ext.pipeline import capacity, events, schedule, shards
from hatch_torch_ext.pipeline.history import History
from hatch_torch_ext.pipeline.planned import Planned, no_package
from hatch_torch_ext.pipeline.record import Records
from hatch_torch_ext.pipeline.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.environments import InstalledTorch, Matrix
    from hatch_torch_ext.facts.fallback import Sources
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.matrix import Entry
    from hatch_torch_ext.merge import Layout
    from hatch_torch_ext.pipeline.events import View
    from hatch_torch_ext.pipeline.record import Kept

    Report = Callable[[str], None]

PROJECT = "project"
"""A file in the work folder of sdists: it holds the path of the project's own work folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """What goes into the wheel: the layout of the variants, and generated files on disk."""

    layout: Layout
    variants_module: Path
    """The generated ``_variants.py``."""
    manifest: Path
    sbom: Path
    others: tuple[Layout, ...] = ()
    """The layouts of the other machines' wheels, if each machine has a wheel of its own."""


def check_platform() -> None:
    """Raise ``ConfigurationError`` on a machine for which no wheels are made."""
    if sys.platform != "linux" or platform.machine() not in labels.MACHINES:
        raise ConfigurationError(
            [
                f"hatch-torch-ext builds on Linux x86-64 and aarch64, and this is {platform.system()} "
                f"{platform.machine()}: build in a manylinux container or on a Linux machine."
            ]
        )


def work_folder(root: Path, *, distribution: str, aside: bool = False, from_sdist: bool = False) -> Path:
    """Return the folder of all work: ``build/torch-ext`` of the project, else one in the user's cache.

    With ``aside``, and if the project's folder is read-only, it is in the cache. A build ``from_sdist`` runs in a
    folder that is removed afterwards, so its work folder is in the cache too, one for each distribution; the path of
    the project's own work folder is recorded there.
    """
    preferred, fallback = _work_folders(root)
    unpacked = _of_sdists(distribution)
    found = unpacked if from_sdist else preferred if not aside and _inside(preferred) else fallback
    if found != preferred:
        store.private(store.path(os.environ))
        found.mkdir(parents=True, exist_ok=True)
    if not from_sdist and not is_unpacked(root):
        with contextlib.suppress(OSError):  # a read-only cache: sdists are built from the start
            store.private(store.path(os.environ))
            unpacked.mkdir(parents=True, exist_ok=True)
            (unpacked / PROJECT).write_text(str(found), encoding="utf-8")
    return found


def is_unpacked(root: Path) -> bool:
    """Return whether ``root`` is an unpacked sdist."""
    return (root / "PKG-INFO").is_file()


def _of_sdists(distribution: str) -> Path:
    """Return the work folder for a distribution's sdists, wherever they are unpacked."""
    return store.path(os.environ) / "work" / f"sdist-{canonicalize_name(distribution)}"


def _earlier(work: Path) -> Path | None:
    """Return the work folder of the project whose sdist is built in ``work``."""
    try:
        return Path((work / PROJECT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _inside(folder: Path) -> bool:
    """Make the work folder of a project; return whether it is writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    if not os.access(folder, os.W_OK):
        return False
    # For projects whose own .gitignore lacks `build`. hatchling reads only the .gitignore of the root.
    (folder / ".gitignore").write_text("*\n", encoding="ascii")
    return True


def _work_folders(root: Path) -> tuple[Path, Path]:
    name = hashlib.sha256(str(root).encode()).hexdigest()[:16]
    return root / "build" / "torch-ext", store.path(os.environ) / "work" / name


def events_file(root: Path) -> Path | None:
    """Return the file of the last build's events, or None if no build of the project in ``root`` has left one."""
    found = [file for folder in _work_folders(root) if (file := folder / events.FILE).is_file()]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def expand(config: Config, *, distribution: str, found: Matrix | None = None) -> tuple[Entry, ...]:
    """Return every entry of the matrix, before ``only`` and ``skip``.

    ``found`` is hatch's answer, if it was asked before.
    """
    optional = config.fallback == "build"
    audit.settle((), ignore=config.ignore)  # an unknown code is reported before any work
    files = [config.root / name for name in ("pyproject.toml", "hatch.toml")]
    scrub.learn_fields((file.read_text(encoding="utf-8") for file in files if file.is_file()), os.environ)
    if found is None:
        found = environments.remembered(
            config.root, config.environment, project_name=distribution, optional=optional, environ=os.environ
        )
    for variables in found.env_vars.values():
        scrub.learn_environ(dict(variables))
    return matrix.expanded(found)


def select(config: Config, entries: Sequence[Entry], *, report: Report) -> tuple[Entry, ...]:
    """Return the entries that ``only`` and ``skip`` leave; report the others, and what excluded them."""
    selected = matrix.select(entries, only=config.only, skip=config.skip)
    skipped = matrix.reached(entries, config.skip)
    for entry in entries:
        if entry not in selected:
            report(f"{entry.name}: left out by {_named('skip' if entry.name in skipped else 'only')}")
    return selected


def _named(option: str) -> str:
    """Return where the globs of ``option`` come from: its variable overrides it."""
    variable = f"HATCH_TORCH_EXT_{option.upper()}"
    return f"the variable `{variable}`" if os.environ.get(variable, "").strip(", \t\n") else f"option `{option}`"


def select_editable(
    config: Config, entries: Sequence[Entry], *, torch: InstalledTorch | None, report: Report
) -> tuple[Entry, ...]:
    """Return the entries of an editable install: those that were requested, else those for ``torch``, else the newest.

    ``torch`` is that of the environment, if it is known; the choice is reported.
    """
    only = () if config.only == (CURRENT,) else config.only or config.editable_only
    if only:
        return matrix.select(entries, only=only, skip=config.skip)
    selected = _running_here(matrix.select(entries, only=(), skip=config.skip))
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    fitting = [entry for entry in selected if labels.python_tag(entry.python) in {None, here}] or selected
    if torch is not None:
        if chosen := matrix.serving(fitting, torch=torch.version, cuda=torch.cuda):
            report(f"editable: for torch {torch.version} of {torch.python}")
            return chosen
        report(f"editable: no entry of the matrix serves torch {torch.version} of {torch.python}: the newest is built")
    return matrix.newest(fitting)


def _running_here(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries that an install of this project can use. Raises ``ConfigurationError`` if there are none."""
    if (found := matrix.of_this_machine(entries)) or not entries:
        return found
    raise ConfigurationError(
        [
            f"Every entry of the matrix is for another machine than {platform.machine()}, on which it is installed: "
            f"add entries without the variable `machine`, or with `{platform.machine()}`."
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """What is built for the environment into which a wheel is installed; ``installed`` if its torch is known."""

    config: Config
    entries: tuple[Entry, ...]
    installed: TorchFolders | None


def select_here(
    config: Config, entries: Sequence[Entry], *, torch: InstalledTorch | None, report: Report, warn: Report
) -> Here:
    """Return what is built for the installed ``torch`` alone; if it is unknown, for the newest entry.

    No entry of the matrix need serve that torch. Raises ``ConfigurationError`` if no torch is found and the user asked
    for it by name, or if there is no entry either.
    """
    if torch is not None:
        found = TorchFolders(environment=environments.of_python(torch.python), torch=torch.folder, nvidia=torch.nvidia)
        report(f"for torch {torch.version} of {torch.python}, and for no other")
        own = matrix.current(matrix.common(entries), torch=torch.version)
        return Here(config=replace(config, environment=""), entries=(own,), installed=found)
    where = f"No torch is to be seen from this build (its Python is {sys.executable})"
    if config.only == (CURRENT,):
        raise ConfigurationError(
            [
                f"HATCH_TORCH_EXT_ONLY={CURRENT} asks for the torch that is installed. {where}: install torch first, "
                "then `pip install --no-build-isolation`, with hatchling and hatch-torch-ext installed, too."
            ]
        )
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    selected = _running_here(matrix.select(entries, only=(), skip=config.skip))
    fitting = [entry for entry in selected if labels.python_tag(entry.python) in {None, here}] or selected
    newest = matrix.newest(fitting)
    names = ", ".join(entry.name for entry in newest) or "nothing but the sources"
    warn(
        f"{where}, so it is built for the newest torch of the matrix alone ({names}). For a torch that is installed: "
        "`pip install --no-build-isolation`, with hatchling and hatch-torch-ext installed, too."
    )
    return Here(config=config, entries=newest, installed=None)


def build(
    config: Config,
    entries: Sequence[Entry],
    *,
    distribution: str,
    views: Sequence[View],
    work: Path,
    whole: Sequence[Entry] = (),
    sources: Sources | None = None,
    installed: TorchFolders | None = None,
    here: bool = False,
    version: str = "",
    shipped: Mapping[str, Path] = MappingProxyType({}),
) -> Product:
    """Build every entry, side by side, and return what goes into the wheel; ``views`` get all events.

    ``work`` is the folder of all work; ``whole`` are the entries of the complete wheel, if these may be a part of it.
    ``sources`` go into the wheel for a build at first use; with them there may be no entry. ``installed`` is the torch
    of the entry ``current``; ``here`` says that the wheel is for the environment that it is built for. ``version`` is
    the project's; ``shipped`` are the files that hatchling puts into the wheel, by place in it.

    A failed entry does not stop the others; their work is kept for the next run. Raises ``BuildError`` with every
    entry's failure, or the failure itself if there is one; ``KeyboardInterrupt`` once all started programs have ended.
    """
    check_platform()
    waiting = events.Stream(None, views)
    with (
        store.using(),
        _lock(work, lambda line: waiting(events.Note(text=line))),
        (work / events.FILE).open("w", encoding="utf-8") as file,
    ):
        stream = events.Stream(file, views)
        tasks = [
            Task(entry=entry, config=config, work=work, installed=installed if entry.name == CURRENT else None)
            for entry in entries
        ]
        records = Records(config, work, earlier=_earlier(work))
        wheels = _wheels(config, entries)
        planned = Planned(config, shipped, wheels)
        built = _build_all(tasks, records, planned, stream, version=version) if tasks else []
        if tasks and (idle := archs.unused(config.archs, [each.variant.archs for each in built])) is not None:
            stream(events.Note(text=idle))
        layouts = []
        for machine in sorted(
            set(wheels.values()) or {None}, key=lambda machine: (machine != platform.machine(), machine or "")
        ):
            names = [name for name, own in wheels.items() if own == machine]
            lacking = shards.describe(
                config,
                project=records.project,
                whole=[each for each in whole if machine in {None, each.machine or platform.machine()}],
                built=names,
            )
            layout = merge.merge(
                [each for each in built if each.variant.build.entry in names],
                package=config.package,
                distribution=distribution,
                manylinux=config.manylinux,
                partial=lacking,
                sources=sources,
            )
            layouts.append(layout)
        layout, *others = merge.alike(layouts)
        if not config.package_dir.is_dir() and not any(file.target.endswith(".py") for file in layout.files):
            raise ConfigurationError([no_package(config)])
        product = _write(layout, distribution=distribution, folder=work / "wheel", here=here)
        return replace(product, others=tuple(others))


def _wheels(config: Config, entries: Sequence[Entry]) -> dict[str, str | None]:
    """Return the machine whose wheel each entry goes into, by name; None if there is one wheel."""
    one = config.machines == "one-wheel"
    return {entry.name: None if one else entry.machine or platform.machine() for entry in entries}


def check_wheel(wheel: Path, config: Config, layout: Layout, *, report: Report) -> None:
    """Audit the finished wheel, and report its size. Raises ``AuditError`` if it must not be published."""
    findings = audit.audit_wheel(wheel, ignore=config.ignore, max_size=config.max_size)
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
    found = audit.settle(audit.check_loading(config.package, files), ignore=config.ignore)
    if found:
        report(audit.text(found))


def clean(root: Path, *, distribution: str, report: Report) -> None:
    """Remove everything that builds of the project in ``root`` left, wherever they worked, once none is running."""
    for folder in (*_work_folders(root), _of_sdists(distribution)):
        if folder.is_symlink():
            folder.unlink()
        elif folder.is_dir():
            with _lock(folder, report):
                shutil.rmtree(folder)


def _lock(work: Path, report: Report) -> AbstractContextManager[None]:
    """Exclude other builds in this folder; a message says which build is waited for."""
    return locks.held(work / "lock", what=f"the work folder {work}", report=report)


def _build_all(
    tasks: Sequence[Task], records: Records, planned: Planned, stream: events.Stream, *, version: str
) -> list[BuiltVariant]:
    """Return every entry's variant, reused ones first. Raises ``BuildError``."""
    config, work = tasks[0].config, tasks[0].work
    began = time.monotonic()
    inputs = {task.name: records.inputs(task) for task in tasks}
    kept = {task.name: found for task in tasks if (found := records.take(task, inputs[task.name])) is not None}
    history = History(work)
    waiting = history.longest_first([task for task in tasks if task.name not in kept])
    available = capacity.Capacity()
    per_job = _per_job(config, waiting, history)
    jobs, why = capacity.jobs(available, asked=config.jobs, per_job=per_job)
    last = {task.name: took.seconds for task in waiting if (took := history.of(task.name)) is not None}
    stream(events.Begun(entries=tuple(task.name for task in tasks), jobs=jobs, last=last))
    for task in tasks:
        if (found := kept.get(task.name)) is not None:
            planned.know(found.built)
            _say_kept(task, found, stream)
    if waiting and why is not None:
        stream(events.Note(text=why))
    outcomes: list[schedule.Outcome[Task, BuiltVariant]] = []
    if waiting and config.dask:
        from hatch_torch_ext.pipeline.cluster import Cluster

        sources = shards.sources_digest(config, records.project)
        outcomes = Cluster(config.dask, config, version=version).run(waiting, sources=sources, stream=stream)
    elif waiting:
        from hatch_torch_ext.pipeline.crew import Crew

        crew = Crew(
            config=config,
            capacity=available,
            per_job=per_job,
            tasks=waiting,
            records=records,
            planned=planned,
            inputs=inputs,
            history=history,
            stream=stream,
        )
        outcomes = crew.run(jobs)
    records.digests.save()
    errors = {outcome.item.name: outcome.error for outcome in outcomes if outcome.error is not None}
    failures = [errors[task.name] for task in tasks if task.name in errors]
    made = {outcome.item.name: outcome.value for outcome in outcomes if outcome.value is not None}
    stream(
        events.Ended(
            built=len(made),
            reused=len(kept),
            failed=len(failures),
            left=len(waiting) - len(made) - len(failures),
            seconds=time.monotonic() - began,
        )
    )
    if failures:
        raise failures[0] if len(failures) == 1 else BuildError(failures, total=len(tasks))
    return [made[task.name] if task.name in made else kept[task.name].built for task in tasks]


def _say_kept(task: Task, kept: Kept, stream: events.Stream) -> None:
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
    cuda = any(task.entry.cuda not in {None, "cpu"} for task in tasks)
    return max([capacity.CUDA if cuda else capacity.CPP, *known])
