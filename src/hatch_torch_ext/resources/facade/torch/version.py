"""Stands for the wheel's own ``version.py``, which takes this one's place when the SDK is made."""

__version__ = "0"
debug = False
cuda = None
git_version = None
hip = None
