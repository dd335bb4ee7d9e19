"""Facts of torch's releases that change over time, what a specifier admits, and since when a function exists."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from packaging.version import InvalidVersion, Version

from hatch_torch_ext.facts.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.specifiers import SpecifierSet

Minor: TypeAlias = tuple[int, int]
"""A torch release line: (major, minor)."""

TORCH_INDEX = "https://download.pytorch.org/whl"
"""torch's own package index; below it each backend (``cpu``, ``cu128``) has an index with only its builds.

The loader, which imports nothing of this package, has the address too; a test compares the two.
"""

FIRST_STABLE_ABI: Minor = (2, 10)
"""The first release whose headers enforce the stable ABI (``TORCH_TARGET_VERSION``)."""

LAST_MINOR = {1: 13}
"""The last minor of each major that gets no more releases."""

MINORS_PER_MAJOR = 40
"""More minors than the current major will get: 1.x ended at 13, 2.x is at 15 after four years."""

MAJORS = (1, 2, 3)

# The builds that torch publishes, from the compatibility matrix in RELEASE.md of pytorch/pytorch (November 2026);
# "experimental" ones included. Only the majors are compared with a matrix: an author's own builds may use other minors.
PUBLISHED_CUDA: dict[Minor, tuple[str, ...]] = {
    (1, 12): ("11.3", "11.6"),
    (1, 13): ("11.6", "11.7"),
    (2, 0): ("11.7", "11.8"),
    (2, 1): ("11.8", "12.1"),
    (2, 2): ("11.8", "12.1"),
    (2, 3): ("11.8", "12.1"),
    (2, 4): ("11.8", "12.1", "12.4"),
    (2, 5): ("11.8", "12.1", "12.4"),
    (2, 6): ("11.8", "12.4", "12.6"),
    (2, 7): ("11.8", "12.6", "12.8"),
    (2, 8): ("12.6", "12.8", "12.9"),
    (2, 9): ("12.6", "12.8", "13.0"),
    (2, 10): ("12.6", "12.8", "13.0"),
    (2, 11): ("12.6", "12.8", "13.0"),
    (2, 12): ("12.6", "13.0", "13.2"),
    (2, 13): ("12.6", "13.0", "13.2"),
    (2, 14): ("12.6", "13.0", "13.2"),
}

# The one of these that PyPI has, as its wheels for Linux on x86-64 say themselves.
INDEX_CUDA: dict[Minor, str] = {
    (1, 13): "11.7",
    (2, 0): "11.7",
    (2, 1): "12.1",
    (2, 2): "12.1",
    (2, 3): "12.1",
    (2, 4): "12.1",
    (2, 5): "12.4",
    (2, 6): "12.4",
    (2, 7): "12.6",
    (2, 8): "12.8",
    (2, 9): "12.8",
    (2, 10): "12.8",
    (2, 11): "13.0",
    (2, 12): "13.0",
    (2, 13): "13.0",
    (2, 14): "13.0",
    (2, 15): "13.2",
}

# The first and the last CPython (39, 313: cp39 to cp313) of the wheels on PyPI for manylinux x86-64 (November 2026).
PUBLISHED_PYTHONS: dict[Minor, tuple[int, int]] = {
    (1, 13): (37, 311),
    (2, 0): (38, 311),
    (2, 1): (38, 311),
    (2, 2): (38, 312),
    (2, 3): (38, 312),
    (2, 4): (38, 312),
    (2, 5): (39, 313),
    (2, 6): (39, 313),
    (2, 7): (39, 313),
    (2, 8): (39, 313),
    (2, 9): (310, 314),
    (2, 10): (310, 314),
    (2, 11): (310, 314),
    (2, 12): (310, 314),
    (2, 13): (310, 314),
    (2, 14): (310, 314),
    (2, 15): (311, 315),
}
NEWEST: Minor = max(PUBLISHED_PYTHONS)
"""The newest release line that these tables know."""


def minor_of(version: str) -> Minor:
    """Return the release line of ``version`` (``2.8``, ``2.8.1+cu128``, ``2.9.0.dev20250801``).

    Raises ``ValueError`` if it is not a version, or has no minor.
    """
    try:
        release = Version(version).release
    except InvalidVersion as error:
        raise ValueError(str(error)) from error
    if len(release) < 2:  # noqa: PLR2004 - major and minor
        raise ValueError(f"Version without a minor: '{version}'")
    return release[0], release[1]


def format_minor(minor: Minor) -> str:
    """Return ``2.8`` for (2, 8)."""
    return f"{minor[0]}.{minor[1]}"


def last_minor(major: int) -> int:
    """Return the last minor of ``major``, or the highest that it may reach while it gets releases."""
    return LAST_MINOR.get(major, MINORS_PER_MAJOR)


def admitted_versions(specifier: SpecifierSet) -> tuple[Version, ...]:
    """Return, sorted, versions of torch that ``specifier`` admits: patches 0 to 9 of every line, and those it names.

    Named ones matter if it asks for a local part or a pre-release (``==2.8.0+cu128``).
    """
    named = filter(None, (_version(clause.version.removesuffix(".*")) for clause in specifier))
    candidates = {*_patches(), *named}
    return tuple(sorted(specifier.filter(candidates, prereleases=True)))


@cache
def _patches() -> tuple[Version, ...]:
    lines = [(major, minor) for major in MAJORS for minor in range(last_minor(major) + 1)]
    return tuple(Version(f"{major}.{minor}.{patch}") for major, minor in lines for patch in range(10))


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except ValueError:  # the operator `===` takes any text
        return None


def minors_of(versions: Iterable[Version]) -> tuple[Minor, ...]:
    """Return the release lines of ``versions``, sorted, each once."""
    return tuple(sorted({(version.major, version.minor) for version in versions}))


def cuda_majors(minor: Minor) -> tuple[int, ...]:
    """Return the CUDA majors that builds of this torch may have; of lines newer than the table, the next one too."""
    newest = max(PUBLISHED_CUDA)
    oldest = min(PUBLISHED_CUDA)
    versions = PUBLISHED_CUDA[min(max(minor, oldest), newest)] if minor not in PUBLISHED_CUDA else PUBLISHED_CUDA[minor]
    majors = {int(version.partition(".")[0]) for version in versions}
    if minor > newest:
        majors.add(max(majors) + 1)
    return tuple(sorted(majors))


def published(minor: Minor) -> tuple[Backend, ...]:
    """Return the backends for which this torch was published, the CPU first; empty if the table lacks the line."""
    versions = PUBLISHED_CUDA.get(minor, ())
    return (Backend("cpu"), *(Backend("cuda", version) for version in versions)) if versions else ()


def known_backends() -> tuple[Backend, ...]:
    """Return the backends of all releases in the table, each once: the CPU, then the newest first."""
    found = {each for minor in PUBLISHED_CUDA for each in published(minor)}
    return tuple(sorted(found, key=lambda each: (each.is_gpu, *(-number for number in each.numbers))))


def may_have(minor: Minor, backend: Backend) -> bool:
    """Return whether builds of this torch may be for the backend: only majors count, authors build other minors."""
    return not backend.is_gpu or minor not in PUBLISHED_CUDA or backend.major in cuda_majors(minor)


def index_cuda(minor: Minor) -> str:
    """Return the CUDA version of this torch's wheel on PyPI; outside of the table, that of the line next to it."""
    return INDEX_CUDA[min(max(minor, min(INDEX_CUDA)), max(INDEX_CUDA))]


