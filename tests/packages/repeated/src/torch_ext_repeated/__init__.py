"""Loads what fits."""

from torch_ext_repeated import _variants

_variants.load()
