"""Names from outside become paths that stay inside, and no two become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import values
from hatch_torch_ext.base import untrusted
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.matrix import declaring
from hatch_torch_ext.values import RESERVED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["matrix.2.8", "matrix.2.8-12.8", "cu128", "a_b-c+d"])
def test_plain_names_stay(name: str) -> None:
    """What hatch usually makes is the folder's name."""
    assert untrusted.safe(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/etc", "m.2.8-../../outside", "a\0b", "a ", "a|b", "<a>", "x\ny", "é" * 200, "-rf"]
)
def test_odd_names_become_safe(name: str, tmp_path: Path) -> None:
    """Traversal, separators, control characters, length: one plain step below the root."""
    place = untrusted.place(tmp_path, name)
    assert place.parent == tmp_path
    place.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [place.name]
    assert len(place.name) < 100


@given(st.lists(st.text(max_size=12) | st.sampled_from(["a/b", "a_b", "a|b", "..", "lock"]), unique=True, max_size=6))
def test_no_two_names_share_a_place(names: list[str]) -> None:
    """Different names, different places; the folder's own names are kept free."""
    places = [untrusted.safe(name, reserved=RESERVED) for name in names]
    assert len(set(places)) == len(names)
    assert not {*places} & {*RESERVED, "", ".", ".."}
    assert not any("/" in place for place in places)


@pytest.mark.parametrize("name", ["m.2.8-../../outside", *sorted(RESERVED)])
def test_the_folder_of_an_entry(name: str, tmp_path: Path) -> None:
    """An entry's work is below the work folder, and in no folder that has another use."""
    entry = values.entry(name=name, torch_requirement="torch==2.8.*")
    assert (tmp_path / entry.folder).resolve().parent == tmp_path.resolve()
    assert entry.folder not in RESERVED


@pytest.mark.performs("write it without")
@pytest.mark.parametrize(
    ("value", "why", "without"),
    [
        ("a ", "begins or ends with a space, which CMake drops", "a"),
        (" a", "begins or ends with a space, which CMake drops", "a"),
        ("x\ny", r"has the character '\n', which CMake's cache does not keep", "xy"),
        ("x\x1b[2J", r"has the character '\x1b', which CMake's cache does not keep", "x[2J"),
        ("'a'", "is in single quotes, which CMake drops", "a"),
    ],
)
def test_values_that_would_not_arrive(value: str, why: str, without: str) -> None:
    """They are refused before any work, by variable, and nothing of them is printed raw; written without, they pass."""
    envs = {f"m.2.8-{value}": {"torch": "2.8", "flag": value}}
    with pytest.raises(ConfigurationError) as caught:
        declaring.entries_of(values.matrix(envs, {key: ["torch==2.8.*"] for key in envs}))
    (problem,) = caught.value.problems
    assert problem.endswith(f"the variable `flag` is {value!a}, which {why}; write it without")
    envs = {f"m.2.8-{without}": {"torch": "2.8", "flag": without}}
    assert declaring.entries_of(values.matrix(envs, {key: ["torch==2.8.*"] for key in envs}))
    assert problem.isprintable()


@pytest.mark.parametrize("value", ["a|b", "<a>", "../../outside", "a;b", "$x", "é", '"q"', "a b"])
def test_values_that_arrive(value: str) -> None:
    """Other signs are the author's business: they arrive as they are."""
    envs = {f"m.2.8-{value}": {"torch": "2.8", "flag": value}}
    (entry,) = declaring.entries_of(values.matrix(envs, {key: ["torch==2.8.*"] for key in envs}))
    assert entry.variable("flag") == value
