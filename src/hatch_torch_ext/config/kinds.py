"""The kinds of values that options have: each in words, as a JSON Schema, and with the function that reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from hatch_torch_ext.config import grammar
from hatch_torch_ext.config.options import Options, alternatives
from hatch_torch_ext.facts.labels import MACHINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Value_co = TypeVar("Value_co", covariant=True)
Choice = TypeVar("Choice", bound=str)
Parsed = TypeVar("Parsed")

Schema = Mapping[str, object]

_TEXT: Schema = {"type": "string", "pattern": r"\S"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Value_co]):
    """How the value of an option is written.

    ``words`` is its type as the page on configuration names it, ``schema`` the same as a JSON Schema. ``read`` returns
    the value of the option with that name in that table, or None if it is absent or wrong; faults are recorded. ``raw``
    converts the text of an environment variable, neither empty nor blank, to the value that a table would hold.
    """

    words: str
    schema: Schema
    read: Callable[[Options, str], Value_co | None]
    raw: Callable[[str], object] = str


def choice(*values: Choice) -> Kind[Choice]:
    """Return the kind whose value is one of ``values``."""

    def read(options: Options, name: str) -> Choice | None:
        text = options.string(name)
        for value in values:
            if text == value:
                return value
        if text is not None:
            options.fault(name, f"must be {alternatives(values)}, not `{text}`")
        return None

    return Kind(words="string", schema={"enum": list(values)}, read=read)


def parsed(words: str, schema: Schema, parse: Callable[[object], Parsed]) -> Kind[Parsed]:
    """Return the kind whose value ``parse`` reads; the text of its ``ValueError`` is the fault."""
    return Kind(words=words, schema=schema, read=lambda options, name: options.parsed(name, parse))


def template(*fields: str) -> Kind[str]:
    """Return the kind of a string that may contain ``{field}`` for each of these fields."""

    def read(options: Options, name: str) -> str | None:
        value = options.string(name)
        options.fields(name, value or "", fields)
        return value

    return Kind(words="string", schema=_TEXT, read=read)


def _strings(options: Options, name: str) -> tuple[str, ...] | None:
    return options.strings(name) if name in options.raw else None


def _list(text: str) -> object:
    """Return the parts of a variable's text, separated by commas or spaces; None where it has none."""
    return list(filter(None, re.split(r"[,\s]+", text))) or None


def _address(options: Options, name: str) -> str | None:
    """Return the address of an index; since it may hold credentials, no message repeats it."""
    url = options.string(name)
    return None if url is None else _checked(options, name, (url,))[0]


def _addresses(options: Options, name: str) -> tuple[str, ...] | None:
    return _checked(options, name, options.strings(name, or_string=True)) if name in options.raw else None


def _checked(options: Options, name: str, urls: tuple[str, ...]) -> tuple[str, ...]:
    for url in urls:
        if not url.startswith(("https://", "http://", "file://")):
            options.fault(name, "must be an address that starts with `https://`, `http://` or `file://`")
        options.fields(name, url)
    return urls


def _definitions(options: Options, name: str) -> tuple[tuple[str, str], ...] | None:
    if name not in options.raw:
        return None
    table = options.table(name)
    names = table.names(r"[^\s=]+", "a CMake variable, without spaces and `=`")
    values = {each: table.parsed(each, grammar.definition) for each in names}
    return tuple((each, value) for each, value in values.items() if value is not None)


