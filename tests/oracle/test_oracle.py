"""Few projects of the oracle, in every run: what a plain build gives, ours gives, or says what differs."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from oracle import comparing, places, projects, run, tools
from oracle.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from oracle.workshop import Built


@pytest.fixture(scope="module")
def workshop(
    torch_cpu_python: Path,
    session_folder: Path,
    once: Callable[[str, Callable[[Path], None]], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workshop]:
    """Return the tools and the torch that all projects share."""
    kept = once("oracle-tools", tools.assemble)
    cache = session_folder / "oracle-ccache"
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{kept / 'compilers' / 'bin'}{os.pathsep}{before}"
    folder = tmp_path_factory.mktemp("oracle")
    wheels = kept / "wheels"
    made = Workshop(folder, torch_cpu_python, wheels=wheels, ccache=wheels / "bin" / "ccache", cache=cache)
    yield made
    made.forks.close()
    os.environ["PATH"] = before


@pytest.mark.slow
@pytest.mark.parametrize("choice", projects.QUICK, ids=range(len(projects.QUICK)))
def test_what_differs_from_a_plain_build_is_listed_or_told(choice: projects.Choice, workshop: Workshop) -> None:
    """Operators, classes, values, errors, exit status and libraries are those of the plain build, but for the list."""
    if lacking := projects.lacking().intersection(choice.values()):
        pytest.skip(f"not here: {', '.join(sorted(lacking))}")
    row = run.tried(choice, workshop)
    assert [each for each in row.differences if not each.by] == []


@pytest.fixture(scope="module")
def placed(workshop: Workshop) -> tuple[projects.Project, dict[str, Built]]:
    """Return the project that is put into all places, built by hand and as ours."""
    return places.prepared(workshop)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in places.PLACES if name not in places.BY_COMMAND])
def test_a_place_gives_the_same_or_a_sentence_with_what_to_do(
    name: str, placed: tuple[projects.Project, dict[str, Built]], workshop: Workshop, tmp_path: Path
) -> None:
    """After an install, files are stripped, linked, moved, packed: as the plain library fares, so does the package."""
    each = places.outcome(name, *placed, workshop, tmp_path)
    assert places.is_right(each), each


def test_the_projects_of_every_run_have_each_value() -> None:
    """None is left out, and what is in one project fits together."""
    values = {pair for choice in projects.QUICK for pair in choice.items()}
    assert values == {(name, value) for name, known in projects.DIMENSIONS.items() for value in known}
    assert all(map(projects.fit, projects.QUICK))


def test_what_a_place_tells_to_do_is_done_by_a_test() -> None:
    """The page of results names a test for each remedy, and that test is there; any other sentence is a fault."""
    there = "".join(path.read_text(encoding="utf-8") for path in places.TESTS.glob("integration/test_*.py"))
    assert [test for test in places.REMEDIES.values() if f"\ndef {test}(" not in there] == []
    assert places.performed("ImportError: oracle_pkg: it fails. Install another") == ""
    assert places.performed("ImportError: it fails. Repair it: install the package unpacked") == ""


def test_each_pair_of_values_is_in_a_project() -> None:
    """All that fit together are, so that the command tries each pair."""
    found = [tuple(sorted(choice.items())) for choice in projects.choices()]
    for one, other in [("registered", "form"), ("linked", "registered"), ("torch", "python"), ("runs", "installed")]:
        there = {(dict(choice)[one], dict(choice)[other]) for choice in found}
        for first in {dict(choice)[one] for choice in found}:
            seconds = {second for start, second in there if start == first}
            lacking = {dict(choice)[other] for choice in found} - seconds
            assert all(not projects.fit({one: first, other: second}) for second in lacking)


def test_an_unknown_difference_is_not_explained() -> None:
    """The comparison can fail: values that differ are explained by no entry and no message."""
    facts = comparing.Facts(said="all is well")
    assert comparing.explained(facts, "answers torch.ops.oracle.answer(3)", "6", "7") == ""
    assert comparing.explained(facts, "built", "built", "a.so: does not open: why") == ""
    assert comparing.explained(facts, "needed libx.so", "['libfoo.so']", "[]") == ""
    assert comparing.explained(facts, "needed libx.so", "['libtorch.so']", "[]") == "needed"


@pytest.mark.parametrize(
    ("needed", "mapped", "by"),
    [
        ({"liboracle_ops.so": ["libstdc++.so"]}, [], "opened"),
        ({"liboracle_ops.so": []}, [], "opened"),
        ({"liboracle_ops.so": ["libc10.so", "libtorch_cpu.so"]}, [], ""),
        ({"liboracle_ops.so": [], "_C.so": ["libtorch_cpu.so"]}, ["own _C.cpython-311-x86_64-linux-gnu.so"], "opened"),
        ({"liboracle_ops.so": []}, ["own liboracle_ops.so"], ""),
    ],
)
def test_a_library_stays_closed_where_it_calls_nothing_of_torch(
    needed: dict[str, list[str]], mapped: list[str], by: str
) -> None:
    """What is registered otherwise (an operator that Python defined) does not count: the library's symbols do."""
    seen = comparing.Seen(
        status=0,
        opened="",
        constructed=False,
        registered={"oracle::answer": ["schema: oracle::answer(int n) -> int"]},
        answers={},
        mapped=mapped,
        needed=needed,
    )
    facts = comparing.Facts(ours=seen)
    assert comparing.explained(facts, "mapped own liboracle_ops.so", "True", "False") == by
    assert comparing.explained(facts, "constructed", "True", "False") == by
    assert comparing.explained(facts, "answers x", "6", "no") == ""
    by_linker = comparing.explained(dataclasses.replace(facts, members=True), "answers x", "6", "no")
    assert by_linker == ("archives" if by else "")
