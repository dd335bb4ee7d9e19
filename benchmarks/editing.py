"""The edit loop, beside scikit-build-core's editable rebuild and setuptools' `build_ext --inplace`: the same two files.

    python benchmarks/editing.py PYTHON_WITH_TORCH [--edits 2]

Takes five minutes on two cores. Writes benchmarks/results/editing.md. The last column has torch's headers precompiled
by the lines that docs/developing.md shows.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import uv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results" / "editing.md"
OPS = """
#include <ATen/ATen.h>
#include <torch/library.h>

at::Tensor answer(const at::Tensor& x) { return x + 1; }
TORCH_LIBRARY(bench_pkg, m) { m.def("answer(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(bench_pkg, CPU, m) { m.impl("answer", &answer); }
"""
MODULE = """
#include <torch/extension.h>

at::Tensor doubled(const at::Tensor& x) { return x * 2; }
PYBIND11_MODULE(_C, m) { m.def("doubled", &doubled); }
"""
CMAKE = """
cmake_minimum_required(VERSION 3.26)
project(bench_pkg LANGUAGES CXX)
find_package(Torch REQUIRED)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
add_library(bench_ops SHARED csrc/ops.cpp)
target_link_libraries(bench_ops PRIVATE {ops})
Python_add_library(_C MODULE WITH_SOABI csrc/module.cpp)
target_link_libraries(_C PRIVATE {module})
target_compile_definitions(_C PRIVATE TORCH_EXTENSION_NAME=_C)
install(TARGETS bench_ops _C LIBRARY DESTINATION {destination})
"""
# torch's own package finds libtorch_python by hand, and the flag that its headers want.
UPSTREAM = """
find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(COMMAND "${Python_EXECUTABLE}" -c "import torch; print(torch.utils.cmake_prefix_path, end='')"
                OUTPUT_VARIABLE CMAKE_PREFIX_PATH COMMAND_ERROR_IS_FATAL ANY)
find_package(Torch REQUIRED)
find_library(TORCH_PYTHON torch_python PATHS "${TORCH_INSTALL_PREFIX}/lib" NO_DEFAULT_PATH REQUIRED)
"""
PRECOMPILED = """
if(DEFINED ENV{PRECOMPILE})
  target_precompile_headers(bench_ops PRIVATE <ATen/ATen.h> <torch/library.h>)
endif()
"""
LOAD = """
from pathlib import Path

import torch

(library,) = Path(__file__).parent.glob("{library}")
torch.ops.load_library(library)
from bench_pkg import _C
"""
USE = "import torch, bench_pkg; print(int(torch.ops.bench_pkg.answer(torch.zeros(()))), bench_pkg._C.__name__)"
INSTALL = ("-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "-e", ".")


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A way to build, with what its user would write and type."""

    name: str
    packages: Sequence[str]
    files: dict[str, str]
    install: Sequence[str] = INSTALL
    """Arguments of Python: the first time, and when nothing has changed."""
    environ: dict[str, str] = field(default_factory=dict)
    after_edit: Sequence[str] = ()
    """What is typed before the next import; nothing where the import itself builds."""


@dataclass
class Times:
    """Seconds, and seconds of CPU of all processes, of each step."""

    found: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    size: int = 0
    """Bytes of the project's folder at the end."""

    def take(self, step: str, work: Callable[[], object]) -> None:
        """Do ``work`` and note what it took."""
        before, began = _cpu(), time.perf_counter()
        work()
        self.found.setdefault(step, []).append((time.perf_counter() - began, _cpu() - before))

    def cell(self, step: str) -> str:
        """Return the median, for a table."""
        wall, cpu = (statistics.median(each) for each in zip(*self.found[step], strict=True))
        return f"{wall:.1f} ({cpu:.1f})"


def _cmake(text: str, **values: str) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tools(wheel: Path, torch: str) -> list[Tool]:
    """Return the three; ``wheel`` is this project's own."""
    minor = ".".join(torch.split(".")[:2])
    common = {"csrc/ops.cpp": OPS, "csrc/module.cpp": MODULE}
    ours = Tool(
        name="hatch-torch-ext",
        packages=[f"hatch-torch-ext[build] @ {wheel.as_uri()}"],
        files={
            **common,
            "pyproject.toml": f"""
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"
[project]
name = "bench-pkg"
version = "1"
dynamic = ["dependencies"]
[tool.hatch.metadata.hooks.torch-ext]
[tool.hatch.build.targets.wheel.hooks.torch-ext]
source = "."
compiler-launcher = "none"
editable.rebuild = true
[tool.hatch.envs.matrix]
skip-install = true
dependencies = ["torch=={{matrix:torch}}.*"]
[[tool.hatch.envs.matrix.matrix]]
torch = ["{minor}"]
""",
            ".gitignore": "/build/\n",
            "CMakeLists.txt": _cmake(CMAKE + PRECOMPILED, ops="torch", module="Torch::Python", destination="."),
            "src/bench_pkg/__init__.py": "import torch\nfrom bench_pkg import _variants\n\n_variants.load()\n"
            "from bench_pkg import _C\n",
        },
    )
    return [
        Tool(
            name="setuptools",
            packages=["setuptools", "ninja", "wheel"],
            install=("setup.py", "-q", "build_ext", "--inplace"),
            after_edit=("setup.py", "-q", "build_ext", "--inplace"),
            files={
                **common,
                "setup.py": """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="bench_pkg",
    version="1",
    packages=["bench_pkg"],
    ext_modules=[
        CppExtension("bench_pkg.bench_ops", ["csrc/ops.cpp"]),
        CppExtension("bench_pkg._C", ["csrc/module.cpp"]),
    ],
    cmdclass={"build_ext": BuildExtension},
)
""",
                "bench_pkg/__init__.py": LOAD.format(library="bench_ops*.so"),
            },
        ),
        Tool(
            name="scikit-build-core",
            packages=["scikit-build-core", "ninja", "cmake"],
            files={
                **common,
                "pyproject.toml": """
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"
[project]
name = "bench-pkg"
version = "1"
[tool.scikit-build]
editable.rebuild = true
build-dir = "build"
""",
                "CMakeLists.txt": _cmake(
                    CMAKE.replace("find_package(Torch REQUIRED)\n", UPSTREAM),
                    ops='"${TORCH_LIBRARIES}"',
                    module='"${TORCH_LIBRARIES}" "${TORCH_PYTHON}"',
                    destination="bench_pkg",
                ),
                "src/bench_pkg/__init__.py": """
import torch
from bench_pkg import _C  # the import that builds

torch.ops.load_library(_C.__file__.rpartition("/")[0] + "/libbench_ops.so")
""",
            },
        ),
        ours,
        replace(ours, name="precompiled", environ={"PRECOMPILE": "1"}),
    ]


def measure(tool: Tool, root: Path, python: Path, *, edits: int) -> Times:
    """Go through the loop once."""
    project = root / tool.name / "project"
    for name, text in tool.files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    mine = environment(root / tool.name / "env", python, tool.packages)
    environ = {
        **os.environ,
        "HATCH_TORCH_EXT_CACHE": str(root / tool.name / "cache"),
        "PATH": f"{mine.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(project) if tool.name == "setuptools" else "",
        **tool.environ,
    }
    environ.pop("VIRTUAL_ENV", None)
    times = Times()

    def run(*arguments: str) -> str:
        done = subprocess.run([mine, *arguments], cwd=project, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{tool.name}: {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def use(added: int) -> None:
        if (said := run("-c", USE).splitlines()[-1].split()[0]) != str(added):
            sys.exit(f"{tool.name}: the operator added {said}, not {added}")

    def edit(added: int) -> None:
        if tool.after_edit:
            run(*tool.after_edit)
        use(added)

    run("-c", "import torch")
    times.take("torch", lambda: run("-c", "import torch"))
    times.take("first", lambda: run(*tool.install))
    use(1)
    times.take("again", lambda: run(*tool.install))
    times.take("import", lambda: use(1))
    source = project / "csrc" / "ops.cpp"
    for added in range(2, 2 + edits):
        source.write_text(OPS.replace("x + 1", f"x + {added}"), encoding="utf-8")
        times.take("edit", lambda added=added: edit(added))  # type: ignore[misc]
    times.size = sum(path.stat().st_size for path in project.rglob("*") if path.is_file())
    return times


def environment(folder: Path, python: Path, packages: Sequence[str]) -> Path:
    """Make an environment with ``packages`` and a view of the torch of ``python``; return its Python."""
    finder = uv.find_uv_bin()
    subprocess.run([finder, "venv", "-q", "--python", python, folder], check=True)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site, there = (
        Path(subprocess.check_output([each, "-c", code], text=True).strip())
        for each in (folder / "bin" / "python", python)
    )
    for path in there.iterdir():
        if not (site / path.name).exists() and path.name.partition("-")[0] not in {"pip", "setuptools", "pybind11"}:
            (site / path.name).symlink_to(path)
    subprocess.run(
        [finder, "pip", "install", "-q", "--python", folder / "bin" / "python", "pip", *packages], check=True
    )
    return folder / "bin" / "python"


def main() -> None:
    """Measure the three in turn, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("python", type=Path)
    parser.add_argument("--edits", type=int, default=2)
    options = parser.parse_args()
    torch = subprocess.check_output([options.python, "-c", "import torch; print(torch.__version__)"], text=True).strip()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(root / "wheels")]
        subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
        (wheel,) = (root / "wheels").iterdir()
        found = {tool.name: measure(tool, root, options.python, edits=options.edits) for tool in tools(wheel, torch)}
    rows = [
        ("the first time", "first"),
        ("the same again, nothing to do", "again"),
        ("`import`, nothing changed", "import"),
        ("one edit of the operator's file, until it runs", "edit"),
    ]
    lines = [
        "# The edit loop\n",
        f"`python benchmarks/editing.py PYTHON_WITH_TORCH --edits {options.edits}`: torch {torch}, Python",
        f"{platform.python_version()}, {os.cpu_count()} cores. The same two files each time: an operator",
        "(`torch/library.h`), and a module (`torch/extension.h`). Seconds, in parentheses seconds of processor time,",
        "of the whole command; an edit is a median, and with each import goes that of torch itself.\n",
        "| | setuptools | scikit-build-core | hatch-torch-ext | with torch's headers precompiled |",
        "|---|---|---|---|---|",
        *(f"| {title} | {' | '.join(each.cell(step) for each in found.values())} |" for title, step in rows),
        f"| the project's folder then, MB | {' | '.join(f'{each.size / 1e6:.0f}' for each in found.values())} |",
        "",
        "What was typed: `python setup.py build_ext --inplace` before each import; for the others `pip install",
        "--no-build-isolation --no-deps -e .` once, with `editable.rebuild = true`, by which the import compiles.",
        "setuptools compiles its extensions one after another, the others side by side. `import torch` alone is",
        f"{found['hatch-torch-ext'].cell('torch')} of each import.",
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
