"""The operators give what plain torch gives, for every shape and element type that they take."""

from __future__ import annotations

import pytest
import reference
import torch

from torch_ext_example import farthest_point_sampling, squared_distance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 3), (10, 3), (255, 2), (1000, 3), (300, 17), (40, 1), (2, 257, 3), (3, 20, 5)])
def test_farthest_points_equal_plain_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The picks are those of the reference, index by index, also where all points are asked for."""
    points = torch.randn(shape, dtype=dtype)
    k = min(shape[-2], 64)
    assert torch.equal(farthest_point_sampling(points, k), reference.farthest_point_sampling(points, k))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_farthest_points_of_short_floats(dtype: torch.dtype) -> None:
    """float16 and bfloat16 are computed in float32."""
    points = torch.randn(500, 3).to(dtype)
    assert torch.equal(farthest_point_sampling(points, 32), reference.farthest_point_sampling(points.float(), 32))


def test_ties_go_to_the_lowest_index() -> None:
    """The corners of a square are equally far from each other, and equal points are all at distance zero."""
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    assert farthest_point_sampling(square, 5).tolist() == [0, 3, 1, 2, 0]
    assert farthest_point_sampling(torch.zeros(600, 3), 4).tolist() == [0, 0, 0, 0]


def test_points_without_dimensions() -> None:
    """Points of no coordinates are all the same point."""
    assert farthest_point_sampling(torch.empty(4, 0), 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("shape", "k", "result"), [((0, 3), 0, (0,)), ((5, 3), 0, (0,)), ((0, 9, 3), 4, (0, 4))])
def test_nothing_to_pick(shape: tuple[int, ...], k: int, result: tuple[int, ...]) -> None:
    """No points, no picks and no batch give an empty result of the right shape."""
    picks = farthest_point_sampling(torch.empty(shape), k)
    assert picks.shape == result
    assert picks.dtype == torch.int64


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_points_that_are_not_finite_are_left_out(value: float) -> None:
    """They are not picked, and picking point 0, which always is, tells nothing of the others when it is one."""
    points = torch.randn(50, 3)
    points[7, 1] = points[30, 0] = value
    finite = [i for i in range(50) if i not in {7, 30}]
    expected = [finite[i] for i in farthest_point_sampling(points[finite], 20)]
    assert farthest_point_sampling(points, 20).tolist() == expected
    points[0, 0] = value
    expected = [0] + [finite[1:][i] for i in farthest_point_sampling(points[finite[1:]], 19)]
    assert farthest_point_sampling(points, 20).tolist() == expected
    assert farthest_point_sampling(torch.full((4, 2), value), 3).tolist() == [0, 0, 0]


def test_any_strides() -> None:
    """Views that are not contiguous are read as what they show."""
    points = torch.randn(3, 400, 2).transpose(0, 2)
    assert not points.is_contiguous()
    assert torch.equal(farthest_point_sampling(points, 9), farthest_point_sampling(points.contiguous(), 9))
    other = torch.randn(2, 3, 30).mT
    assert torch.equal(squared_distance(points, other), squared_distance(points.contiguous(), other.contiguous()))


@pytest.mark.parametrize(
    ("a", "b"),
    [((5, 3), (7, 3)), ((100, 33), (65, 33)), ((2, 4, 3), (2, 31, 3)), ((2, 3, 4, 8), (2, 3, 5, 8)), ((4, 0), (2, 0))],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squared_distances_equal_plain_torch(a: tuple[int, ...], b: tuple[int, ...], dtype: torch.dtype) -> None:
    """Bit for bit: the additions are made in the same order."""
    left, right = torch.randn(a, dtype=dtype), torch.randn(b, dtype=dtype)
    assert torch.equal(squared_distance(left, right), reference.squared_distance(left, right))


@pytest.mark.parametrize(("a", "b"), [((0, 3), (7, 3)), ((4, 3), (0, 3)), ((0, 4, 3), (0, 5, 3))])
def test_no_distances(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Where one side is empty the result is, in the right shape."""
    assert squared_distance(torch.empty(a), torch.empty(b)).shape == (*a[:-1], b[-2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_squared_distances_of_short_floats(dtype: torch.dtype) -> None:
    """They are summed up in float32 and rounded once."""
    a, b = torch.randn(40, 24).to(dtype), torch.randn(50, 24).to(dtype)
    assert torch.equal(squared_distance(a, b), reference.squared_distance(a.float(), b.float()).to(dtype))
