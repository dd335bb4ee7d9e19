"""The wheels of one version of a project on the configured indexes: of each tag, the highest build number."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.remote import index
from hatch_torch_ext.remote.http import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.tags import Tag

    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.remote.index import IndexFile


def fetch(text: str, http: Http, folder: Path) -> tuple[Path, ...]:
    """Write the wheels of ``NAME==VERSION`` into ``folder``; return their paths, sorted.

    Raises ``ConfigurationError`` for another text, for a version that no index has as a wheel, and if an index fails.
    """
    try:
        requirement = Requirement(text)
        (exact,) = [each.version for each in requirement.specifier if each.operator == "=="]
        version = Version(exact)
    except (InvalidRequirement, InvalidVersion, ValueError) as error:
        raise ConfigurationError(
            [f"`{text}` is neither a wheel nor a published version of a project: write `NAME==VERSION`"]
        ) from error
    name = canonicalize_name(requirement.name)
    files: list[IndexFile] = []
    problems = []
    for place in (*http.settings.find_links, *http.settings.indexes):
        try:
            files += index.files(http, place, name)
        except RemoteError as error:  # noqa: PERF203 -- a handful of indexes
            problems.append(str(error))
    chosen = newest(files, name, version)
    if not chosen:
        why = f" ({problems[0]})" if problems else ""
        raise ConfigurationError([f"No index has a wheel of {name} {version}{why}. Download it, and name the file"])
    try:
        return tuple(_write(file, http, folder) for file in chosen)
    except RemoteError as error:
        raise ConfigurationError([f"{error}. Download the wheel by other means, and name the file"]) from error


def newest(files: Iterable[IndexFile], name: str, version: Version) -> tuple[IndexFile, ...]:
    """Return the wheels of that version, of each tag the one with the highest build number, by name."""
    found: dict[frozenset[Tag], tuple[tuple[int, str] | tuple[()], IndexFile]] = {}
    for file in files:
        try:
            project, own, build, tags = parse_wheel_filename(file.name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        if (project, own) == (name, version) and not file.yanked and (tags not in found or found[tags][0] < build):
            found[tags] = build, file
    return tuple(sorted((file for _, file in found.values()), key=lambda file: file.name))


def _write(file: IndexFile, http: Http, folder: Path) -> Path:
    target, parts = folder / file.name, urlsplit(file.url)
    if parts.scheme == "file":
        shutil.copyfile(Path(unquote(parts.path)), target)
    else:
        http.download(file.url, target, file.sha256, lambda _: None, promised=file.size)
    return target
