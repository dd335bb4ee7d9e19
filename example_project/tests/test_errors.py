"""What the operators refuse, and what they say; the same words on every build."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from torch_ext_example import farthest_point_sampling, squared_distance

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS = torch.zeros(5, 3)
SHAPES = "squared_distance: a must be (..., N, D) and b (..., M, D) with the same leading dimensions, got "

REFUSED: list[tuple[Callable[[], Tensor], str]] = [
    (
        lambda: farthest_point_sampling(POINTS, 6),
        "farthest_point_sampling: k must be at most the number of points, 5, got 6",
    ),
    (
        lambda: farthest_point_sampling(POINTS[:0], 1),
        "farthest_point_sampling: k must be at most the number of points, 0, got 1",
    ),
    (lambda: farthest_point_sampling(POINTS, -1), "farthest_point_sampling: k must not be negative, got -1"),
    (
        lambda: farthest_point_sampling(POINTS[0], 1),
        "farthest_point_sampling: points must be (N, D) or (B, N, D), got (3,)",
    ),
    (
        lambda: farthest_point_sampling(POINTS.long(), 1),
        "farthest_point_sampling: points must be float32, float64, float16 or bfloat16",
    ),
    (
        lambda: squared_distance(POINTS, POINTS[:, :2]),
        SHAPES + "(5, 3) and (5, 2)",
    ),
    (
        lambda: squared_distance(POINTS[None], POINTS),
        SHAPES + "(1, 5, 3) and (5, 3)",
    ),
    (
        lambda: squared_distance(POINTS, POINTS.double()),
        "squared_distance: a and b must have one dtype and be on one device",
    ),
    (
        lambda: squared_distance(POINTS.int(), POINTS.int()),
        "squared_distance: a and b must be float32, float64, float16 or bfloat16",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refused(call: Callable[[], Tensor], message: str) -> None:
    """A wrong argument is an error that says what was expected and what came; its type is torch's (see shapes.h)."""
    with pytest.raises((ValueError, RuntimeError), match=f"^{re.escape(message)}"):
        call()
