"""``hatch-torch-ext audit``: what keeps a wheel from working."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hatch_torch_ext import printable
from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.paths import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "audit", help="check a wheel for everything that would keep it from working; exit status 1 on findings"
    )
    command.add_argument("wheel", type=path)
    command.add_argument("--json", action="store_true")
    command.add_argument("--ignore", metavar="CODE", action="append", default=[])
    command.add_argument("--python", metavar="PYTHON", type=path, help="a Python with torch, to open the variant in")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext import audit

    findings = audit.audit_wheel(
        options.wheel,
        open_with=options.python,
        ignore=options.ignore,
        report=terminal.complain,
    )
    if options.json:
        terminal.say_json([asdict(finding) for finding in findings])
    else:
        if findings:
            terminal.say(audit.text(findings))
        terminal.say(
            f"{printable.name(options.wheel.name)}: {len(findings)} finding{'' if len(findings) == 1 else 's'}"
        )
    return 1 if findings else 0
