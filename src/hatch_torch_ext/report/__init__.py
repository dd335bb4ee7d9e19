"""``inspect``: the contents of a wheel as a value, for JSON, a table or a page.

It works on any wheel, and tells more of ours.
"""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hatch_torch_ext import elf, wheel
from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import ElfError, FatbinError, WheelError
from hatch_torch_ext.elf import fatbin
from hatch_torch_ext.facts import manifest, policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.facts.manifest import Listed
    from hatch_torch_ext.wheel import Member, Wheel

MAX_PROBLEMS = 400

FileKind = Literal["library", "module", "graft", "program", "python", "metadata", "data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryFacts:
    """Facts of an ELF file. ``libc_floor`` is such as ``glibc 2.17``; ``archs`` are in torch's notation.

    ``isa_level`` is the level of x86-64 that it requires: 3 for ``x86-64-v3``, else 1.
    """

    machine: str
    soname: str | None
    needed: tuple[str, ...]
    python: bool
    """Whether it is a CPython extension module."""
    libc_floor: str | None
    isa_level: int
    archs: tuple[str, ...]

    @property
    def needs(self) -> str:
        """Return what a user's system must have."""
        return _needs(self.libc_floor, self.isa_level)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One member of the wheel; sizes in bytes, unpacked and compressed. ``variants`` are the labels that use it."""

    path: str
    kind: FileKind
    size: int
    compressed: int
    variants: tuple[str, ...] = ()
    binary: BinaryFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRow:
    """One variant: sizes in bytes of the files that only it uses (``own``) and of those it shares (``shared``).

    ``share`` is the part of the wheel's compressed bytes in its own files, 0 to 1. ``isa_level`` is the highest of the
    files that the loader opens.
    """

    label: str
    package: str
    torch: str
    stable_abi: bool
    cuda: str | None
    backend: str
    """In words: ``CUDA 12.8``, ``CPU``."""
    archs: tuple[str, ...]
    python: str | None
    machine: str
    libc_floor: str
    isa_level: int
    own: int
    shared: int
    packed: int
    share: float
    files: tuple[str, ...]

    @property
    def needs(self) -> str:
        """Return what a user's system must have."""
        return _needs(self.libc_floor, self.isa_level)


def _needs(libc_floor: str | None, isa_level: int) -> str:
    return ", ".join(filter(None, [libc_floor, f"x86-64-v{isa_level}" if isa_level > 1 else ""]))


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelReport:
    """All that ``inspect`` reports. ``size`` is of the wheel, ``unpacked`` of the installed files, in bytes."""

    file: str
    distribution: str
    version: str
    tags: tuple[str, ...]
    requires_python: str | None
    requires: tuple[str, ...]
    generator: str | None
    size: int
    unpacked: int
    variants: tuple[VariantRow, ...]
    files: tuple[FileRow, ...]
    problems: tuple[str, ...]
    """Messages on what could not be read; ``audit`` says more."""


def describe(path: Path) -> WheelReport:
    """Return the contents of the wheel at ``path``; every text in them is printable.

    Raises ``WheelError`` if it is not a wheel.
    """
    with tempfile.TemporaryDirectory(prefix="torch-ext-inspect-") as folder:
        read = wheel.read(path, folder=Path(folder))
        problems = [f"{problem.file}: {problem.message}" for problem in read.problems]
        listed: list[Listed] = []
        for place in read.manifests():
            try:
                listed += read.manifest(place).variants
            except WheelError as error:  # noqa: PERF203 - there are one or two
                problems.append(f"{place}: {error}")
        files, faults = _files(read, listed)
        metadata, generator = read.metadata("METADATA"), dict(read.metadata("WHEEL")).get("Generator")
    found = WheelReport(
        file=path.name,
        distribution=read.distribution,
        version=read.version,
        tags=read.tags,
        requires_python=dict(metadata).get("Requires-Python"),
        requires=tuple(value for name, value in metadata if name == "Requires-Dist"),
        generator=generator,
        size=read.size,
        unpacked=sum(member.size for member in read.members),
        variants=_variants(listed, files, read.size),
        files=files,
        problems=_few(problems + faults),
    )
    return escape.every(found)


def to_json(report: WheelReport, *, whole: bool = False) -> dict[str, object]:
    """Return the report as JSON; ``left_out`` says how many rows of each list did not fit.

    Compiled files and those of variants come first. With ``whole`` nothing is left out, whatever the size.
    """
    found: dict[str, list[Any]] = {name: list(getattr(report, name)) for name in ("problems", "requires", "variants")}
    found["files"] = sorted(report.files, key=lambda row: row.binary is None and not row.variants)
    left_out: dict[str, int] = {}
    room = escape.JSON
    for name, rows in found.items() if not whole else ():
        share = room if name == "files" else room // 2
        found[name], left = escape.fitting(rows, share)
        room -= share - left
        left_out |= {name: len(rows) - len(found[name])} if len(rows) > len(found[name]) else {}
    found["files"].sort(key=lambda row: row.path)
    plain = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    described = {name: [dataclasses.asdict(row) for row in found.pop(name)] for name in ("variants", "files")}
    return {**plain, **found, **described, "left_out": left_out}


def _few(problems: Sequence[str]) -> tuple[str, ...]:
    more = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else []))


