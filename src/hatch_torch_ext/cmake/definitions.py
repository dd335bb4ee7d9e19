"""The cache entries of the configure step: the prefix, the pinned Python and CUDA, the variables of the matrix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.cmake import package, surroundings, toolchainfile

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.values import Entry, Job

POLICY_FLOOR = "3.5"  # CMake 4 refuses projects that ask for less
LIBRARY_OF_PYTHON = (
    "import os, sysconfig as s; v = s.get_config_var; print(os.path.join(v('LIBDIR') or '', v('LDLIBRARY') or ''))"
)


def cache_entries(job: Job) -> tuple[str, ...]:
    """Return the ``-D`` arguments: this project's first, then the author's ``define``, which override them."""
    author = [f"-D{name}={value}" for name, value in job.config.cmake.define if name != package.BEFORE]
    ours = {
        "CMAKE_BUILD_TYPE": job.config.cmake.build_type,
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",  # for editors
        "CMAKE_INSTALL_PREFIX": job.prefix,
        "CMAKE_MAKE_PROGRAM": job.toolchain.ninja.path,
        **({"CMAKE_CXX_COMPILER": job.toolchain.cxx.path} if job.toolchain.target is None else {}),
        **toolchainfile.cache_entries(job),
        "CMAKE_POLICY_VERSION_MINIMUM": POLICY_FLOOR,
        "CMAKE_FIND_USE_PACKAGE_REGISTRY": "OFF",
        package.BEFORE: job.package / "TorchExtBefore.cmake",
        **_torch(job),
        **_python(job),
        **surroundings.cuda_cache_entries(job.toolchain),
        **matrix_variables(job.entry),
        "TORCH_EXT_STABLE_ABI": "ON" if job.entry.stable_abi else "OFF",
    }
    return (*(f"-D{name}={value}" for name, value in ours.items()), *author)


def matrix_variables(entry: Entry) -> dict[str, str]:
    """Return the matrix's variables by their names in CMake: ``cpu-only`` is ``TORCH_EXT_CPU_ONLY``."""
    return {f"TORCH_EXT_{re.sub('[^0-9A-Z]', '_', name.upper())}": value for name, value in entry.variables}


def _torch(job: Job) -> dict[str, Path]:
    if job.upstream:
        return {"Torch_DIR": job.torch / "share" / "cmake" / "Torch"}
    return {"Torch_DIR": job.package / "Torch", "Caffe2_DIR": job.package / "Caffe2"}


def _python(job: Job) -> dict[str, str | Path]:
    """Return the entry's Python under every name that CMake's modules, old and new, and pybind11 use."""
    environment, library = job.environment, _python_library(job)
    pinned: dict[str, str | Path] = {}
    for spelling in ("Python", "Python3"):
        pinned |= {
            f"{spelling}_EXECUTABLE": environment.python,
            f"{spelling}_ROOT_DIR": environment.prefix,
            f"{spelling}_INCLUDE_DIR": environment.interpreter.include,
            f"{spelling}_LIBRARY": library,
            f"{spelling}_FIND_STRATEGY": "LOCATION",
            f"{spelling}_FIND_VIRTUALENV": "FIRST",
        }
    return pinned | {
        "PYTHON_EXECUTABLE": environment.python,
        "PYTHON_INCLUDE_DIR": environment.interpreter.include,
        "PYTHON_LIBRARY": library,
        # Only if pybind11 uses the old modules; the rest of its old search starts at PYTHON_EXECUTABLE.
        "PYTHON_MODULE_EXTENSION": environment.interpreter.ext_suffix,
        "PYBIND11_PYTHON_EXECUTABLE_LAST": environment.python,
    }


def _python_library(job: Job) -> Path:
    """Return libpython, or an empty archive in its place: many Pythons have none, and modules do not need it."""
    library = job.package / "lib" / f"libpython{'.'.join(job.environment.interpreter.version.split('.')[:2])}.so"
    try:
        python = job.environment.python
        answer = "" if job.environment.cross else process.answer(python, "-I", "-c", LIBRARY_OF_PYTHON).strip()
    except ProcessError:
        answer = ""
    real = library.parent.joinpath(answer) if answer.endswith(".so") else None
    if real is not None and real.is_file():
        return real
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(b"!<arch>\n")  # every linker accepts an archive without members, under any name
    return library
