"""What a wheel was built from, as its manifest records it, so that entries can be added to it later: see ``extend``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from hatch_torch_ext.base.errors import WheelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIELD = "origin"
"""The key in the manifest's head; wheels of older versions have none."""
SHORT = 16
"""Digits of a digest: enough to notice a change."""
_DIGEST = re.compile(f"[0-9a-f]{{{SHORT}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The sources and the configuration of a wheel, the same on every machine, and whether built from an sdist or not.

    The matrix is not part of it: more entries are no reason for another wheel.
    """

    version: str
    """Of hatch-torch-ext."""
    options: tuple[tuple[str, str], ...]
    """(option, digest) of the hook's options that affect what is built and are not at their defaults, sorted."""
    folders: tuple[tuple[str, str], ...]
    """(folder of the project, digest of the files in it that a build may read), sorted; ``.`` is the project's own."""


def to_json(origin: Origin) -> dict[str, object]:
    """Return ``origin`` in JSON form."""
    return {"version": origin.version, "options": dict(origin.options), "folders": dict(origin.folders)}


def from_json(data: object) -> Origin:
    """Return the ``Origin`` of that form; fields of later versions are left out. Raises ``WheelError``."""
    if not isinstance(data, dict) or not _is_version(data.get("version")):
        raise WheelError(f"`{FIELD}` must be an object with the `version` of hatch-torch-ext")
    return Origin(version=str(data["version"]), options=_digests(data, "options"), folders=_digests(data, "folders"))


def is_newer(origin: Origin, version: str) -> bool:
    """Return whether a later release of hatch-torch-ext than ``version`` built the wheel."""
    return Version(origin.version) > Version(version)


def differences(wheel: Origin, here: Origin, *, source: str) -> Iterator[str]:
    """Yield what of the project ``here`` differs from that of the ``wheel``, in words for a message.

    ``source`` is the folder of CMakeLists.txt. A folder outside of it that only one of the two has is not compared: a
    checkout has folders that an sdist lacks.
    """
    for name in _differing(wheel.options, here.options):
        yield f"the option `{name}`"
    both = dict(wheel.folders).keys() & dict(here.folders).keys()
    for name in _differing(wheel.folders, here.folders):
        if name in both or source == "." or f"{name}/".startswith(f"{source}/"):
            yield "the files of the project's own folder" if name == "." else f"the files in `{name}`"


def _differing(ours: tuple[tuple[str, str], ...], theirs: tuple[tuple[str, str], ...]) -> list[str]:
    return sorted({name for name, _ in {*ours} ^ {*theirs}})


def _is_version(data: object) -> bool:
    try:
        return isinstance(data, str) and bool(Version(data))
    except InvalidVersion:
        return False


def _digests(data: Mapping[object, object], field: str) -> tuple[tuple[str, str], ...]:
    found = data.get(field)
    if not isinstance(found, dict):
        raise WheelError(f"`{FIELD}.{field}` must be an object of digests")
    for name, value in found.items():
        if not (isinstance(name, str) and name.isprintable() and isinstance(value, str) and _DIGEST.fullmatch(value)):
            raise WheelError(f"`{FIELD}.{field}` must map names to digests of {SHORT} hexadecimal digits")
    return tuple(sorted(found.items()))
