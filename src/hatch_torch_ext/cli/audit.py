"""``hatch-torch-ext audit``: what keeps a wheel from working."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from hatch_torch_ext.cli.paths import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "audit", help="look for everything that keeps a wheel from working; exit 1 on findings"
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
        report=lambda text: print(text, file=sys.stderr),
    )
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        if findings:
            print(audit.text(findings))
        print(f"{options.wheel.name}: {len(findings)} finding{'' if len(findings) == 1 else 's'}")
    return 1 if findings else 0
