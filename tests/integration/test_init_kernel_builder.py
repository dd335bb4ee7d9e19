"""A kernel of kernel-builder's format, moved in by `init` and compiled: its operators' name can be changed."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import disk
from hatch_torch_ext.init import kernel_builder
from hatch_torch_ext.outlets import kernels

if TYPE_CHECKING:
    from pathlib import Path

    from workbench import Workbench

BUILD = """
[general]
name = "my-sign"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "metal"]

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.sign_cpu]
backend = "cpu"
depends = ["torch"]
include = ["sign_cpu/include"]
cxx-flags = ["-DBOUND=1"]
src = ["sign_cpu/sign.cpp", "sign_cpu/include/sign.hpp"]
"""
BINDING = """
#include <torch/library.h>

#include "registration.h"

at::Tensor sign(at::Tensor const &input);

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("sign(Tensor input) -> Tensor");
#if defined(CPU_KERNEL)
  ops.impl("sign", c10::DispatchKey::CPU, &sign);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
HEADER = "#pragma once\n#include <ATen/core/Tensor.h>\nat::Tensor sign(at::Tensor const &input);\n"
SOURCE = '#include <ATen/Functions.h>\n#include "sign.hpp"\n'
SOURCE += "at::Tensor sign(at::Tensor const &input) { return at::clamp(input, -BOUND, BOUND); }\n"
PROGRAM = """
import torch
torch.ops.load_library("libmy_sign.so")
torch.ops.load_library("renamed.so")
x = torch.tensor([-3.0, 0.5])
print(torch.ops.my_sign.sign(x).tolist(), torch.ops._my_sign_cpu_1.sign(x).tolist())
"""


def test_a_kernel_is_moved_in_and_compiled(bench: Workbench, torch_cpu_python: Path, tmp_path: Path) -> None:
    """Without a line by hand; the library and one with another name in its field are loaded into one process."""
    root = tmp_path / "kernel"
    files = {
        "build.toml": BUILD,
        "torch-ext/torch_binding.cpp": BINDING,
        "torch-ext/my_sign/__init__.py": "from ._ops import ops\n",
        "sign_cpu/include/sign.hpp": HEADER,
        "sign_cpu/sign.cpp": SOURCE,
    }
    disk.write(root, files)
    kernel_builder.migrate(root, torch=["2.13"]).write(force=False)
    package = root / "torch-ext" / "my_sign"
    bench.config = replace(bench.config, root=root, package="my_sign", package_dir=package)
    tree = bench.build(".")
    library = tree.prefix / "libmy_sign.so"
    data = library.read_bytes()
    assert kernels.fields(data) == {"my_sign"}
    (library.parent / "renamed.so").write_bytes(kernels.renamed(data, {"my_sign": "_my_sign_cpu_1"}))
    command = [str(torch_cpu_python), "-c", PROGRAM]
    done = subprocess.run(command, cwd=library.parent, capture_output=True, text=True, check=True)
    assert done.stdout == "[-1.0, 0.5] [-1.0, 0.5]\n"
