"""Opens files in an available torch, in a separate process: the one proof that a file can be loaded.

A faulty library can abort the whole process. That becomes a finding with the process's output, and the remaining files
are opened in a new process.
"""

from __future__ import annotations

import json
import re
import signal
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.audit import symbols
from hatch_torch_ext.audit.findings import Finding, finding
from hatch_torch_ext.base import mounts, process, resources, untrusted
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.facts import owners
from hatch_torch_ext.resources import _variants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hatch_torch_ext.audit.subject import AuditedBinary
    from hatch_torch_ext.facts.variant import Variant

Facts = dict[str, Any]
"""Facts of a Python and its torch, as the loader's ``facts()`` returns them."""

SCRIPT = resources.FOLDER / "opening.py"
PROGRAM = "<program>"
MARK = "@@torch-ext-opening "
TIMEOUT = 120.0
TAIL_LINES, THROWN_LINES, MAX_LINE = 6, 10, 300
THROWN = (
    "Correct what the exception says, as a registration that torch refuses: nothing catches what is thrown while a "
    "library is opened."
)
"""The remedy where an exception in a static initialiser ended the process."""
_THROWS = "terminate called after throwing"
# A backtrace in torch's format is of no use to the reader of a finding.
_FRAME = re.compile(r"frame #\d+|<omitting python frames>|Exception raised from ")
_UNDEFINED = re.compile(r"undefined symbol: ([^\s,]+)")
_DEFINE = "Link the library that has the symbol, or compile against the torch that the file is opened in."
_ONE_LIBRARY = "Let one library register it, which the others link."
REGISTERED_TWICE: dict[str, tuple[str, str | None]] = {
    "Only a single TORCH_LIBRARY": ("operator-twice", None),
    "multiple times with the same": ("operator-twice", None),
    "Tried to register an operator": ("operator-twice", None),
    "Tried to register multiple backend fallbacks": ("operator-twice", _ONE_LIBRARY),
    "PrivateUse1HooksInterface only could be registered once": ("operator-twice", _ONE_LIBRARY),
    "Ensure that registration with torch::class_": ("class-twice", None),
    '" is already registered!': (
        "class-twice",
        "Let one module define the Python class, and the others import it, or use pybind11::module_local() in each.",
    ),
}
"""Words of torch on a second registration (ATen/core: dispatch/Dispatcher.cpp, library.cpp, custom_class.cpp;
ATen/detail) and of pybind11 (``class_``) -> the code, and the remedy where the code's own does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """One run of the process: its answers, its exit status (None: timeout), and the other lines that it printed."""

    events: tuple[dict[str, Any], ...]
    returncode: int | None
    printed: tuple[str, ...]


def probe(python: Path) -> Facts | str | None:
    """Return the facts of ``python`` and its torch as the loader reads them.

    It is None without a torch, and what Python says of one that is installed and cannot be imported.
    """
    outcome = _run(python, [], timeout=TIMEOUT)
    facts = _torch(outcome)
    broken = next((line["error"] for line in outcome.events if line["event"] == "no-torch"), None)
    if facts is None and broken is None and outcome.returncode:
        broken = _death(outcome, "importing it")
    if facts is not None or broken is None or broken == "ModuleNotFoundError: No module named 'torch'":
        return facts
    return str(broken)


def serves(variant: Variant, here: Facts) -> bool:
    """Return whether the loader may choose ``variant`` given the facts ``here``."""
    candidate = {
        "label": variant.label,
        "torch": variant.torch,
        "machine": variant.machine,
        "files": [],
        "libc": variant.libc,
        "libc_floor": variant.libc_floor,
        "stable_abi": variant.stable_abi,
        "cuda": variant.cuda,
        "cxx11_abi": variant.cxx11_abi,
        "python": variant.python,
        "archs": variant.archs,
    }
    return not _variants.select(here, [candidate], prerelease=True).reasons[variant.label]


def python_fits(required: str | None, here: Facts) -> bool:
    """Return whether a wheel for the Python ``required`` (``cp311``, ``abi3-cp39``, None: any) is that of ``here``."""
    return required is None or required == here["python"] or required.startswith("abi3-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The result of opening files; ``operators`` maps the place of each opened file to the names that it registered."""

    findings: tuple[Finding, ...] = ()
    operators: Mapping[str, frozenset[str]] = field(default_factory=dict)


