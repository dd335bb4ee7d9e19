"""Operators and classes: generic namespaces, what two files of a variant register, what a linker left out.

For a file that was opened, what it really registered counts; else what its bytes and its build show
(``facts.registered``). What remains unknown is not a fault.

A linker takes an object file out of a static library only where something needs a name that the file defines. Nothing
needs a registration. The real libraries of torch need names too, of the C++ standard library above all, and some
linkers (mold) look for these in the project's static libraries: a plain build may have a registration by that accident.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, some
from hatch_torch_ext.elf import image
from hatch_torch_ext.facts import owners, registered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.audit.subject import AuditedBinary, Subject
    from hatch_torch_ext.facts.registered import Namespaces, Registered

GENERIC = frozenset((
    "_C", "C", "aten", "cpp", "cuda", "custom", "custom_op", "custom_ops", "ext", "extension", "kernels", "lib",
    "my_lib", "my_ops", "mylib", "myops", "op", "ops", "prim", "prims", "test", "torch", "torch_ext", "utils",
))  # fmt: skip
"""Namespaces that belong to torch, or that other packages are likely to use (pytorch's tutorials use some of them)."""

_USE = re.compile(r"""torch\.ops\.(\w+)\.(\w+)|["'](\w+)::(\w+)["']""")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What was read from one file, and the namespaces for its arguments."""

    found: Registered
    spaces: Namespaces

    @property
    def operators(self) -> frozenset[tuple[str | None, str]]:
        """Return what the file defines, as ``registered.operators`` says."""
        return registered.operators(self.found, self.spaces)


def uses(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return operator -> namespaces with which Python files use it."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for match in _USE.finditer(text):
            namespace, operator = (match[1], match[2]) if match[1] else (match[3], match[4])
            found.setdefault(operator, set()).add(namespace)
    return {operator: frozenset(namespaces) for operator, namespaces in found.items()}


def check(
    subject: Subject,
    *,
    used: Mapping[str, frozenset[str]] | None = None,
    opened: Mapping[str, frozenset[str]] | None = None,
) -> Iterator[Finding]:
    """Find generic namespaces, and operators or whole namespaces that two files of one variant register.

    ``used`` is the result of ``uses`` for the package's Python files; ``opened`` maps the place of each file that was
    opened to the operators that it registered: torch has checked those already.
    """
    found: dict[AuditedBinary, _Read] = {}
    for item in subject.binaries:
        if opened is not None and item.place in opened:
            yield from _generic(item, {name.partition("::")[0] for name in opened[item.place]}, subject)
        elif owners.registers(item.elf.undefined):
            found[item] = _read(item, subject)
    for binary, read in found.items():
        named = read.spaces.known | {namespace for namespace, _ in read.found.schemas if namespace}
        # Python's view: the library defines `op`, and the package calls it `torch.ops.<generic>.op`.
        called = {
            space for _, operator in read.found.schemas for space in (used or {}).get(operator.partition(".")[0], ())
        }
        yield from _generic(binary, named or called, subject)
        for word in sorted(read.spaces.unexpanded - GENERIC):
            message = (
                f"registers operators in the namespace `{word}`, which is the name of a macro: TORCH_LIBRARY of torch "
                f"{subject.build.torch_version if subject.build else subject.torch} does not expand it"
            )
            yield subject.finding("generic-namespace", binary, message)
    yield from _twice(found, subject)
    yield from _classes_twice({item: read.found for item, read in found.items() if not item.unopened}, subject)


def _classes_twice(found: Mapping[AuditedBinary, Registered], subject: Subject) -> Iterator[Finding]:
    """Find C++ classes that two files register with torch; the names that they have there are not in the files."""
    known: dict[str, str] = {}
    for binary, registers in found.items():
        if again := sorted(registers.classes & known.keys()):
            message = (
                f"registers the class {some(again)} with torch, and so does {known[again[0]]}: unless each gives it "
                "another name, torch ends the process that loads the second"
            )
            yield subject.finding("class-twice", binary, message)
        known |= dict.fromkeys(registers.classes - known.keys(), binary.place)


def _read(binary: AuditedBinary, subject: Subject) -> _Read:
    found = registered.read(binary.unstripped or binary.elf.path)
    build = subject.build
    spaces = registered.namespaces(
        found,
        torch=build.torch_version if build is not None else subject.torch,
        definitions=registered.definitions(build.flags if build is not None else (), binary.name),
    )
    return _Read(found=found, spaces=spaces)


def _generic(binary: AuditedBinary, namespaces: Iterable[str], subject: Subject) -> Iterator[Finding]:
    for namespace in sorted(GENERIC & set(namespaces)):
        yield subject.finding("generic-namespace", binary, f"registers operators in the namespace `{namespace}`")


def _twice(found: Mapping[AuditedBinary, _Read], subject: Subject) -> Iterator[Finding]:
    """Compare each file with those before it.

    In a foreign wheel, they may be alternatives, so a finding is a warning.
    """
    whole: dict[str, str] = {}
    macros: dict[str, str] = {}
    operators: dict[tuple[str | None, str], str] = {}
    for binary, read in found.items():
        if binary.unopened:  # alternatives, among which the package chooses
            continue
        again = sorted(read.spaces.whole & whole.keys())
        both = sorted((space, name) for space, name in read.operators & operators.keys() if space is not None)
        doubtful = sorted(name for space, name in read.operators & operators.keys() if space is None)
        masked = sorted(read.spaces.unknown & macros.keys())
        sure = bool(again or both)
        if again:
            what = f"opens the namespace `{again[0]}` with TORCH_LIBRARY, and so does {whole[again[0]]}"
        elif both:
            what = f"defines {some([f'{space}::{name}' for space, name in both])}, and so does {operators[both[0]]}"
        elif masked:
            what = f"opens a namespace by the macro `{masked[0]}`, and so does {macros[masked[0]]}"
        elif doubtful:
            what = f"defines {some(doubtful)}, and so does {operators[None, doubtful[0]]}"
        if sure or masked or doubtful:
            unless = "" if sure else " if their namespaces are one, which the files do not tell"
            message = f"{what}: torch refuses the second that is loaded{unless}"
            yield subject.finding("operator-twice", binary, message, warning=not (subject.ours and sure))
        whole |= dict.fromkeys(read.spaces.whole - whole.keys(), binary.place)
        macros |= dict.fromkeys(read.spaces.unknown - macros.keys(), binary.place)
        operators |= dict.fromkeys(read.operators - operators.keys(), binary.place)


def check_archives(subject: Subject, archives: Sequence[tuple[str, Path]]) -> Iterator[Finding]:
    """Find the static libraries whose registrations no file of the variant has.

    ``archives`` are (file name of a library, static library that it links). Where a library that links one registers
    something of which no schema can be read, that is taken for what the static library has.
    """
    registering = [item for item in subject.binaries if owners.registers(item.symbols)]
    for path in sorted({path for _, path in archives}):
        stems = {owners.stem(name) for name, each in archives if each == path}
        linking = [item for item in subject.binaries if owners.stem(item.name) in stems]
        if not linking:
            continue
        try:
            members = [name for name, symbols in image.undefined_of_members(path) if owners.registers(symbols)]
            found = registered.read(path) if members else registered.Registered()
        except OSError:
            continue
        every = {item.place: registered.read(item.unstripped or item.elf.path) for item in registering if members}
        own = [every[item.place] for item in linking if item.place in every]
        if own and not (found.schemas and all(each.schemas for each in own)):
            continue
        if members and not any(_common(found, each) for each in every.values()):
            message = (
                f"links {path.name}, of which {some(members)} registers with torch, and has none of it: the linker "
                "left it out, since nothing calls it"
            )
            yield subject.finding("not-registered", linking[0], message)


def _common(one: registered.Registered, other: registered.Registered) -> bool:
    """Say whether two files register something under one name."""
    if one.schemas and other.schemas:
        return not one.schemas.isdisjoint(other.schemas)
    return bool(one.whole & other.whole or one.fragments & other.fragments or one.classes & other.classes)
