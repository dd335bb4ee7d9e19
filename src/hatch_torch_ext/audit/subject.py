"""The input of a check: ELF files that are loaded together, and the known facts of the torch that they are for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.audit.findings import Finding, finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.facts.variant import BuildRecord, Variant, VariantFile

PYTHON_MODULE_ENTRY = "PyInit_"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedBinary:
    """One ELF file; ``place`` is its POSIX path in the wheel (or below ``_torch_ext`` before there is a wheel).

    ``module`` is the dotted name under which Python imports it, if known. ``unstripped`` is the same file as the linker
    wrote it. ``depth`` is the number of folders between site-packages and the file, or None if unknown.
    """

    place: str
    elf: ElfFile
    module: str | None = None
    unstripped: Path | None = None
    unopened: bool = False
    """The package opens it itself, perhaps instead of another file: neither the loader nor the audit opens it."""
    depth: int | None = None
    kind: str | None = None
    """The kind of a file of a variant, None of any other."""

    @classmethod
    def of(cls, file: VariantFile, **places: Any) -> AuditedBinary:  # noqa: ANN401
        """Return a file of a variant; ``places`` are the fields besides those that the variant says."""
        return cls(module=file.module, unopened=file.unopened, kind=file.kind, **places)

    @property
    def is_graft(self) -> bool:
        """Return whether it is a library of others, which the repair put beside the project's own."""
        return self.kind == "graft"

    @property
    def is_opened(self) -> bool:
        """Return whether the loader opens it itself; the libraries that such files need are opened with them."""
        return self.kind in {"library", "module", "program"} and not self.unopened

    @property
    def name(self) -> str:
        """Return the file's own name."""
        return self.place.rpartition("/")[2]

    @property
    def is_module(self) -> bool:
        """Return whether it is a CPython extension module."""
        return any(symbol.startswith(PYTHON_MODULE_ENTRY) for symbol in self.elf.exported)

    @property
    def symbols(self) -> frozenset[str]:
        """Return every symbol that it imports, weak ones too."""
        return frozenset(self.elf.undefined) | frozenset(self.elf.weak)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """ELF files that belong together (a variant, or all of a foreign wheel), and the facts to compare them with.

    Every fact may be None or empty; checks that need it then find nothing.
    """

    variant: str | None
    binaries: tuple[AuditedBinary, ...]
    machines: tuple[str, ...] = ()
    """Machines that the wheel or the variant names."""
    python: str | None = None
    """``cp311``, ``cp313t``, ``abi3-cp39``; None if nothing may need Python (``ours``), or if it is unknown."""
    ours: bool = False
    """A build of this project made it, so its manifest is complete."""
    torch: str | None = None
    stable_abi: bool = False
    promised: str | None = None
    """The lowest release line (``2.10``) that users may have, if one was promised."""
    promise: str = "the variant promises"
    """Who promises it; in messages, the release follows."""
    cxx11_abi: bool | None = None
    exports: Mapping[str, frozenset[str]] | None = None
    """SONAME -> exported names of torch's own libraries; those of a missing one are unknown."""
    headers: Path | None = None
    """The folder of that torch's headers, which tell of its names where ``exports`` is None."""
    others: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    """The exports of other torch releases, by version, which make a message more precise."""
    cuda: str | None = None
    """The CUDA version of the torch that it is for."""
    cuda_runtime: frozenset[str] | None = None
    """The exports of that torch's CUDA runtime; None if it is not available."""
    newer_nvcc: str | None = None
    """The CUDA version of the compiler, if it is newer than torch's."""
    pybind11_internals: frozenset[int] = frozenset()
    """The versions of pybind11's internals in torch's own headers; empty if these are not available."""
    frees_gil: bool | None = None
    """Whether the sources of a build for a free-threaded Python say that a module runs without the GIL."""
    provided: frozenset[str] = frozenset()
    """Further names of libraries that the user's torch, its requirements or the system provide."""
    external: Mapping[str, str] = field(default_factory=dict)
    """Libraries that others provide, and who (``Variant.external``)."""
    beside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Name -> what those of ``external`` export, with all that they load: the ones that are on this machine."""
    sysroot: Path | None = None
    """The sysroot of the compiler for another machine, if the author names one."""
    build_dirs: tuple[str, ...] = ()
    build: BuildRecord | None = None
    """What a variant was built from."""
    keep_symbols: bool = False
    """Whether the author keeps symbols and debug information."""

    own_names: frozenset[str] = field(init=False)
    """The names by which the dynamic linker finds the subject's own files."""
    symbols: frozenset[str] = field(init=False)
    """The names that they export."""

    def __post_init__(self) -> None:
        """Compute once what the checks need of all files for each file."""
        names = {name for binary in self.binaries for name in (binary.name, binary.elf.soname) if name}
        object.__setattr__(self, "own_names", frozenset(names))
        symbols = frozenset(symbol for binary in self.binaries for symbol in binary.elf.exported)
        object.__setattr__(self, "symbols", symbols)

    @classmethod
    def of(cls, variant: Variant, binaries: Iterable[AuditedBinary], **known: Any) -> Subject:  # noqa: ANN401
        """Return the files of a variant, for the audit of a build or of a finished wheel; ``known`` is all else."""
        return cls(
            variant=variant.label,
            binaries=tuple(binaries),
            machines=(variant.machine,),
            python=variant.python,
            ours=True,
            cxx11_abi=variant.cxx11_abi,
            stable_abi=variant.stable_abi,
            promised=variant.torch if variant.stable_abi else None,
            external=dict(variant.external),
            build=variant.build,
            keep_symbols=variant.build.debug_symbols == "keep",
            **known,
        )

    def finding(
        self, code: str, binary: AuditedBinary, message: str, *, remedy: str | None = None, warning: bool | None = None
    ) -> Finding:
        """Return a finding on one of the files."""
        return finding(code, binary.place, message, variant=self.variant, remedy=remedy, warning=warning)
