"""What a file registers with torch, as far as its bytes and its build show; the file is not opened as a library.

``TORCH_LIBRARY(ns, m)`` leaves ``TORCH_LIBRARY_static_init_ns`` in the symbol table, which stripping removes; ``m.def``
leaves the text of the schema. The symbol holds the argument as written: if that is a macro, only the build's
definitions may tell what it expands to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.content import windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

EXPANDS_MACROS: releases.Minor = (2, 11)
"""The first release whose TORCH_LIBRARY(MACRO, m) registers the macro's expansion. Earlier ones register ``MACRO``."""

_SYMBOL = re.compile(rb"_ZL(\d{1,4})((?:STABLE_)?TORCH_LIBRARY_(FRAGMENT_)?(?:static_)?init_)")
_SCHEMA = re.compile(rb"(?:(\w+)::)?([A-Za-z_]\w*(?:\.\w+)?)\([^\0\n]*\)\s*->[^\0\n]*[^\0\n\s][^\0\n]*")
_ARROW = b") -> "
_CAPSULE = b"N3c1014tagged_capsuleI"
"""The beginning of the name of ``c10::tagged_capsule<Class>``, which only ``torch::class_`` uses."""
_INFERRED = "_ZN3c106detail12infer_schema20make_function_schema"
"""The beginning of the names of the functions by which torch makes a schema from a function's type."""
_UNPRINTABLE = bytes([*range(0x20), *range(0x7F, 0x100)])
"""What may precede a text directly: constants of other kinds, in files that are not optimised."""
_LIKE_A_MACRO = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+|[A-Z]{4,}")
_DEFINITION = re.compile(r"(?<!\S)-D(\w+)=\"?(\w+)\"?(?!\S)")
PART = 8
"""Bytes of the smallest constant that a compiler makes of a part of a text."""
MAX_SCHEMA = 4096
MAX_NAME = 512
"""Longest namespace in a symbol, in bytes."""
MAX_TRIES = 50_000
"""Most places in one file that are examined, of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What one file registers: the arguments of TORCH_LIBRARY (``whole``) and TORCH_LIBRARY_FRAGMENT, and schemas."""

    whole: frozenset[str] = frozenset()
    fragments: frozenset[str] = frozenset()
    schemas: frozenset[tuple[str, str]] = frozenset()
    """(namespace or "", operator with its overload: ``add.Tensor``)."""
    classes: frozenset[str] = frozenset()
    """C++ names of the classes given to ``torch::class_``; the name in torch.classes is in no table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """The namespaces of one file. ``whole`` are those of TORCH_LIBRARY, which a process may run once for each name."""

    whole: frozenset[str] = frozenset()
    fragments: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    """Macros that name a namespace and whose expansion is unknown."""
    unexpanded: frozenset[str] = frozenset()
    """Those of ``whole`` and ``fragments`` that are the name of a macro, which this torch registers unexpanded."""

    @property
    def known(self) -> frozenset[str]:
        """Return every namespace that is known for certain."""
        return self.whole | self.fragments


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What of a file's registrations can be read in full, with nothing of its build known."""

    schemas: frozenset[tuple[str, str, str]] = frozenset()
    """(namespace or "", operator with its overload, ``(arguments) -> results``)."""
    classes: frozenset[str] = frozenset()
    """As in ``Registered``."""


def texts(path: Path) -> Texts:
    """Return the texts of the schemas in the file, and the classes: they are there in a stripped file too."""
    schemas: set[tuple[str, str, str]] = set()
    classes: set[str] = set()
    for_schemas, for_classes = iter(range(MAX_TRIES)), iter(range(MAX_TRIES))
    for data in windows(path):
        for match in _matches(data, for_schemas):
            namespace, name = (match[1] or b"").decode(), match[2].decode()
            schemas.add((namespace, name, match[0][match.end(2) :].decode("utf-8", "replace")))
        classes.update(_classes(data, for_classes))
    return Texts(schemas=frozenset(schemas), classes=frozenset(classes))


