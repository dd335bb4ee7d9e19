"""``hatch-torch-ext matrix``: the entries and what each resolves to."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("matrix", help="list the entries of the matrix and what each resolves to")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from rich.table import Table

    from hatch_torch_ext import matrix, pipeline, scrub
    from hatch_torch_ext.cli import project, terminal

    config, name = project.read()
    entries = pipeline.expand(config, distribution=name)
    selected = matrix.select(entries, only=config.only, skip=config.skip)
    rows = [{**asdict(entry), "selected": entry in selected} for entry in entries]
    if options.json:
        print(scrub.clean(json.dumps(rows, indent=2)))
        return 0
    table = Table(box=None, pad_edge=False)
    for column in ("entry", "torch", "python", "variables", "built"):
        table.add_column(column)
    for entry in entries:
        variables = " ".join(f"{key}={value}" for key, value in entry.variables)
        built = "yes" if entry in selected else "no"
        table.add_row(entry.name, entry.torch_requirement, entry.python or "any", variables, built)
    terminal.console().print(table)
    return 0
