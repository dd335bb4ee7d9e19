"""Every combination of the options of ``hatch-torch-ext init NAME``."""

from __future__ import annotations

import itertools

from hatch_torch_ext.init.fresh import Choices

COMBINATIONS = [
    Choices(cuda=cuda, module=module, stable=stable, jit=jit)
    for cuda, module, stable, jit in itertools.product((False, True), repeat=4)
]

IN_PAIRS = [each for each in COMBINATIONS if [each.cuda, each.module, each.stable, each.jit].count(True) in (0, 3)]
"""Five, in which each two options are met with, with one of them, and without."""


def named(choices: Choices) -> str:
    """Return the options of a combination as a test's name."""
    chosen = [name for name in ("cuda", "module", "stable", "jit") if getattr(choices, name)]
    return "-".join(chosen) or "plain"
