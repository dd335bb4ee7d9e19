"""The main job: one wheel of the example, installed beside real torch releases."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv
from packaging.requirements import Requirement

from hatch_torch_ext.base import process

from .conftest import PROJECT, exact_matrix, outside

if TYPE_CHECKING:
    from collections.abc import Callable

    Beside = Callable[[Path, Path], Path]
    FullTorch = Callable[[str], Path]

LABELS = ("torch2.13_cpu_cxx11_x86_64", "torch2.5_cpu_cxx98_x86_64")


def example_tests(python: Path, cwd: Path, *names: str) -> str:
    """Run the example's own tests with ``python``, all or some files of them; the source tree is on no path."""
    tests = PROJECT / "example_project" / "tests"
    files = [tests / name for name in names] or [tests]
    return outside(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, cwd=cwd).stdout


def chosen(python: Path, cwd: Path) -> str:
    """Return the label that is loaded beside this torch."""
    program = "from torch_ext_example import _variants; print(_variants.load().label)"
    return outside(python, "-c", program, cwd=cwd).stdout.strip()


def test_the_wheel_holds_exactly_this(example_wheel: Path) -> None:
    """Every file of the wheel by name: nothing of torch, nothing of the build, one library for each variant."""
    with zipfile.ZipFile(example_wheel) as wheel:
        names = sorted(wheel.namelist())
        metadata = wheel.read("torch_ext_example-0.1.0.dist-info/METADATA").decode()
    assert names == sorted(
        [
            "torch_ext_example/__init__.py",
            "torch_ext_example/_torch_ext/help.py",
            "torch_ext_example/_torch_ext/manifest.json",
            *(f"torch_ext_example/_torch_ext/{label}/libtorch_ext_example.so" for label in LABELS),
            "torch_ext_example/_variants.py",
            "torch_ext_example/ops.py",
            "torch_ext_example/py.typed",
            "torch_ext_example-0.1.0.dist-info/METADATA",
            "torch_ext_example-0.1.0.dist-info/RECORD",
            "torch_ext_example-0.1.0.dist-info/WHEEL",
            "torch_ext_example-0.1.0.dist-info/licenses/LICENSE",
            "torch_ext_example-0.1.0.dist-info/sboms/torch-ext.cdx.json",
        ]
    )
    assert example_wheel.name.startswith("torch_ext_example-0.1.0-py3-none-manylinux_2_")
    required = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    without = ",".join(f"!=2.{minor}.*" for minor in range(6, 13))
    assert [Requirement(line) for line in required] == [Requirement(f"torch>=2.5,<2.14,{without}")]


def test_torch_2_13_gets_its_own_variant(
    example_wheel: Path, torch_cpu_python: Path, beside: Beside, tmp_path: Path
) -> None:
    """In the CPU torch, which is on another entry of sys.path, the example's tests pass."""
    python = beside(torch_cpu_python, example_wheel)
    assert chosen(python, tmp_path) == "torch2.13_cpu_cxx11_x86_64"
    assert " passed" in example_tests(python, tmp_path)


def test_torch_2_5_gets_its_own_variant(
    example_wheel: Path, full_torch: FullTorch, beside: Beside, tmp_path: Path
) -> None:
    """A CUDA torch without a GPU takes the CPU variant of its minor, built on 2.5.1; the example's values are right."""
    python = beside(full_torch("2.5.0"), example_wheel)
    assert chosen(python, tmp_path) == "torch2.5_cpu_cxx98_x86_64"
    assert " passed" in example_tests(python, tmp_path, "test_values.py")


