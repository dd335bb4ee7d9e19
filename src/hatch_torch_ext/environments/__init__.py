"""The only room that knows hatch: it reads matrices from hatch, and lets hatch make environments."""

from __future__ import annotations

from hatch_torch_ext.environments.around import InstalledTorch, adopt, installed_torch, installs, keeps_one, parent
from hatch_torch_ext.environments.machines import for_machine
from hatch_torch_ext.environments.making import of_entry, of_python, without_torch
from hatch_torch_ext.environments.program import ACTIVE, RECURSION
from hatch_torch_ext.environments.program import replace_home as replace_home
from hatch_torch_ext.environments.reading import read, remembered

__all__ = [
    "ACTIVE",
    "RECURSION",
    "InstalledTorch",
    "adopt",
    "for_machine",
    "installed_torch",
    "installs",
    "keeps_one",
    "of_entry",
    "of_python",
    "parent",
    "read",
    "remembered",
    "replace_home",
    "without_torch",
]
