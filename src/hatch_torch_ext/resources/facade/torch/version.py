"""A placeholder for the wheel's own ``version.py``, which replaces it when the SDK is made."""

from typing import Optional

__version__ = "0"
debug = False
cuda: Optional[str] = None
git_version: Optional[str] = None
hip: Optional[str] = None
