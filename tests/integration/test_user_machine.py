"""NVIDIA's libraries as the machine reads them: stand-ins compiled here, since there is no driver on this machine."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.user import machine

if TYPE_CHECKING:
    from pathlib import Path

NVML = r"""
#include <string.h>
#include <unistd.h>
#include <stdlib.h>
static int devices[8];
#define FIRST (handle == &devices[0])
int nvmlInit_v2(void) { INIT }
int nvmlSystemGetDriverVersion(char *out, unsigned n) { strncpy(out, "580.65.06", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { if (i == 1) return 15; *h = &devices[i]; return 0; }
static int say(char *out, unsigned n, const char *text) { strncpy(out, text, n); return 0; }
int nvmlDeviceGetName(void *handle, char *out, unsigned n) { return say(out, n, FIRST ? "NVIDIA A100" : "Tesla V100"); }
int nvmlDeviceGetUUID(void *handle, char *out, unsigned n) { return say(out, n, FIRST ? "GPU-a" : "GPU-c"); }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *a, int *b) { *a = FIRST ? 8 : 7; *b = 0; return 0; }
int nvmlDeviceGetMigMode(void *handle, unsigned *c, unsigned *p) { *c = *p = FIRST; return FIRST ? 0 : 3; }
"""
CUDA = "int cuDriverGetVersion(int *v) { *v = 13010; return 0; }\n"


def library(folder: Path, name: str, source: str) -> None:
    """Compile a stand-in for a library of NVIDIA's."""
    path = folder / f"{name}.c"
    path.write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, path], check=True)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which libraries are looked for in a folder of the test, and no program is found."""
    return {"PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)}


def test_nvml_and_libcuda(environ: dict[str, str], tmp_path: Path) -> None:
    """Every device, also beside one that fails; both driver versions: cuda-compat is newer than the kernel's."""
    library(tmp_path, "libnvidia-ml.so.1", NVML.replace("INIT", "return 0;"))
    library(tmp_path, "libcuda.so.1", CUDA)
    found = machine.read(environ, root=tmp_path)
    assert (found.driver, found.supported, found.source) == ("580.65.06", (13, 1), "NVML")
    assert [(gpu.name, gpu.uuid, gpu.capability, gpu.mig, gpu.error) for gpu in found.gpus] == [
        ("NVIDIA A100", "GPU-a", (8, 0), True, None),
        (None, None, None, False, 15),
        ("Tesla V100", "GPU-c", (7, 0), False, None),
    ]
    assert found.problems == ("GPU 1 answers with error 15",)


def test_only_libcuda(environ: dict[str, str], tmp_path: Path) -> None:
    """Without NVML the driver is known all the same, its GPUs are not."""
    library(tmp_path, "libcuda.so.1", CUDA)
    found = machine.read(environ, root=tmp_path)
    assert (found.driver, found.supported, found.source, found.gpus) == (None, (13, 1), "libcuda", ())


@pytest.mark.parametrize(
    ("init", "problem"),
    [
        ("return 9;", "libnvidia-ml.so.1 (NVML) answers with error 9: the NVIDIA driver does not work"),
        ("abort();", "libnvidia-ml.so.1 (NVML) crashes the process that asks it: the NVIDIA driver is broken"),
        ("sleep(60); return 0;", "libnvidia-ml.so.1 (NVML) did not answer within 2 s: the NVIDIA driver hangs"),
    ],
)
def test_a_driver_that_does_not_work(environ: dict[str, str], tmp_path: Path, init: str, problem: str) -> None:
    """An error, a crash and a hang are each reported, and the next source is asked."""
    library(tmp_path, "libnvidia-ml.so.1", NVML.replace("INIT", init))
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("580.65.06\n")
    found = machine.read(environ, root=tmp_path, timeout=2.0)
    assert (found.problems, found.driver) == ((problem,), "580.65.06")
