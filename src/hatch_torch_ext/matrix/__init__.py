"""Entries of the matrix, the selectors over them, and labels; pure."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace
from fnmatch import translate
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from hatch_torch_ext import inside
from hatch_torch_ext.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.labels import MACHINES, label, parse_cuda, possible, python_tag
from hatch_torch_ext.facts.releases import torch_requirement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hatch_torch_ext.environments import Matrix
    from hatch_torch_ext.facts.releases import Minor

PIN = '"torch=={matrix:torch}.*"'
"""The requirement that ties an environment to its `torch` variable, as it stands in an author's file."""

RESERVED = frozenset({"cache", "compiling", "cuda", "environments", "hatch", "lock", "owner", "wheel", "events.jsonl"})
"""What lies in the work folder beside the folders of entries."""

CURRENT = "current"
"""The entry for the torch that is installed, and what `only` names to build that and nothing else."""

__all__ = [
    "CURRENT",
    "Entry",
    "common",
    "current",
    "expand",
    "expanded",
    "label",
    "newest",
    "of_this_machine",
    "parse_cuda",
    "reached",
    "select",
    "serving",
    "torch_requirement",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One generated environment of the matrix.

    ``variables`` are the matrix's own, by name, in hatch's order (``torch``, ``python``, ``cuda``, others).
    ``dependencies`` are the environment's, fully resolved by hatch, torch's requirement among them.
    ``torch_requirement`` is that one requirement as written (``torch==2.8.*``).
    """

    name: str
    variables: tuple[tuple[str, str], ...]
    dependencies: tuple[str, ...]
    torch_requirement: str
    python: str | None
    """The Python that the environment asks for (``3.11``), or None for hatch's default."""
    stable_abi: bool = False
    torch: str | None = None
    """The release line (``2.8``) that variable or requirement declares; None where only the installed torch tells."""
    cuda: str | None = None
    """What the variable ``cuda`` declares: ``cpu`` or a version (``12.8``); None where it is left open."""
    env_vars: tuple[tuple[str, str], ...] = ()
    """Environment variables that the hatch environment sets."""
    machine: str | None = None
    """What the variable ``machine`` declares (``aarch64``); None for that of the machine that builds."""

    @property
    def folder(self) -> str:
        """Return the name of the entry's folder below the work folder: no value of the matrix leads elsewhere."""
        return inside.safe(self.name, reserved=RESERVED)

    def variable(self, name: str) -> str | None:
        """Return the value of the matrix variable ``name``, or None."""
        return dict(self.variables).get(name)

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of the build: those of ``base`` under the hatch environment's own."""
        return {**base, **dict(self.env_vars)}


def expand(
    envs: Mapping[str, Mapping[str, str]],
    dependencies: Mapping[str, Sequence[str]],
    pythons: Mapping[str, str | None],
    *,
    env_vars: Mapping[str, Sequence[tuple[str, str]]] | None = None,
) -> tuple[Entry, ...]:
    """Return the entries of a matrix in hatch's order: one for each of ``envs`` (name -> variables).

    ``dependencies`` (resolved by hatch), ``pythons`` and ``env_vars`` are by the same names. Raises
    ``ConfigurationError`` with every problem of every entry. What the entries are to each other is looked at by
    ``select``, after ``skip``.
    """
    if not envs:
        raise ConfigurationError(["The matrix has no entries; give its `torch` variable at least one value"])
    problems: list[str] = []
    found = {
        name: _torch_requirements(name, dependencies[name], pythons[name], variables.get("machine"), problems)
        for name, variables in envs.items()
    }
    if not any(found.values()):
        having = "" if any("torch" in variables for variables in envs.values()) else " has no `torch` variable and"
        problems.append(
            f'The matrix{having} requires no torch: give it `torch = ["2.8", …]`, and its environment {PIN} '
            f"in `dependencies`"
        )
        raise ConfigurationError(problems)
    entries = []
    for name, variables in envs.items():
        if len(found[name]) != 1:
            problems.append(_not_one_requirement(name, found[name]))
            continue
        entry = Entry(
            name=name,
            variables=tuple(variables.items()),
            dependencies=tuple(dependencies[name]),
            torch_requirement=found[name][0],
            python=pythons[name],
            env_vars=tuple((env_vars or {}).get(name, ())),
        )
        problems += _unfit_values(entry)
        entries.append(_declare(entry, problems))
    if problems:
        raise ConfigurationError(problems)
    return tuple(entries)


def _unfit_values(entry: Entry) -> Iterator[str]:
    """Yield a problem for each value that CMake's command line would not hand on as it is."""
    for name, value in entry.variables:
        odd = next((character for character in value if not character.isprintable()), None)
        if odd is not None:
            what = f"has the character {odd!a}, which CMake's cache does not keep"
        elif value != value.strip():
            what = "begins or ends with a space, which CMake drops"
        elif len(value) > 1 and value[0] == value[-1] == "'":
            what = "stands in single quotes, which CMake drops"
        else:
            continue
        yield f"{ascii(entry.name)[1:-1]}: the variable `{name}` is {value!a}, which {what}; write it without"


def expanded(found: Matrix) -> tuple[Entry, ...]:
    """Return the entries of a matrix as hatch told it; see ``expand``. No environment at all is no entry."""
    if not found.variables:
        return ()
    return expand(found.variables, found.dependencies, found.pythons, env_vars=found.env_vars)


def _torch_requirements(
    name: str, dependencies: Sequence[str], python: str | None, machine: str | None, problems: list[str]
) -> list[str]:
    """Return the torch requirements that hold for the entry's Python and machine, each once."""
    tag = python_tag(python)
    version = f"{tag[2]}.{tag[3:].rstrip('t')}" if tag else None
    # The rest of the marker's variables are the machine's that runs the build, as for hatch itself.
    markers = {"python_version": version, "python_full_version": f"{version}.0"} if version else {}
    if machine is not None:
        markers["platform_machine"] = machine
    requirements = []
    for i, dependency in enumerate(dependencies, 1):
        try:
            requirement = Requirement(dependency)
        except InvalidRequirement:
            problems.append(f"{name}: dependency #{i} `{dependency}` is not a requirement (PEP 508); correct it")
            continue
        if canonicalize_name(requirement.name) != "torch":
            continue
        if requirement.marker is None or requirement.marker.evaluate(markers):
            requirements.append(dependency)
    return list(dict.fromkeys(requirements))


def _not_one_requirement(name: str, requirements: Sequence[str]) -> str:
    if not requirements:
        return f"{name}: no torch among the dependencies; add {PIN} to the environment's `dependencies`"
    listed = " and ".join(f"`{requirement}`" for requirement in requirements)
    return f"{name}: {len(requirements)} requirements of torch, {listed}; keep one"


def _declare(entry: Entry, problems: list[str]) -> Entry:
    """Return the entry with what its variables and requirement declare; add what is wrong with them."""
    requirement = Requirement(entry.torch_requirement)
    torch = _declared_torch(entry, requirement, problems)
    cuda = _declared_cuda(entry, requirement, problems)
    abi = entry.variable("abi")
    if abi not in {None, "exact", "stable"}:
        problems.append(f"{entry.name}: the variable `abi` must be `stable` or `exact`, not `{abi}`")
    if abi == "stable" and torch is not None and torch < releases.FIRST_STABLE_ABI:
        problems.append(
            f"{entry.name}: `abi` is `stable`, but torch {releases.format_minor(torch)} has no stable ABI to build "
            f"for; take torch {releases.format_minor(releases.FIRST_STABLE_ABI)} or newer, or leave `abi` out here"
        )
    machine = entry.variable("machine")
    if machine is not None and machine not in MACHINES:
        meant = {"arm64": "aarch64", "amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64"}.get(machine.lower())
        known = f"`{meant}`" if meant else " or ".join(f"`{each}`" for each in sorted(MACHINES, reverse=True))
        problems.append(f"{entry.name}: the variable `machine` must be {known}, not `{machine}`")
    line = releases.format_minor(torch) if torch else None
    return replace(entry, stable_abi=abi == "stable", torch=line, cuda=cuda, machine=machine)


def _declared_torch(entry: Entry, requirement: Requirement, problems: list[str]) -> Minor | None:
    """Return the release line that the variable ``torch`` names, else the only one that the requirement admits."""
    value = entry.variable("torch")
    admitted = releases.admitted_versions(requirement.specifier)
    minors = releases.minors_of(admitted)
    if value is None:
        return minors[0] if len(minors) == 1 else None
    try:
        declared, release = releases.minor_of(value), Version(value).release
    except (ValueError, InvalidVersion):
        problems.append(f"{entry.name}: the variable `torch` must be a version such as `2.8`, not `{value}`")
        return None
    if requirement.url is not None:
        return declared
    said = f"{entry.name}: the variable `torch` is `{value}`, but the requirement `{entry.torch_requirement}`"
    named = requirement.specifier.contains(value, prereleases=True)
    if not named and not any(version.release[: len(release)] == release for version in admitted):
        problems.append(f"{said} admits no such version; require {PIN}")
    elif minors[-1] > declared:
        problems.append(f"{said} admits newer releases, and an installer takes the newest; require {PIN}")
    return declared


def _declared_cuda(entry: Entry, requirement: Requirement, problems: list[str]) -> str | None:
    """Return what the variable ``cuda`` declares, normalised: ``cpu``, a version, or None."""
    value = entry.variable("cuda")
    if value is None:
        return None
    try:
        cuda = parse_cuda(value)
    except ValueError as error:
        problems.append(f"{entry.name}: the variable `cuda`: {error}")
        return None
    local = re.search(r"\+(cpu|cu\d{3})\b", str(requirement.specifier))
    # A CPU variant may be compiled against any build of torch; a CUDA variant only against its own.
    if cuda is not None and local and parse_cuda(local[1]) != cuda:
        problems.append(
            f"{entry.name}: the variable `cuda` is `{value}`, but the requirement `{entry.torch_requirement}` takes "
            f"torch's build for `{local[1]}`; make them agree"
        )
    return cuda or "cpu"


def select(entries: Sequence[Entry], *, only: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Entry, ...]:
    """Return the entries that ``only`` names (all when empty) and ``skip`` does not, in their order.

    A glob that matches names of entries is about these; any other is compared with every label that an entry may still
    get: for certain a label is known after the build alone. Raises ``ConfigurationError`` when nothing is left, and
    when what ``skip`` leaves cannot be built into one wheel: two entries of one label, or a torch for a CUDA that it
    has no builds for.
    """
    skipped, named = reached(entries, skip), reached(entries, only)
    kept = [entry for entry in entries if entry.name not in skipped]
    chosen = tuple(entry for entry in kept if not only or entry.name in named)
    if not chosen and entries:
        names = ", ".join(f"`{entry.name}`" for entry in entries)
        said = " and ".join(
            f"`{option}` ({', '.join(f'`{glob}`' for glob in globs)})"
            for option, globs in (("only", only), ("skip", skip))
            if globs
        )
        verb = "leave" if only and skip else "leaves"
        problem = (
            f"{said} {verb} no entry of the matrix to build; globs match an entry's name or a label such as "
            f"`torch2.8_cpu_cxx11_x86_64`, and the entries are {names}"
        )
        raise ConfigurationError([problem])
    if problems := [*_impossible_pairs(kept), *_collisions(kept)]:
        raise ConfigurationError(problems)
    return chosen


def left(entries: Sequence[Entry], *, only: Sequence[str], skip: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries that ``only`` and ``skip`` leave, whether or not they fit into one wheel."""
    skipped, named = reached(entries, skip), reached(entries, only)
    return tuple(entry for entry in entries if entry.name not in skipped and (not only or entry.name in named))


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all entries of a matrix have alike, and an entry for another torch has too.

    Variables but for ``torch``, ``python`` and ``machine`` (``cuda`` only where it is ``cpu``), environment variables,
    the ABI.
    """

    variables: tuple[tuple[str, str], ...]
    env_vars: tuple[tuple[str, str], ...]
    stable_abi: bool


def common(entries: Sequence[Entry]) -> Common:
    """Return what ``entries`` have in common."""

    def alike(pairs: Sequence[tuple[tuple[str, str], ...]]) -> tuple[tuple[str, str], ...]:
        first = pairs[0] if pairs else ()
        return tuple(pair for pair in first if all(pair in each for each in pairs))

    variables = [
        (name, value)
        for name, value in alike([entry.variables for entry in entries])
        if name not in {"torch", "python", "cuda", "machine"} or (name, value) == ("cuda", "cpu")
    ]
    return Common(
        variables=tuple(variables),
        env_vars=alike([entry.env_vars for entry in entries]),
        stable_abi=bool(entries) and all(entry.stable_abi for entry in entries),
    )


def current(shared: Common, *, torch: str) -> Entry:
    """Return the entry for an installed ``torch`` (``2.13.0+cu130``), whatever the matrix serves."""
    line = ".".join(torch.split(".")[:2])
    return Entry(
        name=CURRENT,
        variables=(("torch", line), *shared.variables),
        dependencies=(),
        torch_requirement="torch",
        python=None,
        stable_abi=shared.stable_abi,
        torch=line,
        cuda=dict(shared.variables).get("cuda"),
        env_vars=shared.env_vars,
    )


def of_this_machine(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries whose variants run on the machine that builds, in their order."""
    return tuple(entry for entry in entries if entry.machine in {None, platform.machine()})


def newest(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries of the newest torch (where none declares one: all), in their order."""
    lines = [max(_release_lines(entry), default=(0, 0)) for entry in entries]
    return tuple(entry for entry, line in zip(entries, lines, strict=True) if line == max(lines))


def serving(entries: Sequence[Entry], *, torch: str, cuda: str | None) -> tuple[Entry, ...]:
    """Return the entries that may serve an installed torch, as the loader would choose; in their order.

    Exact entries go before those of the stable ABI, which serve what is as new; of the latter the newest is taken. Of
    entries that name a CUDA version, those that the torch can use are taken, or where there are none, those of the CPU.
    """
    line = releases.minor_of(torch)
    lines = {entry.name: releases.minor_of(entry.torch) for entry in entries if entry.torch is not None}
    known = [entry for entry in entries if entry.name in lines]
    exact = [entry for entry in known if lines[entry.name] == line and not entry.stable_abi]
    stable = [entry for entry in known if lines[entry.name] <= line and entry.stable_abi]
    highest = max((lines[entry.name] for entry in stable), default=None)
    candidates = exact or [entry for entry in stable if lines[entry.name] == highest]

    def usable(entry: Entry) -> bool:
        if entry.cuda in {None, "cpu"}:
            return entry.cuda is None
        wanted, have = Version(str(entry.cuda)), Version(cuda or "0")
        return wanted.major == have.major and wanted <= have

    fitting = [entry for entry in candidates if usable(entry)]
    return tuple(fitting or [entry for entry in candidates if entry.cuda == "cpu"])


def _release_lines(entry: Entry) -> tuple[Minor, ...]:
    if entry.torch is not None:
        return (releases.minor_of(entry.torch),)
    requirement = Requirement(entry.torch_requirement)
    return () if requirement.url is not None else releases.minors_of(releases.admitted_versions(requirement.specifier))


def reached(entries: Sequence[Entry], globs: Sequence[str]) -> set[str]:
    """Return the names of the entries that ``globs`` reach.

    Names first: `*2.9*` means the entry of torch 2.9, and not that of 2.8, which might become `torch2.8_cu12.9_x86_64`.
    """
    reached: set[str] = set()
    by_label = []
    for glob in globs:
        match = re.compile(translate(glob)).match
        if names := {entry.name for entry in entries if match(entry.name)}:
            reached |= names
        else:
            by_label.append(match)
    for entry in entries if by_label else ():
        python = python_tag(entry.python)
        labels = possible(
            torch=_release_lines(entry),
            stable_abi=entry.stable_abi,
            cuda=entry.cuda,
            python=python,
            machine=entry.machine,
        )
        if any(match(text) for text in labels for match in by_label):
            reached.add(entry.name)
    return reached


def _impossible_pairs(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        requirement = Requirement(entry.torch_requirement)
        if entry.torch is None or entry.cuda in {None, "cpu"} or requirement.url or "+" in str(requirement.specifier):
            continue  # open, or the author names one exact build of torch, which will tell
        line = releases.minor_of(entry.torch)
        major = int(str(entry.cuda).partition(".")[0])
        published = releases.published_cuda(line)
        if published and major not in releases.cuda_majors(line):
            yield (
                f"{entry.name}: there is no torch {entry.torch} for CUDA {entry.cuda}: it was published for CUDA "
                f"{', '.join(published)}; take the pair out of the matrix, or name it in `skip`"
            )


def _collisions(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a problem for entries that must end in one label, though variables of the author's own tell them apart."""
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        if entry.torch is not None:
            python = python_tag(entry.python) or entry.python
            key = (entry.torch, entry.stable_abi, entry.cuda, python, entry.machine or platform.machine())
            groups.setdefault(key, []).append(entry)
    for group in groups.values():
        if len(group) > 1:
            listed = ", ".join(f"`{entry.name}`" for entry in group[:-1]) + f" and `{group[-1].name}`"
            names = dict.fromkeys(name for entry in group for name, _ in entry.variables)
            differing = ", ".join(f"`{name}`" for name in names if len({entry.variable(name) for entry in group}) > 1)
            yield (
                f"{listed} would give variants of one label: they differ in {differing} only, and a user's machine is "
                f"asked for torch's major.minor, ABI, CUDA version, Python and processor alone; keep one of them, or "
                f"name the others in `skip`"
            )
