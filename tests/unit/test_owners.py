"""The rule from symbols to torch's libraries, on names as compilers write them."""

from __future__ import annotations

import pytest

from hatch_torch_ext.facts import owners

CXX = ("libc10.so", "libtorch_cpu.so")


@pytest.mark.parametrize(
    ("symbol", "libraries"),
    [
        ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", CXX),
        ("_ZNK2at6Tensor5shapeEv", CXX),
        ("_ZTIN3c105ErrorE", CXX),
        ("_ZTVN5torch8autograd4NodeE", CXX),
        ("_ZN3c10lsERSoNS_10DeviceTypeE", CXX),
        ("_ZN5torch4cuda12is_availableEv", CXX),
        ("_ZNSt6vectorIN2at6TensorESaIS1_EED1Ev", CXX),
        ("_ZN3c104cuda20getCurrentCUDAStreamEa", ("libc10_cuda.so",)),
        ("_ZNK3c104cuda10CUDAStream6streamEv", ("libc10_cuda.so",)),
        ("_ZN2at4cuda28getCurrentDevicePropertiesEv", ("libtorch_cuda.so",)),
        ("_ZN5torch4cuda9broadcastERKN2at6TensorEN3c108ArrayRefIlEE", ("libtorch_cuda.so",)),
        ("_ZN4c10d16ProcessGroupNCCLC1Ev", ("libtorch_cuda.so",)),
        ("_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm", ("libtorch_cuda.so",)),
        ("_ZN5torch8inductor28AOTIModelContainerRunnerCudaD1Ev", ("libtorch_cuda.so",)),
        ("_ZN2at6native20log_sigmoid_backwardERKNS_6TensorES3_S3_", CXX),
        ("THPVariableClass", ("libtorch_python.so",)),
        ("_Z16THPVariable_WrapRKN2at10TensorBaseE", ("libtorch_python.so",)),
        ("_ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb", ("libtorch_python.so",)),
        ("_ZN5torch3jit10toPyObjectEN3c106IValueE", ("libtorch_python.so",)),
        ("_ZN5torch3jit8toIValueEPKNS0_5ValueE", CXX),
        ("aoti_torch_library_init_def", ("libtorch_cpu.so",)),
        ("aoti_torch_device_type_cuda", ("libtorch_cpu.so",)),
        ("aoti_torch_get_current_cuda_stream", ("libtorch_cuda.so",)),
        ("torch_get_current_cuda_blas_handle", ("libtorch_cuda.so",)),
        ("torch_call_dispatcher", ("libtorch_cpu.so",)),
        ("memcpy", ()),
        ("_ZNSt6thread4joinEv", ()),
        ("_ZN5mylib5torchEv", ()),
        ("_ZN5atoms4callEv", ()),
        ("cudaMalloc", ()),
        ("PyModule_Create2", ()),
    ],
)
def test_owner(symbol: str, libraries: tuple[str, ...]) -> None:
    """Each symbol asks for the libraries that export it in every torch since 1.13, or for none."""
    assert owners.owner(symbol) == libraries


def test_python_symbols() -> None:
    """Py… and _Py… are the interpreter's; what only begins like it is not."""
    assert owners.needs_python(["_Py_NoneStruct"])
    assert owners.needs_python(["PyErr_SetString"])
    assert not owners.needs_python(["Pythagoras", "_ZN2PyEv"])


def test_registration() -> None:
    """The symbols behind TORCH_LIBRARY, torch::class_ and STABLE_TORCH_LIBRARY."""
    assert owners.registers(["_ZN5torch7LibraryC1ENS0_4KindESsSt8optionalIN3c1011DispatchKeyEEPKcj"])
    assert owners.registers(["_ZN5torch6detail10class_baseC2ERKSsS3_SsRKSt9type_infoS6_"])
    assert owners.registers(["aoti_torch_library_init_impl"])
    assert not owners.registers(["_ZN3c1010Dispatcher9singletonEv", "aoti_torch_empty_strided"])
