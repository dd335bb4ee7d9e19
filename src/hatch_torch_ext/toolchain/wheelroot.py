"""NVIDIA's wheels hold a CUDA toolkit in pieces: a folder of links makes a whole one, which nvcc and CMake accept.

They lie in ``site-packages/nvidia/cu13`` without ``lib64`` and without the names that the linker looks for
(``libcudart.so``): CMake's compiler check and ``-lcudart`` fail (flashinfer-ai/flashinfer#5064).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PARTS = (
    ("bin/cudafe++", "nvcc"),
    ("nvvm/bin/cicc", "nvcc"),
    ("include/crt/host_config.h", "nvcc"),
    ("include/cuda_runtime.h", "cudart"),
    ("lib/libcudart.so.*", "cudart"),
    ("include/nv/target", "cccl"),
)
"""(what must be there, the extra of ``cuda-toolkit`` that brings it)."""


class WheelRootError(Exception):
    """Pieces are missing; the text names them."""


def whole_root(wheels: Path, root: Path) -> Path:
    """Fill ``root`` with links to the toolkit in ``wheels`` (``…/nvidia/cu13``) and return it; what fits is left alone.

    Raises ``WheelRootError`` where a piece is missing.
    """
    missing = sorted({f"{path} ({extra})" for path, extra in PARTS if not any(wheels.glob(path))})
    if missing:
        raise WheelRootError(f"the CUDA toolkit in {wheels} is not whole: {', '.join(missing)} is not there")
    root.mkdir(parents=True, exist_ok=True)
    # Real folders with a link for each file: nvcc looks for its parts at `..` of the folder that it was started in.
    _link_files(root / "bin", {path.name: path for path in (wheels / "bin").iterdir()})
    libraries = {path.name: path for path in (wheels / "lib").iterdir()}
    for name in sorted(libraries):
        stem, so, _ = name.partition(".so.")
        if so:
            libraries.setdefault(f"{stem}.so", libraries[name])
    _link_files(root / "lib64", libraries)
    for name in ("include", "nvvm"):
        _link(root / name, wheels / name)
    _link(root / "lib", root / "lib64")
    return root


def _link_files(folder: Path, wanted: Mapping[str, Path]) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()
    for name, target in wanted.items():
        _link(folder / name, target)


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)
