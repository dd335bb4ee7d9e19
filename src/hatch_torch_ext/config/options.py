"""Typed readers of a raw table of options; every fault is recorded in hatchling's wording, and nothing is mutated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOOK = "for build hook `torch-ext`"
NUL = "must not contain a NUL character, which neither a path nor an argument can have"

Parsed = TypeVar("Parsed")


def describe(name: str) -> str:
    """Return how messages name the option ``name``."""
    return f"Option `{name}` {HOOK}"


def alternatives(texts: Sequence[str]) -> str:
    """Return ```a`, `b` or `c```."""
    quoted = [f"`{text}`" for text in texts]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def suggest(name: str, known: Sequence[str]) -> str | None:
    """Return the known option that ``name`` was probably meant to be, or None.

    Underscores count as dashes, and the last part of a name in a table counts as the name (``build-type``).
    """
    plain = name.lower().replace("_", "-")
    tables = {option.partition(".")[0] for option in known if "." in option}
    by_plain = {option: option for option in [*sorted(tables), *known]}
    by_plain |= {option.replace(".", "-"): option for option in known}
    if plain in by_plain:
        return by_plain[plain]
    last = plain.rpartition(".")[2]
    for option in known:
        if option.rpartition(".")[2] == last:
            return option
    close = get_close_matches(plain, by_plain, n=1) or get_close_matches(last, by_plain, n=1)
    return by_plain[close[0]] if close else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A raw table and its readers; ``prefix`` (``cmake.``) precedes its names in messages, ``problems`` collects them.

    If the value came from an environment variable, ``variable`` is its name, and messages use it. A reader returns None
    for an option that is absent or wrong, so that reading continues to the next fault.
    """

    raw: Mapping[str, object]
    problems: list[str]
    prefix: str = ""
    variable: str | None = None

    def fault(self, name: str, text: str) -> None:
        """Record that the option ``name`` has the fault ``text`` (``must be a string``)."""
        self.problems.append(f"{self._describe(name)} {text}")

    def entry_fault(self, i: int, name: str, text: str) -> None:
        """Record a fault of the ``i``-th entry (from 1) of the option ``name``."""
        option = self._describe(name)
        self.problems.append(f"Entry #{i} of {option[0].lower()}{option[1:]} {text}")

    def _describe(self, name: str) -> str:
        return f"Environment variable `{self.variable}`" if self.variable else describe(self.prefix + name)

    def unknown(self, known: Sequence[str], reserved: Sequence[str] = ()) -> None:
        """Record each name of the table that is neither in ``known`` (full names) nor in ``reserved``."""
        mine = {
            option.removeprefix(self.prefix).partition(".")[0] for option in known if option.startswith(self.prefix)
        }
        for name in self.raw:
            if name in mine or name in reserved:
                continue
            full = self.prefix + name
            meant = suggest(full, known)
            if meant == full:
                remedy = f"write `{meant}` without quotes, so that it is a table"
            elif meant is not None:
                remedy = f"did you mean `{meant}`?"
            else:
                remedy = f"the options are {', '.join(f'`{option}`' for option in known)}"
            self.problems.append(f"Unknown option `{full}` {HOOK}: {remedy}")

    def table(self, name: str) -> Options:
        """Return a reader of the table ``name``; of an empty one if it is absent or not a table."""
        value = self.raw.get(name, {})
        if not isinstance(value, Mapping):
            self.fault(name, "must be a table")
            value = {}
        return Options(raw=value, problems=self.problems, prefix=f"{self.prefix}{name}.")

    def names(self, pattern: str, expected: str) -> list[str]:
        """Return the names in the table that match ``pattern`` in full; the others are faults."""
        kept = []
        for name in self.raw:
            if re.fullmatch(pattern, name):
                kept.append(name)
            else:
                self.fault(name, f"must be named for {expected}")
        return kept

    def string(self, name: str) -> str | None:
        """Return a non-empty string, or None."""
        if name not in self.raw:
            return None
        value = self.raw[name]
        if not isinstance(value, str):
            self.fault(name, "must be a string")
        elif not value.strip():
            self.fault(name, "must not be empty if defined")
        elif "\0" in value:
            self.fault(name, NUL)
        else:
            return value
        return None

    def boolean(self, name: str) -> bool | None:
        """Return a boolean, or None."""
        value = self.raw.get(name)
        if isinstance(value, bool):
            return value
        if name in self.raw:
            self.fault(name, "must be a boolean")
        return None

    def strings(self, name: str, *, or_string: bool = False) -> tuple[str, ...]:
        """Return an array of non-empty strings; with ``or_string``, a string counts as an array of one."""
        value = self.raw.get(name, [])
        if or_string and isinstance(value, str):
            value = [value]
        if not isinstance(value, (list, tuple)):
            self.fault(name, "must be a string or an array of strings" if or_string else "must be an array of strings")
            return ()
        kept = []
        for i, entry in enumerate(value, 1):
            if not isinstance(entry, str):
                self.entry_fault(i, name, "must be a string")
            elif not entry.strip():
                self.entry_fault(i, name, "must not be empty")
            elif "\0" in entry:
                self.entry_fault(i, name, NUL)
            else:
                kept.append(entry)
        return tuple(kept)

    def parsed(self, name: str, parse: Callable[[object], Parsed]) -> Parsed | None:
        """Return ``parse`` of the value, or None; its ``ValueError`` is the fault."""
        if name not in self.raw:
            return None
        try:
            return parse(self.raw[name])
        except ValueError as error:
            self.fault(name, str(error))
            return None

    def parsed_strings(self, name: str, parse: Callable[[str], str]) -> tuple[str, ...]:
        """Return ``parse`` of each entry of an array of strings, each once; its ``ValueError`` is the entry's fault."""
        kept: dict[str, None] = {}
        for i, value in enumerate(self.strings(name), 1):
            try:
                kept[parse(value)] = None
            except ValueError as error:  # noqa: PERF203 - each entry's fault is reported
                self.entry_fault(i, name, str(error))
        return tuple(kept)

    def fields(self, name: str, text: str, allowed: Sequence[str] = ()) -> None:
        """Record braces in ``text`` that are not a field, and fields not in ``allowed`` if that is given.

        The text itself is not repeated: it may contain secrets.
        """
        if re.search(r"[{}]", re.sub(r"\{\w+\}", "", text)):
            self.fault(name, "has a brace that is not part of a field such as `{cuda}`; correct or remove it")
        for field in dict.fromkeys(re.findall(r"\{(\w+)\}", text)):
            if allowed and field not in allowed:
                fields = alternatives([f"{{{field}}}" for field in allowed])
                self.fault(name, f"may contain the field {fields}, not `{{{field}}}`")
