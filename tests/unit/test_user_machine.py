"""What a machine has, from what its files and programs say; NVIDIA's libraries are asked in tests/integration."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.user import machine
from hatch_torch_ext.user.machine import Gpu, OtherGpu

if TYPE_CHECKING:
    from pathlib import Path

NVRM = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)
SMI = """\
0, 580.65.06, 9.0, NVIDIA H100 80GB HBM3, GPU-6e4c0f1a-0000-0000-0000-000000000001
1, 580.65.06, 7.0, Tesla V100-SXM2-16GB, GPU-6e4c0f1a-0000-0000-0000-000000000002
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which no program and no library of NVIDIA's is found."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "LD_LIBRARY_PATH": ""}


def program(environ: dict[str, str], name: str, script: str) -> None:
    """Put a program on PATH."""
    path = f"{environ['PATH']}/{name}"
    with open(path, "w", encoding="utf-8") as stream:  # noqa: PTH123 -- a path made of text
        stream.write(f"#!/bin/sh\n{script}\n")
    os.chmod(path, stat.S_IRWXU)  # noqa: PTH101


def files(root: Path, **contents: str) -> Path:
    """Write files below ``root``: ``proc__driver__nvidia__version`` is ``proc/driver/nvidia/version``."""
    for name, text in contents.items():
        path = root.joinpath(*name.split("__"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_no_gpu(environ: dict[str, str], tmp_path: Path) -> None:
    """Nothing is a problem where nothing is there."""
    found = machine.read(environ, root=tmp_path)
    assert (found.driver, found.supported, found.gpus, found.problems) == (None, None, (), ())
    assert machine.usable_cuda(found, ("12.8", "13.0")) == ()


def test_the_kernels_files(environ: dict[str, str], tmp_path: Path) -> None:
    """A container without libraries still shows the driver of its host."""
    found = machine.read(environ, root=files(tmp_path, proc__driver__nvidia__version=NVRM))
    assert (found.driver, found.source) == ("550.54.15", "/proc/driver/nvidia/version")
    found = machine.read(environ, root=files(tmp_path, sys__module__nvidia__version="580.65.06\n"))
    assert (found.driver, found.source) == ("580.65.06", "/sys/module/nvidia/version")


def test_nvidia_smi_tells_devices_and_capabilities(environ: dict[str, str], tmp_path: Path) -> None:
    """Two different cards: the V100 is not served by torch's builds for CUDA 13, so that CUDA 12 comes first."""
    program(environ, "nvidia-smi", f"cat <<'EOF'\n{SMI}EOF")
    found = machine.read(environ, root=tmp_path)
    assert [(gpu.name, gpu.capability) for gpu in found.gpus] == [
        ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("Tesla V100-SXM2-16GB", (7, 0)),
    ]
    assert found.source == "nvidia-smi"
    usable = machine.usable_cuda(replace(found, machine="x86_64"), ("12.6", "12.8", "13.0"))
    assert usable == ("12.8", "12.6", "13.0")


def test_a_v100_never_gets_cuda_13(environ: dict[str, str], tmp_path: Path) -> None:
    """The driver would run it, but torch's build holds no code for the card."""
    program(environ, "nvidia-smi", f"cat <<'EOF'\n{SMI.splitlines()[1]}\nEOF")
    found = machine.read(environ, root=tmp_path)
    assert machine.usable_cuda(replace(found, machine="x86_64"), ("12.8", "13.0")) == ("12.8",)


@pytest.mark.parametrize(
    ("said", "visible"),
    [
        (None, [0, 1]),
        ("1", [1]),
        ("1,0", [0, 1]),
        ("", []),
        ("-1", []),
        ("0,7,1", [0]),  # CUDA stops at the first that is not there
        ("GPU-6e4c0f1a-0000-0000-0000-000000000002", [1]),
        ("GPU-6e4c0f1a", [0, 1]),
        ("NoDevFiles", []),
    ],
)
def test_visible_devices(environ: dict[str, str], tmp_path: Path, said: str | None, visible: list[int]) -> None:
    """CUDA_VISIBLE_DEVICES has indexes or prefixes of UUIDs; a note says if it hides every GPU."""
    program(environ, "nvidia-smi", f"cat <<'EOF'\n{SMI}EOF")
    found = machine.read(environ | ({} if said is None else {"CUDA_VISIBLE_DEVICES": said}), root=tmp_path)
    assert [gpu.index for gpu in found.visible] == visible
    assert bool(found.problems) is (not visible)


def test_nvidia_smi_that_fails(environ: dict[str, str], tmp_path: Path) -> None:
    """Its message is reported; a broken driver counts as no GPU."""
    program(environ, "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    found = machine.read(environ, root=tmp_path)
    assert found.problems == ("nvidia-smi fails: Failed to initialize NVML: Driver/library version mismatch",)


def test_nvidia_smi_that_hangs(environ: dict[str, str], tmp_path: Path) -> None:
    """It is given up after the time-out."""
    program(environ, "nvidia-smi", "exec /bin/sleep 60")
    found = machine.read(environ, root=tmp_path, timeout=1.0)
    assert found.problems == ("nvidia-smi did not answer within 1 s: the NVIDIA driver hangs",)


def test_wsl(environ: dict[str, str], tmp_path: Path) -> None:
    """Under WSL the driver is Windows'."""
    files(tmp_path, proc__version="Linux version 5.15.153.1-microsoft-standard-WSL2 (root@host)")
    program(environ, "nvidia-smi.exe", f"cat <<'EOF'\n{SMI.splitlines()[0]}\nEOF")
    found = machine.read(environ, root=tmp_path)
    assert (found.wsl, found.source, found.driver) == (True, "nvidia-smi.exe", "580.65.06")


def test_other_vendors(environ: dict[str, str], tmp_path: Path) -> None:
    """AMD and Intel display devices are named; other PCI devices of theirs are not display devices.

    The architectures of AMD's come from the compute driver's list, where processors have no such number.
    """
    pci = "sys__bus__pci__devices__"
    devices = {"a": ("0x030000", "0x1002"), "b": ("0x038000", "0x8086"), "c": ("0x020000", "0x8086")}
    for name, (kind, vendor) in devices.items():
        files(tmp_path, **{f"{pci}{name}__class": kind, f"{pci}{name}__vendor": vendor})
        files(tmp_path, **{f"{pci}{name}__device": "0x56a0\n"})
    files(tmp_path, **{f"{pci}a__product_name": "AMD Instinct MI300X\n"})
    nodes = "sys__class__kfd__kfd__topology__nodes__"
    for number, version in enumerate((0, 90402, 90010, 110001, 120001)):
        files(tmp_path, **{f"{nodes}{number}__properties": f"simd_count 304\ngfx_target_version {version}\nlds 64\n"})
    found = machine.read(environ, root=tmp_path)
    assert found.others == (
        OtherGpu(vendor="AMD", name="AMD Instinct MI300X"),
        OtherGpu(vendor="Intel", name="8086:56a0"),
    )
    assert found.amd == ("gfx942", "gfx90a", "gfx1101", "gfx1201")
    assert machine.read(environ | {machine.DRIVER: "none"}, root=tmp_path).others == ()


def test_kernel_files_that_hang(environ: dict[str, str], tmp_path: Path) -> None:
    """A file of a driver in trouble keeps its reader for ever: it is given up, and told."""
    folder = tmp_path / "sys/bus/pci/devices/a"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "vendor")
    found = machine.read(environ, root=tmp_path, timeout=1.0)
    told = "the kernel's files about GPUs (/sys/bus/pci and /sys/class/kfd) were not read within 1 s"
    assert (found.others, found.problems) == ((), (told,))


@pytest.mark.parametrize("cell", ["\u00b2", "5" * 5000, "-1", "", "0x1"])
def test_rows_that_are_not_understood(environ: dict[str, str], tmp_path: Path, cell: str) -> None:
    """Whatever nvidia-smi prints where a number is due: the row does not count, the next one does."""
    program(environ, "nvidia-smi", f"cat <<'EOF'\n{cell}, 580.65.06, 9.0, NVIDIA H100, GPU-1\n{SMI}EOF")
    found = machine.read(environ, root=tmp_path)
    assert [gpu.uuid for gpu in found.gpus] == [line.split(", ")[-1] for line in SMI.splitlines()]


def test_a_program_that_prints_without_end(environ: dict[str, str], tmp_path: Path) -> None:
    """A megabyte is read, and the program is ended; it is reported, and nothing of it counts."""
    program(environ, "nvidia-smi", f"echo $$ > {tmp_path}/pid; while :; do echo '{SMI.splitlines()[0]}'; done")
    found = machine.read(environ, root=tmp_path, timeout=30.0)
    assert (found.problems, found.gpus) == (("nvidia-smi prints more than 1 MB: its answer is ignored",), ())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_override(environ: dict[str, str], tmp_path: Path) -> None:
    """It stands for everything that would be found; nonsense is an error that names the variable."""
    found = machine.read(environ | {machine.DRIVER: "12.8"}, root=files(tmp_path, sys__module__nvidia__version="580.1"))
    assert (found.supported, found.driver, found.source) == ((12, 8), None, machine.DRIVER)
    assert machine.usable_cuda(found, ("12.6", "12.9", "13.0")) == ("12.9", "12.6")
    assert machine.read(environ | {machine.DRIVER: "none"}, root=tmp_path).supported is None
    with pytest.raises(ConfigurationError, match="TORCH_EXT_CUDA_DRIVER is 'new'; it must be a CUDA version"):
        machine.read(environ | {machine.DRIVER: "new"}, root=tmp_path)


def test_control_characters_of_programs_are_not_printed(environ: dict[str, str], tmp_path: Path) -> None:
    """Nothing that a program says reaches the terminal raw."""
    program(environ, "nvidia-smi", "printf '0, 580.65.06, 9.0, \\033[31mred, GPU-1\\n'")
    assert machine.read(environ, root=tmp_path).gpus == (
        Gpu(index=0, name="?[31mred", uuid="GPU-1", capability=(9, 0)),
    )