def published_pythons(line: str, *, later: bool) -> tuple[int, int]:
    """Return the first and the last CPython of the wheels of torch's ``line`` (``2.8``).

    With ``later``, later lines count too. While there is no last one, it is 399.
    """
    first, last = PUBLISHED_PYTHONS.get(minor_of(line), (min(PUBLISHED_PYTHONS.values())[0], 399))
    return first, 399 if later else last


def cxx11_abi(line: str, machine: str, cuda: str | None = None) -> bool:
    """Return which C++ ABI torch's own Linux wheels of ``line`` (``2.6``) have.

    They changed to the C++11 ABI with 2.7 on x86-64 and with 2.6 on aarch64; the build of 2.6 for CUDA 12.6 changed
    earlier (pytorch's ``RELEASE.md`` and release notes of 2.6).
    """
    first = (2, 6) if machine == "aarch64" or cuda == "12.6" else (2, 7)
    return minor_of(line) >= first


def torch_requirement(served: Iterable[tuple[str, bool]], *, open_ended: bool = False) -> str:
    """Return the ``Requires-Dist`` that admits exactly the releases that variants serve, such as ``torch>=2.8,<2.10``.

    ``served`` holds (release line, stable ABI) of the variants: an exact variant serves its line, a stable-ABI one its
    line and all later ones, so only the latter leaves the upper end open. No pre-release is named, since installers
    would then accept pre-releases. With ``open_ended`` every release from the lowest on is admitted, as for a wheel
    that is built where no variant fits; without any variant, every release.
    """
    pairs = [(minor_of(line), stable) for line, stable in served]
    if open_ended:
        return f"torch>={format_minor(min(line for line, _ in pairs))}" if pairs else "torch"
    exact = {line for line, stable in pairs if not stable}
    stable_from = min((line for line, stable in pairs if stable), default=None)
    lowest = min(line for line, _ in pairs)
    bounds = [f">={format_minor(lowest)}"]
    if stable_from is None:
        major, minor = max(exact)
        bounds.append(f"<{major}.{minor + 1}")
    last = stable_from or max(exact)
    return ",".join(["torch" + bounds[0], *bounds[1:], *_gaps(lowest, last, exact)])


