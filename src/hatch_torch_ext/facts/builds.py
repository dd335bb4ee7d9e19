"""A build of torch: by the file name of its wheel, by its ``version.py``, and in the tables of releases. Pure."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion

from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.facts.labels import MACHINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Build:
    """One wheel of torch for Linux: release line (``2.8``), machine, CPython tag (``cp311``, ``cp313t``).

    ``backend`` is ``cpu`` or a CUDA version; ``default`` for an index that has one build of each release and does not
    name it.
    """

    line: str
    backend: str
    machine: str
    python: str

    @property
    def minor(self) -> releases.Minor:
        """Return the release line, for comparisons."""
        return releases.minor_of(self.line)


def of_name(name: str) -> Iterator[Build]:
    """Yield the build that the wheel ``name`` is; nothing for other files, other systems and pre-releases."""
    try:
        project, version, _, tags = parse_wheel_filename(name)
    except (InvalidWheelFilename, InvalidVersion):
        return
    local = version.local or ""
    if project != "torch" or version.is_prerelease or len(version.release) < 2:  # noqa: PLR2004 -- major and minor
        return
    named = re.match(r"cpu|cu\d{3}(?!\d)", local)
    if local and (named is None or "cxx11" in local or "pypi" in local or "with" in local):
        return  # ROCm, XPU; and a rebuild of an existing build
    backend = Backend.parse(named[0]).name if named else "default"
    for tag in tags:
        machine = next((machine for machine in MACHINES if tag.platform.endswith(machine)), None)
        if machine is not None and tag.platform.startswith(("manylinux", "linux")):
            python = tag.interpreter + ("t" if tag.abi == f"{tag.interpreter}t" else "")  # of cp37m: cp37
            yield Build(line=f"{version.major}.{version.minor}", backend=backend, machine=machine, python=python)


def of_tables(lines: Iterable[str]) -> Iterator[Build]:
    """Yield the builds of these release lines according to the tables of releases; a line that they lack has none."""
    for minor in map(releases.minor_of, lines):
        first, last = releases.PUBLISHED_PYTHONS.get(minor, (31, 30))
        for machine in MACHINES:
            for number in range(_minor(first), _minor(last) + 1):
                for backend in releases.published(minor) or (Backend("cpu"),):
                    line = releases.format_minor(minor)
                    yield Build(line=line, backend=backend.name, machine=machine, python=f"cp3{number}")


def version_values(text: str) -> dict[str, str | None]:
    """Return the string and None constants that torch's ``version.py`` assigns, by name. Raises ``ValueError``."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("is not Python") from error
    values: dict[str, str | None] = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name, value = node.target.id, node.value
        else:
            continue
        if isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, str)):
            values[name] = value.value
    return values


def differences(builds: Iterable[Build]) -> Iterator[str]:
    """Yield the differences between the tables of releases and an index's ``builds`` for x86-64.

    Facts that an index does not state (CUDA builds, if it has one build of each release) do not count.
    """
    lines: dict[releases.Minor, list[Build]] = {}
    for build in builds:
        if build.machine == "x86_64":
            lines.setdefault(build.minor, []).append(build)
    for minor, of_line in sorted(lines.items()):
        if minor < min(releases.PUBLISHED_PYTHONS):
            continue
        numbers = sorted(
            {int(build.python[2:]) for build in of_line if re.fullmatch(r"cp3\d{1,2}", build.python)}, key=_minor
        )
        line = releases.format_minor(minor)
        if numbers:
            found = numbers[0], numbers[-1]
            if (known := releases.PUBLISHED_PYTHONS.get(minor)) != found:
                yield f"torch {line} is for CPython {found[0]} to {found[1]}, and the table says {known}"
        cuda = {build.backend for build in of_line} - {"cpu", "default"}
        published = tuple(each.version for each in releases.published(minor) if each.is_gpu)
        if cuda and not cuda <= set(published):
            yield f"torch {line} has builds for CUDA {', '.join(sorted(cuda))}, and the table says {published}"


def _minor(number: int) -> int:
    """Return 9 for 39, 13 for 313."""
    return int(str(number)[1:])
