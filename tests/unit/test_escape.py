"""What is foreign, made fit to be shown."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import WheelError


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("plain text, ümlaut, 中", "plain text, ümlaut, 中"),
        ("\x1b[2J\x07\x00", "\\x1b[2J\\x07\\x00"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"),
    ],
)
def test_a_line(foreign: str, shown: str) -> None:
    """What can be shown stays as it is, the rest is an escape, and a line is one line."""
    assert escape.line(foreign) == shown


def test_a_long_line_is_cut_in_its_middle() -> None:
    """Both ends tell more than the middle; the result is no longer than was requested."""
    shown = escape.line("begin" + "x" * 10_000_000 + "end", 100)
    assert len(shown) == 100
    assert shown.startswith("begin")
    assert shown.endswith("end")
    assert " [...] " in shown


def test_a_text_keeps_its_lines() -> None:
    """Line breaks and tabs are meant; colours are left out, whatever else moves the cursor is an escape."""
    assert escape.text("\x1b[31mred\x1b[0m\r\n\tsecond\x1b[2Jthird\n") == "red\n\tsecond\\x1b[2Jthird\n"


def test_html() -> None:
    """A page gets neither markup nor control characters."""
    assert escape.html("<b>\x1b") == "&lt;b&gt;\\x1b"


def test_json_is_ascii_that_strict_readers_take() -> None:
    """A half surrogate pair is text; everything else comes back as it was."""
    said = escape.json({"a": ("\x1b", "ü", "\ud800")})
    assert said.isascii()
    assert json.loads(said) == {"a": ["\x1b", "ü", "\\ud800"]}


def test_every_text_of_a_value() -> None:
    """Texts in a dataclass, however deep, can be shown; what is well is the very same object."""

    @dataclass(frozen=True, slots=True)
    class Inner:
        names: tuple[str, ...]
        size: int

    well = Inner(("a", "b"), 1)
    assert escape.every(well) is well
    assert escape.every((well, Inner(("\x1b",), 2))) == (well, Inner(("\\x1b",), 2))


@given(st.text(st.characters()))
def test_anything_can_be_shown(foreign: str) -> None:
    """No text is left that a terminal acts on, or that cannot be written; a message of ours is such a text."""
    assert escape.line(foreign).isprintable()
    assert all(line.isprintable() for line in escape.text(foreign).replace("\t", " ").split("\n"))
    assert escape.html(foreign).isprintable()
    str(WheelError(foreign)).encode()
