"""torch's symbols: exported by the torch that the file is for, of one C++ ABI, and stable if that was promised."""

from __future__ import annotations

import contextlib
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import elf
from hatch_torch_ext.audit.findings import CODES, Finding, some
from hatch_torch_ext.audit.libraries import unknown
from hatch_torch_ext.base.errors import ElfError
from hatch_torch_ext.facts import owners, policy, releases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hatch_torch_ext.audit.subject import AuditedBinary, Subject

_NEW_STRING = re.compile(r"NSt7__cxx11|B5cxx11")
_LITERAL = re.compile(r"L[a-z]n?\d+E")
_LENGTH = re.compile(r"[0-9]+")
_SEQUENCE = re.compile(r"[ST][0-9A-Z]{0,12}_")
_STANDARD = re.compile(r"_Z(?:n[wa]|d[la]|(?:T[VISTC]|GV)?N?[rVKRO]*(?:S[tabsiod]|9__gnu_cxx|10__cxxabiv))")
_INSIDE_TORCH = re.compile(
    r"_Z\w*?(?:6google8protobuf|4dnnl|5ideep|4gloo|6fbgemm|10tensorpipe|9libkineto|4onnx|8pybind11)"
)
"""C++ names of other projects that torch's own libraries contain, and export in part."""
_BEFORE_SCOPES = re.compile(r"_Z(?:T[VIST]|GV|GR)?N?[rVKRO]*")

EXPORT = (
    'Export it there: `__attribute__((visibility("default")))` at its declaration, or CXX_VISIBILITY_PRESET default '
    "for that library."
)
"""The remedy for a symbol that a file of the project has hidden, from others."""
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
"""What torch's own libraries load in turn: ld.so resolves a symbol in any of them, as it searches the whole graph."""


LOADED_BY_TORCH_CUDA = frozenset((
    "libcudart", "libcublas", "libcublasLt", "libcudnn", "libcufft", "libcufile", "libcurand", "libcusparse",
    "libcusparseLt", "libnccl",
))  # fmt: skip
"""CUDA libraries in NEEDED of libtorch_cuda.so, as in torch's wheel of 2.8; other builds may differ."""

_WITH_VERSIONS = re.compile(
    r"(?:lib(?:c|m|mvec|dl|rt|pthread|util|resolv|anl|stdc\+\+|gcc_s|atomic|gomp|quadmath)|ld-linux[\w-]*|ld64)\.so\.\d+"
)
"""Libraries of glibc and GCC, all of whose names have versions."""
GLIBC = (
    "libc.so.6", "libm.so.6", "libmvec.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1",
)  # fmt: skip
_LINKERS = frozenset({"_GLOBAL_OFFSET_TABLE_", "_DYNAMIC", "__ehdr_start", "__dso_handle", "_end", "_edata", "_etext"})
_INSIDE_TORCH_C = re.compile(
    r"(?:mklg?|MKL|Sleef|uv|xnn|cpuinfo|nnp|pthreadpool|pytorch|__itt|mz|vml|omp|GOMP|kmp|__kmpc|cblas|LAPACKE|__cxa|__gxx|_Unwind)_?\w*"
    r"|[cdsz][a-z][a-z0-9]{2,5}_"
)
"""C names that torch's own libraries contain and export (MKL with BLAS and LAPACK, and others), or load (OpenMP, C++).
"""

_IN_ALL_HEADERS = "ATen/core/TensorBody.h"
"""A header of every torch: a folder without it has not all of them."""
_HEADERS = ("c10/util/*.h", "c10/core/*.h", "torch/*.h", "ATen/core/**/*.h", "**/*.h*")
"""Headers, those first that declare most of what a library needs: all of torch's are 9,000 files."""
_declared: dict[bytes, str] = {}
"""Names, and a header of torch in which each was."""

NAMES_NOTHING = frozenset({"libtorch.so", "libshm.so"})
"""Libraries of torch that only load others, or of which no extension uses a symbol."""


