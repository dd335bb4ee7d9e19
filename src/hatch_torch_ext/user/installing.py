"""The right torch: the release and build that suit this machine and the packages best, and how to install them.

torch and its companions come from torch's own index alone, everything else from the default index alone, so neither
index can provide a package under a name of the other's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.remote import archive, index
from hatch_torch_ext.remote.archive import ArchiveError
from hatch_torch_ext.remote.http import RemoteError
from hatch_torch_ext.resources import _variants as loader
from hatch_torch_ext.user import packages
from hatch_torch_ext.user.machine import DRIVER, usable_cuda
from hatch_torch_ext.user.packages import TORCH_FAMILY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from packaging.version import Version

    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.remote.index import IndexFile
    from hatch_torch_ext.user.machine import Machine
    from hatch_torch_ext.user.packages import PackageOffer
    from hatch_torch_ext.user.target import TargetPython

CHANNELS = {"stable": "", "test": "/test", "nightly": "/nightly"}
BACKEND = "TORCH_EXT_BACKEND"
CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An installation in two steps: ``torch`` from ``index`` alone, without its dependencies, then ``packages``.

    ``torch`` are exact requirements (``torch==2.13.0+cu130``, a torchvision). ``packages`` repeat them, so that the
    second step, which installs all dependencies, does not install another torch. ``because`` are the reasons, as
    sentences.
    """

    torch: tuple[str, ...]
    packages: tuple[str, ...]
    backend: str
    index: str
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Where torch's packages are searched for; below the address ``base`` each backend has an index of its own."""

    http: Http
    target: TargetPython
    base: str
    prereleases: bool

    def newest(self, files: Sequence[IndexFile], specifier: SpecifierSet) -> tuple[Version, IndexFile] | None:
        """Return the newest of ``files`` that the target accepts."""
        tags, python = self.target.tags, self.target.python_version
        return packages.newest(files, specifier, tags, python, prereleases=self.prereleases)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A build of torch on its index, and the variant (or None) that each package would load with it."""

    version: Version
    backend: str
    chosen: tuple[Mapping[str, Any] | None, ...]

    def rank(self, order: Sequence[str]) -> tuple[object, ...]:
        """Return a sort key, the best candidate last: packages on the GPU, then torch's release, then the backend."""
        accelerated = sum(1 for variant in self.chosen if variant is not None and variant["cuda"])
        return accelerated, self.version.release, -order.index(self.backend)


def cuda_of(backend: str) -> str | None:
    """Return ``12.8`` for ``cu128``, None for ``cpu``. Raises ``ConfigurationError`` for anything else."""
    if backend == CPU:
        return None
    match = re.fullmatch(r"cu([0-9]{2})([0-9])", backend)
    if match is None:
        raise ConfigurationError([f"the backend {backend[:40]!r} is not known: give `cu130`, `cpu` or `auto`."])
    return f"{match[1]}.{match[2]}"


def backends(machine: Machine, asked: str) -> tuple[str, ...]:
    """Return the backends to consider, best first: ``asked``; with ``auto``, those that the machine runs, then CPU."""
    if asked != "auto":
        cuda_of(asked)
        return (asked,)
    known = sorted({cuda for versions in releases.PUBLISHED_CUDA.values() for cuda in versions}, key=releases.minor_of)
    return (*(Backend("cuda", cuda).tag for cuda in usable_cuda(machine, known)), CPU)


def plan(
    asked: Sequence[str],
    target: TargetPython,
    machine: Machine,
    http: Http,
    *,
    backend: str = "auto",
    channel: str = "stable",
    torch_index: str = releases.TORCH_INDEX,
) -> Plan:
    """Return what to install for the packages ``asked``, and how.

    Raises ``ConfigurationError`` if no build of torch that runs on this machine suits all of them; the message names
    each with what it serves.
    """
    torch_specifier, family, others = _sorted(asked)
    offers = [packages.offer(each, target, http) for each in others]
    ours = [each for each in offers if each.variants]
    order = backends(machine, backend)
    base = f"{torch_index.rstrip('/')}{CHANNELS[channel]}"
    search = _Search(http=http, target=target, base=base, prereleases=channel != "stable")
    candidates = []
    for name in order:
        for version in _builds(search, name, torch_specifier):
            here = _facts_with(target, version, cuda_of(name))
            chosen = [loader.select(here, each.variants).variant for each in ours]
            if all(variant is not None for variant in chosen):
                candidates.append(_Candidate(version=version, backend=name, chosen=tuple(chosen)))
    if not candidates:
        raise ConfigurationError([_nothing(ours, order, target, f"{base}/", torch_specifier)])
    best = max(candidates, key=lambda each: each.rank(order))
    return _plan_of(best, search, machine, offers=offers, family=family)


