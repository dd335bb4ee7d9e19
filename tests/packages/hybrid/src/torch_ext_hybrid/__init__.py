"""A package whose wheel outlives torch's releases."""

from torch_ext_hybrid import _variants

loaded = _variants.load()
