"""``hatch-torch-ext merge``: partial, exact or variant wheels are joined into one wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.paths import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "merge", help="join parts (or exact or variant wheels) into one wheel, byte for byte the same as one build"
    )
    command.add_argument("wheels", metavar="WHEEL", type=path, nargs="+")
    command.add_argument("-o", "--output", metavar="DIR", type=path, required=True, help="where the wheel goes")
    command.add_argument(
        "--machines",
        choices=("one-wheel", "wheel-each"),
        default="one-wheel",
        help="variants for several machines: one wheel of all (one-wheel), or a wheel for each",
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.outlets import merging

    for wheel in merging.merge_by_machine(options.wheels, out=options.output, each=options.machines == "wheel-each"):
        terminal.say(wheel)
    return 0
