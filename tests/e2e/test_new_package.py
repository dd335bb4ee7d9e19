"""A new package, with each of the options: it is built, installed beside torch, and its tests pass."""

from __future__ import annotations

import os
import re
import zipfile
from typing import TYPE_CHECKING

import pytest

from combinations import BUILT, named
from hatch_torch_ext.init import fresh

from .conftest import build, outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hatch_torch_ext.init.fresh import Choices

MACHINE = os.uname().machine


@pytest.mark.parametrize("choices", BUILT, ids=named)
def test_it_is_green_at_once(
    choices: Choices,
    store: Path,
    torch_cpu_python: Path,
    full_torch: Callable[[str], Path],
    beside: Callable[[Path, Path], Path],
    tmp_path: Path,
) -> None:
    """Nothing is changed but the number of GPU architectures, and one release of the matrix is built.

    A package with CUDA is tested with its CUDA variant under a CUDA torch, which needs no GPU for the CPU's kernels.
    """
    fresh.new("my-ops", tmp_path, choices).write()
    root = tmp_path / "my-ops"
    configured = root / "pyproject.toml"
    text = configured.read_text(encoding="utf-8")
    configured.write_text(text.replace('source = "csrc"\n', 'source = "csrc"\narchs = ["9.0"]\n'), encoding="utf-8")
    release = "2.15" if choices.cuda else "2.13"
    exact = choices.module or not choices.stable
    build(root, root / "dist", store, HATCH_TORCH_EXT_ONLY=f"matrix.*{release}*" if exact else "*")
    (wheel,) = (root / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as zipped:
        assert choices.jit == any(name.endswith("_torch_ext/sources/csrc/ops.cpp") for name in zipped.namelist())

    python = beside(full_torch("2.15.0") if choices.cuda else torch_cpu_python, wheel)
    done = outside(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", root / "tests", cwd=tmp_path)
    assert re.search(rf"^{3 + choices.module} passed in", done.stdout, re.MULTILINE), done.stdout
    loaded = outside(python, "-c", "from my_ops import _variants; print(_variants.load().label)", cwd=tmp_path).stdout
    if exact:
        label = f"torch{release}_{'cu13.2' if choices.cuda else 'cpu'}_cxx11_{MACHINE}{'_cp311' * choices.module}"
    else:
        label = f"stable2.11_cu13.0_{MACHINE}" if choices.cuda else f"stable2.10_cpu_{MACHINE}"
    assert loaded.split() == [label]
