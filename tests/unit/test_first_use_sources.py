"""Which sources a wheel takes along for builds at first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import disk
from hatch_torch_ext import config
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.hooks import shipping

if TYPE_CHECKING:
    from pathlib import Path


def test_sources_outside_of_the_project(tmp_path: Path) -> None:
    """No sdist has them; through a link, or moved into the project, they are taken along, and what they include."""
    root = tmp_path / "python"
    for folder in (root / "my_pkg", tmp_path / "csrc"):
        folder.mkdir(parents=True)
    (root / "my_pkg" / "__init__.py").touch()
    (root / "pyproject.toml").write_text("[project]\nname = 'my-pkg'\nversion = '1'\n", encoding="utf-8")
    (tmp_path / "csrc" / "CMakeLists.txt").touch()

    def taken(source: str) -> list[str]:
        table = {"fallback": "build", "source": source}
        found = config.parse(table, root=root, project_name="my-pkg", environ={})
        packed = shipping.of_sdist(str(root))
        gathered = shipping.gather(found, (), packed=packed, options=table, version="1", work=tmp_path / "work")
        return [place for place, _ in gathered.fallback.files]

    with pytest.raises(ConfigurationError) as caught:
        taken("../csrc")
    assert str(caught.value) == (
        f'`fallback = "build"` takes the sources that the sdist has, and {tmp_path / "csrc"} is outside of the '
        'project: make a link in the project, `ln -s ../csrc csrc`, and write `source = "csrc"`; hatchling packs the '
        "files behind it. Or take the option `fallback` out"
    )
    (root / "csrc").symlink_to("../csrc")
    assert "csrc/CMakeLists.txt" in taken("csrc")
    assert "csrc/CMakeLists.txt" in taken("../csrc")  # the same folder
    (root / "csrc").unlink()
    (tmp_path / "csrc").rename(root / "native")
    for name in ("table.tpp", "cells.inc", "notes.txt"):
        (root / "my_pkg" / name).touch()
    assert {"native/CMakeLists.txt", "my_pkg/table.tpp", "my_pkg/cells.inc"} == {*taken("native")}


def test_the_work_folder_is_not_walked(tmp_path: Path) -> None:
    """Build trees, and what links in them lead to, are thousands of files of which an sdist has none."""
    disk.write(
        tmp_path,
        {
            "pyproject.toml": "[project]\nname = 'my-pkg'\nversion = '1'\n",
            ".gitignore": "/build/\n",
            "csrc/a.cpp": "",
            "build/torch-ext/m/a.cpp": "",
            "build/other/a.cpp": "",
        },
    )
    work = tmp_path / "build" / "torch-ext"
    whole = shipping.of_sdist(str(tmp_path))
    assert shipping.of_sdist(str(tmp_path), work).relative == whole.relative
    assert "csrc/a.cpp" in whole.relative
    (tmp_path / ".gitignore").unlink()
    assert {"build/other/a.cpp"} == {
        name for name in shipping.of_sdist(str(tmp_path), work).relative if name.startswith("build/")
    }
