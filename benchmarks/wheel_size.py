"""What compression can gain on a wheel with CUDA code: nvcc's own, deflate's level, the order of files.

    python benchmarks/wheel_size.py NVCC [--out benchmarks/results/wheel_size.md] [--work FOLDER]

Compiles the example's kernels once for what torch's wheels for CUDA 13 hold (NVCC is of CUDA 13), packs the device code
in each of nvcc's modes with its ``fatbinary``, and puts it into zip archives as wheels are: alone at each level, and
several times, as the variants of several releases are, in one order and the other. FOLDER keeps what was compiled.
"""

from __future__ import annotations

import argparse
import io
import lzma
import platform
import statistics
import subprocess
import tempfile
import time
import zipfile
import zlib
from datetime import datetime, timezone
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "example_project" / "csrc" / "kernels_cuda.cu"
ARCHS = (75, 80, 86, 90, 100, 120)
PTX = 120
MODES = ("default", "none", "speed", "balance", "size")
LEVELS = (1, 6, 9)
VARIANTS = 4
REPEATS = 5


def compiled(nvcc: Path, work: Path) -> list[str]:
    """Compile for each architecture, unless it was; return the images as ``fatbinary`` is told them."""
    images = []
    for arch in ARCHS:
        cubin = work / f"sm_{arch}.cubin"
        flags = ["-O3", "--fmad=false", "-std=c++17", f"-arch=sm_{arch}"]
        if not cubin.exists():
            subprocess.run([nvcc, "-cubin", *flags, "-o", cubin, SOURCE], check=True)
        images.append(f"--image3=kind=elf,sm={arch},file={cubin}")
    ptx = work / f"compute_{PTX}.ptx"
    if not ptx.exists():
        flags = ["-O3", "--fmad=false", "-std=c++17", f"-arch=compute_{PTX}"]
        subprocess.run([nvcc, "-ptx", *flags, "-o", ptx, SOURCE], check=True)
    return [*images, f"--image3=kind=ptx,sm={PTX},file={ptx}"]


def packed(nvcc: Path, images: list[str], work: Path, mode: str) -> tuple[bytes, float]:
    """Return the device code packed by nvcc's ``fatbinary`` in that mode, and the seconds that it took."""
    target = work / f"{mode}.fatbin"
    began = time.perf_counter()
    program = nvcc.with_name("fatbinary")
    subprocess.run([program, f"--create={target}", "-64", f"--compress-mode={mode}", *images], check=True)
    return target.read_bytes(), time.perf_counter() - began


def zipped(members: dict[str, bytes], level: int) -> tuple[bytes, float]:
    """Return the archive, and the median of the seconds of this process that it takes to write."""
    seconds = []
    for _ in range(REPEATS):
        stream = io.BytesIO()
        began = time.process_time()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, level)
        seconds.append(time.process_time() - began)
    return stream.getvalue(), statistics.median(seconds)


def unpacked(archive: bytes) -> float:
    """Return the median of the seconds of this process in which everything is read, as installers do."""
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            for name in opened.namelist():
                opened.read(name)
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def report(codes: dict[str, tuple[bytes, float]]) -> list[str]:
    """Return the tables."""
    heads = " | ".join(f"level {level}, kB (ms)" for level in LEVELS)
    lines = [
        f"| nvcc's mode | packing, ms | installed, kB | {heads} | unpack, ms |",
        f"|---|---:|---:|{'---:|' * len(LEVELS)}---:|",
    ]
    for mode, (code, took) in codes.items():
        cells = []
        for level in LEVELS:
            archive, seconds = zipped({"code": code}, level)
            cells.append(f"{len(archive) / 1e3:.0f} ({1e3 * seconds:.0f})")
        reading = 1e3 * unpacked(zipped({"code": code}, 6)[0])
        lines.append(f"| {mode} | {1e3 * took:.0f} | {len(code) / 1e3:.0f} | {' | '.join(cells)} | {reading:.0f} |")
    lines += [
        "",
        f"{VARIANTS} variants that hold the same device code:\n",
        "| nvcc's mode | zip, kB | the other order, kB | stored once, kB | one stream of xz, kB |",
        "|---|---:|---:|---:|---:|",
    ]
    for mode, (code, _) in codes.items():
        members = {f"variant{number}": code + bytes([number]) for number in range(VARIANTS)}
        one, _ = zipped(members, 6)
        other, _ = zipped(dict(reversed(members.items())), 6)
        once, _ = zipped({"code": code}, 6)
        solid = lzma.compress(b"".join(members.values()), preset=9)
        sizes = " | ".join(f"{len(each) / 1e3:.0f}" for each in (one, other, once, solid))
        lines.append(f"| {mode} | {sizes} |")
    return lines


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description="What compression can gain on a wheel with CUDA code.")
    parser.add_argument("nvcc", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "wheel_size.md")
    options = parser.parse_args()
    nvcc = options.nvcc.resolve()
    with tempfile.TemporaryDirectory() as name:
        work = (options.work or Path(name)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        images = compiled(nvcc, work)
        codes = {mode: packed(nvcc, images, work, mode) for mode in MODES}
    today = f"{datetime.now(tz=timezone.utc):%Y-%m-%d}, {platform.machine()}, zlib {zlib.ZLIB_RUNTIME_VERSION}"
    lines = [
        "# What compression can gain on a wheel with CUDA code\n",
        f"`python benchmarks/wheel_size.py NVCC` on {today}. The device code of the example: machine code for "
        f"{', '.join(f'{arch // 10}.{arch % 10}' for arch in ARCHS)}, PTX for {PTX // 10}.{PTX % 10}.\n",
        *report(codes),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