def _archs(options: Options, name: str) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    """Return architectures by CUDA version; an array is for every version."""
    if name not in options.raw:
        return None
    raw = options.raw[name]
    if isinstance(raw, (list, tuple)):
        found = options.parsed_strings(name, grammar.architecture)
        return (("", found),) if found else ()
    if not isinstance(raw, Mapping):
        options.fault(name, 'must be an array of strings such as `["8.0", "9.0+PTX"]`, or a table of such arrays')
        return None
    # TOML reads `archs.12.8 = […]` as a table in a table; the version 12.8 was meant.
    flat: dict[str, object] = {}
    for version, value in raw.items():
        nested = value if isinstance(value, Mapping) else {}
        flat.update({f"{version}.{minor}": inner for minor, inner in nested.items()} or {version: value})
    table = Options(raw=flat, problems=options.problems, prefix=f"{name}.")
    versions = table.names(r"\d{2}(\.\d{1,2})?", "a CUDA version, such as `13` or `12.8`")
    return tuple((version, table.parsed_strings(version, grammar.architecture)) for version in versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cross:
    """The author's options for compiling for another machine: compilers by name or path, folders by path.

    ``python`` is the folder of the headers of that machine's Python; ``{python}`` in it is the version (``3.11``).
    """

    machine: str
    cc: str | None = None
    cxx: str | None = None
    sysroot: str | None = None
    python: str | None = None


def _cross(options: Options, name: str) -> tuple[Cross, ...] | None:
    if name not in options.raw:
        return None
    tables = options.table(name)
    found = []
    for machine in tables.names("|".join(MACHINES), f"a machine, {alternatives(sorted(MACHINES, reverse=True))}"):
        table = tables.table(machine)
        table.unknown([f"{table.prefix}{key}" for key in _CROSS])
        values = {key: table.string(key) for key in _CROSS}
        table.fields("python", values["python"] or "", ["python"])
        found.append(Cross(machine=machine, **values))
    return tuple(found)


def below(root: Path, cross: Cross) -> Cross:
    """Return the options with paths relative to the project's root resolved; bare names are looked up later."""

    def counted(value: str | None, *, folder: bool) -> str | None:
        return str(root / value) if value is not None and (folder or "/" in value) else value

    return Cross(
        machine=cross.machine,
        cc=counted(cross.cc, folder=False),
        cxx=counted(cross.cxx, folder=False),
        sysroot=counted(cross.sysroot, folder=True),
        python=counted(cross.python, folder=True),
    )


_CROSS = ("cc", "cxx", "sysroot", "python")
CROSS = Kind(
    words="table of tables",
    schema={
        "type": "object",
        "patternProperties": {
            f"^({'|'.join(MACHINES)})$": {
                "type": "object",
                "properties": dict.fromkeys(_CROSS, _TEXT),
                "additionalProperties": False,
            }
        },
        "additionalProperties": False,
    },
    read=_cross,
)
TEXT = Kind(words="string", schema=_TEXT, read=lambda options, name: options.string(name))
FOUND: Kind[str] = Kind(words="string", schema=_TEXT, read=lambda _options, _name: None)
"""Text that ``folders`` reads, and that it looks for on the disk."""
STRINGS = Kind(words="array of strings", schema={"type": "array", "items": _TEXT}, read=_strings, raw=_list)
BOOLEAN = Kind(words="boolean", schema={"type": "boolean"}, read=lambda options, name: options.boolean(name))
COUNT = Kind(
    words="integer",
    schema={"type": "integer", "minimum": 1},
    read=lambda options, name: options.parsed(name, grammar.count),
    raw=lambda text: int(text) if re.fullmatch("[0-9]{1,18}", text) else text,
)
SIZE = parsed(
    "integer or string",
    {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": grammar.SIZE}]},
    grammar.size,
)
POLICY = parsed("string", {"type": "string", "pattern": f"^(auto|{grammar.POLICY})$"}, grammar.policy)
_URL: Schema = {"type": "string", "pattern": "^(https?|file)://"}
ADDRESS = Kind(words="string", schema=_URL, read=_address)
ADDRESSES = Kind(
    words="string or array of strings", schema={"anyOf": [_URL, {"type": "array", "items": _URL}]}, read=_addresses
)
_SCALAR: Schema = {"type": ["string", "boolean", "number"]}
DEFINITIONS = Kind(
    words="table",
    schema={
        "type": "object",
        "propertyNames": {"pattern": r"^[^\s=]+$"},
        "additionalProperties": {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]},
    },
    read=_definitions,
)
_ARCHS: Schema = {"type": "array", "items": {"type": "string", "pattern": f"^({grammar.ARCHITECTURE})$"}}
ARCHS = Kind(
    words="array, or table of arrays",
    schema={
        "anyOf": [
            _ARCHS,
            {
                "type": "object",
                "patternProperties": {
                    r"^\d{2}$": {
                        "anyOf": [
                            _ARCHS,
                            {
                                "type": "object",
                                "patternProperties": {r"^\d{1,2}$": _ARCHS},
                                "additionalProperties": False,
                            },
                        ]
                    },
                    r"^\d{2}\.\d{1,2}$": _ARCHS,
                },
                "additionalProperties": False,
            },
        ]
    },
    read=_archs,
)
