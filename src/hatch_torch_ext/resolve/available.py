"""The published builds of torch: from the configured indexes and torch's own, kept for a day, else from the tables."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.facts import builds, releases
from hatch_torch_ext.facts.builds import Build
from hatch_torch_ext.remote import index
from hatch_torch_ext.remote.http import RemoteError
from hatch_torch_ext.remote.settings import public

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.store import Store

TABLES = "the tables of this hatch-torch-ext"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published builds, sorted, and the source of each kind of fact, in words for people.

    ``answered``: at least one index answered.
    """

    builds: tuple[Build, ...]
    releases_from: str
    backends_from: str
    answered: bool


def ask(http: Http, store: Store, indexes: Sequence[str], own: str, *, report: Callable[[str], None]) -> Published:
    """Return the builds of torch on ``indexes`` and on ``own``, which is laid out as torch's own index is.

    An index that does not answer is reported by ``report``; an older answer of it is used, else the tables.
    """
    general = [build for place in indexes for build in _of_place(http, store, place, report)]
    special = [build for build in general if build.backend != "default"]
    names, source = [public(place) for place in indexes], ""
    if not any(build.backend != "cpu" for build in special):
        special += _of_own(http, store, own, report)
        source = public(own)
    if not general and not special:
        lines = [releases.format_minor(minor) for minor in releases.PUBLISHED_PYTHONS]
        found = tuple(sorted(builds.of_tables(lines), key=_order))
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
        if name == "cpu" and not found:  # absent, or laid out otherwise: do not send twenty more requests
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
    found = sorted({build for file in files if not file.yanked for build in builds.of_name(file.name)}, key=_order)
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
