"""CMake's settings for the entry's CUDA toolkit, or for having none; and the message when CMake asks for it then."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ToolchainError
from hatch_torch_ext.facts import archs

if TYPE_CHECKING:
    from hatch_torch_ext.values import Entry, Toolchain

NO_TOOLKIT = Path("/no-cuda-toolkit-for-this-entry")
"""Given to CMake for every place that it searches: it then finds no other toolkit, and its error contains this."""

_LONGEST_ERROR = 1000  # characters of output within which an error's own sentence has ended

_LEFT_OUT = re.compile(r"target \S+ lists \S+, but the project does not enable CUDA")
"""The refusal of ``TorchExtFinish.cmake``."""

CUDA_VARIABLES = ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "CUDA_BIN_PATH", "CUDAARCHS", "CUDAHOSTCXX")
"""Environment variables by which CMake and projects find a toolkit."""


def cache_entries(toolchain: Toolchain) -> dict[str, str]:
    """Return the cache entries for CUDA, in every spelling that CMake and projects know.

    ``TorchExt_CUDA_*`` are for ``TorchExtCuda.cmake``, which applies them to the project.
    """
    if toolchain.cuda is None:
        return {
            "CMAKE_CUDA_COMPILER": "NOTFOUND",  # read by check_language(CUDA)
            "CUDAToolkit_ROOT": os.fspath(NO_TOOLKIT),
            "CUDA_TOOLKIT_ROOT_DIR": os.fspath(NO_TOOLKIT),
            "CUDA_NVCC_EXECUTABLE": os.fspath(NO_TOOLKIT / "bin" / "nvcc"),
        }
    cuda = toolchain.cuda
    host = os.fspath(cuda.host)
    cmake_archs = archs.cmake_value(cuda.archs)
    nvcc_flags = ";".join([*archs.gencode(cuda.archs), *cuda.flags])
    return {
        "CMAKE_CUDA_COMPILER": os.fspath(cuda.nvcc.path),
        "CUDAToolkit_ROOT": os.fspath(cuda.root),
        "CUDA_TOOLKIT_ROOT_DIR": os.fspath(cuda.root),
        "CUDA_NVCC_EXECUTABLE": os.fspath(cuda.nvcc.path),
        "CMAKE_CUDA_HOST_COMPILER": host,
        "CUDA_HOST_COMPILER": host,
        "CMAKE_CUDA_ARCHITECTURES": cmake_archs,
        "TORCH_CUDA_ARCH_LIST": archs.torch_value(cuda.archs),
        "CUDA_NVCC_FLAGS": nvcc_flags,
        "CMAKE_CUDA_RUNTIME_LIBRARY": "Shared",
        "CUDA_USE_STATIC_CUDA_RUNTIME": "OFF",
        "TorchExt_CUDA_ARCHITECTURES": cmake_archs,
        "TorchExt_CUDA_GENCODE": ";".join(archs.gencode(cuda.archs)),
        "TorchExt_CUDA_FLAGS": ";".join(cuda.flags),
    }


def env_changes(toolchain: Toolchain) -> dict[str, str | None]:
    """Return the changes to the environment in which CMake and the compilers run (None removes a name)."""
    changes: dict[str, str | None] = dict.fromkeys(CUDA_VARIABLES)
    if toolchain.cuda is None:
        return changes | {"CUDACXX": os.fspath(NO_TOOLKIT / "bin" / "nvcc")}
    root = os.fspath(toolchain.cuda.root)
    return changes | {
        "CUDACXX": os.fspath(toolchain.cuda.nvcc.path),
        "CUDA_HOME": root,
        "CUDA_PATH": root,
        "TORCH_CUDA_ARCH_LIST": archs.torch_value(toolchain.cuda.archs),
    }


def complaint(entry: Entry, toolchain: Toolchain, output: str) -> ToolchainError | None:
    """Return our own error if CMake failed (``output``) because it needs CUDA and there is no toolkit, else None."""
    if toolchain.cuda is not None or not any(_about_cuda(text) for text in output.split("CMake Error")[1:]):
        return None
    problem = toolchain.cuda_problem or "CMake asks for CUDA, but this entry has no toolkit"
    if (found := _LEFT_OUT.search(" ".join(output.split()))) is not None:
        problem = (
            f"{found[0]}, and CMake would leave the file out. For a variant without CUDA, give the entry "
            f'`cuda = ["cpu"]` in the matrix. For one with CUDA: {problem}'
        )
    return ToolchainError(entry.name, problem)


def _about_cuda(error: str) -> bool:
    """Return whether an error of CMake's is from a search that ended at ``NO_TOOLKIT``; warnings may contain it too."""
    sentence = error.partition("Call Stack")[0][:_LONGEST_ERROR]
    # FindCUDA searches PATH too, but fails when it asks for the version.
    return NO_TOOLKIT.name in sentence or "Could NOT find CUDA" in sentence
