"""CUDA as a build machine sees it: no device is opened, so none is available."""

from typing import List

from torch._refuse import attributes_of


def is_available() -> bool:
    """Return False: a thin SDK cannot run anything, with or without a GPU."""
    return False


def device_count() -> int:
    """Return 0."""
    return 0


def get_arch_list() -> List[str]:
    """Return an empty list, as torch does if no GPU is available."""
    return []


__getattr__ = attributes_of(__name__)
