"""A kernel repository and the package `kernels` itself, under a real torch: two versions and the wheel in a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import kernel_abi_check
import pytest

import hub
import wheels
from hatch_torch_ext import elf
from hatch_torch_ext.facts import policy
from hatch_torch_ext.outlets import kernels
from merged import merge_wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

MACHINE = os.uname().machine
SOURCE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include "registration.h"

int64_t dimensions(torch::stable::Tensor x) { return x.dim(); }
torch::stable::Tensor copy(torch::stable::Tensor x) { return torch::stable::clone(x); }

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {
  m.def("dimensions(Tensor x) -> int");
  m.def("copy(Tensor x) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("dimensions", TORCH_BOX(&dimensions));
  m.impl("copy", TORCH_BOX(&copy));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
INIT = """from . import _variants
from ._ops import add_op_namespace_prefix, ops

def dimensions(x):
    return {version} * ops.dimensions(x)
"""
OPS = b"""import torch

from . import _variants

_variants.load()
NAMESPACE = "my_pkg"
ops = getattr(torch.ops, NAMESPACE)

def add_op_namespace_prefix(name):
    return f"{NAMESPACE}::{name}"
"""


@pytest.fixture(scope="module")
def library(torch_cpu_python: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a library with an operator, on torch's stable ABI; its namespace is in a field."""
    folder = tmp_path_factory.mktemp("library")
    kernels.write_header(folder / "registration.h")
    (folder / "ops.cpp").write_text(SOURCE)
    command = [str(torch_cpu_python), "-c", "import torch; print(torch.__path__[0])"]
    torch = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    target = ["-DTORCH_TARGET_VERSION=0x020a000000000000", "-DTORCH_EXTENSION_NAME=my_pkg"]
    flags = ["-std=c++17", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-isystem", f"{torch}/include"]
    libs = [f"-L{torch}/lib", "-ltorch_cpu", "-o", "libops.so"]
    subprocess.run(["g++", "ops.cpp", *target, *flags, *libs], cwd=folder, check=True)
    return (folder / "libops.so").read_bytes()


STABLE = {f"stable2.10_cpu_{MACHINE}": {"torch": "2.10", "stable_abi": True, "cxx11_abi": None}}
"""The label and the fields of a variant on the stable ABI."""
EXACT = {f"torch2.9_cpu_cxx11_{MACHINE}": {"torch": "2.9"}}


def wheel(folder: Path, version: int, library: bytes, variants: Mapping[str, Mapping[str, Any]] = STABLE) -> Path:
    """Return the wheel of a version of the package, as a build leaves it; each version's library has other bytes."""
    folder.mkdir()
    library += b"\0" * version
    path = folder / "libops.so"
    path.write_bytes(library)
    met = policy.lowest(MACHINE, "glibc", [each for _, needed in elf.read(path).version_needs for each in needed])
    built = []
    for label, changes in variants.items():
        files = {f"{label}/libops.so": library}
        described = wheels.variant(
            label, files, machine=MACHINE, policy=met.name, libc_floor=met.version or "2.17", **changes
        )
        (file,) = described.files
        file = replace(file, namespaces=("my_pkg",), operators=("my_pkg::copy", "my_pkg::dimensions"))
        built.append((replace(described, files=(file,)), files))
    extra = {"my_pkg/__init__.py": INIT.format(version=version).encode(), "my_pkg/_ops.py": OPS}
    name = f"my_pkg-{version}.0-{wheels.TAG}.whl"
    draft = wheels.ours(folder, built, extra=extra, name=name)
    return merge_wheels([draft], out=folder / "fat")


@pytest.fixture
def run(torch_cpu_python: Path, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs lines in the Python with torch, which sees `kernels` and what is in `site`."""
    (tmp_path / "site").mkdir()

    def call(code: str, endpoint: str = "") -> str:
        environ = {
            **os.environ,
            **({"HF_ENDPOINT": endpoint} if endpoint else {"HF_HUB_OFFLINE": "1"}),
            "HF_HOME": str(tmp_path / "home"),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled"),
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), sysconfig.get_path("purelib")]),
        }
        done = subprocess.run(
            [torch_cpu_python, "-P", "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


SIDE_BY_SIDE = """
import json
from pathlib import Path

import torch
from kernels import get_local_kernel

import my_pkg

one, two = get_local_kernel(Path("1")), get_local_kernel(Path("2"))
x = torch.zeros(2, 3)
print(json.dumps({
    "answers": [each.dimensions(x) for each in (one, two, my_pkg)],
    "names": [each.add_op_namespace_prefix("dimensions") for each in (one, two, my_pkg)],
    "modules": [each.__name__ for each in (one, two, my_pkg)],
    "again": get_local_kernel(Path("1")) is one,
}))
"""


@pytest.mark.performs(
    "`{}` has no `__init__.py`, which `kernels` imports",
    "its Python has no place for the name of the operators: add",
    "TORCH_LIBRARY({}, m) -> TORCH_LIBRARY_EXPAND({}, m)",
)
def test_versions_side_by_side(library: bytes, tmp_path: Path, run: Callable[..., str]) -> None:
    """`kernels` loads two versions into one process, beside the installed wheel: each with operators of its own.

    The second one is as the Hub's cache has it: every file a link to a blob elsewhere.
    """
    identifiers = {}
    for version in (1, 2):
        fat = wheel(tmp_path / f"wheel{version}", version, library)
        made = kernels.write(fat, out=tmp_path / str(version), licence="MIT")
        ((name, identifiers[version], _),) = made.variants
        assert name == f"torch-stable-abi210-cpu-{MACHINE}-linux"
        if version == 1:
            with zipfile.ZipFile(fat) as archive:
                archive.extractall(tmp_path / "site")
    for number, path in enumerate(sorted(each for each in (tmp_path / "2").rglob("*") if each.is_file())):
        blob = tmp_path / f"blob{number}"
        shutil.move(path, blob)
        path.symlink_to(blob)
    said = json.loads(run(SIDE_BY_SIDE))
    assert said["answers"] == [2, 4, 2]
    assert said["names"] == [f"{identifiers[1]}::dimensions", f"{identifiers[2]}::dimensions", "my_pkg::dimensions"]
    assert said["modules"] == [identifiers[1], identifiers[2], "my_pkg"]
    assert said["again"]


MODULE = """
import torch


class Dimensions(torch.nn.Module):
    def forward(self, x):
        return torch.ops.my_pkg.dimensions(x)


class Copy(torch.nn.Module):
    def forward(self, x):
        return torch.ops.my_pkg.copy(x) + 1
"""
SAVE = """
import pickle

import torch
import my_pkg, written

x = torch.zeros(2, 3)
torch.jit.script(written.Dimensions()).save("saved.pt")
torch.export.save(torch.export.export(written.Copy(), (x,)), "saved.pt2")
with open("saved.pickle", "wb") as stream:
    pickle.dump([my_pkg.dimensions, torch.fx.symbolic_trace(written.Copy())], stream)
print(torch.compile(torch.ops.my_pkg.copy)(x).sum().item())
"""
LOAD = """
import pickle
from pathlib import Path

import torch
from torch._dynamo.utils import counters

import my_pkg

x = torch.zeros(2, 3)
print(torch.jit.load("saved.pt")(x), my_pkg.dimensions(x))
exported = torch.export.load("saved.pt2")
print([str(node.target) for node in exported.graph.nodes if node.op == "call_function"])
print(exported.module()(x).sum().item())
with open("saved.pickle", "rb") as stream:
    dimensions, graph = pickle.load(stream)
print(dimensions is my_pkg.dimensions, graph(x).sum().item())


def compiled(ops):
    counters.clear()
    answer = torch.compile(ops.copy)(x).sum().item()
    print(answer, *sorted(key for caches in ("aot_autograd", "inductor") for key in counters[caches] if "cache" in key))


compiled(my_pkg.ops)

from kernels import get_local_kernel

kernel = get_local_kernel(Path("kernel"))
compiled(kernel.ops)
print(kernel.__name__.encode() in pickle.dumps(kernel.dimensions))
"""


def test_what_users_keep_outlives_the_build(library: bytes, tmp_path: Path, run: Callable[..., str]) -> None:
    """In the wheel the operators' name is the same in every version: what was saved with one loads with the next.

    So it is with a program of TorchScript, one that torch.export wrote, a pickled function and graph, and the caches of
    torch.compile. A kernel of the Hub has its own name: torch compiles for it again, beside what the wheel left.
    """
    for version, program in ((1, SAVE), (2, LOAD)):
        shutil.rmtree(tmp_path / "site")
        fat = wheel(tmp_path / f"wheel{version}", version, library)
        with zipfile.ZipFile(fat) as archive:
            archive.extractall(tmp_path / "site")
        if version == 1:
            (tmp_path / "site" / "written.py").write_text(MODULE)  # TorchScript reads the source
        else:
            kernels.write(fat, out=tmp_path / "kernel", licence="MIT")
        said = run(program)
    assert said.splitlines() == [
        "2 4",
        "['my_pkg.copy.default', 'aten.add.Tensor']",
        "6.0",
        "True 6.0",
        "0.0 autograd_cache_hit fxgraph_cache_hit",
        "0.0 autograd_cache_miss autograd_cache_saved fxgraph_cache_miss",
        "True",
    ]


KEPT = """
from pathlib import Path

import torch
from kernels import get_local_kernel

print(get_local_kernel(Path("1")).dimensions(torch.zeros(3)))
try:
    get_local_kernel(Path("2"))
except ImportError as error:
    print(error)
"""


def test_a_name_that_is_kept(library: bytes, tmp_path: Path, run: Callable[..., str]) -> None:
    """With --keep-namespace a second version is refused by its loader; torch by itself would end the process."""
    for version in (1, 2):
        fat = wheel(tmp_path / f"wheel{version}", version, library)
        kernels.write(fat, out=tmp_path / str(version), licence="MIT", keep_namespace=True)
    first, second = run(KEPT).splitlines()
    assert first == "1"
    assert "has registered the operators' namespace `my_pkg`" in second


LOADED = """
from pathlib import Path

import torch
from kernels import get_kernel, get_local_kernel

try:
    print({call}.dimensions(torch.zeros(3)))
except ImportError as error:
    print(error)
"""
CACHED = LOADED.format(call='get_kernel("owner/my-pkg", version=1, trust_remote_code=True)')


@pytest.mark.performs(
    "write the kernel's folder again, by",
    "Let `kernels` choose the variant:",
    "fetch or write the kernel again",
    "Let `kernels` keep it in another folder: export KERNELS_CACHE=FOLDER",
)
def test_remedies_in_a_kernel(library: bytes, tmp_path: Path, run: Callable[..., str]) -> None:
    """A kernel is in the Hub's cache, or in a folder, where pip repairs nothing: each message names what does."""
    fat = wheel(tmp_path / "wheel", 1, library, {**STABLE, **EXACT})
    folder = tmp_path / "kernel"
    kernels.write(fat, out=folder, licence="MIT")
    ours, other = folder / f"build/torch-stable-abi210-cpu-{MACHINE}-linux", f"build/torch29-cxx11-cpu-{MACHINE}-linux"
    (path,) = ours.rglob("libops.so")
    data = path.read_bytes()
    with hub.served(hub.Repository(name="owner/my-pkg", folder=folder, version=1)) as endpoint:
        path.write_bytes(data[::-1])
        said = run(CACHED, endpoint)
        path.write_bytes(data)
        assert "pip" not in said
        (damaged,) = re.findall(
            r"is damaged .* Repair it: rm -r (\S+), then load the kernel again, which fetches it", said
        )
        subprocess.run(["rm", "-r", damaged], check=True)

        said = run(LOADED.format(call=f'get_local_kernel(Path("kernel/{other}"))'))
        lines = said.splitlines()
        call = lines[lines.index("Let `kernels` choose the variant:") + 1].strip()
        elsewhere = 'import os\nos.environ["KERNELS_CACHE"] = "elsewhere"\n'
        assert run(elsewhere + CACHED + LOADED.format(call=call), endpoint) == "1\n1\n"
        assert (tmp_path / "elsewhere" / "kernels--owner--my-pkg").is_dir()
        assert lines[-1] == f"More: python {folder / other}/_variants.py"
        newer = lines.index("or another version of the kernel, if one has a variant for this system:")
        assert lines[newer + 1] == "  kernels versions OWNER/my-pkg"
        environ = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home")}
        program = "from kernels.cli import main; main()"
        command = [sys.executable, "-c", program, "versions", "owner/my-pkg"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("Version 1:")
    (ours / "_torch_ext" / "help.py").unlink()
    path.write_bytes(data[::-1])
    done = subprocess.run([sys.executable, ours / "_variants.py"], capture_output=True, text=True, check=False)
    assert "help.py, which explains more, is missing or damaged: fetch or write the kernel again" in done.stdout
    kernels.write(fat, out=folder, licence="MIT")
    assert path.read_bytes() == data
    assert (ours / "_torch_ext" / "help.py").is_file()


def test_kernel_abi_check_agrees(library: bytes, tmp_path: Path) -> None:
    """kernel-abi-check finds symbols that are too new where our note says so, and nothing of Python's."""
    made = kernels.write(wheel(tmp_path / "wheel", 1, library), out=tmp_path / "out", licence="MIT")
    (path,) = (tmp_path / "out").rglob("libops.so")
    found = kernel_abi_check.ObjectFile(str(path))
    assert bool(found.check_manylinux("manylinux_2_28")) == any("kernel-abi-check" in note for note in made.notes)
    assert found.check_python_abi("3.9") == []