def test_a_release_that_the_matrix_lacks_is_an_import_error_and_the_process_lives(
    example_wheel: Path, full_torch: FullTorch, beside: Beside, tmp_path: Path
) -> None:
    """Torch 2.15: every variant, why it was rejected, what to type; nothing was opened."""
    python = beside(full_torch("2.15.0"), example_wheel)
    program = (
        "try:\n    import torch_ext_example\nexcept ImportError as error:\n    print(error)\n"
        "maps = open('/proc/self/maps').read()\nprint('opened' if 'torch_ext_example.so' in maps else 'alive')"
    )
    lines = outside(python, "-c", program, cwd=tmp_path).stdout.splitlines()
    assert len(lines) - 1 <= 15
    text = "\n".join(lines)
    newest, oldest = LABELS
    assert f"  {newest}: built for torch 2.13, found 2.15.0+cu132" in text
    assert f"  {oldest}: built for torch 2.5, the C++ ABI from before C++11" in text
    assert 'pip install "torch==2.13.*"' in text
    assert lines[-1] == "alive"


def test_users_can_tell_what_is_in_the_wheel(
    example_wheel: Path, torch_cpu_python: Path, beside: Beside, tmp_path: Path
) -> None:
    """``python -m pkg._variants`` explains, in JSON too; ``--library-path`` names the file that would be opened."""
    python = beside(torch_cpu_python, example_wheel)
    shown = outside(python, "-m", "torch_ext_example._variants", "--json", cwd=tmp_path).stdout
    assert all(label in shown for label in LABELS)
    assert isinstance(json.loads(shown), dict)
    path = outside(python, "-m", "torch_ext_example._variants", "--library-path", cwd=tmp_path).stdout.strip()
    assert Path(path).is_file()
    assert path.endswith("_torch_ext/torch2.13_cpu_cxx11_x86_64/libtorch_ext_example.so")


@pytest.mark.parametrize(
    ("version", "label"),
    [
        ("2.5.0", "torch2.5_cpu_cxx98_x86_64"),
        ("2.15.0", "stable2.10_cpu_x86_64"),
    ],
)
def test_the_hybrid_wheel_outlives_torch_releases(
    version: str, label: str, hybrid_wheel: Path, full_torch: FullTorch, beside: Beside, tmp_path: Path
) -> None:
    """An exact variant for an older release and the old C++ ABI, one on the stable ABI for releases no entry names."""
    python = beside(full_torch(version), hybrid_wheel)
    assert chosen(python, tmp_path) == label
    assert " passed" in example_tests(python, tmp_path, "test_values.py", "test_errors.py")


def test_the_hybrid_wheel_in_the_cpu_torch(
    hybrid_wheel: Path, torch_cpu_python: Path, beside: Beside, tmp_path: Path
) -> None:
    """The stable variant serves torch 2.13, and the requirement of the metadata is open above."""
    python = beside(torch_cpu_python, hybrid_wheel)
    assert chosen(python, tmp_path) == "stable2.10_cpu_x86_64"
    with zipfile.ZipFile(hybrid_wheel) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = wheel.read(name).decode()
    required = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert [Requirement(line) for line in required] == [Requirement("torch>=2.5,!=2.6.*,!=2.7.*,!=2.8.*,!=2.9.*")]


def test_hatch_run_matrix_test_tests_the_wheel_in_the_entrys_environment(example_wheel: Path, example: Path) -> None:
    """Hatch's own environment of the entry, full torch inside, the built wheel installed, never the source tree.

    Of the release that other tests install in full too, to the patch, and by uv, whose cache has it unpacked.
    """
    constraint = example.parent / "constraint.txt"
    constraint.write_text("torch==2.5.0\n", encoding="utf-8")
    exact_matrix(example, "2.5")
    config = example / "hatch.toml"
    config.write_text(config.read_text(encoding="utf-8").replace('"numpy", "pytest"]', '"numpy", "pytest", "pip"]'))
    (example / "dist").mkdir()
    shutil.copy(example_wheel, example / "dist")
    of_hatch = {"HATCH_DATA_DIR": str(example / "data"), "HATCH_ENV_ACTIVE": None, "HATCH_ENV": None}
    done = process.run(
        [sys.executable, "-m", "hatch", "run", "matrix:test", "-q", "-k", "values"],
        cwd=example,
        env_changes={**of_hatch, "HATCH_ENV_TYPE_VIRTUAL_UV_PATH": uv.find_uv_bin(), "UV_CONSTRAINT": str(constraint)},
    )
    assert " passed" in done.stdout
