"""``hatch-torch-ext build``: the wheel of the project in this folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.cli.paths import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("build", help="build the wheel of the project in this folder")
    command.add_argument("-d", "--directory", type=path, default=path("dist"), help="where the wheel goes (dist)")
    command.add_argument("--only", metavar="GLOB", action="append", help="entries or labels to build")
    command.add_argument("--jobs", metavar="N", type=int, help="compilers at once")
    command.add_argument("--fresh", action="store_true", help="remove what earlier builds left, and start anew")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status. It goes on with what earlier builds finished, as `hatch build` does."""
    from hatchling.builders.wheel import WheelBuilder

    from hatch_torch_ext import pipeline
    from hatch_torch_ext.cli import project

    project.read()
    if options.only:
        os.environ["HATCH_TORCH_EXT_ONLY"] = ",".join(options.only)
    if options.jobs is not None:
        os.environ["HATCH_TORCH_EXT_JOBS"] = str(options.jobs)
    if options.fresh:
        pipeline.clean(Path.cwd(), report=project.say)
    for artifact in WheelBuilder(str(Path.cwd())).build(directory=str(options.directory), versions=["standard"]):
        print(artifact)
    return 0
