"""Entries of the matrix, and the choice among them: by `only` and `skip`, by the machine, for an installed torch."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from fnmatch import translate
from glob import escape
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.backend import VARIABLE, Backend
from hatch_torch_ext.facts.labels import possible, python_tag
from hatch_torch_ext.values import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hatch_torch_ext.facts.releases import Minor


def select(
    entries: Sequence[Entry],
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    describe: Callable[[str], str] = "`{}`".format,
) -> tuple[Entry, ...]:
    """Return the entries that ``only`` names (all if it is empty) and ``skip`` does not, in their order.

    A glob that matches names of entries selects those; any other is compared with every label that an entry may get,
    since the label is certain only after the build. ``describe`` returns how messages name an option.

    Raises ``ConfigurationError`` if no entry remains, or if the entries without those of ``skip`` cannot form one
    wheel: two of them have the same label, or torch has no builds for a CUDA.
    """
    kept = filter_entries(entries, only=(), skip=skip)
    chosen = filter_entries(entries, only=only, skip=skip)
    if not chosen and entries:
        names = ", ".join(f"`{entry.name}`" for entry in entries)
        options = " and ".join(
            f"{describe(option)} ({', '.join(f'`{glob}`' for glob in globs)})"
            for option, globs in (("only", only), ("skip", skip))
            if globs
        )
        verb = "leave" if only and skip else "leaves"
        problem = (
            f"{options} {verb} no entry of the matrix to build; globs match an entry's name or a label such as "
            f"`torch2.8_cpu_cxx11_x86_64`, and the entries are {names}"
        )
        raise ConfigurationError(problem)
    if problems := [*_impossible_pairs(kept), *_collisions(kept)]:
        raise ConfigurationError(*problems)
    return chosen


def filter_entries(entries: Sequence[Entry], *, only: Sequence[str], skip: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries that ``only`` and ``skip`` select, whether or not they can form one wheel."""
    skipped, named = matching(entries, skip), matching(entries, only)
    return tuple(entry for entry in entries if entry.name not in skipped and (not only or entry.name in named))


def glob_of(entry: Entry, entries: Sequence[Entry]) -> str:
    """Return a glob that matches only ``entry`` of ``entries``, without commas and spaces: those separate globs.

    Raises ``ConfigurationError`` if another entry's name differs in such a character only.
    """
    glob = re.sub(r"[,\s]", "?", escape(entry.name))
    if others := sorted(matching(entries, [glob]) - {entry.name}):
        raise ConfigurationError(
            f"the names of the entries `{entry.name}` and `{others[0]}` differ only in a comma or a space, and no "
            "option can select one of them: write a value of the matrix differently"
        )
    return glob


