"""Symbols of torch: exported by the torch that the file is for, of one C++ ABI, and stable where that was promised."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, finding, some
from hatch_torch_ext.audit.libraries import unknown
from hatch_torch_ext.facts import owners, sonames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hatch_torch_ext.audit.subject import Binary, Subject

_NEW_STRING = re.compile(r"NSt7__cxx11|B5cxx11")
_LITERAL = re.compile(r"L[a-z]n?\d+E")
_SEQUENCE = re.compile(r"[ST][0-9A-Z]*_")
_STANDARD = re.compile(r"_Z(?:n[wa]|d[la]|(?:T[VISTC]|GV)?N?[rVKRO]*(?:S[tabsiod]|9__gnu_cxx|10__cxxabiv))")
_INSIDE_TORCH = re.compile(
    r"_Z\w*?(?:6google8protobuf|4dnnl|5ideep|4gloo|6fbgemm|10tensorpipe|9libkineto|4onnx|8pybind11)"
)
"""Names of libraries that torch's own hold, and export in part."""
_BEFORE_SCOPES = re.compile(r"_Z(?:T[VIST]|GV|GR)?N?[rVKRO]*")

CLOSURE = {
    "libtorch.so": ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_hip.so", "libc10.so", "libc10_cuda.so"),
    "libtorch_python.so": (
        "libtorch.so",
        "libtorch_cpu.so",
        "libtorch_cuda.so",
        "libc10.so",
        "libc10_cuda.so",
        "libshm.so",
    ),
    "libtorch_cuda.so": ("libtorch_cpu.so", "libc10.so", "libc10_cuda.so"),
    "libtorch_cpu.so": ("libc10.so",),
    "libc10_cuda.so": ("libc10.so",),
}
"""What torch's own libraries load in turn: ld.so resolves a symbol in any of them, as it walks the whole graph."""


NAMES_NOTHING = frozenset({"libtorch.so", "libshm.so"})
"""Libraries of torch that only load others, or that no extension takes a symbol from."""


def old_string(name: str) -> bool:
    """Say whether a mangled name takes or gives the ``std::string`` of before C++11 (``Ss``)."""
    at = 2
    while "Ss" in name[at:]:
        rest = name[at:]
        skip = _LITERAL.match(rest) or _SEQUENCE.match(rest)
        if rest.startswith("Ss"):
            return True
        if skip is not None:
            at += skip.end()
        elif rest[0].isdigit():
            digits = re.match(r"\d+", rest)
            at += len(digits[0]) + int(digits[0]) if digits and len(digits[0]) < 6 else len(rest)  # noqa: PLR2004 - no longer name
        else:
            at += 2 if rest.startswith("St") else 1
    return False


def new_string(name: str) -> bool:
    """Say whether a mangled name takes or gives a type of the C++11 ABI."""
    return _NEW_STRING.search(name) is not None


def plain(symbol: str) -> str:
    """Return the scopes and the name of a mangled symbol (``at::_ops::add::call``), without its arguments."""
    start = _BEFORE_SCOPES.match(symbol)
    at = start.end() if start else len(symbol)
    parts = []
    while length := re.match(r"\d+", symbol[at:]):
        end = at + len(length[0]) + int(length[0])
        parts.append(symbol[at + len(length[0]) : end])
        at = end
    return "::".join(parts) or symbol


def check(subject: Subject) -> Iterator[Finding]:
    """Check the torch symbols of every file."""
    siblings = frozenset(symbol for binary in subject.binaries for symbol in binary.elf.exported)
    for binary in subject.binaries:
        wanted = sorted(symbol for symbol in binary.elf.undefined if symbol not in siblings and owners.owner(symbol))
        yield from _abi(binary, wanted, subject)
        yield from _stable(binary, wanted, subject)
        yield from _exported(binary, wanted, subject)
        yield from _nobodys(binary, siblings, subject)