def _facts_with(target: TargetPython, version: Version, cuda: str | None) -> dict[str, Any]:
    """Return the loader's facts as they would be with that torch installed."""
    abi = releases.cxx11_abi(f"{version.major}.{version.minor}", str(target.facts["machine"]), cuda)
    return {
        **target.facts,
        "torch": str(version),
        "backend": f"CUDA {cuda}" if cuda else "CPU",
        "cxx11_abi": abi,
    }


def _sorted(asked: Sequence[str]) -> tuple[SpecifierSet, list[str], list[str]]:
    """Split the requirements: torch's own specifier, the rest of torch's family, and everything else."""
    specifier, family, others = SpecifierSet(), [], []
    for each in asked:
        match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", each)
        name = canonicalize_name(match[0]) if match and not each.endswith(".whl") else ""
        if name == "torch":
            specifier &= Requirement(each).specifier
        elif name in TORCH_FAMILY:
            family.append(each)
        else:
            others.append(each)
    return specifier, family, others


def _builds(search: _Search, backend: str, specifier: SpecifierSet) -> list[Version]:
    """Return the newest patch of each release line of torch that the index of ``backend`` has for this Python."""
    try:
        listed = index.files(search.http, f"{search.base}/{backend}", "torch")
    except RemoteError as error:
        if "does not exist" in str(error) or "forbidden" in str(error):
            return []  # torch has no such build any more, or not yet
        raise
    found = []
    while (newest := search.newest(listed, specifier)) is not None:
        found.append(newest[0])
        specifier &= SpecifierSet(f"<{newest[0].major}.{newest[0].minor}.dev0")
    return found


def _plan_of(
    best: _Candidate, search: _Search, machine: Machine, *, offers: Sequence[PackageOffer], family: Sequence[str]
) -> Plan:
    url = f"{search.base}/{best.backend}"
    torch = f"torch=={best.version}"
    companions = [_companion(each, best.version, url, search) for each in family]
    because = [_why_backend(best.backend, machine)]
    ours = [each for each in offers if each.variants]
    for each, variant in zip(ours, best.chosen, strict=True):
        label = variant["label"] if variant is not None else "none"
        because.append(f"{each.name} serves it with its variant {label}")
    pinned = (torch, *companions)
    return Plan(
        torch=pinned,
        packages=(*pinned, *(each.requirement for each in offers)),
        backend=best.backend,
        index=url,
        because=tuple(because),
    )


def _why_backend(backend: str, machine: Machine) -> str:
    if backend == CPU:
        if not machine.visible:
            return "no NVIDIA GPU is visible here, so the CPU build of torch is enough"
        return (
            "the packages have no variant for any CUDA build of torch that this driver and these GPUs run, so the CPU "
            "build is taken"
        )
    names = ", ".join(sorted({gpu.name or "a GPU" for gpu in machine.visible})) or f"what {DRIVER} says"
    told = f"driver {machine.driver}" if machine.driver else "the driver"
    return f"{told} runs CUDA {cuda_of(backend)}, and its build of torch has code for {names}"


def _companion(asked: str, torch: Version, url: str, search: _Search) -> str:
    """Return the torchvision or torchaudio release for exactly this torch. Raises ``ConfigurationError``."""
    requirement = Requirement(asked)
    name = canonicalize_name(requirement.name)
    files = index.files(search.http, url, name)
    specifier = requirement.specifier
    while (newest := search.newest(files, specifier)) is not None:
        version, file = newest
        if any(each.contains(torch, prereleases=True) for each in _torch_of(search.http, file.url)):
            return f"{name}=={version}"
        specifier &= SpecifierSet(f"<{version.public}")
    raise ConfigurationError([f"{url} has no {name} for torch {torch}: leave it out, or name another torch."])


def _torch_of(http: Http, url: str) -> list[SpecifierSet]:
    """Return a wheel's torch requirement, from its METADATA, which is read by ranges."""
    try:
        with packages.opened(http, url) as source:
            wanted = [member for member in archive.directory(source) if member.name.endswith(".dist-info/METADATA")]
            ((_, data),) = archive.extract(source, wanted)
    except (ArchiveError, ValueError) as error:
        raise RemoteError(f"{url} cannot be read: {error}") from error
    lines = data.decode("utf-8", "replace").splitlines()
    said = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("requires-dist:")]
    found = [Requirement(line) for line in said if re.match(r"torch\b(?![-\w.])", line)]
    return [each.specifier for each in found]


def _nothing(
    ours: Sequence[PackageOffer], order: Sequence[str], target: TargetPython, base: str, specifier: SpecifierSet
) -> str:
    asked = f"torch{specifier}" if str(specifier) else "torch"
    lines = [f"{base} has no {asked} for {target.facts['python']} among its builds {', '.join(order)}"]
    if ours:
        lines = [
            f"no {asked} for {target.facts['python']} that this machine runs ({', '.join(order)}) serves everything:"
        ]
        lines += [f"  {each.requirement} has variants for {each.served}" for each in ours]
    return "\n".join([*lines, "Take another Python (--python), another backend (--backend), or another release."])