def is_prerelease(version: str) -> bool:
    """Return whether a torch is not a final release: ``2.14.0.dev20261101``, ``2.13.0a0+git1f2``."""
    try:
        return Version(version).is_prerelease
    except ValueError:  # InvalidVersion, and int() of too many digits: the manifest is not trusted
        return False


def _gaps(lowest: Minor, last: Minor, exact: set[Minor]) -> Iterator[str]:
    """Yield ``!=2.10.*`` for each line between ``lowest`` and ``last`` that is not in ``exact``."""
    for major in range(lowest[0], last[0] + 1):
        first = lowest[1] + 1 if major == lowest[0] else 0
        end = last[1] if major == last[0] else last_minor(major) + 1
        missing = [minor for minor in range(first, end) if (major, minor) not in exact]
        if major not in {lowest[0], last[0]} and len(missing) == end:
            yield f"!={major}.*"
        else:
            yield from (f"!={major}.{minor}.*" for minor in missing)


_SHIM = re.compile(r"aoti_torch_\w+|torch_[a-z]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LowestTorch:
    """The lowest release line that has every stable-ABI function among a file's symbols.

    ``functions`` are those that no earlier line has, sorted; ``unknown`` are named like functions of the stable ABI and
    are in no release of the table: either newer than it, or not torch's.
    """

    torch: Minor
    functions: tuple[str, ...]
    unknown: tuple[str, ...]


def lowest_for(symbols: Iterable[str]) -> LowestTorch | None:
    """Return the lowest torch for a file with these undefined symbols; None if it uses no such function."""
    shims = {symbol for symbol in symbols if _SHIM.fullmatch(symbol)}
    since = {symbol: _table()[symbol] for symbol in shims & _table().keys()}
    if not since:
        return None
    torch = max(since.values())
    return LowestTorch(
        torch=torch,
        functions=tuple(sorted(symbol for symbol, minor in since.items() if minor == torch)),
        unknown=tuple(sorted(shims - since.keys())),
    )


def newest_of_shims() -> Minor:
    """Return the newest release line of the table."""
    return max(_table().values())


@cache
def _table() -> Mapping[str, Minor]:
    text = Path(__file__).with_name("shims.json").read_text(encoding="utf-8")
    since: dict[str, list[str]] = json.loads(text)["since"]
    return {name: minor_of(line) for line, names in since.items() for name in names}
