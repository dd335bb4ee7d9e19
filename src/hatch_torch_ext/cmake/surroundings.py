"""What CMake, compilers and the interpreter get: cache entries, environment, settings for CUDA or for having none."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError, ToolchainError
from hatch_torch_ext.cmake import launchers, package, toolchainfile
from hatch_torch_ext.facts import archs, project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hatch_torch_ext.values import Entry, Setup, Toolchain

NO_TOOLKIT = Path("/no-cuda-toolkit-for-this-entry")
"""Given to CMake for every place that it searches: it then finds no other toolkit, and its error contains this."""

_LONGEST_ERROR = 1000  # characters of output within which an error's own sentence has ended

_LEFT_OUT = re.compile(r"target \S+ lists \S+, but the project does not enable CUDA")
"""The refusal of ``TorchExtFinish.cmake``."""

CUDA_VARIABLES = ("CUDACXX", "CUDA_HOME", "CUDA_PATH", "CUDA_BIN_PATH", "CUDAARCHS", "CUDAHOSTCXX")
"""Environment variables by which CMake and projects find a toolkit."""


def cuda_cache_entries(toolchain: Toolchain) -> dict[str, str]:
    """Return the cache entries for CUDA, in every spelling that CMake and projects know.

    ``TorchExt_CUDA_*`` are for ``TorchExtCuda.cmake``, which applies them to the project.
    """
    if toolchain.toolkit is None:
        return {
            "CMAKE_CUDA_COMPILER": "NOTFOUND",  # read by check_language(CUDA)
            "CUDAToolkit_ROOT": os.fspath(NO_TOOLKIT),
            "CUDA_TOOLKIT_ROOT_DIR": os.fspath(NO_TOOLKIT),
            "CUDA_NVCC_EXECUTABLE": os.fspath(NO_TOOLKIT / "bin" / "nvcc"),
        }
    cuda = toolchain.toolkit
    host = os.fspath(cuda.host)
    cmake_archs = archs.cmake_value(cuda.archs)
    nvcc_flags = ";".join([*archs.gencode(cuda.archs), *cuda.flags])
    return {
        "CMAKE_CUDA_COMPILER": os.fspath(cuda.compiler.path),
        "CUDAToolkit_ROOT": os.fspath(cuda.root),
        "CUDA_TOOLKIT_ROOT_DIR": os.fspath(cuda.root),
        "CUDA_NVCC_EXECUTABLE": os.fspath(cuda.compiler.path),
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


def cuda_env_changes(toolchain: Toolchain) -> dict[str, str | None]:
    """Return the changes to the environment in which CMake and the compilers run (None removes a name)."""
    changes: dict[str, str | None] = dict.fromkeys(CUDA_VARIABLES)
    if toolchain.toolkit is None:
        return changes
    root = os.fspath(toolchain.toolkit.root)
    return changes | {
        "CUDACXX": os.fspath(toolchain.toolkit.compiler.path),
        "CUDA_HOME": root,
        "CUDA_PATH": root,
        "TORCH_CUDA_ARCH_LIST": archs.torch_value(toolchain.toolkit.archs),
    }


def complaint(entry: Entry, toolchain: Toolchain, output: str) -> ToolchainError | None:
    """Return our own error if CMake failed (``output``) because it needs CUDA and there is no toolkit, else None."""
    if toolchain.toolkit is not None or not any(_about_cuda(text) for text in output.split("CMake Error")[1:]):
        return None
    problem = toolchain.toolkit_problem or "CMake asks for CUDA, but this entry has no toolkit"
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


# A build's front end sets these for its own Python (pip's isolated environments use PYTHONPATH), and DESTDIR or the
# user's generator would affect the install tree.
_REMOVED = (
    *(f"CMAKE_GENERATOR{of}" for of in ("", "_INSTANCE", "_PLATFORM", "_TOOLSET")),
    *("DESTDIR", "LANGUAGE", "__PYVENV_LAUNCHER__"),
)
# Variables that affect where and how another Python finds modules, or what it runs before and after a program: the
# interpreter that CMake starts is the entry's, with only the entry's packages.
_OF_ANOTHER_PYTHON = (
    *("PYTHONBREAKPOINT", "PYTHONDEVMODE", "PYTHONEXECUTABLE", "PYTHONHOME", "PYTHONINSPECT", "PYTHONOPTIMIZE"),
    *("PYTHONPLATLIBDIR", "PYTHONPROFILEIMPORTTIME", "PYTHONSAFEPATH", "PYTHONSTARTUP", "PYTHONUSERBASE"),
    *("PYTHONVERBOSE", "PYTHONWARNINGS"),
)

# A zip file cannot hold a time before 1980-01-01; hatchling uses this time by default.
DEFAULT_EPOCH = "1580601600"


def env_changes(setup: Setup) -> dict[str, str | None]:
    """Return the changes to this process's environment; the user's and the hatch environment's flags stay."""
    environment, toolchain = setup.environment, setup.toolchain
    environ = setup.entry.environ(os.environ)
    given = dict(setup.entry.env_vars)
    changes: dict[str, str | None] = {**dict.fromkeys(_OF_ANOTHER_PYTHON), **given, **dict.fromkeys(_REMOVED)}
    folders = [environment.bin, toolchain.cmake.path.parent, toolchain.ninja.path.parent]
    if toolchain.toolkit is not None:
        folders.insert(1, toolchain.toolkit.root / "bin")
    changes |= cuda_env_changes(toolchain)
    changes |= toolchainfile.env_changes(setup)
    packages = [environment.site_packages]
    if setup.upstream:
        packages.insert(0, setup.torch)
    changes |= {
        "PATH": _joined(folders, environ.get("PATH")),
        # The hatch environment's own is the author's; that of the process is the user's.
        "PYTHONPATH": _joined(setup.sdk.python_path, given.get("PYTHONPATH")) or None,
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # root can write into the sealed store, and CMake files import torch from it
        "PYTHONHASHSEED": "0",  # a fixed order of sets, so that programs write the same in every build
        "VIRTUAL_ENV": str(environment.prefix),
        "CMAKE_PREFIX_PATH": _joined(packages, environ.get("CMAKE_PREFIX_PATH")),
        # For a FindTorch.cmake of the project's own.
        "CMAKE_LIBRARY_PATH": _joined([setup.torch / "lib"], environ.get("CMAKE_LIBRARY_PATH")),
        "LC_ALL": "C.UTF-8",
        "SOURCE_DATE_EPOCH": environ.get("SOURCE_DATE_EPOCH", DEFAULT_EPOCH),
    }
    if _of_a_preset(setup):
        changes["CMAKE_BUILD_TYPE"] = _build_type(setup)
    changes |= launchers.environ(setup, environ)
    if (base := package.base_dir(setup)) is not None:
        changes |= {"CCACHE_BASEDIR": str(base), "CCACHE_NOHASHDIR": "1"}
        # By content: every environment has a copy of nvcc, with another time.
        changes["CCACHE_COMPILERCHECK"] = environ.get("CCACHE_COMPILERCHECK", "content")
    return changes


