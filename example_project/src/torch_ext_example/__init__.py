"""Farthest point sampling and squared distances for PyTorch, on the CPU and on CUDA devices."""

from . import _variants

_variants.load()  # registers torch.ops.torch_ext_example.*

from .ops import farthest_point_sampling, squared_distance  # noqa: E402

__all__ = ["farthest_point_sampling", "squared_distance"]
