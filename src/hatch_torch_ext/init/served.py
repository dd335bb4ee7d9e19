"""The matrix of a moved or a new project: releases of torch, Pythons, and CUDA where the index has its compiler."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.init.texts import Note
from hatch_torch_ext.wheel import parsed_requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FIRST = 2
"""Releases of torch in a first matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions:
    """What the author gives on the command line; releases and Pythons that are not given are chosen."""

    torch: Sequence[str] = ()
    pythons: Sequence[str] = ()
    cpu_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstMatrix:
    """The values of the matrix; ``backends`` as for ``matrix``, no ``pythons`` where one entry serves all of them."""

    torch: tuple[str, ...]
    pythons: tuple[str, ...]
    backends: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    more_torch: tuple[str, ...] = ()
    """Releases that the project admits and that a first matrix leaves out, oldest first."""
    more_pythons: tuple[str, ...] = ()

    @property
    def tables(self) -> dict[str, Any]:
        """Return the tables of the matrix."""
        return matrix(self.torch, self.pythons, self.backends)

    @property
    def entries(self) -> int:
        """Return the number of entries."""
        return count(self.tables)

    @property
    def wider(self) -> str | None:
        """Return how the matrix is made wider, where what the project admits is more than it has."""
        more = [f"hatch-torch-ext matrix --add torch={each}" for each in self.more_torch[-1:]]
        if self.more_pythons:
            more.append(f"`python` in pyproject.toml (the project names {', '.join(self.more_pythons)} too)")
        return " and ".join(more) or None

    def for_every_python(self) -> FirstMatrix:
        """Return the matrix of a project of which one build serves every Python."""
        return replace(self, pythons=(), more_pythons=())


def choose(
    metadata: Mapping[str, Any], declared: Mapping[str, Any], backends: Sequence[str], options: MatrixOptions
) -> FirstMatrix:
    """Return the matrix of the ``options``; the rest by the metadata of ``setup()`` and the [project] table.

    ``backends`` are what the project builds, none if nothing is for CUDA. Raises ``ConfigurationError`` where CUDA is
    left out of a project that builds nothing else.
    """
    if options.cpu_only:
        if tuple(backends) == ("cuda",):
            raise ConfigurationError("Nothing of this project is built without CUDA: leave `--cpu` out.")
        backends = ()
    notes: list[Note] = []
    required = [*metadata.get("install_requires", []), *declared.get("dependencies", [])]
    known = options.torch or _releases(required, notes)
    # A first matrix is small: two releases, or one for the CPU and with CUDA, and one Python.
    torch = known if options.torch else known[-1:] if len(backends) > 1 else known[-FIRST:]
    names = {"classifiers": "classifiers", "python_requires": "requires-python"}  # of setup(), and of [project]
    of_project = {name: declared[key] for name, key in names.items() if key in declared}
    admitted = options.pythons or admitted_pythons({**of_project, **metadata}, torch)
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    pythons = options.pythons or ([mine] if mine in admitted else admitted[-1:])
    if "cuda" in backends:
        notes += map(Note, without_compiler(torch))
    return FirstMatrix(
        torch=tuple(torch),
        pythons=tuple(pythons),
        backends=tuple(backends),
        notes=tuple(notes),
        more_torch=tuple(known[: len(known) - len(torch)]),
        more_pythons=tuple(each for each in admitted if each not in pythons),
    )


def _releases(requirements: Sequence[str], notes: list[Note]) -> list[str]:
    """Return the releases of torch for the matrix: the newest of those that the project's requirement admits."""
    required = torch_specifier(requirements)
    found = torch_releases(required)
    if not found:
        notes.append(Note(f"requires torch{required}, of which no release is known: the matrix has the newest"))
    return found or torch_releases()


NEWEST = 4
"""Releases of torch that a new matrix has, and Pythons."""
FIRST_COMPILER = 13
"""The first major of CUDA whose compiler is on the package index."""


