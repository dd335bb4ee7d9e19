"""``hatch-torch-ext merge``: partial, exact or variant wheels, or a kernel repository's variants, become one wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "merge",
        help="join parts (or exact or variant wheels, or a kernel repository) into one wheel, as one build makes it",
    )
    command.add_argument("wheels", metavar="WHEEL", type=path, nargs="+")
    command.add_argument("-o", "--output", metavar="DIR", type=path, required=True, help="folder for the wheel")
    command.add_argument(
        "--machines",
        choices=("one-wheel", "wheel-each"),
        default="one-wheel",
        help="variants for several machines: one wheel of all (one-wheel), or a wheel for each",
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.base.errors import MergeError
    from hatch_torch_ext.outlets import kernels, merging

    folders = [each for each in options.wheels if each.is_dir()]
    if folders:
        if len(options.wheels) > 1:
            raise MergeError(f"{folders[0]} is a folder: a kernel repository is merged by itself")
        if not kernels.is_repository(folders[0]):
            raise MergeError(
                f"{folders[0]} is not a kernel repository that `hatch-torch-ext kernels` made: name wheels"
            )
        terminal.say(kernels.wheel_of(folders[0], out=options.output))
        return 0
    for wheel in merging.merge_by_machine(options.wheels, out=options.output, each=options.machines == "wheel-each"):
        terminal.say(wheel)
    return 0
