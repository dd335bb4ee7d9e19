"""A PyTorch extension: one wheel for every torch."""

from fresh_package import _variants

_variants.load()  # registers torch.ops.fresh_package.*

from fresh_package.ops import muladd  # noqa: E402

__all__ = ["muladd"]
