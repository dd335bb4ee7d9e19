"""``hatch-torch-ext audit``: what keeps a wheel from working."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "audit", help="check a wheel for everything that would keep it from working; exit status 1 on findings"
    )
    command.add_argument("wheels", metavar="WHEEL", type=path, nargs="+")
    command.add_argument("--json", action="store_true")
    command.add_argument("--ignore", metavar="CODE", action="append", default=[])
    command.add_argument("--python", metavar="PYTHON", type=path, help="a Python with torch, or its environment")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext import audit

    if options.json and len(options.wheels) > 1:
        raise ConfigurationError(["`--json` is for one wheel: run the command for each"])
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
