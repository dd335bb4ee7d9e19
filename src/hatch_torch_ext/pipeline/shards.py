"""Parts of the whole: what a build lacks of its matrix, and a fair division of entries into shards; and its origin."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import __version__
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.config.declaration import affecting, declared
from hatch_torch_ext.facts.manifest import SHORT, Origin, Partial
from hatch_torch_ext.facts.project import is_compiled
from hatch_torch_ext.pipeline import memory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.pipeline.memory import History
    from hatch_torch_ext.values import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Part ``number`` of ``count``, counted from 1."""

    number: int
    count: int


def parse_shard(text: str, option: str = "--shard") -> Shard:
    """Return the shard ``3/8``. Raises ``ConfigurationError`` for anything but an existing part."""
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if found is None:
        raise ConfigurationError([f"`{option} {text}` must be two numbers: `{option} 3/8` is the third of eight parts"])
    number, count = int(found[1]), int(found[2])
    if count == 0 or not 1 <= number <= count:
        last = max(count, 1)
        raise ConfigurationError([f"`{option} {text}`: there is no such part: write `1/{last}` to `{last}/{last}`"])
    return Shard(number=number, count=count)


def split(entries: Sequence[Entry], count: int, *, times: History | None = None) -> list[tuple[Entry, ...]]:
    """Return ``count`` groups of entries that take about the same time, each in the order of ``entries``.

    ``times`` are those of an earlier build, the same on every machine that builds a shard: with its own history, each
    machine would divide differently. Without them, an entry with CUDA counts as ten without. Raises
    ``ConfigurationError`` for more groups than entries.
    """
    if count > len(entries):
        raise ConfigurationError(
            [f"{count} shards of {len(entries)} entries: some would be empty; split into at most {len(entries)}"]
        )
    weights = _weights(entries, times)
    groups: list[list[Entry]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for entry in sorted(entries, key=lambda entry: (-weights[entry.name], entry.name)):
        lightest = min(range(count), key=lambda index: (loads[index], len(groups[index]), index))
        groups[lightest].append(entry)
        loads[lightest] += weights[entry.name]
    return [tuple(entry for entry in entries if entry in group) for group in groups]


def _weights(entries: Sequence[Entry], times: History | None) -> dict[str, float]:
    kinds = {entry.name: entry.assumed.weight for entry in entries}
    known = {name: took.seconds for name in kinds if times is not None and (took := times.of(name)) is not None}
    if not known:
        return kinds
    per_kind = sum(known.values()) / sum(kinds[name] for name in known)
    return {name: known.get(name, kind * per_kind) for name, kind in kinds.items()}


def describe(
    config: Config, *, project: Mapping[str, str], whole: Iterable[Entry], built: Iterable[str]
) -> Partial | None:
    """Return what a build of the entries ``built`` lacks of ``whole``; None if it lacks nothing.

    ``project`` maps the project's files to their hashes.
    """
    machines = {entry.name: entry.machine for entry in whole}
    expected = set(machines)
    if expected <= set(built):
        return None
    return Partial(
        entries=tuple(sorted(expected)),
        built=tuple(sorted(built)),
        sources=sources_digest(config, project),
        configuration=configuration_digest(config),
        builder=memory.own_digest(),
        machines=tuple(sorted((name, machine) for name, machine in machines.items() if machine is not None)),
    )


def sources_digest(config: Config, project: Mapping[str, str]) -> str:
    """Return a digest of the project's files by content, independent of the project's place."""
    return _digest(sorted((memory.place(config, path), content) for path, content in project.items()))


def configuration_digest(config: Config) -> str:
    """Return a digest of the options that affect a variant, independent of the project's place."""
    return _digest([(name, repr(getattr(config, name)).replace(str(config.root), "")) for name in affecting()])


def origin(config: Config, *, project: Mapping[str, str], sdist: Collection[str]) -> Origin:
    """Return what a wheel of the project is built from; ``project`` maps the project's files to their hashes.

    ``sdist`` are the files that an sdist would hold: a wheel that is built from one has the same origin. What is beside
    the sources counts as far as compilers read it, so that other tools' files do not change the wheel.
    """
    inside = config.source if config.source != config.root else None
    whole = memory.place(config, str(config.source / "CMakeLists.txt")).removeprefix("root/") not in sdist
    folders: dict[str, list[tuple[str, str]]] = {}
    for path, content in project.items():
        place = memory.place(config, path).removeprefix("root/")
        folder, _, name = place.rpartition("/")
        below = inside is not None and Path(path).is_relative_to(inside)
        if (whole or place in sdist) and (below or is_compiled(name)):
            folders.setdefault(folder or ".", []).append((name, content.partition(" of ")[0]))  # a large file's time
    options = {
        option.name: _digest(repr(getattr(value, name)).replace(str(config.root), ""))[:SHORT]
        for value in (config, config.cmake)
        for name, option in declared(type(value)).items()
        if option.affects == "wheel" and getattr(value, name) != option.default
    }
    return Origin(
        version=__version__,
        options=tuple(sorted(options.items())),
        folders=tuple((name, _digest(sorted(files))[:SHORT]) for name, files in sorted(folders.items())),
    )


def source_folder(config: Config) -> str:
    """Return the folder of CMakeLists.txt as an ``Origin`` names it."""
    return memory.place(config, str(config.source / "CMakeLists.txt")).removeprefix("root/").rpartition("/")[0] or "."


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()
