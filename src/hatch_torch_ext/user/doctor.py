"""The state of an installation, its faults, and the next command to type: for users, and for bug reports."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from hatch_torch_ext import __version__
from hatch_torch_ext.base import escape, process, redact, untrusted
from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.user import drivers, pruning

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hatch_torch_ext.user.machine import Machine
    from hatch_torch_ext.user.target import TargetPython

PROBE = Path(__file__).parent.parent / "resources" / "ask_environment.py"
TIMEOUT = 120.0
COMPILERS = (
    ("c++", "--version"),
    ("g++", "--version"),
    ("clang++", "--version"),
    ("nvcc", "--version"),
    ("cmake", "--version"),
)
MEANS_PTX = re.compile(r"\+PTX$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageHealth:
    """An installed package, and the variant that it would load, or None; ``verdicts`` are (label, reason) of each.

    ``built`` says that this variant was built here at first use. ``again`` is what installs the package again, or None
    if that is neither a requirement nor a wheel. ``build`` builds it for the torch that is here, where it has sources
    and no variant; ``other_torch`` installs a torch that it has a variant for, as its loader says.
    """

    distribution: str
    version: str
    package: str
    chosen: str | None
    verdicts: tuple[tuple[str, str], ...]
    namespaces: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    remedy: str | None = None
    built: bool = False
    again: str | None = None
    build: str | None = None
    other_torch: str | None = None

    @property
    def works(self) -> bool:
        """Return whether a variant is chosen."""
        return self.chosen is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that ``doctor`` reports. ``problems`` are sentences, the worst first; ``type_next`` is one command."""

    hatch_torch_ext: str
    machine: Machine
    python: str
    facts: Mapping[str, Any]
    torch: Mapping[str, Any]
    tools: tuple[tuple[str, str], ...]
    packages: tuple[PackageHealth, ...]
    problems: tuple[str, ...]
    type_next: str | None = None

    @property
    def healthy(self) -> bool:
        """Return whether no problem was found."""
        return not self.problems

    def to_json(self, environ: Mapping[str, str]) -> str:
        """Return the diagnosis as JSON for a bug report, without the user's name, home folder and secrets."""
        data = {**asdict(self), "packages": [{**asdict(each), "works": each.works} for each in self.packages]}
        return private(escape.json(data), environ)


def private(text: str, environ: Mapping[str, str]) -> str:
    """Return ``text`` without the user's name, home folder and secrets."""
    home, user = environ.get("HOME", ""), environ.get("USER") or environ.get("LOGNAME") or ""
    if len(home) > 1:
        text = text.replace(home, "~")
    if len(user) > 2 and user != "root":  # noqa: PLR2004 - shorter ones are parts of words
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(user)}(?![A-Za-z0-9])", "user", text)
    return redact.clean(text)


def diagnose(target: TargetPython, machine: Machine, asked: Sequence[str], environ: Mapping[str, str]) -> Diagnosis:
    """Examine ``target`` and everything on which its choice of a variant depends; ``asked`` limits the packages."""
    torch = _torch(target)
    site_folders = [Path(each) for each in torch.get("sites", [])]
    installed = [each for site in site_folders for each in pruning.packages(site)]
    wanted = {canonicalize_name(each) for each in asked}
    here = [each for each in installed if not wanted or canonicalize_name(each.distribution) in wanted]
    states = tuple(health(target, each) for each in here if not each.fault)
    missing = sorted(wanted - {canonicalize_name(each.distribution) for each in installed})
    problems = [each.problem for each in here if each.fault]
    problems += [*_of_packages(states, missing, target), *_of_torch(target, torch, machine), *machine.problems]
    problems += _twice(states)
    problems += [line for each in here for line in _ptx(each, states, machine)]
    return Diagnosis(
        hatch_torch_ext=__version__,
        machine=machine,
        python=f"{target.python} ({target.said_by})",
        facts=target.facts,
        torch={name: value for name, value in torch.items() if name != "sites"},
        tools=tuple(_tools(environ)),
        packages=states,
        problems=tuple(dict.fromkeys(problems)),
        type_next=_next(states, missing, target, torch),
    )


def _torch(target: TargetPython) -> dict[str, Any]:
    try:
        done = process.run([target.python, PROBE], check=False, timeout=TIMEOUT, env_changes={"PYTHONSAFEPATH": "1"})
        answer = untrusted.json(done.stdout.splitlines()[-1])
    except (ProcessError, ValueError, IndexError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("sites"), list):
        return {"sites": [], "error": "the Python cannot be asked about torch"}
    return answer


def sites(target: TargetPython) -> list[Path]:
    """Return the folders of the target's installed packages."""
    return [Path(each) for each in _torch(target).get("sites", [])]


def health(target: TargetPython, installed: pruning.InstalledPackage) -> PackageHealth:
    """Return what the package loads in the target.

    Its own loader is run as a file, which works even if the package cannot be imported.
    """
    module = installed.root / "_variants.py"
    said: Any = None
    told = ""
    try:
        done = process.run(
            [target.python, module, "--json"], check=False, timeout=TIMEOUT, env_changes={"PYTHONSAFEPATH": "1"}
        )
        told = done.stderr.strip()
        said = untrusted.json(done.stdout)
    except (ProcessError, ValueError):
        pass
    if not isinstance(said, dict):
        said, told = {}, told or "its loader cannot be run"
    label, verdicts, built = said.get("chosen"), said.get("verdicts"), said.get("built") is True
    package = ".".join(installed.root.relative_to(installed.record.parent.parent).parts)
    files = [file for variant, _ in installed.variants for file in variant.files]
    return PackageHealth(
        distribution=installed.distribution,
        version=installed.version,
        package=package,
        chosen=label if isinstance(label, str) and label and (built or label not in installed.pruned) else None,
        verdicts=tuple((str(label), str(verdict)) for label, verdict in sorted(_items(verdicts))),
        namespaces=tuple(sorted({name for file in files for name in file.namespaces})),
        operators=tuple(sorted({name for file in files for name in file.operators})),
        remedy=told or None,
        built=built,
        again=installed.requirement,
        build=_build_command(target, installed, package),
        other_torch=_first_command(said.get("remedy")),
    )


