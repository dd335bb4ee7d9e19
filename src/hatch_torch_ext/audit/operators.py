"""Operators, as far as they can be read without opening a file: their namespaces and their schemas.

``TORCH_LIBRARY(ns, m)`` leaves ``TORCH_LIBRARY_init_ns`` in the symbol table, which stripping removes; ``m.def`` leaves
the schema's text. Python files beside the library name both (``torch.ops.ns.op``). ``opening`` knows for certain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, finding, some
from hatch_torch_ext.audit.windows import windows
from hatch_torch_ext.facts import owners

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from hatch_torch_ext.audit.subject import Binary, Subject

GENERIC = frozenset((
    "_C", "C", "aten", "cpp", "cuda", "custom", "custom_op", "custom_ops", "ext", "extension", "kernels", "lib",
    "my_lib", "my_ops", "mylib", "myops", "op", "ops", "prim", "prims", "test", "torch", "torch_ext", "utils",
))  # fmt: skip
"""Namespaces that belong to torch, or that the next package picks as well (pytorch's tutorials use some of them)."""

_MACRO = re.compile(rb"_ZL(\d{1,4})((?:STABLE_)?TORCH_LIBRARY_(FRAGMENT_)?init_)")
_SCHEMA = re.compile(rb"(?:(\w+)::)?([A-Za-z_]\w*)(?:\.\w+)?\([^\0\n]*\)\s*->\s*[^\0\n]+")
_ARROW = b") -> "
_USE = re.compile(r"""torch\.ops\.(\w+)\.(\w+)|["'](\w+)::(\w+)["']""")
MAX_SCHEMA = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What one file registers: namespaces opened with TORCH_LIBRARY, with its FRAGMENT form, and schemas."""

    whole: frozenset[str] = frozenset()
    fragments: frozenset[str] = frozenset()
    schemas: frozenset[tuple[str, str]] = frozenset()
    """(namespace or "", operator)."""


def read(path: Path) -> Registered:
    """Return what the file registers, as far as its bytes tell."""
    macros: set[tuple[str, bool]] = set()
    schemas: set[tuple[str, str]] = set()
    for data in windows(path):
        macros.update(_macros(data))
        schemas.update(_schemas(data))
    return Registered(
        whole=frozenset(name for name, fragment in macros if not fragment),
        fragments=frozenset(name for name, fragment in macros if fragment),
        schemas=frozenset(schemas),
    )


def uses(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return operator -> namespaces under which Python files use it."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for match in _USE.finditer(text):
            namespace, operator = (match[1], match[2]) if match[1] else (match[3], match[4])
            found.setdefault(operator, set()).add(namespace)
    return {operator: frozenset(namespaces) for operator, namespaces in found.items()}


def check(subject: Subject, *, used: Mapping[str, frozenset[str]] | None = None) -> Iterator[Finding]:
    """Find generic namespaces, and operators or whole namespaces that two files of one variant register."""
    found = {
        item: read(item.unstripped or item.elf.path)
        for item in subject.binaries
        if owners.registers(item.elf.undefined)
    }
    for binary, registered in found.items():
        named = (
            registered.whole | registered.fragments | {namespace for namespace, _ in registered.schemas if namespace}
        )
        # An overload of Python's view: the library defines `op`, and the package calls it `torch.ops.<generic>.op`.
        named |= {
            namespace for _, operator in registered.schemas for namespace in (used or {}).get(operator, ()) if not named
        }
        yield from generic(binary.place, named, variant=subject.variant)
    yield from _twice(found, subject)


def generic(place: str, namespaces: Iterable[str], *, variant: str | None) -> Iterator[Finding]:
    """Return a finding for every namespace that is not the package's own."""
    for namespace in sorted(GENERIC & set(namespaces)):
        yield finding(
            "generic-namespace", place, f"registers operators in the namespace `{namespace}`", variant=variant
        )


def _twice(found: Mapping[Binary, Registered], subject: Subject) -> Iterator[Finding]:
    """Compare each file with those before it. In a foreign wheel, one may be meant instead of another: a warning."""
    whole: dict[str, str] = {}
    schemas: dict[tuple[str, str], str] = {}
    for binary, registered in found.items():
        again = sorted(registered.whole & whole.keys())
        both = sorted(registered.schemas & schemas.keys())
        if again:
            message = f"opens the namespace `{again[0]}` with TORCH_LIBRARY, and so does {whole[again[0]]}"
        elif both:
            names = [f"{namespace}::{name}" if namespace else name for namespace, name in both]
            message = f"defines {some(names)}, and so does {schemas[both[0]]}"
        if again or both:
            message += ": torch refuses the second that is loaded"
            yield finding("operator-twice", binary.place, message, variant=subject.variant, warning=not subject.ours)
        whole |= dict.fromkeys(registered.whole - whole.keys(), binary.place)
        schemas |= dict.fromkeys(registered.schemas - schemas.keys(), binary.place)


def _macros(data: bytes) -> Iterator[tuple[str, bool]]:
    at = data.find(b"TORCH_LIBRARY_")
    while at >= 0:
        start = max(0, at - 16)
        match = next((m for m in _MACRO.finditer(data, start, at + 64) if m.start(2) <= at), None)
        if match is not None and match.start(2) + int(match[1]) <= len(data):
            name = data[match.start(2) : match.start(2) + int(match[1])]
            yield _namespace(name[len(match[2]) :], fragment=bool(match[3])), bool(match[3])
        at = data.find(b"TORCH_LIBRARY_", at + 1)


def _namespace(name: bytes, *, fragment: bool) -> str:
    """Return the namespace in a macro's function name; a FRAGMENT's ends in a counter."""
    text = name.decode("ascii", errors="replace")
    return re.sub(r"_\d+$", "", text) if fragment else text


def _schemas(data: bytes) -> Iterator[tuple[str, str]]:
    at = data.find(_ARROW)
    while at >= 0:
        start = data.rfind(b"\0", max(0, at - MAX_SCHEMA), at) + 1
        end = data.find(b"\0", at, at + MAX_SCHEMA)
        if start and end >= 0:
            match = _SCHEMA.fullmatch(data[start:end])
            if match is not None:
                yield (match[1] or b"").decode(), match[2].decode()
        at = data.find(_ARROW, at + len(_ARROW))
