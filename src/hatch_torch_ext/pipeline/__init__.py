"""States the order of the work: configuration, matrix, every entry, merge, loader. Reads like DESIGN's data flow.

hook config -> Config; matrix -> entries; each entry: environment -> SDK -> CMake -> repair -> audit -> variant;
all variants -> Layout -> text of ``_variants.py``.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uv
from filelock import FileLock

from hatch_torch_ext import audit, cmake, environments, matrix, merge, repair, store, toolchain
from hatch_torch_ext import sdk as torch_sdk
from hatch_torch_ext.errors import AuditError, BuildError, ConfigurationError, EntryError
from hatch_torch_ext.facts import archs, labels
from hatch_torch_ext.facts.sizes import size
from hatch_torch_ext.merge import loader, sbom
from hatch_torch_ext.pipeline import ahead
from hatch_torch_ext.remote import pipfiles, settings
from hatch_torch_ext.sdk import environment as sdk_environment
from hatch_torch_ext.sdk import exports, thin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from hatch_torch_ext.audit import Finding
    from hatch_torch_ext.config import Config
    from hatch_torch_ext.environments import Environment
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.matrix import Entry
    from hatch_torch_ext.merge import Layout
    from hatch_torch_ext.sdk import Sdk

    Acquired = tuple[Environment, Sdk]
    Exports = Mapping[str, frozenset[str]]
    Report = Callable[[str], None]

MACHINES = ("aarch64", "x86_64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """What goes into the wheel: the layout of the variants, and generated files on disk beside it."""

    layout: Layout
    variants_module: Path
    """The generated ``_variants.py``."""
    manifest: Path
    sbom: Path


def check_platform() -> None:
    """Raise ``ConfigurationError`` on a machine that wheels are not made on."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise ConfigurationError(
            [
                f"hatch-torch-ext builds on Linux x86-64 and aarch64, and this is {platform.system()} "
                f"{platform.machine()}: build in a manylinux container or on a Linux machine."
            ]
        )


def work_folder(root: Path) -> Path:
    """Return the folder that all work lives in: ``build/torch-ext`` of the project, else one in the user's cache."""
    preferred = root / "build" / "torch-ext"
    try:
        preferred.mkdir(parents=True, exist_ok=True)
    except OSError:
        pass
    else:
        if os.access(preferred, os.W_OK):
            # For projects whose own list leaves `build` out; hatchling reads that of the root alone.
            (preferred / ".gitignore").write_text("*\n", encoding="ascii")
            return preferred
    fallback = store.path(os.environ) / "work" / hashlib.sha256(str(root).encode()).hexdigest()[:16]
    fallback.mkdir(parents=True, exist_ok=True)
    return fallback


def expand(config: Config, *, distribution: str) -> tuple[Entry, ...]:
    """Return every entry of the matrix, ``only`` and ``skip`` not yet applied."""
    audit.settle((), ignore=config.ignore)  # a code that does not exist is told before any work
    found = environments.read(config.root, config.environment, project_name=distribution)
    return matrix.expand(found.variables, found.dependencies, found.pythons, env_vars=found.env_vars)


def select(config: Config, entries: Sequence[Entry], *, report: Report) -> tuple[Entry, ...]:
    """Return the entries that ``only`` and ``skip`` leave; what is left out is said."""
    selected = matrix.select(entries, only=config.only, skip=config.skip)
    for entry in entries:
        if entry not in selected:
            report(f"{entry.name}: left out by `only` or `skip`")
    return selected


