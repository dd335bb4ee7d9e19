"""``hatch-torch-ext matrix``: the entries and what each resolves to; with ``--available``, beside published builds."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from hatch_torch_ext.cli import terminal, torchindex
from hatch_torch_ext.cli.paths import path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.matrix.coverage import Coverage
    from hatch_torch_ext.resolve.available import Published
    from hatch_torch_ext.values.entry import Entry


IMAGES = "*=quay.io/pypa/manylinux_2_28_{machine}"
RUNNERS = "x86_64=ubuntu-24.04"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("matrix", help="list the entries of the matrix and what each resolves to")
    command.add_argument(
        "--available", action="store_true", help="compare them with the torch builds that the index has"
    )
    torchindex.add(command)
    command.add_argument("--json", action="store_true")
    command.add_argument("--github", action="store_true", help="print the build jobs of a GitHub workflow as JSON")
    command.add_argument("--tests", action="store_true", help="with --github: print the test jobs instead")
    command.add_argument("--shards", metavar="N", type=int, default=4, help="build jobs for each machine (4)")
    command.add_argument("--images", metavar="CUDA=IMAGE...", default=IMAGES, help=f"image for each CUDA ({IMAGES})")
    command.add_argument("--runners", metavar="MACHINE=LABEL...", default=RUNNERS, help=f"({RUNNERS})")
    command.add_argument(
        "--times", metavar="FILE", type=path, help="split by the times in FILE, as `build --times` does"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext import matrix
    from hatch_torch_ext.base.errors import ConfigurationError
    from hatch_torch_ext.cli import project
    from hatch_torch_ext.facts import releases
    from hatch_torch_ext.pipeline import github, selection
    from hatch_torch_ext.pipeline.history import History

    if options.tests and not options.github:
        raise ConfigurationError(["`--tests` prints the test jobs of a GitHub workflow: add `--github`"])
    found = project.read()
    config = found.config
    entries = selection.expand(config, distribution=found.name)
    selected = matrix.select(entries, only=config.only, skip=config.skip, called=selection.named)
    project.check_metadata(found, selected)
    if options.available:
        return _available(options, config, selected)
    if options.github:
        images, runners = github.pairs(options.images, "--images"), github.pairs(options.runners, "--runners")
        times = History.named(options.times, [entry.name for entry in selected], root=config.root)
        jobs = (
            github.tests(selected, runners)
            if options.tests
            else github.builds(selected, count=options.shards, images=images, runners=runners, times=times)
        )
        terminal.say(json.dumps({"include": jobs}))  # one line, as a step's output requires
        return 0
    for entry in selected:
        if entry.torch is not None and releases.minor_of(entry.torch) > releases.NEWEST:
            project.say(
                f"{entry.name}: torch {entry.torch} is newer than {releases.format_minor(releases.NEWEST)}, the newest "
                "that this hatch-torch-ext knows: `hatch-torch-ext matrix --available` asks the index for it"
            )
    rows = [{**asdict(entry), "selected": entry in selected} for entry in entries]
    if options.json:
        terminal.say_json(rows)
        return 0
    table = terminal.table("entry", "torch", "python", "variables", "built")
    for entry in entries:
        variables = " ".join(f"{key}={value}" for key, value in entry.variables)
        built = "yes" if entry in selected else "no"
        terminal.add(table, entry.name, entry.torch_requirement, entry.python or "any", variables, built)
    terminal.console().print(table)
    return 0


def _available(options: argparse.Namespace, config: Config, entries: Sequence[Entry]) -> int:
    import os
    import platform

    from hatch_torch_ext import store
    from hatch_torch_ext.cli import project
    from hatch_torch_ext.facts import builds
    from hatch_torch_ext.matrix import coverage
    from hatch_torch_ext.remote import pipfiles, settings
    from hatch_torch_ext.remote.http import Http, Limits
    from hatch_torch_ext.resolve import available

    torch_index = torchindex.address(options)
    places: dict[str, None] = {}
    said = None
    for entry in entries:
        environ = {**os.environ, **dict(entry.env_vars)}
        said = settings.read(entry, config, {**pipfiles.variables(environ), **environ})
        places.update(dict.fromkeys((*said.find_links, *said.indexes)))
    kept = store.usable(os.environ, config.root / "build" / "torch-ext" / "cache", project.say)
    with Http(said or settings.IndexSettings(), Limits(attempts=1)) as http:
        found = available.ask(http, kept, list(places), torch_index, report=project.say)
    table = f"{_table(config)}.{config.environment}.matrix"
    here = platform.machine()
    declared = sorted({entry.machine or here for entry in entries}, key=lambda machine: (machine != here, machine))
    tables = []
    for machine in declared or [here]:
        its_entries = [entry for entry in entries if (entry.machine or here) == machine]
        tables.append(coverage.compare(its_entries, found.builds, machine=machine, table=table, besides=declared))
    stale = list(builds.differences(found.builds)) if found.asked else []
    if options.json:
        answer = {
            **_answer(tables[0]),
            "elsewhere": [_answer(each) for each in tables[1:]],
            "releases_from": found.releases_from,
            "cuda_from": found.cuda_from,
            "tables": stale,
        }
        terminal.say_json(answer)
        return 0
    for each in tables:
        _show(each)
    _show_sources(found, stale)
    for each in tables:
        _show_edit(each)
    return 0


def _answer(compared: Coverage) -> dict[str, object]:
    return {
        **{name: value for name, value in asdict(compared).items() if name != "impossible"},
        "impossible": [{"entry": entry, "why": why} for entry, why in compared.impossible],
        "served": compared.served,
        "total": compared.total,
    }


def _table(config: Config) -> str:
    """Return the table of the project's environments; in hatch.toml it has no prefix `tool.hatch`."""
    file = config.root / "hatch.toml"
    return "envs" if file.is_file() and "[envs." in file.read_text(encoding="utf-8") else "tool.hatch.envs"


def _show(compared: Coverage) -> None:
    table = terminal.table("torch", "build", "pythons", "state", "by")
    for row in compared.rows:
        backend = row.backend if row.backend in {"cpu", "default"} else f"CUDA {row.backend}"
        missing = [python for python in row.pythons if python not in row.served]
        state = f"not for {' '.join(missing)}" if row.state == "partly" else row.state
        terminal.add(table, row.torch, backend, " ".join(row.pythons), state, " ".join(row.entries))
    terminal.console().print(table)
    for entry, why in compared.impossible:
        terminal.say(f"impossible: {entry}: {why}")
    terminal.say("")
    share = f" ({compared.served / compared.total:.0%})" if compared.total else ""
    terminal.say(
        f"{compared.served} of {compared.total} combinations of torch, CUDA and Python on {compared.machine} are served"
        f"{share}, counted from the matrix's oldest torch on."
    )
    if compared.others:
        machines = json.dumps([compared.machine, *compared.others])
        terminal.say(
            f"There are builds for {', '.join(compared.others)} too: `machine = {machines}` in the matrix serves them."
        )


def _show_sources(found: Published, stale: Sequence[str]) -> None:
    terminal.say(f"Releases and Pythons: {found.releases_from}. CUDA builds: {found.cuda_from}.")
    if not found.asked:
        terminal.say(
            "No index answered: these are the releases that this hatch-torch-ext knows, and newer ones may be there."
        )
    for line in stale:
        terminal.say(f"This hatch-torch-ext knows other facts: {line}. A newer one may know it.")


def _show_edit(compared: Coverage) -> None:
    if compared.edit:
        terminal.say("\nTo serve what is new or not served, add to the matrix:\n")
        for line in compared.edit:
            terminal.say(line)
