"""A package with modules for several Pythons."""

from torch_ext_modules import _variants

_variants.load()