def of_this_machine(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries whose variants run on the machine that builds, in their order."""
    return tuple(entry for entry in entries if entry.machine in {None, platform.machine()})


def newest(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries of the newest torch (all if no entry declares one), in their order."""
    lines = [max(_release_lines(entry), default=(0, 0)) for entry in entries]
    return tuple(entry for entry, line in zip(entries, lines, strict=True) if line == max(lines))


def serving(entries: Sequence[Entry], *, torch: str, backend: Backend) -> tuple[Entry, ...]:
    """Return the entries that may serve an installed torch, as the loader would choose, in their order.

    Exact entries come before stable-ABI entries, which serve later releases too; of the latter the newest counts. Of
    entries that declare a backend, those count that the torch can use, or if there are none, the CPU entries.
    """
    line = releases.minor_of(torch)
    lines = {entry.name: releases.minor_of(entry.torch) for entry in entries if entry.torch is not None}
    known = [entry for entry in entries if entry.name in lines]
    exact = [entry for entry in known if lines[entry.name] == line and not entry.stable_abi]
    stable = [entry for entry in known if lines[entry.name] <= line and entry.stable_abi]
    highest = max((lines[entry.name] for entry in stable), default=None)
    candidates = exact or [entry for entry in stable if lines[entry.name] == highest]

    def usable(entry: Entry) -> bool:
        return entry.backend is None or (entry.gpu is not None and entry.gpu.serves(backend))

    fitting = [entry for entry in candidates if usable(entry)]
    return tuple(fitting or [entry for entry in candidates if entry.is_cpu])


def _release_lines(entry: Entry) -> tuple[Minor, ...]:
    if entry.torch is not None:
        return (releases.minor_of(entry.torch),)
    requirement = Requirement(entry.torch_requirement)
    return () if requirement.url is not None else releases.minors_of(releases.admitted_versions(requirement.specifier))


def matching(entries: Sequence[Entry], globs: Sequence[str]) -> set[str]:
    """Return the names of the entries that ``globs`` match.

    Names are compared first: `*2.9*` means the entry of torch 2.9, not that of 2.8, whose label might be
    `torch2.8_cu12.9_x86_64`.
    """
    matched: set[str] = set()
    by_label = []
    for glob in globs:
        match = re.compile(translate(glob)).match
        if names := {entry.name for entry in entries if match(entry.name)}:
            matched |= names
        else:
            by_label.append(match)
    for entry in entries if by_label else ():
        python = python_tag(entry.python)
        labels = possible(
            torch=_release_lines(entry),
            stable_abi=entry.stable_abi,
            backend=entry.backend,
            python=python,
            machine=entry.machine,
        )
        if any(match(text) for text in labels for match in by_label):
            matched.add(entry.name)
    return matched


def _impossible_pairs(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        requirement = Requirement(entry.torch_requirement)
        if entry.torch is None or entry.gpu is None or requirement.url or "+" in str(requirement.specifier):
            continue  # undeclared, or one exact build of torch: known only after the build
        line = releases.minor_of(entry.torch)
        if not releases.may_have(line, entry.gpu):
            versions = [each.version for each in releases.published(line) if each.kind == entry.gpu.kind]
            published = f"{entry.gpu.toolkit} {', '.join(versions)}"
            yield (
                f"{entry.name}: there is no torch {entry.torch} for {entry.gpu.words}: it was published for "
                f"{published}; remove the pair from the matrix, or name it in `skip`"
            )


def _collisions(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a problem for entries that would get the same label, as they differ only in the author's own variables."""
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        if entry.torch is not None:
            python = python_tag(entry.python) or entry.python
            key = (entry.torch, entry.stable_abi, entry.backend, python, entry.machine or platform.machine())
            groups.setdefault(key, []).append(entry)
    for group in groups.values():
        if len(group) > 1:
            listed = ", ".join(f"`{entry.name}`" for entry in group[:-1]) + f" and `{group[-1].name}`"
            names = dict.fromkeys(name for entry in group for name, _ in entry.variables)
            differing = ", ".join(f"`{name}`" for name in names if len({entry.variable(name) for entry in group}) > 1)
            yield (
                f"{listed} would give variants of one label: they differ only in {differing}, and the loader "
                f"compares only torch's major.minor, ABI, CUDA version, Python and processor; keep one of them, or "
                f"name the others in `skip`"
            )


CURRENT = "current"
"""The entry for the installed torch, and the word of `only` that builds only it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all entries of a matrix have in common, so that an entry for another torch gets it too.

    ``variables`` are those of the matrix except ``torch``, ``python`` and ``machine`` (the backend's only if it is
    ``cpu``). ``has_gpu`` is True if any entry declares a backend for GPUs, or the sources have kernels.
    """

    variables: tuple[tuple[str, str], ...]
    env_vars: tuple[tuple[str, str], ...]
    stable_abi: bool
    has_gpu: bool = False


def common(entries: Sequence[Entry]) -> Common:
    """Return what ``entries`` have in common."""

    def in_all(pairs: Sequence[tuple[tuple[str, str], ...]]) -> tuple[tuple[str, str], ...]:
        first = pairs[0] if pairs else ()
        return tuple(pair for pair in first if all(pair in each for each in pairs))

    variables = [
        (name, value)
        for name, value in in_all([entry.variables for entry in entries])
        if name not in {"torch", "python", VARIABLE, "machine"} or (name, value) == (VARIABLE, "cpu")
    ]
    return Common(
        variables=tuple(variables),
        env_vars=in_all([entry.env_vars for entry in entries]),
        stable_abi=bool(entries) and all(entry.stable_abi for entry in entries),
        has_gpu=any(entry.gpu for entry in entries),
    )


def current(shared: Common, *, torch: str, built_for: Backend | None = None) -> Entry:
    """Return the entry for an installed ``torch`` (``2.13.0+cu130``), whichever releases the matrix serves.

    ``built_for`` is the backend of that torch: if the matrix has entries for GPUs, the variable names it, so the
    project compiles the same for this torch as for those of the matrix.
    """
    line = ".".join(torch.split(".")[:2])
    named = built_for if built_for is not None and built_for.is_gpu and shared.has_gpu else None
    backend = Backend("cpu") if (VARIABLE, "cpu") in shared.variables else named
    declared = ((VARIABLE, backend.tag),) if backend is not None and backend.is_gpu else ()
    return Entry(
        name=CURRENT,
        variables=(("torch", line), *declared, *shared.variables),
        dependencies=(),
        torch_requirement="torch",
        python=None,
        stable_abi=shared.stable_abi,
        torch=line,
        backend=backend,
        env_vars=shared.env_vars,
    )
