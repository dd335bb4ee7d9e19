"""The operators for Python: signatures, and what torch.compile and autograd need to know about them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ops = torch.ops.torch_ext_example


def farthest_point_sampling(points: Tensor, k: int) -> Tensor:
    """Pick ``k`` points, each as far as can be from those picked before.

    ``points`` is ``(N, D)`` or ``(B, N, D)``, float32, float64, float16 or bfloat16; the result is ``(k)`` or
    ``(B, k)``, int64. The first pick is point 0. Where several points are equally far, the one with the lowest index
    is picked; CPU and CUDA pick the same. A point with a NaN or infinite coordinate is never picked after the first,
    and no other point is near it; where no point is left, 0 is picked. ``0 <= k <= N``, else ``ValueError``
    (``RuntimeError`` where the variant on the stable ABI runs in torch 2.15 or newer).
    """
    return _ops.farthest_point_sampling(points, k)


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Return the squared Euclidean distance of each point of ``a`` to each point of ``b``.

    ``a`` is ``(..., N, D)`` and ``b`` is ``(..., M, D)``, of one dtype (float32, float64, float16, bfloat16) and with
    the same leading dimensions; the result is ``(..., N, M)`` in that dtype, summed up in float32 or wider.
    Differentiable any number of times.
    """
    return _ops.squared_distance(a, b)


def _farthest_point_sampling_fake(points: Tensor, k: int) -> Tensor:
    torch._check(points.dim() in (2, 3), lambda: "farthest_point_sampling: points must be (N, D) or (B, N, D)")
    return points.new_empty((*points.shape[:-2], k), dtype=torch.int64)


def _squared_distance_fake(a: Tensor, b: Tensor) -> Tensor:
    torch._check(a.dim() == b.dim() and a.dim() >= 2, lambda: "squared_distance: a is (..., N, D), b is (..., M, D)")
    return a.new_empty((*a.shape[:-1], b.shape[-2]))


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _squared_distance_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    grad_a = grad_b = None
    if ctx.needs_input_grad[0]:
        grad_a = 2 * (a * grad.sum(-1).unsqueeze(-1) - grad @ b)
    if ctx.needs_input_grad[1]:
        grad_b = 2 * (b * grad.sum(-2).unsqueeze(-1) - grad.mT @ a)
    return grad_a, grad_b


def _register() -> None:
    torch.library.register_fake("torch_ext_example::farthest_point_sampling", _farthest_point_sampling_fake)
    torch.library.register_fake("torch_ext_example::squared_distance", _squared_distance_fake)
    torch.library.register_autograd(
        "torch_ext_example::squared_distance", _squared_distance_backward, setup_context=_save
    )


if not hasattr(_ops, "python_side"):  # this file may be imported under a second name; torch refuses a second time
    _register()
    _ops.python_side = _register
