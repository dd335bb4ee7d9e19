"""The outlets and real installers: uv chooses by driver, pip takes the plain wheel, an index serves by torch."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
import uv

import wheels
from hatch_torch_ext import audit
from hatch_torch_ext.base import process
from hatch_torch_ext.outlets import exact, kernels, variantwheels
from loopback import served
from merged import merge_wheels

from .conftest import lent, outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MACHINE = os.uname().machine
RUN = """
import torch, torch_ext_example
points = torch.tensor([[0.0, 0], [1, 0], [5, 0], [0, 3]])
print(torch_ext_example.farthest_point_sampling(points, 3).tolist(), torch_ext_example._variants.load().label)
"""


LABELS = {
    "null": f"stable2.10_cpu_{MACHINE}",
    "cu12": f"torch2.5_cu12.4_cxx98_{MACHINE}",
    "cu13": f"stable2.11_cu13.0_{MACHINE}",
}
PREVIEW = {"UV_PREVIEW_FEATURES": "wheel-variants"}


def driver_is(version: str | None, arch: str = "9.0") -> dict[str, str | None]:
    """Return the variables by which uv takes that driver and card for the machine's own."""
    return {
        "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": version,
        "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": arch if version else None,
    }


def page(project: Path) -> None:
    """Write the page of a project as a simple index has it."""
    links = "".join(f'<a href="{path.name}">{path.name}</a>\n' for path in sorted(project.iterdir()))
    (project / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")


def installed(environment: Path) -> list[str]:
    """Return the labels of the variants of the example that is installed in an environment."""
    (place,) = environment.glob("lib/python*/site-packages/torch_ext_example/_torch_ext/manifest.json")
    return sorted(each["label"] for each in json.loads(place.read_text(encoding="utf-8"))["variants"])


@pytest.fixture(scope="session")
def variants_folder(once: Callable[[str, Callable[[Path], None]], Path], backends_wheel: Path) -> Path:
    """Return a simple index of the example cut by backend: CUDA 13, CUDA 12, CPU, and the fat wheel."""

    def make(folder: Path) -> None:
        variantwheels.cut(backends_wheel, out=folder / "torch-ext-example")
        page(folder / "torch-ext-example")

    return once("variant_wheels", make)


@pytest.mark.parametrize(
    ("driver", "label"),
    [
        (None, "null"),
        ("11.8", "null"),
        ("12.0", "cu12"),
        ("12.8", "cu12"),
        ("13.0", "cu13"),
        ("13.9", "cu13"),
    ],
)
def test_uv_chooses_by_driver(
    variants_folder: Path, full_torch: Callable[[str], Path], tmp_path: Path, driver: str | None, label: str
) -> None:
    """With the preview flag, the wheel that the driver runs, from an index on the loopback interface; and it runs."""
    python = lent(full_torch("2.5.0" if label == "cu12" else "2.15.0"), tmp_path / "venv")
    with served(variants_folder) as address:
        options = ["--quiet", "--no-deps", "--no-cache", "--python", str(python), "--index-url", address]
        command = [uv.find_uv_bin(), "pip", "install", *options, "torch-ext-example"]
        process.run(command, env_changes={**PREVIEW, **driver_is(driver)})
    assert installed(tmp_path / "venv") == [LABELS[label]]
    done = outside(python, "-c", RUN, cwd=tmp_path)
    assert done.stdout == f"[0, 2, 3] {LABELS[label]}\n"


@pytest.mark.parametrize(
    ("arch", "label"), [("7.0", "cu12"), ("7.5", "cu13"), ("8.6", "cu13"), ("9.0", "cu13"), ("12.1", "null")]
)
def test_uv_chooses_by_card(tmp_path: Path, arch: str, label: str) -> None:
    """Wheels without PTX name the cards they have code for: under a new driver, an old card gets the older CUDA."""
    variants = []
    for name, changes in {
        "torch2.8_cpu_cxx11_x86_64": {},
        "torch2.8_cu12.8_cxx11_x86_64": {"backend": "cuda", "cuda": "12.8", "archs": ("7.0", "8.0", "9.0")},
        "torch2.9_cu13.0_cxx11_x86_64": {
            "torch": "2.9",
            "backend": "cuda",
            "cuda": "13.0",
            "archs": ("7.5", "8.0", "9.0"),
        },
    }.items():
        files = {f"{name}/libx.so": name.encode()}
        variants.append((wheels.variant(name, files, machine=MACHINE, **changes), files))
    draft = wheels.ours(tmp_path, variants)
    fat = merge_wheels([draft], out=tmp_path / "fat")
    variantwheels.cut(fat, out=tmp_path / "web" / "my-pkg")
    page(tmp_path / "web" / "my-pkg")
    target = tmp_path / "site"
    with served(tmp_path / "web") as address:
        options = ["--quiet", "--no-deps", "--no-cache", "--target", str(target), "--index-url", address]
        command = [uv.find_uv_bin(), "pip", "install", *options, "my-pkg"]
        process.run(command, env_changes={**PREVIEW, **driver_is("13.0", arch)})
    described = json.loads(next(target.glob("*.dist-info/variant.json")).read_text(encoding="utf-8"))
    assert list(described["variants"]) == [label]


def test_uv_chooses_from_a_folder(variants_folder: Path, tmp_path: Path) -> None:
    """The description that is beside the wheels counts as on an index; the path of a wrong wheel is refused."""
    project = variants_folder / "torch-ext-example"
    for driver, label in ((None, "null"), ("12.8", "cu12"), ("13.0", "cu13")):
        folder = tmp_path / label
        process.run([uv.find_uv_bin(), "venv", "--quiet", folder])
        options = ["--quiet", "--no-deps", "--no-cache", "--no-index", f"--find-links={project}", f"--python={folder}"]
        command = [uv.find_uv_bin(), "pip", "install", *options, "torch-ext-example"]
        process.run(command, env_changes={**PREVIEW, **driver_is(driver)})
        assert installed(folder) == [LABELS[label]]
    (wheel,) = project.glob("*-cu13.whl")
    python = f"--python={tmp_path / 'cu12'}"
    direct = [uv.find_uv_bin(), "pip", "install", "--no-deps", "--no-cache", python, str(wheel)]
    refused = process.run(direct, env_changes={**PREVIEW, **driver_is("12.8")}, check=False)
    assert (refused.returncode, "only unsupported wheel variants" in " ".join(refused.stderr.split())) == (1, True)


LOCKED = """
[project]
name = "app"
version = "1"
requires-python = ">=3.11"
dependencies = ["torch-ext-example"]
[[tool.uv.dependency-metadata]]
name = "torch-ext-example"
version = "0.1.0"
requires-dist = []
[[tool.uv.index]]
url = "{address}"
default = true
"""


def test_a_lock_holds_the_plain_wheel(variants_folder: Path, tmp_path: Path) -> None:
    """What uv locks must be right on every machine: it is the fat wheel, flag or not, and that one is installed."""
    environ = {**PREVIEW, **driver_is("13.0"), "VIRTUAL_ENV": None, "UV_PYTHON": sys.executable, "UV_NO_CACHE": "1"}
    with served(variants_folder) as address:
        (tmp_path / "pyproject.toml").write_text(LOCKED.format(address=address))
        process.run([uv.find_uv_bin(), "lock", "--quiet"], cwd=tmp_path, env_changes=environ)
        process.run([uv.find_uv_bin(), "sync", "--quiet", "--locked"], cwd=tmp_path, env_changes=environ)
    names = re.findall(r"torch_ext_example-[^\"]*\.whl", (tmp_path / "uv.lock").read_text(encoding="utf-8"))
    (plain,) = (each.name for each in variants_folder.glob("*/*.whl") if each.name.count("-") == 4)
    assert names == [plain]
    assert installed(tmp_path / ".venv") == sorted(LABELS.values())


def test_pip_takes_the_plain_wheel(variants_folder: Path, tmp_path: Path, backends_wheel: Path) -> None:
    """An installer that knows nothing of variants gets all of them in one wheel."""
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--seed", tmp_path / "venv"])
    python = tmp_path / "venv" / "bin" / "python"
    with served(variants_folder) as address:
        options = ["-q", "--no-deps", "--no-cache-dir", "-d", str(tmp_path / "got"), "--index-url", address]
        outside(python, "-m", "pip", "download", *options, "torch-ext-example", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "got").iterdir()] == [backends_wheel.name]


