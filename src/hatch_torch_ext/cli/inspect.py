"""``hatch-torch-ext inspect``: what is in a wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("inspect", help="show what a wheel contains")
    command.add_argument("wheel", type=path)
    command.add_argument("--json", action="store_true", help="for programs; of very many files the first MB")
    command.add_argument("--all", action="store_true", help="every file in --json, however many")
    command.add_argument("--html", metavar="FILE", type=path, help="write the report as an HTML page")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext import report
    from hatch_torch_ext.report import page, table

    described = report.describe(options.wheel)
    if options.html:
        options.html.write_text(page.render(described), encoding="utf-8")
    if options.json:
        terminal.say_json(report.to_json(described, whole=options.all))
    else:
        table.render(described, terminal.console())
    return 0
