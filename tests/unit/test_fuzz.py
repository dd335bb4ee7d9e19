"""The same few inputs of each fuzz target; ``tests/fuzz/run.py`` runs them for as long as one likes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuzz import run, targets

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", targets.TARGETS)
def test_whole_inputs_and_damaged_ones(name: str, tmp_path: Path) -> None:
    """No bytes end in anything but the reader's own errors."""
    target, seeds = targets.TARGETS[name]
    for seed in seeds:
        target(seed)
    found = run.run(name, 600.0, 7, tmp_path, most=40)
    assert found.failures == []
    assert found.runs == 40
