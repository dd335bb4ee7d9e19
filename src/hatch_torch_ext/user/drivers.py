"""Which driver or card runs which of torch's builds: NVIDIA's published minimums, and AMD's architectures.

Source: "CUDA Compatibility", minor version compatibility, and table 2 of the toolkit's release notes
(docs.nvidia.com/deploy/cuda-compatibility, docs.nvidia.com/cuda/cuda-toolkit-release-notes), November 2026. From CUDA
11 on, a driver that runs one minor of a major runs all of them; newer drivers run older CUDA.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

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

ROCM = ("7.2", "7.1", "7.0", "6.4", "6.3", "6.2.4", "6.2", "6.1", "6.0")
"""The versions of ROCm that torch was built for, newest first."""
ROCM_BUILDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gfx900", ROCM),
    ("gfx906", ROCM),
    ("gfx908", ROCM),
    ("gfx90a", ROCM),
    ("gfx942", ROCM),
    ("gfx950", ROCM[:3]),
    ("gfx1030", ROCM),
    ("gfx1100", ROCM),
    ("gfx1101", (*ROCM[:6], "6.1")),
    ("gfx1102", ROCM[:6]),
    ("gfx1150", ROCM[:1]),
    ("gfx1151", ROCM[:1]),
    ("gfx1200", ROCM[:6]),
    ("gfx1201", ROCM[:6]),
)
"""The architectures of AMD's GPUs, and the versions of ROCm whose builds of torch have code for each.

As ``torch.cuda.get_arch_list()`` of these builds prints them; a test compares the table with uv's.
"""


def numbers(text: str) -> Version:
    """Return the numbers of a version (``580.65.06`` is (580, 65, 6)), or () if the text has none."""
    return tuple(int(digits[:9]) for digits in re.findall(r"[0-9]+", text))


def minimum(cuda: Version) -> Version | None:
    """Return the lowest Linux driver that runs programs of ``cuda``, or None for a CUDA older than the table.

    A CUDA newer than the table is taken to need at least the driver of the newest known one.
    """
    return next((driver for first, driver in MINIMUM_LINUX if cuda >= first), None)


def rocm(architectures: Iterable[str]) -> tuple[str, ...]:
    """Return the versions of ROCm whose builds of torch run on the first of the known ``architectures``, newest first.

    Of several GPUs the one counts that comes first in the table, the oldest, as for uv.
    """
    here = set(architectures)
    return next((versions for architecture, versions in ROCM_BUILDS if architecture in here), ())


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
