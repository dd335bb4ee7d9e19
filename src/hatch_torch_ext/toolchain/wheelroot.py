"""CUDA toolkits, assembled as a folder of links that nvcc and CMake accept.

NVIDIA's wheels hold a toolkit in parts: ``site-packages/nvidia/cu13`` has no ``lib64`` and lacks the names that the
linker searches for (``libcudart.so``), so CMake's compiler check and ``-lcudart`` fail (flashinfer-ai/flashinfer#5064).
A toolkit for another machine has this machine's programs, and that machine's headers and libraries where nvcc searches
for its own.
"""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.values import Tool

PROGRAMS = (("bin/cudafe++", "nvcc"), ("nvvm/bin/cicc", "nvcc"))
HEADERS = (
    ("include/crt/host_config.h", "nvcc"),
    ("include/cuda_runtime.h", "cudart"),
    ("lib/libcudart.so.*", "cudart"),
)
WHOLE = (*PROGRAMS, *HEADERS, ("include/nv/target", "cccl"))
"""(a required file, the extra of ``cuda-toolkit`` that installs it)."""


class WheelRootError(Exception):
    """Parts are missing; the text names them."""


def whole_root(wheels: Path, root: Path) -> Path:
    """Fill ``root`` with links to the toolkit in ``wheels`` (``…/nvidia/cu13``) and return it; correct links stay.

    Raises ``WheelRootError`` if a part is missing.
    """
    _check(f"the CUDA toolkit in {wheels}", WHOLE, [wheels])
    _programs(wheels, root)
    _libraries([wheels], root)
    _link(root / "include", wheels / "include")
    return root


def cross_root(toolkit: Path, parts: Sequence[Path], machine: str, root: Path, *, wheels: bool) -> Path:
    """Fill ``root`` with links to the programs of ``toolkit``, and to the files of ``machine`` in ``parts``; return it.

    ``wheels`` says that the toolkit is from wheels. Raises ``WheelRootError`` if a part is missing.
    """
    _check(f"the CUDA toolkit in {toolkit}", WHOLE if wheels else PROGRAMS, [toolkit])
    _check(f"the part for {machine} of the CUDA toolkit in {toolkit}", HEADERS, parts)
    _programs(toolkit, root)
    _libraries(parts, root)
    _merge(root / "include", [folder for part in parts if (folder := part / "include").is_dir()])
    return root


def host_script(compiler: Tool, words: Sequence[str], script: Path) -> Path:
    """Write a script that calls ``compiler`` with ``words`` first, and return it.

    A compiler cache reads the script as nvcc's host compiler: it names the version, so that it changes with it.

    nvcc asks the host compiler for its target without the flags of ``-Xcompiler``: if ``--target`` were one of these,
    nvcc would use the types of this machine.
    """
    text = f'#!/bin/sh\n# {compiler.version}\nexec {shlex.join([str(compiler.path), *words])} "$@"\n'
    if not script.is_file() or script.read_text(encoding="utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
    return script


def _check(name: str, pieces: Sequence[tuple[str, str]], folders: Sequence[Path]) -> None:
    missing = sorted(
        {f"{path} ({extra})" for path, extra in pieces if not any(any(folder.glob(path)) for folder in folders)}
    )
    if missing:
        raise WheelRootError(f"{name} is incomplete: it lacks {', '.join(missing)}")


def _programs(toolkit: Path, root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    # Real folders with a link for each file: nvcc searches for its parts relative to `..` of its own folder.
    _link_files(root / "bin", {path.name: path for path in (toolkit / "bin").iterdir()})
    _link(root / "nvvm", toolkit / "nvvm")


def _libraries(parts: Sequence[Path], root: Path) -> None:
    folders = [folder for part in parts if (folder := part / "lib").is_dir()]
    libraries = {path.name: path for folder in folders for path in folder.iterdir()}
    for name in sorted(libraries):
        stem, so, _ = name.partition(".so.")
        if so:
            libraries.setdefault(f"{stem}.so", libraries[name])
    _link_files(root / "lib64", libraries)
    _link(root / "lib", root / "lib64")


def _merge(folder: Path, sources: Sequence[Path]) -> None:
    """Fill ``folder`` with links to the contents of ``sources``; a folder that several have becomes a real one."""
    found: dict[str, list[Path]] = {}
    for source in sources:
        for path in source.iterdir():
            found.setdefault(path.name, []).append(path)
    folder.mkdir(exist_ok=True)
    merged = {name for name, paths in found.items() if len(paths) > 1 and all(path.is_dir() for path in paths)}
    for path in folder.iterdir():
        if path.is_symlink() and (path.name not in found or path.name in merged):
            path.unlink()
        elif not path.is_symlink() and path.name not in merged:
            shutil.rmtree(path)
    for name, paths in found.items():
        if name in merged:
            _merge(folder / name, paths)
        else:
            _link(folder / name, paths[0])


def _link_files(folder: Path, files: Mapping[str, Path]) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, target in files.items():
        _link(folder / name, target)


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)
