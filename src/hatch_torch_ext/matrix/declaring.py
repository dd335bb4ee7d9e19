"""The matrix as hatch resolved it -> entries, and the requirement of torch that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.backend import VARIABLE, Backend
from hatch_torch_ext.facts.labels import MACHINES, python_tag
from hatch_torch_ext.values import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hatch_torch_ext.facts.releases import Minor
    from hatch_torch_ext.values import Matrix

PIN = '"torch=={matrix:torch}.*"'
"""The requirement that follows the `torch` variable, as an author writes it."""


def entries_of(matrix: Matrix) -> tuple[Entry, ...]:
    """Return the entries of a matrix in hatch's order.

    Raises ``ConfigurationError`` with every problem of every entry. ``select`` compares the entries with each other,
    after ``skip``.
    """
    if not matrix.variables:
        return ()
    problems: list[str] = []
    required = {name: _torch_requirements(matrix, name, problems) for name in matrix.variables}
    if not any(required.values()):
        has_torch = any("torch" in variables for variables in matrix.variables.values())
        having = "" if has_torch else " has no `torch` variable and"
        problems.append(
            f'The matrix{having} requires no torch: give it `torch = ["2.8", …]`, and its environment {PIN} '
            f"in `dependencies`"
        )
        raise ConfigurationError(*problems)
    entries = []
    for name, variables in matrix.variables.items():
        if len(required[name]) != 1:
            problems.append(_not_one_requirement(name, required[name]))
            continue
        entry = Entry(
            name=name,
            variables=tuple(variables.items()),
            dependencies=matrix.dependencies[name],
            torch_requirement=required[name][0],
            python=matrix.pythons[name],
            env_vars=matrix.env_vars[name],
        )
        problems += _unfit_values(entry)
        entries.append(_with_declarations(entry, problems))
    if problems:
        raise ConfigurationError(*problems)
    return tuple(entries)


def _unfit_values(entry: Entry) -> Iterator[str]:
    """Yield a problem for each value that cannot be passed unchanged on CMake's command line."""
    for name, value in entry.variables:
        odd = next((character for character in value if not character.isprintable()), None)
        if odd is not None:
            what = f"has the character {odd!a}, which CMake's cache does not keep"
        elif value != value.strip():
            what = "begins or ends with a space, which CMake drops"
        elif len(value) > 1 and value[0] == value[-1] == "'":
            what = "is in single quotes, which CMake drops"
        else:
            continue
        yield f"{ascii(entry.name)[1:-1]}: the variable `{name}` is {value!a}, which {what}; write it without"


def _torch_requirements(matrix: Matrix, name: str, problems: list[str]) -> list[str]:
    """Return the distinct torch requirements whose markers apply to the entry's Python and machine."""
    tag, machine = python_tag(matrix.pythons[name]), matrix.variables[name].get("machine")
    version = f"{tag[2]}.{tag[3:].rstrip('t')}" if tag else None
    # The other variables of markers are those of the machine that runs the build, as in hatch.
    markers = {"python_version": version, "python_full_version": f"{version}.0"} if version else {}
    if machine is not None:
        markers["platform_machine"] = machine
    requirements = []
    for i, dependency in enumerate(matrix.dependencies[name], 1):
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
    return f"{name}: {len(requirements)} requirements on torch ({listed}); keep only one"


def _with_declarations(entry: Entry, problems: list[str]) -> Entry:
    """Return the entry with what its variables and requirement declare; append their faults to ``problems``."""
    requirement = Requirement(entry.torch_requirement)
    torch = _declared_torch(entry, requirement, problems)
    backend = _declared_backend(entry, requirement, problems)
    abi = entry.variable("abi")
    if abi not in {None, "exact", "stable"}:
        problems.append(f"{entry.name}: the variable `abi` must be `stable` or `exact`, not `{abi}`")
    if abi == "stable" and torch is not None and torch < releases.FIRST_STABLE_ABI:
        problems.append(
            f"{entry.name}: `abi` is `stable`, but torch {releases.format_minor(torch)} has no stable ABI to build "
            f"for; use torch {releases.format_minor(releases.FIRST_STABLE_ABI)} or newer, or remove `abi` from the "
            "entry"
        )
    machine = entry.variable("machine")
    if machine is not None and machine not in MACHINES:
        meant = {"arm64": "aarch64", "amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64"}.get(machine.lower())
        known = f"`{meant}`" if meant else " or ".join(f"`{each}`" for each in sorted(MACHINES, reverse=True))
        problems.append(f"{entry.name}: the variable `machine` must be {known}, not `{machine}`")
    line = releases.format_minor(torch) if torch else None
    return replace(entry, stable_abi=abi == "stable", torch=line, backend=backend, machine=machine)


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
    clash = f"{entry.name}: the variable `torch` is `{value}`, but the requirement `{entry.torch_requirement}`"
    named = requirement.specifier.contains(value, prereleases=True)
    if not named and not any(version.release[: len(release)] == release for version in admitted):
        problems.append(f"{clash} admits no such version; require {PIN}")
    elif minors[-1] > declared:
        problems.append(f"{clash} admits newer releases, and an installer takes the newest; require {PIN}")
    return declared


