"""Extensions as ``setup.py`` declares them, kept as they are written: torch's own flags and folders are not added."""

import os

from setuptools import Extension
from setuptools.command.build_ext import build_ext

import torch

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CUDA_HOME = "/usr/local/cuda" if torch.WITH_CUDA else None
CUDNN_HOME = ROCM_HOME = HIP_HOME = SYCL_HOME = None
IS_WINDOWS = IS_MACOS = IS_HIP_EXTENSION = False
IS_LINUX = True
LIB_EXT = CLIB_EXT = ".so"
EXEC_EXT = ""
CLIB_PREFIX = "lib"
SHARED_FLAG = "-shared"
TORCH_LIB_PATH = os.path.join(_ROOT, "lib")
COMMON_NVCC_FLAGS = [
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
]
COMMON_HIP_FLAGS = COMMON_HIPCC_FLAGS = []
MINIMUM_GCC_VERSION = (5, 0, 0)


def _declared(kind, name, sources, *args, **kwargs):
    cxx_or_both = kwargs.pop("extra_compile_args", None)
    dlink = kwargs.pop("dlink", False)
    dlink_libraries = kwargs.pop("dlink_libraries", [])
    sources = sources if isinstance(sources, str) else list(sources)  # a text is refused by setuptools
    extension = Extension(name, sources, *args, **kwargs)
    extension.torch_ext_dlink = bool(dlink or dlink_libraries)
    extension.torch_ext_kind = kind
    extension.torch_ext_compile_args = cxx_or_both
    return extension


def CppExtension(name, sources, *args, **kwargs):
    """Record an extension in C++."""
    return _declared("cpp", name, sources, *args, **kwargs)


def CUDAExtension(name, sources, *args, **kwargs):
    """Record an extension with CUDA. Raises OSError without CUDA, as torch does: some projects catch it."""
    _join_cuda_home()
    return _declared("cuda", name, sources, *args, **kwargs)


def SyclExtension(name, sources, *args, **kwargs):
    """Record an extension with SYCL, which is not carried over."""
    return _declared("sycl", name, sources, *args, **kwargs)


class BuildExtension(build_ext):
    """A command that authors subclass and parametrise; it never runs."""

    @classmethod
    def with_options(cls, **options):
        """Return a command with options, as torch's does."""
        return type("BuildExtension", (cls,), {"torch_ext_options": options})


def include_paths(*args, **kwargs):
    """Return where torch's headers would be."""
    return [os.path.join(_ROOT, "include"), os.path.join(_ROOT, "include", "torch", "csrc", "api", "include")]


def library_paths(*args, **kwargs):
    """Return where torch's libraries would be."""
    return [TORCH_LIB_PATH]


def is_ninja_available():
    """Say that it is: nothing is built."""
    return True


def verify_ninja_availability():
    """Accept it."""


def check_compiler_abi_compatibility(*args):
    """Accept the compiler."""
    return True


def check_compiler_ok_for_platform(*args):
    """Accept the compiler."""
    return True


def get_compiler_abi_compatibility_and_version(*args):
    """Accept the compiler."""
    from packaging.version import Version

    return True, Version("13.3")


def get_cxx_compiler():
    """Return the usual one."""
    return "c++"


def _get_cuda_arch_flags(*args, **kwargs):
    return []


def _find_cuda_home():
    return CUDA_HOME


def _join_cuda_home(*parts):
    if CUDA_HOME is None:
        raise OSError("CUDA_HOME is not set, which an extension for CUDA needs")
    return os.path.join(CUDA_HOME, *parts)


def load(*args, **kwargs):
    """Refuse: nothing is built while it is recorded."""
    raise RuntimeError("nothing is built while setup.py is recorded")


load_inline = load
