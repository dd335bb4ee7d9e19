"""What a check is given: the ELF files that are loaded together, and what is known of the torch that they are for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.facts.variant import BuildRecord, Variant

PYTHON_MODULE_ENTRY = "PyInit_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """One ELF file: ``place`` is its POSIX path in the wheel (or below ``_torch_ext`` before there is a wheel).

    ``module`` is the dotted name under which Python imports it, where that is known. ``unstripped`` is the same file
    as the linker left it. ``depth`` is how many folders below site-packages it lies, or None where unknown.
    """

    place: str
    elf: ElfFile
    module: str | None = None
    unstripped: Path | None = None
    unopened: bool = False
    """The package opens it itself, perhaps instead of another: the loader, and so the audit, opens it not."""
    depth: int | None = None

    @property
    def name(self) -> str:
        """Return the file's own name."""
        return self.place.rpartition("/")[2]

    @property
    def is_module(self) -> bool:
        """Say whether it is a CPython extension module."""
        return any(symbol.startswith(PYTHON_MODULE_ENTRY) for symbol in self.elf.exported)

    @property
    def symbols(self) -> frozenset[str]:
        """Return every symbol that it takes from elsewhere, weak ones too."""
        return frozenset(self.elf.undefined) | frozenset(self.elf.weak)


def facts(variant: Variant) -> dict[str, Any]:
    """Return what a variant says of itself: one truth for the audit of a build and that of a stranger's wheel."""
    return {
        "variant": variant.label,
        "machines": (variant.machine,),
        "python": variant.python,
        "ours": True,
        "stable_abi": variant.stable_abi,
        "promised": variant.torch if variant.stable_abi else None,
        "external": dict(variant.external),
        "build": variant.build,
        "keep_symbols": variant.build.debug_symbols == "keep",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """ELF files that belong together (a variant, or all of a foreign wheel), and the facts to compare them with.

    Every fact may be None or empty: then the checks that need it say nothing.
    """

    variant: str | None
    binaries: tuple[Binary, ...]
    machines: tuple[str, ...] = ()
    """Machines that the wheel or the variant names."""
    python: str | None = None
    """``cp311``, ``cp313t``, ``abi3-cp39``; None when nothing may need Python, or when it is not known (``ours``)."""
    ours: bool = False
    """It was made by us: what the manifest does not say is not so."""
    torch: str | None = None
    stable_abi: bool = False
    promised: str | None = None
    """The lowest release line (``2.10``) that users may have, where it was promised."""
    promise: str = "the variant promises"
    """Who promises it, for a message that goes on with the release."""
    cxx11_abi: bool | None = None
    exports: Mapping[str, frozenset[str]] | None = None
    """SONAME -> exported names of torch's own libraries; one that is missing is not known."""
    others: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    """The same of other torch releases, by version: they make a message tell more."""
    cuda: str | None = None
    """The CUDA version of the torch that it is for."""
    cuda_runtime: frozenset[str] | None = None
    """What the CUDA runtime of that torch exports; None where it is not available."""
    newer_nvcc: str | None = None
    """The CUDA version of the compiler, where it is newer than torch's."""
    pybind11_internals: frozenset[int] = frozenset()
    """The versions of pybind11's internals that torch's own headers name; empty where they are not available."""
    provided: frozenset[str] = frozenset()
    """Further library names that the user's torch, its requirements or the system bring."""
    external: Mapping[str, str] = field(default_factory=dict)
    """Libraries that are left to others, and to whom (``Variant.external``): what they define is not known."""
    sysroot: Path | None = None
    """That of the compiler for another machine, where the author names one."""
    build_dirs: tuple[str, ...] = ()
    build: BuildRecord | None = None
    """What a variant was built from."""
    keep_symbols: bool = False
    """Symbols and debug information were asked for."""

    own_names: frozenset[str] = field(init=False)
    """The names by which the dynamic linker finds the subject's own files."""
    symbols: frozenset[str] = field(init=False)
    """What they export."""

    def __post_init__(self) -> None:
        """Gather once what checks ask of all files for each file."""
        names = {name for binary in self.binaries for name in (binary.name, binary.elf.soname) if name}
        object.__setattr__(self, "own_names", frozenset(names))
        symbols = frozenset(symbol for binary in self.binaries for symbol in binary.elf.exported)
        object.__setattr__(self, "symbols", symbols)
