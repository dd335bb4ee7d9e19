"""CUDA variants of the example, built without a GPU: what is in them, and which torch gets which."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hatch_torch_ext.base import process
from hatch_torch_ext.elf import fatbin
from hatch_torch_ext.facts import owners
from hatch_torch_ext.sdk import exports

from .conftest import PROJECT, build, copy_example, few_archs, outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from .conftest import Once

    Beside = Callable[[Path, Path], Path]

MACHINE = os.uname().machine
ARCHS = ("7.5", "7.5+PTX", "9.0")
STABLE_CUDA, STABLE_CPU = f"stable2.11_cu13.0_{MACHINE}", f"stable2.10_cpu_{MACHINE}"
EXACT_CUDA = f"torch2.5_cu12.4_cxx98_{MACHINE}"
RUN = """
import torch, torch_ext_example
from torch_ext_example import _variants, farthest_point_sampling
assert not torch.cuda.is_initialized()
points = torch.tensor([[0.0, 0], [1, 0], [5, 0], [0, 3]])
assert farthest_point_sampling(points, 3).tolist() == [0, 2, 3]
print(torch.__version__.partition("+")[0], torch.version.cuda, _variants.load().label)
assert not torch.cuda.is_initialized()
"""


@pytest.fixture(scope="session")
def cuda12_wheel(once: Once, store: Path, cuda12: Path) -> Path:
    """Return the example's wheel with an exact variant for torch 2.5 and CUDA 12.4, by the option ``cuda-home``."""

    def make(folder: Path) -> None:
        (folder / "cuda-12.4").symlink_to(cuda12)
        root = copy_example(folder / "example")
        few_archs(root, f'cuda-home = "{folder}/cuda-{{cuda}}"')
        build(root, folder / "dist", store, HATCH_TORCH_EXT_ONLY="full.2.5-cu124")
        shutil.rmtree(root)

    (wheel,) = (once("cuda12_wheel", make) / "dist").glob("*.whl")
    return wheel


def manifest(wheel: Path) -> dict[str, Any]:
    """Return label -> what the wheel's manifest says of the variant."""
    with zipfile.ZipFile(wheel) as archive:
        data = json.loads(archive.read("torch_ext_example/_torch_ext/manifest.json"))
    return {variant["label"]: variant for variant in data["variants"]}


