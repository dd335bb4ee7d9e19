"""Which build of torch ``install torch`` takes, for drivers and cards, held against uv's ``--torch-backend=auto``."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

import wheels
from hatch_torch_ext.base import process
from hatch_torch_ext.facts import releases
from hatch_torch_ext.remote import settings
from hatch_torch_ext.remote.http import Http
from hatch_torch_ext.user import drivers, installing, machine, target
from hatch_torch_ext.user.machine import Gpu, Machine
from loopback import instead_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.user.target import TargetPython

CP = f"cp{sys.version_info[0]}{sys.version_info[1]}"
PLATFORM = f"manylinux_2_17_{os.uname().machine}"
CUDA_11 = ("450.80.02", "470.57.02", "510.47.03", "520.61.05")
CUDA_12 = ("525.60.13", "535.54.03", "550.54.15", "570.86.10", "575.57.08")
CUDA_13 = ("580.65.06", "590.44.01", "595.10")
CARDS = {
    "Tesla M40": (5, 2), "GTX 980": (5, 0), "Tesla P100": (6, 0), "GTX 1080": (6, 1), "Tesla V100": (7, 0),
    "Tesla T4": (7, 5), "A100": (8, 0), "RTX 3090": (8, 6), "RTX 4090": (8, 9), "H100": (9, 0), "B200": (10, 0),
    "RTX 5090": (12, 0),
}  # fmt: skip
BLACKWELL = ("B200", "RTX 5090")
UNTIL_VOLTA = ("Tesla M40", "GTX 980", "Tesla P100", "GTX 1080", "Tesla V100")


def ours_for(driver: str, card: str) -> str:
    """Return the build to expect: the newest release that has code for the card and that the driver runs."""
    if driver in CUDA_11:
        return "2.14.0+cpu" if card in BLACKWELL else "2.7.0+cu118"
    if driver in CUDA_12:
        return "2.11.0+cu128" if card in BLACKWELL else "2.14.0+cu126"
    return "2.14.0+cu126" if card in UNTIL_VOLTA else "2.14.0+cu132"


def published() -> Iterator[tuple[str, str]]:
    """Yield (backend, release) of every build of torch that the table of releases knows."""
    for minor, versions in releases.PUBLISHED_CUDA.items():
        for cuda in versions:
            yield f"cu{cuda.replace('.', '')}", f"{releases.format_minor(minor)}.0"
        yield "cpu", f"{releases.format_minor(minor)}.0"
    for rocm, lines in ROCM_RELEASES.items():
        yield from ((f"rocm{rocm}", f"{line}.0") for line in lines)
    yield from (("xpu", f"{line}.0") for line in ("2.13", "2.14"))


@pytest.fixture(scope="module")
def whl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return torch's index as a folder: pages with metadata for uv, and the names of the files for ours."""
    root = tmp_path_factory.mktemp("torch")
    pages: dict[Path, list[str]] = {}
    for backend, version in published():
        name = f"torch-{version}+{backend}-{CP}-{CP}-{PLATFORM}.whl"
        page = root / "whl" / backend / "torch"
        page.mkdir(parents=True, exist_ok=True)
        wheels.write(page.parent, {}, name=name, requires=())
        metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}+{backend}\n"
        (page / f"{name}.metadata").write_text(metadata)
        pages.setdefault(page, []).append(f'<a href="{name.replace("+", "%2B")}" data-core-metadata="true">{name}</a>')
    for page, links in pages.items():
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
    return root / "whl"


@pytest.fixture(scope="module")
def here() -> TargetPython:
    """Return this Python."""
    return target.find(Path(sys.executable), {}, folder=Path("/"))


def ours(whl: Path, here: TargetPython, on: Machine, asked: str = "torch", **more: str) -> installing.Plan:
    """Return the plan for ``asked`` on the machine ``on``."""
    with Http(settings.of_environ({})) as http:
        return installing.plan([asked], here, on, http, torch_index=str(whl), **more)


