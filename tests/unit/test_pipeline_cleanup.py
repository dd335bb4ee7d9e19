"""`keep = "results"`: how many environments exist at once, and when each is removed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from hatch_torch_ext.base.errors import Stopped
from hatch_torch_ext.base.process import Family
from hatch_torch_ext.pipeline import crew
from hatch_torch_ext.pipeline.cleanup import Cleanup

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hatch_torch_ext.values import Task

ENTRIES = range(12)


def task(work: Path, number: int) -> Task:
    """Return what is asked of a task, with the folder of its entry."""
    folder = work / f"entry{number}"
    folder.mkdir(exist_ok=True)
    return cast("Task", SimpleNamespace(folder=folder))


def environments(work: Path) -> list[Path]:
    """Return the environments that there are."""
    return sorted(work.glob("environments/*/.venv"))


def preparing(work: Path, cleanup: Cleanup, *, name: Callable[[int], object]) -> Callable[[int], tuple[Path, int]]:
    """Return what makes an entry's environment unless it is there, and counts how many there are then."""

    def prepare(number: int) -> tuple[Path, int]:
        with cleanup.preparing(Family("cleanup")) as note:
            environment = work / "environments" / str(name(number)) / ".venv"
            environment.mkdir(parents=True, exist_ok=True)
            note(environment)
            return environment, len(environments(work))

    return prepare


def test_a_large_matrix_needs_few_environments(tmp_path: Path) -> None:
    """Each entry has its own: never more than requested, each there while its entry is built, and none at the end."""
    cleanup = Cleanup(tmp_path, most=3)
    with crew.made_ahead(ENTRIES, preparing(tmp_path, cleanup, name=lambda number: number)) as made:
        for number in ENTRIES:
            environment, count = made[number].result(10)
            assert count <= 3
            assert environment.is_dir()
            cleanup.finished(task(tmp_path, number), environment)
            cleanup.ended()
    assert environments(tmp_path) == []


def test_an_environment_of_all_is_there_for_each(tmp_path: Path) -> None:
    """Entries that differ only in torch share one: it is there while any of them is built."""
    cleanup = Cleanup(tmp_path, most=3)
    with crew.made_ahead(ENTRIES, preparing(tmp_path, cleanup, name=lambda _: "shared")) as made:
        for number in ENTRIES:
            environment, _ = made[number].result(10)
            assert environment.is_dir()
            cleanup.finished(task(tmp_path, number), environment)
            cleanup.ended()
    assert environments(tmp_path) == []


def test_failed_entries_make_room_and_keep_their_environments(tmp_path: Path) -> None:
    """More failed entries than the limit: the others are built too, and the next run finds the environments."""
    cleanup = Cleanup(tmp_path, most=2)
    with crew.made_ahead(ENTRIES, preparing(tmp_path, cleanup, name=lambda number: number)) as made:
        for number in ENTRIES:
            environment, _ = made[number].result(10)
            if number >= 5:
                cleanup.finished(task(tmp_path, number), environment)
            cleanup.ended()
    assert {path.parent.name for path in environments(tmp_path)} == {"0", "1", "2", "3", "4"}


def test_who_waits_for_room_is_stopped_with_the_build(tmp_path: Path) -> None:
    """Nothing waits for ever when the build ends early."""
    cleanup, family = Cleanup(tmp_path, most=1), Family("cleanup-stopped")
    with cleanup.preparing(family):
        pass
    family.stop()
    with pytest.raises(Stopped), cleanup.preparing(family):
        pass
