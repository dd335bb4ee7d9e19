"""The only room that knows hatch: it reads matrices from hatch, and lets hatch make environments."""

from __future__ import annotations

from hatch_torch_ext.environments.frontend import (
    InstalledTorch,
    installed_torch,
    installs,
    keeps_one_wheel,
    parent,
    set_variables,
)
from hatch_torch_ext.environments.machines import for_machine
from hatch_torch_ext.environments.making import of_entry, of_python, without_torch
from hatch_torch_ext.environments.program import ACTIVE, RECURSION
from hatch_torch_ext.environments.program import replace_home as replace_home
from hatch_torch_ext.environments.reading import read, read_cached

__all__ = [
    "ACTIVE",
    "RECURSION",
    "InstalledTorch",
    "for_machine",
    "installed_torch",
    "installs",
    "keeps_one_wheel",
    "of_entry",
    "of_python",
    "parent",
    "read",
    "read_cached",
    "replace_home",
    "set_variables",
    "without_torch",
]