def test_the_exact_index_installs_what_fits(example_wheel: Path, tmp_path: Path) -> None:
    """Pip and uv take the wheel from the folder of a torch; the resolver refuses another torch; the audit is clean."""
    exact.index([example_wheel], out=tmp_path / "ix")
    wheels = sorted((tmp_path / "ix" / "files").glob("*.whl"))
    assert len(wheels) == 2
    assert [fault.code for wheel in wheels for fault in audit.audit_wheel(wheel) if not fault.warning] == []
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--seed", tmp_path / "venv"])
    python = tmp_path / "venv" / "bin" / "python"
    with served(tmp_path / "ix") as address:
        index = f"{address}/whl/torch-2.5+cpu/"  # as the page for people says it
        pip = ["-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", "--index-url", index, "torch-ext-example"]
        outside(python, *pip, cwd=tmp_path)
        said = outside(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path)
        assert "torch_ext_example==0.1.0+pt25cpu" in said.stdout.replace("-", "_")
        (tmp_path / "torch.in").write_text("torch-ext-example\ntorch==2.13.*\n")
        options = ["--quiet", "--no-cache", "--extra-index-url", index]
        refused = process.run([uv.find_uv_bin(), "pip", "compile", *options, tmp_path / "torch.in"], check=False)
    assert refused.returncode == 1
    assert "all versions of torch-ext-example depend on torch>=2.5,<2.6" in " ".join(refused.stderr.split())


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH")
def test_the_page_for_people_in_a_browser(tmp_path: Path) -> None:
    """What a person reads there is a command with the address where the page is."""
    name, files = f"torch2.8_cpu_cxx11_{MACHINE}", {f"torch2.8_cpu_cxx11_{MACHINE}/libx.so": b"x"}
    draft = wheels.ours(tmp_path, [(wheels.variant(name, files, machine=MACHINE), files)])
    exact.index([merge_wheels([draft], out=tmp_path / "fat")], out=tmp_path / "ix")
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    with served(tmp_path / "ix") as address:
        shown = process.run([*browser, "--dump-dom", f"{address}/"]).stdout
    text = re.sub("<[^>]+>", "", shown)
    assert f"pip install my-pkg --index-url {address}/whl/torch-2.8+cpu/" in text


