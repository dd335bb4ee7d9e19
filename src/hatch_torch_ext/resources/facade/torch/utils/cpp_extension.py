"""The paths that projects take from here; nothing that compiles."""

import os
import shutil
from pathlib import Path

from torch import version
from torch._refuse import attributes_of

_TORCH = Path(__file__).parent.parent
TORCH_LIB_PATH = str(_TORCH / "lib")


def _find_cuda_home():
    """Return the toolkit of the environment's variables, of the nvcc on PATH, or of the usual place, or None."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if named:
        return named
    nvcc = shutil.which("nvcc")
    if nvcc:
        return str(Path(nvcc).parent.parent)
    return "/usr/local/cuda" if Path("/usr/local/cuda").exists() else None


CUDA_HOME = _find_cuda_home() if version.cuda is not None else None


def _of_toolkit(*parts):
    if CUDA_HOME is None:
        raise OSError("CUDA_HOME environment variable is not set. Please set it to your CUDA install root.")
    return str(Path(CUDA_HOME, *parts))


def include_paths(device_type="cpu", torch_include_dirs=True, cuda=False):
    """Return torch's folders of headers, and the toolkit's with ``device_type="cuda"`` (``True`` in older releases)."""
    paths = []
    if torch_include_dirs:
        paths += [str(_TORCH / "include"), str(_TORCH / "include" / "torch" / "csrc" / "api" / "include")]
        paths += [str(path) for path in (_TORCH / "include" / "TH", _TORCH / "include" / "THC") if path.is_dir()]
    if cuda or device_type in ("cuda", True):
        folder = _of_toolkit("include")
        if folder != "/usr/include":
            paths.append(folder)
    return paths


def library_paths(device_type="cpu", torch_include_dirs=True, cross_target_platform=None, cuda=False):
    """Return torch's folder of link targets, and the toolkit's with ``device_type="cuda"``."""
    paths = [TORCH_LIB_PATH] if torch_include_dirs else []
    if cuda or device_type in ("cuda", True):
        lib64 = _of_toolkit("lib64")
        paths.append(lib64 if Path(lib64).exists() or not Path(_of_toolkit("lib")).exists() else _of_toolkit("lib"))
    return paths


__getattr__ = attributes_of(__name__)
