"""Releases are added to the text of a matrix: what is there stays, and what cannot be edited says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tomlkit

from hatch_torch_ext.matrix import coverage

if TYPE_CHECKING:
    from hatch_torch_ext.matrix.coverage import Block

KEYS = ("envs", "matrix", "matrix")
NEW: Block = {"torch": ["2.16"]}
CUDA: Block = {"torch": ["2.16"], "cuda": ["cpu", "cu130"]}


@pytest.mark.parametrize(
    ("before", "block", "after"),
    [
        pytest.param(
            "# mine\n[envs.matrix]\na = 1 # one\n[[envs.matrix.matrix]]\n"
            'torch = [ "2.8",  "2.9" ] # two\n\n[b]\nc = 2\n',
            NEW,
            "# mine\n[envs.matrix]\na = 1 # one\n[[envs.matrix.matrix]]\n"
            'torch = [ "2.8",  "2.9",  "2.16" ] # two\n\n[b]\nc = 2\n',
            id="into-the-list",
        ),
        pytest.param(
            '[[envs.matrix.matrix]]\ntorch = ["2.13", "2.8"]\n',
            NEW,
            '[[envs.matrix.matrix]]\ntorch = ["2.16", "2.13", "2.8"]\n',
            id="newest-first",
        ),
        pytest.param(
            '[[envs.matrix.matrix]]\ntorch = [\n    "2.8",\n    "2.17",\n]\n',
            NEW,
            '[[envs.matrix.matrix]]\ntorch = [\n    "2.8",\n    "2.16",\n    "2.17",\n]\n',
            id="a-line-each",
        ),
        pytest.param(
            '[[envs.matrix.matrix]]\ntorch = ["2.8"]\ncuda = ["cu128"]\n',
            CUDA,
            '[[envs.matrix.matrix]]\ntorch = ["2.8"]\ncuda = ["cu128"]\n\n'
            '[[envs.matrix.matrix]]\ntorch = ["2.16"]\ncuda = ["cpu", "cu130"]\n',
            id="a-table-of-its-own",
        ),
        pytest.param(
            '[envs]\nmatrix.matrix = [{ torch = ["2.8"] }]\n',
            NEW,
            '[envs]\nmatrix.matrix = [{ torch = ["2.8", "2.16"] }]\n',
            id="inline",
        ),
        pytest.param(
            '[envs.matrix]\nmatrix = [{ torch = ["2.8"] }]\n',
            CUDA,
            '[envs.matrix]\nmatrix = [{ torch = ["2.8"] }, {torch = ["2.16"], cuda = ["cpu", "cu130"]}]\n',
            id="inline-and-other",
        ),
    ],
)
def test_the_release_is_added_and_the_rest_stays(before: str, block: Block, after: str) -> None:
    """Into the list of a table with the same other variables, in its order, else as a table at the end."""
    assert coverage.add(before, KEYS, [block]) == after
    assert tomlkit.parse(after).unwrap()["envs"]["matrix"]["matrix"]


def test_the_ends_of_the_lines_stay() -> None:
    """A file with the line ends of Windows keeps them where nothing was added."""
    text = '[[envs.matrix.matrix]]\r\ntorch = ["2.8"]\r\n'
    assert coverage.add(text, KEYS, [NEW]) == text.replace('"2.8"', '"2.8", "2.16"')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[envs.other]\nx = 1\n", "it has no `envs.matrix.matrix`"),
        ("[envs.matrix]\nmatrix = 3\n", "`envs.matrix.matrix` is not a list of tables"),
        ("[envs.matrix.matrix]\ntorch = ['2.8']\n", "`envs.matrix.matrix` is not a list of tables"),
        ("[envs\n", "it cannot be read: "),
    ],
)
def test_what_cannot_be_edited(text: str, why: str) -> None:
    """The reason is part of the message; the text stays as it is."""
    with pytest.raises(coverage.NotEditableError) as caught:
        coverage.add(text, KEYS, [NEW])
    assert str(caught.value).startswith(why)
