"""Which of torch's own libraries defines an undefined symbol: one rule on mangled names, for every kind of SDK.

The rule does not use exports: a thin SDK has none, and NEEDED must be the same for thin and full ones. It agrees with
the exports of torch 1.13 to 2.15: ``c10`` is spread over libc10.so and libtorch_cpu.so, so C++ symbols need both (the
second needs the first anyway); what CUDA and Python own has its own namespaces and names.

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
