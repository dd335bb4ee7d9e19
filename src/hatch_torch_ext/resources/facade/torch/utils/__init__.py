"""The place of torch's CMake package."""

from pathlib import Path

from torch._refuse import attributes_of

cmake_prefix_path = str(Path(__file__).parent.parent / "share" / "cmake")

__getattr__ = attributes_of(__name__)
