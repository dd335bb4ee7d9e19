"""The first matrix of a project that is moved: small, of what the project admits or the author names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.init import served
from hatch_torch_ext.init.recording import Note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.init.targets import Target

FIRST = 2
"""Releases of torch in a first matrix."""
NOTHING_ON_THE_CPU = "Nothing of this project is built without CUDA: leave `--cpu` out."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The values that the author names, chosen where they are empty; ``cpu_alone`` leaves CUDA out of the matrix."""

    torch: Sequence[str] = ()
    pythons: Sequence[str] = ()
    cpu_alone: bool = False


CHOSEN = Wanted()
"""Nothing is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstMatrix:
    """The values of the matrix, and the number of its entries for one Python."""

    torch: tuple[str, ...]
    pythons: tuple[str, ...]
    entries: int
    notes: tuple[Note, ...]
    more_torch: tuple[str, ...] = ()
    """Releases that the project admits and that a first matrix leaves out, oldest first."""
    more_pythons: tuple[str, ...] = ()

    def all_entries(self, *, for_each_python: bool) -> int:
        """Return the number of entries, for all Pythons where each needs its own."""
        return self.entries * (len(self.pythons) if for_each_python else 1)

    def wider(self, *, for_each_python: bool) -> str | None:
        """Return how the matrix is made wider, where what the project admits is more than it has."""
        more = [f"hatch-torch-ext matrix --add torch={each}" for each in reversed(self.more_torch)][:1]
        if for_each_python and self.more_pythons:
            more.append(f"`python` in pyproject.toml (the project names {', '.join(self.more_pythons)} too)")
        return " and ".join(more) or None


def choose(
    metadata: Mapping[str, Any], declared: Mapping[str, Any], backends: Sequence[str], wanted: Wanted
) -> FirstMatrix:
    """Return the matrix: what is ``wanted``, else chosen by the metadata of ``setup()`` and the [project] table."""
    torch, pythons = wanted.torch, wanted.pythons
    notes: list[Note] = []
    required = [*metadata.get("install_requires", []), *declared.get("dependencies", [])]
    known = torch or _releases(required, notes)
    # A first matrix is small: two releases, or one for the CPU and with CUDA, and one Python.
    chosen = known if torch else known[-1:] if len(backends) > 1 else known[-FIRST:]
    more = known[: len(known) - len(chosen)]
    torch = chosen
    named = pythons or served.pythons({**_of_project(declared), **metadata}, torch)
    pythons = pythons or served.first_python(named)
    others = [each for each in named if each not in pythons]
    compiled = served.with_compiler(torch)
    if left := [each for each in torch if "cuda" in backends and each not in compiled]:
        why = "the index has no compiler for its CUDA: with a toolkit and the option `cuda-home`, add one"
        notes.append(Note(line=0, text=f"torch {', '.join(left)} has no entry with CUDA, since {why}"))
    entries = len(torch) * ("cuda" not in backends or "cpu" in backends) + len(compiled) * ("cuda" in backends)
    return FirstMatrix(
        torch=tuple(torch),
        pythons=tuple(pythons),
        entries=entries,
        notes=tuple(notes),
        more_torch=tuple(more),
        more_pythons=tuple(others),
    )


def backends(joined: Sequence[Target], wanted: Wanted, *, only_cuda: bool) -> tuple[str, ...]:
    """Return the backends that the matrix declares; none if no entry has CUDA."""
    if only_cuda:
        if wanted.cpu_alone:
            raise ConfigurationError([NOTHING_ON_THE_CPU])
        return ("cuda",)
    has_cuda = any(each.when != "always" or each.needs_cuda for each in joined)
    return ("cpu", "cuda") if has_cuda and not wanted.cpu_alone else ()


def _releases(requirements: Sequence[str], notes: list[Note]) -> list[str]:
    """Return the releases of torch for the matrix: the newest of those that the project's requirement admits."""
    required = served.torch_specifier(requirements)
    found = served.torch_releases(required)
    if not found:
        text = f"requires torch{required}, of which no release is known: the matrix has the newest"
        notes.append(Note(line=0, text=text))
    return found or served.torch_releases()


def _of_project(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of a [project] table by the names that ``setup()`` has for them."""
    names = {"classifiers": "classifiers", "python_requires": "requires-python"}
    return {name: declared[key] for name, key in names.items() if key in declared}
