"""``hatch-torch-ext sdk``: the store of thin torch SDKs."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.cli import terminal

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
    from hatch_torch_ext.base.errors import ConfigurationError
    from hatch_torch_ext.cli import project
    from hatch_torch_ext.facts import content
    from hatch_torch_ext.store import upkeep

    place = store.path(os.environ)
    if options.action == "path":
        terminal.say(place)
        return 0
    try:
        kept = store.open_store(place, project.say) if place.exists() else store.Store(place)
    except store.NotPrivateError as error:
        raise ConfigurationError(
            f"The cache {place} is not used: {error.filename}: {error.strerror}. Name a folder of your own with "
            f"{store.VARIABLE}, and remove this one if it is yours."
        ) from error
    if options.action == "verify":
        return _verify(kept, as_json=options.json)
    rows = (*upkeep.listing(kept), *upkeep.compiled(kept)) if options.action == "list" else upkeep.prune(kept)
    if options.json:
        terminal.say_json([asdict(row) for row in rows])
        return 0
    for row in rows:
        terminal.say(f"{content.size(row.size):>8}  {escape.name(row.title)}")
    total = content.size(sum(row.size for row in rows))
    terminal.say(f"{total:>8}  {'in' if options.action == 'list' else 'removed from'} {place}")
    return 0


def _verify(kept: Store, *, as_json: bool) -> int:
    """Verify the store; return 1 if an item was changed."""
    from hatch_torch_ext.store import upkeep

    found = upkeep.verify(kept)
    if as_json:
        terminal.say_json(asdict(found))
    else:
        for title, what in found.damaged:
            terminal.say(f"damaged: {escape.name(title)}: {what}; removed, the next build fetches it again")
        terminal.say(f"{found.whole} whole, {len(found.damaged)} damaged in {kept.root}")
    return 1 if found.damaged else 0
