"""``hatch-torch-ext prune``: removes from an installed package what this environment cannot load."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "prune", help="remove the variants of an installed package that cannot be loaded here"
    )
    command.add_argument("packages", metavar="PACKAGE", nargs="+")
    command.add_argument("--dry-run", action="store_true", help="show what would be removed, and remove nothing")
    command.add_argument("--python", metavar="PYTHON", type=path, help="the Python or environment to look at")
    command.add_argument("--target", metavar="DIR", type=path, help="a folder that pip's --target filled")
    command.add_argument(
        "--keep", metavar="LABEL", action="append", help="keep these variants instead of the one that is loaded here"
    )
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.base.errors import ConfigurationError
    from hatch_torch_ext.facts.content import size
    from hatch_torch_ext.user import builtcache, doctor, pruning, target

    into = target.find(options.python, os.environ, folder=Path.cwd())
    there = pruning.packages(options.target) if options.target else doctor.installed(into)
    installed = {canonicalize_name(each.distribution): each for each in there}
    missing = [name for name in options.packages if canonicalize_name(name) not in installed]
    if missing:
        where = options.target or into.python
        there_are = f"There are: {', '.join(sorted(each.distribution for each in there)) or 'none'}."
        why = f"not installed in {where}, or not made with hatch-torch-ext"
        raise ConfigurationError([f"{', '.join(missing)}: {why}. {there_are}"])
    if options.keep:
        pruning.check_keep([installed[canonicalize_name(name)] for name in options.packages], options.keep)
    prepared = []
    for name in options.packages:
        each = installed[canonicalize_name(name)]
        # A variable of this user's process decides nothing for others.
        own = f"{each.package.replace('.', '_').upper()}_TORCH_EXT_VARIANT"
        state = None if options.keep else doctor.health(into, each, **{"TORCH_EXT_VARIANT": None, own: None})
        built = state is not None and state.built
        if built:
            pruning.check_cache(each, os.environ)
        keep = options.keep or ([label] if state and not built and (label := state.chosen or state.missed) else [])
        again = target.there(into, each.again, folder=options.target)
        pruned = pruning.prepare(each, keep, built=built, python=os.fspath(into.python), again=again)
        prepared.append((state, built, pruned))
    rows = []
    for state, built, pruned in prepared:
        each = pruned.installed
        if not options.dry_run:
            pruning.apply(pruned)
        rows.append(
            {
                "package": each.distribution,
                "kept": sorted(set(each.labels) - set(pruned.labels)),
                "removed": list(pruned.labels),
                "bytes": pruned.size,
            }
        )
        if not options.json:
            verb = "would remove" if options.dry_run else "removed"
            terminal.say(
                f"{each.distribution}: {verb} {len(pruned.labels)} of {len(each.labels)} variants, {size(pruned.size)}"
            )
            terminal.say(f"the way back: {pruned.again}")
            if built and state is not None:
                where = os.environ.get(builtcache.VARIABLE) or "the cache of this user"
                terminal.say(f"loaded here: {state.chosen}, built at first use, from {where}")
    if options.json:
        terminal.say_json(rows)
    return 0