def old_string(name: str) -> bool:
    """Return whether a mangled name takes or returns the ``std::string`` from before C++11 (``Ss``)."""
    at, last = 2, name.rfind("Ss")
    while at <= last:
        if name.startswith("Ss", at):
            return True
        skip = _LITERAL.match(name, at) or _SEQUENCE.match(name, at)
        if skip is not None:
            at = skip.end()
        elif digits := _LENGTH.match(name, at):
            at = digits.end() + int(digits[0]) if len(digits[0]) < 6 else len(name)  # noqa: PLR2004 - no longer name
        else:
            at += 2 if name.startswith("St", at) else 1
    return False


def new_string(name: str) -> bool:
    """Return whether a mangled name takes or returns a type of the C++11 ABI."""
    return _NEW_STRING.search(name) is not None


def _other_string(needed: str, there: str) -> bool:
    """Return whether two mangled names are one function, with the old ``std::string`` and with that of C++11."""
    if new_string(needed) == new_string(there):
        return False
    new, old = (needed, there) if new_string(needed) else (there, needed)
    if "NSt7__cxx11" in new:
        return old_string(old) or "St4list" in old
    return new.replace("B5cxx11", "") == old  # a function without such arguments that returns one


def plain(symbol: str) -> str:
    """Return the scopes and the name of a mangled symbol (``at::_ops::add::call``), without its arguments."""
    start = _BEFORE_SCOPES.match(symbol)
    at = start.end() if start else len(symbol)
    parts = []
    while (length := _LENGTH.match(symbol, at)) and len(length[0]) < 6:  # noqa: PLR2004 - no longer name
        at = length.end() + int(length[0])
        parts.append(symbol[length.end() : at])
    return "::".join(parts) or symbol


def has_versions(library: str) -> bool:
    """Return whether all names of a library have versions, as those of glibc and GCC."""
    return _WITH_VERSIONS.fullmatch(library) is not None


def check(subject: Subject) -> Iterator[Finding]:
    """Check the torch symbols of every file."""
    siblings = subject.symbols
    hidden = cache(lambda: hiding(subject.binaries))  # reads every file
    for binary in subject.binaries:
        needed = sorted(symbol for symbol in binary.elf.undefined if symbol not in siblings and owners.owner(symbol))
        yield from _abi(binary, needed, subject)
        yield from _stable(binary, needed, subject)
        yield from _exported(binary, needed, subject)
        yield from _nobodys(binary, siblings, hidden, subject)
        yield from _lowest(binary, siblings, subject)


def _abi(binary: AuditedBinary, needed: list[str], subject: Subject) -> Iterator[Finding]:
    old = [symbol for symbol in needed if old_string(symbol)]
    new = [symbol for symbol in needed if new_string(symbol)]
    if subject.cxx11_abi is True and old:
        message = f"takes {some(old)} with the std::string of the old C++ ABI, but its torch has the C++11 ABI"
    elif subject.cxx11_abi is False and new:
        message = f"takes {some(new)} with the std::string of the C++11 ABI, but its torch has the old one"
    elif subject.cxx11_abi is None and old and new:
        message = f"mixes C++ ABIs: {some(old)} has the old std::string, {some(new)} that of C++11; no torch has both"
    else:
        return
    yield subject.finding("torch-abi", binary, message)


def _stable(binary: AuditedBinary, needed: list[str], subject: Subject) -> Iterator[Finding]:
    if not subject.stable_abi:
        return
    unstable = sorted({plain(symbol) for symbol in needed if symbol.startswith("_Z")})
    if unstable:
        message = f"is in a stable-ABI variant, but needs {some(unstable)} of torch's C++ API"
        yield subject.finding("unstable-symbol", binary, message)


def _exported(binary: AuditedBinary, needed: list[str], subject: Subject) -> Iterator[Finding]:
    """Compare the symbols with the exports of the torch that the file is for, as far as they are known."""
    if subject.exports is None:
        yield from _undeclared(binary, needed, subject)
        return
    reached = _reached(binary.elf.needed)
    known = reached & subject.exports.keys()
    missing = [symbol for symbol in needed if not any(symbol in subject.exports[name] for name in known)]
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
        yield subject.finding("undefined-symbol", binary, message)
    if nowhere:
        torch = f"torch {subject.torch}" if subject.torch else "its torch"
        message = f"needs {some(nowhere)}, which {torch} does not export{_others(nowhere, subject)}"
        yield subject.finding("undefined-symbol", binary, message)


