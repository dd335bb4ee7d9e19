"""What compression can gain on a CUDA wheel: nvcc's, the zip's, and device code that is stored once.

    python benchmarks/wheel_size.py [--cuda12 ROOT] [--python PYTHON] [--out benchmarks/results/wheel_size.md]

Builds the example for CUDA 13 (an exact variant for one release of torch, one on the stable ABI) once for each of
nvcc's modes of compression, and once with its kernels in a shared library of their own; writes each wheel's members
again at other levels of deflate. ROOT is a toolkit of CUDA 12 (``tests/cuda12_root.py``), which has no
``--compress-mode``: nvcc's own choice stands beside ``-no-compress``. PYTHON has a torch for CUDA 13: with it, loading
the stable variant is timed, without a GPU. Compiles CUDA for half an hour.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from releases import LEFT_OUT

EXAMPLE = Path(__file__).resolve().parent.parent / "example_project"
RELEASES = ("2.11",)
MODES = ("default", "none", "speed", "size")
LEVELS = (1, 6, 9)
REPEATS = 5
MATRIX = """
[[envs.sizes.matrix]]
torch = {releases}
cuda = ["cu130"]
[[envs.sizes.matrix]]
torch = ["2.11"]
abi = ["stable"]
cuda = ["cu130"]
[envs.sizes.overrides]
matrix.cuda.extra-dependencies = [{{ value = "cuda-toolkit[nvcc,cudart,cccl]==13.0.*", if = ["cu130"] }}]
"""
MATRIX_12 = """
[[envs.sizes.matrix]]
torch = ["2.6"]
cuda = ["cu124"]
"""
SEPARATE = """
  add_library(example_kernels SHARED kernels_cuda.cu)
  set_target_properties(example_kernels PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Shared)
  target_link_libraries(torch_ext_example PRIVATE example_kernels)
  install(TARGETS example_kernels LIBRARY DESTINATION .)
