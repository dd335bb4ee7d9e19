"""The checks of checks.py under pytest, on a machine with a CUDA device and the example's wheel."""

from __future__ import annotations

import sys
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = (
    "picks_equal_the_cpus",
    "ties_and_nan_equal_the_cpus",
    "distances_equal_the_cpus",
    "any_strides",
    "errors_are_the_cpus",
    "opcheck",
    "gradients",
    "compiled",
    "side_stream",
    "cuda_graph",
    "deterministic",
    "torchscript",
    "import_does_not_start_cuda",
)


@pytest.fixture(scope="module")
def checks() -> dict[str, Callable[[], str]]:
    """Return the checks by name; skip with what is missing."""
    for package in ("torch", "torch_ext_example"):
        if util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed here")
    if not import_module("torch").cuda.is_available():
        pytest.skip("no CUDA device here")
    sys.path.insert(0, str(Path(__file__).parent))
    return {check.__name__: check for check in import_module("checks").CHECKS}


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_check(name: str, checks: dict[str, Callable[[], str]]) -> None:
    """Each check of the example on the device holds; its docstring in checks.py says what it shows."""
    checks[name]()


@pytest.mark.gpu
def test_every_check_is_run(checks: dict[str, Callable[[], str]]) -> None:
    """The names above are those of checks.py."""
    assert tuple(checks) == NAMES