def a_machine(driver: str, *cards: str) -> Machine:
    """Return a machine with ``cards``; without any, one whose GPUs cannot be asked."""
    gpus = tuple(Gpu(index=number, name=card, capability=CARDS[card]) for number, card in enumerate(cards))
    return Machine(system="linux", machine=os.uname().machine, driver=driver, gpus=gpus)


@pytest.fixture(scope="module")
def led_here(whl: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Serve the folder to uv under the name of torch's own index, and return uv's variables for that."""
    with instead_of("download.pytorch.org", whl.parent, tmp_path_factory.mktemp("tls")) as environ:
        yield environ


def uvs(environ: dict[str, str], *inside: str) -> str:
    """Return the torch that uv takes by ``--torch-backend=auto``; ``inside`` is a command that runs it."""
    command = [*inside, uv.find_uv_bin(), "pip", "compile", "--torch-backend=auto", "--no-deps", "--no-header"]
    command += ["--quiet", "--no-config", "--no-cache", "--no-annotate", "--python", sys.executable, "-"]
    return process.run(command, env_changes=environ, given="torch\n").stdout.strip().removeprefix("torch==")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the cards of the table are for x86-64")
def test_every_driver_with_every_card(whl: Path, here: TargetPython) -> None:
    """A GPU gets the newest CUDA build that its driver runs and that has code for it; a CPU build is explained."""
    found = {}
    for driver in (*CUDA_11, *CUDA_12, *CUDA_13):
        for card, capability in CARDS.items():
            plan = ours(whl, here, a_machine(driver, card))
            found[driver, card] = plan.torch[0]
            if plan.backend == "cpu":
                number = ".".join(map(str, capability))
                assert plan.because == (
                    f"the builds of torch for {CP} that driver {driver} runs (CUDA 11.8, 11.7, 11.6, 11.3) have no "
                    f"code for {card} (compute capability {number}). The CPU build is taken",
                )
    assert found == {pair: f"torch=={ours_for(*pair)}" for pair in found}


def test_every_driver_beside_uv(whl: Path, here: TargetPython, led_here: dict[str, str]) -> None:
    """For GPUs that cannot be asked, as uv asks none: the same, but for one difference that is on purpose.

    uv takes the newest CUDA first, and what it has of torch: cu129 ended with 2.8 (of this table). Ours takes the
    newest torch of all that the driver runs. The capability of the cards, which uv does not look at, is in the test
    above.
    """
    edges = (CUDA_11[0], CUDA_12[0], CUDA_12[-1], CUDA_13[0])
    uvs_own = {driver: uvs({**led_here, "UV_CUDA_DRIVER_VERSION": driver}) for driver in edges}
    own = {driver: ours(whl, here, a_machine(driver)).torch[0].removeprefix("torch==") for driver in uvs_own}
    assert own == {**uvs_own, **dict.fromkeys((CUDA_12[0], CUDA_12[-1]), "2.14.0+cu126")}
    assert uvs_own[CUDA_12[0]] == uvs_own[CUDA_12[-1]] == "2.8.0+cu129"
    assert uvs_own[CUDA_11[0]] == "2.7.0+cu118"
    assert uvs_own[CUDA_13[0]] == "2.14.0+cu132"


@pytest.mark.parametrize(
    ("on", "asked", "backend", "why"),
    [
        (
            a_machine("470.57.02", "A100"),
            "torch>=2.9",
            "auto",
            f"driver 470.57.02 is too old for the builds of torch>=2.9 for {CP} that there are, for CUDA 12.6, 12.8, "
            "13.0, 13.2: update it to 525.60.13 or newer. The CPU build is taken",
        ),
        (a_machine("580.65.06", "A100"), "torch", "cpu", "the CPU build of torch was requested"),
        (
            replace(a_machine("580.65.06"), gpus=(Gpu(index=0, name="A100", capability=(8, 0), visible=False),)),
            "torch",
            "auto",
            "CUDA_VISIBLE_DEVICES hides every NVIDIA GPU, so the CPU build of torch is enough",
        ),
        (
            Machine(system="linux", machine="x86_64"),
            "torch",
            "auto",
            "no NVIDIA GPU is visible here, so the CPU build of torch is enough",
        ),
    ],
)
def test_the_cpu_build_is_explained(
    whl: Path, here: TargetPython, on: Machine, asked: str, backend: str, why: str
) -> None:
    """Each way to the CPU build has its own reason."""
    plan = ours(whl, here, on, asked, backend=backend)
    assert (plan.backend, plan.because) == ("cpu", (why,))


@pytest.mark.performs("update it to {} or newer")
def test_a_newer_driver_is_the_way_out(whl: Path, here: TargetPython) -> None:
    """The driver that the message names runs a CUDA build."""
    assert ours(whl, here, a_machine("525.60.13", "A100"), "torch>=2.9").torch == ("torch==2.14.0+cu126",)


@pytest.mark.parametrize(
    ("on", "backend", "why"),
    [
        (
            a_machine("595.10"),
            "auto",
            "driver 595.10 runs CUDA 13.2, and its build of torch has code for its GPU, which cannot be read here",
        ),
        (
            a_machine("595.10", "H100", "Tesla V100"),
            "auto",
            "driver 595.10 runs CUDA 12.6, and its build of torch has code for H100, Tesla V100",
        ),
        (
            a_machine("595.10", "H100", "Tesla V100"),
            "cu130",
            "driver 595.10 runs CUDA 13.0, and its build of torch has code for H100, but not for Tesla V100",
        ),
        (
            a_machine("550.54.15", "H100"),
            "cu130",
            "the build of torch for CUDA 13.0 was requested; driver 550.54.15 is too old for it",
        ),
        (
            Machine(system="linux", machine="x86_64"),
            "cu130",
            "the build of torch for CUDA 13.0 was requested; no NVIDIA GPU is visible here",
        ),
    ],
)
def test_a_cuda_build_is_explained(whl: Path, here: TargetPython, on: Machine, backend: str, why: str) -> None:
    """What runs on it, what does not, and what was requested against what is there."""
    plan = ours(whl, here, replace(on, machine="x86_64"), backend=backend)
    assert plan.because == (why,)


def test_a_package_keeps_torch_from_the_gpu(whl: Path, here: TargetPython, tmp_path: Path) -> None:
    """Only a package that no CUDA build serves has the CPU build taken where a GPU is, and it is named."""
    label = "torch2.14_cpu_cxx11_x86_64"
    files = {f"{label}/libx.so": b"x"}
    variant = wheels.variant(label, files, torch="2.14", machine=os.uname().machine, cxx11_abi=True)
    wheel = wheels.ours(tmp_path, [(variant, files)], requires=("torch==2.14.*",))
    plan = ours(whl, here, a_machine("470.57.02", "A100"), str(wheel))
    assert plan.torch == ("torch==2.14.0+cpu",)
    assert plan.because == (
        "torch 2.7.0+cu118 would run on the GPU here, but not with every package (my-pkg has variants for torch 2.14 "
        "(CPU)). The CPU build is taken",
        f"my-pkg serves it with its variant {label}",
    )
    assert ours(whl, here, a_machine("525.60.13", "A100"), str(wheel)).torch == ("torch==2.14.0+cu126",)


ROCM_RELEASES = {"6.2.4": ("2.6", "2.7"), "6.3": ("2.7", "2.8", "2.9"), "6.4": ("2.8", "2.9"), "7.2": ("2.11", "2.14")}


def uvs_indexes(architecture: str) -> list[str]:
    """Return the backends whose indexes uv searches for a GPU of AMD's, in their order."""
    command = [uv.find_uv_bin(), "pip", "compile", "--torch-backend=auto", "--no-deps", "--offline", "-vv"]
    command += ["--no-config", "--no-cache", "--python", sys.executable, "-"]
    changes = {"UV_AMD_GPU_ARCHITECTURE": architecture}
    told = process.run(command, env_changes=changes, given="torch\n", check=False).stderr
    return re.findall(r"Fetching metadata for `torch` from `https://download.pytorch.org/whl/([^/]+)/torch/`", told)


def test_amds_architectures_beside_uv() -> None:
    """The table is uv's: for each architecture the same versions of ROCm, in the same order, then the CPU's."""
    for architecture, versions in drivers.ROCM_BUILDS:
        assert uvs_indexes(architecture) == [*(f"rocm{version}" for version in versions), "cpu"]
    assert uvs_indexes("gfx1036") == []  # uv refuses a name that its table lacks
    assert drivers.rocm(["gfx1036"]) == ()


def fake_sys(root: Path, vendor: str, version: int | None = None) -> Path:
    """Write a display device and, with ``version``, an entry of the compute driver's; return the root."""
    device = root / "sys/bus/pci/devices/0000:03:00.0"
    device.mkdir(parents=True)
    for name, text in {"class": "0x038000", "vendor": vendor, "device": "0x56a0"}.items():
        (device / name).write_text(f"{text}\n")
    if version is not None:
        node = root / "sys/class/kfd/kfd/topology/nodes/1"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"simd_count 304\ngfx_target_version {version}\n")
    return root


