"""Raw hook configuration -> ``Config``; pure. All problems are reported at once, before any work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CMakeConfig:
    """The ``cmake`` table of the hook: what is handed to the configure step.

    ``args`` are put on its command line as they are, ``define`` become ``-DNAME=VALUE`` in the author's order,
    ``build_type`` is ``CMAKE_BUILD_TYPE``. ``torch_package`` says who answers ``find_package(Torch)``.
    """

    args: tuple[str, ...] = ()
    define: tuple[tuple[str, str], ...] = ()
    build_type: str = "Release"
    torch_package: Literal["hatch-torch-ext", "upstream"] = "hatch-torch-ext"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration of one build; every path is absolute.

    ``archs`` maps a CUDA version as far as the author wrote it (``""`` for every one, ``"13"``, ``"12.8"``) to
    architectures in torch's notation. ``max_size`` is in bytes. ``jobs`` is over all entries together.
    """

    root: Path
    """The project's root."""
    package: str
    """Dotted import name of the package that the variants go into."""
    package_dir: Path
    """The folder of that package in the sources."""
    source: Path
    """The folder of the author's CMakeLists.txt."""
    environment: str = "matrix"
    """The hatch environment whose matrix is built."""
    sdk: Literal["thin", "environment"] = "thin"
    only: tuple[str, ...] = ()
    """Globs over entry names and labels; empty means all."""
    skip: tuple[str, ...] = ()
    cmake: CMakeConfig = field(default_factory=CMakeConfig)
    archs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cuda_home: str | None = None
    """Path of a CUDA toolkit; may hold ``{cuda}`` (``12.4``) and ``{cuda_major}``."""
    cuda_compress: str | None = None
    """One of nvcc's ``--compress-mode`` values, or None for its default."""
    compiler_launcher: str = "auto"
    """``auto``, ``none``, or a program put before every compiler call (ccache, sccache)."""
    debug_symbols: Literal["strip", "split", "keep"] = "strip"
    """``strip = false`` is read as ``keep``."""
    max_size: int | None = None
    manylinux: str | None = None
    """The policy asked for, such as ``manylinux_2_28``; None takes the lowest that is really met."""
    exclude: tuple[str, ...] = ()
    """Globs over SONAMEs that are never grafted: the user's system is trusted to bring them."""
    ignore: tuple[str, ...] = ()
    """Audit codes that are not held against the wheel."""
    jobs: int | None = None
    index_url: str | None = None
    """Where torch is fetched from; may hold ``{torch}`` and ``{cuda}``. None follows the installer's settings."""
    extra_index_url: tuple[str, ...] = ()
    editable_only: tuple[str, ...] = ()
    """What an editable install builds; empty means the newest torch of the matrix."""
