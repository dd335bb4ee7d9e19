"""The functions of the CUDA runtime that kernels call: torch's runtime must have them, and it may be an older minor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, finding, some
from hatch_torch_ext.facts import sonames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.audit.subject import AuditedBinary, Subject

RUNTIME = "libcudart"


def check(subject: Subject) -> Iterator[Finding]:
    """Compare the runtime functions that every file uses with those that torch's runtime has."""
    for binary in subject.binaries:
        taken = _taken(binary)
        if not taken:
            continue
        if subject.cuda_runtime is not None:
            missing = [symbol for symbol in taken if symbol not in subject.cuda_runtime]
            message = f"needs {some(missing)}, which the runtime of torch's CUDA {subject.cuda} does not have"
        elif subject.newer_nvcc is not None:
            # No list of functions can replace the runtime: torch's CUDA headers lack functions that nvcc itself calls.
            missing = taken
            message = (
                f"is compiled by CUDA {subject.newer_nvcc}, newer than torch's {subject.cuda}, and torch's runtime is "
                f"not available to check for {some(taken)}"
            )
        else:
            continue
        if missing:
            yield finding("cuda-runtime", binary.place, message, variant=subject.variant)


def _taken(binary: AuditedBinary) -> list[str]:
    """Return the functions of the shared CUDA runtime that the file needs: they are those with its version."""
    return sorted(symbol for symbol, version in binary.elf.symbol_versions if sonames.stem(version) == RUNTIME)