def expects_another(binary: AuditedBinary, here: Facts) -> str | None:
    """Return which need of a foreign file asks for another build of torch than that of ``here``, or None."""
    major = next((owners.version(name) for name in binary.elf.needed if owners.stem(name) == "libcudart"), "")
    cuda = here["backend"].removeprefix("CUDA ") if here["backend"].startswith("CUDA ") else None
    of_cuda = [name for name in binary.elf.needed if owners.is_cuda(name) and not owners.is_driver(name)]
    of_cuda += [name for name in binary.elf.needed if owners.is_torch(name) and "_cuda" in name]
    if of_cuda and cuda is None:
        return of_cuda[0]
    if major and cuda is not None and major.partition(".")[0] != cuda.partition(".")[0]:
        return f"CUDA {major.partition('.')[0]}"
    torchs = [symbol for symbol in binary.elf.undefined if owners.owner(symbol)]
    if any(symbols.old_string(symbol) for symbol in torchs) and here["cxx11_abi"]:
        return "a torch of the old C++ ABI"
    if any(symbols.new_string(symbol) for symbol in torchs) and not here["cxx11_abi"]:
        return "a torch of the C++11 ABI"
    return None


def open_all(
    python: Path,
    binaries: Sequence[AuditedBinary],
    *,
    variant: str | None,
    package: str | None,
    beside: Sequence[AuditedBinary] = (),
    timeout: float = TIMEOUT,
) -> Opened:
    """Open ``binaries`` in the torch of ``python``; the result is empty if that has no torch.

    Modules are imported as ``<package>.<binary.module>``, so several of one name do not meet. ``beside`` are all files
    of the variant, of which one may have a missing symbol hidden. ``timeout`` is in seconds, for all of them together.
    Raises ``ConfigurationError`` if their file system lets nobody open them.
    """
    for path in (binary.elf.path for binary in binaries):
        if (refusal := mounts.refusal(str(path))) is not None:
            raise ConfigurationError(f"{path} cannot be opened in torch, whatever is in it: {refusal}.")
    # A module may need the operators of its variant's libraries: those are opened first, as by the loader.
    left = sorted(binaries, key=lambda binary: (binary.is_module, binary.place))
    found: list[Finding] = []
    preload = sorted({name for binary in binaries for name in binary.elf.needed if owners.is_sanitizer(name)})
    hidden = cache(lambda: symbols.hiding(beside))  # reads every file
    opened: dict[str, frozenset[str]] = {}
    while left:
        files = [(binary.elf.path, _module(binary, package)) for binary in left]
        outcome = _run(python, files, timeout=timeout, preload=preload)
        if _torch(outcome) is None:
            break
        last, is_done = -1, True
        for line in outcome.events:
            if line["event"] == "torch":
                continue
            last, is_done = line["number"], line["event"] != "open"
            if line["event"] == "opened":
                opened[left[last].place] = frozenset(line["operators"])
            elif line["event"] == "refused":
                found.append(_refused(left[last], line["error"], hidden, variant=variant))
        if outcome.returncode == 0 or last < 0:
            break
        found.append(_killed(left[last], outcome, variant=variant, is_done=is_done))
        left = left[last + 1 :]
    return Opened(findings=tuple(found), operators=opened)


def _module(binary: AuditedBinary, package: str | None) -> str | None:
    if binary.elf.type == "program":
        return PROGRAM
    if not binary.is_module:
        return None
    name = binary.module or binary.name.partition(".")[0]
    return f"{package}.{name}" if package else name


