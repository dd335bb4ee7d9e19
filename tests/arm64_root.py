"""Assembles, without installing anything, a toolchain on x86-64 that compiles for aarch64 and runs the programs.

Usage: python arm64_root.py FOLDER (about 130 MB of downloads, a minute; needs apt-get and dpkg, no root)

``FOLDER/bin`` gets the cross compiler and qemu, to be put on PATH; those of this machine if it has them.
``FOLDER/root`` gets Debian's arm64 Python 3.11 with its libraries and headers, for ``QEMU_LD_PREFIX``. On failure the
exit status is 1 and the last line on stderr is the reason.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path

from debian import Packages, UnavailableError, run

RELEASE = "bookworm"  # Debian's, with Python 3.11
GCC = "12"
QEMU = "qemu-aarch64-static"
COMPILER = (
    *("binutils-aarch64-linux-gnu", "g++-aarch64-linux-gnu", "gcc-aarch64-linux-gnu", "cpp-aarch64-linux-gnu"),
    *(f"g++-{GCC}-aarch64-linux-gnu", f"gcc-{GCC}-aarch64-linux-gnu", f"cpp-{GCC}-aarch64-linux-gnu"),
    *(f"libgcc-{GCC}-dev-arm64-cross", f"libstdc++-{GCC}-dev-arm64-cross", "libgcc-s1-arm64-cross"),
    *("libstdc++6-arm64-cross", "libc6-arm64-cross", "libc6-dev-arm64-cross", "linux-libc-dev-arm64-cross"),
    *("libgomp1-arm64-cross", "libatomic1-arm64-cross", "libitm1-arm64-cross", "qemu-user-static"),
    # Libraries of the compiler itself, which a machine without GCC lacks.
    *("libgmp10", "libisl23", "libmpc3", "libmpfr6", "libzstd1", "zlib1g", "libjansson4"),
)
PYTHON = (
    *("libc6", "libstdc++6", "libgcc-s1", "libgomp1", "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0"),
    *("liblzma5", "libsqlite3-0", "libncursesw6", "libtinfo6", "libreadline8", "libuuid1", "libnsl2", "libtirpc3"),
    *("libcrypt1", "libdb5.3", "libkrb5-3", "libgssapi-krb5-2", "libk5crypto3", "libcom-err2", "libkrb5support0"),
    *("libkeyutils1", "libpython3.11-minimal", "libpython3.11-stdlib", "python3.11-minimal", "python3.11"),
    "libpython3.11-dev",
)


def programs(host: Path, folder: Path) -> None:
    """Write a script for each program of ``host``, which prefers the unpacked libraries to the system's."""
    libraries = host / "usr" / "lib" / "x86_64-linux-gnu"
    for script in (host / "usr" / "aarch64-linux-gnu" / "lib").glob("*.so"):
        text = script.read_bytes()
        if text.startswith(b"/* GNU ld script"):  # it names libraries by their path in an installation
            script.write_bytes(re.sub(rb"/usr/aarch64-linux-gnu/lib/", b"", text))
    folder.mkdir()
    for path in sorted((host / "usr" / "bin").iterdir()):
        if path.name.startswith("qemu-") and path.name != QEMU:
            path.unlink()  # libraries for other machines are large
        elif path.name.startswith(("aarch64-linux-gnu-", QEMU)):
            program = folder / path.name
            program.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{libraries}" exec "{path}" "$@"\n')
            program.chmod(0o755)


def main(folder: str) -> None:
    """Fill ``folder``, which is complete if this ends without an error."""
    if platform.machine() != "x86_64":
        raise UnavailableError(f"it is for x86-64, and this is {platform.machine()}")
    target = Path(folder).resolve()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="arm64-") as scratch:
        work = Path(scratch)
        here = [shutil.which(name) for name in ("aarch64-linux-gnu-g++", QEMU)]
        if all(here):
            (target / "bin").mkdir()
            for path in map(Path, filter(None, here)):
                for program in path.parent.glob("aarch64-linux-gnu-*" if path.name != QEMU else QEMU):
                    (target / "bin" / program.name).symlink_to(program)
        else:
            packages = Packages(work=work / "host", release=RELEASE, component="main", architecture="amd64")
            packages.unpack(COMPILER, target / "host")
            programs(target / "host", target / "bin")
        packages = Packages(work=work / "root", release=RELEASE, component="main", architecture="arm64")
        packages.unpack(PYTHON, target / "root")
    qemu, python = target / "bin" / QEMU, target / "root" / "usr" / "bin" / "python3.11"
    run(qemu, "-L", target / "root", python, "-c", "import ssl")
    run(target / "bin" / "aarch64-linux-gnu-g++", "--version")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except UnavailableError as error:
        sys.exit(str(error))