def held(paths: Iterable[Path], texts: Iterable[str]) -> frozenset[str]:
    """Return those of ``texts`` that one of the files holds, in one or in parts.

    A compiler may keep a text that it copies as constants of 8 or 16 bytes, anywhere in the file: of such a file, each
    8 bytes of the text from its beginning on are looked for, and what is left of it at the end is not.
    """
    parts = {text: _parts(text.encode()) for text in texts}
    found: set[str] = set()
    for path in paths:
        missing = {text: set(these) for text, these in parts.items() if text not in found}
        for data in windows(path) if missing else ():
            missing = {text: {each for each in these if each not in data} for text, these in missing.items()}
        found |= {text for text, these in missing.items() if not these}
    return frozenset(found)


def _parts(text: bytes) -> frozenset[bytes]:
    return frozenset(text[at : at + PART] for at in range(0, max(len(text) - PART, 0) + 1, PART))


def read(path: Path) -> Registered:
    """Return what the file registers, as far as its bytes show; they show most before it is stripped."""
    words: set[tuple[str, bool]] = set()
    schemas: set[tuple[str, str]] = set()
    classes: set[str] = set()
    for_words, for_schemas, for_classes = iter(range(MAX_TRIES)), iter(range(MAX_TRIES)), iter(range(MAX_TRIES))
    for data in windows(path):
        words.update(_words(data, for_words))
        schemas.update(_schemas(data, for_schemas))
        classes.update(_classes(data, for_classes))
    return Registered(
        whole=frozenset(name for name, fragment in words if not fragment),
        fragments=frozenset(name for name, fragment in words if fragment),
        schemas=frozenset(schemas),
        classes=frozenset(classes),
    )


def by_function(symbols: Iterable[str]) -> bool:
    """Return whether a file that needs ``symbols`` may define operators only by function (``m.def("add", &add)``)."""
    return any(symbol.startswith(_INFERRED) for symbol in symbols)


def namespaces(
    found: Registered, *, torch: str | None = None, definitions: Mapping[str, frozenset[str]] | None = None
) -> Namespaces:
    """Return the namespaces for the arguments in ``found``.

    ``torch`` is the version that the file was compiled against, None if unknown; ``definitions`` are the values of
    macros that the build defined.
    """
    expands = None if torch is None else _expands(torch)
    known: dict[bool, set[str]] = {True: set(), False: set()}
    unknown: set[str] = set()
    unexpanded: set[str] = set()
    for word, fragment in [*((word, False) for word in found.whole), *((word, True) for word in found.fragments)]:
        values = (definitions or {}).get(word, frozenset())
        macro = bool(values) or _LIKE_A_MACRO.fullmatch(word) is not None
        if macro and expands is False:
            unexpanded.add(word)
        if not macro or expands is False:
            known[fragment].add(word)
        elif len(values) == 1 and expands:
            known[fragment] |= values
        else:
            unknown.add(word)
    return Namespaces(
        whole=frozenset(known[False]),
        fragments=frozenset(known[True]),
        unknown=frozenset(unknown),
        unexpanded=frozenset(unexpanded),
    )


def operators(found: Registered, spaces: Namespaces) -> frozenset[tuple[str | None, str]]:
    """Return (namespace, operator) of what the file defines; the namespace is None if it is unknown."""
    sure = spaces.known if not spaces.unknown else frozenset()
    only = next(iter(sure)) if len(sure) == 1 else None
    return frozenset((namespace or only, name) for namespace, name in found.schemas)


