"""CUDA architectures: torch's notation (``7.5``, ``9.0a``, ``9.0+PTX``, ``all``) -> flags for CMake and nvcc; pure.

In torch's notation an architecture means machine code, and ``+PTX`` adds PTX, which a newer driver can compile for GPUs
that did not exist yet. The suffix ``a`` limits the code to that architecture, ``f`` to its family.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NOTATION = re.compile(r"(?P<major>[1-9]\d?)\.(?P<minor>\d)(?P<suffix>[af]?)(?P<ptx>\+PTX)?", re.ASCII)

NEWEST = 999
"""Represents every later compute capability; the notation ends at 99.9."""

INTEGRATED = (53, 62, 72, 87, 101)
"""Compute capabilities of GPUs on one chip with the processor (Jetson, DRIVE) in a major that plug-in cards have too.

Neither kind runs machine code of the other (jax#40492 shows it for 8.0 on 8.7); PTX runs on both. torch has the same
table, DEVICE_REQUIREMENT in ``torch/cuda/__init__.py``. CUDA 13 calls 10.1 by the name 11.0.
"""

GROUPS = ("all", "all-major")
"""Words for what the nvcc in use supports. They are resolved here, so that the flags of CMake, torch and nvcc agree."""

TORCH_BUILDS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("11", ("3.7", "5.0", "6.0", "7.0", "7.5", "8.0", "8.6"), ("8.0",)),
    ("11.8", ("3.7", "5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0"), ("8.0",)),
    ("12", ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0"), ("8.0", "9.0")),
    ("12.8", ("7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0"), ("8.0", "9.0", "10.0", "12.0")),
    ("12.9", ("7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0"), ("8.0", "9.0", "10.0", "12.0")),
    ("13", ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0"), ("8.0", "9.0", "10.0", "11.0", "12.0")),
)
"""Architectures of torch's release wheels: (CUDA version, on x86-64, on aarch64). The longest matching version counts.

x86-64: read from ``libtorch_python.so`` (the result of ``torch.cuda.get_arch_list()``) of the wheels of 1.13.1 and
2.0.1 (11.7), 2.4.1 (12.1), 2.5.1 and 2.6.0 (12.4), 2.7.1 (12.6), 2.8.0 to 2.10.0 (12.8), 2.11.0 and 2.13.0 (13.0). The
fat binaries in ``libtorch_cuda.so`` of 2.4.1, 2.6.0, 2.8.0 to 2.11.0 and 2.15.0 agree: machine code of these for every
kernel, further ones (8.9, 9.0a, 10.0a, 12.1a) for a few, and no PTX.

aarch64 and 12.9: ``.ci/manywheel/build_cuda.sh`` of pytorch, without the ``+PTX`` that it appends to some.
"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Arch:
    """One architecture: ``number`` is 75 for 7.5; ``suffix`` is ``""``, ``a`` or ``f``.

    It means machine code; ``ptx`` asks for PTX as well. Architectures are ordered by number, then suffix.
    """

    number: int
    suffix: str = ""
    ptx: bool = False

    @property
    def code(self) -> str:
        """Return the number with its suffix, in nvcc's notation (``90a``)."""
        return f"{self.number}{self.suffix}"

    @property
    def name(self) -> str:
        """Return torch's notation (``9.0a+PTX``)."""
        return f"{self.number // 10}.{self.number % 10}{self.suffix}{'+PTX' if self.ptx else ''}"


def parse(text: str) -> Arch:
    """Return the architecture that ``text`` names in torch's notation.

    Raises ``ValueError`` for anything else, also for ``all`` and ``all-major``, which name several.
    """
    match = _NOTATION.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is not a CUDA architecture: write it as torch does, such as `8.0` or `9.0a+PTX`")
    number = int(match["major"]) * 10 + int(match["minor"])
    return Arch(number=number, suffix=match["suffix"], ptx=match["ptx"] is not None)


def from_nvcc(listing: str) -> tuple[int, ...]:
    """Return the numbers in the output of ``nvcc --list-gpu-code`` or ``--list-gpu-arch`` (``sm_75`` -> 75), sorted."""
    return tuple(sorted({int(number) for number in re.findall(r"\b(?:sm|compute)_(\d+)\b", listing, re.ASCII)}))


def longest_match(choices: Iterable[tuple[str, tuple[str, ...]]], cuda: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the pair of ``choices`` whose version (``""``, ``13``, ``12.8``) matches ``cuda`` (``12.8``) best."""
    fitting = [pair for pair in choices if pair[0] == "" or f"{cuda}.".startswith(f"{pair[0]}.")]
    return max(fitting, key=lambda pair: len(pair[0]), default=None)


def torch_build(cuda: str, machine: str) -> tuple[str, ...]:
    """Return the architectures of torch's release wheels for CUDA ``cuda``, () for a CUDA that the table lacks."""
    builds = [(version, aarch64 if machine == "aarch64" else x86_64) for version, x86_64, aarch64 in TORCH_BUILDS]
    match = longest_match(builds, cuda)
    return match[1] if match is not None else ()


def capabilities(name: str) -> tuple[int, ...]:
    """Return the first and the last compute capability (80 for 8.0) on which the code called ``name`` runs.

    Those in between on which it does not run come after them. Machine code runs on its major from its minor upward,
    except on integrated GPUs, whose code runs only on them; PTX runs on every newer capability. ``a`` limits either to
    one capability, ``f`` to one major.
    """
    arch = parse(name)
    if arch.ptx and not arch.suffix:
        return arch.number, NEWEST
    if arch.suffix == "a" or arch.number in INTEGRATED:
        return (101, 110, *range(102, 110)) if arch.code == "101" else (arch.number, arch.number)
    last = arch.number // 10 * 10 + 9
    return arch.number, last, *(number for number in INTEGRATED if arch.number < number <= last)


def runs(name: str, capability: int) -> bool:
    """Return whether the code called ``name`` runs on GPUs of the compute capability (80 for 8.0)."""
    first, last, *others = capabilities(name)
    return first <= capability <= last and capability not in others


def with_fallback(archs: Sequence[Arch]) -> tuple[Arch, ...]:
    """Return sorted ``archs``, with PTX of the newest one that is not limited to a family or an architecture.

    torch's wheels have no PTX, but each torch release is compiled again for new GPUs, while a variant serves torch
    builds that are newer than itself: of a later minor of CUDA and, on the stable ABI, of every later release.
    """
    newest = max((arch for arch in archs if not arch.suffix), default=None)
    return tuple(replace(arch, ptx=True) if arch == newest else arch for arch in archs)


def resolve(texts: Sequence[str], supported: Sequence[int]) -> tuple[Arch, ...]:
    """Return the architectures that ``texts`` ask for, merged and sorted; groups become those that nvcc supports.

    ``all`` and ``all-major`` have nvcc's meaning: machine code for each (or for the first of each major and the
    oldest), and PTX of the newest. A number outside of ``supported`` stays: see ``unsupported``.
    """
    chosen: list[Arch] = []
    for text in texts:
        if text in GROUPS:
            chosen += _group(text, supported)
        else:
            chosen.append(parse(text))
    merged: dict[tuple[int, str], Arch] = {}
    for arch in chosen:
        before = merged.get((arch.number, arch.suffix))
        ptx = arch.ptx or (before is not None and before.ptx)
        merged[arch.number, arch.suffix] = Arch(number=arch.number, suffix=arch.suffix, ptx=ptx)
    return tuple(sorted(merged.values()))


def _group(word: str, supported: Sequence[int]) -> list[Arch]:
    numbers = sorted(supported)
    if word == "all-major":
        numbers = [number for number in numbers if number % 10 == 0 or number == numbers[0]]
    newest = max((number for number in numbers if word == "all" or number % 10 == 0), default=None)
    return [Arch(number=number, ptx=number == newest) for number in numbers]


def unsupported(archs: Iterable[Arch], supported: Sequence[int]) -> tuple[Arch, ...]:
    """Return the architectures whose number this nvcc does not know (suffixes are checked by calling it)."""
    return tuple(arch for arch in archs if arch.number not in supported)


def cmake_value(archs: Iterable[Arch]) -> str:
    """Return the value of ``CMAKE_CUDA_ARCHITECTURES``: ``80-real;90`` for 8.0 and 9.0+PTX."""
    return ";".join(arch.code if arch.ptx else f"{arch.code}-real" for arch in archs)


def torch_value(archs: Iterable[Arch]) -> str:
    """Return the value of ``TORCH_CUDA_ARCH_LIST``."""
    return ";".join(arch.name for arch in archs)


def gencode(archs: Iterable[Arch]) -> tuple[str, ...]:
    """Return nvcc's arguments: one ``-gencode=arch=…,code=…`` for each piece of code."""
    flags = []
    for arch in archs:
        flags.append(f"-gencode=arch=compute_{arch.code},code=sm_{arch.code}")
        if arch.ptx:
            flags.append(f"-gencode=arch=compute_{arch.code},code=compute_{arch.code}")
    return tuple(flags)


def unused(configured: Sequence[tuple[str, tuple[str, ...]]], found: Iterable[tuple[str, ...]]) -> str | None:
    """Return a warning if the option ``archs`` had no effect: no variant (``found``: those of each) has CUDA code."""
    if not configured or any(found):
        return None
    return (
        "option `archs` had no effect: no variant holds CUDA code. Take it out, or compile CUDA sources "
        "(`enable_language(CUDA)`) in entries whose torch has CUDA"
    )
