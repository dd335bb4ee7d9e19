"""hatch's answer about a matrix is kept, except for secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import environments
from hatch_torch_ext.base import redact
from hatch_torch_ext.environments import reading
from hatch_torch_ext.values import Matrix

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("value", "kept"), [("S3CRET-value", False), ("true", True)])
def test_secrets_of_the_matrix_are_not_kept(
    *, value: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment variable of an entry that holds a secret is in no file: hatch runs each time."""
    monkeypatch.setattr(redact, "_learned", set())
    matrix = Matrix(
        variables={"m": {}}, dependencies={"m": ()}, pythons={"m": None}, env_vars={"m": (("A_TOKEN", value),)}
    )
    runs: list[str] = []

    def read(*_: object, **__: object) -> Matrix:
        runs.append("run")
        return matrix

    monkeypatch.setattr(reading, "read", read)
    environ = {"HATCH_TORCH_EXT_CACHE": str(tmp_path / "store")}
    for _ in range(2):
        assert environments.read_cached(tmp_path, "m", project_name="p", environ=environ) == matrix
    assert len(runs) == (1 if kept else 2)
    assert bool(list(tmp_path.rglob("matrix-*.json"))) is kept
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"S3CRET" in path.read_bytes()]