def _abi(binary: Binary, wanted: list[str], subject: Subject) -> Iterator[Finding]:
    old = [symbol for symbol in wanted if old_string(symbol)]
    new = [symbol for symbol in wanted if new_string(symbol)]
    if subject.cxx11_abi is True and old:
        message = f"takes {some(old)} with the std::string of the old C++ ABI, but its torch has the C++11 ABI"
    elif subject.cxx11_abi is False and new:
        message = f"takes {some(new)} with the std::string of the C++11 ABI, but its torch has the old one"
    elif subject.cxx11_abi is None and old and new:
        message = f"mixes C++ ABIs: {some(old)} has the old std::string, {some(new)} that of C++11; no torch has both"
    else:
        return
    yield finding("torch-abi", binary.place, message, variant=subject.variant)


def _stable(binary: Binary, wanted: list[str], subject: Subject) -> Iterator[Finding]:
    if not subject.stable_abi:
        return
    unstable = sorted({plain(symbol) for symbol in wanted if symbol.startswith("_Z")})
    if unstable:
        message = f"is in a stable-ABI variant, but needs {some(unstable)} of torch's C++ API"
        yield finding("unstable-symbol", binary.place, message, variant=subject.variant)


def _exported(binary: Binary, wanted: list[str], subject: Subject) -> Iterator[Finding]:
    """Hold the symbols against the exports of the torch that the file is for, as far as they are known."""
    if subject.exports is None:
        return
    reached = _reached(binary.elf.needed)
    known = reached & subject.exports.keys()
    missing = [symbol for symbol in wanted if not any(symbol in subject.exports[name] for name in known)]
    elsewhere: dict[str, list[str]] = {}
    nowhere = []
    for symbol in missing:
        owner = _owner(symbol, subject.exports, besides=known)
        if owner is not None:
            elsewhere.setdefault(owner, []).append(symbol)
        elif not _unknown(reached, subject):
            nowhere.append(symbol)
    for owner, symbols in sorted(elsewhere.items()):
        message = f"needs {some(symbols)}, which {owner} exports, but {owner} is not in NEEDED"
        yield finding("undefined-symbol", binary.place, message, variant=subject.variant)
    if nowhere:
        torch = f"torch {subject.torch}" if subject.torch else "its torch"
        message = f"needs {some(nowhere)}, which {torch} does not export{_others(nowhere, subject)}"
        yield finding("undefined-symbol", binary.place, message, variant=subject.variant)


def _nobodys(binary: Binary, siblings: frozenset[str], subject: Subject) -> Iterator[Finding]:
    """Find C++ names that nothing which the file loads can define. The system's have versions; torch's, an owner."""
    if unknown(binary, subject) or not subject.external.keys().isdisjoint(binary.elf.needed):
        return
    versioned = {symbol for symbol, _ in binary.elf.symbol_versions}
    torchs = frozenset[str]().union(*(subject.exports or {}).values())
    symbols = [
        symbol
        for symbol in binary.elf.undefined
        if symbol.startswith("_Z")
        and symbol not in siblings | versioned | torchs
        and not owners.owner(symbol)
        and not _STANDARD.match(symbol)
        and not _INSIDE_TORCH.match(symbol)
    ]
    if symbols:
        message = f"needs {some(sorted({plain(symbol) for symbol in symbols}))}, which no file that it loads defines"
        yield finding("missing-symbol", binary.place, message, variant=subject.variant)


def _others(symbols: list[str], subject: Subject) -> str:
    """Say which other torch exports all of ``symbols``."""
    having = [
        version
        for version, exports in subject.others.items()
        if all(any(symbol in names for names in exports.values()) for symbol in symbols)
    ]
    return f"; torch {' and '.join(having)} would" if having else ""


def _reached(needed: Iterable[str]) -> set[str]:
    direct = [name for name in needed if sonames.is_torch(name)]
    return {*direct, *(name for library in direct for name in CLOSURE.get(library, ()))}


def _owner(symbol: str, exports: Mapping[str, frozenset[str]], *, besides: set[str]) -> str | None:
    return next((name for name in sorted(exports.keys() - besides) if symbol in exports[name]), None)


def _unknown(reached: set[str], subject: Subject) -> bool:
    """Say whether the exports of a library that ld.so searches are not at hand: then absence proves nothing."""
    exports = subject.exports or {}
    has = {name for name in subject.provided if sonames.is_torch(name)} or set(exports)
    return not (reached & has) - NAMES_NOTHING <= exports.keys()