def loader(wheel: Path, folder: Path) -> ModuleType:
    """Return the wheel's ``_variants`` module, not loaded: its ``select`` is pure."""
    with zipfile.ZipFile(wheel) as archive:
        file = Path(archive.extract("torch_ext_example/_variants.py", folder))
        archive.extract("torch_ext_example/_torch_ext/help.py", folder)
    spec = importlib.util.spec_from_file_location("chosen_variants", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_entries_without_a_toolkit_are_left_out_by_a_plain_skip(cuda_wheel: Path) -> None:
    """Each entry that `skip` leaves out is reported on a line, and is not in the wheel; the others are built."""
    said = (cuda_wheel.parent.parent / "said").read_text(encoding="utf-8")
    for name in ("full.2.5-cu124", "full.2.7-cu126", "full.2.8-cu128", "full.2.10-stable-cu128"):
        assert f"torch-ext: {name}: left out by the variable `HATCH_TORCH_EXT_SKIP`" in said
    assert "torch-ext: full.2.11-stable-cu130: GPU architectures 7.5+PTX 9.0, from option `archs`" in said
    assert set(manifest(cuda_wheel)) == {STABLE_CUDA, STABLE_CPU}


@pytest.mark.parametrize(("wheel_of", "label"), [("cuda_wheel", STABLE_CUDA), ("cuda12_wheel", EXACT_CUDA)])
def test_archs_of_the_manifest_are_what_is_inside(
    wheel_of: str, label: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Case 8: exactly the architectures that were requested, without a GPU; machine code and PTX are distinguished."""
    wheel: Path = request.getfixturevalue(wheel_of)
    variant = manifest(wheel)[label]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (file,) = variant["files"]
    library = tmp_path / "torch_ext_example" / "_torch_ext" / file["path"]
    assert fatbin.archs(library) == ARCHS
    assert tuple(variant["archs"]) == ARCHS
    assert {name for name in file["needed"] if "cuda" in name} >= {f"libcudart.so.{variant['cuda'].split('.')[0]}"}
    assert not list(tmp_path.rglob("libcudart*"))


def test_a_cuda_torch_four_releases_later_gets_the_cuda_variant(
    cuda_wheel: Path, full_torch: Callable[[str], Path], beside: Beside, tmp_path: Path
) -> None:
    """Torch 2.15 for CUDA 13.2, no GPU: chosen, CUDA not started, the example's own tests of the CPU kernels pass."""
    python = beside(full_torch("2.15.0"), cuda_wheel)
    assert outside(python, "-c", RUN, cwd=tmp_path).stdout.split() == ["2.15.0", "13.2", STABLE_CUDA]
    values = PROJECT / "example_project" / "tests" / "test_values.py"
    done = outside(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, values, cwd=tmp_path)
    assert re.search(r"^\d\d passed", done.stdout, re.MULTILINE), done.stdout


def test_a_cpu_torch_gets_the_cpu_variant(
    cuda_wheel: Path, torch_cpu_python: Path, beside: Beside, tmp_path: Path
) -> None:
    """Torch 2.13 for the CPU: the same wheel, the other variant, and not a word."""
    done = outside(beside(torch_cpu_python, cuda_wheel), "-c", RUN, cwd=tmp_path)
    assert done.stdout.split() == ["2.13.0", "None", STABLE_CPU]
    assert done.stderr == ""


def test_cuda_12(cuda12_wheel: Path, full_torch: Callable[[str], Path], beside: Beside, tmp_path: Path) -> None:
    """Torch 2.5.0 for CUDA 12.4 gets the exact variant, whose C++ ABI is the old one."""
    done = outside(beside(full_torch("2.5.0"), cuda12_wheel), "-c", RUN, cwd=tmp_path)
    assert done.stdout.split() == ["2.5.0", "12.4", EXACT_CUDA]


def test_a_cuda_12_4_variant_serves_only_newer_minors_of_cuda_12(cuda12_wheel: Path, tmp_path: Path) -> None:
    """Cases 6 and 7: CUDA 12.6 is served; for 11.8, 12.1 and 13.0 the message says why not; nothing is opened."""
    variants = loader(cuda12_wheel, tmp_path)
    here = {**variants.facts(), "torch": "2.5.0", "cxx11_abi": False, "python": "cp311"}
    chosen = {
        cuda: variants.select({**here, "backend": f"CUDA {cuda}"}, variants.DATA["variants"])
        for cuda in ("11.8", "12.1", "12.4", "12.6", "13.0")
    }
    assert [cuda for cuda, choice in chosen.items() if choice.label == EXACT_CUDA] == ["12.4", "12.6"]
    assert chosen["11.8"].against(EXACT_CUDA) == ("built for CUDA 12.4 or a newer 12.x, found a torch for CUDA 11.8")


def test_what_extensions_use_of_the_cuda_half_is_given_to_it(full_torch: Callable[[str], Path]) -> None:
    """Torch 2.15 for CUDA 13: streams, context, generators, C shims; and nothing of the CPU's half is given away."""
    (folder,) = full_torch("2.15.0").parent.parent.glob("lib/python*/site-packages/torch/lib")
    names = (owners.C10, owners.CPU, owners.CUDA, owners.C10_CUDA)
    exported = {name: frozenset(exports.read(folder / name)) for name in names}
    cpu = exported[owners.C10] | exported[owners.CPU]
    assert [symbol for symbol in cpu if {owners.CUDA, owners.C10_CUDA} & set(owners.owner(symbol))] == []
    public = re.compile(r"_ZNK?(?:2at4cuda|2at17CUDAGeneratorImpl|3c104cuda|5torch4cuda)\d|(?:aoti_)?torch_[a-z]\w+")
    for name in (owners.CUDA, owners.C10_CUDA):
        used = [symbol for symbol in exported[name] - cpu if public.match(symbol)]
        assert len(used) > 50, name
        assert [symbol for symbol in used if not any(symbol in exported[each] for each in owners.owner(symbol))] == []


def test_handles_of_torch_without_kernels(
    store: Path, full_torch: Callable[[str], Path], beside: Beside, tmp_path: Path
) -> None:
    """ATen/cuda compiles against a thin SDK, with nvidia's headers; the library opens under torch 2.15."""
    root = tmp_path / "context"
    shutil.copytree(PROJECT / "tests/packages/cuda_context", root)
    build(root, root / "dist", store)
    (wheel,) = root.glob("dist/*.whl")
    program = (
        "import torch, torch_ext_context\n"
        "print(torch_ext_context.loaded.label, torch.cuda.is_initialized())\n"
        "try:\n    print(torch.ops.torch_ext_context.has_blas())\n"
        "except RuntimeError as error:\n    print('NVIDIA' in str(error) or 'CUDA' in str(error))"
    )
    done = outside(beside(full_torch("2.15.0"), wheel), "-c", program, cwd=tmp_path)
    assert done.stdout.split() == [f"torch2.15_cu13.2_cxx11_{MACHINE}", "False", "True"]


def refused(root: Path, store: Path, only: str, **environ: str | None) -> str:
    """Build and return the words of the refusal; there is no wheel."""
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", root / "dist"]
    changes = {"HATCH_TORCH_EXT_CACHE": str(store), "HATCH_TORCH_EXT_ONLY": only, **environ}
    done = process.run(command, cwd=root, env_changes=changes, check=False)
    assert done.returncode == 1, done.stdout
    assert not list(root.glob("dist/*"))
    return done.stderr


def has_cuda_12() -> bool:
    """Say whether this machine has a toolkit that the entries for CUDA 12 would find."""
    places = {*Path("/usr/local").glob("cuda*/bin/nvcc"), Path(shutil.which("nvcc") or sys.executable)}
    return any("release 12." in process.run([nvcc, "--version"]).stdout for nvcc in places)


@pytest.mark.skipif(has_cuda_12(), reason="this machine has a CUDA 12 toolkit")
def test_entries_for_cuda_12_without_a_toolkit(example: Path, store: Path, cuda13_wheels: Path) -> None:
    """Case 5: each entry's error says what was found, of which CUDA, and word for word what to do."""
    few_archs(example)
    home = cuda13_wheels / "nvidia" / "cu13"
    only = "full.2.5-cu124,full.2.10-stable-cu128"
    said = refused(example, store, only, CUDA_HOME=str(home), CUDA_PATH=None)
    for name, cuda in (("full.2.5-cu124", "12.4"), ("full.2.10-stable-cu128", "12.8")):
        told = [line for line in said.splitlines() if f"{name}: CMake asks for CUDA" in line]
        assert len(told) == 2  # when it failed, and at the end
        for line in told:
            assert (
                f"{name}: CMake asks for CUDA, and torch is built for CUDA {cuda}, but no nvcc of CUDA 12 was found: "
                f"{home}/bin/nvcc (CUDA_HOME) is CUDA 13.0"
            ) in line
        assert told[-1].endswith(
            "The package index has no nvcc for CUDA 12: install a CUDA 12 toolkit (or build in an image that has "
            'one) and set the option `cuda-home`, such as `cuda-home = "/usr/local/cuda-{cuda}"`, or CUDA_HOME to '
            "its folder"
        )


def test_what_this_nvcc_and_its_host_compiler_cannot_do(example: Path, store: Path, tmp_path: Path) -> None:
    """An architecture that CUDA 13 no longer has, with those that it has; a host compiler newer than it supports."""
    few_archs(example)
    config = example / "hatch.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace('"7.5+PTX"', '"5.0"'), encoding="utf-8")
    only = "full.2.11-stable-cu130"
    said = refused(example, store, only)
    assert re.search(
        r"cannot compile for 5\.0 \(option `archs`\): it has 7\.5, 8\.0, 8\.6, 8\.7, 8\.8, 8\.9, 9\.0, 10\.0, 10\.3, "
        r"11\.0, 12\.0, 12\.1\. Change `archs`, or give this CUDA its own list: `archs\.13 = \[\.\.\.\]`$",
        said,
        re.MULTILINE,
    )

    config.write_text(text, encoding="utf-8")
    compiler = tmp_path / "g++-99"
    compiler.write_text("#!/bin/sh\necho '#define __GNUC__ 99'\n", encoding="utf-8")
    compiler.chmod(0o755)
    said = refused(example, store, only, CUDAHOSTCXX=str(compiler))
    assert f"supports GNU up to 15, but the C++ compiler is GNU 99.0.0 ({compiler}): " in said
    assert said.rstrip().endswith(", or use a newer CUDA toolkit")


def test_matrices_and_options_that_cannot_be(example: Path, store: Path) -> None:
    """A pair of torch and CUDA that was never published, and an unknown architecture, are errors before any work."""
    config = example / "hatch.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace('cuda = ["cu124"]', 'cuda = ["cu130"]'), encoding="utf-8")
    said = refused(example, store, "", HATCH_TORCH_EXT_ENVIRONMENT="full")
    assert (
        "full.2.6-cu130: there is no torch 2.6 for CUDA 13.0: it was published for CUDA 11.8, 12.4, 12.6; remove the "
        "pair from the matrix, or name it in `skip`"
    ) in said
    config.write_text(text.replace('environment = "matrix"', 'archs = ["8.0", "95"]'), encoding="utf-8")
    said = refused(example, store, "")
    assert "`95`" in said
    assert not (example / "build").exists()


def test_archs_without_cuda_sources_are_a_warning(tmp_path: Path, store: Path) -> None:
    """The wheel is made, and the build says that the option did nothing."""
    root = tmp_path / "hybrid"
    shutil.copytree(PROJECT / "tests/packages/hybrid", root)
    config = root / "pyproject.toml"
    text = config.read_text(encoding="utf-8").replace('source = "csrc"', 'source = "csrc"\narchs = ["9.0"]')
    config.write_text(text, encoding="utf-8")
    done = build(root, root / "dist", store, HATCH_TORCH_EXT_ONLY="*stable")
    assert (
        "torch-ext: option `archs` had no effect: no variant holds CUDA code. Take it out, or compile CUDA sources "
        "(`enable_language(CUDA)`) in entries whose torch has CUDA"
    ) in done.stdout + done.stderr