@pytest.mark.parametrize(
    ("vendor", "version", "expected", "why"),
    [
        (
            "0x1002",
            90402,
            "2.14.0+rocm7.2",
            "torch's build for ROCm 7.2 has code for the AMD GPU here (gfx942)",
        ),
        (
            "0x1002",
            110001,
            "2.14.0+rocm7.2",
            "torch's build for ROCm 7.2 has code for the AMD GPU here (gfx1101)",
        ),
        (
            "0x8086",
            None,
            "2.14.0+xpu",
            "torch's build for XPU is for Intel GPUs, and one is here (8086:56a0)",
        ),
    ],
)
def test_gpus_of_other_vendors_beside_uv(
    whl: Path,
    here: TargetPython,
    led_here: dict[str, str],
    tmp_path: Path,
    vendor: str,
    version: int | None,
    expected: str,
    why: str,
) -> None:
    """A machine with one such GPU, by its kernel's files: the same build as uv takes, which reads the same files."""
    root = fake_sys(tmp_path, vendor, version)
    found = machine.read({"PATH": "/nowhere"}, root=root)
    with Http(settings.of_environ({})) as http:
        plan = installing.plan(["torch"], here, found, http, torch_index=str(whl))
    assert (plan.torch[0], plan.because) == (f"torch=={expected}", (why,))
    if version is not None:
        assert uvs({**led_here, "UV_AMD_GPU_ARCHITECTURE": found.amd[0]}) == expected
        return
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount --bind "$0/sys" /sys && "$@"']
    inside.append(str(root))
    if process.run([*inside, "true"], check=False).returncode:
        pytest.skip("no namespaces here, in which uv would read other files of the kernel")
    assert uvs(led_here, *inside) == expected


def test_gpus_that_torch_has_nothing_for(whl: Path, here: TargetPython, tmp_path: Path) -> None:
    """An unknown architecture, and a card without a compute driver: the CPU build, with the reason."""
    for folder, version, why in (
        ("unknown", 100306, "no build of torch has code for the AMD GPU here (gfx1036). The CPU build is taken"),
        (
            "without",
            None,
            "the kernel has no compute driver for the GPU here (AMD 1002:56a0; /sys/class/kfd lists none). The CPU "
            "build is taken",
        ),
    ):
        found = machine.read({"PATH": "/nowhere"}, root=fake_sys(tmp_path / folder, "0x1002", version))
        plan = ours(whl, here, found)
        assert (plan.backend, plan.because) == ("cpu", (why,))
    intel = machine.read({"PATH": "/nowhere"}, root=fake_sys(tmp_path / "intel", "0x8086"))
    plan = ours(whl, here, intel, "torch<2.13")
    assert plan.because == (f"there is no build of torch<2.13 for {CP} for xpu. The CPU build is taken",)
