"""The text of pyproject.toml or hatch.toml with more releases in the matrix; comments and order stay. Pure."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array

from hatch_torch_ext.facts import releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hatch_torch_ext.matrix.coverage import Block


class NotEditableError(Exception):
    """The matrix is not written as a table of lists; the message says what it is instead."""


def added(text: str, keys: Sequence[str], blocks: Sequence[Block]) -> str:
    """Return ``text`` with ``blocks`` in the matrix at ``keys`` (``tool``, ``hatch``, ``envs``, NAME, ``matrix``).

    The release is added to the list of a table that has the same other variables, else a new table is added to the
    end. Raises ``NotEditableError`` for a matrix that is not there, or not written so.
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
        _add(matrix, block)
    edited = tomlkit.dumps(document)
    for line in {line for block in blocks for line in block["torch"]}:
        edited = edited.replace(f'"{line}","', f'"{line}", "')  # tomlkit sets none at the front of a list
    expected = _plain(before, keys, blocks)
    if tomlkit.parse(edited).unwrap() != expected:
        raise NotEditableError(f"the tables of `{'.'.join(keys)}` are in several places of it")
    return edited


def _add(matrix: AoT | Array, block: Block) -> None:
    table = _like(matrix, block)
    if table is not None:
        for line in block["torch"]:
            table["torch"].insert(_position(list(table["torch"]), line), line)
    elif isinstance(matrix, AoT):
        made = tomlkit.table()
        for name, values in block.items():
            made.add(name, _list(values))
        last = matrix[-1]
        (made if last.as_string().endswith("\n\n") else last).add(tomlkit.nl())  # an empty line between tables
        matrix.append(made)
    else:
        inline = tomlkit.inline_table()
        for name, values in block.items():
            inline.append(name, _list(values))
        matrix.append(inline)


def _list(values: Sequence[str]) -> Array:
    return tomlkit.item(list(values))


def _like(matrix: Any, block: Block) -> Any:  # noqa: ANN401 -- tomlkit's tables, or plain ones
    """Return the table of the matrix that has the same variables but for ``torch``, or None."""
    rest = {name: list(values) for name, values in block.items() if name != "torch"}
    for table in matrix:
        lines = table.get("torch")
        if isinstance(lines, list) and lines and {name: table[name] for name in table if name != "torch"} == rest:
            return table
    return None


def _position(lines: Sequence[object], line: str) -> int:
    """Return the place of ``line`` among releases that ascend or descend; the end of others."""
    try:
        known = [releases.minor_of(str(each)) for each in lines]
    except ValueError:
        return len(lines)
    own = releases.minor_of(line)
    if len(known) > 1 and known == sorted(known, reverse=True):
        return sum(each > own for each in known)
    return sum(each < own for each in known) if known == sorted(known) else len(lines)


def _plain(data: Any, keys: Sequence[str], blocks: Sequence[Block]) -> Any:  # noqa: ANN401 -- any TOML
    """Return ``data`` with ``blocks``, edited as plain values: what the edited text has to mean."""
    edited = copy.deepcopy(data)
    matrix = edited
    for key in keys:
        matrix = matrix[key]
    for block in blocks:
        table = _like(matrix, block)
        if table is None:
            matrix.append({name: list(values) for name, values in block.items()})
        else:
            for line in block["torch"]:
                table["torch"].insert(_position(table["torch"], line), line)
    return edited