def matrix(
    torch: Sequence[str], pythons: Sequence[str] = (), backends: Sequence[str] = (), **more: str
) -> dict[str, Any]:
    """Return the tables of the matrix: releases of one CUDA in one table, its compiler among their dependencies.

    ``backends`` are what is built, of ``cpu`` and ``cuda``; none where no entry says. ``more`` are variables of all.
    """
    axes = {**{name: [value] for name, value in more.items()}, **({"python": list(pythons)} if pythons else {})}
    compiled = with_compiler(torch) if "cuda" in backends else {}
    tables = []
    for cuda in dict.fromkeys(compiled.get(each, "") for each in torch):
        of_it = [each for each in torch if compiled.get(each, "") == cuda]
        named = [*(["cpu"] if "cpu" in backends else []), *([Backend("cuda", cuda).tag] if cuda else [])]
        if named or not backends:
            tables.append({"torch": of_it, **axes, **({"cuda": named} if named else {})})
    if not compiled:
        return {"matrix": tables or [{"torch": list(torch), **axes}]}
    compilers = [
        {"value": f"cuda-toolkit[nvcc,cudart,cccl]=={cuda}.*", "if": [Backend("cuda", cuda).tag]}
        for cuda in dict.fromkeys(compiled.values())
    ]
    return {"matrix": tables, "overrides": {"matrix": {"cuda": {"extra-dependencies": compilers}}}}


def script_of_tests(distribution: str, tests: str = "", *, requires: bool = False) -> list[str]:
    """Return what `hatch run matrix:test` does: it installs the wheel in `dist`, and runs the ``tests`` (a folder).

    ``requires``: the distribution requires more than torch. The folder of the sources comes last on the path: the
    installed package is tested, which has the variants.
    """
    install = "python -m pip install --quiet"
    only_wheel = "--no-index --no-deps --force-reinstall --only-binary :all: --find-links {root}/dist"
    folder = f"{{root}}/{tests} " if tests else ""
    return [
        f"{install} {only_wheel} {distribution}",
        *([f"{install} {distribution}"] if requires else []),
        f"python -P -m pytest --import-mode=append {folder}{{args}}",
    ]


def count(tables: Mapping[str, Any]) -> int:
    """Return the number of entries of a matrix, which ``matrix`` made."""
    return sum(math.prod(map(len, each.values())) for each in tables["matrix"])


def with_compiler(torch: Iterable[str]) -> dict[str, str]:
    """Return the CUDA of each release's wheel on the package index, for those whose compiler is there too."""
    minors = {each: releases.minor_of(each) for each in torch}
    return {each: releases.index_cuda(minor) for each, minor in minors.items() if _has_compiler(minor)}


def without_compiler(torch: Iterable[str]) -> Iterator[str]:
    """Note the releases whose CUDA has no compiler on the index."""
    compiled = with_compiler(torch)
    if left := [each for each in torch if each not in compiled]:
        why = "the index has no compiler for its CUDA: if you have a toolkit, add one, with the option `cuda-home`"
        yield f"torch {', '.join(left)} has no entry with CUDA, since {why}"


def first_stable(*, with_compiler: bool) -> str:
    """Return the first release with the stable ABI; ``with_compiler``: of those whose CUDA has one on the index."""
    lines = (minor for minor in sorted(releases.PUBLISHED_PYTHONS) if minor >= releases.FIRST_STABLE_ABI)
    return releases.format_minor(next(each for each in lines if not with_compiler or _has_compiler(each)))


def _has_compiler(minor: releases.Minor) -> bool:
    """Return whether the index has the compiler for the CUDA of its wheel of this torch."""
    return int(releases.index_cuda(minor).partition(".")[0]) >= FIRST_COMPILER


def torch_releases(specifier: SpecifierSet | None = None) -> list[str]:
    """Return the newest known releases of torch that ``specifier`` admits; empty if it admits none."""
    known = {*releases.PUBLISHED_PYTHONS}
    if specifier is not None:
        known &= {*releases.minors_of(releases.admitted_versions(specifier))}
    return [releases.format_minor(minor) for minor in sorted(known)[-NEWEST:]]


def torch_specifier(requirements: Iterable[str]) -> SpecifierSet | None:
    """Return what the requirements say about torch; None where they say nothing."""
    for requirement in map(parsed_requirement, requirements):
        if requirement is not None and canonicalize_name(requirement.name) == "torch" and requirement.specifier:
            return requirement.specifier
    return None


def admitted_pythons(metadata: Mapping[str, Any], torch: Iterable[str]) -> list[str]:
    """Return those Pythons of every torch that the project names, in its classifiers or by a range."""
    chosen = [releases.published_pythons(each, later=False) for each in torch]
    newest = max(high for _, high in releases.PUBLISHED_PYTHONS.values())
    first, last = max(low for low, _ in chosen) - 300, min(newest, *(high for _, high in chosen)) - 300
    try:
        specifier = SpecifierSet(str(metadata.get("python_requires") or ""))
    except InvalidSpecifier:
        specifier = SpecifierSet()
    every = [f"3.{minor}" for minor in range(first, last + 1)]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(map(str, metadata.get("classifiers") or [])))
    inside = [each for each in every if specifier.contains(f"{each}.99")]
    return [each for each in inside if each in named] or inside or every
