"""Files that an nvcc of a newer minor made, held against the CUDA runtime of their torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import elf
from hatch_torch_ext.audit import variants
from hatch_torch_ext.audit.findings import settle
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from trees import compile_library

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = "void cudaMalloc(void); void __cudaGetKernel(void); void f(void) { cudaMalloc(); __cudaGetKernel(); }"


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """Return a variant for a torch of CUDA 12.4 whose library takes two functions of a newer runtime."""
    versions = tmp_path / "cudart.map"
    versions.write_text("libcudart.so.12 { global: *; };\n", encoding="utf-8")
    runtime = compile_library(
        tmp_path / "libcudart.so.12",
        "void cudaMalloc(void) {} void __cudaGetKernel(void) {}",
        options=[f"-Wl,--version-script={versions}"],
    )
    library = compile_library(tmp_path / "label" / "libkernels.so", KERNELS, links=[runtime], options=["-s"])
    binary = AuditedBinary(place="label/libkernels.so", elf=elf.read(library))
    return Subject(variant="label", binaries=(binary,), ours=True, cuda="12.4")


def found(subject: Subject) -> list[tuple[str, str]]:
    """Return code and message of each finding."""
    return [(item.code, item.message) for item in settle(variants.check(subject))]


def test_functions_that_torchs_runtime_has(subject: Subject) -> None:
    """Neither a newer compiler is a fault by itself, nor one of torch's version whose runtime is not available."""
    has = frozenset({"cudaMalloc", "__cudaGetKernel", "cudaFree"})
    assert found(replace(subject, cuda_runtime=has, newer_nvcc="12.9")) == []
    assert found(subject) == []


@pytest.mark.performs("Compile with a toolkit of torch's own CUDA")
def test_functions_that_it_lacks(subject: Subject) -> None:
    """What nvcc calls by itself counts as well; the message names function and version, however it came about."""
    message = "needs __cudaGetKernel, which the runtime of torch's CUDA 12.4 does not have"
    for newer in ("12.9", None):
        lacking = replace(subject, cuda_runtime=frozenset({"cudaMalloc"}), newer_nvcc=newer)
        assert found(lacking) == [("cuda-runtime", message)]
    # As an nvcc of torch's own version compiles it: without the newer function.
    source = "void cudaMalloc(void); void f(void) { cudaMalloc(); }"
    folder = subject.binaries[0].elf.path.parent
    library = compile_library(folder / "libolder.so", source, links=[folder.parent / "libcudart.so.12"], options=["-s"])
    mended = AuditedBinary(place="label/libolder.so", elf=elf.read(library))
    torchs = frozenset({"cudaMalloc"})
    assert found(replace(subject, binaries=(mended,), cuda_runtime=torchs)) == []
    toolkits = frozenset({*torchs, "__cudaGetKernel"})
    assert found(replace(subject, cuda="12.9", cuda_runtime=toolkits)) == []


def test_a_runtime_that_is_not_at_hand_proves_nothing(subject: Subject) -> None:
    """Without the runtime, a newer compiler is refused: only the runtime shows which functions nvcc's calls need."""
    assert found(replace(subject, newer_nvcc="12.9")) == [
        (
            "cuda-runtime",
            "is compiled by CUDA 12.9, newer than torch's 12.4, and torch's runtime is not available to check for "
            "__cudaGetKernel, cudaMalloc",
        )
    ]
