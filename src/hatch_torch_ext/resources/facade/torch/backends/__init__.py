"""The backends that this build of torch was compiled for."""

from torch._refuse import attributes_of
from torch.backends import cuda

__all__ = ["cuda"]

__getattr__ = attributes_of(__name__)
