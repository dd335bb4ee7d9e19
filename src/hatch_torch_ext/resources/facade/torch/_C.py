# ruff: noqa: N999 - torch's own name
"""The one constant of torch's C extension that projects ask for."""

from torch._facts import FACTS
from torch._refuse import attributes_of

_GLIBCXX_USE_CXX11_ABI = FACTS["cxx11_abi"]

__getattr__ = attributes_of(__name__)