def test_the_way_back_gives_the_bytes_that_hatchling_wrote(
    example_wheel: Path, backends_wheel: Path, tmp_path: Path
) -> None:
    """Exact wheels and variant wheels merge to the very file that the build made."""
    parts = [each.path for each in exact.index([example_wheel], out=tmp_path / "ix")]
    assert merge_wheels(parts, out=tmp_path / "a").read_bytes() == example_wheel.read_bytes()
    cut = variantwheels.cut(backends_wheel, out=tmp_path / "cut")
    merged = merge_wheels([wheel for _, wheel in cut.wheels], out=tmp_path / "b")
    assert merged.read_bytes() == backends_wheel.read_bytes()


KERNEL = """
from pathlib import Path

import torch
from kernels import get_local_kernel

kernel = get_local_kernel(Path("kernel"), backend="cpu")
points = torch.tensor([[0.0, 0], [1, 0], [5, 0], [0, 3]])
print(kernel.farthest_point_sampling(points, 3).tolist(), kernel._variants.load().label)
"""


@pytest.mark.slow
@pytest.mark.parametrize("label", ["torch2.5_cpu_cxx98", "torch2.13_cpu_cxx11"])
def test_kernels_loads_the_example(
    example_wheel: Path, full_torch: Callable[[str], Path], torch_cpu_python: Path, tmp_path: Path, label: str
) -> None:
    """A kernel repository of the example's wheel serves two torches; `kernels` chooses the folder by the torch."""
    kernels.write(example_wheel, out=tmp_path / "kernel", keep_namespace=True)
    python = lent(full_torch("2.5.0") if label.startswith("torch2.5") else torch_cpu_python, tmp_path / "venv")
    process.run([uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python, "kernels>=0.17"])
    done = process.run([python, "-P", "-c", KERNEL], cwd=tmp_path, env_changes={"HF_HUB_OFFLINE": "1"})
    assert done.stdout == f"[0, 2, 3] {label}_{MACHINE}\n"
    assert kernels.wheel_of(tmp_path / "kernel", out=tmp_path).read_bytes() == example_wheel.read_bytes()
