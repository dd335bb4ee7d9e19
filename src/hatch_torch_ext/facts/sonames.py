"""Names of shared libraries: what a name says about who provides it. Patterns, not lists of versions."""

from __future__ import annotations

import re

TORCH = re.compile(
    r"lib(?:torch(?:_(?:cpu|cuda\w*|python|global_deps|hip|xpu|nvshmem))?|c10(?:_(?:cuda|hip|xpu))?|shm|caffe2\w*)"
)
"""torch's own: NEEDED of these is computed from the symbols."""
_WHOLE = frozenset({"libtorch", "libtorch_cpu", "libtorch_global_deps", "libc10", "libshm"})

_CUDA = re.compile(
    r"lib(?:cudart|cublas|cublasLt|nvblas|cudnn\w*|cudss\w*|cufft|cufftw|cufile\w*|curand|cusolver|cusolverMg|cusparse|cusparseLt"
    r"|nccl|nvrtc|nvrtc-builtins|nvJitLink|nvToolsExt|nvtx\w*|cupti|nvperf\w*|nvshmem\w*|nvvm|cuda|nvidia-ml)"
)  # fmt: skip
_DRIVER = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.\d+")
_OPENMP = re.compile(r"lib(?:gomp|omp|iomp5)")
_PYTHON = re.compile(r"libpython3[\w.]*\.so(?:\.[\d.]+)?")
_SANITIZER = re.compile(r"lib(?:[atlm]|hwa|ub)san|libclang_rt\.\w*san[\w.-]*")
_ALLOCATOR = re.compile(r"lib(?:tcmalloc|jemalloc|mimalloc|tbbmalloc|snmalloc)[\w-]*")
_MPI = re.compile(r"lib(?:mpi\w*|open-(?:rte|pal)|prrte|pmix)")
_JAVA = re.compile(r"libjvm")
_DESKTOP = re.compile(
    r"lib(?:GL|GLX\w*|GLdispatch|OpenGL|GLES\w*|EGL\w*|glapi|gbm|drm\w*|vulkan|OpenCL|vdpau\w*|va(?:-\w+)?|nvcuvid|nvoptix"
    r"|nvidia-[\w-]+|X11(?:-xcb)?|X(?:au|dmcp|ext|render|fixes|i|tst|randr|inerama|cursor|damage|composite|xf86vm|ft|v|t)"
    r"|xcb(?:-[\w-]+)?|xkbcommon(?:-x11)?|wayland-\w+|ICE|SM)"
)  # fmt: skip
_MANGLED = re.compile(r"[-.][0-9a-f]{8,}$")

_CUDA_SYMBOLS = {
    "libcudart": ("cuda", "__cuda"),
    "libcuda": ("cu",),
    "libcublas": ("cublas",),
    "libcublasLt": ("cublasLt",),
    "libcufft": ("cufft",),
    "libcurand": ("curand",),
    "libcusolver": ("cusolver",),
    "libcusparse": ("cusparse",),
    "libcudnn": ("cudnn",),
    "libnvrtc": ("nvrtc",),
    "libnvToolsExt": ("nvtx",),
    "libnccl": ("nccl", "pnccl"),
    "libnvJitLink": ("nvJitLink", "__nvJitLink"),
    "libcupti": ("cupti",),
    "libnvidia-ml": ("nvml",),
    "libcusolverMg": ("cusolverMg",),
    "libcusparseLt": ("cusparseLt",),
    "libcufile": ("cuFile",),
    "libnvjpeg": ("nvjpeg",),
}
"""Prefixes of the C functions of a CUDA library: a file without any of them does not need the library."""

_OWN_CUDA = re.compile(
    r"(?P<stem>__cuda(?=Register|Unregister|PushCall|PopCall|InitModule)|cuda(?=[A-Z])|cublasLt(?=[A-Z])|cublas(?=[A-Z])"
    r"|cufft(?=[A-Z])|curand(?=[A-Z])|cusolverMg(?=[A-Z])|cusolver(?=[A-Z])|cusparseLt(?=[A-Z])|cusparse(?=[A-Z])"
    r"|cudnn(?=[A-Z])|cuFile(?=[A-Z])|nvrtc(?=[A-Z])|nvjpeg(?=[A-Z])|nvJitLink(?=[A-Z])|p?nccl(?=[A-Z])|cupti(?=[A-Z])"
    r"|nvml(?=[A-Z])"
    r"|cu(?=(?:Ctx|Device|DevicePrimary|Driver|Event|Func|Get|Graph|Init|Kernel|Launch|Library|Link|Mem|Module|Multicast"
    r"|Occupancy|Pointer|Stream|Tensor|TexObject)(?:[A-Z_]|$)))\w*"
)
_CMAKE_TARGETS = {
    "libcufile": "cuFile",
    "libcuda": "cuda_driver",
    "libnvidia-ml": "nvml",
    "libcusolverMg": "cusolver",
}
_NO_CMAKE_TARGET = frozenset({"libcudnn", "libnccl", "libcusparseLt"})
"""Libraries that are not part of the toolkit, so CMake's FindCUDAToolkit has no target for them."""


