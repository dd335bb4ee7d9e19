"""The small importable torch: its answers to the one-liners of projects, and its refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.sdk import thin
from hatch_torch_ext.sdk.facts import TorchFacts

if TYPE_CHECKING:
    from pathlib import Path

REFUSAL = (
    "is not in the thin torch SDK, which has only headers and link stubs. "
    'Set `sdk = "environment"` in the hook\'s configuration to build with the full torch'
)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Return the folder of a facade for torch 2.10.0+cu128 of the old C++ ABI."""
    found = TorchFacts(version="2.10.0", cuda="12.8", hip=None, git_version="f00", cxx11_abi=False, cxx_standard=17)
    folder = tmp_path / "torch"
    for name, text in thin.facade_files(found):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    (folder / "version.py").write_text("__version__ = '2.10.0+cu128'\ncuda = '12.8'\nhip = None\ngit_version = 'f00'\n")
    return folder


def ask(prefix: Path, code: str, **environ: str) -> str:
    """Return what ``python -c code`` prints, or the last line of its traceback."""
    changes = {"PYTHONPATH": str(prefix.parent), "PATH": "/nowhere", "PYTHONDONTWRITEBYTECODE": "1", **environ}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CUDA")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**inherited, **changes}
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("import torch; print(torch.utils.cmake_prefix_path)", "PREFIX/share/cmake"),
        ("import torch; print(torch.__path__[0])", "PREFIX"),
        ("import os, torch; print(os.path.dirname(torch.__file__))", "PREFIX"),
        ("import torch; print(torch.__version__)", "2.10.0+cu128"),
        ("import torch; print(torch.__version__.split('+')[0])", "2.10.0"),
        ("import torch; print(torch.version.cuda, torch.version.hip, torch.version.git_version)", "12.8 None f00"),
        ("import torch; print(int(torch.compiled_with_cxx11_abi()))", "0"),
        ("import torch; print(torch._C._GLIBCXX_USE_CXX11_ABI)", "False"),
        ("import torch; print(torch.cuda.is_available(), torch.cuda.get_arch_list())", "False []"),
        ("import torch.backends; print(torch.backends.cuda.is_built())", "True"),
        ("import torch; print(torch.__version__ >= '2.9', torch.__version__ < (2, 10))", "True False"),
        (
            "import torch; print('2.10.0+cu128' == torch.__version__, torch.__version__ in {'2.10.0+cu128'})",
            "True True",
        ),
        ("import torch; print(torch.__version__ == None, torch.__version__ != '2.10')", "False True"),
        (
            "from torch.utils.cpp_extension import include_paths as i; print(i(), i('cuda')[2:], i(cuda=True)[2:])",
            "['PREFIX/include', 'PREFIX/include/torch/csrc/api/include'] ['/opt/cuda/include'] ['/opt/cuda/include']",
        ),
        (
            "from torch.utils.cpp_extension import *; print(library_paths(), library_paths(True)[1:], CUDA_HOME)",
            "['PREFIX/lib'] ['/opt/cuda/lib64'] /opt/cuda",
        ),
        ("import torch; print(hasattr(torch, 'ops'))", "False"),
        ("import inspect, torch; print(inspect.getdoc(torch) is not None)", "True"),
    ],
)
def test_answers(prefix: Path, code: str, answer: str) -> None:
    """Each question that CMake projects ask is answered from the wheel's facts."""
    assert ask(prefix, code, CUDA_HOME="/opt/cuda") == answer.replace("PREFIX", str(prefix))


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("import torch; torch.tensor([1])", f"AttributeError: torch.tensor {REFUSAL}"),
        (
            "import torch; torch.cuda.get_device_capability()",
            f"AttributeError: torch.cuda.get_device_capability {REFUSAL}",
        ),
        ("import torch.nn", f"ModuleNotFoundError: torch.nn {REFUSAL}"),
        (
            "from torch.utils import cpp_extension as c; c.load",
            f"AttributeError: torch.utils.cpp_extension.load {REFUSAL}",
        ),
        ("import torch; torch._C._cuda_getDeviceCount()", f"AttributeError: torch._C._cuda_getDeviceCount {REFUSAL}"),
        (
            "from torch.utils.cpp_extension import include_paths; include_paths('cuda')",
            "OSError: CUDA_HOME is not set, and no CUDA toolkit was found. Set it to the toolkit's folder",
        ),
    ],
)
def test_refuses(prefix: Path, code: str, answer: str) -> None:
    """Everything else is refused with a sentence that names the remedy."""
    if os.path.exists("/usr/local/cuda") and "CUDA_HOME" in answer:  # noqa: PTH110
        pytest.skip("this machine has a toolkit in the usual place")
    assert ask(prefix, code) == answer


@pytest.mark.performs("Set it to the toolkit's folder")
def test_a_toolkit_that_is_named(prefix: Path) -> None:
    """With CUDA_HOME set, as the refusal says, there is a toolkit; a torch without CUDA has none, and says why."""
    code = "from torch.utils.cpp_extension import include_paths; print(include_paths('cuda')[-1])"
    assert ask(prefix, code, CUDA_HOME="/opt/toolkit") == "/opt/toolkit/include"
    (prefix / "version.py").write_text("__version__ = '2.10.0+cpu'\ncuda = hip = git_version = None\n")
    assert ask(prefix, code, CUDA_HOME="/opt/toolkit") == (
        "OSError: torch 2.10.0+cpu is a build without CUDA: only entries with CUDA have it"
    )


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("2.9.1", "2.10.0"),
        ("2.8.0", "2.8.0+cu128"),
        ("2.8.0.dev1", "2.8.0a0"),
        ("2.8.0a1", "2.8.0rc1"),
        ("2.8.0rc1", "2.8"),
    ],
)
def test_versions_compare_as_versions(prefix: Path, lower: str, higher: str) -> None:
    """``torch.__version__`` orders as versions do, not as text."""
    code = (
        f"from torch._version_order import TorchVersion as T; a, b = T({lower!r}), T({higher!r}); print(a < b, b > a)"
    )
    assert ask(prefix, code) == "True True"
