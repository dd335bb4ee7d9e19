"""The job matrix that builds a project on GitHub: which entries, in which image, on which runner."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from hatch_torch_ext import matrix
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.pipeline import shards

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.pipeline.memory import History
    from hatch_torch_ext.values import Entry

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
            raise ConfigurationError([f"`{option}`: `{item}` must be NAME=VALUE, several of them separated by spaces"])
        found[name] = value
    if not found:
        raise ConfigurationError([f"`{option}` is empty: write NAME=VALUE, several of them separated by spaces"])
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
        raise ConfigurationError([f"`--shards {count}` must be at least 1"])
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
                for chosen in shards.split(group, share, times=times)
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
    found = matrix.reached(entries, list(filter(None, re.split(r"[,\s]+", text))))
    if not found:
        names = ", ".join(f"`{entry.name}`" for entry in entries)
        raise ConfigurationError(
            [
                f"`--entries {text}` names no entry: write `{ALL}`, `{ENDS}` (the oldest and the newest), or globs of "
                f"{names}"
            ]
        )
    return tuple(entry for entry in entries if entry.name in found)


def _key(machine: str, image: str, entries: Sequence[Entry]) -> str:
    """Return the key of what a job caches: the SDKs and packages of its entries, and what its compiler compiled."""
    facts = [machine, image, [(entry.name, entry.torch_requirement, entry.python) for entry in entries]]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


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
        [f"{entry.name}: `--images` has no image for `{backend}`: add `{backend}=IMAGE`, or `*=IMAGE` for all others"]
    )


def _check(count: int, remedy: str) -> None:
    if count > MOST:
        raise ConfigurationError([f"{count} jobs are more than the {MOST} that a matrix of GitHub may have: {remedy}"])
