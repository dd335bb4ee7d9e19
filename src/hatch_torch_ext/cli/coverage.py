"""The project's matrix beside the builds of torch that the indexes have; and adding what they have to the matrix."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tomlkit

from hatch_torch_ext import matrix, store
from hatch_torch_ext.base import atomic
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import project, terminal
from hatch_torch_ext.facts import releases
from hatch_torch_ext.matrix import coverage
from hatch_torch_ext.pipeline import selection
from hatch_torch_ext.remote import pipconfig, settings
from hatch_torch_ext.remote.http import Http, Limits
from hatch_torch_ext.resolve import available

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from hatch_torch_ext.cli.project import Project
    from hatch_torch_ext.config import Config
    from hatch_torch_ext.matrix.coverage import Block, Coverage
    from hatch_torch_ext.resolve.available import Published
    from hatch_torch_ext.values import Entry

NEW = "new"
"""In place of a release: all that are newer than the newest of the matrix."""
NEWEST_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The matrix beside what is published: a table for each machine, this machine's first if it is in the matrix."""

    tables: tuple[Coverage, ...]
    published: Published

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the tables of a matrix that serve what is new or not served."""
        return coverage.join(block for table in self.tables for block in table.blocks)


def compare(
    options: argparse.Namespace, config: Config, entries: Sequence[Entry], *, requested: Sequence[str] = ()
) -> Compared:
    """Ask the indexes of the entries, and torch's own, and compare; ``requested`` are releases to add."""
    places: dict[str, None] = {}
    index = None
    for entry in entries:
        environ = {**os.environ, **dict(entry.env_vars)}
        index = settings.read(entry, config, pipconfig.merged(environ))
        places.update(dict.fromkeys((*index.find_links, *index.indexes)))
    kept = store.open_usable(os.environ, config.root / "build" / "torch-ext" / "cache", project.say)
    with Http(index or settings.IndexSettings(), Limits(attempts=1)) as http:
        found = available.published(http, kept, list(places), terminal.torch_index(options), report=project.say)
    here = platform.machine()
    declared = sorted({entry.machine or here for entry in entries}, key=lambda machine: (machine != here, machine))
    tables = []
    for machine in declared or [here]:
        its_entries = [entry for entry in entries if (entry.machine or here) == machine]
        tables.append(
            coverage.compare(its_entries, found.builds, machine=machine, declared=declared, requested=requested)
        )
    return Compared(tables=tuple(tables), published=found)


def place(config: Config) -> tuple[Path, tuple[str, ...]]:
    """Return the file that declares the project's environments, and the keys of the matrix in it.

    hatch takes all environments from hatch.toml if it declares any.
    """
    keys = ("envs", config.environment, "matrix")
    file = config.root / "hatch.toml"
    if file.is_file() and "envs" in tomlkit.parse(file.read_text(encoding="utf-8")):  # hatch has read it before
        return file, keys
    return config.root / "pyproject.toml", ("tool", "hatch", *keys)


def lines(config: Config, blocks: Sequence[Block]) -> tuple[str, ...]:
    """Return the lines to add to the matrix by hand."""
    return coverage.toml_lines(blocks, ".".join(place(config)[1]))


def parse(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the releases of ``--add torch=X.Y``. Raises ``ConfigurationError`` for anything else."""
    found = []
    for text in texts:
        name, _, value = text.partition("=")
        if name.strip() != "torch" or not re.fullmatch(rf"\d+\.\d+|{NEW}", value.strip()):
            raise ConfigurationError(
                f"`--add {text}`: write a release line of torch, such as `--add torch=2.13`, or `--add torch={NEW}`"
            )
        found.append(value.strip())
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What was added to the matrix: the entries that are new, and the file with its text before."""

    entries: tuple[Entry, ...]
    file: Path
    before: bytes
    after: bytes

    def undo(self) -> None:
        """Give the file its former text back, unless it was changed since."""
        if self.before != self.after == self.file.read_bytes():
            atomic.write(self.file, self.before)


def add(options: argparse.Namespace, found: Project, requested: Sequence[str]) -> Added:
    """Add what the indexes have of the ``requested`` releases to the matrix, in the file that declares it.

    Raises ``ConfigurationError``, without a change, for a release that no index has, and for a matrix that cannot be
    edited, with the lines to add by hand.
    """
    config = found.config
    file, keys = place(config)
    file = file.resolve()  # a link stays one
    before = file.read_bytes()
    if not requested:
        return Added(entries=(), file=file, before=before, after=before)
    entries = selection.expand(config, distribution=found.name)
    selected = matrix.select(entries, only=config.only, skip=config.skip, describe=selection.named)
    compared = compare(options, config, selected, requested=requested)
    blocks = _chosen(compared, requested)
    if not blocks:
        return Added(entries=(), file=file, before=before, after=before)
    by_hand = coverage.toml_lines(blocks, ".".join(keys))
    try:
        edited = coverage.add(before.decode(), keys, blocks).encode()
    except (coverage.NotEditableError, UnicodeDecodeError) as error:
        raise ConfigurationError(_not_edited(file, str(error), by_hand)) from error
    atomic.write(file, edited)
    with contextlib.ExitStack() as undo:
        undo.callback(atomic.write, file, before)
        after = selection.expand(project.read().config, distribution=found.name)
        known = {entry.name for entry in entries}
        new = tuple(entry for entry in after if entry.name not in known)
        lacking = [line for block in blocks for line in block["torch"] if line not in {entry.torch for entry in new}]
        if lacking:
            why = f"with `{lacking[0]}` in it, hatch makes no entry of it: a plugin or an override makes the matrix"
            raise ConfigurationError(_not_edited(file, why, by_hand))
        undo.pop_all()
    return Added(entries=new, file=file, before=before, after=edited)


def _not_edited(file: Path, why: str, by_hand: Sequence[str]) -> str:
    listed = "".join(f"\n{line}" for line in by_hand)
    return f"{file} cannot be edited: {why}. Add this where the matrix is made:\n{listed}"


def _chosen(compared: Compared, requested: Sequence[str]) -> tuple[Block, ...]:
    """Return the blocks of the ``requested`` releases, without those that the matrix has already."""
    rows = [row for table in compared.tables for row in table.rows]
    published = sorted({build.minor for build in compared.published.builds})
    new = {row.torch for row in rows if row.state == "new"}
    lines = {line for each in requested for line in (new if each == NEW else {each})}
    if lacking := sorted(lines - {releases.format_minor(minor) for minor in published}, key=releases.minor_of):
        newest = ", ".join(map(releases.format_minor, published[-NEWEST_SHOWN:]))
        places = compared.published.releases_from
        raise ConfigurationError(f"There is no torch {lacking[0]} on {places}; the newest are {newest}.")
    blocks = tuple(
        {**block, "torch": chosen}
        for block in compared.blocks
        if (chosen := [line for line in block["torch"] if line in lines])
    )
    served = {row.torch for row in rows if row.entries and row.state in {"served", "partly"}}
    if missing := sorted(lines - {line for block in blocks for line in block["torch"]} - served):
        raise ConfigurationError(
            f"The matrix has no variable `torch` with release lines such as `2.8`, so torch {missing[0]} "
            "cannot be added to it: add an entry by hand."
        )
    return blocks
