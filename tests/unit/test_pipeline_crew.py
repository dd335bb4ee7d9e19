"""Making later items while earlier ones are used: in order, each with its own outcome, and no longer than wanted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base.errors import Stopped
from hatch_torch_ext.pipeline import crew

if TYPE_CHECKING:
    from concurrent.futures import Future


def test_later_items_are_made_while_an_earlier_one_is_used() -> None:
    """The first item's user sees the last one made before it goes on."""
    last = threading.Event()

    def make(item: int) -> int:
        if item == 3:
            last.set()
        return item * item

    used = []
    with crew.made_ahead([1, 2, 3], make) as futures:
        for item, made in zip([1, 2, 3], futures, strict=True):
            assert last.wait(10)
            used.append((item, made.result()))
    assert used == [(1, 1), (2, 4), (3, 9)]


def test_a_failure_is_only_of_its_item() -> None:
    """It is raised where that item is used; those after it are made all the same."""

    def make(item: int) -> float:
        return 1 / item

    with crew.made_ahead([1, 0, 2], make) as futures:
        outcomes = [made.exception() or made.result() for made in futures]
    assert outcomes[::2] == [1, 0.5]
    assert isinstance(outcomes[1], ZeroDivisionError)


def test_nothing_more_is_made_when_the_user_stops() -> None:
    """After an exception such as Ctrl-C, only the item in progress is finished; waiting code gets ``Stopped``."""
    started: list[int] = []
    first, stopped, second = threading.Event(), threading.Event(), threading.Event()

    def make(item: int) -> None:
        started.append(item)
        if item == 2:
            first.set()
            stopped.wait(10)
            second.set()

    waiting: list[Future[None]] = []

    def use() -> None:
        with crew.made_ahead([1, 2, 3], make) as futures:
            waiting.extend(futures)
            first.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    stopped.set()
    assert second.wait(10)
    for thread in threading.enumerate():
        if thread.name == "ahead":
            thread.join(10)
    assert started == [1, 2]
    assert isinstance(waiting[2].exception(10), Stopped)
