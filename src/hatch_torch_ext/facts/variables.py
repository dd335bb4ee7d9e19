"""The environment variables that a build depends on, each with what depends on it: the only such list.

Variables that a build sets itself, whatever the user's are, are not in it: ``Torch_DIR``, ``CUDAToolkit_ROOT``.
``PATH`` is not either, since every isolated build has its own: what is found there counts.
"""

from __future__ import annotations

import enum
import fnmatch
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Use(enum.Flag):
    """What a variable matters to."""

    COMPILE = enum.auto()
    """To the compiled files, and CMake or Ninja does not see that it changes: a build folder is made anew."""
    FIND = enum.auto()
    """To what is found on the machine, and CMake keeps what it found: its cache is made anew."""
    LAUNCH = enum.auto()
    """To how a compiler is started, which CMake keeps too; a finished entry does not depend on it."""
    FLAGS = enum.auto()
    """Holds arguments of C and C++ compilers and linkers, some of which are for one machine only."""
    NVCC_FLAGS = enum.auto()
    """Holds arguments of nvcc, among them those for its host compiler."""
    INDEX = enum.auto()
    """To where torch and the entry's packages come from."""
    CHOOSE = enum.auto()
    """To which of their releases is taken."""
    VALUE = enum.auto()
    """Names nothing on this machine: it means the same on another."""
    FIRST_USE = enum.auto()
    """To a build at first use, so that the loader looks for one that was made with the same value."""


_SENT = Use.FLAGS | Use.NVCC_FLAGS | Use.INDEX | Use.VALUE
_MADE_FROM = Use.COMPILE | Use.FIRST_USE

TABLE = MappingProxyType(
    {
        # compilers and their arguments, for CMake
        "CC": _MADE_FROM,
        "CFLAGS": _MADE_FROM | Use.FLAGS,
        "CPPFLAGS": _MADE_FROM | Use.FLAGS,
        "CUDAARCHS": _MADE_FROM | Use.VALUE,
        "CUDAFLAGS": _MADE_FROM | Use.NVCC_FLAGS,
        "CUDAHOSTCXX": _MADE_FROM,
        "CXX": _MADE_FROM,
        "CXXFLAGS": _MADE_FROM | Use.FLAGS,
        "LDFLAGS": _MADE_FROM | Use.FLAGS,
        "CMAKE_BUILD_TYPE": _MADE_FROM | Use.VALUE,
        "CMAKE_TOOLCHAIN_FILE": Use.COMPILE,
        "SOURCE_DATE_EPOCH": Use.COMPILE | Use.VALUE,
        # the same of other languages, https://cmake.org/cmake/help/latest/manual/cmake-env-variables.7.html
        **dict.fromkeys(("ASM", "ASM_NASM", "FC", "ISPC", "OBJC", "OBJCXX"), _MADE_FROM),
        **dict.fromkeys(("ASMFLAGS", "FFLAGS", "OBJCFLAGS", "OBJCXXFLAGS"), _MADE_FROM | Use.FLAGS),
        **dict.fromkeys(("ASM_NASMFLAGS", "ISPCFLAGS"), _MADE_FROM | Use.VALUE),
        # https://doc.rust-lang.org/cargo/reference/environment-variables.html (without wrappers, which change no
        # result, and folders), https://rust-lang.github.io/rustup/environment-variables.html
        **dict.fromkeys(("CARGO_BUILD_RUSTC", "CARGO_BUILD_TARGET", "CARGO_TARGET_*_LINKER", "RUSTC"), _MADE_FROM),
        **dict.fromkeys(("CARGO_BUILD_INCREMENTAL", "CARGO_INCREMENTAL", "CARGO_PROFILE_*"), _MADE_FROM | Use.VALUE),
        **dict.fromkeys(("CARGO_BUILD_RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"), _MADE_FROM | Use.VALUE),
        **dict.fromkeys(("CARGO_TARGET_*_RUSTFLAGS", "RUSTFLAGS"), _MADE_FROM | Use.VALUE),
        "RUSTUP_TOOLCHAIN": _MADE_FROM,
        # https://gcc.gnu.org/onlinedocs/gcc/Environment-Variables.html, https://clang.llvm.org/docs/UsersManual.html
        "CCC_OVERRIDE_OPTIONS": Use.COMPILE,
        "COMPILER_PATH": Use.COMPILE,
        "CPATH": Use.COMPILE,
        "CPLUS_INCLUDE_PATH": Use.COMPILE,
        "C_INCLUDE_PATH": Use.COMPILE,
        "GCC_EXEC_PREFIX": Use.COMPILE,
        "LIBRARY_PATH": Use.COMPILE,
        # https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#nvcc-environment-variables
        "NVCC_APPEND_FLAGS": _MADE_FROM | Use.NVCC_FLAGS,
        "NVCC_CCBIN": _MADE_FROM,
        "NVCC_PREPEND_FLAGS": _MADE_FROM | Use.NVCC_FLAGS,
        # the toolkit, and the architectures to compile for
        "CUDA_HOME": Use.FIND | Use.FIRST_USE,
        "CUDA_PATH": Use.FIND | Use.FIRST_USE,
        "TORCH_CUDA_ARCH_LIST": Use.FIRST_USE,  # in a build of the matrix the option `archs` decides
        # https://cmake.org/cmake/help/latest/manual/cmake-env-variables.7.html
        "CMAKE_INCLUDE_PATH": Use.FIND,
        "CMAKE_LIBRARY_PATH": Use.FIND,
        "CMAKE_PREFIX_PATH": Use.FIND,
        "CMAKE_PROGRAM_PATH": Use.FIND,
        "CMAKE_CUDA_COMPILER_LAUNCHER": Use.LAUNCH,
        "CMAKE_CXX_COMPILER_LAUNCHER": Use.LAUNCH,
        "CMAKE_CXX_LINKER_LAUNCHER": Use.LAUNCH,
        "CMAKE_C_COMPILER_LAUNCHER": Use.LAUNCH,
        "CMAKE_C_LINKER_LAUNCHER": Use.LAUNCH,
        # pkg-config, and programs and libraries that CMake runs
        "LD_LIBRARY_PATH": Use.FIND,
        "PKG_CONFIG": Use.FIND,
        "PKG_CONFIG_LIBDIR": Use.FIND,
        "PKG_CONFIG_PATH": Use.FIND,
        "PKG_CONFIG_SYSROOT_DIR": Use.FIND,
        # https://docs.astral.sh/uv/reference/environment/, https://pip.pypa.io/en/stable/topics/configuration/
        **dict.fromkeys(("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"), Use.INDEX),
        **dict.fromkeys(("UV_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"), Use.INDEX),
        **dict.fromkeys(("PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_PROXY"), Use.INDEX),
        "PIP_DEFAULT_TIMEOUT": Use.INDEX,
        **dict.fromkeys(("UV_EXCLUDE_NEWER", "UV_INDEX_STRATEGY"), Use.CHOOSE | Use.VALUE),
        **dict.fromkeys(("UV_PRERELEASE", "UV_RESOLUTION", "PIP_PRE"), Use.CHOOSE | Use.VALUE),
    }
)
"""Name -> what depends on it. A ``*`` is any text: cargo has a variable for each key of a profile, and each target."""