def _joined(first: Sequence[Path], present: str | None) -> str:
    return os.pathsep.join([*dict.fromkeys(str(path) for path in first), *([present] if present else [])])


READS_BUILD_TYPE = Version("3.22")
"""The first CMake that reads the environment variable ``CMAKE_BUILD_TYPE``."""
POLICY_FLOOR = "3.5"  # CMake 4 refuses projects that ask for less
LIBRARY_OF_PYTHON = (
    "import os, sysconfig as s; v = s.get_config_var; print(os.path.join(v('LIBDIR') or '', v('LDLIBRARY') or ''))"
)


def cache_entries(setup: Setup) -> tuple[str, ...]:
    """Return the ``-D`` arguments: this project's first, then the author's ``define``, which override them."""
    author = [f"-D{name}={value}" for name, value in setup.config.cmake.define if name != package.BEFORE]
    ours = {
        **({} if _of_a_preset(setup) else {"CMAKE_BUILD_TYPE": _build_type(setup)}),
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",  # for editors
        "CMAKE_INSTALL_PREFIX": setup.prefix,
        "CMAKE_MAKE_PROGRAM": setup.toolchain.ninja.path,
        **(
            {"CMAKE_CXX_COMPILER": ";".join((str(setup.toolchain.cxx.path), *setup.toolchain.cxx.arguments))}
            if setup.toolchain.target is None
            else {}
        ),
        **toolchainfile.cache_entries(setup),
        "CMAKE_POLICY_VERSION_MINIMUM": POLICY_FLOOR,
        "CMAKE_FIND_USE_PACKAGE_REGISTRY": "OFF",
        package.BEFORE: setup.package / "TorchExtBefore.cmake",
        **_torch(setup),
        **_python(setup),
        **cuda_cache_entries(setup.toolchain),
        **matrix_variables(setup.entry),
        "TORCH_EXT_STABLE_ABI": "ON" if setup.entry.stable_abi else "OFF",
    }
    return (*(f"-D{name}={value}" for name, value in ours.items()), *author)


def _build_type(setup: Setup) -> str:
    return setup.config.cmake.build_type or setup.entry.environ(os.environ).get("CMAKE_BUILD_TYPE") or "Release"


def _of_a_preset(setup: Setup) -> bool:
    """Return whether a preset may give the build type: CMake reads the environment variable where it gives none."""
    config, version = setup.config, Version(setup.toolchain.cmake.version)
    return project.names_preset(config.cmake.args) and config.cmake.build_type is None and version >= READS_BUILD_TYPE


def matrix_variables(entry: Entry) -> dict[str, str]:
    """Return the matrix's variables by their names in CMake: ``cpu-only`` is ``TORCH_EXT_CPU_ONLY``."""
    return {f"TORCH_EXT_{re.sub('[^0-9A-Z]', '_', name.upper())}": value for name, value in entry.variables}


def _torch(setup: Setup) -> dict[str, Path]:
    if setup.upstream:
        return {"Torch_DIR": setup.torch / "share" / "cmake" / "Torch"}
    return {"Torch_DIR": setup.package / "Torch", "Caffe2_DIR": setup.package / "Caffe2"}


def _python(setup: Setup) -> dict[str, str | Path]:
    """Return the entry's Python under every name that CMake's modules, old and new, and pybind11 use."""
    environment, library = setup.environment, _python_library(setup)
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


def _python_library(setup: Setup) -> Path:
    """Return libpython, or an empty archive in its place: many Pythons have none, and modules do not need it."""
    environment = setup.environment
    library = setup.package / "lib" / f"libpython{'.'.join(environment.interpreter.version.split('.')[:2])}.so"
    try:
        python = environment.python
        answer = "" if environment.cross else process.answer(python, "-I", "-c", LIBRARY_OF_PYTHON).strip()
    except ProcessError:
        answer = ""
    real = library.parent.joinpath(answer) if answer.endswith(".so") else None
    if real is not None and real.is_file():
        return real
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(b"!<arch>\n")  # every linker accepts an archive without members, under any name
    return library
