"""``--max-size``: which of a build's forms fits the limit of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def limit(text: str | None) -> int | None:
    """Return the limit of ``--max-size`` in bytes, or None if it is not given. Raises ``ConfigurationError``."""
    from hatch_torch_ext.config import kinds

    if text is None:
        return None
    try:
        return kinds.size(text)
    except ValueError as error:
        raise ConfigurationError([f"--max-size {error}"]) from error


def report(bound: int | None, forms: Mapping[str, Sequence[Path]]) -> int:
    """Print for each form whether its largest file fits; return 1 if the last form, that of the smallest, does not."""
    from hatch_torch_ext.facts.content import size

    if bound is None:
        return 0
    fits = False
    for form, paths in forms.items():
        largest = max(paths, key=lambda path: path.stat().st_size)
        fits = largest.stat().st_size <= bound
        verdict = "fits into" if fits else "over"
        terminal.say(
            f"{form}: the largest, {largest.name}, has {size(largest.stat().st_size)}: {verdict} {size(bound)}"
        )
    if not fits:
        terminal.complain("hatch-torch-ext: nothing fits: leave architectures or entries out, or compress device code")
    return 0 if fits else 1
