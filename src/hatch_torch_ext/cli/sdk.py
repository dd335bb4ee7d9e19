"""``hatch-torch-ext sdk``: the store of thin torch SDKs."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("sdk", help="the store of thin torch SDKs")
    command.add_argument("action", choices=("list", "prune", "path"))
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext import store
    from hatch_torch_ext.facts import sizes

    place = store.path(os.environ)
    if options.action == "path":
        print(place)
        return 0
    kept = store.Store(place)
    rows = kept.listing() if options.action == "list" else kept.prune()
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2, default=str))
        return 0
    for row in rows:
        print(f"{sizes.size(row.size):>8}  {row.title}")
    total = sizes.size(sum(row.size for row in rows))
    print(f"{total:>8}  {'in' if options.action == 'list' else 'removed from'} {place}")
    return 0
