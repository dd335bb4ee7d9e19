"""What is in a wheel (``inspect``), what is wrong with it (``audit``), what users of a new one lose (``compare``)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add_inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("inspect", help="show what a wheel contains")
    command.add_argument("wheel", type=path)
    command.add_argument("--json", action="store_true", help="for programs; of very many files the first MB")
    command.add_argument("--all", action="store_true", help="every file in --json, however many")
    command.add_argument("--html", metavar="FILE", type=path, help="write the report as an HTML page")
    command.set_defaults(run=run_inspect)


def run_inspect(options: argparse.Namespace) -> int:
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


def add_audit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "audit", help="check a wheel for everything that would keep it from working; exit status 1 on findings"
    )
    command.add_argument("wheels", metavar="WHEEL", type=path, nargs="+")
    command.add_argument("--json", action="store_true")
    command.add_argument("--ignore", metavar="CODE", action="append", default=[])
    command.add_argument("--python", metavar="PYTHON", type=path, help="a Python with torch, or its environment")
    command.set_defaults(run=run_audit)


def run_audit(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext import audit

    if options.json and len(options.wheels) > 1:
        raise ConfigurationError("`--json` is for one wheel: run the command for each")
    faulty = False
    for wheel in options.wheels:
        findings = audit.audit_wheel(wheel, open_with=options.python, ignore=options.ignore, report=terminal.complain)
        faulty = faulty or bool(findings)
        if options.json:
            terminal.say_json([asdict(finding) for finding in findings])
            continue
        if findings:
            terminal.say(audit.text(findings))
        terminal.say(f"{escape.name(wheel.name)}: {len(findings)} finding{'' if len(findings) == 1 else 's'}")
    return 1 if faulty else 0


def add_compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "compare", help="what differs for users between two wheels, sdists or installations; exit status 1 on a loss"
    )
    what = "a wheel, an sdist, the name of an installed distribution, or its .dist-info folder"
    command.add_argument("old", metavar="OLD", help=what)
    command.add_argument("new", metavar="NEW", help="the same")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run_compare)


def run_compare(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext import compare

    found = compare.compare(options.old, options.new)
    if options.json:
        terminal.say_json(compare.to_json(found))
    else:
        for line in compare.lines(found):
            terminal.say(line)
    return 1 if found.count("lost") else 0
