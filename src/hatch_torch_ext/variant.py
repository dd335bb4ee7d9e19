"""A variant, described as data that survives a round trip through JSON: what stands in ``manifest.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

FileKind = Literal["library", "module", "graft", "program", "data"]
"""library: registers operators or serves those that do; module: exports PyInit_…; graft: third-party library
copied in; program: another ELF file; data: anything else that belongs to the variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantFile:
    """One file of a variant. ``path`` is POSIX, relative to ``_torch_ext``: ``<label>/libx.so``, ``shared/<hash>/liby.so``.

    ``sha256`` (hex) and ``size`` (bytes) are of the file as it goes into the wheel. ``needed`` is DT_NEEDED in order.
    ``module`` is the dotted name below the package under which a module is imported (``_C``, ``sub._C``).
    ``registers`` says that the file registers operators or classes with torch (it must be opened by the loader).
    ``versions`` are the symbol versions that the file needs (``GLIBC_2.17``), sorted.
    """

    path: str
    kind: FileKind
    sha256: str
    size: int
    soname: str | None = None
    needed: tuple[str, ...] = ()
    module: str | None = None
    registers: bool = False
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """What a variant was built from, for the manifest: enough to repeat the build. No absolute paths, no times."""

    entry: str
    variables: tuple[tuple[str, str], ...]
    torch_version: str
    python: str
    sdk: str
    compiler: str
    cmake: str
    cuda_compiler: str | None = None
    flags: tuple[tuple[str, str], ...] = ()
    torch_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One compiled build inside the wheel.

    ``torch`` is the major.minor it serves exactly or, with ``stable_abi``, the lowest it serves. ``backend`` is
    ``cpu`` or ``cuda``; ``cuda`` its version (``12.8``) then. ``cxx11_abi`` is None where no C++ symbol of torch is needed.
    ``python`` is None when nothing in it needs Python, else ``cp311``, ``cp313t``, ``abi3-cp39`` … .
    ``archs`` are read from the fat binaries, in torch's notation (``9.0`` machine code, ``9.0+PTX`` PTX).
    ``libc`` is ``glibc`` or ``musl``; ``libc_floor`` the lowest version that all its symbols meet (``2.17``).
    """

    label: str
    torch: str
    stable_abi: bool
    backend: Literal["cpu", "cuda"]
    cuda: str | None
    cxx11_abi: bool | None
    python: str | None
    machine: str
    libc: Literal["glibc", "musl"]
    libc_floor: str
    policy: str
    """The lowest manylinux/musllinux policy that all its symbols meet (``manylinux_2_17_x86_64``)."""
    archs: tuple[str, ...]
    files: tuple[VariantFile, ...]
    build: BuildRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltVariant:
    """A variant and where its files lie: ``root``/``file.path`` for each of ``variant.files`` (``root`` is a ``_torch_ext``).

    ``package_files`` are what CMake installed for the package as a whole (headers, Python files, data): pairs of
    the POSIX path relative to the package and the absolute file.
    """

    variant: Variant
    root: Path
    package_files: tuple[tuple[str, Path], ...] = ()
