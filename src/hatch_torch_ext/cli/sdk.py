"""``hatch-torch-ext sdk``: the store of thin torch SDKs."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from hatch_torch_ext.store import Store


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("sdk", help="the store of thin torch SDKs")
    command.add_argument("action", choices=("list", "prune", "verify", "path"))
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext import store
    from hatch_torch_ext.cli import project
    from hatch_torch_ext.facts import sizes

    place = store.path(os.environ)
    if options.action == "path":
        print(place)
        return 0
    kept = store.opened(place, project.say) if place.exists() else store.Store(place)
    if options.action == "verify":
        return _verify(kept, as_json=options.json)
    rows = kept.listing() if options.action == "list" else kept.prune()
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2, default=str))
        return 0
    for row in rows:
        print(f"{sizes.size(row.size):>8}  {row.title}")
    total = sizes.size(sum(row.size for row in rows))
    print(f"{total:>8}  {'in' if options.action == 'list' else 'removed from'} {place}")
    return 0


def _verify(kept: Store, *, as_json: bool) -> int:
    """Read every byte of the store; 1 where something is not as it was made."""
    found = kept.verify()
    if as_json:
        print(json.dumps(asdict(found), indent=2))
    else:
        for title, what in found.damaged:
            print(f"damaged: {title}: {what}; removed, the next build fetches it again")
        print(f"{found.whole} whole, {len(found.damaged)} damaged in {kept.root}")
    return 1 if found.damaged else 0
