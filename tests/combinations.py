"""Every combination of the options of ``hatch-torch-ext init NAME``."""

from __future__ import annotations

import itertools

from hatch_torch_ext.init.fresh import Choices

COMBINATIONS = [
    Choices(cuda=cuda, module=module, stable=stable, jit=jit)
    for cuda, module, stable, jit in itertools.product((False, True), repeat=4)
]

BUILT = [
    Choices(cuda=False, module=True, stable=False, jit=False),
    Choices(cuda=True, module=False, stable=True, jit=True),
]
"""Each option with and without."""


def named(choices: Choices) -> str:
    """Return the options of a combination as a test's name."""
    chosen = [name for name in ("cuda", "module", "stable", "jit") if getattr(choices, name)]
    return "-".join(chosen) or "plain"
