"""``hatch-torch-ext index``: one wheel for each variant, in a static index by torch and CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("index", help="make exact wheels, one for each variant, and a static index of them")
    command.add_argument("wheels", metavar="WHEEL", type=path, nargs="+")
    command.add_argument("-o", "--output", metavar="DIR", type=path, required=True, help="the folder of the index")
    command.add_argument("--max-size", metavar="SIZE", help="an index's limit, such as 100MB: say which form fits it")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.cli import sizes
    from hatch_torch_ext.outlets import exact

    limit = sizes.limit(options.max_size)
    served = exact.index(options.wheels, out=options.output)
    for each in served:
        terminal.say(each.path)
    terminal.say(options.output / "index.html")
    return sizes.report(limit, {"fat wheel": options.wheels, "exact wheels": [each.path for each in served]})
