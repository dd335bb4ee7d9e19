# ruff: noqa: FBT001, FBT002 - torch's own signatures
"""The paths that projects take from here; nothing that compiles."""

import os
import shutil
from pathlib import Path
from typing import List, Optional, Union

from torch import version
from torch._refuse import attributes_of

_TORCH = Path(__file__).parent.parent
TORCH_LIB_PATH = str(_TORCH / "lib")


def _find_cuda_home() -> Optional[str]:
    """Return the toolkit of the environment's variables, of the nvcc on PATH, or of the usual place, or None."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if named:
        return named
    nvcc = shutil.which("nvcc")
    if nvcc:
        return str(Path(nvcc).parent.parent)
    return "/usr/local/cuda" if Path("/usr/local/cuda").exists() else None


CUDA_HOME = _find_cuda_home() if version.cuda is not None else None


def _of_toolkit(name: str) -> str:
    if version.cuda is None:
        raise OSError("torch {} is a build without CUDA: only entries with CUDA have it".format(version.__version__))
    if CUDA_HOME is None:
        raise OSError("CUDA_HOME is not set, and no CUDA toolkit was found. Set it to the toolkit's folder")
    return str(Path(CUDA_HOME, name))


# Up to torch 2.5 the first argument is a boolean called ``cuda``.
def include_paths(
    device_type: Union[str, bool] = "cpu", torch_include_dirs: bool = True, *, cuda: bool = False
) -> List[str]:
    """Return torch's folders of headers, and the toolkit's with ``device_type="cuda"``."""
    paths = []
    if torch_include_dirs:
        paths += [str(_TORCH / "include"), str(_TORCH / "include" / "torch" / "csrc" / "api" / "include")]
    if cuda or device_type in ("cuda", True):
        folder = _of_toolkit("include")
        if folder != "/usr/include":
            paths.append(folder)
    return paths


def library_paths(
    device_type: Union[str, bool] = "cpu", torch_include_dirs: bool = True, *, cuda: bool = False
) -> List[str]:
    """Return torch's folder of link targets, and the toolkit's with ``device_type="cuda"``."""
    paths = [TORCH_LIB_PATH] if torch_include_dirs else []
    if cuda or device_type in ("cuda", True):
        lib, lib64 = _of_toolkit("lib"), _of_toolkit("lib64")
        paths.append(lib if Path(lib).exists() and not Path(lib64).exists() else lib64)
    return paths


__getattr__ = attributes_of(__name__)
