"""Libraries opened where nothing of torch was opened before: RPATH leads to torch, as a C++ program needs it."""

from __future__ import annotations

from pathlib import Path

import uv

from hatch_torch_ext.base import process

from .conftest import install, outside

PROGRAM = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=2)  # RTLD_NOW: every function is looked for at once
opened = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
assert "torch" not in sys.modules
print(*sorted(path for path in opened if "torch" in path), sep="\\n")
"""


def environment(folder: Path, torch_python: Path, wheel: Path) -> Path:
    """Return a fresh Python whose site-packages have torch (a link to its folder) and the wheel beside each other."""
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", torch_python, folder])
    python = folder / "bin" / "python"
    install(python, wheel)
    said = process.run([torch_python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).stdout.strip()
    (site,) = (folder / "lib").glob("python*/site-packages")
    for package in sorted(Path(said).iterdir()):
        if not (site / package.name).exists():
            (site / package.name).symlink_to(package)
    return python


def test_the_library_opens_in_a_python_that_never_imported_torch(
    example_wheel: Path, torch_cpu_python: Path, tmp_path: Path
) -> None:
    """`ctypes.CDLL` by itself finds libtorch_cpu.so beside the wheel; the package may be the first that is imported."""
    python = environment(tmp_path / "fresh", torch_cpu_python, example_wheel)
    library = outside(python, "-m", "torch_ext_example._variants", "--library-path", cwd=tmp_path).stdout.strip()
    opened = outside(python, "-c", PROGRAM, library, cwd=tmp_path).stdout.splitlines()
    assert library in opened
    assert {"libtorch_cpu.so", "libc10.so"} <= {Path(path).name for path in opened}
    program = "import torch_ext_example, sys; print('torch' in sys.modules)"
    assert outside(python, "-c", program, cwd=tmp_path).stdout.strip() == "True"
