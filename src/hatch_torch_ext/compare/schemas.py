"""Whether an operator takes what an older one took: calls, and programs that were saved with it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARGUMENT = re.compile(r"(?P<type>.+?)\s*(?P<name>\w+)?\s*(?:=\s*(?P<default>.+))?")


_TYPE = r"[A-Za-z_][\w.]*(?:\([^()]*\))?(?:\[\d*\])*\??(?:\[\d*\])*\??"
_WHOLE_ARGUMENT = re.compile(rf"\*|{_TYPE} +[A-Za-z_]\w*(?: *=.+)?")
_WHOLE_RESULT = re.compile(rf"{_TYPE}(?: +[A-Za-z_]\w*)?")


def is_whole(schema: str) -> bool:
    """Return whether a text is a schema, ``(arguments) -> results``.

    A compiler may keep a short text as two overlapping halves, and what is read from the file is then a mixture.
    """
    arguments, arrow, results = schema.rpartition(" -> ")
    if not schema.isprintable() or not arrow or not (arguments.startswith("(") and arguments.endswith(")")):
        return False
    parts = _split(arguments[1:-1])
    returned = _split(results[1:-1]) if results.startswith("(") and results.endswith(")") else [results]
    return all(map(_WHOLE_ARGUMENT.fullmatch, parts)) and all(map(_WHOLE_RESULT.fullmatch, returned))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Argument:
    type: str
    name: str
    default: str | None
    keyword: bool


def breaks(old: str, new: str) -> str | None:
    """Return why calls of the schema ``old`` fail with ``new``, or None; each is ``(arguments) -> results``.

    As torch's own rules for its operators: every old argument stays, with its name, at its place, and still takes what
    it took; what is new has a default; results are what they were, or of narrower types.
    """
    before, results = _parsed(old)
    after, new_results = _parsed(new)
    if len(results) != len(new_results) or not all(map(_takes, results, new_results)):
        return f"it returns `{_shown(new_results)}` in place of `{_shown(results)}`"
    named = {argument.name: argument for argument in after}
    positions = [argument.name for argument in after if not argument.keyword]
    for number, argument in enumerate(before):
        place = positions.index(argument.name) if argument.name in positions else None
        if why := _refused(argument, number, named.get(argument.name), place):
            return why
    names = {argument.name for argument in before}
    added = next((each.name for each in after if each.name not in names and each.default is None), None)
    return None if added is None else f"the new argument `{added}` has no default"


def _refused(old: _Argument, number: int, new: _Argument | None, place: int | None) -> str | None:
    """Return why an argument cannot be given as before; ``place`` is None where only its name says which it is."""
    if new is None:
        return f"the argument `{old.name}` is gone"
    if not _takes(new.type, old.type):
        return f"`{old.name}` is `{new.type}` in place of `{old.type}`"
    if old.default is not None and new.default is None:
        return f"`{old.name}` has no default any more"
    return None if old.keyword or place == number else f"`{old.name}` is at another place"


def _takes(type_: str, other: str) -> bool:
    """Return whether each value of the type ``other`` is one of ``type_``; lists have exactly the same elements.

    To torch, ``SymInt`` is ``int`` with values that ``torch.compile`` may know later.
    """
    type_, other = type_.replace("SymInt", "int"), other.replace("SymInt", "int")
    if type_ in {other, "Any"}:
        return True
    if type_.endswith("?"):
        return _takes(type_[:-1], other.removesuffix("?"))
    return type_ == "Scalar" and other in {"int", "float", "complex"}


def _shown(results: list[str]) -> str:
    return results[0] if len(results) == 1 else f"({','.join(results)})"


def _parsed(schema: str) -> tuple[list[_Argument], list[str]]:
    """Return the arguments and the types of the results; names of results are for readers only."""
    arguments, _, results = schema.rpartition("->")
    arguments = arguments.strip().removeprefix("(").removesuffix(")")
    found, keyword = [], False
    for part in _split(arguments):
        if part == "*":
            keyword = True
            continue
        match = _ARGUMENT.fullmatch(part)
        if match is not None:
            found.append(
                _Argument(
                    type="".join(match["type"].split()),
                    name=match["name"] or "",
                    default=match["default"],
                    keyword=keyword,
                )
            )
    results = results.strip()
    returned = _split(results[1:-1]) if results.startswith("(") and results.endswith(")") else [results]
    return found, ["".join(re.sub(r"\s+\w+$", "", each).split()) for each in returned]


def _split(arguments: str) -> list[str]:
    """Return the arguments at the commas outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, letter in enumerate(arguments):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(arguments[start:at].strip())
            start = at + 1
    return [part for part in (*parts, arguments[start:].strip()) if part]
