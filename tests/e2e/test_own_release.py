"""Our own release, as the workflow makes it: installed from a folder of wheels, it builds the README's example."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest
import uv

from hatch_torch_ext import __version__
from hatch_torch_ext.base import process

from .conftest import PROJECT, install, outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Beside = Callable[[Path, Path], Path]

OPERATOR = """
#include <torch/library.h>
int64_t one() { return 1; }
TORCH_LIBRARY(my_pkg, m) { m.def("one() -> int", one); }
"""


def readme(root: Path) -> None:
    """Write the files of the README's example into ``root``, for one torch, with the source that it names."""
    blocks = re.findall(r"```\w+\n# ([\w./]+).*?\n(.*?)```", (PROJECT / "README.md").read_text("utf-8"), re.DOTALL)
    files = {name: text for name, text in blocks if name in {"pyproject.toml", "csrc/CMakeLists.txt", INIT}}
    assert len(files) == 3
    for name, text in {**files, "csrc/my_ops.cpp": OPERATOR}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text.replace('["2.8", "2.9", "2.13"]', '["2.13"]'), encoding="utf-8")


INIT = "src/my_pkg/__init__.py"


@pytest.mark.slow
def test_the_readmes_example_builds_from_the_release(
    tmp_path: Path, store: Path, torch_cpu_python: Path, beside: Beside
) -> None:
    """The wheel and the sdist of this version; the wheel alone, with what it requires, in a fresh environment.

    The wheel that it builds there is loaded beside a real torch.
    """
    dist = tmp_path / "dist"
    process.run([sys.executable, "-m", "hatchling", "build", "-d", dist], cwd=PROJECT)
    names = sorted(path.name for path in dist.iterdir())
    assert names == [f"hatch_torch_ext-{__version__}-py3-none-any.whl", f"hatch_torch_ext-{__version__}.tar.gz"]
    environment = tmp_path / "environment"
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, environment])
    install(environment / "bin" / "python", "--find-links", dist, f"hatch-torch-ext[build]=={__version__}", deps=True)
    project = tmp_path / "project"
    readme(project)
    process.run(
        [environment / "bin" / "hatch-torch-ext", "build", "-d", tmp_path / "out"],
        cwd=project,
        env_changes={"HATCH_TORCH_EXT_CACHE": str(store), "PYTHONPATH": None},
    )
    (wheel,) = (tmp_path / "out").glob("my_pkg-1.0-py3-none-manylinux_*.whl")
    python = beside(torch_cpu_python, wheel)
    program = "import my_pkg, torch; print(torch.ops.my_pkg.one())"
    assert outside(python, "-c", program, cwd=tmp_path).stdout.strip() == "1"