def _build_command(target: TargetPython, installed: pruning.InstalledPackage, package: str) -> str | None:
    """Return what builds a package that has its sources and no variant; another torch would not help it."""
    if installed.variants or "fallback" not in installed.head:
        return None
    return f"{shlex.quote(os.fspath(target.python))} -m {package}._variants --build"


def _first_command(lines: object) -> str | None:
    """Return the first command among the lines of a loader's remedy."""
    if not isinstance(lines, list):
        return None
    return next((escape.line(line.strip()) for line in map(str, lines) if line.startswith("  ")), None)


def _items(data: object) -> Iterable[tuple[str, object]]:
    return data.items() if isinstance(data, dict) else ()


def _of_packages(health: Iterable[PackageHealth], missing: Iterable[str], target: TargetPython) -> Iterable[str]:
    for each in health:
        if not each.works:
            what = "is not built yet for the torch that is here" if each.build else "has no variant for what is here"
            yield f"{each.distribution} {each.version} {what}"
    for name in missing:
        yield f"{name} is not installed in {target.python}, or was not made with hatch-torch-ext"


def _of_torch(target: TargetPython, torch: Mapping[str, Any], machine: Machine) -> Iterable[str]:
    if torch.get("error"):
        yield f"torch cannot be imported: {torch['error']}"
        return
    cuda = torch.get("cuda")
    if not target.facts["torch"]:
        yield "torch is not installed"
    elif cuda and machine.visible and not machine.runs(str(cuda)):
        driver = machine.driver or ".".join(map(str, machine.supported or ()))
        lowest = drivers.minimum(drivers.numbers(str(cuda)))
        needed = f", which asks for {'.'.join(map(str, lowest))} or newer" if lowest else ""
        yield f"the NVIDIA driver ({driver}) is too old for this torch, built for CUDA {cuda}{needed}"
    elif cuda and machine.visible:
        served = {gpu.index for gpu in machine.served(str(cuda))}
        for gpu in machine.visible:
            if gpu.index not in served and gpu.capability is not None:
                number = ".".join(map(str, gpu.capability))
                named = f"GPU {gpu.index} ({gpu.name}, compute capability {number})"
                yield f"torch's build for CUDA {cuda} has no code for {named}"
    elif not cuda and machine.visible and not torch.get("hip"):
        yield "a GPU is here, but this torch is built for the CPU"


def _twice(health: Sequence[PackageHealth]) -> Iterable[str]:
    """Yield a problem for packages that share a namespace or an operator: the second import would abort the process."""
    holders: dict[str, str] = {}
    for each in health:
        told = {each.distribution}
        for what, names in (
            ("register the operator namespace", each.namespaces),
            ("define the operator", each.operators),
        ):
            for name in names:
                before = holders.setdefault(name, each.distribution)
                if before not in told:
                    told.add(before)
                    yield f"{before} and {each.distribution} both {what} `{name}`"


def _ptx(installed: pruning.InstalledPackage, health: Sequence[PackageHealth], machine: Machine) -> Iterable[str]:
    """Yield a problem for PTX that this driver cannot compile: minor-version compatibility does not cover PTX."""
    chosen = {each.chosen for each in health if each.distribution == installed.distribution}
    for variant, _ in installed.variants:
        if variant.label not in chosen or not variant.cuda or not machine.supported:
            continue
        numbers = [re.sub(r"[^0-9]", "", arch) for arch in variant.archs]
        code = [int(each) for each, arch in zip(numbers, variant.archs, strict=True) if not MEANS_PTX.search(arch)]
        for gpu in machine.visible:
            if gpu.capability is None:
                continue
            own = gpu.capability[0] * 10 + gpu.capability[1]
            direct = any(each // 10 == gpu.capability[0] and each <= own for each in code)
            if not direct and machine.supported < drivers.numbers(variant.cuda):
                yield (
                    f"{installed.distribution} has only PTX for GPU {gpu.index}, made by CUDA {variant.cuda}, and "
                    f"this driver compiles PTX up to CUDA {'.'.join(map(str, machine.supported))}: update the driver"
                )


def _tools(environ: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for name, option in COMPILERS:
        program = shutil.which(name, path=environ.get("PATH"))
        if program is None:
            continue
        try:
            done = process.run([program, option], check=False, timeout=TIMEOUT)
        except ProcessError:
            continue
        lines = [line for line in done.stdout.splitlines() if re.search(r"[0-9]+\.[0-9]", line)]
        yield program, (lines[-1 if name == "nvcc" else 0].strip() if lines else "?")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(name):
            yield name, environ[name] + ("" if Path(environ[name]).is_dir() else " (no such folder)")


def _next(
    health: Sequence[PackageHealth], missing: Sequence[str], target: TargetPython, torch: Mapping[str, Any]
) -> str | None:
    broken = [each for each in health if not each.works]
    # No index serves a project that was installed from its folder; what has its name there is somebody else's.
    requirements = [each.again for each in broken if each.again and not each.build]
    names = [shlex.quote(name) for name in (*requirements, *missing)]
    if not target.facts["torch"] or torch.get("error"):
        names = names or ["torch"]
    if names:
        return f"hatch-torch-ext install --python {shlex.quote(os.fspath(target.python))} {' '.join(names)}"
    commands = [each.build or each.other_torch for each in broken]
    return next(filter(None, commands), None)
