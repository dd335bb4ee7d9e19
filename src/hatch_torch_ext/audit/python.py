"""What a file needs of Python: the release of its suffix, the limited API if it declares it, nothing in a library."""

from __future__ import annotations

import re
import struct
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, some
from hatch_torch_ext.audit.subject import PYTHON_MODULE_ENTRY
from hatch_torch_ext.facts import owners, project
from hatch_torch_ext.facts.content import windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from abi3info.models import Data, Function  # type: ignore[import-untyped]

    from hatch_torch_ext.audit.subject import AuditedBinary, Subject

_SUFFIX = re.compile(r"\.(?:cpython-(?P<cpython>[0-9]{2,4}t?)|(?P<abi3>abi3))(?:-[\w-]+)?\.so$")
_TAG = re.compile(r"(?P<abi3>abi3-)?cp(?P<major>[0-9])(?P<minor>[0-9]{1,3})(?P<threads>t?)")
# pybind11 and nanobind compare the Python of compilation with the running one, and store the two texts next to each
# other.
_PYBIND_CHECK = b"Python version mismatch: module was compiled for Python %s"
_PYBIND_PYTHON = re.compile(rb"\0(3\.\d{1,2})\0")
MAX_TEXTS = 1000
"""Number of version texts in one window of the file that are examined; a second version makes the first useless."""
_PYBIND_INTERNALS = re.compile(rb"__pybind11_internals_v(\d+)_")
_NO_LIMITED_PYBIND = (
    "pybind11 does not work with Python's limited API: write the module on Python's C API, or name and build it for "
    "each Python (WITH_SOABI, no USE_SABI)."
)
NEW_IN = {
    symbol: (3, minor)
    for minor, symbols in {
        10: "PyIter_Send PyModule_AddObjectRef Py_NewRef Py_XNewRef",
        11: "PyErr_GetHandledException PyErr_SetHandledException PyFrame_GetBuiltins PyType_GetName",
        12: "PyErr_GetRaisedException PyErr_SetRaisedException PyObject_GetTypeData PyType_FromMetaclass",
        13: "PyDict_GetItemRef PyImport_AddModuleRef PyList_GetItemRef PyLong_AsInt PyModule_Add PyWeakref_GetRef",
        14: "PyLong_IsNegative PyLong_IsPositive PyUnicodeWriter_Create PyUnicodeWriter_Finish PyUnicode_Equal",
    }.items()
    for symbol in symbols.split()
}
"""Functions that no earlier release exports (CPython's "What's New", C API).

abi3info states when a function entered the limited API, which can be releases later.
"""
FREE_THREADED = frozenset({"_Py_DecRefShared", "_Py_MergeZeroLocalRefcount", "_Py_DecRefSharedDebug"})
"""Reference counting that only free-threaded builds export; their headers inline it everywhere."""

SET_GIL = "PyUnstable_Module_SetGIL"
NOT_USED = struct.pack("<QQ", 4, 1)
"""``{Py_mod_gil, Py_MOD_GIL_NOT_USED}`` in the table of slots of a module that is initialised in phases."""
_FREES_GIL = re.compile(
    r"(?i:gil_not_used)|PyUnstable_Module_SetGIL|freethreading_compatible|\bFREE_THREADED\b|Py_mod_gil\b"
)
"""The ways in which C, pybind11, Cython and nanobind say that a module runs without the GIL."""
MAX_SOURCE = 1 << 22


def frees_gil(root: Path, source: Path, work: Path) -> bool:
    """Return whether a file that the project is built from says of a module that it runs without the GIL."""
    files = (Path(path) for path in project.build_inputs(root, source, work))
    read = (project.text(path) for path in files if path.is_file() and path.stat().st_size <= MAX_SOURCE)
    return any(map(_FREES_GIL.search, read))


