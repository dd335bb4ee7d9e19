"""Wheels for aarch64, built on x86-64 and used on that machine's torch under emulation."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv
from packaging.utils import parse_wheel_filename

import disk
from hatch_torch_ext import audit, elf
from hatch_torch_ext.base import process
from hatch_torch_ext.elf import fatbin
from hatch_torch_ext.facts import policy

from .conftest import build, copy_example

if TYPE_CHECKING:
    from .conftest import Once

pytestmark = pytest.mark.slow

MATRIX = """\
[[envs.matrix.matrix]]
torch = ["2.8"]
machine = ["aarch64"]

[[envs.matrix.matrix]]
torch = ["2.10"]
abi = ["stable"]
machine = ["x86_64", "aarch64"]

"""
CUDA = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"
[project]
name = "tiny-kernels"
version = "1"
requires-python = ">=3.9"
dynamic = ["dependencies"]
[tool.hatch.metadata.hooks.torch-ext]
[tool.hatch.build.targets.wheel]
packages = ["tiny_kernels"]
[tool.hatch.build.targets.wheel.hooks.torch-ext]
source = "."
environment = "matrix"
archs = ["9.0", "7.5+PTX"]
[tool.hatch.envs.matrix]
skip-install = true
dependencies = ["torch=={matrix:torch}.*", "cuda-toolkit[nvcc,cudart,cccl]==13.0.*"]
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.11"]
abi = ["stable"]
cuda = ["cu130"]
machine = ["aarch64"]
""",
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.26)
project(tiny LANGUAGES CXX CUDA)
find_package(Torch REQUIRED)
add_library(tiny SHARED tiny.cu ops.cpp)
target_link_libraries(tiny PRIVATE torch_stable c10_cuda)
install(TARGETS tiny LIBRARY DESTINATION .)
""",
    "tiny.cu": """\
#include <cuda_fp16.h>
#include <cuda/std/array>
__global__ void one(float* x) { *x = 1; }
void run(float* x) { one<<<1, 1>>>(x); }
""",
    "ops.cpp": """\
#include <torch/csrc/stable/library.h>
void run(float*);
STABLE_TORCH_LIBRARY(tiny_kernels, m) { m.def("one(int x) -> int"); }
void keep() { run(nullptr); }
""",
    "tiny_kernels/__init__.py": "from . import _variants\n\n_variants.load()\n",
}


def two_machines(root: Path, *, hook: str = "") -> Path:
    """Give a copy of the example in ``root`` a matrix of two machines, and its hook the options ``hook``."""
    config = copy_example(root) / "hatch.toml"
    before, _, rest = config.read_text(encoding="utf-8").partition("[[envs.matrix.matrix]]")
    after = rest[rest.index("# The wheel in dist/") : rest.index("# The same for CPU and CUDA")]
    text = before.replace('source = "csrc"\n', f'source = "csrc"\n{hook}') + MATRIX + after
    config.write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def made(once: Once, store: Path, arm64: Path) -> Path:
    """Return the folder of the example's two wheels, made by one build."""

    def make(folder: Path) -> None:
        root = two_machines(folder / "example")
        build(root, folder / "dist", store, PATH=path(arm64))
        shutil.rmtree(root)

    return once("machines", make) / "dist"


def path(arm64: Path) -> str:
    """Return PATH with the programs for aarch64."""
    return f"{arm64 / 'bin'}:{os.environ['PATH']}"


def of(folder: Path, machine: str) -> Path:
    """Return the wheel of a machine."""
    (wheel,) = folder.glob(f"*_{machine}.whl")
    return wheel


@pytest.mark.performs('take `sdk = "thin"`, or build this')
def test_one_build_gives_a_wheel_for_each(made: Path) -> None:
    """Each is tagged for its machine, holds only its files, is clean, and names the policy that it meets."""
    assert len(list(made.iterdir())) == 2
    for machine in ("x86_64", "aarch64"):
        wheel = of(made, machine)
        assert [finding.code for finding in audit.audit_wheel(wheel) if not finding.warning] == []
        (tag,) = parse_wheel_filename(wheel.name)[3]
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".so")]
            files = [elf.read(Path(archive.extract(name, made.parent / machine))) for name in names]
        assert {file.machine for file in files} == {machine}
        assert len(files) == (2 if machine == "aarch64" else 1)
        versions = {version for file in files for _, listed in file.version_needs for version in listed}
        assert tag.platform == policy.lowest(machine, "glibc", versions).name


def test_alone_it_is_the_same_bytes(made: Path, store: Path, arm64: Path, tmp_path: Path) -> None:
    """Built in another folder without the other machine's entries, aarch64's wheel does not differ in a byte."""
    root = two_machines(tmp_path / "elsewhere" / "p")
    build(root, tmp_path / "dist", store, PATH=path(arm64), HATCH_TORCH_EXT_ONLY="*aarch64")
    assert of(tmp_path / "dist", "aarch64").read_bytes() == of(made, "aarch64").read_bytes()


