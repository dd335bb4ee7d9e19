r"""Makes foreign text fit to be shown: in a terminal, a text file, JSON or an HTML page. No other module does this.

Control characters (ESC, BEL, NUL, C1), those that change the direction of writing, lone surrogates and all others that
a terminal does not show become escapes (``\x1b``, ``\u202e``); long text is shortened in its middle.
"""

from __future__ import annotations

import dataclasses
import html as _html
import json as _json
import re
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAME = 200
"""Longest foreign name in a message, in characters."""
LINE = 2000
"""Longest line, in characters."""
TEXT = 500_000
"""Longest text of several lines, in characters."""
JSON = 1_000_000
"""Approximate limit in bytes for the rows of JSON output; a foreign wheel can hold a hundred thousand files."""
_CUT = " [...] "
_INDENT = 6
"""Bytes that indentation and the line's end add to each line of a row in a list in an object."""
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_NEWLINE = re.compile(r"\r\n?")

_Value = TypeVar("_Value")


class _Escapes(dict[int, "str | int"]):
    """The table for ``str.translate``; each character's escape is computed when it is first met."""

    def __missing__(self, code: int) -> str | int:
        letter = chr(code)
        self[code] = code if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        return self[code]


_ESCAPES = _Escapes()


def line(text: object, limit: int = LINE) -> str:
    """Return ``text`` on one line of at most ``limit`` characters, with escapes for what cannot be shown."""
    shown = str(text)
    if len(shown) > 2 * limit:  # the work stays proportional to the result
        shown = shown[:limit] + shown[-limit:]
    return _cut(shown if shown.isprintable() else shown.translate(_ESCAPES), limit)


def name(text: object) -> str:
    """Return the name of a file, a symbol or the like, for use in a message."""
    return line(text, NAME)


def few(names: Sequence[str], most: int = 3) -> str:
    """Return the first ``most`` of ``names``, which are fit to be shown, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def more(count: int) -> str:
    """Return what follows the first of ``count`` names: `` (and 2 more)``, or nothing."""
    return f" (and {count - 1} more)" if count > 1 else ""


def text(shown: str, limit: int = TEXT) -> str:
    """Return text of several lines: line breaks and tabs stay, colours go, the rest is escaped as by ``line``."""
    shown = _cut(shown, limit)
    if shown.isprintable():
        return shown
    shown = _NEWLINE.sub("\n", _COLOUR.sub("", shown))
    return "\n".join("\t".join(part.translate(_ESCAPES) for part in row.split("\t")) for row in shown.split("\n"))


def html(value: object, limit: int = LINE) -> str:
    """Return ``value`` for an HTML page: escaped as by ``line``, and without markup."""
    return _html.escape(line(value, limit))


def json(data: object) -> str:
    """Return ``data`` as ASCII JSON. A lone surrogate, which strict parsers refuse, becomes an escape."""
    return _json.dumps(_whole(data), indent=2, default=str)


def fitting(rows: Iterable[_Value], room: int) -> tuple[list[_Value], int]:
    """Return as many of ``rows`` (texts, dataclasses) as fit into ``room`` bytes of JSON, and the room left."""
    taken: list[_Value] = []
    for row in rows:
        plain = dataclasses.asdict(row) if dataclasses.is_dataclass(row) and not isinstance(row, type) else row
        written = json(plain)
        room -= len(written) + _INDENT * (written.count("\n") + 1)
        if room < 0:
            return taken, 0
        taken.append(row)
    return taken, room


def every(value: _Value, limit: int = LINE) -> _Value:
    """Return ``value`` (a dataclass, a tuple, a text) with every text in it escaped as by ``line``."""
    return _every(value, limit)  # type: ignore[no-any-return]


def _every(value: Any, limit: int) -> Any:  # noqa: ANN401 -- any tree of values
    if isinstance(value, str):
        return value if len(value) <= limit and value.isprintable() else line(value, limit)
    if isinstance(value, tuple):
        items = [_every(item, limit) for item in value]
        return value if all(map(_same, items, value)) else tuple(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        before = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        after = {name: _every(item, limit) for name, item in before.items()}
        changed = {name: item for name, item in after.items() if item is not before[name]}
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _same(one: object, other: object) -> bool:
    return one is other


def _cut(shown: str, limit: int) -> str:
    if len(shown) <= limit:
        return shown
    tail = limit // 3
    return f"{shown[: limit - tail - len(_CUT)]}{_CUT}{shown[-tail:]}"


def _whole(data: object) -> object:
    if isinstance(data, str):
        try:
            data.encode()
        except UnicodeEncodeError:
            return data.encode(errors="backslashreplace").decode()
        return data
    if isinstance(data, dict):
        return {_whole(key) if isinstance(key, str) else key: _whole(item) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [_whole(item) for item in data]
    return data
