"""The name by which older editable installs find `base/locks.py`; see `tests/unit/test_contracts.py`."""

from hatch_torch_ext.base.locks import held

__all__ = ["held"]
