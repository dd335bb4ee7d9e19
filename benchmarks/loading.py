"""What the loader costs over ``torch.ops.load_library`` on the same file: fresh interpreters, alternating, 40 variants.

    python benchmarks/loading.py PYTHON_WITH_TORCH [--runs 31]

Writes benchmarks/results/loading.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from hatch_torch_ext.facts import content
from hatch_torch_ext.facts.variant import BuildRecord, Variant, VariantFile
from hatch_torch_ext.merge import loader
from hatch_torch_ext.values import Layout, PlacedVariant

RESULTS = Path(__file__).parent / "results" / "loading.md"
RECORD = BuildRecord(entry="e", variables=(), torch_version="", python="", sdk="", compiler="", cmake="")
SOURCE = """
#include <torch/library.h>
static at::Tensor same(const at::Tensor& x) { return x; }
TORCH_LIBRARY(loading_benchmark, m) { m.def("same(Tensor x) -> Tensor"); m.impl("same", c10::DispatchKey::CPU, &same); }
"""
BY_HAND = "torch.ops.load_library({library!r})"
BY_LOADER = "_variants.load()"
CLOCK = "s = time.perf_counter(); {what}; print(time.perf_counter() - s)"
TIMED = "import sys, time, torch; sys.path.insert(0, {site!r}); " + CLOCK
LOADED = "import sys, time, torch; sys.path.insert(0, {site!r}); from bench_pkg import _variants; " + CLOCK
IMPORT = "import sys, time; sys.path.insert(0, {site!r}); s = time.perf_counter(); import bench_pkg._variants; "
IMPORT += "print(time.perf_counter() - s)"


def variant(label: str, torch: str, *, cuda: str | None, library: Path) -> Variant:
    """Return a variant with one library, described as the build does."""
    file = VariantFile(
        path=f"{label}/libbench.so",
        kind="library",
        sha256=content.sha256(library),
        size=library.stat().st_size,
        registers=True,
        installed="libbench.so",
        ends=content.ends(library),
        namespaces=("loading_benchmark",),
    )
    return Variant(
        label=label,
        torch=torch,
        stable_abi=False,
        backend="cuda" if cuda else "cpu",
        cuda=cuda,
        cxx11_abi=True,
        python=None,
        machine=os.uname().machine,
        libc="glibc",
        libc_floor="2.17",
        policy="",
        archs=("8.0", "9.0", "9.0+PTX") if cuda else (),
        files=(file,),
        build=RECORD,
    )


def prepare(site: Path, python: str) -> Path:
    """Compile the library, put it into a package of 40 variants, and return its path."""
    ask = "import torch, os; print(os.path.dirname(torch.__file__), torch.__version__.rpartition('.')[0])"
    folder, minor = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.split()
    package = site / "bench_pkg"
    library = package / "_torch_ext" / "chosen" / "libbench.so"
    library.parent.mkdir(parents=True)
    include = [f"-I{folder}/include", f"-I{folder}/include/torch/csrc/api/include"]
    command = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", "-xc++", "-", *include, "-o", str(library)]
    links = ["-Wl,--no-as-needed", f"-L{folder}/lib", "-ltorch_cpu", "-lc10", "-s"]
    subprocess.run([*command, *links], input=SOURCE, check=True, text=True)
    others = [(f"2.{number}", cuda) for number in range(3, 16) for cuda in ("12.1", "12.8", "13.0")]
    variants = [variant(f"torch{torch}_cu{cuda}", torch, cuda=cuda, library=library) for torch, cuda in others]
    variants.append(variant("chosen", minor, cuda=None, library=library))
    placed = tuple(PlacedVariant(variant=each, places=()) for each in variants)
    layout = Layout(package="bench_pkg", variants=placed, files=(), tag="", requires="", manifest="")
    text = loader.render(layout, distribution="bench-pkg")
    (package / "_variants.py").write_text(text, encoding="utf-8")
    for place, source in loader.parts(fallback=False).items():
        shutil.copy(source, package / place)
    (package / "__init__.py").touch()
    subprocess.run([python, "-m", "compileall", "-q", site], check=True)  # as pip does when it installs
    return library


def measure(python: str, program: str) -> float:
    """Run ``program`` in a fresh interpreter and return the milliseconds that it prints as seconds."""
    done = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True)
    return float(done.stdout) * 1000


def main() -> int:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="a Python with torch")
    parser.add_argument("--runs", type=int, default=31)
    options = parser.parse_args()
    site = Path(tempfile.mkdtemp(prefix="loading-"))
    try:
        library = prepare(site, options.python)
        programs = {
            "`torch.ops.load_library(path)`": TIMED.format(site=str(site), what=BY_HAND.format(library=str(library))),
            "`_variants.load()`": LOADED.format(site=str(site), what=BY_LOADER),
            "import of `_variants` alone, without torch": IMPORT.format(site=str(site)),
        }
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(options.runs + 1):
            for name, program in programs.items():
                times[name].append(measure(options.python, program))
    finally:
        shutil.rmtree(site)
    rows = [f"| {name} | {statistics.median(each[1:]):.2f} | {min(each[1:]):.2f} |" for name, each in times.items()]
    by_hand, by_loader, _ = (statistics.median(each[1:]) for each in times.values())
    text = "\n".join(
        [
            "# What the loader costs",
            "",
            f"`python benchmarks/loading.py PYTHON_WITH_TORCH --runs {options.runs}`: fresh interpreters in turn,",
            "a package of 40 variants compiled to bytecode as pip does, the same library; the first round, which fills",
            "caches, is left out.",
            "",
            "| in milliseconds | median | best |",
            "|---|---|---|",
            *rows,
            "",
            f"Over loading by hand: {by_loader - by_hand:.2f} ms (median against median; the aim is under 1 ms, and",
            "under 5 ms for the import without torch).",
            "",
        ]
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
