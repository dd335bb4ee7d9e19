"""Whether this build of torch was compiled for CUDA."""

from torch import version
from torch._refuse import attributes_of


def is_built() -> bool:
    """Return whether torch was built for CUDA or ROCm, whatever this machine has."""
    return version.cuda is not None or version.hip is not None


__getattr__ = attributes_of(__name__)
