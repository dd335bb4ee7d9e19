"""The matrix compared with the published builds of torch: served, not served, new, impossible; and lines to add.

All functions are pure.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array

from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.backend import VARIABLE, Backend
from hatch_torch_ext.facts.labels import python_tag

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from hatch_torch_ext.facts.labels import Build
    from hatch_torch_ext.values import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCoverage:
    """The builds of one release line for one backend: the published CPython tags, and those that are served.

    ``state`` is ``served``, ``partly``, ``not served``, or ``new`` (a release after the newest of the matrix).
    """

    torch: str
    backend: str
    pythons: tuple[str, ...]
    served: tuple[str, ...]
    entries: tuple[str, ...]
    state: str


Block = Mapping[str, Sequence[str]]
"""A table of a matrix: variable -> values, ``torch`` first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The rows for one machine, from the matrix's oldest release on, with the number of served combinations.

    ``impossible`` has (entry, reason) for entries that cannot be built; ``blocks`` are tables of a matrix that serve
    the rest.
    """

    machine: str
    others: tuple[str, ...]
    """Further machines with published builds."""
    rows: tuple[BackendCoverage, ...]
    impossible: tuple[tuple[str, str], ...]
    blocks: tuple[Block, ...]

    @property
    def served(self) -> int:
        """Return the number of served combinations of release, backend and Python."""
        return sum(len(row.served) for row in self.rows)

    @property
    def total(self) -> int:
        """Return the number of published combinations."""
        return sum(len(row.pythons) for row in self.rows)


def compare(
    entries: Sequence[Entry],
    builds: Sequence[Build],
    *,
    machine: str,
    declared: Sequence[str] = (),
    requested: Collection[str] = (),
) -> Coverage:
    """Compare the entries for ``machine`` with its ``builds``; the rows keep the order of ``builds``.

    ``declared`` are the machines that have entries of their own; releases ``requested`` without an entry are new,
    however old.
    """
    here = [build for build in builds if build.machine == machine]
    lines = [releases.minor_of(entry.torch) for entry in entries if entry.torch is not None]
    impossible = dict(_impossible(entries, here))
    able = [entry for entry in entries if entry.name not in impossible]
    by_row: dict[tuple[str, str], list[Build]] = {}
    for build in here:
        by_row.setdefault((build.line, build.backend), []).append(build)
    rows = []
    for (line, backend), of_row in by_row.items():
        added = line in requested and releases.minor_of(line) not in lines
        if lines and releases.minor_of(line) < min(lines) and not added:
            continue
        serving = {build.python: [entry for entry in able if _serves(entry, build, entries)] for build in of_row}
        pythons = tuple(dict.fromkeys(build.python for build in of_row))
        served = tuple(python for python in pythons if serving[python])
        new = bool(lines) and (releases.minor_of(line) > max(lines) or added) and not served
        named = tuple(dict.fromkeys(entry.name for python in pythons for entry in serving[python]))
        state = "new" if new else "served" if served == pythons else "partly" if served else "not served"
        rows.append(
            BackendCoverage(torch=line, backend=backend, pythons=pythons, served=served, entries=named, state=state)
        )
    return Coverage(
        machine=machine,
        others=tuple(sorted({build.machine for build in builds} - {machine, *declared})),
        rows=tuple(rows),
        impossible=tuple(impossible.items()),
        blocks=tuple(_blocks(entries, rows)),
    )


def _serves(entry: Entry, build: Build, entries: Sequence[Entry]) -> bool:
    """Return whether the loader would choose a variant of the entry for this build."""
    if entry.torch is None:
        return False
    line = releases.minor_of(entry.torch)
    if not (line == build.minor or (entry.stable_abi and line <= build.minor)):
        return False
    python = python_tag(entry.variable("python"))
    if python is not None and python != build.python:
        return False
    if entry.backend is None or build.backend == "default" or not any(each.gpu for each in entries):
        return True  # what torch's default build is for is known only when the variant is built; CPU variants serve all
    return entry.backend.serves(Backend.parse(build.backend))


def _impossible(entries: Sequence[Entry], builds: Sequence[Build]) -> Iterator[tuple[str, str]]:
    """Yield (entry, reason) for entries that no published build of torch can compile."""
    for entry in entries:
        of_line = [build for build in builds if build.line == entry.torch]
        if entry.torch is None:
            continue
        if not of_line:
            near = ", ".join(dict.fromkeys(build.line for build in builds[-40:]))
            yield entry.name, f"there is no torch {entry.torch}" + (f"; the newest are {near}" if near else "")
            continue
        backends = list(dict.fromkeys(build.backend for build in of_line))
        if entry.gpu is not None and not {entry.gpu.name, "default"} & {*backends}:
            yield entry.name, f"torch {entry.torch} has no build for {entry.gpu.words}; it has {', '.join(backends)}"
            continue
        pythons = list(dict.fromkeys(build.python for build in of_line))
        tag = python_tag(entry.python)
        if tag is not None and tag not in pythons:
            yield entry.name, f"torch {entry.torch} has no build for {tag}; it has {', '.join(pythons)}"


def join(separate: Iterable[Block]) -> tuple[Block, ...]:
    """Join blocks that differ only in the machine, or only in the release."""
    blocks = tuple(separate)
    for name in ("machine", "torch"):
        joined: dict[str, dict[str, list[str]]] = {}
        for block in blocks:
            rest = json.dumps([name in block, {key: list(values) for key, values in block.items() if key != name}])
            first = joined.setdefault(rest, {key: [] if key == name else list(values) for key, values in block.items()})
            if name in block:
                first[name] = list(dict.fromkeys([*first[name], *block[name]]))
        blocks = tuple(joined.values())
    return blocks


def toml_lines(blocks: Iterable[Block], table: str) -> tuple[str, ...]:
    """Return the blocks as lines of TOML; ``table`` is the array in which the matrix is written."""
    return tuple(
        line
        for block in blocks
        for line in (f"[[{table}]]", *(f"{name} = {json.dumps(list(values))}" for name, values in block.items()))
    )


def _blocks(entries: Sequence[Entry], rows: Sequence[BackendCoverage]) -> Iterator[Block]:
    """Yield tables that serve the rest: new releases, and other builds of the releases in the matrix."""
    torches = [entry for entry in entries if entry.torch is not None and entry.variable("torch") == entry.torch]
    if not torches:
        return  # the author's matrix names releases in another way
    found: list[Block] = []
    offered: set[str] = set()
    for line in dict.fromkeys(row.torch for row in rows):
        of_line = [row for row in rows if row.torch == line and row.state in {"new", "not served"}]
        values = _pattern(torches, releases.minor_of(line))
        if not of_line or (of_line[0].state != "new" and VARIABLE not in values):
            continue
        if VARIABLE in values and (named := _backends(of_line, values[VARIABLE])) is not None:
            if "stable" in values.get("abi", ()):  # one stable-ABI variant serves all later releases too
                named = [each for each in named if each not in offered]
                offered.update(named)
            if not named:
                continue
            values[VARIABLE] = named
        if "python" in values and of_line[0].state == "new":
            free = any((python_tag(value) or "").endswith("t") for value in values["python"])
            pythons = dict.fromkeys(python for row in of_line for python in row.pythons)
            values["python"] = [f"3.{tag[3:]}" for tag in pythons if free or not tag.endswith("t")]
        found.append({"torch": [line], **values})
    yield from join(found)


def _pattern(entries: Sequence[Entry], line: releases.Minor) -> dict[str, list[str]]:
    """Return the variables except ``torch`` for entries of ``line``: its own, else those of the newest release."""
    own = [entry for entry in entries if releases.minor_of(entry.torch or "0.0") == line]
    newest = max((entry.torch or "0.0" for entry in entries), key=releases.minor_of)
    pattern = own or [entry for entry in entries if entry.torch == newest]
    values = {
        name: list(dict.fromkeys(entry.variable(name) or "" for entry in pattern)) for name, _ in pattern[0].variables
    }
    if line < releases.FIRST_STABLE_ABI:
        values.pop("abi", None)
    return {name: each for name, each in values.items() if name != "torch"}


def _backends(rows: Sequence[BackendCoverage], written: Sequence[str]) -> list[str] | None:
    """Return the variable's values for rows, in the notation of ``written``; None if no build's backend is known.

    The lowest minor of each major is enough: its variants serve the higher minors.
    """
    known = [row.backend for row in rows if row.backend != "default"]
    if not known:
        return None
    lowest: dict[int, Backend] = {}
    for backend in map(Backend.parse, known):
        if backend.is_gpu:
            lowest.setdefault(backend.major, backend)
    short = any(value != "cpu" and value == Backend.parse(value).tag for value in written)
    names = [backend.tag if short else backend.name for backend in lowest.values()]
    return (["cpu"] if "cpu" in known and "cpu" in written else []) + names


class NotEditableError(Exception):
    """The matrix is not written as a table of lists; the message says how it is written."""


def add(text: str, keys: Sequence[str], blocks: Sequence[Block]) -> str:
    """Return ``text`` with ``blocks`` in the matrix at ``keys`` (``tool``, ``hatch``, ``envs``, NAME, ``matrix``).

    The release is added to the list of a table that has the same other variables, else a new table is added to the
    end. Raises ``NotEditableError`` if there is no such matrix, or it has another form.
    """
    try:
        document = tomlkit.parse(text)
        before = document.unwrap()
        matrix: Any = document
        for key in keys:
            matrix = matrix[key]
    except (KeyError, TypeError) as error:
        raise NotEditableError(f"it has no `{'.'.join(keys)}`") from error
    except TOMLKitError as error:
        raise NotEditableError(f"it cannot be read: {error}") from error
    if not isinstance(matrix, AoT | Array) or not all(isinstance(table, dict) for table in matrix):
        raise NotEditableError(f"`{'.'.join(keys)}` is not a list of tables")
    for block in blocks:
        _add_block(matrix, block)
    edited = tomlkit.dumps(document)
    for line in {line for block in blocks for line in block["torch"]}:
        edited = edited.replace(f'"{line}","', f'"{line}", "')  # tomlkit sets none at the front of a list
    expected = _add_to_plain(before, keys, blocks)
    if tomlkit.parse(edited).unwrap() != expected:
        raise NotEditableError(f"the tables of `{'.'.join(keys)}` are in several places of it")
    return edited


def _add_block(matrix: AoT | Array, block: Block) -> None:
    table = _same_but_torch(matrix, block)
    if table is not None:
        for line in block["torch"]:
            table["torch"].insert(_position(list(table["torch"]), line), line)
    elif isinstance(matrix, AoT):
        new = tomlkit.table()
        for name, values in block.items():
            new.add(name, _list(values))
        last = matrix[-1]
        (new if last.as_string().endswith("\n\n") else last).add(tomlkit.nl())  # an empty line between tables
        matrix.append(new)
    else:
        inline = tomlkit.inline_table()
        for name, values in block.items():
            inline.append(name, _list(values))
        matrix.append(inline)


def _list(values: Sequence[str]) -> Array:
    return tomlkit.item(list(values))


def _same_but_torch(matrix: Any, block: Block) -> Any:  # noqa: ANN401 -- tomlkit's tables, or plain ones
    """Return the table of the matrix that differs from ``block`` only in ``torch``, or None."""
    rest = {name: list(values) for name, values in block.items() if name != "torch"}
    for table in matrix:
        lines = table.get("torch")
        if isinstance(lines, list) and lines and {name: table[name] for name in table if name != "torch"} == rest:
            return table
    return None


def _position(lines: Sequence[object], line: str) -> int:
    """Return where to insert ``line`` among ``lines``: at the end unless they ascend or descend."""
    try:
        known = [releases.minor_of(str(each)) for each in lines]
    except ValueError:
        return len(lines)
    own = releases.minor_of(line)
    if len(known) > 1 and known == sorted(known, reverse=True):
        return sum(each > own for each in known)
    return sum(each < own for each in known) if known == sorted(known) else len(lines)


def _add_to_plain(data: Any, keys: Sequence[str], blocks: Sequence[Block]) -> Any:  # noqa: ANN401 -- any TOML
    """Return plain ``data`` with ``blocks``: the edited text must have the same meaning."""
    edited = copy.deepcopy(data)
    matrix = edited
    for key in keys:
        matrix = matrix[key]
    for block in blocks:
        table = _same_but_torch(matrix, block)
        if table is None:
            matrix.append({name: list(values) for name, values in block.items()})
        else:
            for line in block["torch"]:
                table["torch"].insert(_position(table["torch"], line), line)
    return edited
