"""What a variant that was built at first use costs at import, beside one that fits: fresh interpreters, alternating.

    python benchmarks/first_use.py PYTHON_WITH_TORCH [--runs 15]

Writes benchmarks/results/first_use.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import hatch_torch_ext

RESULTS = Path(__file__).parent / "results" / "first_use.md"
FILES = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"
[project]
name = "bench-pkg"
version = "1"
[tool.hatch.build.targets.wheel.hooks.torch-ext]
fallback = "build"
[tool.hatch.envs.matrix]
skip-install = true
dependencies = ["torch=={matrix:torch}.*"]
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.8"]
""",
    ".gitignore": "/build/\n",
    "src/bench_pkg/__init__.py": "",
    "csrc/CMakeLists.txt": """
cmake_minimum_required(VERSION 3.18)
project(bench LANGUAGES C)
add_library(bench SHARED bench.c)
install(TARGETS bench LIBRARY DESTINATION .)
""",
    "csrc/bench.c": "int answer(void) { return 42; }\n",
}
TIMED = (
    "import sys, time, torch; sys.path.insert(0, {site!r}); s = time.perf_counter(); from bench_pkg import _variants; "
    "_variants.load(); print(time.perf_counter() - s)"
)


def main() -> None:
    """Build both, measure, write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("python", type=Path)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in FILES.items():
            (root / "project" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "project" / name).write_text(text, encoding="utf-8")
        builder = os.pathsep.join([str(Path(hatch_torch_ext.__file__).parents[1]), sysconfig.get_path("purelib")])
        environ = {**os.environ, "TORCH_EXT_BUILD_CACHE": str(root / "cache")}
        # Built by the Python that has torch, for that torch; and for 2.8 alone, so that nothing fits.
        sites = {}
        for kind, python, only in (("fits", options.python, "current"), ("built", sys.executable, "")):
            command = [python, "-m", "hatchling", "build", "-t", "wheel", "-d", root / kind]
            changes = {"HATCH_TORCH_EXT_ONLY": only, "PYTHONPATH": builder}
            subprocess.run(command, cwd=root / "project", env={**environ, **changes}, check=True)
            (wheel,) = (root / kind).glob("*.whl")
            sites[kind] = str(root / kind / "site")
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", sites[kind], wheel]
            subprocess.run(command, check=True)
        subprocess.run(
            [options.python, "-m", "bench_pkg._variants", "--build"],
            env={**environ, "PYTHONPATH": f"{sites['built']}{os.pathsep}{builder}"},
            check=True,
        )
        times: dict[str, list[float]] = {kind: [] for kind in sites}
        for _ in range(options.runs + 1):
            for kind, site in sites.items():
                said = subprocess.check_output([options.python, "-c", TIMED.format(site=site)], env=environ)
                times[kind].append(float(said) * 1000)
    rows = {kind: found[1:] for kind, found in times.items()}
    median = {kind: statistics.median(found) for kind, found in rows.items()}
    lines = [
        "# What a variant that was built at first use costs at import\n",
        f"`python benchmarks/first_use.py PYTHON_WITH_TORCH --runs {options.runs}`: fresh interpreters in turn, torch",
        "imported before; a library of plain C, which `load()` chooses and compares, and does not open.\n",
        "| import of `_variants` and `load()`, in milliseconds | median | best |",
        "|---|---|---|",
        f"| a variant of the wheel fits | {median['fits']:.2f} | {min(rows['fits']):.2f} |",
        f"| none fits, one was built here | {median['built']:.2f} | {min(rows['built']):.2f} |",
        "",
        f"A built one costs {median['built'] - median['fits']:.2f} ms more (the aim is under 5 ms).",
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
