"""A package whose modules serve every Python from 3.9 on."""

from torch_ext_limited import _variants

loaded = _variants.load()
