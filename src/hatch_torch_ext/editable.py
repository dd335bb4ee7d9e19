"""The name by which editable installs of before find `hooks/editable.py`; see `tests/unit/test_contracts.py`."""

from hatch_torch_ext.hooks.editable import main

__all__ = ["main"]
