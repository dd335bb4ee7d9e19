"""A thin SDK of a real torch release, from the real index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import values
from hatch_torch_ext.config import Config
from hatch_torch_ext.sdk import check, thin
from hatch_torch_ext.values import Interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.slow
def test_torch_2_8(tmp_path: Path) -> None:
    """Release 2.8.0 costs 11 MB, has its facts and headers, and answers CMake's questions by itself."""
    entry = values.entry(name="matrix.2.8", variables=(("torch", "2.8"),), torch_requirement="torch==2.8.0")
    version = sys.version_info
    interpreter = Interpreter(
        version=f"{version[0]}.{version[1]}.{version[2]}",
        tag=f"cp{version[0]}{version[1]}",
        ext_suffix=".so",
        machine=os.uname().machine,
        include=tmp_path,
    )
    environment = values.environment(Path(sys.executable), interpreter)
    reports: list[str] = []
    config = Config(root=tmp_path, package="p", package_dir=tmp_path, source=tmp_path / "csrc")
    environ = {"HATCH_TORCH_EXT_CACHE": str(tmp_path / "store")}
    sdk = thin.acquire(entry, environment, config, report=reports.append, environ=environ)
    check(entry, sdk)
    assert (sdk.minor, sdk.cxx11_abi, sdk.cxx_standard) == ("2.8", True, 17)
    assert len(reports) == 1
    assert float(reports[0].split(": ")[1].split()[0]) < 13
    assert all((folder / name).is_file() for folder, name in zip(sdk.include_dirs, _headers(), strict=True))
    assert sum(path.stat().st_size for path in sdk.library_dir.iterdir()) < 10_000
    code = "import torch; print(torch.__version__, torch.utils.cmake_prefix_path)"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(sdk.python_path[0])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == [sdk.version, str(sdk.prefix / "share" / "cmake")]


def _headers() -> Sequence[str]:
    return ("ATen/ATen.h", "torch/all.h")
