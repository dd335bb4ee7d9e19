"""The hybrid wheel: exact for a torch from before the stable ABI, one stable variant for every torch since."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
import uv
from packaging.requirements import Requirement

from hatch_torch_ext.base import process

from .conftest import PROJECT, install, outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Once

    Beside = Callable[[Path, Path], Path]
    Said = Callable[[Path, str], list[str]]

MACHINE = os.uname().machine
EXACT = f"torch2.9_cpu_cxx11_{MACHINE}"
STABLE = f"stable2.10_cpu_{MACHINE}"
RUN = """
import torch_ext_hybrid, torch
assert torch.ops.torch_ext_hybrid.twice(torch.ones(3)).tolist() == [2, 2, 2]
print(torch.__version__.partition("+")[0], torch_ext_hybrid.loaded.label)
"""


def build(root: Path, store: Path, **environ: str) -> process.Completed:
    """Build the wheel of the project at ``root`` into its ``dist``, whether that goes well or not."""
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", root / "dist"]
    changes = {"HATCH_TORCH_EXT_CACHE": str(store), **environ}
    return process.run(command, cwd=root, env_changes=changes, check=False)


@pytest.fixture(scope="session")
def hybrid_wheel(once: Once, store: Path) -> Path:
    """Return the wheel of tests/packages/hybrid, made from torch 2.9.0 and 2.10.0."""

    def make(folder: Path) -> None:
        shutil.copytree(PROJECT / "tests/packages/hybrid", folder, dirs_exist_ok=True)
        done = build(folder, store)
        assert done.returncode == 0, done.stdout + done.stderr

    (wheel,) = (once("hybrid_wheel", make) / "dist").glob("*.whl")
    return wheel


def test_the_wheel_holds_both_and_leaves_the_upper_end_open(hybrid_wheel: Path) -> None:
    """One library for each ABI; the requirement has only a lower bound, because the stable variant has no end."""
    with zipfile.ZipFile(hybrid_wheel) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".so")]
        metadata = wheel.read("torch_ext_hybrid-1.dist-info/METADATA").decode()
    folder = "torch_ext_hybrid/_torch_ext"
    assert sorted(names) == [f"{folder}/{STABLE}/libhybrid.so", f"{folder}/{EXACT}/libhybrid.so"]
    required = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert [Requirement(line) for line in required] == [Requirement("torch>=2.9")]


@pytest.fixture
def said(hybrid_wheel: Path, beside: Beside, tmp_path: Path) -> Callable[[Path, str], list[str]]:
    """Return a function: (Python with torch, program) -> the lines that it prints where the wheel is installed too."""
    return lambda python, program: outside(
        beside(python, hybrid_wheel), "-c", program, cwd=tmp_path
    ).stdout.splitlines()


def test_another_torch_on_the_library_path_changes_nothing(
    hybrid_wheel: Path, full_torch: Callable[[str], Path], tmp_path: Path
) -> None:
    """``LD_LIBRARY_PATH`` leads to torch 2.5; the process runs torch 2.15, and no file of the other is opened."""
    with zipfile.ZipFile(hybrid_wheel) as wheel:
        wheel.extractall(tmp_path)
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = process.run([full_torch("2.5.0"), "-c", asked]).stdout.strip()
    changes = {"LD_LIBRARY_PATH": f"{site}/torch/lib", "PYTHONPATH": str(tmp_path)}
    program = f"{RUN}print({site!r} in open('/proc/self/maps').read())"
    done = process.run([full_torch("2.15.0"), "-c", program], cwd=tmp_path, env_changes=changes)
    assert done.stdout.splitlines() == [f"2.15.0 {STABLE}", "False"]


def test_a_release_before_both_is_reported(said: Said, full_torch: Callable[[str], Path]) -> None:
    """Case 1: the whole message under torch 2.5, and the process lives on without the library."""
    program = (
        "try:\n    import torch_ext_hybrid\nexcept ImportError as error:\n    print(error)\n"
        "print('opened' if 'libhybrid' in open('/proc/self/maps').read() else 'nothing was opened')"
    )
    lines = said(full_torch("2.5.0"), program)
    assert lines.pop(1).startswith("Here: torch 2.5.0+cu124 (CUDA 12.4, the C++ ABI from before C++11), cp311, linux ")
    assert lines == [
        "torch_ext_hybrid: none of its compiled variants (2) fits here.",
        f"  {EXACT}: built for torch 2.9, the C++11 ABI",
        f"  {STABLE}: built for torch 2.10 or newer, found 2.5.0+cu124",
        "Install a torch that it was built for:",
        '  pip install "torch==2.9.*"',
        "or a newer release, if there is one:",
        "  pip install -U torch-ext-hybrid",
        "More: python -m torch_ext_hybrid._variants",
        "nothing was opened",
    ]


USER = """\
from torch_ext_hybrid import _variants

label: str = _variants.load().label
files: list[str] = _variants.load().files
path: str = _variants.library_path()
verdicts: dict[str, str] = _variants.Choice.verdicts(_variants.load())
reveal_type(_variants.load())
"""


def test_a_users_project_passes_mypy_strict(hybrid_wheel: Path, tmp_path: Path) -> None:
    """The package has a ``py.typed``, so the generated module is read for its types: they are all there."""
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, tmp_path / "env"])
    python = tmp_path / "env" / "bin" / "python"
    install(python, hybrid_wheel)
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    command: list[str | Path] = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "user.py"]
    done = process.run(command, cwd=tmp_path, env_changes={"MYPYPATH": None}, check=False)
    assert done.stdout.splitlines() == [
        'user.py:7: note: Revealed type is "torch_ext_hybrid._variants.Choice"',
        "Success: no issues found in 1 source file",
    ]


def test_a_stable_entry_with_unstable_sources_says_what_to_do(store: Path, tmp_path: Path) -> None:
    """Whether torch's headers stop it or, outwitted, the audit: never a wheel that dies with the next torch."""
    root = tmp_path / "hybrid"
    shutil.copytree(PROJECT / "tests/packages/hybrid", root)
    cmake, binding = root / "csrc" / "CMakeLists.txt", root / "csrc" / "binding.cpp"
    cmake.write_text(cmake.read_text(encoding="utf-8").replace("if(TORCH_EXT_STABLE_ABI)", "if(OFF)"), encoding="utf-8")
    refused = build(root, store, HATCH_TORCH_EXT_ONLY="*stable").stderr
    assert (
        "This entry is for torch's stable ABI, but compiles sources that use torch's C++ API: give it sources of its "
        "own where TORCH_EXT_STABLE_ABI is ON, or remove `abi` from the entry."
    ) in refused.splitlines()

    binding.write_text("#undef TORCH_TARGET_VERSION\n" + binding.read_text(encoding="utf-8"), encoding="utf-8")
    done = build(root, store, HATCH_TORCH_EXT_ONLY="*stable")
    assert done.returncode == 1
    lines = done.stderr[done.stderr.index("fault") :].splitlines()
    assert lines[0] == (
        "fault unstable-symbol: Where TORCH_EXT_STABLE_ABI is ON, compile only sources that use torch/csrc/stable "
        "and torch/headeronly, and link torch_stable; or remove `abi` from the entry."
    )
    start = f"  {STABLE}/libhybrid.so: is in a stable-ABI variant, but needs at::TensorBase::"
    assert lines[1].startswith(start)
    assert not list((root / "dist").glob("*"))