def _headers(folder: Path, names: Sequence[bytes]) -> Iterator[Path]:
    """Yield torch's headers, those first in which ``names`` were in other releases."""
    for place in dict.fromkeys(_declared[name] for name in names if name in _declared):
        if (header := folder / place).is_file():
            yield header
    for pattern in _HEADERS:
        yield from folder.glob(pattern)


def _undeclared(binary: AuditedBinary, needed: list[str], subject: Subject) -> Iterator[Finding]:
    """Find C++ names in torch's scopes that are in none of its headers: sources of the project declare them."""
    if subject.headers is None or not (subject.headers / _IN_ALL_HEADERS).is_file():
        return
    names = {symbol: plain(symbol) for symbol in needed if symbol.startswith("_Z")}
    left = {name.rpartition("::")[2].encode() for name in names.values()}
    for header in _headers(subject.headers, sorted(left)):
        if not left:
            return
        text = header.read_bytes()
        for name in [name for name in left if name in text]:
            _declared[name] = header.relative_to(subject.headers).as_posix()
            left.discard(name)
    found = sorted({name for name in names.values() if name.rpartition("::")[2].encode() in left})
    if found:
        message = f"needs {some(found)}, which no header of torch {subject.torch} declares, and no file defines"
        remedy = CODES["missing-symbol"].remedy
        yield subject.finding("undefined-symbol", binary, message, remedy=remedy, warning=True)


def _nobodys(
    binary: AuditedBinary, siblings: frozenset[str], hidden: Callable[[], Mapping[str, str]], subject: Subject
) -> Iterator[Finding]:
    """Find names that no library which the file loads can define: the system's have versions, and torch's are known."""
    versioned = {symbol for symbol, _ in binary.elf.symbol_versions}
    torchs = (subject.exports or {}).values()
    left = [
        symbol
        for symbol in binary.elf.undefined
        if symbol not in siblings
        and symbol not in versioned
        and not any(symbol in names for names in torchs)
        and not owners.owner(symbol)
        and not owners.PYTHON_SYMBOL.match(symbol)
        and symbol not in _LINKERS
    ]
    cudas = [symbol for symbol in left if owners.cuda_owner(symbol)]
    yield from _of_cuda(binary, cudas, subject)
    theirs = subject.external.keys() & set(binary.elf.needed)
    if unknown(binary, subject) or not theirs <= subject.beside.keys():
        return
    beside = frozenset[str]().union(*(subject.beside[name] for name in theirs))
    left = [symbol for symbol in left if symbol not in beside]
    names = [symbol for symbol in left if symbol.startswith("_Z") and _is_own(symbol)]
    c_names = [
        symbol
        for symbol in left
        if symbol not in cudas and not symbol.startswith("_Z") and not _INSIDE_TORCH_C.fullmatch(symbol)
    ]
    if c_names and not _opaque(binary, subject):
        system = _glibc_names(binary.elf.machine, subject.sysroot)
        if system is not None:  # unknown: the glibc of that machine is not here
            names += [symbol for symbol in c_names if not _of_glibc(symbol, system, binary)]
    yield from _judged(names, binary, hidden, subject)


def _judged(
    names: Sequence[str], binary: AuditedBinary, hidden: Callable[[], Mapping[str, str]], subject: Subject
) -> Iterator[Finding]:
    """Say of each name that nobody defines why it is missing: another ABI, a hidden symbol, or no definition at all."""
    nobodys = []
    having = _defined(names, binary, subject) if names else {}
    for symbol in sorted(names):
        twin = next((other for other in having.get(plain(symbol), ()) if _other_string(symbol, other)), None)
        if twin is None:
            nobodys.append(symbol)
            continue
        kinds = ("that of C++11", "the old one")
        wants, has = kinds if new_string(symbol) or not new_string(twin) else kinds[::-1]
        message = (
            f"needs {plain(symbol)} with the std::string of one C++ ABI ({wants}), but it is defined with the other "
            f"({has}): its sources were compiled with another _GLIBCXX_USE_CXX11_ABI"
        )
        yield subject.finding("torch-abi", binary, message)
    kept = {symbol: hidden()[symbol] for symbol in nobodys if symbol in hidden()}
    for place in sorted(set(kept.values())):
        shown = sorted({plain(symbol) for symbol, owner in kept.items() if owner == place})
        message = f"needs {some(shown)}, which {place} has, but hidden"
        yield subject.finding("missing-symbol", binary, message, remedy=EXPORT)
    nobodys = [symbol for symbol in nobodys if symbol not in kept]
    if nobodys:
        shown = sorted({plain(symbol) for symbol in nobodys})
        message = f"needs {some(shown)}, which no file that it loads defines{_linkage(nobodys, having)}"
        yield subject.finding("missing-symbol", binary, message)


