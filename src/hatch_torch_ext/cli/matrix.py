"""``hatch-torch-ext matrix``: the entries and what each resolves to, beside what is published, and more of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from hatch_torch_ext.cli.project import Project
    from hatch_torch_ext.config import Config
    from hatch_torch_ext.matrix.coverage import BackendCoverage, Coverage
    from hatch_torch_ext.resolve.available import Published
    from hatch_torch_ext.values import Entry


IMAGES = "*=quay.io/pypa/manylinux_2_28_{machine}"
RUNNERS = "x86_64=ubuntu-24.04"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("matrix", help="list the entries of the matrix and what each resolves to")
    command.add_argument(
        "--available", action="store_true", help="compare them with the torch builds that the index has"
    )
    command.add_argument(
        "--new", action="store_true", help="with --available: print what is not served, and exit with 1 if there is any"
    )
    command.add_argument(
        "--add",
        metavar="torch=X.Y",
        action="append",
        default=[],
        help="add the builds of a release to the matrix, in the file that declares it (torch=new: of all new releases)",
    )
    terminal.add_torch_index(command)
    command.add_argument("--json", action="store_true")
    command.add_argument("--github", action="store_true", help="print the build jobs of a GitHub workflow as JSON")
    command.add_argument("--tests", action="store_true", help="with --github: print the test jobs instead")
    command.add_argument(
        "--entries",
        metavar="GLOB,...",
        default="all",
        help="with --github: only these (all), or `ends`, the oldest and the newest",
    )
    command.add_argument("--gpu-runner", metavar="LABEL", default="", help="with --tests: for entries with CUDA")
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
    from hatch_torch_ext.pipeline import folders, selection

    if options.tests and not options.github:
        raise ConfigurationError("`--tests` prints the test jobs of a GitHub workflow: add `--github`")
    if options.new and not options.available:
        raise ConfigurationError("`--new` compares the matrix with the index: add `--available`")
    if options.add:
        with folders.editing(Path.cwd(), project.say):
            return _add(options, project.read())
    found = project.read()
    config = found.config
    entries = selection.expand(config, distribution=found.name)
    selected = matrix.select(entries, only=config.only, skip=config.skip, describe=selection.named)
    project.check_metadata(found, selected)
    if options.available:
        return _available(options, config, selected)
    if options.github:
        terminal.say(json.dumps({"include": _jobs(options, config, entries, selected)}))  # one line, as for an output
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


def _jobs(
    options: argparse.Namespace, config: Config, entries: Sequence[Entry], selected: Sequence[Entry]
) -> list[dict[str, str]]:
    """Return the build jobs of a GitHub workflow, or with ``--tests`` its test jobs."""
    from hatch_torch_ext.pipeline import shards
    from hatch_torch_ext.pipeline.history import History

    images, runners = shards.pairs(options.images, "--images"), shards.pairs(options.runners, "--runners")
    times = History.named(options.times, [entry.name for entry in selected], root=config.root)
    chosen = shards.chosen(selected, options.entries)
    if options.tests:
        return shards.tests(chosen, runners, gpu=options.gpu_runner)
    left_out = [entry for entry in entries if entry not in chosen] if chosen != selected else ()
    return shards.builds(chosen, count=options.shards, images=images, runners=runners, times=times, left_out=left_out)


def _available(options: argparse.Namespace, config: Config, entries: Sequence[Entry]) -> int:
    from hatch_torch_ext.cli import coverage
    from hatch_torch_ext.facts import labels

    compared = coverage.compare(options, config, entries)
    found = compared.published
    stale = list(labels.differences(found.builds)) if found.answered else []
    lacking = [(row, table.machine) for table in compared.tables for row in table.rows if row.state != "served"]
    status = 1 if options.new and lacking else 0
    if options.json:
        first, *others = (_answer(each, coverage.lines(config, each.blocks)) for each in compared.tables)
        answer = {
            **first,
            "elsewhere": others,
            "releases_from": found.releases_from,
            "backends_from": found.backends_from,
            "tables": stale,
        }
        terminal.say_json(answer)
        return status
    if options.new:
        for row, machine in lacking:
            terminal.say(f"torch {row.torch}, {_build(row)}, {machine}: {_state(row)}")
        return status
    for each in compared.tables:
        _show(each)
    _show_sources(found, stale)
    _show_edit(coverage.lines(config, compared.blocks))
    return 0


def _add(options: argparse.Namespace, found: Project) -> int:
    from hatch_torch_ext import matrix
    from hatch_torch_ext.cli import coverage, project
    from hatch_torch_ext.facts import releases
    from hatch_torch_ext.pipeline import selection

    requested = coverage.parse(options.add)
    added = coverage.add(options, found, requested)
    if options.github:  # outputs of a step
        every = selection.expand(project.read().config, distribution=found.name)
        terminal.say(f"torch={','.join(sorted({str(entry.torch) for entry in added.entries}, key=releases.minor_of))}")
        terminal.say(f"entries={','.join(matrix.glob_of(entry, every) for entry in added.entries)}")
    elif options.json:
        terminal.say_json({"file": str(added.file), "added": [asdict(entry) for entry in added.entries]})
    elif added.entries:
        terminal.say(f"{added.file}: added {', '.join(entry.name for entry in added.entries)}")
    else:
        names = ["the newest release" if each == coverage.NEW else f"torch {each}" for each in requested]
        terminal.say(f"Nothing to add: the matrix serves {' and '.join(names)} already.")
    return 0


def _answer(compared: Coverage, edit: Sequence[str]) -> dict[str, object]:
    return {
        **{name: value for name, value in asdict(compared).items() if name not in {"blocks", "impossible"}},
        "edit": edit,
        "impossible": [{"entry": entry, "why": why} for entry, why in compared.impossible],
        "served": compared.served,
        "total": compared.total,
    }


def _show(compared: Coverage) -> None:
    table = terminal.table("torch", "build", "pythons", "state", "by")
    for row in compared.rows:
        terminal.add(table, row.torch, _build(row), " ".join(row.pythons), _state(row), " ".join(row.entries))
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


def _build(row: BackendCoverage) -> str:
    return row.backend if row.backend in {"cpu", "default"} else f"CUDA {row.backend}"


def _state(row: BackendCoverage) -> str:
    missing = [python for python in row.pythons if python not in row.served]
    return f"not for {' '.join(missing)}" if row.state == "partly" else row.state


def _show_sources(found: Published, stale: Sequence[str]) -> None:
    terminal.say(f"Releases and Pythons: {found.releases_from}. CUDA builds: {found.backends_from}.")
    if not found.answered:
        terminal.say(
            "No index answered: these are the releases that this hatch-torch-ext knows, and newer ones may be there."
        )
    for line in stale:
        terminal.say(f"This hatch-torch-ext knows other facts: {line}. A newer one may know it.")


def _show_edit(lines: Sequence[str]) -> None:
    if lines:
        terminal.say("\nTo serve what is new or not served, add to the matrix:\n")
        for line in lines:
            terminal.say(line)
