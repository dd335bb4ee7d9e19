"""``hatch-torch-ext build``: the wheel of the project in this folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("build", help="build the wheel of the project in this folder")
    command.add_argument("-d", "--directory", type=Path, default=Path("dist"), help="where the wheel goes (dist)")
    command.add_argument("--only", metavar="GLOB", action="append", help="entries or labels to build")
    command.add_argument("--jobs", metavar="N", type=int, help="compilers at once")
    command.add_argument("--resume", action="store_true", help="keep what earlier builds of these entries left")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatchling.builders.wheel import WheelBuilder

    from hatch_torch_ext import pipeline
    from hatch_torch_ext.cli import project

    project.read()
    if options.only:
        os.environ["HATCH_TORCH_EXT_ONLY"] = ",".join(options.only)
    if options.jobs:
        os.environ["HATCH_TORCH_EXT_JOBS"] = str(options.jobs)
    if not options.resume:
        pipeline.clean(Path.cwd())
    for artifact in WheelBuilder(str(Path.cwd())).build(directory=str(options.directory), versions=["standard"]):
        print(artifact)
    return 0
