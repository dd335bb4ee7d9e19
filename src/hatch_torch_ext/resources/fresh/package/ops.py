"""The operator for Python: its signature, and what torch.compile and autograd need to know about it."""

from typing import Any, Tuple

import torch
from torch import Tensor

_ops = torch.ops.fresh_package


def muladd(a: Tensor, b: Tensor, c: float) -> Tensor:
    """Return ``a * b + c``, element by element; ``a`` and ``b`` are float32 tensors of one shape."""
    return _ops.muladd(a, b, c)


@torch.library.register_fake("fresh_package::muladd")
def _fake(a: Tensor, b: Tensor, c: float) -> Tensor:
    torch._check(a.shape == b.shape, lambda: "muladd: a and b must have the same shape")
    return torch.empty_like(a)


def _save(ctx: Any, inputs: Tuple[Tensor, Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])


def _backward(ctx: Any, grad: Tensor) -> Tuple[Any, Any, None]:
    a, b = ctx.saved_tensors
    return grad * b, grad * a, None


torch.library.register_autograd("fresh_package::muladd", _backward, setup_context=_save)
