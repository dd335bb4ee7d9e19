"""Which NVIDIA driver runs which CUDA: one table, from NVIDIA's published minimums.

Source: "CUDA Compatibility", minor version compatibility, and table 2 of the toolkit's release notes
(docs.nvidia.com/deploy/cuda-compatibility, docs.nvidia.com/cuda/cuda-toolkit-release-notes), November 2026.
From CUDA 11 on a driver that runs one minor of a major runs all of them; newer drivers run older CUDA.
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
"""(the first CUDA version that the row is about, the lowest driver for Linux), newest first."""

FIRST_WITH_MINOR_COMPATIBILITY = 11

NEWEST_OF_MAJOR: dict[int, int] = {10: 2, 11: 8, 12: 9}
"""The last minor of each CUDA major that has ended."""


def numbers(text: str) -> Version:
    """Return the numbers of a version: ``580.65.06`` is (580, 65, 6). () where there are none."""
    return tuple(int(digits[:9]) for digits in re.findall(r"[0-9]+", text))


def minimum(cuda: Version) -> Version | None:
    """Return the lowest Linux driver that runs programs of ``cuda``; None for a CUDA older than the table.

    A CUDA that is younger than the table asks for at least what the newest known one does.
    """
    return next((driver for first, driver in MINIMUM_LINUX if cuda >= first), None)


def runs(cuda: Version, *, driver: Version | None, supported: Version | None) -> bool:
    """Say whether programs of ``cuda`` run.

    ``driver`` is the kernel driver's version; ``supported`` what the user-mode driver says that it supports
    (``cuDriverGetVersion``), which counts where it is known: with cuda-compat it is newer than the kernel's.
    """
    if supported:
        same_major = cuda[0] == supported[0] and cuda[0] >= FIRST_WITH_MINOR_COMPATIBILITY
        return same_major or cuda[:2] <= supported[:2]
    lowest = minimum(cuda)
    return driver is not None and lowest is not None and driver >= lowest


def newest_for(driver: Version) -> Version | None:
    """Return the newest CUDA whose programs a kernel driver runs, as far as the table knows; None below all of it."""
    for first, lowest in MINIMUM_LINUX:
        if driver >= lowest:
            return (first[0], NEWEST_OF_MAJOR.get(first[0], first[1])) if first[0] > 10 else first  # noqa: PLR2004
    return None
