"""Libraries: who brings which, what is bundled that must not be, what is missing, and OpenMP once alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hatch_torch_ext import policy
from hatch_torch_ext.audit.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hatch_torch_ext.audit.subject import Binary, Subject

_TORCH = re.compile(r"lib(torch(_(cpu|cuda|cuda_cpp|cuda_cu|cuda_linalg|python|global_deps|hip|xpu|nvshmem))?|c10(_(cuda|hip|xpu))?|shm|caffe2\w*)")
_CUDA = re.compile(
    r"lib(cudart|cublas|cublasLt|nvblas|cudnn\w*|cufft|cufftw|cufile\w*|curand|cusolver|cusolverMg|cusparse|cusparseLt|nccl"
    r"|nvrtc|nvrtc-builtins|nvJitLink|nvToolsExt|nvtx\w*|cupti|nvperf\w*|nvshmem\w*|cuda|nvidia-ml|nvvm)"
)
_OPENMP = re.compile(r"lib(gomp|omp|iomp5)")
# The CUDA driver comes with the user's card.
_DRIVER = re.compile(r"lib(cuda|nvidia-ml)\.so\.1")
_PYTHON = re.compile(r"libpython\d[\w.]*\.so[\d.]*")


def stem(name: str) -> str:
    """Return a library's name without version and without the hash of a repair tool: ``libcudart-d0da41ae.so.11.0`` -> ``libcudart``."""
    base = name.partition(".so")[0]
    return re.sub(r"[-.][0-9a-f]{8,}$", "", base)


def is_torch(name: str) -> bool:
    """Say whether a library name is one of torch's own."""
    return _TORCH.fullmatch(stem(name)) is not None


def is_cuda(name: str) -> bool:
    """Say whether a library name is one that torch's nvidia wheels or the driver bring."""
    return _CUDA.fullmatch(stem(name)) is not None


def is_openmp(name: str) -> bool:
    """Say whether a library name is an OpenMP runtime."""
    return _OPENMP.fullmatch(stem(name)) is not None


def is_system(name: str, machine: str, needed: Sequence[str]) -> bool:
    """Say whether every system that the manylinux or musllinux policies name has the library.

    ``machine`` and ``needed`` are those of the file that needs it: they say which C library is meant.
    """
    lowest = policy.lowest(machine, policy.libc_of(needed) or "glibc", ())
    return lowest.brings(name) or _DRIVER.fullmatch(name) is not None


def check(subject: Subject) -> Iterator[Finding]:
    """Find bundled torch, CUDA and OpenMP, libraries that nobody brings, and libpython."""
    own = subject.own_names
    for binary in subject.binaries:
        yield from _bundled(binary, subject)
        missing = []
        for name in binary.elf.needed:
            if _PYTHON.fullmatch(name):
                yield finding("libpython", binary.place, f"needs {name}", variant=subject.variant)
            elif not (name in own or name in subject.provided or _brought(name, binary)):
                missing.append(name)
        if missing:
            message = f"needs {', '.join(missing)}: not in the wheel, not of torch or its requirements, not of the system"
            yield finding("missing-library", binary.place, message, variant=subject.variant)
    yield from _openmp(subject)


def _brought(name: str, binary: Binary) -> bool:
    return is_system(name, binary.elf.machine, binary.elf.needed) or is_torch(name) or is_cuda(name) or is_openmp(name)


def _bundled(binary: Binary, subject: Subject) -> Iterator[Finding]:
    names = {binary.name, binary.elf.soname or binary.name}
    if any(is_torch(name) for name in names):
        yield finding("bundled-torch", binary.place, "is a library of torch itself", variant=subject.variant)
    elif any(is_cuda(name) for name in names):
        yield finding("bundled-cuda", binary.place, "is a library of CUDA", variant=subject.variant)
    elif any(is_openmp(name) for name in names):
        message = "is an OpenMP runtime beside torch's own: threads are started twice, or pinned to one core"
        yield finding("openmp-twice", binary.place, message, variant=subject.variant)


def _openmp(subject: Subject) -> Iterator[Finding]:
    """Find needs for an OpenMP runtime that is not the one which torch brings, and two in one variant."""
    users: dict[str, str] = {}
    for binary in subject.binaries:
        for name in binary.elf.needed:
            if is_openmp(name):
                users.setdefault(name, binary.place)
    theirs = sorted(name for name in subject.provided if is_openmp(name))
    for name, place in sorted(users.items()):
        if theirs and name not in theirs:
            message = f"needs {name}, but the OpenMP runtime of this torch is {', '.join(theirs)}"
            yield finding("openmp-twice", place, message, variant=subject.variant)
    kinds = {stem(name): name for name in users}
    if not theirs and len(kinds) > 1:
        message = f"needs {' and '.join(sorted(kinds.values()))} in one process"
        yield finding("openmp-twice", sorted(users.values())[0], message, variant=subject.variant)
