"""The right torch: the release and build that suit this machine and the packages best, and how to install them.

torch and its companions come only from torch's own index, everything else only from the default index, so neither
index can provide a package under a name of the other's.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.remote import archive, index
from hatch_torch_ext.remote.archive import ArchiveError
from hatch_torch_ext.remote.http import RemoteError
from hatch_torch_ext.resources import _variants as loader
from hatch_torch_ext.user import drivers, packages
from hatch_torch_ext.user.machine import usable_cuda
from hatch_torch_ext.user.packages import TORCH_FAMILY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from packaging.tags import Tag
    from packaging.version import Version

    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.remote.index import IndexFile
    from hatch_torch_ext.user.machine import Gpu, Machine
    from hatch_torch_ext.user.packages import PackageOffer
    from hatch_torch_ext.user.target import TargetPython

CHANNELS = {"stable": "", "test": "/test", "nightly": "/nightly"}
CPU = "cpu"
AUTO = "auto"
ANOTHER_INDEX = (
    "Where torch's index cannot be reached, give a mirror of it, or a folder with a folder of wheels for each backend "
    "(cpu, cu130), by --torch-index or TORCH_EXT_TORCH_INDEX"
)
XPU = "xpu"
ROCM = re.compile(r"rocm([0-9](?:\.[0-9]{1,2}){1,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An installation in two steps: ``torch`` only from ``index``, without its dependencies, then ``packages``.

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
    """Where torch's packages are searched for; below the address ``base`` each backend has its own index."""

    http: Http
    target: TargetPython
    base: str
    prereleases: bool
    specifier: SpecifierSet
    tags: frozenset[Tag]

    def newest(self, files: Sequence[IndexFile], specifier: SpecifierSet) -> tuple[Version, IndexFile] | None:
        """Return the newest of ``files`` that the target accepts."""
        python = self.target.python_version
        return packages.newest(files, specifier, self.tags, python, prereleases=self.prereleases)

    @property
    def in_words(self) -> str:
        """Return in words what is searched for."""
        return f"torch{self.specifier} for {self.target.facts['python']}"

    def builds(self, backend: str) -> list[Version]:
        """Return the newest patch of each release line of torch that the index of ``backend`` has for this Python."""
        try:
            listed = index.files(self.http, f"{self.base}/{backend}", "torch")
        except RemoteError as error:
            if "does not exist" in str(error) or "forbidden" in str(error):
                return []  # torch has no such build any more, or not yet
            raise RemoteError(f"{error}. {ANOTHER_INDEX}") from error
        python = self.target.python_version
        found: dict[tuple[int, int], Version] = {}
        for version, _ in packages.admitted(listed, self.specifier, self.tags, python, prereleases=self.prereleases):
            line = version.major, version.minor
            found[line] = max(version, found.get(line, version))
        return sorted(found.values(), reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A build of torch on its index, and the variant (or None) that each package would load with it."""

    version: Version
    backend: str
    chosen: tuple[Mapping[str, Any] | None, ...]

    def rank(self, order: Sequence[str]) -> tuple[object, ...]:
        """Return a sort key, the best candidate last: packages on the GPU, torch on it, the release, the backend."""
        accelerated = sum(1 for variant in self.chosen if variant is not None and variant["cuda"])
        return accelerated, self.backend != CPU, self.version.release, -order.index(self.backend)


def cuda_of(backend: str) -> str | None:
    """Return ``12.8`` for ``cu128``, None for ``cpu``, ``rocm6.4`` and ``xpu``.

    Raises ``ConfigurationError`` for anything else.
    """
    if backend in {CPU, XPU} or ROCM.fullmatch(backend):
        return None
    try:
        return Backend.parse(backend).version or None
    except ValueError:
        raise ConfigurationError(
            f"the backend {backend[:40]!r} is not known: give `cu130`, `rocm6.4`, `xpu`, `cpu` or `auto`."
        ) from None


def backends(machine: Machine, choice: str) -> tuple[str, ...]:
    """Return the backends to consider, best first: ``choice``; with ``auto``, those that the machine runs, then CPU.

    Beside an NVIDIA GPU no other counts, and beside one of AMD's that torch has code for none of Intel's, as for uv.
    """
    if choice != AUTO:
        cuda = cuda_of(choice)
        return (_of_cuda(cuda) if cuda else choice,)
    if not machine.has_nvidia:
        if versions := drivers.rocm(machine.amd):
            return (*(f"rocm{version}" for version in versions), CPU)
        return (XPU, CPU) if any(gpu.vendor == "Intel" for gpu in machine.others) else (CPU,)
    return (*(_of_cuda(cuda) for cuda in usable_cuda(machine, _known_cuda())), CPU)


def _known_cuda() -> list[str]:
    """Return every CUDA version that torch was built for, the oldest first."""
    return sorted({cuda for versions in releases.PUBLISHED_CUDA.values() for cuda in versions}, key=releases.minor_of)


def _of_cuda(cuda: str) -> str:
    return Backend("cuda", cuda).tag


def plan(
    requested: Sequence[str],
    target: TargetPython,
    machine: Machine,
    http: Http,
    *,
    backend: str = AUTO,
    channel: str = "stable",
    torch_index: str = releases.TORCH_INDEX,
) -> Plan:
    """Return what to install for the packages ``requested``, and how.

    Raises ``ConfigurationError`` if no build of torch that runs on this machine suits all of them; the message names
    each with what it serves.
    """
    torch_specifier, family, others = _sorted(requested)
    offers = [packages.offer(each, target, http) for each in others]
    ours = [each for each in offers if each.variants]
    order = backends(machine, backend)
    base = f"{torch_index.rstrip('/')}{CHANNELS[channel]}"
    search = _Search(
        http=http,
        target=target,
        base=base,
        prereleases=channel != "stable",
        specifier=torch_specifier,
        tags=target.tags,
    )
    candidates = []
    refused = []
    for name in order:
        for version in search.builds(name):
            here = _facts_with(target, version, name)
            chosen = [loader.select(here, each.variants).variant for each in ours]
            if all(variant is not None for variant in chosen):
                candidates.append(_Candidate(version=version, backend=name, chosen=tuple(chosen)))
            elif name != CPU:
                refused.append(version)
    if not candidates:
        raise ConfigurationError(_nothing(ours, order, target, f"{base}/", torch_specifier))
    best = max(candidates, key=lambda each: each.rank(order))
    if backend == CPU:
        why = "the CPU build of torch was requested"
    elif best.backend == CPU:
        why = _why_cpu(search, machine, refused, ours)
    elif cuda_of(best.backend):
        why = _why_cuda(best.backend, machine)
    else:
        why = _why_other(best.backend, machine)
    return _plan_of(best, search, why, offers=offers, family=family)


def _facts_with(target: TargetPython, version: Version, backend: str) -> dict[str, Any]:
    """Return the loader's facts as they would be with that torch installed."""
    cuda = cuda_of(backend)
    named = f"CUDA {cuda}" if cuda else "XPU" if backend == XPU else "ROCm" if ROCM.fullmatch(backend) else "CPU"
    # The builds of 2.6 for ROCm and XPU changed their C++ ABI with that for CUDA 12.6 (release notes of 2.6).
    like = "12.6" if named in {"ROCm", "XPU"} else cuda
    abi = releases.cxx11_abi(f"{version.major}.{version.minor}", str(target.facts["machine"]), like)
    return {
        **target.facts,
        "torch": str(version),
        "backend": named,
        "cxx11_abi": abi,
    }


def _sorted(requested: Sequence[str]) -> tuple[SpecifierSet, list[str], list[str]]:
    """Split the requirements: torch's own specifier, the rest of torch's family, and everything else."""
    specifier, family, others = SpecifierSet(), [], []
    for each in requested:
        match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", each)
        name = canonicalize_name(match[0]) if match and not packages.is_path_of_wheel(each) else ""
        if name in TORCH_FAMILY:
            versions = _versions(each, name)
            if name == "torch":
                specifier &= versions
            else:
                family.append(each)
        else:
            others.append(each)
    return specifier, family, others


def _versions(text: str, name: str) -> SpecifierSet:
    """Return the versions that a requirement of torch's family accepts.

    Raises ``ConfigurationError`` if it is not one, or has more than a name and versions, which would have no effect.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        why = str(error).partition("\n")[0]
        raise ConfigurationError(f"`{text[:80]}` is not a requirement ({why}): write `{name}==VERSION`.") from error
    more = (("an address", requirement.url), ("extras", requirement.extras), ("a condition", requirement.marker))
    if found := [what for what, value in more if value]:
        raise ConfigurationError(
            f"{name} is given with {' and '.join(found)}, but it is taken from torch's index by its version only: "
            f"write `{name}` or `{name}==VERSION`."
        )
    return requirement.specifier


def _plan_of(
    best: _Candidate, search: _Search, why: str, *, offers: Sequence[PackageOffer], family: Sequence[str]
) -> Plan:
    url = f"{search.base}/{best.backend}"
    torch = f"torch=={best.version}"
    companions = [_companion(each, best.version, url, search) for each in family]
    because = [why]
    ours = [each for each in offers if each.variants]
    for each, variant in zip(ours, best.chosen, strict=True):
        label = variant["label"] if variant is not None else "none"
        on_cpu = best.backend != CPU and variant is not None and not variant["cuda"]
        note = ": its operators run on the CPU" if on_cpu else ""
        because.append(f"{each.name} serves it with its variant {label}{note}")
    pinned = (torch, *companions, *_triton(best, search, url))
    return Plan(
        torch=pinned,
        packages=(*pinned, *(each.requirement for each in offers)),
        backend=best.backend,
        index=url,
        because=tuple(because),
    )


def _why_cuda(backend: str, machine: Machine) -> str:
    """Return why a build for CUDA is taken."""
    cuda = cuda_of(backend)
    if not machine.has_nvidia:
        return f"the build of torch for CUDA {cuda} was requested; no NVIDIA GPU is visible here"
    if cuda is None or not machine.runs(cuda):
        return f"the build of torch for CUDA {cuda} was requested; {machine.driver_named} is too old for it"
    served = machine.served(cuda)
    names = ", ".join(sorted({gpu.name or "a GPU" for gpu in served})) or "its GPU, which cannot be read here"
    others = ", ".join(sorted({gpu.name or "a GPU" for gpu in machine.visible if gpu not in served}))
    without = f", but not for {others}" if others else ""
    return f"{machine.driver_named} runs CUDA {cuda}, and its build of torch has code for {names}{without}"


def _why_other(backend: str, machine: Machine) -> str:
    """Return why a build for ROCm or XPU is taken."""
    rocm = ROCM.fullmatch(backend)
    named = f"ROCm {rocm[1]}" if rocm else "XPU"
    vendor = "AMD" if rocm else "Intel"
    gpus = [gpu for gpu in machine.others if gpu.vendor == vendor]
    if machine.has_nvidia or not (machine.amd if rocm else gpus):
        return f"the build of torch for {named} was requested"
    if rocm and rocm[1] not in drivers.rocm(machine.amd):
        here = ", ".join(machine.amd)
        return f"the build of torch for {named} was requested; it is not known to have code for {here}"
    if rocm:
        return f"torch's build for {named} has code for the AMD GPU here ({', '.join(dict.fromkeys(machine.amd))})"
    return f"torch's build for XPU is for Intel GPUs, and one is here ({', '.join(gpu.name for gpu in gpus)})"


def _why_cpu(search: _Search, machine: Machine, refused: Sequence[Version], ours: Sequence[PackageOffer]) -> str:
    """Return why the CPU build is taken, though it was not requested."""
    if refused:
        version = max(refused, key=lambda each: each.release)
        served = "; ".join(f"{each.name} has variants for {each.served}" for each in ours)
        why = f"torch {version} would run on the GPU here, but not with every package ({served})"
    elif machine.has_nvidia:
        why = _why_not_cuda(search, machine)
    elif machine.gpus:
        return "CUDA_VISIBLE_DEVICES hides every NVIDIA GPU, so the CPU build of torch is enough"
    elif (names := backends(machine, AUTO)) != (CPU,):
        why = f"there is no build of {search.in_words} for {', '.join(names[:-1])}"
    elif machine.amd:
        why = f"no build of torch has code for the AMD GPU here ({', '.join(dict.fromkeys(machine.amd))})"
    elif machine.others:
        names = tuple(f"{gpu.vendor} {gpu.name}" for gpu in machine.others)
        why = f"the kernel has no compute driver for the GPU here ({', '.join(names)}; /sys/class/kfd lists none)"
    else:
        return "no NVIDIA GPU is visible here, so the CPU build of torch is enough"
    return f"{why}. The CPU build is taken"


def _why_not_cuda(search: _Search, machine: Machine) -> str:
    """Return why no build for CUDA is taken on a machine with an NVIDIA GPU."""
    others = [cuda for cuda in reversed(_known_cuda()) if search.builds(_of_cuda(cuda))]
    if not others:
        return f"there is no build of {search.in_words} for any CUDA"
    runs = [cuda for cuda in others if machine.runs(cuda)]
    if not runs:
        lowest = ".".join(map(str, drivers.minimum(drivers.numbers(others[-1])) or ()))
        return (
            f"{machine.driver_named} is too old for the builds of {search.in_words} that there are, for CUDA "
            f"{', '.join(reversed(others))}: update it to {lowest} or newer"
        )
    cards = ", ".join(sorted({_described(gpu) for gpu in machine.visible}))
    builds = f"the builds of {search.in_words} that {machine.driver_named} runs (CUDA {', '.join(runs)})"
    return f"{builds} have no code for {cards}"


def _described(gpu: Gpu) -> str:
    number = ".".join(map(str, gpu.capability or ()))
    return f"{gpu.name or 'GPU'} (compute capability {number})"


def _companion(text: str, torch: Version, url: str, search: _Search) -> str:
    """Return the torchvision or torchaudio release for exactly this torch. Raises ``ConfigurationError``."""
    requirement = Requirement(text)
    name = canonicalize_name(requirement.name)
    files = index.files(search.http, url, name)
    specifier = requirement.specifier
    while (newest := search.newest(files, specifier)) is not None:
        version, file = newest
        if any(each.contains(torch, prereleases=True) for each in _torch_of(search.http, file.url)):
            return f"{name}=={version}"
        specifier &= SpecifierSet(f"<{version.public}")
    raise ConfigurationError(f"{url} has no {name} for torch {torch}: leave it out, or name another torch.")


def _triton(best: _Candidate, search: _Search, url: str) -> tuple[str, ...]:
    """Return the build of triton that torch requires and that no other index has: for ROCm, XPU and nightly builds."""
    if (best.backend == CPU or cuda_of(best.backend)) and not search.prereleases:
        return ()
    exact = SpecifierSet(f"==={best.version}")
    newest = search.newest(index.files(search.http, url, "torch"), exact)
    about = {"python_version": search.target.python_version, "platform_machine": str(search.target.facts["machine"])}
    found = _requirements(search.http, newest[1].url) if newest else []
    required = [each for each in found if canonicalize_name(each.name) in packages.TRITON]
    return tuple(f"{each.name}{each.specifier}" for each in required if not each.marker or each.marker.evaluate(about))


def _torch_of(http: Http, url: str) -> list[SpecifierSet]:
    """Return a wheel's torch requirement."""
    return [each.specifier for each in _requirements(http, url) if canonicalize_name(each.name) == "torch"]


def _requirements(http: Http, url: str) -> list[Requirement]:
    """Return what a wheel requires, from its METADATA, which is read by ranges."""
    try:
        with packages.opened(http, url) as source:
            members = [member for member in archive.directory(source) if member.name.endswith(".dist-info/METADATA")]
            ((_, data),) = archive.extract(source, members)
    except (ArchiveError, ValueError) as error:
        raise RemoteError(f"{url} cannot be read: {error}") from error
    lines = data.decode("utf-8", "replace").splitlines()
    declared = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("requires-dist:")]
    found = []
    for line in declared:
        with contextlib.suppress(InvalidRequirement):
            found.append(Requirement(line))
    return found


def _nothing(
    ours: Sequence[PackageOffer], order: Sequence[str], target: TargetPython, base: str, specifier: SpecifierSet
) -> str:
    torch = f"torch{specifier}" if str(specifier) else "torch"
    lines = [f"{base} has no {torch} for {target.facts['python']} among its builds {', '.join(order)}"]
    if ours:
        lines = [
            f"no {torch} for {target.facts['python']} that this machine runs ({', '.join(order)}) serves everything:"
        ]
        lines += [f"  {each.requirement} has variants for {each.served}" for each in ours]
    return "\n".join([*lines, "Take another Python (--python), another backend (--backend), or another release."])
