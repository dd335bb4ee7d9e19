"""What indexes have: the builds of torch, cached for a day, else from the tables; and the wheels of one version."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import labels, releases
from hatch_torch_ext.facts.labels import Build
from hatch_torch_ext.remote import index
from hatch_torch_ext.remote.http import RemoteError
from hatch_torch_ext.remote.settings import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from packaging.tags import Tag

    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.remote.index import IndexFile
    from hatch_torch_ext.store import Store

TABLES = "the tables of this hatch-torch-ext"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published builds, sorted, and the source of each kind of fact, in words for messages.

    ``answered`` is True if at least one index answered.
    """

    builds: tuple[Build, ...]
    releases_from: str
    backends_from: str
    answered: bool


def published(
    http: Http, store: Store, indexes: Sequence[str], own: str, *, report: Callable[[str], None]
) -> Published:
    """Return the builds of torch on ``indexes`` and on ``own``, an index with the folders of torch's own.

    If an index does not answer, ``report`` gets a line; its last answer is used, else the tables.
    """
    general = [build for place in indexes for build in _of_place(http, store, place, report)]
    special = [build for build in general if build.backend != "default"]
    names, source = [public(place) for place in indexes], ""
    if not any(build.backend != "cpu" for build in special):
        special += _of_own(http, store, own, report)
        source = public(own)
    if not general and not special:
        lines = [releases.format_minor(minor) for minor in releases.PUBLISHED_PYTHONS]
        found = tuple(sorted(labels.of_tables(lines), key=_order))
        return Published(builds=found, releases_from=TABLES, backends_from=TABLES, answered=False)
    known = any(build.backend != "cpu" for build in special)
    lines_with_builds = {(build.line, build.machine) for build in special}
    rest = [build for build in general if build.backend == "default"]
    if known:
        rest = [build for build in rest if (build.line, build.machine) not in lines_with_builds]
    else:
        rest = [
            Build(line=build.line, backend=backend, machine=build.machine, python=build.python)
            for build in rest
            for backend in _backends(build)
        ]
    return Published(
        builds=tuple(sorted({*special, *rest}, key=_order)),
        releases_from=", ".join(names),
        backends_from=(source or ", ".join(names)) if known else TABLES,
        answered=True,
    )


def _backends(build: Build) -> tuple[str, ...]:
    return tuple(each.name for each in releases.published(build.minor)) or ("default",)


def _order(build: Build) -> tuple[object, ...]:
    return (
        build.minor,
        build.backend != "cpu",
        _numbers(build.backend),
        build.machine,
        _numbers(build.python),
        build.python,
    )


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a backend's version or a CPython tag, as a sort key: 39 comes before 310."""
    if (tag := re.match(r"cp(\d)(\d+)", text)) is not None:
        return int(tag[1]), int(tag[2])
    return tuple(int(part) for part in text.split(".")) if re.fullmatch(r"\d+(\.\d+)*", text) else ()


def _of_own(http: Http, store: Store, own: str, report: Callable[[str], None]) -> list[Build]:
    """Return the builds of torch's own index: those on its page of everything, else of each backend in the tables."""
    problems: list[str] = []
    if whole := _of_place(http, store, own, problems.append):
        return whole
    found: list[Build] = []
    for name in (backend.tag for backend in releases.known_backends()):
        found += _of_place(http, store, f"{own.rstrip('/')}/{name}", problems.append)
        if name == "cpu" and not found:  # absent, or with other folders: do not send twenty more requests
            break
    if not found and problems:
        report(problems[0])
    return found


def _of_place(http: Http, store: Store, place: str, report: Callable[[str], None]) -> list[Build]:
    """Return the builds on one index, which is read at most once a day."""
    name = f"published-{hashlib.sha256(public(place).encode()).hexdigest()}.json"
    kept = store.answer(name, _builds)
    if kept is not None and kept.is_fresh:
        return kept.value
    try:
        files = index.files(http, place, "torch")
    except RemoteError as error:
        if kept is not None:
            report(f"{error}; what it had on {time.strftime('%Y-%m-%d', time.gmtime(kept.time))} is used")
            return kept.value
        report(str(error))
        return []
    found = sorted({build for file in files if not file.yanked for build in labels.of_name(file.name)}, key=_order)
    if found:
        store.keep_answer(name, builds=[asdict(build) for build in found])
    return found


def _builds(answer: Mapping[str, Any]) -> list[Build]:
    """Return the builds in an answer that was kept. Raises ``ValueError`` for anything else."""
    for each in answer["builds"]:
        releases.minor_of(each["line"])
        _numbers(each["backend"])
        _numbers(each["python"])
    return [Build(**each) for each in answer["builds"]]


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
            f"`{text}` is neither a wheel nor a published version of a project: write `NAME==VERSION`"
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
        raise ConfigurationError(f"No index has a wheel of {name} {version}{why}. Download it, and name the file")
    try:
        return tuple(_write(file, http, folder) for file in chosen)
    except RemoteError as error:
        raise ConfigurationError(f"{error}. Download the wheel by other means, and name the file") from error


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
