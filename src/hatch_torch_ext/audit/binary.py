"""Checks that need only one ELF file and what the wheel states: its machine, its policy, its CUDA runtime."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from hatch_torch_ext import elf
from hatch_torch_ext.audit.findings import Finding, finding, some
from hatch_torch_ext.facts import owners, policy
from hatch_torch_ext.facts.content import windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hatch_torch_ext.audit.subject import AuditedBinary, Subject
    from hatch_torch_ext.facts.policy import Policy

ORIGIN = re.compile(r"\$ORIGIN(?=/|$)|\$\{ORIGIN\}")
# Folders in which people and machines build. Only paths of source files count: the program may use a name like
# `/tmp/x`.
_HOMES = re.compile(rb"/(?:home|root|tmp|Users|__w|builds?|workspace|github|project|io)/")
_SOURCE = re.compile(rb"[\w.+/@ =,~-]{1,400}\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hxx|inl|inc|S|s|f|f90|pyx)(?![\w.])")
_BEFORE_PATH = re.compile(rb"[\w.)/$}-]")
STATIC_TLS_SURE, STATIC_TLS_MOST = 256, 1664
"""Bytes of static TLS: up to the first, a library fits into most processes; above the second, into none (glibc)."""
OLDEST_ISA = 2
"""The level of x86-64 that every processor has on which torch is used: those of 2009 and later."""
_OF_A_GRAFT = "The library comes from others: take a build of it that is linked without -Wl,-z,x86-64-v3."
_PLATFORM = re.compile(r"(?P<name>(?:many|musl)linux(?:1|2010|2014|_\d+_\d+))_(?P<machine>\w+)")
_COUNTS = re.compile(rb"/[^\0]{1,4000}\.gcda(?=\0)")
_LINK_BY_NAME = (
    "Set the property IMPORTED_NO_SONAME to ON at the CMake target that imports the library, or give the library a "
    "SONAME: the linker then writes its name."
)
_NO_COVERAGE = "Publish a build without --coverage; for tests of your own, leave it as it is."
MAX_PATHS = 50
MAX_TRIES = 20_000
"""Number of places in one file that are examined as the beginning of a path."""


def check(subject: Subject) -> Iterator[Finding]:
    """Check every file of ``subject`` on its own."""
    for binary in subject.binaries:
        yield from _machine(binary, subject)
        yield from _paths(binary, subject)
        yield from _needed_paths(binary, subject)
        yield from _segments(binary, subject)
        yield from _versions(binary, subject)
        yield from _symbol_table(binary, subject)
        yield from _build_paths(binary, subject)


def _machine(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    if subject.machines and binary.elf.machine not in subject.machines:
        machines = " or ".join(subject.machines)
        yield subject.finding("wrong-machine", binary, f"is for {binary.elf.machine}, but it is packed for {machines}")


def _paths(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    for tag, entries in (("RPATH", binary.elf.rpath), ("RUNPATH", binary.elf.runpath)):
        for entry in entries:
            fault = _path_fault(entry, binary.depth)
            if fault is not None:
                yield subject.finding("rpath", binary, f"its {tag} has {fault}")


def _path_fault(entry: str, depth: int | None) -> str | None:
    if not entry:
        return "an empty entry, which is the user's current folder"
    if entry.startswith("/"):
        return f"the absolute path {entry}"
    if ORIGIN.match(entry) is None:
        return f"{entry}, which is relative to the user's current folder"
    rest = posixpath.normpath(ORIGIN.sub("", entry, count=1).lstrip("/") or ".")
    climbs = rest.split("/").count("..")
    if depth is not None and climbs > depth:
        return f"{entry}, which leaves site-packages"
    return None


def is_build_path(name: str) -> bool:
    """Return whether this entry of NEEDED is a path that only the machine that built the file has."""
    return "/" in name and ORIGIN.match(name) is None


def _needed_paths(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    if paths := [*filter(is_build_path, binary.elf.needed)]:
        message = f"needs {some(paths)} by its path on the machine that built it, and no user has it there"
        yield subject.finding("needed-path", binary, message)


def _segments(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    if binary.elf.executable_stack:
        message = "requests an executable stack, which hardened kernels and glibc 2.41 refuse"
        yield subject.finding("executable-stack", binary, message)
    if binary.elf.text_relocations:
        yield subject.finding("text-relocations", binary, "has text relocations: its code is not position independent")
    if binary.elf.type == "shared" and binary.elf.static_tls > STATIC_TLS_SURE:
        message = (
            f"needs {binary.elf.static_tls} bytes of static TLS; glibc keeps {STATIC_TLS_MOST} for all libraries "
            "together that a process opens after its start"
        )
        yield subject.finding("static-tls", binary, message, warning=binary.elf.static_tls <= STATIC_TLS_MOST)
    if binary.elf.isa_level > OLDEST_ISA and not binary.unopened:
        message = f"requires a processor of x86-64-v{binary.elf.isa_level}: glibc refuses it on any older one"
        remedy = _OF_A_GRAFT if binary.is_graft else None
        yield subject.finding("isa-level", binary, message, remedy=remedy)
    if binary.elf.takes_subnormals_for_zero:
        message = "makes the processor take subnormal numbers for zero, for all of the process that opens it"
        yield subject.finding("fast-math", binary, message)


def _versions(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    for file, versions in binary.elf.version_needs:
        if file not in binary.elf.needed:
            message = f"needs {some(versions)} of {file}, but {file} is not in NEEDED: ld.so stops the process"
            yield subject.finding("version-needs", binary, message)


def _symbol_table(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    if subject.keep_symbols or not (binary.elf.has_symbol_table or binary.elf.has_debug):
        return
    what = "debug information" if binary.elf.has_debug else "its symbol table"
    yield subject.finding("not-stripped", binary, f"still has {what}")


def _build_paths(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    paths: set[str] = set()
    linked: set[str] = set()
    counts: set[str] = set()
    tries = iter(range(MAX_TRIES))
    by_path = _linked_by_path(binary, subject.build_dirs)
    for data in windows(binary.elf.path):
        if len(paths) >= MAX_PATHS:
            break
        if not subject.build_dirs:
            paths.update(_homes(data, tries))
            continue
        for name in by_path:
            if (text := name.encode() + b"\0") in data:
                linked.add(name)
                data = data.replace(text, b"\0")  # noqa: PLW2901 - what is left of the window
        if b".gcda\0" in data:
            counts.update(text.decode("ascii", errors="replace") for text in _COUNTS.findall(data))
            data = _COUNTS.sub(b"", data)  # noqa: PLW2901
        paths.update(_known_dirs(data, subject.build_dirs))
    for found, what, remedy in (
        (paths, "paths of the machine that built it", None),
        (linked, "the path by which the linker got a library without SONAME", _LINK_BY_NAME),
        (counts, "the paths of the files into which --coverage counts", _NO_COVERAGE),
    ):
        if found:
            yield subject.finding("build-path", binary, f"holds {what}: {some(sorted(found))}", remedy=remedy)


def _linked_by_path(binary: AuditedBinary, build_dirs: tuple[str, ...]) -> list[str]:
    """Return the paths that the linker wrote into NEEDED. The repair writes names, but the old texts stay in the file.

    Taking them out would not make two builds equal: a table of texts with a longer path moves all that follows it.
    """
    if binary.unstripped is None or not build_dirs:
        return []
    return [name for name in elf.read(binary.unstripped).needed if _known_dirs(name.encode(), build_dirs)]


def _known_dirs(data: bytes, folders: tuple[str, ...]) -> list[str]:
    return [folder for folder in sorted(set(folders)) if folder != "/" and data.find(folder.encode() + b"/") >= 0]


def _homes(data: bytes, tries: Iterator[int]) -> list[str]:
    found: set[str] = set()
    for home in _HOMES.finditer(data):
        at = home.start()
        if at and _BEFORE_PATH.match(data, at - 1):
            continue
        if next(tries, None) is None:
            break
        match = _SOURCE.match(data, at)
        if match is not None:
            found.add(match[0].decode("ascii", errors="replace"))
            if len(found) > MAX_PATHS:
                break
    return sorted(found)


def check_policy(tags: Sequence[str], binaries: Iterable[AuditedBinary]) -> Iterator[Finding]:
    """Find files that need more of glibc, libstdc++ or libgcc than the lowest policy of the tag guarantees."""
    promised = [found for tag in tags if (found := _policy(tag.rpartition("-")[2])) is not None]
    if not promised:
        yield from beyond_all_policies(binaries, variant=None)
        return
    machine, lowest = min(promised, key=lambda pair: pair[1].rank)
    for binary in binaries:
        if binary.elf.machine != machine:
            continue
        beyond = policy.breaking(lowest, machine, binary.elf.versions)
        if beyond:
            symbols = _by_version(binary, beyond)
            yield finding("policy-too-low", binary.place, f"needs {symbols}, but the wheel is tagged {lowest.name}")


def beyond_all_policies(binaries: Iterable[AuditedBinary], *, variant: str | None) -> Iterator[Finding]:
    """Find files that need more than any policy guarantees: few systems load them, and no index accepts them."""
    for binary in binaries:
        libc = policy.libc_of(binary.elf.needed) or "glibc"
        beyond = policy.unpromised(binary.elf.machine, libc, binary.elf.versions)
        if beyond:
            message = f"needs {_by_version(binary, beyond)}, which no policy of manylinux or musllinux promises"
            yield finding("no-policy", binary.place, message, variant=variant)


def _policy(platform: str) -> tuple[str, Policy] | None:
    match = _PLATFORM.fullmatch(platform)
    found = policy.named(match["name"], match["machine"]) if match else None
    return (match["machine"], found) if match and found else None


def _by_version(binary: AuditedBinary, versions: Sequence[str]) -> str:
    """Name each version with a symbol that requires it, if there is one."""
    by_version: dict[str, str] = {}
    for symbol, version in binary.elf.symbol_versions:
        by_version.setdefault(version, symbol)
    named = [
        f"{by_version[version]} of {version}" if version in by_version else version for version in reversed(versions)
    ]
    return some(named)


RUNTIME = "libcudart"


def check_cuda(subject: Subject) -> Iterator[Finding]:
    """Compare the runtime functions that every file uses with those that torch's runtime has."""
    for binary in subject.binaries:
        taken = _taken(binary)
        if not taken:
            continue
        if subject.cuda_runtime is not None:
            missing = [symbol for symbol in taken if symbol not in subject.cuda_runtime]
            message = f"needs {some(missing)}, which the runtime of torch's CUDA {subject.cuda} does not have"
        elif subject.newer_nvcc is not None:
            # No list of functions can replace the runtime: torch's CUDA headers lack functions that nvcc itself calls.
            missing = taken
            message = (
                f"is compiled by CUDA {subject.newer_nvcc}, newer than torch's {subject.cuda}, and torch's runtime is "
                f"not available to check for {some(taken)}"
            )
        else:
            continue
        if missing:
            yield subject.finding("cuda-runtime", binary, message)


def _taken(binary: AuditedBinary) -> list[str]:
    """Return the functions of the shared CUDA runtime that the file needs: they are those with its version."""
    return sorted(symbol for symbol, version in binary.elf.symbol_versions if owners.stem(version) == RUNTIME)
