"""Libraries: who provides each, what must not be bundled, what is missing; one OpenMP and one C++ runtime."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from hatch_torch_ext.audit.binary import ORIGIN, is_build_path
from hatch_torch_ext.audit.findings import Finding, some
from hatch_torch_ext.facts import owners, policy
from hatch_torch_ext.facts.content import has_cpp_runtime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hatch_torch_ext.audit.subject import AuditedBinary, Subject

OF_A_GRAFT = (
    "The library comes from others: if they have a build of it that links the C++ runtime dynamically, link that one."
)
"""The remedy of ``static-runtime`` for a library that the author did not link."""


def check(subject: Subject) -> Iterator[Finding]:
    """Find bundled torch, CUDA and OpenMP, libraries without a provider, and libpython."""
    having: dict[str, list[AuditedBinary]] = {}
    for binary in subject.binaries:
        if binary.name == (binary.elf.soname or binary.name):
            having.setdefault(binary.name, []).append(binary)
    for binary in subject.binaries:
        yield from _bundled(binary, subject)
        for name in filter(owners.is_python, binary.elf.needed):
            yield subject.finding("libpython", binary, f"needs {name}")
        other = (name for name in unknown(binary, subject) if not is_build_path(name))
        if missing := [name for name in other if not owners.is_python(name)]:
            providers = "neither the wheel, nor torch and its requirements, nor the system provides"
            yield subject.finding("missing-library", binary, f"needs {some(missing)}, which {providers}")
        yield from _processes(binary, subject)
        yield from _unreachable(binary, having, subject)
        yield from _runtime(binary, subject)
    yield from _openmp(subject)


def _unreachable(
    binary: AuditedBinary, having: Mapping[str, Sequence[AuditedBinary]], subject: Subject
) -> Iterator[Finding]:
    """Find libraries of the wheel that ld.so does not find from this file; a foreign package may load them first.

    ``having`` maps names to the files that ld.so finds by them.
    """
    folders = _searched(binary)
    for name in dict.fromkeys(binary.elf.needed):
        others = (each for each in having.get(name, ()) if each is not binary)
        for other in (each for each in others if posixpath.dirname(each.place) not in folders):
            message = f"needs {name}, which is in {posixpath.dirname(other.place)}/, but its RPATH does not lead there"
            yield subject.finding("rpath", binary, message, warning=not subject.ours)


def _processes(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    """Find needs for a runtime that must be in the process first, unless `exclude` says that every user has it."""
    for name in binary.elf.needed:
        what = owners.process_runtime(name)
        if what is None or name in subject.own_names or subject.external.get(name) == "author":
            continue
        message = (
            f"needs {name}, {what}, which is left to the process that opens the file; to preload it: "
            f"LD_PRELOAD=$(gcc -print-file-name={name}) python ..."
        )
        yield subject.finding("process-runtime", binary, message)


def _runtime(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    """Find a C++ runtime inside a file that shares texts, streams or exceptions with torch or other C++ libraries.

    A library with a C interface may keep its own. Who grafts a library of others did not link it: that is a warning.
    """
    shares = binary.is_module or any(symbol.startswith("_Z") for symbol in binary.elf.undefined)
    shares = shares or owners.registers(binary.elf.undefined)
    shares = shares and not any(map(owners.is_cpp_runtime, binary.elf.needed))
    if shares and has_cpp_runtime(binary.elf.path):
        message = (
            "has the C++ runtime in it, beside the one that torch loads: streams write no numbers, and an "
            "exception ends the process"
        )
        warning, remedy = (True, OF_A_GRAFT) if binary.is_graft else (None, None)
        yield subject.finding("static-runtime", binary, message, warning=warning, remedy=remedy)


def _searched(binary: AuditedBinary) -> set[str]:
    """Return the folders that the file's RPATH leads to, in the form of ``place``."""
    here = posixpath.dirname(binary.place)
    entries = binary.elf.runpath or binary.elf.rpath
    return {posixpath.normpath(ORIGIN.sub(here or ".", entry)) for entry in entries if ORIGIN.match(entry)}


def unknown(binary: AuditedBinary, subject: Subject) -> list[str]:
    """Return needed libraries that neither the wheel nor torch, its requirements or the system provide.

    Every system that the file runs on has the libraries of the policy that its symbol versions meet: a file that needs
    ``libmvec.so.1``, which is part of glibc from 2.22 on, needs that version of glibc.
    """
    known = subject.own_names | subject.provided | subject.external.keys()
    met = policy.lowest(binary.elf.machine, policy.libc_of(binary.elf.needed) or "glibc", binary.elf.versions)
    return [name for name in binary.elf.needed if name not in known and not _provided(name, met)]


def _provided(name: str, met: policy.Policy) -> bool:
    return (
        met.guarantees(name)
        or owners.is_driver(name)
        or owners.is_torch(name)
        or owners.is_cuda(name)
        or owners.is_openmp(name)
        or owners.is_desktop(name)
        or owners.process_runtime(name) is not None
    )


def _bundled(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    names = {binary.name, binary.elf.soname or binary.name}
    if any(owners.is_torch(name) for name in names):
        yield subject.finding("bundled-torch", binary, "is a library of torch itself")
    elif any(owners.is_cuda(name) for name in names):
        yield subject.finding("bundled-cuda", binary, "is a library of CUDA")
    elif any(owners.is_openmp(name) for name in names):
        message = "is an OpenMP runtime beside torch's own: threads are started twice, or pinned to one core"
        yield subject.finding("openmp-twice", binary, message)
    elif what := next(filter(None, map(owners.process_runtime, sorted(names))), None):
        yield subject.finding("bundled-runtime", binary, f"is {what}, of which a process has one")
    elif any(owners.is_desktop(name) for name in names):
        message = "is a part of the graphics driver or the desktop, which must be the one that runs there"
        yield subject.finding("bundled-runtime", binary, message)


def _openmp(subject: Subject) -> Iterator[Finding]:
    """Find needs for another OpenMP runtime than torch's, and for two in one variant."""
    users: dict[str, AuditedBinary] = {}
    for binary in subject.binaries:
        for name in binary.elf.needed:
            if owners.is_openmp(name):
                users.setdefault(name, binary)
    theirs = sorted(name for name in subject.provided if owners.is_openmp(name))
    for name, user in sorted(users.items()):
        if theirs and name not in theirs:
            message = f"needs {name}, but the OpenMP runtime of this torch is {', '.join(theirs)}"
            yield subject.finding("openmp-twice", user, message)
    kinds = {owners.stem(name): name for name in users}
    if not theirs and len(kinds) > 1:
        message = f"needs {' and '.join(sorted(kinds.values()))} in one process"
        yield subject.finding("openmp-twice", min(users.values(), key=lambda each: each.place), message)
