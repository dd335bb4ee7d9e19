"""Settings of hypothesis for all unit tests, and the smallest project."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pathlib import Path

# No deadline: machines of CI are slow at times. No database: a test leaves nothing behind.
settings.register_profile("unit", deadline=None, database=None)
settings.load_profile("unit")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the root of a project with a package in `src` and a CMake project in `csrc`."""
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "CMakeLists.txt").touch()
    (tmp_path / "src" / "my_pkg").mkdir(parents=True)
    (tmp_path / "src" / "my_pkg" / "__init__.py").touch()
    return tmp_path
