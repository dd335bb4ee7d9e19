"""The operators in plain torch: slow, obvious, and exact in the same order of additions as the kernels."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Sum one dimension after the other, as the kernels do."""
    total = a.new_zeros((*a.shape[:-1], b.shape[-2]))
    for d in range(a.shape[-1]):
        total = total + (a[..., :, None, d] - b[..., None, :, d]) ** 2
    return total


def farthest_point_sampling(points: Tensor, k: int) -> Tensor:
    """Pick the lowest of the farthest points, ``k`` times."""
    if points.dim() == 3:
        picks = [farthest_point_sampling(item, k) for item in points]
        return torch.stack(picks) if picks else torch.empty((0, k), dtype=torch.int64)
    nearest = torch.full(points.shape[:1], torch.inf, dtype=points.dtype)
    picks = [0] * min(k, 1)
    while len(picks) < k:
        distance = squared_distance(points, points[picks[-1]][None])[:, 0]
        nearest = torch.minimum(nearest, distance)
        picks.append(int((nearest == nearest.max()).nonzero()[0]))
    return torch.tensor(picks, dtype=torch.int64)
