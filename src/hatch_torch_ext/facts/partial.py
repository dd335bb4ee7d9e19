"""What a partial wheel says of itself: which entries it lacks, and what it was built from."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.errors import WheelError

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELD = "partial"
"""Of the manifest's head; a whole wheel has none."""
_LOCAL = re.compile(r"[+.]part\d+of\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Names of entries, sorted, and digests (SHA-256 in hex) of contents: the same on every machine."""

    entries: tuple[str, ...]
    """All entries that the whole wheel is made of; those without a machine of their own are built on each machine."""
    built: tuple[str, ...]
    """Those that were built: entries that gave the same bytes share a variant, so that variants do not tell."""
    sources: str
    """Of the project's files."""
    configuration: str
    """Of the hook's options that change what is built."""
    builder: str
    """Of hatch-torch-ext itself."""
    machines: tuple[tuple[str, str], ...] = ()
    """(entry, machine) of those of ``entries`` whose variable ``machine`` says for which one they are, sorted."""

    def of(self, names: Iterable[str], machine: str) -> set[str]:
        """Return those of the entries ``names`` that are for ``machine``, or may be."""
        declared = dict(self.machines)
        return {name for name in names if declared.get(name, machine) == machine}

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return the entries that were not built."""
        return tuple(sorted(set(self.entries) - set(self.built)))


def to_json(partial: Partial) -> dict[str, object]:
    """Return ``partial`` as JSON holds it."""
    return dataclasses.asdict(partial)


def from_json(data: object) -> Partial:
    """Return what ``to_json`` described. Raises ``WheelError`` for anything else."""
    names = {field.name for field in dataclasses.fields(Partial)}
    if not isinstance(data, dict) or data.keys() != names:
        raise WheelError(f"`{FIELD}` must be an object with {', '.join(sorted(names))}")
    fields: dict[str, Any] = {}
    for name, value in data.items():
        if name == "machines":
            if not isinstance(value, list) or not all(_is_pair(item) for item in value):
                raise WheelError(f"`{FIELD}.{name}` must be an array of pairs, an entry and its machine")
            fields[name] = tuple((entry, machine) for entry, machine in value)
        elif name not in {"built", "entries"}:
            if not isinstance(value, str) or not value.isprintable():
                raise WheelError(f"`{FIELD}.{name}` must be a string")
            fields[name] = value
        elif isinstance(value, list) and value and all(isinstance(item, str) and item.isprintable() for item in value):
            fields[name] = tuple(value)
        else:
            raise WheelError(f"`{FIELD}.{name}` must be an array of names of entries")
    return Partial(**fields)


def _is_pair(data: object) -> bool:
    return (
        isinstance(data, list)
        and len(data) == 2  # noqa: PLR2004 - a pair
        and all(isinstance(each, str) and each.isprintable() for each in data)
    )


def version(whole: str, part: int, parts: int) -> str:
    """Return the version of a part: ``1.0+part3of8``, which an index refuses since it has a local part."""
    return f"{whole}{'.' if '+' in whole else '+'}part{part}of{parts}"


def whole_version(part: str) -> str:
    """Return the version of the whole that the wheel of version ``part`` belongs to."""
    return _LOCAL.sub("", part)