def _run(
    python: Path, files: Sequence[tuple[Path, str | None]], *, timeout: float, preload: Sequence[str] = ()
) -> _Outcome:
    with tempfile.TemporaryDirectory(prefix="torch-ext-opening-") as folder:
        names = Path(folder) / "files.json"
        names.write_text(json.dumps([[str(path), module] for path, module in files]), encoding="utf-8")
        log = Path(folder) / "log"
        try:
            changes = _preloaded(preload)
            process.run_logged([python, SCRIPT, names], log, cwd=log.parent, env_changes=changes, timeout=timeout)
            returncode: int | None = 0
        except ProcessError as error:
            if not log.exists():
                return _Outcome(events=(), returncode=None, printed=())
            returncode = error.returncode
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    events = tuple(untrusted.json(line.removeprefix(MARK)) for line in lines if line.startswith(MARK))
    printed = [line.strip() for line in lines if line.strip() and not line.startswith(MARK)]
    return _Outcome(events=events, returncode=returncode, printed=tuple(printed))


def _preloaded(names: Sequence[str]) -> dict[str, str | None]:
    """Return the variables with which a file with a sanitizer can be opened: its runtime is preloaded."""
    if not names:
        return {}
    return {"LD_PRELOAD": ":".join(names), "ASAN_OPTIONS": "detect_leaks=0", "LSAN_OPTIONS": "detect_leaks=0"}


def _torch(outcome: _Outcome) -> Facts | None:
    return next((line["facts"] for line in outcome.events if line["event"] == "torch"), None)


def _killed(binary: AuditedBinary, outcome: _Outcome, *, variant: str | None, is_done: bool) -> Finding:
    """Return the finding on a file that ended the process, while it was opened or, if that ``is_done``, later."""
    death = f"after it was opened well, {_death(outcome)}" if is_done else _death(outcome)
    # An exception in a static initialiser, such as torch's refusal of a second registration, ends the process.
    printed = "\n".join(outcome.printed)
    code, remedy = _registered_twice(printed) or ("crash", THROWN if _THROWS in printed else None)
    return finding(code, binary.place, death, variant=variant, remedy=remedy, warning=False)


def _refused(
    binary: AuditedBinary, error: str, hidden: Callable[[], Mapping[str, str]], *, variant: str | None
) -> Finding:
    first = error.strip().splitlines()[0].replace(str(binary.elf.path).removesuffix(binary.place), "")
    code, remedy = _registered_twice(error) or ("cannot-open", None)
    # The Python files of a foreign package may load or set up first what a library needs.
    message = f"does not open: {first}"
    if code == "cannot-open" and (match := _UNDEFINED.search(first)):
        place = hidden().get(match[1])
        message, remedy = (f"{message}, which {place} has, but hidden", symbols.EXPORT) if place else (message, _DEFINE)
    return finding(code, binary.place, message, variant=variant, remedy=remedy, warning=variant is None)


def _registered_twice(text: str) -> tuple[str, str | None] | None:
    return next((found for words, found in REGISTERED_TWICE.items() if words in text), None)


def _death(outcome: _Outcome, doing: str = "opening it") -> str:
    """Return how the process ended, and its last words: of an exception that nobody caught, only what it says."""
    if outcome.returncode is None:
        how = f"{doing} did not finish"
    elif outcome.returncode < 0:
        try:
            name = signal.Signals(-outcome.returncode).name
        except ValueError:
            name = f"signal {-outcome.returncode}"
        how = f"{doing} kills the process ({name})"
    else:
        how = f"{doing} ends the process with status {outcome.returncode}"
    words = [line[:MAX_LINE] for line in outcome.printed if _FRAME.match(line) is None]
    thrown = next((number for number, line in enumerate(words) if line.startswith("terminate called")), None)
    # What is thrown comes after warnings of torch and others.
    shown = words[-TAIL_LINES:] if thrown is None else words[thrown : thrown + THROWN_LINES]
    printed = " / ".join(shown)
    return f"{how}; it printed: {printed}" if printed else f"{how} without a word"
