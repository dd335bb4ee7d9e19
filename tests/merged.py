"""One wheel of several, as `hatch-torch-ext merge` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.outlets import merging

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def merge_wheels(paths: Sequence[Path], *, out: Path) -> Path:
    """Merge the wheels at ``paths``, in any order, into one in the folder ``out``; return its path."""
    return merging.merge_by_machine(paths, out=out, each=False)[0]
