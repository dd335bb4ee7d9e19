"""``hatch-torch-ext variants``: a fat wheel, split by backend into variant wheels (PEP 825)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("variants", help="split a wheel by backend into variant wheels (PEP 825)")
    command.add_argument("wheel", metavar="WHEEL", type=path)
    command.add_argument("-o", "--output", metavar="DIR", type=path, required=True, help="where the wheels go")
    command.add_argument("--max-size", metavar="SIZE", help="an index's limit, such as 100MB: say which form fits it")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.cli import sizes
    from hatch_torch_ext.outlets import variantwheels

    limit = sizes.limit(options.max_size)
    cut = variantwheels.cut(options.wheel, out=options.output)
    for _, wheel in cut.wheels:
        terminal.say(wheel)
    terminal.say(cut.fat)
    terminal.say(cut.description)
    return sizes.report(limit, {"fat wheel": [cut.fat], "variant wheels": [wheel for _, wheel in cut.wheels]})
