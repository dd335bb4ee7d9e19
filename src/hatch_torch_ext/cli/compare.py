"""``hatch-torch-ext compare``: what users of a new wheel have lost, and what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.cli import terminal

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "compare", help="what differs for users between two wheels, sdists or installations; exit status 1 on a loss"
    )
    what = "a wheel, an sdist, the name of an installed distribution, or its .dist-info folder"
    command.add_argument("old", metavar="OLD", help=what)
    command.add_argument("new", metavar="NEW", help="the same")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext import compare
    from hatch_torch_ext.compare import text

    found = compare.compare(options.old, options.new)
    if options.json:
        terminal.say_json(compare.to_json(found))
    else:
        for line in text.lines(found):
            terminal.say(line)
    return 1 if found.count("lost") else 0
