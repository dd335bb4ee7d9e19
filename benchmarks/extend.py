"""What `extend` takes for a wheel of 1 GB, and for the example beside real torches; with the compile of the new entry.

    python benchmarks/extend.py [--megabytes 1000] [--out benchmarks/results/extend.md]

Builds a wheel of five large variants for tiny stand-ins of torch, then adds a sixth, small one: what the command takes
more than the build of the new entry is what it does with the old variants. The same for the example: a wheel for torch
2.8, and 2.13 added. Needs compilers, an index with torch, and 6 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLE = Path(__file__).resolve().parent.parent / "example_project"
OLD = ("2.4", "2.5", "2.6", "2.7", "2.8")
NEW = "2.9"
C = """
#ifdef DATA
__asm__(".section .rodata\\n.globl data\\ndata: .incbin \\"" DATA "\\"\\n.previous");
#endif
const char *release = RELEASE;
int answer(void) { return 42; }
"""
CMAKE = """
target_compile_definitions(plain PRIVATE RELEASE="${TORCH_EXT_TORCH}")
if(EXISTS "$ENV{DATA_FOLDER}/${TORCH_EXT_TORCH}")
  target_compile_definitions(plain PRIVATE DATA="$ENV{DATA_FOLDER}/${TORCH_EXT_TORCH}")
endif()
"""


@dataclass(frozen=True)
class Took:
    """What a command took: seconds of processor time, its own and its children's, and on the clock."""

    processor: float
    clock: float


def data(path: Path, megabytes: int, seed: int) -> None:
    """Write what deflate makes about ``megabytes`` of: half of it random, half twice as long, in digits."""
    random, half = Random(seed), megabytes * 500_000  # noqa: S311 -- no secret
    with path.open("wb") as stream:
        for _ in range(10):
            stream.write(random.randbytes(half // 10))
            stream.write(random.randbytes(half * 9 // 100).hex().encode())


def matrix(project: plain.Project, *releases: str) -> None:
    """Give the project a matrix of these releases."""
    page = plain.PROJECT.format(releases=", ".join(f'"{release}"' for release in releases))
    page = page.replace('version = "1"', 'version = "1"\ndynamic = ["dependencies"]')
    (project.root / "pyproject.toml").write_text(f"{page}[tool.hatch.metadata.hooks.torch-ext]\n", encoding="utf-8")


def timed(root: Path, environ: Mapping[str, str], *command: str) -> Took:
    """Run our command line in ``root``; return what it took."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    env = {**os.environ, **environ}
    done = subprocess.run(
        [sys.executable, "-m", "hatch_torch_ext", *command],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(processor, time.perf_counter() - start)


def example(folder: Path) -> tuple[Took, Took]:
    """Extend the example's wheel for torch 2.8 by 2.13; return what that takes, and what a build of 2.13 only takes."""
    root = folder / "example"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("build", "dist", "__pycache__"))
    config = root / "hatch.toml"
    before, start, rest = config.read_text(encoding="utf-8").partition("[[envs.matrix.matrix]]")
    after = rest[rest.index("# The wheel in dist/") :]
    environ = {"HATCH_TORCH_EXT_CACHE": str(folder / "example-store"), "HATCH_TORCH_EXT_COMPILER_LAUNCHER": "none"}

    def for_releases(*releases: str) -> None:
        config.write_text(f"{before}{start}\ntorch = {json.dumps(releases)}\n\n{after}", encoding="utf-8")
        shutil.rmtree(root / "build", ignore_errors=True)

    for _ in range(2):  # the first fills the store
        for_releases("2.8", "2.13")
        alone = timed(root, environ, "build", "--only", "matrix.2.13", "-d", "alone")
    for_releases("2.8")
    timed(root, environ, "build")
    for_releases("2.8")
    (wheel,) = (root / "dist").glob("*.whl")
    extended = timed(root, environ, "extend", str(wheel), "--add", "torch=2.13", "-o", "more")
    return extended, alone


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description="The time of `extend` for a large wheel.")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "extend.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        for seed, release in enumerate(OLD):
            data(folder / "data" / release, options.megabytes // len(OLD), seed)
        plain.make_wheels(folder / "wheels", [f"{release}.0" for release in (*OLD, NEW)])
        files = {"csrc/plain.c": C, "csrc/CMakeLists.txt": plain.CMAKE + CMAKE}
        files["src/my_pkg/__init__.py"] = "from my_pkg import _variants\n_variants.path('libplain.so')\n"
        project = plain.Project(folder / "project", folder, files=files)
        environ = {name: value for name, value in project.environ.items() if value is not None}
        environ |= {
            "DATA_FOLDER": str(folder / "data"),
            "TORCH_EXT_TORCH_INDEX": str(folder / "wheels"),
            "TMPDIR": name,
        }
        matrix(project, *OLD, NEW)
        for _ in range(2):  # the first fills the store
            alone = timed(project.root, environ, "build", "--only", f"matrix.{NEW}", "-d", "alone")
            shutil.rmtree(project.root / "build")
        matrix(project, *OLD)
        whole = timed(project.root, environ, "build")
        shutil.rmtree(project.root / "build")
        wheel = str(project.wheel())
        extended = timed(project.root, environ, "extend", wheel, "--add", f"torch={NEW}", "-o", "more")
        size = project.wheel("more").stat().st_size
        next_torch, compiled = example(folder)
    rows = (("the wheel of five", whole), ("`extend`, a sixth added", extended), ("a build of the sixth only", alone))
    text = "\n".join(
        [
            "# Extending a large wheel",
            "",
            f"`python benchmarks/extend.py --megabytes {options.megabytes}` on {datetime.now(timezone.utc):%Y-%m-%d}, "
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}:",
            f"a wheel of {size / 1e9:.2f} GB with five variants for tiny stand-ins of torch; the new one is small.",
            "",
            "| | processor, s | clock, s |",
            "|---|---:|---:|",
            *(f"| {what} | {took.processor:.1f} | {took.clock:.1f} |" for what, took in rows),
            "",
            f"What `extend` does with the old variants takes {extended.processor - alone.processor:.1f} s of processor "
            "time.",
            "",
            "The example, for torch 2.8, with real torches; SDKs are in the store:",
            "",
            "| | processor, s | clock, s |",
            "|---|---:|---:|",
            f"| `extend`, torch 2.13 added | {next_torch.processor:.1f} | {next_torch.clock:.1f} |",
            f"| a build of 2.13 only | {compiled.processor:.1f} | {compiled.clock:.1f} |",
            "",
        ]
    )
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
