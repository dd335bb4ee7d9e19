"""The notation of sizes for people, the same everywhere."""

from __future__ import annotations


def size(count: int) -> str:
    """Return a number of bytes in readable form: ``312 kB``, ``4.1 MB``."""
    if count < 1000:  # noqa: PLR2004 - decimal units, as PyPI counts
        return f"{count} B"
    for factor, unit in ((1e3, "kB"), (1e6, "MB")):
        if count < factor * 1000:
            value = count / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"  # noqa: PLR2004 - two digits tell enough
    return f"{count / 1e9:.2f} GB"