def hiding(binaries: Iterable[AuditedBinary]) -> dict[str, str]:
    """Return symbol -> the file that has it hidden, as far as is known: stripped files do not tell."""
    found: dict[str, str] = {}
    for item in binaries:
        with contextlib.suppress(ElfError):
            for symbol in elf.hidden(item.unstripped or item.elf.path) - set(item.elf.exported):
                found.setdefault(symbol, item.place)
    return found


def _is_own(symbol: str) -> bool:
    return not _STANDARD.match(symbol) and not _INSIDE_TORCH.match(symbol)


def _of_cuda(binary: AuditedBinary, symbols: list[str], subject: Subject) -> Iterator[Finding]:
    """Find functions of CUDA's libraries in a file that does not load the library which has them."""
    if not symbols:
        return
    loaded = _loaded(binary, subject)
    stems = {owners.stem(name) for name in loaded}
    by_library: dict[str, list[str]] = {}
    for symbol in symbols:
        library = owners.cuda_owner(symbol)
        if library is not None and library not in stems:
            by_library.setdefault(library, []).append(symbol)
    for library, names in sorted(by_library.items()):
        by_torch = library in LOADED_BY_TORCH_CUDA and "libtorch_cuda.so" in loaded
        others = unknown(binary, subject) or not subject.external.keys().isdisjoint(loaded)
        message = f"needs {some(names)} of {library}, but {library} is not in NEEDED"
        if by_torch:
            message += ": it is found where libtorch_cuda.so loads it, as torch's own wheels do"
        target = binary.name.partition(".")[0].removeprefix("lib")
        yield subject.finding(
            "undefined-symbol",
            binary,
            message,
            remedy=f"Link the library: {owners.cmake_link(library, target)}.",
            warning=bool(by_torch or others),
        )


def _loaded(binary: AuditedBinary, subject: Subject) -> set[str]:
    """Return the names of all libraries that ld.so loads with the file, as far as they are known."""
    own = {name: item for item in subject.binaries for name in (item.name, item.elf.soname) if name}
    found: set[str] = set()
    left = list(binary.elf.needed)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += own[name].elf.needed if name in own else CLOSURE.get(name, ())
    return found


def _opaque(binary: AuditedBinary, subject: Subject) -> bool:
    """Return whether a library that the file loads may define C names that are unknown here.

    The libraries of glibc and of GCC have versions for all names, so a name without one is not theirs; musl's have
    none.
    """
    if policy.libc_of(binary.elf.needed) == "musl":
        return True
    known = subject.own_names | subject.beside.keys()
    return any(
        name not in known and not owners.is_torch(name) and owners.gpu_prefixes(name) is None and not has_versions(name)
        for name in binary.elf.needed
    )


@cache
def _glibc_names(machine: str, sysroot: Path | None = None) -> Mapping[str, str] | None:
    """Return name -> the oldest version of glibc that has it (``2.17``), or None if that glibc is not installed here.

    For another machine it is that of ``sysroot``, or of Debian's cross compiler.
    """
    roots = [*([sysroot] if sysroot is not None else []), Path("/")]
    folders = (f"lib/{machine}-linux-gnu", "lib64", "lib")
    places = [root / usr / folder for root in roots for folder in folders for usr in ("", "usr")]
    places.append(Path(f"/usr/{machine}-linux-gnu/lib"))
    folder = next((place for place in places if _is_for(place / GLIBC[0], machine)), None)
    if folder is None:
        return None
    found: dict[str, str] = {}
    for library in filter(Path.is_file, (folder / name for name in GLIBC)):
        for name, version in elf.versions(library):
            if match := re.fullmatch(r"GLIBC_(\d[\d.]*)", version):  # not GLIBC_PRIVATE
                found[name] = min(found.get(name, match[1]), match[1], key=policy.natural)
    return found


