"""Which NVIDIA driver runs which CUDA: one table of NVIDIA's published minimums.

Source: "CUDA Compatibility", minor version compatibility, and table 2 of the toolkit's release notes
(docs.nvidia.com/deploy/cuda-compatibility, docs.nvidia.com/cuda/cuda-toolkit-release-notes), November 2026. From CUDA
11 on, a driver that runs one minor of a major runs all of them; newer drivers run older CUDA.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Version: TypeAlias = tuple[int, ...]

MINIMUM_LINUX: tuple[tuple[Version, Version], ...] = (
    ((13, 0), (580,)),
    ((12, 0), (525, 60, 13)),
    ((11, 1), (450, 80, 2)),
    ((11, 0), (450, 36, 6)),
    ((10, 2), (440, 33)),
    ((10, 1), (418, 39)),
    ((10, 0), (410, 48)),
)
"""(the first CUDA version of the row, the lowest Linux driver), newest first."""

FIRST_WITH_MINOR_COMPATIBILITY = 11


def numbers(text: str) -> Version:
    """Return the numbers of a version (``580.65.06`` is (580, 65, 6)), or () if the text has none."""
    return tuple(int(digits[:9]) for digits in re.findall(r"[0-9]+", text))


def minimum(cuda: Version) -> Version | None:
    """Return the lowest Linux driver that runs programs of ``cuda``, or None for a CUDA older than the table.

    A CUDA newer than the table is taken to need at least the driver of the newest known one.
    """
    return next((driver for first, driver in MINIMUM_LINUX if cuda >= first), None)


def runs(cuda: Version, *, driver: Version | None, supported: Version | None) -> bool:
    """Return whether programs of ``cuda`` run.

    ``driver`` is the kernel driver's version; ``supported`` is the CUDA version that the user-mode driver reports
    (``cuDriverGetVersion``). It decides if it is known, since cuda-compat makes the user-mode driver newer than the
    kernel's.
    """
    if supported:
        same_major = cuda[0] == supported[0] and cuda[0] >= FIRST_WITH_MINOR_COMPATIBILITY
        return same_major or cuda[:2] <= supported[:2]
    lowest = minimum(cuda)
    return driver is not None and lowest is not None and driver >= lowest
