r"""What is foreign, made fit to be shown: on a terminal, in a text, as JSON, on a page. The one place for it.

Control characters (ESC, BEL, NUL, C1), what turns the direction of writing, half surrogate pairs and whatever else no
terminal shows become escapes (``\x1b``, ``\u202e``), and what is long is cut in its middle.
"""

from __future__ import annotations

import dataclasses
import html as _html
import json as _json
import re
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = 200
"""Characters of a name of somebody else's in a sentence."""
LINE = 2000
"""Characters of a line."""
TEXT = 500_000
"""Characters of a text of many lines."""
JSON = 1_000_000
"""Bytes of the rows of an answer for programs, about; a wheel of strangers can hold a hundred thousand files."""
_CUT = " [...] "
_INDENT = 6
"""Bytes by which a row in a list in an object is moved, with what ends its line."""
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_NEWLINE = re.compile(r"\r\n?")

_Value = TypeVar("_Value")


class _Escapes(dict[int, "str | int"]):
    """What ``str.translate`` makes of each character; learned one by one."""

    def __missing__(self, code: int) -> str | int:
        letter = chr(code)
        self[code] = code if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        return self[code]


_ESCAPES = _Escapes()


def line(text: object, limit: int = LINE) -> str:
    """Return ``text`` on one line of at most ``limit`` characters, all of which can be shown."""
    said = str(text)
    if len(said) > 2 * limit:  # never more work than the result is long
        said = said[:limit] + said[-limit:]
    return _cut(said if said.isprintable() else said.translate(_ESCAPES), limit)


def name(text: object) -> str:
    """Return the name of a file, a symbol or the like for a sentence."""
    return line(text, NAME)


def text(said: str, limit: int = TEXT) -> str:
    """Return a text of many lines: its line breaks and tabs stay, colours go, the rest is as in ``line``."""
    said = _cut(said, limit)
    if said.isprintable():
        return said
    said = _NEWLINE.sub("\n", _COLOUR.sub("", said))
    return "\n".join("\t".join(part.translate(_ESCAPES) for part in row.split("\t")) for row in said.split("\n"))


def html(said: object, limit: int = LINE) -> str:
    """Return ``said`` for a page: as ``line``, and no markup."""
    return _html.escape(line(said, limit))


def json(data: object) -> str:
    """Return ``data`` as JSON of ASCII alone. A half surrogate pair, which strict readers refuse, is an escape."""
    return _json.dumps(_whole(data), indent=2, default=str)


def fitting(rows: Iterable[_Value], room: int) -> tuple[list[_Value], int]:
    """Return the first of ``rows`` (texts, dataclasses), as many as JSON of ``room`` bytes holds; and the room left."""
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
    """Return ``value`` (a dataclass, a tuple, a text) with every text in it as ``line`` gives it."""
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


def _cut(said: str, limit: int) -> str:
    if len(said) <= limit:
        return said
    tail = limit // 3
    return f"{said[: limit - tail - len(_CUT)]}{_CUT}{said[-tail:]}"


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
