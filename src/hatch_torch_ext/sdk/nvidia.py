"""The NVIDIA wheels that torch requires: headers of CUDA's libraries, and the paths of the libraries."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from hatch_torch_ext import resolve
from hatch_torch_ext.facts.project import cmake_files
from hatch_torch_ext.sdk import exports, fetch
from hatch_torch_ext.sdk.fetch import FetchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.resolve import ResolvedWheel, Scope
    from hatch_torch_ext.sdk.facts import ThinRecord
    from hatch_torch_ext.values import Interpreter

LAYOUT = 2
AT_ONCE = 8  # wheels; each costs two small requests, which mostly wait
PACKAGES = re.compile(r"nvidia-.+|cuda-toolkit")
MEMBERS = re.compile(r"(?:[^/]+/)*(?:include/.+|lib/libcudart\.so\.[\d.]+)")
"""Headers, and the CUDA runtime: 0.7 MB, of which the audit reads the names."""
OF_TOOLKIT = re.compile(rf"{MEMBERS.pattern}|(?:[^/]+/)*lib/libcuda\w+\.a")
"""The same, and the small archives that nvcc and CMake link."""
TOOLKIT = re.compile(r"^nvidia/cu\d+/(?:include|lib)/", re.MULTILINE)
RUNTIME = re.compile(r"libcudart\.so\.[\d.]+")
LIBRARY = re.compile(r"((?:[^/]+/)*lib)/([^/]+\.so(?:\.[^/]+)?)")
MENTION = re.compile(r"cuda|\bhip\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaParts:
    """The CUDA fields of ``Sdk``, and the number of bytes fetched for them."""

    include_dirs: tuple[Path, ...] = ()
    libraries: tuple[tuple[str, str], ...] = ()
    runtime: Path | None = None
    received: int = 0


NOTHING = CudaParts()


def uses_cuda(config: Config) -> bool:
    """Return whether the project's CMake files mention CUDA, as they must to compile for it or to link with it.

    Comments count too; a false positive costs three megabytes.
    """
    return any(
        MENTION.search(file.read_text(encoding="utf-8", errors="replace")) for file in cmake_files(config.source)
    )


def acquire(scope: Scope, record: ThinRecord) -> CudaParts:
    """Return the headers and library names of the NVIDIA wheels that torch requires, and fetch them if need be."""
    required = requirements(record.requires, scope.interpreter)
    if not required:
        return NOTHING
    wheels = resolve.wheels(scope, required, dependencies=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        parts = list(pool.map(lambda wheel: _parts_of_wheel(scope, wheel), wheels))
    received = sum(part.received for part in parts)
    if received:
        scope.report(f"CUDA headers of {len(wheels)} wheels: {received / 1e6:.1f} MB fetched")
    return CudaParts(
        include_dirs=tuple(folder for part in parts for folder in part.include_dirs),
        libraries=tuple(sorted({library for part in parts for library in part.libraries})),
        runtime=next((part.runtime for part in parts if part.runtime is not None), None),
        received=received,
    )


def toolkit(scope: Scope, site_packages: Path) -> tuple[Path, ...]:
    """Return the part for the scope's machine of the CUDA toolkit whose part for this machine is in ``site_packages``.

    It is a folder for each wheel, with the layout of ``site_packages``: headers, the runtime, and stubs of other
    libraries, in the installed versions. Downloads are reported.
    """
    installed = _installed(site_packages)
    if not installed:
        return ()
    wheels = resolve.wheels(scope, installed, dependencies=False)
    received: list[int] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        folders = tuple(pool.map(lambda wheel: _toolkit_of_wheel(scope, wheel, received.append), wheels))
    if received:
        machine = scope.interpreter.machine
        scope.report(f"CUDA toolkit for {machine}, of {len(wheels)} wheels: {sum(received) / 1e6:.1f} MB fetched")
    return folders


def _installed(site_packages: Path) -> list[str]:
    """Return a requirement for each installed wheel with headers or libraries of a CUDA toolkit."""
    found = []
    for record in sorted(site_packages.glob("nvidia_*.dist-info/RECORD")):
        if TOOLKIT.search(record.read_text(encoding="utf-8", errors="replace")):
            name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
            found.append(f"{canonicalize_name(name)}=={version}")
    return found


def _toolkit_of_wheel(scope: Scope, wheel: ResolvedWheel, received: Callable[[int], None]) -> Path:
    def fill(made: Path) -> Mapping[str, object]:
        fetched = fetch.read(scope, wheel, OF_TOOLKIT)
        contents = {member.name: data for member, data in fetched.contents}
        for member in fetched.members:
            if (match := LIBRARY.fullmatch(member.name)) and member.name not in contents:
                contents[member.name] = exports.stub(match[2], scope.interpreter.machine)
        for name, data in contents.items():
            scope.store.put(data, made, name)
        received(fetched.received)
        return {"title": f"{wheel.name} {wheel.version} for {scope.interpreter.machine}"}

    return scope.store.make("nvidia", f"{wheel.key}-toolkit-{LAYOUT}", fill)[0]


def requirements(requires: tuple[str, ...], interpreter: Interpreter) -> list[str]:
    """Return those of torch's requirements that install CUDA libraries on a Linux machine, without markers."""
    environment = {
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": interpreter.machine,
        "python_version": ".".join(interpreter.version.split(".")[:2]),
        "python_full_version": interpreter.version,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    found = []
    for line in requires:
        try:
            requirement = Requirement(line)
            applies = requirement.marker is None or requirement.marker.evaluate(environment)
        except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName, InvalidVersion) as error:
            raise FetchError(
                f"torch's wheel requires {ascii(line)[:100]}, which is not a requirement: {ascii(str(error))[:100]}. "
                "Tell the owner of the index"
            ) from error
        if PACKAGES.fullmatch(requirement.name) and applies:
            requirement.marker = None
            found.append(str(requirement))
    return sorted(found)


def _parts_of_wheel(scope: Scope, wheel: ResolvedWheel) -> CudaParts:
    received = 0

    def fill(made: Path) -> Mapping[str, object]:
        nonlocal received
        fetched = fetch.read(scope, wheel, MEMBERS)
        for member, data in fetched.contents:
            scope.store.put(data, made, member.name)
        matches = filter(None, (LIBRARY.fullmatch(member.name) for member in fetched.members))
        folders = {
            match[0] for member in fetched.members if (match := re.match(r"(?:[^/]+/)*?include(?=/)", member.name))
        }
        received = fetched.received
        return {
            "title": f"{wheel.name} {wheel.version}",
            "include_dirs": sorted(folders),
            "libraries": sorted((match[2], match[1]) for match in matches),
        }

    folder, marker = scope.store.make("nvidia", f"{wheel.key}-{LAYOUT}", fill, _parse_marker)
    include_dirs, libraries = _parse_marker(marker)
    return CudaParts(
        include_dirs=tuple(folder / name for name in include_dirs),
        libraries=libraries,
        runtime=next((folder / place / name for name, place in libraries if RUNTIME.fullmatch(name)), None),
        received=received,
    )


def _parse_marker(marker: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the folders of headers, and (SONAME, folder) of the libraries, from a marker."""
    return tuple(marker["include_dirs"]), tuple((soname, place) for soname, place in marker["libraries"])
