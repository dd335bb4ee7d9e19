"""``hatch-torch-ext build``: the wheel of the project in this folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("build", help="build the wheel of the project in this folder")
    command.add_argument(
        "-d", "--directory", type=path, default=path("dist"), help="folder for the wheel (default: dist)"
    )
    command.add_argument("--only", metavar="GLOB", action="append", help="entries or labels to build")
    command.add_argument("--shard", metavar="K/N", help="build part K of N, to be joined by `merge`")
    command.add_argument("--part", metavar="K/N", help="mark the entries of --only as part K of N")
    command.add_argument(
        "--times",
        metavar="FILE",
        type=path,
        help="split by the times in FILE, the build/torch-ext/history.json of an earlier build; "
        "give all shards the same file",
    )
    command.add_argument("--dask", metavar="ADDRESS", help="build the entries on the Dask cluster at ADDRESS")
    command.add_argument("--jobs", metavar="N", type=int, help="compilers at once")
    command.add_argument(
        "--fresh", action="store_true", help="remove what earlier builds left, and build from the start"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status. Like `hatch build`, it resumes what earlier builds finished."""
    from hatch_torch_ext import matrix
    from hatch_torch_ext.cli import project
    from hatch_torch_ext.outlets import merging
    from hatch_torch_ext.pipeline import folders, selection, shards
    from hatch_torch_ext.pipeline.history import History

    _check(options)
    if options.only:
        os.environ["HATCH_TORCH_EXT_ONLY"] = ",".join(options.only)
    if options.dask:
        os.environ["HATCH_TORCH_EXT_DASK"] = options.dask
    if options.jobs is not None:
        os.environ["HATCH_TORCH_EXT_JOBS"] = str(options.jobs)
    part = options.shard or options.part
    shard = shards.parse_shard(part, "--shard" if options.shard else "--part") if part else None
    found = project.read()
    config, name = found.config, found.name
    if options.fresh:
        folders.clean(Path.cwd(), distribution=name, report=project.say)
    if shard is None or shard.count == 1:
        for artifact in wheels_of_this_folder(options.directory):
            terminal.say(artifact)
        return 0
    if options.shard:
        entries = selection.expand(config, distribution=name)
        selected = matrix.select(entries, only=config.only, skip=config.skip, describe=selection.named)
        times = History.named(options.times, [entry.name for entry in selected], root=config.root)
        chosen = shards.split(selected, shard.count, times=times)[shard.number - 1]
        project.say(f"part {shard.number} of {shard.count}: {', '.join(entry.name for entry in chosen)}")
        os.environ["HATCH_TORCH_EXT_ONLY"] = ",".join(matrix.glob_of(entry, entries) for entry in chosen)
    with tempfile.TemporaryDirectory(prefix="torch-ext-shard-") as folder:
        for artifact in wheels_of_this_folder(Path(folder)):
            terminal.say(merging.name_part(artifact, number=shard.number, count=shard.count, out=options.directory))
    return 0


def _check(options: argparse.Namespace) -> None:
    for name in ("only", "shard", "part", "dask"):
        given = getattr(options, name)
        if given is not None and not all([given] if isinstance(given, str) else given):
            raise ConfigurationError(f"`--{name}` is empty, as a shell gives it where a variable is not set")
    if options.shard and options.part:
        raise ConfigurationError("`--shard` chooses entries and `--part` names what `--only` chose: give one of them")


def wheels_of_this_folder(directory: Path) -> list[Path]:
    """Build; return the wheel that hatchling wrote, and those of other machines that were written beside it."""
    from hatchling.builders.wheel import WheelBuilder

    from hatch_torch_ext.hooks.build import wheels, written_since

    before = wheels(directory)
    built = [
        Path(path) for path in WheelBuilder(str(Path.cwd())).build(directory=str(directory), versions=["standard"])
    ]
    return [*built, *(path for path in written_since(directory, before) if path not in built)]


def add_timeline(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("timeline", help="write a page that shows what the last build did, and when")
    command.add_argument("-o", "--output", metavar="FILE", type=path, required=True, help="the page, HTML")
    command.set_defaults(run=run_timeline)


def run_timeline(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.pipeline import events, folders
    from hatch_torch_ext.views import timeline

    file = folders.left(Path.cwd(), events.FILE)
    if file is None:
        raise ConfigurationError(f"{Path.cwd()} has no record of a build: run `hatch build` here first.")
    options.output.write_text(timeline.render(list(events.read(file))), encoding="utf-8")
    terminal.say(options.output)
    return 0
