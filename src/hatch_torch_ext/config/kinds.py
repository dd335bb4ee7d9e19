"""The kinds of values that options have: notation, words, JSON Schema, and the function that reads each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Generic, TypeVar

from hatch_torch_ext.config.options import NUL, Options, alternatives
from hatch_torch_ext.facts import archs
from hatch_torch_ext.facts.labels import MACHINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

# fmt: off
SIZE_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9,
    "kib": 2**10, "mib": 2**20, "gib": 2**30,
}
# fmt: on

# The same for a JSON Schema: regular expressions without flags and named groups.
SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*([kmgKMG][iI]?[bB]|[bB])?\s*$"
POLICY_PATTERN = r"\d+_\d+|(many|musl)linux_\d+_\d+|manylinux(1|2010|2014)"
ARCHITECTURE = r"all|all-major|[1-9]\d?\.\d[af]?(\+PTX)?"


def size(value: object) -> int:
    """Return how many bytes ``100``, ``"100 MB"`` or ``"64MiB"`` are; less than one byte is refused."""
    expected = "must be a number of bytes, or a size such as `100 MB` or `64 MiB`"
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(expected)  # noqa: TRY004 - one kind of error, whose text is what counts
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(value).strip().lower())
    if not match or match[2] not in SIZE_UNITS:
        raise ValueError(f"{expected}, not `{value}`")
    count = int(Decimal(match[1]) * SIZE_UNITS[match[2]])
    if count < 1:
        raise ValueError(f"must be at least one byte, not `{value}`")
    return count


def policy(value: object) -> str | None:
    """Return ``manylinux_2_28`` for itself and for ``2_28``, legacy names unchanged, None for ``auto``."""
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 - one kind of error, whose text is what counts
    if value == "auto":
        return None
    if re.fullmatch(r"\d+_\d+", value):
        return f"manylinux_{value}"
    if re.fullmatch(POLICY_PATTERN, value):
        return value
    expected = "must be a policy such as `manylinux_2_28` or `2_28`, or `auto`"
    if value.endswith(("_x86_64", "_aarch64")):
        raise ValueError(f"{expected}: remove the machine from `{value}`, it is that of the build")
    raise ValueError(f"{expected}, not `{value}`")


def architecture(value: str) -> str:
    """Return a GPU architecture in torch's notation, or a word that means several."""
    if value in archs.GROUPS:
        return value
    try:
        archs.parse(value)
    except ValueError:
        expected = (
            "must be an architecture as torch writes it, such as `8.0`, `9.0a`, `10.0f`, `9.0+PTX` or `all-major`"
        )
        if match := re.fullmatch(r"(?:sm_?|compute_?)?([1-9]\d?)(\d)([af]?)(?:-real|-virtual)?", value):
            ptx = "+PTX" if value.startswith("compute") or value.endswith("-virtual") else ""
            raise ValueError(f"{expected}: `{match[1]}.{match[2]}{match[3]}{ptx}`, not `{value}`") from None
        raise ValueError(f"{expected}, not `{value}`") from None
    return value


def count(value: object) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a whole number of at least 1, not `{value}`")
    return value


def definition(value: object) -> str:
    """Return a CMake variable's value: ``ON`` or ``OFF`` for a boolean, ``a;b`` for an array."""
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    if isinstance(value, str) and "\0" in value:
        raise ValueError(NUL)
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, (list, tuple)) and not any(isinstance(part, (list, tuple)) for part in value):
        return ";".join(definition(part).replace(";", r"\;") for part in value)
    raise ValueError("must be a string, a boolean, a number, or an array of these")


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
    converts the text of an environment variable, neither empty nor blank, to the value that a table would have.
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


def _arguments(options: Options, name: str) -> tuple[str, ...] | None:
    """Return arguments of CMake's configure step, of which none names another generator than ours."""
    arguments = _strings(options, name) or ()
    for i, word in enumerate(arguments, 1):
        generator = (word[2:] or "".join(arguments[i : i + 1])).strip()
        if word.startswith("-G") and generator != "Ninja":
            options.entry_fault(i, name, f"names the generator `{generator}`, but every build uses `Ninja`: remove it")
    return arguments if name in options.raw else None


def _list(text: str) -> object:
    """Return the parts of a variable's text, separated by commas or spaces; None if it has none."""
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
    values = {each: table.parsed(each, definition) for each in names}
    return tuple((each, value) for each, value in values.items() if value is not None)


def _archs(options: Options, name: str) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    """Return architectures by CUDA version; an array is for every version."""
    if name not in options.raw:
        return None
    raw = options.raw[name]
    if isinstance(raw, (list, tuple)):
        found = options.parsed_strings(name, architecture)
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
    return tuple((version, table.parsed_strings(version, architecture)) for version in versions)


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


def cross_for(machine: str, found: Iterable[Cross]) -> Cross:
    """Return the options of ``found`` for ``machine``; none of them is set if the author has no such table."""
    return next((each for each in found if each.machine == machine), Cross(machine=machine))


def with_absolute_paths(cross: Cross, root: Path) -> Cross:
    """Return the options with paths relative to ``root`` made absolute; bare names are searched for on PATH later."""

    def absolute(value: str | None, *, folder: bool) -> str | None:
        return str(root / value) if value is not None and (folder or "/" in value.partition(" ")[0]) else value

    return Cross(
        machine=cross.machine,
        cc=absolute(cross.cc, folder=False),
        cxx=absolute(cross.cxx, folder=False),
        sysroot=absolute(cross.sysroot, folder=True),
        python=absolute(cross.python, folder=True),
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
FOLDER: Kind[str] = Kind(words="string", schema=_TEXT, read=lambda _options, _name: None)
"""The name of a folder or of a package, which ``parse`` reads by itself, and looks for on the disk."""
STRINGS = Kind(words="array of strings", schema={"type": "array", "items": _TEXT}, read=_strings, raw=_list)
ARGUMENTS = Kind(words=STRINGS.words, schema=STRINGS.schema, read=_arguments)
BOOLEAN = Kind(words="boolean", schema={"type": "boolean"}, read=lambda options, name: options.boolean(name))
COUNT = Kind(
    words="integer",
    schema={"type": "integer", "minimum": 1},
    read=lambda options, name: options.parsed(name, count),
    raw=lambda text: int(text) if re.fullmatch("[0-9]{1,18}", text) else text,
)
SIZE = parsed(
    "integer or string",
    {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": SIZE_PATTERN}]},
    size,
)
POLICY = parsed("string", {"type": "string", "pattern": f"^(auto|{POLICY_PATTERN})$"}, policy)
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
_ARCHS: Schema = {"type": "array", "items": {"type": "string", "pattern": f"^({ARCHITECTURE})$"}}
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
