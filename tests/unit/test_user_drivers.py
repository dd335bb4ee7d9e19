"""Which driver runs which CUDA: every row of the table, and what is between and beyond."""

from __future__ import annotations

import pytest

from hatch_torch_ext.facts import releases
from hatch_torch_ext.user import drivers


@pytest.mark.parametrize(
    ("driver", "cuda", "runs"),
    [
        ("580.65.06", "13.0", True),
        ("580.65.06", "13.2", True),  # minor-version compatibility
        ("575.57.08", "13.0", False),
        ("575.57.08", "12.9", True),
        ("525.60.13", "12.0", True),
        ("525.60.13", "12.9", True),
        ("525.60.12", "12.0", False),
        ("520.61.05", "11.8", True),
        ("450.80.02", "11.8", True),
        ("450.51.06", "11.0", True),
        ("450.51.06", "11.1", False),
        ("440.33.01", "10.2", True),
        ("999.10", "14.0", True),  # a driver to come is taken as newer
        ("999.10", "11.8", True),
        ("410.47", "10.0", False),
    ],
)
def test_the_kernel_driver(driver: str, cuda: str, *, runs: bool) -> None:
    """Newer drivers run older CUDA; a driver that runs one minor of a major runs all of them, from 11 on."""
    assert drivers.runs(drivers.numbers(cuda), driver=drivers.numbers(driver), supported=None) is runs


@pytest.mark.parametrize(
    ("supported", "cuda", "runs"),
    [
        ((12, 4), "12.8", True),
        ((12, 4), "13.0", False),
        ((12, 4), "11.8", True),
        ((13, 0), "12.6", True),
        ((10, 1), "10.2", False),
        ((10, 2), "10.1", True),
    ],
)
def test_the_user_mode_driver_counts_where_it_is_known(supported: tuple[int, int], cuda: str, *, runs: bool) -> None:
    """With the cuda-compat package an old kernel driver runs a newer CUDA."""
    assert drivers.runs(drivers.numbers(cuda), driver=(450, 80, 2), supported=supported) is runs


def test_every_cuda_that_torch_was_built_for_has_a_minimum() -> None:
    """No build of torch is left without an answer."""
    for versions in releases.PUBLISHED_CUDA.values():
        for cuda in versions:
            lowest = drivers.minimum(drivers.numbers(cuda))
            assert lowest is not None
            assert drivers.runs(drivers.numbers(cuda), driver=lowest, supported=None)
