"""``hatch-torch-ext extend``: a published wheel with variants for more releases of torch: the next build number."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError, MergeError
from hatch_torch_ext.cli import build, project, terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from hatch_torch_ext.cli.coverage import Added
    from hatch_torch_ext.cli.project import Project
    from hatch_torch_ext.config import Config
    from hatch_torch_ext.facts.variant import Variant
    from hatch_torch_ext.outlets.parts import Part
    from hatch_torch_ext.values import Entry, Layout


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "extend", help="add a new torch to a published wheel: the next build number of the same version"
    )
    command.add_argument("wheels", metavar="WHEEL", nargs="+", help="files, or NAME==VERSION for all of that version")
    command.add_argument(
        "--add",
        metavar="torch=X.Y",
        action="append",
        default=[],
        help="a release of torch; it is added to the matrix if it is not there (torch=new: all new releases)",
    )
    command.add_argument(
        "--parts", metavar="PART", type=path, nargs="+", default=[], help="in place of a build: what it would give"
    )
    command.add_argument("-o", "--output", metavar="DIR", type=path, default=path("dist"), help="(default: dist)")
    command.add_argument(
        "--trust-sources",
        action="store_true",
        help="for a wheel that does not record what it was built from: the sources in this folder are those",
    )
    terminal.add_torch_index(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status. What is finished when it fails is not built again by the next run."""
    from hatch_torch_ext import matrix, pipeline
    from hatch_torch_ext.cli import coverage
    from hatch_torch_ext.outlets import extension, parts, writing
    from hatch_torch_ext.pipeline import folders, selection

    if bool(options.add) == bool(options.parts):
        raise ConfigurationError("give either `--add torch=X.Y`, to build it here, or `--parts`, built before")
    requested = coverage.parse(options.add)
    with contextlib.ExitStack() as stack:
        stack.enter_context(folders.editing(Path.cwd(), project.say))
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="torch-ext-extend-"))
        found = project.read()
        config = found.config
        read = parts.read_all(_wheels(options.wheels, _folder(scratch, "fetched")), folder=Path(scratch, "published"))
        entries = selection.expand(config, distribution=found.name)
        selected = matrix.select(entries, only=config.only, skip=config.skip, describe=selection.named)
        extension.check_all(read, {entry.machine for entry in selected if entry.machine})
        _check(read, found, Path(scratch), trusted=options.trust_sources)
        known = {entry.torch for entry in entries}
        writing.check_folder(options.output)
        added = coverage.add(options, found, [each for each in requested if each not in known])
        undo = stack.enter_context(contextlib.ExitStack())
        undo.callback(_take_back, added)
        every = [*entries, *added.entries]
        built = options.parts or _built(read, every, requested, _folder(scratch, "built"), config=config)
        new = parts.read_all(built, folder=Path(scratch, "new"))
        layouts = extension.layouts(read, new, unserved=_unserved(every, new), generated=_generated(found))

        def audit(draft: Path, part: Part, layout: Layout) -> None:
            pipeline.check_wheel(draft, config, layout, report=project.say, before=part.wheel)

        extended = list(zip(read, layouts, strict=True))
        for path in extension.write(extended, out=options.output, audit=audit, added=new):
            terminal.say(path)
        undo.pop_all()
    if added.entries:
        project.say(f"{added.file} has {', '.join(entry.name for entry in added.entries)} now: commit it")
    return 0


def _wheels(given: Sequence[str], folder: Path) -> list[Path]:
    """Return the wheels that are named, by path or as a published version, which is fetched into ``folder``."""
    from hatch_torch_ext.remote import settings
    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.resolve import available

    found = []
    for text in given:
        if Path(text).is_file():
            found.append(path(text))
        elif text.endswith(".whl") or Path(text).exists():
            raise ConfigurationError(f"{path(text)} is not a file: name a wheel, or `NAME==VERSION`")
        else:
            with Http(settings.of_environ(os.environ)) as http:
                found += available.fetch(text, http, folder)
    return found


def _check(read: Sequence[Part], found: Project, scratch: Path, *, trusted: bool) -> None:
    """Raise ``MergeError`` unless the wheels are whole, and of the sources and the configuration that are here."""
    from hatch_torch_ext.hooks import shipping
    from hatch_torch_ext.outlets import extension
    from hatch_torch_ext.pipeline import inputs

    config, root = found.config, str(found.config.root)
    for part in read:
        extension.check_whole(part, distribution=found.name, version=str(found.builder.metadata.version))
    here = inputs.origin(config, files=inputs.Inputs(config, scratch).project, sdist=shipping.of_sdist(root).relative)
    source, shipped = inputs.source_folder(config), shipping.of_wheel(root)
    for part in read:
        extension.check_sources(part, here, source=source, shipped=shipped, trusted=trusted)


def _folder(scratch: str, name: str) -> Path:
    folder = Path(scratch) / name
    folder.mkdir()
    return folder


