"""Asks torch for CUDA's handles."""

from torch_ext_context import _variants

loaded = _variants.load()
