"""Assembles a CUDA 12.4 toolkit without installing one: enough to compile and link kernels, without math libraries.

Usage: python cuda12_root.py FOLDER (about 250 MB of downloads, half a minute; needs apt-get and dpkg, no root)

The package index has no nvcc for CUDA 12, so the programs come from Debian's ``nvidia-cuda-toolkit`` (non-free, of the
release named below), while headers, libdevice and the runtime come from NVIDIA's wheels. NVIDIA's licence applies to
all of it: it is for tests, and belongs neither into a repository nor into a wheel.

On failure the exit status is 1 and the last line on stderr is the reason.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from debian import Packages, UnavailableError, run

RELEASE = "trixie"  # Debian's, with CUDA 12.4
WHEELS = (
    "nvidia-cuda-runtime-cu12==12.4.127",
    "nvidia-cuda-nvcc-cu12==12.4.131",
    "nvidia-cuda-cccl-cu12==12.4.127.post1",
)
PROFILE = """\
TOP = $(_HERE_)/..
CICC_PATH = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(CICC_PATH):$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
"""


def programs(work: Path) -> Path:
    """Return the unpacked Debian package."""
    packages = Packages(work=work / "packages", release=RELEASE, component="non-free")
    packages.unpack(["nvidia-cuda-toolkit"], work / "deb")
    return work / "deb" / "usr"


def assemble(debian: Path, wheels: Path, root: Path) -> None:
    """Arrange the parts as a toolkit below ``root``."""
    for name in ("bin", "include", "lib64", "nvvm/bin"):
        (root / name).mkdir(parents=True)
    private = debian / "lib" / "nvidia-cuda-toolkit" / "bin"
    for program in ("cudafe++", "nvlink", "ptxas", "fatbinary"):
        shutil.copy2(debian / "bin" / program, root / "bin")
    shutil.copy2(private / "nvcc", root / "bin")
    shutil.copytree(private / "crt", root / "bin" / "crt")
    shutil.copy2(private / "cicc", root / "nvvm" / "bin")
    (root / "bin" / "nvcc.profile").write_text(PROFILE)
    shutil.copytree(wheels / "cuda_nvcc" / "nvvm" / "libdevice", root / "nvvm" / "libdevice")
    for part in ("cuda_runtime", "cuda_nvcc", "cuda_cccl"):
        shutil.copytree(wheels / part / "include", root / "include", dirs_exist_ok=True)
    shutil.copy2(wheels / "cuda_runtime" / "lib" / "libcudart.so.12", root / "lib64")
    (root / "lib64" / "libcudart.so").symlink_to("libcudart.so.12")
    # nvcc links these by default: no kernel here calls another file's, and the shared runtime replaces the static one.
    (root / "lib64" / "libcudadevrt.a").write_bytes(b"!<arch>\n")
    (root / "lib64" / "libcudart_static.a").write_text("INPUT(libcudart.so)\n")


def main(folder: str) -> None:
    """Fill ``folder``, which appears only once it is complete."""
    root = Path(folder).resolve()
    if (root / "bin" / "nvcc").exists():
        return
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as name:
        work = Path(name)
        debian = programs(work)
        pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", work / "wheels")
        run(*pip, *WHEELS)
        assemble(debian, work / "wheels" / "nvidia", work / "root")
        run(work / "root" / "bin" / "nvcc", "--version")
        shutil.copytree(work / "root", root, symlinks=True, dirs_exist_ok=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except UnavailableError as error:
        sys.exit(str(error))