def test_one_wheel_for_both(made: Path, store: Path, arm64: Path, tmp_path: Path) -> None:
    """By the option, one wheel holds both: `merge` makes the same out of two, and parts it into the two again."""
    root = two_machines(tmp_path / "p", hook='machines = "one-wheel"\n')
    build(root, tmp_path / "dist", store, PATH=path(arm64))
    (one,) = (tmp_path / "dist").iterdir()
    command = [sys.executable, "-m", "hatch_torch_ext", "merge"]
    process.run([*command, *sorted(made.iterdir()), "-o", tmp_path / "joined"])
    assert [wheel.read_bytes() for wheel in (tmp_path / "joined").iterdir()] == [one.read_bytes()]
    process.run([*command, "--machines", "wheel-each", one, "-o", tmp_path / "parted"])
    parted = {wheel.name: wheel.read_bytes() for wheel in (tmp_path / "parted").iterdir()}
    assert parted == {wheel.name: wheel.read_bytes() for wheel in made.iterdir()}


def test_installers_take_the_wheel_of_their_machine(made: Path, tmp_path: Path) -> None:
    """Out of one folder, uv and pip take for each machine the wheel that is for it."""
    for machine in ("x86_64", "aarch64"):
        expected = of(made, machine)
        system = f"{machine}-manylinux_2_36"
        options = ["--no-index", "--no-deps", "--find-links", str(made), "torch-ext-example"]
        command = [uv.find_uv_bin(), "pip", "install", "--python-platform", system, "--target", str(tmp_path / machine)]
        process.run([*command, *options])
        (installed,) = (tmp_path / machine).rglob("WHEEL")
        assert f"_{machine}" in installed.read_text(encoding="utf-8")
        tags = [word for tag in parse_wheel_filename(expected.name)[3] for word in ("--platform", tag.platform)]
        fetched = tmp_path / f"pip-{machine}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", *tags, "-d", str(fetched)]
        process.run([*pip, *options])
        assert [file.name for file in fetched.iterdir()] == [expected.name]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_auditwheel_agrees(made: Path, machine: str, tmp_path: Path) -> None:
    """It names the policy that the wheel is tagged for, and has nothing to repair; what torch brings it must leave out.

    What its copy differs in are entries for folders, and the order of RECORD.
    """
    wheel = of(made, machine)
    (tag,) = parse_wheel_filename(wheel.name)[3]
    command = [sys.executable, "-m", "auditwheel"]
    shown = " ".join(process.run([*command, "show", wheel]).stdout.split())
    assert f'This constrains the platform tag to "{tag.platform}"' in shown
    assert f'is consistent with the following platform tag: "linux_{machine}"' in shown  # torch's own libraries
    process.run([*command, "repair", "--exclude", "lib*torch*", "--exclude", "libc10*", "-w", tmp_path, wheel])
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(tmp_path / wheel.name) as after:
        files = [name for name in after.namelist() if not name.endswith("/")]
        assert sorted(files) == sorted(before.namelist())
        assert [Path(name).name for name in files if after.read(name) != before.read(name)] == ["RECORD"]
        (record,) = (name for name in files if name.endswith("/RECORD"))
        assert sorted(after.read(record).splitlines()) == sorted(before.read(record).splitlines())


def test_a_wheel_for_another_machine_is_refused(made: Path, torch_cpu_python: Path, tmp_path: Path) -> None:
    """On x86-64, aarch64's wheel opens nothing: the error names its variant, and the machine as the reason."""
    with zipfile.ZipFile(of(made, "aarch64")) as archive:
        archive.extractall(tmp_path)
    done = process.run([torch_cpu_python, "-c", "import torch_ext_example"], cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert "built for linux aarch64, found linux x86_64" in done.stderr


@pytest.mark.performs("is configured: set the option `cross.")
def test_hatch_run_tests_the_wheel_of_the_other_machine(made: Path, arm64: Path, tmp_path: Path) -> None:
    """`hatch run matrix:test` makes aarch64's environment of torch 2.8, and the example's own tests pass in it."""
    root = two_machines(tmp_path / "p", hook=f'cross.aarch64.python = "{arm64 / "root"}"\n')
    config = root / "hatch.toml"
    text = config.read_text(encoding="utf-8").replace("[envs.matrix]\n", '[envs.matrix]\ntype = "torch-ext"\n')
    config.write_text(f'{text}\n[env]\nrequires = ["hatch-torch-ext"]\n', encoding="utf-8")
    (root / "dist").symlink_to(made)
    done = process.run(
        [sys.executable, "-m", "hatch", "run", "+machine=aarch64", "+torch=2.8", "matrix:test", "-q", "-k", "values"],
        cwd=root,
        env_changes={
            "HATCH_DATA_DIR": str(tmp_path / "data"),
            "HATCH_ENV_ACTIVE": None,
            "HATCH_ENV": None,
            "PATH": path(arm64),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    assert "matrix.2.8-aarch64" in done.stdout + done.stderr
    assert " passed" in done.stdout


def test_cuda_for_the_other_machine(store: Path, arm64: Path, tmp_path: Path) -> None:
    """With nvcc of x86-64 and torch of aarch64, device code, libraries and audit are as on aarch64 itself."""
    root = tmp_path / "tiny"
    disk.write(root, CUDA)
    done = build(root, tmp_path / "dist", store, PATH=path(arm64))
    wheel = of(tmp_path / "dist", "aarch64")
    assert [finding.code for finding in audit.audit_wheel(wheel)] == []
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".so")]
        library = Path(archive.extract(name, tmp_path))
    assert library.parent.name == "stable2.11_cu13.0_aarch64"
    assert elf.read(library).machine == "aarch64"
    assert {"libcudart.so.13", "libtorch_cpu.so"} <= set(elf.read(library).needed)
    assert fatbin.archs(library) == ("7.5", "7.5+PTX", "9.0")
    assert "cuda-aarch64)" in done.stdout + done.stderr