def _declared_backend(entry: Entry, requirement: Requirement, problems: list[str]) -> Backend | None:
    """Return what the variable for the backend names, or None."""
    value = entry.variable(VARIABLE)
    if value is None:
        return None
    try:
        backend = Backend.parse(value)
    except ValueError as error:
        problems.append(f"{entry.name}: the variable `{VARIABLE}`: {error}")
        return None
    local = Backend.of_local(str(requirement.specifier))
    # A CPU variant may be compiled against any build of torch; one for GPUs only against its own.
    if backend.is_gpu and local is not None and local != backend:
        problems.append(
            f"{entry.name}: the variable `{VARIABLE}` is `{value}`, but the requirement `{entry.torch_requirement}` "
            f"installs torch's build for `{local.tag}`; make them agree"
        )
    return backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How the torch requirements of a project compare with what the matrix serves.

    ``absent``: there are none; ``agrees``: they admit exactly the served releases; ``wider``: those and more;
    ``narrower``: they exclude the torch of the ``unused`` entries; ``excludes``: they admit no served release.
    ``lines`` are the torch requirements whose markers apply to this machine, as written.
    """

    kind: Literal["absent", "agrees", "wider", "narrower", "excludes"]
    lines: tuple[str, ...]
    unused: tuple[str, ...] = ()


def requirement(entries: Sequence[Entry], *, open_ended: bool = False) -> str:
    """Return the requirement that admits exactly the releases of ``entries``: ``torch>=2.8,<2.10``.

    With ``open_ended`` it also admits all later releases, for which the wheel can be built (option `fallback`).

    Raises ``ConfigurationError`` for entries whose torch is known only after it is installed.
    """
    problems = [
        f"{entry.name}: `{entry.torch_requirement}` does not name a release of torch, so the project's metadata cannot "
        "name it: require one, such as `torch==2.8.*`, or give the matrix a `torch` variable and require "
        '"torch=={matrix:torch}.*"'
        for entry in entries
        if entry.torch is None
    ]
    if problems:
        raise ConfigurationError(*problems)
    served = ((str(entry.torch), entry.stable_abi) for entry in entries)
    return releases.torch_requirement(served, open_ended=open_ended)


def compare(dependencies: Iterable[str], entries: Sequence[Entry], *, open_ended: bool = False) -> Agreement:
    """Return how the torch requirements among ``dependencies`` compare with ``entries``.

    A requirement with a marker counts if the marker applies to the machine that builds; direct references
    (``torch @ …``) are ignored.
    """
    found = [each for each in map(_torch, dependencies) if each is not None]
    lines = tuple(map(str, found))
    if not found:
        return Agreement(kind="absent", lines=())
    served = Requirement(requirement(entries, open_ended=open_ended)).specifier
    candidates = {version for each in found for version in releases.admitted_versions(each.specifier)}
    admitted = {
        version for version in candidates if all(each.specifier.contains(version, prereleases=True) for each in found)
    }
    common = {version for version in admitted if served.contains(version, prereleases=True)}
    if not common:
        return Agreement(kind="excludes", lines=lines)
    if all(version in admitted for version in releases.admitted_versions(served)):
        return Agreement(kind="agrees" if common == admitted else "wider", lines=lines)
    minors = releases.minors_of(common)
    unused = tuple(entry.name for entry in entries if not _used(entry, minors))
    return Agreement(kind="narrower", lines=lines, unused=unused)


def torch_requirements(dependencies: Iterable[str]) -> tuple[str, ...]:
    """Return the torch requirements among ``dependencies``, as ``compare`` counts them."""
    return tuple(str(found) for each in dependencies if (found := _torch(each)) is not None)


def _torch(dependency: str) -> Requirement | None:
    try:
        found = Requirement(dependency)
    except InvalidRequirement:  # hatchling refuses it
        return None
    if canonicalize_name(found.name) != "torch" or found.url is not None:
        return None
    return found if found.marker is None or found.marker.evaluate({"extra": ""}) else None


def _used(entry: Entry, minors: Sequence[releases.Minor]) -> bool:
    line = releases.minor_of(str(entry.torch))
    return any(minor >= line if entry.stable_abi else minor == line for minor in minors)