def definitions(flags: Iterable[tuple[str, str]], file: str) -> dict[str, frozenset[str]]:
    """Return macro -> values that the build defined for ``file``, from ``BuildRecord.flags``.

    They are those of the target after which the file is named, or if there is none, those of every target.
    """
    by_target: dict[str, dict[str, set[str]]] = {}
    for name, text in flags:
        target = by_target.setdefault(name.rpartition(" ")[0], {})
        for macro, value in _DEFINITION.findall(text):
            target.setdefault(macro, set()).add(value)
    stem = file.rpartition("/")[2].partition(".")[0]
    own = [by_target[target] for target in (stem, stem.removeprefix("lib")) if target in by_target]
    found: dict[str, set[str]] = {}
    for values in own[:1] or by_target.values():
        for macro, value in values.items():
            found.setdefault(macro, set()).update(value)
    return {macro: frozenset(values) for macro, values in found.items()}


def _expands(torch: str) -> bool | None:
    try:
        return releases.minor_of(torch) >= EXPANDS_MACROS
    except ValueError:  # the manifest is not trusted
        return None


def _words(data: bytes, tries: Iterator[int]) -> Iterator[tuple[str, bool]]:
    at = data.find(b"TORCH_LIBRARY_")
    while at >= 0 and next(tries, None) is not None:
        start = max(0, at - 16)
        match = next((m for m in _SYMBOL.finditer(data, start, at + 64) if m.start(2) <= at), None)
        if match is not None and match.start(2) + int(match[1]) <= len(data) and int(match[1]) <= MAX_NAME:
            name = data[match.start(2) : match.start(2) + int(match[1])]
            yield _word(name[len(match[2]) :], fragment=bool(match[3])), bool(match[3])
        at = data.find(b"TORCH_LIBRARY_", at + 1)


def _word(name: bytes, *, fragment: bool) -> str:
    """Return the argument in the name of the macro's function or variable; that of a FRAGMENT ends in a counter."""
    text = name.decode("ascii", errors="replace")
    return re.sub(r"_\d+$", "", text) if fragment else text


def _schemas(data: bytes, tries: Iterator[int]) -> Iterator[tuple[str, str]]:
    for match in _matches(data, tries):
        yield (match[1] or b"").decode(), match[2].decode()


def _classes(data: bytes, tries: Iterator[int]) -> Iterator[str]:
    """Yield the classes among the names of types that ``typeid`` leaves: class_ asks for that of its tagged capsule."""
    at = data.find(_CAPSULE)
    while at >= 0 and next(tries, None) is not None:
        name = _qualified(data[at + len(_CAPSULE) : at + len(_CAPSULE) + MAX_NAME])
        if name is not None:
            yield name
        at = data.find(_CAPSULE, at + 1)


def _qualified(mangled: bytes) -> str | None:
    """Return the C++ name of a mangled class, as ``N3foo3BarEE``; of a template, the mangled name itself."""
    nested = mangled.startswith(b"N")
    left, parts = mangled.removeprefix(b"N"), []
    while (digits := re.match(rb"\d{1,4}", left)) is not None:
        end = digits.end() + int(digits[0])
        parts.append(left[digits.end() : end].decode("ascii", "replace"))
        left = left[end:]
    if parts and left.startswith(b"EE" if nested else b"E"):
        return "::".join("(anonymous)" if part.startswith("_GLOBAL__N_") else part for part in parts)
    template = re.match(rb"\w+(?=E\0)", mangled)
    return template[0].decode("ascii") if template is not None else None


def _matches(data: bytes, tries: Iterator[int]) -> Iterator[re.Match[bytes]]:
    """Yield the schemas among the texts of ``data``; each text is examined once, at its first arrow."""
    at = data.find(_ARROW)
    while at >= 0 and next(tries, None) is not None:
        start = data.rfind(b"\0", max(0, at - MAX_SCHEMA), at) + 1
        end = data.find(b"\0", at)
        if end < 0:
            return
        if start and end - at < MAX_SCHEMA and data.find(b"\n", start, end) < 0:
            match = _SCHEMA.fullmatch(data[start:end].lstrip(_UNPRINTABLE))
            if match is not None:
                yield match
        at = data.find(_ARROW, end)
