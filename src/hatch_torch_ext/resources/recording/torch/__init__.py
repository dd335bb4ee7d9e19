"""A torch that only answers what a ``setup.py`` asks while it is recorded: nothing is compiled, no GPU is touched.

It acts as the torch of a machine without CUDA or of one with CUDA, as ``TORCH_EXT_RECORDING_BACKEND`` says.
"""

import os
import sys
import types

WITH_CUDA = os.environ.get("TORCH_EXT_RECORDING_BACKEND") == "cuda"
RELEASE = os.environ.get("TORCH_EXT_RECORDING_TORCH") or "2.8"
CUDA = os.environ.get("TORCH_EXT_RECORDING_CUDA") or "12.8"
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_90")


class TorchVersion(str):
    """A version that compares as torch's own does: with texts, versions and tuples, by number."""

    __slots__ = ()
    __hash__ = str.__hash__


def _comparison(name):
    def compare(self, other):
        from packaging.version import Version

        text = ".".join(map(str, other)) if isinstance(other, tuple) else str(other)
        try:
            return getattr(Version(str(self)), name)(Version(text))
        except ValueError:
            return getattr(str, name)(self, text)

    return compare


for _name in ("__gt__", "__lt__", "__eq__", "__ge__", "__le__"):
    setattr(TorchVersion, _name, _comparison(_name))


__version__ = TorchVersion("{}.0+{}".format(RELEASE, "cu" + CUDA.replace(".", "") if WITH_CUDA else "cpu"))
__path__: list  # type: ignore[type-arg]


def compiled_with_cxx11_abi():
    """Answer as torch does from 2.7 on."""
    return True


def _module(name, **content):
    module = types.ModuleType(f"torch.{name}")
    for key, value in content.items():
        setattr(module, key, value)
    sys.modules[f"torch.{name}"] = module
    return module


def _parallel_info(*_):
    return "ATen/Parallel:\n\tat::get_num_threads() : 2\nATen parallel backend: OpenMP\n"


_C = _module(
    "_C",
    _GLIBCXX_USE_CXX11_ABI=True,
    _PYBIND11_COMPILER_TYPE="_gcc",
    _PYBIND11_STDLIB="_libstdcpp",
    _PYBIND11_BUILD_ABI="_cxxabi1018",
    _parallel_info=_parallel_info,
    _cuda_getArchFlags=lambda: " ".join(ARCHS) if WITH_CUDA else None,
)
version = _module(
    "version",
    __version__=__version__,
    cuda=CUDA if WITH_CUDA else None,
    hip=None,
    xpu=None,
    debug=False,
    git_version="0" * 40,
)
__config__ = _module(
    "__config__",
    show=lambda: "PyTorch built with:\n  - GCC 13.3\n  - OpenMP 201511\n",
    parallel_info=_parallel_info,
)
_nccl = _module("cuda.nccl", version=lambda *_: (2, 27, 3), is_available=lambda *_: WITH_CUDA)
cuda = _module(
    "cuda",
    is_available=lambda: WITH_CUDA,
    device_count=lambda: 1 if WITH_CUDA else 0,
    current_device=lambda: 0,
    get_device_capability=lambda *_: (9, 0),
    get_device_name=lambda *_: "NVIDIA H100",
    get_device_properties=lambda *_: types.SimpleNamespace(major=9, minor=0, name="NVIDIA H100"),
    get_arch_list=lambda: [*ARCHS] if WITH_CUDA else [],
    nccl=_nccl,
)
backends = _module(
    "backends",
    mps=types.SimpleNamespace(is_available=lambda: False, is_built=lambda: False),
    cuda=types.SimpleNamespace(is_built=lambda: WITH_CUDA),
    cudnn=types.SimpleNamespace(version=lambda: 91002 if WITH_CUDA else None, is_available=lambda: WITH_CUDA),
    openmp=types.SimpleNamespace(is_available=lambda: True),
)
has_cuda = WITH_CUDA
has_mps = has_mkldnn = False
xpu = _module("xpu", is_available=lambda: False, device_count=lambda: 0)
mps = _module("mps", is_available=lambda: False)


from torch import _unknown  # noqa: E402 -- these modules are those that it completes
from torch.utils import cpp_extension as _cpp_extension  # noqa: E402, F401

# Names are taken for nothing only where a first run failed for want of one: until then `hasattr` tells what torch has.
_accepted = bool(os.environ.get("TORCH_EXT_RECORDING_UNKNOWN"))
for _each in [_known for _name, _known in list(sys.modules.items()) if _name.split(".")[0] == "torch"]:
    if not hasattr(_each, "__getattr__"):
        _each.__getattr__ = _unknown.attribute_of(_each.__name__, accepted=_accepted)
sys.meta_path.append(_unknown.Finder(accepted=_accepted))
