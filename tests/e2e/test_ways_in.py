"""Every front end makes the same wheel, and an editable install works: real isolation, no torch in build-requires."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
import uv

from hatch_torch_ext.base import process

from .conftest import copy_example, outside

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Once


@pytest.fixture(scope="session")
def isolated(wheelhouse: Path, store: Path) -> dict[str, str | None]:
    """Return the environment in which an isolated build finds the plugin; one entry is built, to be quick."""
    links = os.environ.get("PIP_FIND_LINKS", "")
    return {
        "PIP_FIND_LINKS": f"{wheelhouse} {links}".strip(),
        "UV_FIND_LINKS": str(wheelhouse),
        "HATCH_TORCH_EXT_SKIP": "matrix.2.[4-9]",  # `only` would make a partial wheel, which says what it was made of
        "HATCH_TORCH_EXT_CACHE": str(store),
        "HATCH_DATA_DIR": str(store.parent / "hatch"),
        "PYTHONPATH": None,
        "VIRTUAL_ENV": None,
        "HATCH_ENV_ACTIVE": None,
        "HATCH_ENV": None,
    }


def digest(folder: Path) -> str:
    """Return the hash of the one wheel in ``folder``."""
    (wheel,) = folder.glob("*.whl")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def reference(once: Once, isolated: dict[str, str | None]) -> str:
    """Return the hash of the wheel that ``python -m build`` makes: the sdist first, then the wheel from the sdist."""

    def make(folder: Path) -> None:
        root = copy_example(folder / "example")
        process.run([sys.executable, "-m", "build", "-o", folder / "dist", root], env_changes=isolated)
        assert [path.name for path in sorted((folder / "dist").glob("*.tar.gz"))] == ["torch_ext_example-0.1.0.tar.gz"]
        assert not (root / "build").exists()
        shutil.rmtree(root)

    return digest(once("reference", make) / "dist")


@pytest.mark.parametrize("front_end", ["hatch", "pip", "uv"])
def test_every_front_end_makes_the_same_bytes_as_build_from_the_sdist(
    front_end: str, example: Path, isolated: dict[str, str | None], reference: str, tmp_path: Path
) -> None:
    """``hatch build``, ``pip wheel`` and ``uv build`` from the tree equal ``python -m build`` by way of the sdist."""
    out = tmp_path / "out"
    commands: dict[str, list[str | Path]] = {
        "hatch": [sys.executable, "-m", "hatch", "build", "-t", "wheel", out],
        "pip": [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", out, "."],
        "uv": [uv.find_uv_bin(), "build", "--quiet", "--wheel", "-o", out, "."],
    }
    before = sorted(path for path in example.rglob("*") if path.is_file())
    process.run(commands[front_end], cwd=example, env_changes=isolated)
    assert digest(out) == reference
    after = sorted(
        path for path in example.rglob("*") if path.is_file() and "build" not in path.relative_to(example).parts
    )
    assert after == before


def test_an_editable_install_finds_the_library_and_every_submodule(
    example: Path, isolated: dict[str, str | None], torch_cpu_python: Path, tmp_path: Path
) -> None:
    """The sources stay as they are, the newest torch is built outside them, and each import works (hatch#1627)."""
    fresh = tmp_path / "env"
    process.run([torch_cpu_python, "-m", "venv", fresh])
    python = fresh / "bin" / "python"
    site = process.run([torch_cpu_python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).stdout
    (own,) = (fresh / "lib").glob("python*/site-packages")
    (own / "zz_torch.pth").write_text(site, encoding="utf-8")
    changes = {**isolated, "HATCH_TORCH_EXT_SKIP": None}
    process.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "-e", example], env_changes=changes)
    program = (
        "import torch, torch_ext_example, torch_ext_example.ops\n"
        "from torch_ext_example import _variants\n"
        "print(torch_ext_example.__file__)\n"
        "print(_variants.load().label)\n"
        "print(torch.ops.torch_ext_example.farthest_point_sampling(torch.rand(9, 3), 3).shape)"
    )
    lines = outside(python, "-c", program, cwd=tmp_path).stdout.splitlines()
    assert lines == [
        str(example / "src" / "torch_ext_example" / "__init__.py"),
        "stable2.10_cpu_x86_64",
        "torch.Size([3])",
    ]
    assert not list((example / "src").rglob("*.so"))
    assert not list((example / "src").rglob("_variants.py"))
    shown = outside(python, "-m", "torch_ext_example._variants", cwd=tmp_path).stdout
    assert "stable2.10_cpu_x86_64: chosen" in shown
