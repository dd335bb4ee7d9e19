"""Thin torch SDKs beside full installs of torch: bytes, seconds, memory. Writes ``results/sdk.md``.

python benchmarks/sdk.py                 ten releases thin, cold and warm, without and with CUDA headers
python benchmarks/sdk.py --full 3        and full installs of three of them by uv (about 10 GB of traffic)
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tomllib  # type: ignore[import-not-found,unused-ignore]  # of Python 3.11
import uv

from hatch_torch_ext.config import Config
from hatch_torch_ext.sdk import thin
from hatch_torch_ext.values import Entry, Environment, Interpreter

RELEASES = ("2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.11.0", "2.12.0", "2.13.0", "2.15.0")
FULL = ("2.8.0", "2.11.0", "2.15.0")
RESULTS = Path(__file__).parent / "results" / "sdk.md"
UV = uv.find_uv_bin()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One acquisition of each kind for one release: megabytes fetched, and seconds."""

    release: str
    megabytes: float
    seconds: float
    again: float
    cuda_megabytes: float
    cuda_seconds: float


def acquire(release: str, project: Path, environ: dict[str, str]) -> tuple[float, float]:
    """Acquire one SDK; return megabytes fetched and seconds."""
    reports: list[str] = []
    requirement = f"torch=={release}"
    entry = Entry(
        name=f"matrix.{release}", variables=(), dependencies=(requirement,), torch_requirement=requirement, python=None
    )
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    interpreter = Interpreter(
        version=platform.python_version(), tag=tag, ext_suffix=".so", machine=platform.machine(), include=project
    )
    environment = Environment(
        prefix=project, python=Path(sys.executable), bin=project, site_packages=project, interpreter=interpreter
    )
    config = Config(root=project, package="p", package_dir=project, source=project / "csrc")
    began = time.monotonic()
    thin.acquire(entry, environment, config, report=reports.append, environ=environ)
    seconds = time.monotonic() - began
    return sum(float(one) for one in re.findall(r"([\d.]+)(?: of \d+)? MB fetched", "\n".join(reports))), seconds


def measure(release: str, folder: Path) -> Row:
    """Measure one release: cold, again, and cold with CUDA headers; each cold run has empty caches."""
    (folder / "csrc").mkdir()
    cmake = folder / "csrc" / "CMakeLists.txt"
    cmake.write_text("project(p LANGUAGES CXX)\n")
    environ = {"HATCH_TORCH_EXT_CACHE": str(folder / "cpu")}
    os.environ["UV_CACHE_DIR"] = str(folder / "uv")
    megabytes, seconds = acquire(release, folder, environ)
    _, again = acquire(release, folder, environ)
    cmake.write_text("project(p LANGUAGES CXX CUDA)\n")
    os.environ["UV_CACHE_DIR"] = str(folder / "uv2")
    more, longer = acquire(release, folder, {"HATCH_TORCH_EXT_CACHE": str(folder / "cuda")})
    return Row(
        release=release, megabytes=megabytes, seconds=seconds, again=again, cuda_megabytes=more, cuda_seconds=longer
    )


def made(scratch: str, name: str) -> Path:
    """Return a new folder."""
    folder = Path(scratch, name)
    folder.mkdir()
    return folder


def install(release: str, folder: Path) -> tuple[float, float]:
    """Install the whole release with uv and empty caches; return megabytes fetched and seconds."""
    python = folder / "env" / "bin" / "python"
    environ = {**os.environ, "UV_CACHE_DIR": str(folder / "cache")}
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, folder / "env"], check=True, env=environ)
    began = time.monotonic()
    subprocess.run([UV, "pip", "install", "-q", "--python", python, f"torch=={release}"], check=True, env=environ)
    seconds = time.monotonic() - began
    asked = folder / "asked.txt"
    asked.write_text(f"torch=={release}\n")
    lock = subprocess.run(
        [UV, "pip", "compile", "-q", "--format", "pylock.toml", "--python", python, asked],
        check=True, env=environ, capture_output=True, text=True,
    ).stdout  # fmt: skip
    sizes = [package["wheels"][0]["size"] for package in tomllib.loads(lock)["packages"]]
    return sum(sizes) / 1e6, seconds


def table(rows: list[Row], installs: dict[str, tuple[float, float]]) -> str:
    """Return the results as Markdown."""
    lines = [
        "| torch | MB | s | again, ms | with CUDA headers, MB | s | in full, MB | s | times fewer bytes | less time |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        full = installs.get(row.release)
        side = (
            f"{full[0]:.0f} | {full[1]:.1f} | {full[0] / row.megabytes:.0f} | {full[1] / row.seconds:.0f}"
            if full
            else "| | |"
        )
        lines.append(
            f"| {row.release} | {row.megabytes:.1f} | {row.seconds:.1f} | {row.again * 1000:.0f} "
            f"| {row.cuda_megabytes:.1f} | {row.cuda_seconds:.1f} | {side} |"
        )
    middle = [statistics.median(getattr(row, name) for row in rows) for name in Row.__slots__[1:]]
    lines.append(
        f"| median | {middle[0]:.1f} | {middle[1]:.1f} | {middle[2] * 1000:.0f} | {middle[3]:.1f} | {middle[4]:.1f} "
        "| | | | |"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", type=int, default=0, help="how many full installs to measure beside")
    options = parser.parse_args()
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):  # a wheel on this disk would be no measure of a network
        os.environ.pop(name, None)
    rows, installs = [], {}
    with tempfile.TemporaryDirectory() as scratch:  # removed at the end: see the text of the results
        for release in RELEASES:
            rows.append(measure(release, made(scratch, f"thin-{release}")))
            print(rows[-1], flush=True)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        for release in FULL[: options.full]:
            installs[release] = install(release, made(scratch, f"full-{release}"))
            print(release, installs[release], flush=True)
    command = " ".join(["python benchmarks/sdk.py", *sys.argv[1:]])
    text = (
        f"# Thin torch SDKs beside full installs\n\n`{command}` on {platform.machine()} Linux, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}.\nEvery run starts with empty caches, except *again*. What they leave is "
        "removed at the end, not between them:\nfor minutes after files are deleted, ext4 makes new ones several times "
        "slower. MB are bytes of wheels;\nuv's reading of index pages is in the seconds, not in the MB. "
        f"Memory of the process at its highest: {memory:.0f} MB.\n\n{table(rows, installs)}\n"
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