def _files(read: Wheel, listed: Sequence[Listed]) -> tuple[tuple[FileRow, ...], list[str]]:
    users: dict[str, list[str]] = {}
    kinds: dict[str, FileKind] = {}
    for item in listed:
        for path, file in item.files.items():
            users.setdefault(path, []).append(item.variant.label)
            kinds[path] = file.kind
    rows, problems = [], []
    for member in read.members:
        facts: BinaryFacts | None = None
        if member.elf:
            try:
                facts = _binary(read.folder / member.path)
            except (ElfError, FatbinError) as error:
                problems.append(str(error).replace(f"{read.folder}/", ""))
        rows.append(
            FileRow(
                path=member.path,
                kind=kinds.get(member.path) or _kind(member, facts, read),
                size=member.size,
                compressed=member.compressed,
                variants=tuple(sorted(users.get(member.path, ()))),
                binary=facts,
            )
        )
    return tuple(rows), problems


def _kind(member: Member, facts: BinaryFacts | None, read: Wheel) -> FileKind:
    if member.elf:
        if facts is not None and facts.python:
            return "module"
        return "graft" if ".libs/" in member.path else "library"
    if member.path.startswith(f"{read.dist_info}/") or manifest.is_manifest(member.path):
        return "metadata"
    return "python" if member.path.endswith((".py", ".pyi")) else "data"


def _binary(path: Path) -> BinaryFacts:
    facts = elf.read(path)
    libc = policy.libc_of(facts.needed)
    met = None if libc is None else policy.lowest(facts.machine, libc, facts.versions)
    floor = None if libc is None or met is None else policy.floor(libc, met, facts.versions)
    return BinaryFacts(
        machine=facts.machine,
        soname=facts.soname,
        needed=facts.needed,
        python=any(symbol.startswith("PyInit_") for symbol in facts.exported),
        libc_floor=None if floor is None else f"{libc} {floor}",
        isa_level=facts.isa_level,
        archs=fatbin.archs(path) if facts.gpu_code else (),
    )


def _variants(listed: Sequence[Listed], files: Sequence[FileRow], total: int) -> tuple[VariantRow, ...]:
    by_path: Mapping[str, FileRow] = {row.path: row for row in files}
    rows = []
    for item in listed:
        variant = item.variant
        mine = [by_path[path] for path in sorted(item.files) if path in by_path]
        own = [row for row in mine if len(row.variants) == 1]
        packed = sum(row.compressed for row in own)
        opened = [row.binary for row in mine if row.binary is not None and not item.files[row.path].unopened]
        rows.append(
            VariantRow(
                label=variant.label,
                package=item.package,
                torch=variant.torch,
                stable_abi=variant.stable_abi,
                cuda=variant.cuda,
                backend=variant.runs_on.words,
                archs=variant.archs,
                python=variant.python,
                machine=variant.machine,
                libc_floor=f"{variant.libc} {variant.libc_floor}",
                isa_level=max((binary.isa_level for binary in opened), default=1),
                own=sum(row.size for row in own),
                shared=sum(row.size for row in mine if len(row.variants) > 1),
                packed=packed,
                share=packed / total if total else 0.0,
                files=tuple(row.path for row in mine),
            )
        )
    return tuple(sorted(rows, key=lambda row: policy.natural(row.label)))
