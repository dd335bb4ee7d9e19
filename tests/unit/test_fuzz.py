"""The same few inputs of each fuzz target; ``tests/fuzz/run.py`` runs them for as long as one likes."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from fuzz import memories, run, targets

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def damaged(text: str) -> Iterator[str]:
    """Yield the text cut short at 8 places; of JSON, also with each value in it of other kinds, or left out."""
    yield from (text[: len(text) * part // 8] for part in range(8))
    with contextlib.suppress(ValueError):
        yield from (json.dumps(each) for each in others(json.loads(text)))


def others(value: Any) -> Iterator[Any]:
    """Yield the value with one part of it replaced or left out."""
    yield from (each for each in (None, 1, [1], {"a": {"b": 1}}) if each != value)
    if isinstance(value, dict):
        for name in value:
            rest = {key: each for key, each in value.items() if key != name}
            yield rest
            yield from ({**rest, name: other} for other in others(value[name]))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in others(each))


def test_a_damaged_memory_counts_as_absent(tmp_path: Path) -> None:
    """What builds remember is read where it is whole; no file that is cut short or holds other JSON ends a build."""
    found = memories.of(tmp_path)
    assert len(found) > 10
    for name, (file, read) in found.items():
        whole = file.read_text(encoding="utf-8")
        assert read(), name
        for text in (*damaged(whole), "\0"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            read()
        file.write_bytes(b"\xff\xfe")
        assert read() in {None, False} or name in {"hashes", "lists of Ninja", "matrix", "environment"}, name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(whole, encoding="utf-8")
