"""Stands before a compiler: sources that include torch's headers get them precompiled.

``python quick.py FOLDER TORCH COMPILER ARGUMENT…``. What is compiled stays the same: compilers take precompiled headers
only where they were made with the same options.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

HEADER = "#include <torch/custom_class.h>\n"
FOLDERS = ("include", "include/torch/csrc/api/include")
FIRST = 3
"""From this source on with the same options: making it takes g++ as long as three sources without it, clang as one."""


def options(arguments: list[str]) -> list[str]:
    """Return what precompiled headers depend on; folders in messages and a target's own macro are not among it."""
    kept = (word for word in arguments if word.startswith(("-std=", "-f", "-O", "-g", "-m", "-D", "-U", "-pthread")))
    return [word for word in kept if not word.startswith(("-ffile-prefix-map", "-fdiag")) and "_EXPORTS" not in word]


def fits(arguments: list[str]) -> bool:
    """Say whether this compiles a source of torch with options that many projects have."""
    rare = any(word.startswith(("-flto", "-fvisibility", "-fmodule", "-E", "-M ")) for word in arguments)
    sources = [Path(word) for word in arguments if word.endswith(".cpp")]
    return (
        not rare
        and "-c" in arguments
        and len(sources) == 1
        and sources[0].read_text().startswith(("#include <torch/library.h>", "#include <torch/custom_class.h>"))
    )


def precompiled(folder: Path, torch: Path, compiler: str, words: list[str]) -> Path | None:
    """Return the header beside which its precompiled form is; None before it is worth its making."""
    place = folder / hashlib.sha256("\0".join([compiler, *words]).encode()).hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    header, made = place / "torch.h", place / "torch.h.gch"
    with (place / "sources").open("a+") as sources:
        fcntl.flock(sources, fcntl.LOCK_EX)
        sources.write(".")
        if sources.tell() < FIRST:
            return None
        if not made.exists():
            header.write_text(HEADER)
            found = [word for name in FOLDERS for word in ("-isystem", str(torch / name))]
            command = [compiler, *words, *found, "-x", "c++-header", str(header), "-o", f"{made}.part"]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                Path(f"{made}.part").write_bytes(b"")  # no compiler takes that, and it is not tried again
            Path(f"{made}.part").replace(made)
    return header


def main() -> None:
    """Become the compiler."""
    folder, torch, compiler, *arguments = sys.argv[1:]
    if fits(arguments):
        header = precompiled(Path(folder), Path(torch), compiler, options(arguments))
        if header is not None:
            arguments = ["-include", str(header), *arguments]
    os.execv(compiler, [compiler, *arguments])  # noqa: S606 -- it is the compiler of the command


if __name__ == "__main__":
    main()
