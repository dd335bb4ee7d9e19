"""``hatch-torch-ext extend``: a published wheel with variants for more releases of torch: the next build number."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError, MergeError
from hatch_torch_ext.cli import build, project, terminal, torchindex
from hatch_torch_ext.cli.paths import path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from hatch_torch_ext.cli.coverage import Added
    from hatch_torch_ext.cli.project import Project
    from hatch_torch_ext.outlets.parts import Part
    from hatch_torch_ext.values.entry import Entry


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "extend", help="add a new torch to a published wheel: the next build number of the same version"
    )
    command.add_argument("wheel", metavar="WHEEL", type=path)
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
    torchindex.add(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status. What is finished when it fails is not built again by the next run."""
    from hatch_torch_ext import matrix, pipeline
    from hatch_torch_ext.cli import coverage
    from hatch_torch_ext.hooks import shipping
    from hatch_torch_ext.outlets import extension, parts
    from hatch_torch_ext.pipeline import selection, shards
    from hatch_torch_ext.pipeline.record import Records

    if bool(options.add) == bool(options.parts):
        raise ConfigurationError(["give either `--add torch=X.Y`, to build it here, or `--parts`, built before"])
    wanted = coverage.parse(options.add)
    found = project.read()
    config = found.config
    with tempfile.TemporaryDirectory(prefix="torch-ext-extend-") as scratch:
        part = parts.read(options.wheel, folder=_folder(scratch, "wheel"))
        extension.check_whole(part, distribution=found.name, version=str(found.builder.metadata.version))
        entries = selection.expand(config, distribution=found.name)
        matrix.select(entries, only=config.only, skip=config.skip, called=selection.named)  # impossible ones are told
        extension.check_sources(
            part,
            shards.origin(
                config,
                project=Records(config, Path(scratch)).project,
                sdist=shipping.of_sdist(str(config.root)),
            ),
            source=shards.source_folder(config),
            shipped=shipping.of_wheel(str(config.root)),
            trusted=options.trust_sources,
        )
        known = {entry.torch for entry in entries}
        added = coverage.add(options, found, [each for each in wanted if each not in known])
        try:
            built = options.parts or _built(_new(part, [*entries, *added.entries], wanted), _folder(scratch, "built"))
            read = [parts.read(each, folder=_folder(scratch, f"part{n}")) for n, each in enumerate(built)]
            extended = extension.layout(part, read, generated=_generated(found))
            wheel = extension.write(
                part,
                extended,
                out=options.output,
                audit=lambda draft: pipeline.check_wheel(draft, config, extended, report=project.say),
            )
        except BaseException:
            _take_back(added)
            raise
    if added.entries:
        project.say(f"{added.file} has {', '.join(entry.name for entry in added.entries)} now: commit it")
    terminal.say(wheel)
    return 0


def _built(new: Sequence[Entry], folder: Path) -> list[Path]:
    """Build the entries ``new`` into ``folder``; return the wheels."""
    from hatch_torch_ext import matrix

    os.environ["HATCH_TORCH_EXT_ONLY"] = ",".join(matrix.glob_of(entry, new) for entry in new)
    return build.wheels_of_this_folder(folder)


def _folder(scratch: str, name: str) -> Path:
    folder = Path(scratch) / name
    folder.mkdir()
    return folder


def _new(part: Part, entries: Sequence[Entry], wanted: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries that are built: those for ``wanted`` that the wheel lacks, for its machines."""
    from hatch_torch_ext.cli import coverage

    held = {built.variant.build.entry for built in part.variants}
    of_torch = [entry for entry in entries if entry.torch in wanted or coverage.NEW in wanted]
    new = [entry for entry in of_torch if entry.name not in held]
    if not new:
        names = ", ".join(entry.name for entry in of_torch) or "every release"
        raise ConfigurationError([f"{part.wheel.path.name} serves {names} already: nothing is to be added."])
    fitting = tuple(entry for entry in new if (entry.machine or platform.machine()) in part.machines)
    if not fitting:
        raise MergeError(
            f"{part.wheel.path.name} is for {', '.join(part.machines)}, and what would be built here is not: run this "
            "on such a machine"
        )
    return fitting


def _generated(found: Project) -> tuple[str, ...]:
    """Return the names of files that hatch-vcs writes: they name the commit, or say that the tree was changed."""
    hooks = found.builder.config.hook_config
    file = hooks.get("vcs", {}).get("version-file")
    return (Path(file).name,) if isinstance(file, str) else ()


def _take_back(added: Added) -> None:
    if added.entries:
        added.undo()
        project.say(f"{added.file} is as it was before. What is finished is kept: the same command continues with it")