def select_editable(config: Config, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries of an editable install: what was asked for, else the newest torch for this Python."""
    only = config.only or config.editable_only
    if only:
        return matrix.select(entries, only=only, skip=config.skip)
    selected = matrix.select(entries, only=(), skip=config.skip)
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    fitting = [entry for entry in selected if labels.python_tag(entry.python) in {None, here}]
    return matrix.newest(fitting or selected)


def build(config: Config, entries: Sequence[Entry], *, distribution: str, report: Report) -> Product:
    """Build every entry and return what goes into the wheel.

    The next entries' environments and SDKs are made while one compiles. A failed entry does not stop the others; their
    work stays for the next run. Raises ``BuildError`` with every
    entry's failure, or the one failure itself.
    """
    check_platform()
    work = work_folder(config.root)
    with FileLock(work / "lock"):
        built: list[BuiltVariant] = []
        failures: list[EntryError] = []

        def acquire(entry: Entry) -> Acquired:
            return _environment_and_sdk(config, entry, work=work, report=report)

        for number, (entry, acquired) in enumerate(ahead.of(entries, acquire), 1):
            report(f"[{number}/{len(entries)}] {entry.name}")
            try:
                built.append(_build_entry(config, entry, acquired, work=work, report=report))
            except EntryError as error:
                failures.append(error)
                report(f"{entry.name}: failed")
        if failures:
            raise failures[0] if len(failures) == 1 else BuildError(failures, total=len(entries))
        if (idle := archs.unused(config.archs, [each.variant.archs for each in built])) is not None:
            report(idle)
        layout = merge.merge(built, package=config.package, distribution=distribution, manylinux=config.manylinux)
        return _write(layout, distribution=distribution, folder=work / "wheel")


def check_wheel(wheel: Path, config: Config, layout: Layout, *, report: Report) -> None:
    """Audit the finished wheel, whole, and say its size. Raises ``AuditError`` for what must not be published."""
    findings = audit.audit_wheel(wheel, ignore=config.ignore, max_size=config.max_size)
    # The variants' own warnings were said when each was built.
    faults = [finding for finding in findings if not finding.warning]
    if faults:
        raise AuditError(f"{wheel.name} is not fit to be published:\n{audit.text(faults)}")
    largest = ", ".join(f"{target} {size(count)}" for target, count in merge.largest(layout, 3))
    count = len(layout.variants)
    variants = f"{count} variant{'s' if count != 1 else ''}"
    report(f"{wheel.name}: {size(wheel.stat().st_size)}, {variants}; largest: {largest}")


def clean(config_root: Path) -> None:
    """Remove everything that builds left under the project."""
    folder = config_root / "build" / "torch-ext"
    if folder.is_dir():
        shutil.rmtree(folder)


def _build_entry(
    config: Config, entry: Entry, acquired: Future[Acquired], *, work: Path, report: Report
) -> BuiltVariant:
    environment, sdk = acquired.result()
    torch_sdk.check(entry, sdk)
    sdk = torch_sdk.narrowed(entry, sdk)
    tools = toolchain.find(entry, config, environment, sdk, work=work, report=report)
    tree = cmake.build(entry, config, environment, sdk, tools, work=work, jobs=_jobs(config), report=report)
    built = repair.repair(entry, config, tree, sdk, environment.interpreter, tools, work=work, report=report)
    _check_backend(entry, built, report=report)
    names = _exports(config, entry, built, sdk, report=report)
    others = exports.AtHand(os.environ, besides=sdk.version)
    findings = audit.audit_variant(
        built,
        config=config,
        sdk=sdk,
        tree=tree,
        environment=environment,
        exports=names,
        others=others,
        toolkit=tools.cuda,
    )
    _judge(entry, findings, report=report)
    return built


def _check_backend(entry: Entry, built: BuiltVariant, *, report: Report) -> None:
    backend = built.variant.backend
    if entry.cuda == "cpu" and backend == "cuda":
        needed = sorted({name for file in built.variant.files for name in file.needed if "cuda" in name})
        raise EntryError(
            entry.name,
            f"the matrix says `cuda = cpu`, but what was compiled needs CUDA ({', '.join(needed) or 'device code'}): "
            f"leave the CUDA sources out where `TORCH_EXT_CUDA` is `cpu`, or give the entry its CUDA version.",
        )
    if entry.cuda not in {None, "cpu"} and backend == "cpu":
        report(f"{entry.name}: nothing in it needs CUDA, so it is a CPU variant whatever `cuda` says")


def _environment_and_sdk(config: Config, entry: Entry, *, work: Path, report: Report) -> Acquired:
    if config.sdk == "environment":
        # An unpacked sdist has its metadata beside it; an environment for it would be left behind for ever.
        lasting = not (config.root / "PKG-INFO").exists()
        environment = environments.of_entry(entry, root=config.root, shared_with_author=lasting, data=work)
        return environment, sdk_environment.acquire(entry, environment)
    environ = _environ(entry)
    environment = environments.without_torch(
        entry, data=work, uv=Path(uv.find_uv_bin()), installer=settings.for_uv(environ)
    )
    sdk = thin.acquire(entry, environment.interpreter, environment.python, config, report=report, environ=environ)
    return environment, sdk


def _environ(entry: Entry) -> dict[str, str]:
    """Return the variables that say where packages of the entry come from; pip's files speak where it has none."""
    environ = {**os.environ, **dict(entry.env_vars)}
    return {**pipfiles.variables(environ), **environ}


def _exports(config: Config, entry: Entry, built: BuiltVariant, sdk: Sdk, *, report: Report) -> Exports | None:
    needed = {name for file in built.variant.files for name in file.needed}
    indexes = settings.read(entry, config, _environ(entry))
    return exports.of(sdk, needed, fetch=config.audit_symbols == "fetch", report=report, settings=indexes)


def _judge(entry: Entry, findings: Sequence[Finding], *, report: Report) -> None:
    warnings = [finding for finding in findings if finding.warning]
    if warnings:
        report(f"{entry.name}: {audit.text(warnings)}")
    faults = [finding for finding in findings if not finding.warning]
    if faults:
        raise EntryError(entry.name, f"the audit finds what keeps it from loading\n{audit.text(faults)}")


def _write(layout: Layout, *, distribution: str, folder: Path) -> Product:
    folder.mkdir(parents=True, exist_ok=True)
    product = Product(
        layout=layout,
        variants_module=folder / "_variants.py",
        manifest=folder / "manifest.json",
        sbom=folder / "torch-ext.cdx.json",
    )
    text = loader.render(layout, distribution=distribution)
    product.variants_module.write_text(text, encoding="utf-8")
    product.manifest.write_text(layout.manifest, encoding="utf-8")
    product.sbom.write_text(sbom.render(layout, distribution=distribution), encoding="utf-8")
    return product


def _jobs(config: Config) -> int:
    return config.jobs or max(1, len(os.sched_getaffinity(0)))
