"""The description of a partial wheel: which entries it lacks, and what it was built from."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.base.errors import WheelError

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELD = "partial"
"""The key in the manifest's head; a complete wheel has none."""
_LOCAL = re.compile(r"[+.]part\d+of\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Names of entries, sorted, and digests (SHA-256 in hex) of inputs, which are the same on every machine."""

    entries: tuple[str, ...]
    """All entries of the complete wheel; those that declare no machine are built on each machine."""
    built: tuple[str, ...]
    """The entries that were built. Variants do not tell: entries with the same bytes share one."""
    sources: str
    """The digest of the project's files."""
    configuration: str
    """The digest of the hook's options that affect what is built."""
    builder: str
    """The digest of hatch-torch-ext itself."""
    machines: tuple[tuple[str, str], ...] = ()
    """(entry, machine) of the ``entries`` that declare the variable ``machine``, sorted."""

    def of(self, names: Iterable[str], machine: str) -> set[str]:
        """Return those of the entries ``names`` that are for ``machine``, or declare none."""
        declared = dict(self.machines)
        return {name for name in names if declared.get(name, machine) == machine}

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return the entries that were not built."""
        return tuple(sorted(set(self.entries) - set(self.built)))


def to_json(partial: Partial) -> dict[str, object]:
    """Return ``partial`` in JSON form."""
    return dataclasses.asdict(partial)


def from_json(data: object) -> Partial:
    """Return the ``Partial`` of that form. Raises ``WheelError`` for anything else."""
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
    """Return the version of a partial wheel: ``1.0+part3of8``, which an index refuses since it has a local part."""
    return f"{whole}{'.' if '+' in whole else '+'}part{part}of{parts}"


def whole_version(part: str) -> str:
    """Return the version of the complete wheel to which a partial wheel of version ``part`` belongs."""
    return _LOCAL.sub("", part)
