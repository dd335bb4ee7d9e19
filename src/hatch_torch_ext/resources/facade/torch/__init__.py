"""A small torch for CMake: answers what projects ask of torch when they are configured, and refuses the rest.

It is beside the headers of a thin SDK, and only the interpreter that CMake runs imports it.
"""

from torch import _C, cuda, utils, version
from torch._facts import FACTS
from torch._refuse import attributes_of
from torch._version_order import TorchVersion

__all__ = ["_C", "__version__", "compiled_with_cxx11_abi", "cuda", "utils", "version"]

__version__ = TorchVersion(version.__version__)


def compiled_with_cxx11_abi() -> bool:
    """Return whether this build of torch uses the C++ ABI of GCC 5 and later."""
    return bool(FACTS["cxx11_abi"])


__getattr__ = attributes_of(__name__)