_READ = re.compile(r"ENV\{(\w+)\}")
_FOUND = re.compile(r"\bfind_package\s*\(\s*(\w+)", re.IGNORECASE)
_PINNED = frozenset({"Torch", "Caffe2", "CUDAToolkit", "CUDA", "Python", "Python3", "PythonInterp", "PythonLibs"})
"""Packages whose place a build names itself."""
_OF_A_FRONT_END = frozenset({"PATH", "PYTHONPATH", "VIRTUAL_ENV"})
"""Variables of which every isolated build has another value; CMake gets one that begins with the entry's folders."""


def names(use: Use) -> tuple[str, ...]:
    """Return the variables that matter to one of ``use``, in the order of the table."""
    return tuple(name for name, uses in TABLE.items() if uses & use)


def of(use: Use, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environ`` that matter to one of ``use``, sorted, with their values."""
    counting = frozenset(names(use))
    patterns = [name for name in counting if "*" in name]
    named = (name for name in environ if name in counting or any(fnmatch.fnmatch(name, each) for each in patterns))
    return {name: environ[name] for name in sorted(named)}


def sent(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a build on another machine gets from this one, with their values."""
    return of(_SENT, environ)


def of_cmake(texts: Iterable[str]) -> Iterator[str]:
    """Yield the variables that CMake files with these contents read, and those that say where a package is found.

    Those of which every isolated build has another value are left out.
    """
    for text in texts:
        yield from (name for name in _READ.findall(text) if name not in _OF_A_FRONT_END)
        for package in _FOUND.findall(text):
            if package not in _PINNED:
                yield from (f"{package}_ROOT", f"{package.upper()}_ROOT", f"{package}_DIR")