def _is_for(library: Path, machine: str) -> bool:
    try:
        return elf.read(library).machine == machine
    except ElfError:
        return False


def _of_glibc(symbol: str, names: Mapping[str, str], binary: AuditedBinary) -> bool:
    """Return whether glibc defines the name: a file not linked with glibc has no version for it, and still finds it.

    A name newer than the glibc that the file requires does not count: the user's glibc may lack it
    (``__libc_single_threaded``, of 2.32, from a static library that was compiled on a newer system).
    """
    if symbol not in names:
        return False
    versions = binary.elf.versions
    oldest = policy.floor("glibc", policy.lowest(binary.elf.machine, "glibc", versions), versions)
    return policy.natural(names[symbol]) <= policy.natural(oldest)


def _defined(names: Iterable[str], binary: AuditedBinary, subject: Subject) -> dict[str, list[str]]:
    """Return, for the plain form of each of ``names``, the symbols of that form which the files define.

    They are those of the file itself, hidden ones too, and the exports of the files beside it.
    """
    own: frozenset[str] = frozenset()
    with contextlib.suppress(ElfError):
        own = elf.defined(binary.unstripped or binary.elf.path)
    mine, beside = _by_plain_name(own), _by_plain_name(subject.symbols)
    plain_names = {plain(symbol) for symbol in names}
    return {name: sorted({*mine.get(name, ()), *beside.get(name, ())}) for name in plain_names}


@lru_cache(maxsize=2)
def _by_plain_name(symbols: frozenset[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for symbol in symbols:
        found.setdefault(plain(symbol), []).append(symbol)
    return found


def _linkage(symbols: list[str], having: Mapping[str, list[str]]) -> str:
    """Return a note if a name is defined as C++ and used as C, or the other way round."""
    for symbol in symbols:
        as_c = not symbol.startswith("_Z")
        if any(other.startswith("_Z") is as_c for other in having.get(plain(symbol), ())):
            needed, there = ("C", "C++") if as_c else ("C++", "C")
            return (
                f'; {plain(symbol)} is there as a {there} name and needed as a {needed} name: `extern "C"` is missing '
                "on one side"
            )
    return ""


def _lowest(binary: AuditedBinary, siblings: frozenset[str], subject: Subject) -> Iterator[Finding]:
    """Compare the functions of the stable ABI that the file uses with the lowest torch that is promised."""
    found = releases.lowest_for(symbol for symbol in binary.elf.undefined if symbol not in siblings)
    if found is None or subject.promised is None:
        return
    if found.torch > releases.minor_of(subject.promised):
        needs = f"needs {some(found.functions)} of torch {releases.format_minor(found.torch)}"
        yield subject.finding("lowest-torch", binary, f"{needs}, but {subject.promise} torch {subject.promised}")
    if found.unknown and subject.exports is None and subject.stable_abi:
        newest = releases.format_minor(releases.newest_of_shims())
        message = f"needs {some(found.unknown)}, which the stable ABI of no torch up to {newest} has"
        yield subject.finding("missing-symbol", binary, message)


def _others(symbols: list[str], subject: Subject) -> str:
    """Return a note on the other torch releases that export all of ``symbols``."""
    having = [
        version
        for version, exports in subject.others.items()
        if all(any(symbol in names for names in exports.values()) for symbol in symbols)
    ]
    return f"; torch {' and '.join(having)} would" if having else ""


def _reached(needed: Iterable[str]) -> set[str]:
    direct = [name for name in needed if owners.is_torch(name)]
    return {*direct, *(name for library in direct for name in CLOSURE.get(library, ()))}


def _owner(symbol: str, exports: Mapping[str, frozenset[str]], *, besides: set[str]) -> str | None:
    return next((name for name in sorted(exports.keys() - besides) if symbol in exports[name]), None)


def _unknown(reached: set[str], subject: Subject) -> bool:
    """Return whether the exports of a library that ld.so searches are unknown, so that absence proves nothing."""
    exports = subject.exports or {}
    has = {name for name in subject.provided if owners.is_torch(name)} or set(exports)
    return not (reached & has) - NAMES_NOTHING <= exports.keys()
