"""The torch requirement that follows from the matrix, compared with the author's own; pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hatch_torch_ext.values import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How the torch requirements of a project compare with what the matrix serves.

    ``absent``: there are none; ``agrees``: they admit exactly the served releases; ``wider``: those and more;
    ``narrower``: they exclude the torch of the ``unused`` entries; ``excludes``: they admit no served release.
    ``lines`` are the torch requirements whose markers hold on this machine, as written.
    """

    kind: Literal["absent", "agrees", "wider", "narrower", "excludes"]
    lines: tuple[str, ...]
    unused: tuple[str, ...] = ()


def requirement(entries: Sequence[Entry], *, open_ended: bool = False) -> str:
    """Return the requirement that admits exactly the releases of ``entries``: ``torch>=2.8,<2.10``.

    With ``open_ended`` it admits all later releases too, for which the wheel can be built (option `fallback`).

    Raises ``ConfigurationError`` for entries whose torch is known only after it is installed.
    """
    problems = [
        f"{entry.name}: `{entry.torch_requirement}` does not say which release of torch it is, so that the project's "
        "metadata cannot: require one, such as `torch==2.8.*`, or give the matrix a `torch` variable and require "
        '"torch=={matrix:torch}.*"'
        for entry in entries
        if entry.torch is None
    ]
    if problems:
        raise ConfigurationError(problems)
    served = ((str(entry.torch), entry.stable_abi) for entry in entries)
    return releases.torch_requirement(served, open_ended=open_ended)


def compare(dependencies: Iterable[str], entries: Sequence[Entry], *, open_ended: bool = False) -> Agreement:
    """Return how the torch requirements among ``dependencies`` compare with ``entries``.

    A requirement with a marker counts if the marker holds on the machine that builds; direct references (``torch @ …``)
    are ignored.
    """
    found = [each for each in map(_torch, dependencies) if each is not None]
    lines = tuple(map(str, found))
    if not found:
        return Agreement(kind="absent", lines=())
    served = Requirement(requirement(entries, open_ended=open_ended)).specifier
    candidates = {version for each in found for version in releases.admitted_versions(each.specifier)}
    admitted = {
        version for version in candidates if all(each.specifier.contains(version, prereleases=True) for each in found)
    }
    common = {version for version in admitted if served.contains(version, prereleases=True)}
    if not common:
        return Agreement(kind="excludes", lines=lines)
    if all(version in admitted for version in releases.admitted_versions(served)):
        return Agreement(kind="agrees" if common == admitted else "wider", lines=lines)
    minors = releases.minors_of(common)
    unused = tuple(entry.name for entry in entries if not _used(entry, minors))
    return Agreement(kind="narrower", lines=lines, unused=unused)


def of_torch(dependencies: Iterable[str]) -> tuple[str, ...]:
    """Return the torch requirements among ``dependencies``, as ``compare`` counts them."""
    return tuple(str(found) for each in dependencies if (found := _torch(each)) is not None)


def _torch(dependency: str) -> Requirement | None:
    try:
        found = Requirement(dependency)
    except InvalidRequirement:  # hatchling refuses it
        return None
    if canonicalize_name(found.name) != "torch" or found.url is not None:
        return None
    return found if found.marker is None or found.marker.evaluate({"extra": ""}) else None


def _used(entry: Entry, minors: Sequence[releases.Minor]) -> bool:
    line = releases.minor_of(str(entry.torch))
    return any(minor >= line if entry.stable_abi else minor == line for minor in minors)
