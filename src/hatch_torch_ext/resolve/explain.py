"""Why no wheel was found: what the index does have, nearest first. Used only after resolving failed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from hatch_torch_ext.facts.releases import TORCH_INDEX
from hatch_torch_ext.remote import index
from hatch_torch_ext.remote.http import Http, RemoteError
from hatch_torch_ext.remote.settings import public

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.tags import Tag
    from packaging.version import Version

    from hatch_torch_ext.resolve.values import Scope

SHOWN = 8
ATTEMPTS = 2


def why_none(scope: Scope, requirement: str) -> str | None:
    """Return one sentence on why no wheel fits, and what would, or None if the index does not explain it."""
    required = Requirement(requirement)
    names, problems = _files(scope, required.name)
    found = _versions(names)
    if not found:
        return " ".join(problems) or f"no index has a wheel of {required.name}. Check `index-url`"
    fitting = [version for version in found if required.specifier.contains(version, prereleases=True)]
    if not fitting:
        nearest = ", ".join(str(version) for version in sorted(_nearest(requirement, found)[:SHOWN]))
        elsewhere = _elsewhere(required, scope)
        none = f"no release matches `{requirement}`. The nearest are {nearest}. {elsewhere or 'Correct the matrix'}"
        return " ".join(problems) or none  # nothing is known of an index that does not answer
    best = max(fitting)
    here = {tag for tag in found[best] if tag.platform.endswith(scope.interpreter.machine)}
    if not here:
        platforms = ", ".join(sorted({tag.platform for tag in found[best]}))
        machine = scope.interpreter.machine
        return f"{required.name} {best} has no wheel for {machine} Linux; it has {platforms}. Skip {scope.entry.name}"
    tags = {tag.abi if tag.abi != "none" else tag.interpreter for tag in here}
    pythons = sorted(tags, key=_python_order)
    if scope.interpreter.tag not in pythons:
        return (
            f"{required.name} {best} has no wheel for {scope.interpreter.tag}; it has {', '.join(pythons)}. "
            f"Correct `python` in the matrix, or skip {scope.entry.name}"
        )
    return None


def _versions(names: Iterable[str]) -> dict[Version, set[Tag]]:
    """Return the versions of the wheels with these file names, and the tags of each."""
    found: dict[Version, set[Tag]] = {}
    for name in names:
        try:
            _, version, _, wheel_tags = parse_wheel_filename(name)
        except ValueError:  # an invalid name, or a version with too many digits
            continue
        found.setdefault(version, set()).update(wheel_tags)
    return found


def _elsewhere(required: Requirement, scope: Scope) -> str | None:
    """Return which of torch's own indexes has such builds, unless the entry uses one of them already."""
    specifier = str(required.specifier)
    local = re.search(r"\+(cpu|cu\d+|rocm[\d.]+|xpu)\b", specifier)
    channel = "/nightly" if ".dev" in specifier else "/test" if required.specifier.prereleases else ""
    asks = any(public(index).startswith(TORCH_INDEX) for index in scope.settings.indexes)
    if required.name != "torch" or asks or not (local or channel):
        return None
    return f'torch\'s own index may have it: `index-url = "{TORCH_INDEX}{channel}/{local[1] if local else "cpu"}"`'


def _nearest(requirement: str, versions: Iterable[Version]) -> list[Version]:
    numbers = [int(number[:9]) for number in re.findall(r"\d+", requirement.rpartition("==")[2].partition("+")[0])][:3]
    target = (*numbers, 0, 0, 0)[:3]

    def distance(version: Version) -> tuple[int, ...]:
        release = (*version.release, 0, 0, 0)[:3]
        return tuple(abs(ours - theirs) for ours, theirs in zip(target, release, strict=True))

    return sorted(sorted(versions, reverse=True), key=distance)


def _python_order(tag: str) -> tuple[int, ...]:
    match = re.match(r"[a-z]+(\d)(\d*)(.*)", tag)
    return (int(match[1]), int(match[2] or 0), len(match[3])) if match else (0,)


def _files(scope: Scope, name: str) -> tuple[list[str], list[str]]:
    files: list[str] = []
    problems: list[str] = []
    settings = scope.settings
    with Http(settings, replace(scope.http.limits, attempts=ATTEMPTS)) as http:
        for place in settings.find_links:
            parts = urlsplit(place)
            folder = Path(unquote(parts.path) if parts.scheme == "file" else place)
            if parts.scheme in {"", "file"}:
                files += [path.name for path in folder.glob("*.whl")] if folder.is_dir() else []
            else:
                files += _page(http, place, problems)
        for place in settings.indexes:
            files += _page(http, f"{place.rstrip('/')}/{name}/", problems)
    return [file for file in files if file.startswith(f"{name}-")], problems


def _page(http: Http, url: str, problems: list[str]) -> list[str]:
    """Return the names of the files that a page lists; a fault of it is appended to ``problems``."""
    if urlsplit(url).scheme == "file":
        return []
    try:
        return [file.name for file in index.page(http, url)]
    except RemoteError as error:
        problems.append(f"{error}.")
        return []
