"""Who provides a library, or a symbol, by its name: patterns and one rule on mangled names, for every kind of SDK.

No lists of versions. The rule does not use exports: a thin SDK has no libraries that export, and its NEEDED must equal
that of a full SDK. It agrees with the exports of torch 1.13 to 2.15: ``c10`` is spread over libc10.so and
libtorch_cpu.so, so C++ symbols need both (the second needs the first anyway); what CUDA and Python own has its own
namespaces and names.

For two parts of torch's internals the names do not decide, and the rule assigns them to the CPU library: the kernels of
``at::native``, and symmetric memory in ``c10d``. A project that calls these in libtorch_cuda.so usually needs
``at::cuda`` too, which adds that library; the audit finds the other cases if torch's exports are known.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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


C10, CPU, CUDA, C10_CUDA, PYTHON = (
    "libc10.so",
    "libtorch_cpu.so",
    "libtorch_cuda.so",
    "libc10_cuda.so",
    "libtorch_python.so",
)

OF_GPU = frozenset({CUDA, C10_CUDA})
"""Those of torch's libraries that only a build for a GPU has."""

# Mangled: _Z, a special name (vtable, typeinfo, guard, thunk), N, qualifiers, then length and name of each scope.
_SCOPE = r"_Z(?:T[VISTC]|GV|GR|T[hv]n?\d+_(?:n?\d+_)?)?N?[rVKRO]*"
_STD = r"(?:St|NSt|Sp|SI|S[aosb]|I)"
_PYTHON_TYPES = r"(?:P7_object|11_typeobject|8pybind11|5torch\d+getTHP)"


def _scoped(*alternatives: str) -> re.Pattern[str]:
    return re.compile(f"{_SCOPE}(?:{'|'.join(alternatives)})")


_RULES: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    # Python: names of THP… (C and C++), signatures with PyObject, PyTypeObject or a pybind11 type, and the few others
    # that libtorch_python.so exports. No symbol of libtorch_cpu.so or libc10.so has any of these.
    (re.compile(r"(?:_Z(?:N?[rVKRO]*)?\d+)?THP[A-Z_]|_Z16getPyInterpreterv"), (PYTHON,)),
    (_scoped(rf"(?:5torch|2at|3c10|8pybind116detail)\w*{_PYTHON_TYPES}"), (PYTHON,)),
    (_scoped(r"8pybind116detail11type_caster\w*(?:2at|3c10|5torch)"), (PYTHON,)),
    (
        _scoped(r"5torch(?:15PythonArgParser|10PythonArgs|17FunctionSignature|17FunctionParameter|9TypeError)"),
        (PYTHON,),
    ),
    (_scoped(r"5torch(?:\d+getTHP|12py_symbolize|14createPyObject|15processErrorMsg|16PyWarningHandler)"), (PYTHON,)),
    (_scoped(r"5torch\d+get_(?:dynint|symint|symbool|symfloat)_class"), (PYTHON,)),
    (_scoped(r"5torch(?:3jit10toPyObject|7tensors|8autograd18functionToPyObject|8autograd6python)"), (PYTHON,)),
    (_scoped(r"5torch5utils\d+(?:tensor_|getTHP|is_numpy|aten_to_numpy|numpy_|device_lazy|is_device_in)"), (PYTHON,)),
    # CUDA. torch::cuda's few public functions are in libtorch_cpu.so, which finds out at run time whether CUDA is
    # there.
    (_scoped("3c104cuda"), (C10_CUDA,)),
    (_scoped("5torch4cuda(?:12device_count|12is_available|18cudnn_is_available)"), (C10, CPU)),
    (_scoped("5torch4cuda(?:11manual_seed|15manual_seed_all|11synchronize)"), (C10, CPU)),
    (_scoped("2at4cuda", "5torch4cuda"), (CUDA,)),
    (
        _scoped(r"4c10d(?:5nccl|16ProcessGroupNCCL|\d+(?:NCCLComm(?!Reg)|NCCLTrace|getNccl|(?:dump_|reset_)?nccl))"),
        (CUDA,),
    ),
    # CUDA classes outside of its namespaces: the generator (philox_cuda_state), AOTInductor's runner, and the like.
    (
        _scoped(r"2at\d+CUDAGenerator(?:Impl|State|CaptureState)", "5torch8inductor28AOTIModelContainerRunnerCuda"),
        (CUDA,),
    ),
    (_scoped("4c10d(?:14CUDAEventCache|15intra_node_comm)", "5torch14CudaIPC"), (CUDA,)),
    (_scoped(r"3c10\d+FreeCudaMemoryCallback"), (C10_CUDA,)),
    (re.compile(r"(?:aoti_)?torch_(?!device_type_|tag_)\w*cuda(?!graph)"), (CUDA,)),
    # The rest of torch: its C names, its namespaces, and the standard library's templates over them.
    (re.compile(r"aoti_torch_|torch_[a-z]"), (CPU,)),
    (_scoped(r"(?:2at|3c10|5torch|6caffe2|4c10d|10onnx_torch)(?=[\dCDEILlaSTK]|[a-z]{2})"), (C10, CPU)),
    (_scoped(rf"{_STD}\w*?(?:N2at\d|N3c10\d|N5torch\d)"), (C10, CPU)),
)

REGISTRATION = re.compile(
    r"_ZN[RO]?K?5torch(?:7Library|6detail(?:16TorchLibraryInit|10class_base)|3jit17RegisterOperators)"
    r"|_ZN[RO]?K?3c1017RegisterOperators"
    r"|aoti_torch_library_\w+|torch_library_\w+"
)
"""Symbols of torch/library.h, torch/custom_class.h and torch/csrc/stable/library.h."""

PYTHON_SYMBOL = re.compile(r"_?Py[A-Z_]")


def libraries(symbols: Iterable[str]) -> frozenset[str]:
    """Return the torch libraries that define the undefined ``symbols``, by their names in every torch since 1.13."""
    found: set[str] = set()
    for symbol in symbols:
        found.update(owner(symbol))
    return frozenset(found)


@lru_cache(maxsize=1 << 16)  # entries use much the same symbols
def owner(symbol: str) -> tuple[str, ...]:
    """Return the libraries that ``symbol`` needs; none if it is not torch's."""
    for pattern, owners in _RULES:
        if pattern.match(symbol):
            return owners
    return ()


def registers(symbols: Iterable[str]) -> bool:
    """Return whether a file with these undefined symbols registers operators or classes with torch."""
    return any(REGISTRATION.match(symbol) for symbol in symbols)


def needs_python(symbols: Iterable[str]) -> bool:
    """Return whether a symbol of the interpreter is among ``symbols``."""
    return any(PYTHON_SYMBOL.match(symbol) for symbol in symbols)
