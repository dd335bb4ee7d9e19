"""The outlets and real installers: uv chooses by driver, pip takes the plain wheel, an index serves by torch."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
import uv

from hatch_torch_ext import process
from hatch_torch_ext.outlets import exact, merging, variantwheels
from loopback import served

from .conftest import outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Beside = Callable[[Path, Path], Path]

MACHINE = os.uname().machine
RUN = """
import torch, torch_ext_example
points = torch.tensor([[0.0, 0], [1, 0], [5, 0], [0, 3]])
print(torch_ext_example.farthest_point_sampling(points, 3).tolist(), torch_ext_example._variants.load().label)
"""


@pytest.fixture(scope="session")
def variants_folder(once: Callable[[str, Callable[[Path], None]], Path], cuda_wheel: Path) -> Path:
    """Return a simple index of the example cut by backend: CUDA 13, CPU, and the fat wheel."""

    def make(folder: Path) -> None:
        project = folder / "torch-ext-example"
        variantwheels.cut(cuda_wheel, out=project)
        links = "".join(f'<a href="{path.name}">{path.name}</a>\n' for path in sorted(project.iterdir()))
        (project / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")

    return once("variant_wheels", make)


@pytest.mark.parametrize(
    ("driver", "label"),
    [
        (None, "null"),
        ("11.8", "null"),
        ("12.0", "null"),
        ("12.8", "null"),
        ("13.0", "cu13"),
        ("13.9", "cu13"),
    ],
)
def test_uv_chooses_by_driver(variants_folder: Path, tmp_path: Path, driver: str | None, label: str) -> None:
    """With the preview flag, the wheel that the driver runs, from an index on the loopback interface."""
    python = tmp_path / "venv" / "bin" / "python"
    process.run([uv.find_uv_bin(), "venv", "--quiet", tmp_path / "venv"])
    changes = {
        "UV_PREVIEW_FEATURES": "wheel-variants",
        "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": driver,
        "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": "9.0" if driver else None,
    }
    with served(variants_folder) as address:
        options = ["--quiet", "--no-deps", "--no-cache", "--python", str(python), "--index-url", address]
        process.run([uv.find_uv_bin(), "pip", "install", *options, "torch-ext-example"], env_changes=changes)
    (place,) = (tmp_path / "venv").glob("lib/python*/site-packages/torch_ext_example/_torch_ext/manifest.json")
    manifest = json.loads(place.read_text(encoding="utf-8"))
    expected = {"cu13": [f"stable2.11_cu13.0_{MACHINE}"], "null": [f"stable2.10_cpu_{MACHINE}"]}
    assert [each["label"] for each in manifest["variants"]] == expected[label]


def test_pip_takes_the_plain_wheel(variants_folder: Path, tmp_path: Path, cuda_wheel: Path) -> None:
    """An installer that knows nothing of variants gets all of them in one wheel."""
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--seed", tmp_path / "venv"])
    python = tmp_path / "venv" / "bin" / "python"
    with served(variants_folder) as address:
        options = ["-q", "--no-deps", "--no-cache-dir", "-d", str(tmp_path / "got"), "--index-url", address]
        outside(python, "-m", "pip", "download", *options, "torch-ext-example", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "got").iterdir()] == [cuda_wheel.name]


def test_the_cpu_variant_wheel_runs(
    variants_folder: Path, torch_cpu_python: Path, beside: Beside, tmp_path: Path
) -> None:
    """The wheel of the null variant, under a file name that installers take, loads and is right."""
    (null,) = (variants_folder / "torch-ext-example").glob("*-null.whl")
    plain = tmp_path / null.name.replace("-null.whl", ".whl")
    plain.write_bytes(null.read_bytes())
    done = outside(beside(torch_cpu_python, plain), "-c", RUN, cwd=tmp_path)
    assert done.stdout.split("] ") == ["[0, 2, 3", f"stable2.10_cpu_{MACHINE}\n"]


def test_the_exact_index_installs_what_fits(example_wheel: Path, tmp_path: Path) -> None:
    """Pip and uv take the wheel from the folder of a torch; with another torch the resolver refuses it."""
    exact.index([example_wheel], out=tmp_path / "ix")
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--seed", tmp_path / "venv"])
    python = tmp_path / "venv" / "bin" / "python"
    with served(tmp_path / "ix") as address:
        index = f"{address}/whl/torch-2.8%2Bcpu/"
        pip = ["-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", "--index-url", index, "torch-ext-example"]
        outside(python, *pip, cwd=tmp_path)
        said = outside(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path)
        assert "torch_ext_example==0.1.0+pt28cpu" in said.stdout.replace("-", "_")
        (tmp_path / "torch.in").write_text("torch-ext-example\ntorch==2.9.*\n")
        options = ["--quiet", "--no-cache", "--extra-index-url", index]
        refused = process.run([uv.find_uv_bin(), "pip", "compile", *options, tmp_path / "torch.in"], check=False)
    assert refused.returncode == 1
    assert "all versions of torch-ext-example depend on torch>=2.8,<2.9" in " ".join(refused.stderr.split())


def test_the_way_back_gives_the_bytes_that_hatchling_wrote(
    example_wheel: Path, cuda_wheel: Path, tmp_path: Path
) -> None:
    """Exact wheels and variant wheels merge to the very file that the build made."""
    parts = [each.path for each in exact.index([example_wheel], out=tmp_path / "ix")]
    assert merging.merge_wheels(parts, out=tmp_path / "a").read_bytes() == example_wheel.read_bytes()
    cut = variantwheels.cut(cuda_wheel, out=tmp_path / "cut")
    merged = merging.merge_wheels([wheel for _, wheel in cut.wheels], out=tmp_path / "b")
    assert merged.read_bytes() == cuda_wheel.read_bytes()