"""
HIDDEN = (
    "set_target_properties(torch_ext_example PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden)"
)
LOAD = """
import sys, time
import torch
began = time.perf_counter()
torch.ops.load_library(sys.argv[1])
print(time.perf_counter() - began)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A wheel that was built, and the seconds of processors that its build took."""

    name: str
    wheel: Path
    seconds: float

    def members(self) -> dict[str, bytes]:
        """Return path -> content, in the wheel's order."""
        with zipfile.ZipFile(self.wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def libraries(self) -> dict[str, bytes]:
        """Return what is in the variants' folders."""
        return {name: data for name, data in self.members().items() if ".so" in name}


def built(folder: Path, name: str, *, option: str = "", matrix: str, separate: bool = False, **environ: str) -> Made:
    """Build the example's wheel below ``folder`` with one more option of the hook."""
    root = folder / name / "example"
    shutil.copytree(EXAMPLE, root, ignore=LEFT_OUT)
    config = root / "hatch.toml"
    text = config.read_text(encoding="utf-8").replace('environment = "matrix"', f'environment = "sizes"\n{option}')
    config.write_text(f'{text}\n[envs.sizes]\ntemplate = "matrix"\n{matrix}', encoding="utf-8")
    if separate:
        cmake = root / "csrc" / "CMakeLists.txt"
        lines = cmake.read_text(encoding="utf-8")
        lines = lines.replace("  target_sources(torch_ext_example PRIVATE kernels_cuda.cu)\n", SEPARATE)
        cmake.write_text(lines.replace(HIDDEN, ""), encoding="utf-8")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    given = {"HATCH_TORCH_EXT_CACHE": str(folder / "store"), "HATCH_TORCH_EXT_ENVIRONMENT": "sizes", **environ}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=root, check=True, env={**os.environ, **given}, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (wheel,) = (root / "dist").glob("*.whl")
    return Made(name=name, wheel=wheel, seconds=took)


def zipped(members: dict[str, bytes], level: int, *, backwards: bool = False) -> tuple[int, float]:
    """Write the members again; return the size of the archive, and the seconds that it took."""
    stream = io.BytesIO()
    began = time.perf_counter()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name in sorted(members, reverse=True) if backwards else members:
            archive.writestr(name, members[name])
    return len(stream.getvalue()), time.perf_counter() - began


def unpacked(wheel: Path) -> float:
    """Return the median seconds in which every member is read, as an installer does."""
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                archive.read(name)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def loading(python: Path, made: Made, folder: Path) -> float:
    """Return the median seconds in which torch opens the stable variant's library."""
    (name,) = (name for name in made.libraries() if "/stable" in name)
    library = folder / f"{made.name}.so"
    library.write_bytes(made.libraries()[name])
    seconds = []
    for _ in range(REPEATS):
        done = subprocess.run([python, "-c", LOAD, library], check=True, capture_output=True, text=True)
        seconds.append(float(done.stdout))
    return statistics.median(seconds)


def mb(size: float) -> str:
    """Return bytes as MB."""
    return f"{size / 1e6:.2f}"


def by_mode(rows: list[Made], folder: Path, python: Path | None) -> list[str]:
    """Return the table of nvcc's modes."""
    lines = [
        "| nvcc's compression | build, CPU s | installed, MB | wheel, MB | unpack, ms | load, ms |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for made in rows:
        time_of = f"{1000 * loading(python, made, folder):.1f}" if python and "CUDA 12" not in made.name else ""
        whole = sum(map(len, made.members().values()))
        lines.append(
            f"| {made.name} | {made.seconds:.0f} | {mb(whole)} | {mb(made.wheel.stat().st_size)} "
            f"| {1000 * unpacked(made.wheel):.0f} | {time_of} |"
        )
    return lines


def by_level(rows: list[Made]) -> list[str]:
    """Return the table of deflate's levels, and of what a long window over all members would find."""
    heads = [f"level {level}, MB (s)" for level in LEVELS]
    lines = [
        f"| wheel | {' | '.join(heads)} | level 6, other order, MB | one stream of xz, MB |",
        f"|---|{'---:|' * (len(LEVELS) + 2)}",
    ]
    for made in rows:
        members = made.members()
        levels = [f"{mb(size)} ({took:.2f})" for size, took in (zipped(members, level) for level in LEVELS)]
        other, _ = zipped(members, 6, backwards=True)
        solid = len(lzma.compress(b"".join(members.values()), preset=9))
        lines.append(f"| {made.name} | {' | '.join(levels)} | {mb(other)} | {mb(solid)} |")
    return lines


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description="What compression can gain on a CUDA wheel.")
    parser.add_argument("--cuda12", type=Path, metavar="ROOT")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "wheel_size.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wheel-size-") as name:
        folder = Path(name)
        matrix = MATRIX.format(releases=json.dumps(RELEASES))
        rows = [built(folder, mode, option=f'cuda.compress = "{mode}"', matrix=matrix) for mode in MODES]
        rows.append(built(folder, "default, kernels in a library of their own", matrix=matrix, separate=True))
        twelve = []
        if options.cuda12:
            home = f'cuda-home = "{options.cuda12}"'
            twelve = [
                built(folder, "default, CUDA 12.4", option=home, matrix=MATRIX_12),
                built(
                    folder, "-no-compress, CUDA 12.4", option=home, matrix=MATRIX_12, NVCC_APPEND_FLAGS="-no-compress"
                ),
            ]
        today = f"{datetime.now(tz=timezone.utc):%Y-%m-%d}, {platform.machine()}, zlib {zlib.ZLIB_RUNTIME_VERSION}"
        lines = [
            "# What compression can gain on a CUDA wheel\n",
            f"`python benchmarks/wheel_size.py --cuda12 ROOT --python PYTHON` on {today}.\n",
            f"The example for CUDA 13, nvcc 13.0, its default architectures: torch {', '.join(RELEASES)} and one "
            "variant on the stable ABI. CUDA 12: one variant, for torch 2.6. Load: the stable variant, in a torch for "
            "CUDA 13, no GPU.\n",
            *by_mode([*rows, *twelve], folder, options.python),
            "",
            *by_level([*rows, *twelve]),
        ]
    text = "\n".join(lines) + "\n"
    print(text)
    options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
