"""Names: the labels of variants and the words in them, and a torch build by its file name or ``version.py``. Pure."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion

from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hatch_torch_ext.facts.releases import Minor

MACHINES = ("aarch64", "x86_64")
DEBIAN = {"aarch64": "arm64", "x86_64": "amd64"}
"""The names of the machines in package names of Debian and Ubuntu."""
PYTHONS = (*(f"cp3{minor}" for minor in range(8, 21)), *(f"cp3{minor}t" for minor in range(13, 21)))
"""CPython tags that a label may end with if the entry names no Python."""


def python_tag(python: str | None) -> str | None:
    """Return the CPython tag for a Python that an environment asks for (``3.11``, ``py311`` -> ``cp311``), or None."""
    match = re.fullmatch(r"(?:cpython|python|cp|py)?-?(\d)\.?(\d+)(?:\.\d+)?(t?)", python or "")
    return "cp{}{}{}".format(*match.groups()) if match else None


def label(
    *, torch_minor: str, stable_abi: bool, backend: Backend, cxx11_abi: bool | None, machine: str, python: str | None
) -> str:
    """Return the file-safe name of a variant, such as ``torch2.8_cu12.8_cxx11_x86_64_cp311``.

    ``torch_minor`` is ``2.8``; ``cxx11_abi`` None if no C++ symbol of torch is
    needed; ``python`` a tag (``cp313t``, ``abi3-cp39``), or None if nothing in the variant needs Python.
    """
    text = _stem(torch_minor, stable_abi, backend, cxx11_abi, machine) + _suffix(python)
    if not re.fullmatch(r"[0-9a-z._]+", text):
        raise ValueError(f"`{text}` is not a label: it may contain only `0-9`, `a-z`, `.` and `_`")
    return text


def _stem(torch_minor: str, stable_abi: bool, backend: Backend, cxx11_abi: bool | None, machine: str) -> str:  # noqa: FBT001
    kind = "stable" if stable_abi else "torch"
    abi = "" if stable_abi or cxx11_abi is None else "_cxx11" if cxx11_abi else "_cxx98"
    return f"{kind}{torch_minor}_{backend.label}{abi}_{machine}"


def _suffix(python: str | None) -> str:
    return "" if python is None else "_" + python.partition("-")[0]


def possible(
    *,
    torch: Sequence[Minor],
    stable_abi: bool,
    backend: Backend | None,
    python: str | None,
    machine: str | None = None,
) -> Iterator[str]:
    """Yield every label that an entry may get, given what the matrix leaves open (backend, ABI, Python, machine).

    ``torch`` are the release lines that it may be built for; ``backend`` is None for open;
    ``python`` is a CPython tag or None for open, and ``machine`` a machine or None for open.
    """
    suffixes = [_suffix(tag) for tag in (None, "abi3", *((python,) if python else PYTHONS))]
    abis = (None,) if stable_abi else (None, False, True)
    for minor in torch:
        line = releases.format_minor(minor)
        for each_backend, abi, each in product(_backends(minor, backend), abis, (machine,) if machine else MACHINES):
            stem = _stem(line, stable_abi, each_backend, abi, each)
            yield from [stem + suffix for suffix in suffixes]


def _backends(minor: Minor, backend: Backend | None) -> tuple[Backend, ...]:
    if backend is not None:
        return (backend,)
    versions = [f"{major}.{i}" for major in releases.cuda_majors(minor) for i in range(10)]
    return releases.published(minor) or (Backend("cpu"), *(Backend("cuda", version) for version in versions))


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