def _built(
    read: Sequence[Part], entries: Sequence[Entry], requested: Sequence[str], folder: Path, *, config: Config
) -> list[Path]:
    """Build what the wheels lack of the ``requested`` releases into ``folder``; return the wheels of it."""
    from hatch_torch_ext import matrix

    new = lacking(read, entries, requested, only=config.only, skip=config.skip)
    os.environ["HATCH_TORCH_EXT_ONLY"] = ",".join(matrix.glob_of(entry, entries) for entry in new)
    return build.wheels_of_this_folder(folder)


def lacking(
    read: Sequence[Part],
    entries: Sequence[Entry],
    requested: Sequence[str],
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> tuple[Entry, ...]:
    """Return the entries of the ``requested`` releases that the wheel for their machine lacks.

    Only entries that ``only`` and ``skip`` leave count. Of a release that is named, those are returned that no variant
    serves; ``new`` stands for every release without a variant. Raises ``ConfigurationError`` if there are none.
    """
    from hatch_torch_ext import matrix
    from hatch_torch_ext.cli import coverage
    from hatch_torch_ext.pipeline import selection

    names = ", ".join(part.wheel.path.name for part in read)
    verb = "serves" if len(read) == 1 else "serve"
    of_torch = [entry for entry in entries if entry.torch in requested or coverage.NEW in requested]
    names_left = {entry.name for entry in matrix.filter_entries(entries, only=only, skip=skip)}
    allowed = [entry for entry in of_torch if entry.name in names_left]
    if of_torch and not allowed:
        left_out = ", ".join(entry.name for entry in of_torch)
        options = " and ".join(selection.named(name) for name, globs in (("only", only), ("skip", skip)) if globs)
        raise ConfigurationError(f"{left_out}: left out by {options}. To add it, change that option first")
    machines = {machine for part in read for machine in part.machines}
    here = [entry for entry in allowed if _machine(entry) in machines]
    if allowed and not here:
        raise MergeError(
            f"{names} is for {', '.join(sorted(machines))}, and the entries that this machine builds are not: run this "
            "on a machine of that kind"
        )
    found = tuple(entry for entry in here if any(_lacks(part, entry, requested) for part in read))
    if not found:
        serving = ", ".join(entry.name for entry in here) if coverage.NEW not in requested else ""
        raise ConfigurationError(f"{names} {verb} {serving or 'every release'} already: nothing is to be added.")
    return found


def _lacks(part: Part, entry: Entry, requested: Sequence[str]) -> bool:
    """Return whether a wheel is for the entry's machine, and lacks what it serves (of a new release: the release)."""
    held = [built.variant for built in part.variants if built.variant.machine == _machine(entry)]
    if not held or any(_serves(variant, entry) for variant in held):
        return False
    return entry.torch in requested or entry.torch not in {None, *part.torches}


def _serves(variant: Variant, entry: Entry) -> bool:
    """Return whether the users that the entry is for have the variant: by torch, Python and backend."""
    from hatch_torch_ext.facts import releases
    from hatch_torch_ext.facts.backend import VARIABLE
    from hatch_torch_ext.facts.labels import python_tag

    if entry.torch is None or entry.stable_abi != variant.stable_abi:
        return False
    built, line = releases.minor_of(variant.torch), releases.minor_of(entry.torch)
    if built != line and not (variant.stable_abi and built < line):
        return False
    python = python_tag(entry.variable("python"))
    if python is not None and variant.python is not None and not _runs(variant.python, python):
        return False
    if entry.backend is None:
        return True
    own = variant.runs_on
    if entry.is_cpu or own.is_gpu:
        return own.serves(entry.backend)
    # for the CPU although its entry was for GPUs: nothing in the project needs them
    return dict(variant.build.variables).get(VARIABLE) not in {None, "cpu"}


def _runs(built: str, python: str) -> bool:
    """Return whether a variant for the Python ``built`` (``cp311``, ``abi3-cp39``) runs in ``python`` (``cp313t``)."""
    if not built.startswith("abi3-"):
        return built == python
    return not python.endswith("t") and int(built.removeprefix("abi3-cp3")) <= int(python.removeprefix("cp3"))


def _unserved(entries: Sequence[Entry], new: Sequence[Part]) -> set[str]:
    """Return the machines that the matrix names, and for which it has no entry of the releases in ``new``."""
    built = {torch for part in new for torch in part.torches}
    served = {entry.machine for entry in entries if entry.torch in built}
    return {entry.machine for entry in entries if entry.machine and entry.machine not in served}


def _machine(entry: Entry) -> str:
    return entry.machine or platform.machine()


def _generated(found: Project) -> tuple[str, ...]:
    """Return the names of files that hatch-vcs writes: they name the commit, or say that the tree was changed."""
    hooks = found.builder.config.hook_config
    file = hooks.get("vcs", {}).get("version-file")
    return (Path(file).name,) if isinstance(file, str) else ()


def _take_back(added: Added) -> None:
    if added.entries:
        added.undo()
        project.say(f"{added.file} is as it was before. What is finished is kept: the same command continues with it")
