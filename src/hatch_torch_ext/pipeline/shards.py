"""The division of entries into shards, what a shard lacks, and the job matrix for GitHub."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext import matrix
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import content, releases
from hatch_torch_ext.facts.manifest import Partial
from hatch_torch_ext.pipeline import inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.pipeline.history import History
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
        raise ConfigurationError(f"`{option} {text}` must be two numbers: `{option} 3/8` is the third of eight parts")
    number, count = int(found[1]), int(found[2])
    if count == 0 or not 1 <= number <= count:
        last = max(count, 1)
        raise ConfigurationError(f"`{option} {text}`: there is no such part: write `1/{last}` to `{last}/{last}`")
    return Shard(number=number, count=count)


def split(entries: Sequence[Entry], count: int, *, times: History | None = None) -> list[tuple[Entry, ...]]:
    """Return ``count`` groups of entries that take about the same time, each in the order of ``entries``.

    ``times`` are those of an earlier build, the same on every machine that builds a shard: with its own history, each
    machine would divide differently. Without them, an entry with CUDA counts as ten without. Raises
    ``ConfigurationError`` for more groups than entries.
    """
    if count > len(entries):
        raise ConfigurationError(
            f"{count} shards of {len(entries)} entries: some would be empty; split into at most {len(entries)}"
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
    config: Config, *, files: Mapping[str, str], whole: Iterable[Entry], built: Iterable[str]
) -> Partial | None:
    """Return what a build of the entries ``built`` lacks of ``whole``; None if it lacks nothing.

    ``files`` maps the project's to their hashes.
    """
    machines = {entry.name: entry.machine for entry in whole}
    expected = set(machines)
    if expected <= set(built):
        return None
    return Partial(
        entries=tuple(sorted(expected)),
        built=tuple(sorted(built)),
        sources=inputs.sources_digest(config, files),
        configuration=inputs.configuration_digest(config),
        builder=inputs.own_digest(),
        machines=tuple(sorted((name, machine) for name, machine in machines.items() if machine is not None)),
    )


MOST = 256
"""The most jobs of one matrix that GitHub accepts."""
ANY = "*"
ALL, ENDS = "all", "ends"
"""In place of globs: every entry; the entry of the oldest torch and that of the newest."""


def pairs(text: str, option: str) -> dict[str, str]:
    """Return the pairs of ``NAME=VALUE NAME=VALUE``. Raises ``ConfigurationError`` for anything else."""
    found = {}
    for item in text.split():
        name, sign, value = item.partition("=")
        if not (name and sign and value):
            raise ConfigurationError(f"`{option}`: `{item}` must be NAME=VALUE, several of them separated by spaces")
        found[name] = value
    if not found:
        raise ConfigurationError(f"`{option}` is empty: write NAME=VALUE, several of them separated by spaces")
    return found


def builds(
    entries: Sequence[Entry],
    *,
    count: int,
    images: Mapping[str, str],
    runners: Mapping[str, str],
    times: History | None = None,
    left_out: Sequence[Entry] = (),
) -> list[dict[str, str]]:
    """Return the build jobs: about ``count`` for each machine of ``runners``, at least one for each image.

    An entry that declares a machine is built there, or on the first of ``runners`` if that machine has none; one that
    declares none is built on each. ``images`` maps a CUDA version (``cpu``, ``12``, ``12.8``, ``*`` for any) to an
    image, in which ``{machine}`` is replaced; an entry that is cross-compiled may have an image under its machine
    (``aarch64``). The entries ``left_out`` are in no job, and the wheel is whole without them. Raises
    ``ConfigurationError`` for an entry without an image and for more jobs than GitHub accepts.
    """
    if count < 1:
        raise ConfigurationError(f"`--shards {count}` must be at least 1")
    found = []
    skipped = ",".join(matrix.glob_of(entry, [*entries, *left_out]) for entry in left_out)
    for machine, runner in sorted(runners.items()):
        here = [entry for entry in entries if entry.machine is None or _runner(entry, runners) == machine]
        by_image: dict[str, list[Entry]] = defaultdict(list)
        for entry in here:
            by_image[_image(entry, images, machine)].append(entry)
        for image, group in by_image.items():
            share = max(1, min(len(group), round(count * len(group) / len(here))))
            found += [
                {
                    "machine": machine,
                    "runner": runner,
                    "image": image.replace("{machine}", machine),
                    "only": ",".join(matrix.glob_of(entry, [*entries, *left_out]) for entry in chosen),
                    "skip": skipped,
                    "key": _key(machine, image, chosen),
                }
                for chosen in split(group, share, times=times)
            ]
    _check(len(found), "take fewer `--shards`")
    return [{**job, "part": f"{number}/{len(found)}", "number": str(number)} for number, job in enumerate(found, 1)]


def tests(entries: Sequence[Entry], runners: Mapping[str, str], *, gpu: str) -> list[dict[str, str]]:
    """Return the test jobs, one for each entry, on its machine, or emulated on the first of ``runners``.

    An entry with CUDA for this machine is tested on the runner ``gpu``, if there is one.

    Raises ``ConfigurationError`` for more jobs than GitHub accepts.
    """
    _check(len(entries), "set the input `test` to nothing and test in a workflow of your own")
    found = []
    for entry in entries:
        machine = _runner(entry, runners)
        emulated = entry.machine if entry.machine not in {None, machine} else ""
        runner = gpu if gpu and entry.gpu is not None and not emulated else runners[machine]
        found.append({"entry": entry.name, "runner": runner, "emulated": emulated or ""})
    return found


def chosen(entries: Sequence[Entry], text: str) -> tuple[Entry, ...]:
    """Return the entries that ``text`` names: globs, separated by commas, ``all``, or ``ends`` (see ``ENDS``).

    Raises ``ConfigurationError`` if there are none.
    """
    if text.strip() == ALL:
        return tuple(entries)
    if text.strip() == ENDS:
        lines = {entry.name: releases.minor_of(entry.torch or "0.0") for entry in entries}
        ends = {min(lines, key=lines.__getitem__), max(reversed(lines), key=lines.__getitem__)} if lines else set()
        return tuple(entry for entry in entries if entry.name in ends)
    found = matrix.matching(entries, list(filter(None, re.split(r"[,\s]+", text))))
    if not found:
        names = ", ".join(f"`{entry.name}`" for entry in entries)
        raise ConfigurationError(
            f"`--entries {text}` names no entry: write `{ALL}`, `{ENDS}` (the oldest and the newest), or globs of "
            f"{names}"
        )
    return tuple(entry for entry in entries if entry.name in found)


def _key(machine: str, image: str, entries: Sequence[Entry]) -> str:
    """Return the key of what a job caches: the SDKs and packages of its entries, and what its compiler compiled."""
    facts = [machine, image, [(entry.name, entry.torch_requirement, entry.python) for entry in entries]]
    return content.digest(facts)[:16]


def _runner(entry: Entry, runners: Mapping[str, str]) -> str:
    """Return the machine of ``runners`` for an entry: its own, else the first."""
    return entry.machine if entry.machine is not None and entry.machine in runners else next(iter(runners))


def _image(entry: Entry, images: Mapping[str, str], machine: str) -> str:
    backend = entry.assumed.name
    elsewhere = [str(entry.machine)] if entry.machine not in {None, machine} else []
    for name in (*elsewhere, backend, backend.partition(".")[0], ANY):
        if name in images:
            return images[name]
    raise ConfigurationError(
        f"{entry.name}: `--images` has no image for `{backend}`: add `{backend}=IMAGE`, or `*=IMAGE` for all others"
    )


def _check(count: int, remedy: str) -> None:
    if count > MOST:
        raise ConfigurationError(f"{count} jobs are more than the {MOST} that a matrix of GitHub may have: {remedy}")