def check(subject: Subject) -> Iterator[Finding]:
    """Check what every file of ``subject`` needs of Python."""
    for binary in subject.binaries:
        symbols = sorted(symbol for symbol in binary.symbols if owners.PYTHON_SYMBOL.match(symbol))
        if not binary.is_module:
            yield from _library(binary, symbols, subject)
            if (subject.python or "").startswith("abi3-") and not subject.ours:
                yield from _limited(binary, symbols, subject)
            continue
        yield from _pybind11(binary, subject)
        suffix = _SUFFIX.search(binary.name)
        yield from _name(binary, subject)
        yield from _tag(binary, suffix, subject)
        if (suffix and suffix["abi3"]) or (subject.python or "").startswith("abi3-"):
            yield from _limited(binary, symbols, subject)
        elif suffix:
            yield from _compiled_for(binary, suffix["cpython"], symbols, subject)
            if suffix["cpython"].endswith("t"):
                yield from _gil(binary, subject)


def _pybind11(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    """Compare pybind11's internals with torch's, if the module calls torch's Python library."""
    if not subject.pybind11_internals or owners.PYTHON not in owners.libraries(binary.symbols):
        return
    texts = {int(number) for data in windows(binary.elf.path) for number in _PYBIND_INTERNALS.findall(data)}
    if texts and texts.isdisjoint(subject.pybind11_internals):
        torchs = " or ".join(map(str, sorted(subject.pybind11_internals)))
        message = f"holds pybind11's internals of version {min(texts)}, and torch {subject.torch} those of {torchs}"
        yield subject.finding("pybind11-internals", binary, message)


def _library(binary: AuditedBinary, symbols: list[str], subject: Subject) -> Iterator[Finding]:
    if not symbols or _opened_by_its_python(binary, subject):
        return
    message = f"is a library, but needs {some(symbols)} of Python"
    broken = subject.ours and subject.python is None
    yield subject.finding("python-in-library", binary, message, warning=not broken)


def _opened_by_its_python(library: AuditedBinary, subject: Subject) -> bool:
    """Return whether only the right Python opens ``library`` anyway, so its use of Python costs nothing."""
    if subject.python is None:
        return False
    if not subject.ours:  # a wheel for one Python: its tag says so, whatever it contains
        return True
    return _serves_only_modules(library, subject) or any(item.is_module for item in subject.binaries)


def _serves_only_modules(library: AuditedBinary, subject: Subject) -> bool:
    """Return whether only modules need ``library``: the Python that opens them then opens it."""
    names = {library.name, library.elf.soname}
    users = [binary for binary in subject.binaries if not names.isdisjoint(binary.elf.needed)]
    return bool(users) and all(user.is_module for user in users)


def _name(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    """Compare the name that the file is imported under with its PyInit functions."""
    name = (binary.module or binary.name.partition(".")[0]).rpartition(".")[2]
    entries = [symbol for symbol in binary.elf.exported if symbol.startswith(PYTHON_MODULE_ENTRY)]
    encoded = name.encode("punycode").decode().replace("-", "_")
    if f"{PYTHON_MODULE_ENTRY}{name}" in entries or f"PyInitU_{encoded}" in binary.elf.exported:
        stem = binary.name.partition(".")[0]
        if binary.module is not None and name not in {stem, stem.removeprefix("lib")}:
            message = f"exports {some(entries)}, so Python imports it as `{name}`, not by its file's name `{stem}`"
            yield subject.finding("module-name", binary, message, warning=True)
        return
    message = f"exports {some(entries)}, so Python cannot import it as `{name}`"
    # A foreign package may load it under another name than the file's.
    yield subject.finding("module-name", binary, message, warning=not subject.ours)


def _tag(binary: AuditedBinary, suffix: re.Match[str] | None, subject: Subject) -> Iterator[Finding]:
    """Compare the file's suffix with the Python that the variant or the wheel names."""
    promised = _TAG.fullmatch(subject.python or "")
    if promised is None or suffix is None or suffix["abi3"]:
        return
    promised_tag = promised["major"] + promised["minor"] + promised["threads"]
    if promised["abi3"]:
        message = f"is a module only for cp{suffix['cpython']}, but is packed for the limited API"
        yield subject.finding("python-tag", binary, message)
    elif suffix["cpython"] != promised_tag:
        message = f"is a module for cp{suffix['cpython']}, but is packed for cp{promised_tag}"
        yield subject.finding("python-tag", binary, message)


def _compiled_for(binary: AuditedBinary, tag: str, symbols: list[str], subject: Subject) -> Iterator[Finding]:
    """Find traces of another Python than that of the suffix: newer functions, free threading, pybind11's check."""
    version = int(tag[0]), int(tag.removesuffix("t")[1:])
    release = ".".join(map(str, version))
    newer = [symbol for symbol in symbols if NEW_IN.get(symbol, version) > version]
    traces = []
    if newer:
        traces.append(f"needs {some(newer)}, which Python {release} does not have")
    shared = sorted(FREE_THREADED & binary.symbols)
    if shared and not tag.endswith("t"):
        traces.append(f"needs {some(shared)} of a free-threaded Python")
    compiled = _pybind_python(binary.elf.path)
    if compiled is not None and compiled != release:
        traces.append(f"was compiled for Python {compiled}")
    for trace in traces:
        yield subject.finding("python-tag", binary, f"is named as a module for cp{tag}, but {trace}")


def _gil(binary: AuditedBinary, subject: Subject) -> Iterator[Finding]:
    """Find a module that does not say that it runs without the GIL; what the sources say counts too.

    pybind11 fills its table of slots when the module is imported: without the sources, its modules pass.
    """
    if subject.frees_gil or SET_GIL in binary.symbols:
        return
    every = [NOT_USED] if subject.frees_gil is False else [NOT_USED, _PYBIND_CHECK]
    if not any(word in data for data in windows(binary.elf.path) for word in every):
        message = (
            "does not say that it runs without the GIL: when it is imported, the free-threaded Python switches the GIL "
            "on for the whole process"
        )
        yield subject.finding("gil-enabled", binary, message)


def _limited(binary: AuditedBinary, symbols: list[str], subject: Subject) -> Iterator[Finding]:
    """Compare the symbols with the limited API, and with its state in the oldest Python that is promised."""
    promised = _TAG.fullmatch(subject.python or "")
    remedy = _NO_LIMITED_PYBIND if any(_PYBIND_CHECK in data for data in windows(binary.elf.path)) else None
    known = {symbol: _limited_api(symbol) for symbol in symbols}
    if outside := [symbol for symbol, found in known.items() if found is None]:
        message = f"says abi3, but needs {some(outside)}, which is not in Python's limited API"
        yield subject.finding("abi3-violation", binary, message, remedy=remedy)
    if promised is None:
        return
    oldest = int(promised["major"]), int(promised["minor"])
    since = {symbol: (found.added.major, found.added.minor) for symbol, found in known.items() if found is not None}
    if newer := [symbol for symbol, added in since.items() if added > oldest]:
        message = f"says abi3 from Python {oldest[0]}.{oldest[1]} on, but needs {some(newer)}, which came later"
        yield subject.finding("abi3-violation", binary, message, remedy=remedy)


def _limited_api(symbol: str) -> Data | Function | None:
    from abi3info import DATAS, FUNCTIONS  # type: ignore[import-untyped]
    from abi3info.models import Symbol

    return FUNCTIONS.get(Symbol(symbol)) or DATAS.get(Symbol(symbol))


def _pybind_python(path: Path) -> str | None:
    checked = False
    texts: set[bytes] = set()
    for data in windows(path):
        checked = checked or _PYBIND_CHECK in data
        if b"\0003." in data:
            texts.update(match[1] for match in islice(_PYBIND_PYTHON.finditer(data), MAX_TEXTS))
    return texts.pop().decode() if checked and len(texts) == 1 else None