def stem(name: str) -> str:
    """Return a name without version and a repair tool's hash: ``libcudart-d0da41ae.so.11.0`` -> ``libcudart``."""
    return _MANGLED.sub("", name.rpartition("/")[2].partition(".so")[0])


def version(name: str) -> str:
    """Return what follows ``.so`` in a library's name: ``11.0``, or an empty text."""
    return name.partition(".so")[2].lstrip(".")


def plain(name: str) -> str:
    """Return the name that the library had before a repair tool added a hash to it."""
    base, dot_so, rest = name.rpartition("/")[2].partition(".so")
    return _MANGLED.sub("", base) + dot_so + rest


def is_torch(name: str) -> bool:
    """Return whether the library is one of torch's own."""
    return TORCH.fullmatch(stem(name)) is not None


def torch_part(name: str) -> str:
    """Return which part of torch's own libraries it is: ``python``, ``cuda`` and the like; "" for the others."""
    return stem(name).rpartition("_")[2] if is_torch(name) and stem(name) not in _WHOLE else ""


def is_cuda(name: str) -> bool:
    """Return whether torch's NVIDIA wheels or the driver provide the library."""
    return _CUDA.fullmatch(stem(name)) is not None


def is_of_gpu(name: str) -> bool:
    """Return whether the library is of a GPU's toolkit or driver, of any backend that variants are built for."""
    return is_cuda(name)


def is_driver(name: str) -> bool:
    """Return whether the library comes with the GPU driver."""
    return _DRIVER.fullmatch(plain(name)) is not None


def is_desktop(name: str) -> bool:
    """Return whether the library belongs to the graphics driver or the desktop: it must be the user's own."""
    return _DESKTOP.fullmatch(stem(name)) is not None and not is_driver(name)


def is_sanitizer(name: str) -> bool:
    """Return whether the library is the runtime of a sanitizer, which must be loaded before anything else."""
    return _SANITIZER.fullmatch(stem(name)) is not None


def process_runtime(name: str) -> str | None:
    """Return what kind of library this is if a process can have only one of the kind, else None."""
    if is_sanitizer(name):
        return "a sanitizer's runtime"
    if _ALLOCATOR.fullmatch(stem(name)):
        return "a memory allocator"
    if _MPI.fullmatch(stem(name)):
        return "MPI"
    return "the Java machine" if _JAVA.fullmatch(stem(name)) else None


def is_cpp_runtime(name: str) -> bool:
    """Return whether ``name`` is a C++ runtime: GCC's, or LLVM's."""
    return stem(name) in {"libstdc++", "libc++", "libc++abi"}


def is_openmp(name: str) -> bool:
    """Return whether the library is an OpenMP runtime."""
    return _OPENMP.fullmatch(stem(name)) is not None


def is_python(name: str) -> bool:
    """Return whether the library is the interpreter's own."""
    return _PYTHON.fullmatch(plain(name)) is not None


def gpu_prefixes(name: str) -> tuple[str, ...] | None:
    """Return the prefixes of the symbols of a library of a GPU's toolkit, or None if they are not known."""
    return _CUDA_SYMBOLS.get(stem(name))


def cuda_owner(symbol: str) -> str | None:
    """Return the stem of the CUDA library that has ``symbol`` (``curandCreateGenerator``: ``libcurand``), or None.

    In NVIDIA's names a capital letter follows the prefix; ``cublas_gemm_launcher`` is not NVIDIA's.
    """
    match = _OWN_CUDA.fullmatch(symbol)
    if match is None:
        return None
    return next(name for name, prefixes in _CUDA_SYMBOLS.items() if match["stem"] in prefixes)


def cmake_link(library: str, target: str) -> str:
    """Return the CMake lines that link the CUDA ``library`` (a stem) to ``target``."""
    word = library.removeprefix("lib")
    if library in _NO_CMAKE_TARGET:
        first, linked = f"find_library({word.upper()} NAMES {word} REQUIRED)", f"${{{word.upper()}}}"
    else:
        first, linked = "find_package(CUDAToolkit REQUIRED)", f"CUDA::{_CMAKE_TARGETS.get(library, word)}"
    return f"{first} and target_link_libraries({target} PRIVATE {linked})"
