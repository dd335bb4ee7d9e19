"""The state of an installation, its faults, and the commands to type: for users, and for bug reports."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from hatch_torch_ext import __version__
from hatch_torch_ext.base import escape, process, redact, resources, untrusted
from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.user import drivers, pruning
from hatch_torch_ext.user import target as targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hatch_torch_ext.user.machine import Machine
    from hatch_torch_ext.user.pruning import InstalledPackage
    from hatch_torch_ext.user.target import TargetPython

TIMEOUT = 120.0
OUTPUT = 16 << 20
"""The most that is read of what a program prints, in bytes: a package's loader prints its manifest."""
COMPILERS = ("c++", "g++", "clang++", "nvcc", "cmake")
MANY = 20
"""The most sentences that are taken from one package's loader."""
SCHEMA = 1
"""The version of the shape of ``doctor --json``, which ``docs/doctor.schema.json`` describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageHealth:
    """An installed package, and the variant that it would load, or None; ``verdicts`` are (label, reason) of each.

    ``built`` says that this variant was built here at first use; ``missed`` is the one that would be loaded here, and
    that ``prune`` removed. ``trouble`` is what the loader wrote to stderr; ``faults`` are its sentences on files of the
    variant, ``damaged`` says that one is missing or not as it was built; ``answers`` is False for a loader that cannot
    be run.

    The commands that may help, None where they do not: ``opt_in`` lets it use a pre-release of torch, ``build`` builds
    it for the torch that is here, ``other_torch`` installs one that it serves by itself.
    """

    installed: InstalledPackage
    chosen: str | None
    verdicts: tuple[tuple[str, str], ...]
    built: bool = False
    missed: str | None = None
    trouble: str | None = None
    faults: tuple[str, ...] = ()
    damaged: bool = False
    answers: bool = True
    opt_in: str | None = None
    build: tuple[str, ...] = ()
    other_torch: str | None = None

    @property
    def works(self) -> bool:
        """Return whether a variant is chosen, and whole."""
        return self.chosen is not None and not self.damaged

    @property
    def named(self) -> str:
        """Return its name and version; a copied folder has no version."""
        return f"{self.installed.distribution} {self.installed.version or '(a copied folder)'}"

    @property
    def problem(self) -> str | None:
        """Return what keeps it from working, in one sentence."""
        named = self.named
        if self.chosen:
            return None
        if not self.answers:
            return f"{named} is damaged: {(self.trouble or '').splitlines()[-1]}"
        if self.missed:
            return f"{named} was pruned: its variant {self.missed} would be loaded here, and is removed"
        if self.opt_in:
            return f"{named} has variants for the release of this torch, which is a pre-release or a vendor's build"
        if self.build and not self.verdicts:
            return f"{named} is not built yet for the torch that is here"
        return f"{named} has no variant that matches this environment"

    def to_json(self) -> dict[str, Any]:
        """Return what ``doctor --json`` has of it."""
        return {
            "distribution": self.installed.distribution,
            "version": self.installed.version,
            "package": self.installed.package,
            "works": self.works,
            "chosen": self.chosen,
            "built": self.built,
            "verdicts": dict(self.verdicts),
            "pruned": sorted(self.installed.pruned),
            "reinstall": self.installed.again,
            "trouble": self.trouble,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that ``doctor`` reports: ``problems`` are sentences, the worst first; ``commands`` in the order to type."""

    hatch_torch_ext: str
    machine: Machine
    python: str
    facts: Mapping[str, Any]
    torch: Mapping[str, Any]
    tools: tuple[tuple[str, str], ...]
    packages: tuple[PackageHealth, ...]
    problems: tuple[str, ...]
    commands: tuple[str, ...] = ()

    @property
    def built_for(self) -> str:
        """Return what torch was built for, in words."""
        if cuda := self.torch.get("cuda"):
            return f"CUDA {cuda}"
        return "ROCm" if self.torch.get("hip") else "the CPU"

    @property
    def other_gpus(self) -> Iterable[str]:
        """Yield a line for each GPU of another vendor: what it is, and what torch has for it."""
        rocm, amd = drivers.rocm(self.machine.amd), self.machine.amd
        for gpu in self.machine.others:
            if gpu.vendor != "AMD":
                what = "torch has builds for XPU"
            elif amd:
                has = f"torch has builds for ROCm {', '.join(rocm)}" if rocm else "no build of torch has code for it"
                what = f"{', '.join(dict.fromkeys(amd))}; {has}"
            else:
                what = "the kernel has no compute driver for it (/sys/class/kfd)"
            yield f"{gpu.vendor} {gpu.name}: {what}; packages run their CPU variants"

    @property
    def healthy(self) -> bool:
        """Return whether no problem was found."""
        return not self.problems

    def to_json(self, environ: Mapping[str, str]) -> str:
        """Return the diagnosis as JSON for a bug report, without the user's name, home folder and secrets."""
        data = {
            "schema": SCHEMA,
            "hatch_torch_ext": self.hatch_torch_ext,
            "healthy": self.healthy,
            "problems": list(self.problems),
            "commands": list(self.commands),
            "machine": asdict(self.machine),
            "python": self.python,
            "facts": dict(self.facts),
            "torch": dict(self.torch),
            "tools": dict(self.tools),
            "packages": [each.to_json() for each in self.packages],
        }
        return private(escape.json(data), environ)


def private(text: str, environ: Mapping[str, str]) -> str:
    """Return ``text`` without the user's name, home folder and secrets."""
    home, user = environ.get("HOME", ""), environ.get("USER") or environ.get("LOGNAME") or ""
    if len(home) > 1:
        text = text.replace(home, "~")
    if len(user) > 2 and user != "root":  # noqa: PLR2004 - shorter ones are parts of words
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(user)}(?![A-Za-z0-9])", "user", text)
    return redact.clean(text)


def diagnose(target: TargetPython, machine: Machine, only: Sequence[str], environ: Mapping[str, str]) -> Diagnosis:
    """Examine ``target`` and everything on which its choice of a variant depends; ``only`` names the packages."""
    torch = _torch(target)
    installed, hidden = _found(torch)
    names = {canonicalize_name(each) for each in only}
    here = [each for each in installed if not names or canonicalize_name(each.distribution) in names]
    states = tuple(health(target, each, torch) for each in here if not each.problem)
    faulty = [each for each in here if each.problem]
    missing = sorted(names - {canonicalize_name(each.distribution) for each in installed})
    of_torch = list(_of_torch(target, torch, machine))
    problems = [*(each.problem for each in faulty), *filter(None, (each.problem for each in states))]
    where = f"is not installed in {target.python}, or was not made with hatch-torch-ext"
    problems += [f"{name} {where}" for name in missing]
    problems += [sentence for each in states for sentence in each.faults if not each.missed]
    problems += [*of_torch, *machine.problems, *_twice(states)]
    problems += [
        f"{copy.root} is a copy that no installer knows, and hides {each.distribution} {each.version} in "
        f"{each.root.parent}: remove it"
        for copy, each in hidden
    ]
    problems += [line for each in states for line in _ptx(each, machine)]
    commands = [f"rm -r {shlex.quote(escape.name(copy.root))}" for copy, _ in hidden]
    commands += [each.again for each in faulty if each.fault]
    commands += _commands(states, missing, target, torch, replace_torch=bool(of_torch))
    return Diagnosis(
        hatch_torch_ext=__version__,
        machine=machine,
        python=f"{target.python} ({target.named_by})",
        facts=target.facts,
        torch={name: value for name, value in torch.items() if name != "sites"},
        tools=tuple(_tools(environ)),
        packages=states,
        problems=tuple(dict.fromkeys(targets.there(target, each) for each in problems)),
        commands=tuple(dict.fromkeys(targets.there(target, each) for each in commands)),
    )


def _torch(target: TargetPython) -> dict[str, Any]:
    try:
        done = process.run(
            [target.python, resources.PROBE, "imported"],
            check=False,
            timeout=TIMEOUT,
            env_changes={"PYTHONSAFEPATH": "1"},
            limit=OUTPUT,
        )
        answer = untrusted.json(done.stdout.splitlines()[-1])
    except (ProcessError, ValueError, IndexError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("sites"), list):
        return {"sites": [], "error": "the Python gives no facts of torch"}
    return answer


def _found(
    torch: Mapping[str, Any],
) -> tuple[list[InstalledPackage], list[tuple[InstalledPackage, InstalledPackage]]]:
    """Return the packages of every folder, of one that is there twice that which Python finds first.

    Then those among them that are copied folders, each with the installed package that Python does not find for it.
    """
    found: dict[str, InstalledPackage] = {}
    hidden = []
    for site in map(Path, torch.get("sites", [])):
        recorded = pruning.packages(site)
        for each in (*recorded, *pruning.unrecorded(site, recorded)):
            first = found.setdefault(each.package, each)
            if each.version and not first.version:
                hidden.append((first, each))
    return list(found.values()), hidden


def installed(target: TargetPython) -> list[InstalledPackage]:
    """Return the packages with variants that an installer put where the target finds them."""
    found: dict[str, InstalledPackage] = {}
    for site in _torch(target).get("sites", []):
        for each in pruning.packages(Path(site)):
            found.setdefault(each.package, each)
    return list(found.values())


def health(
    target: TargetPython,
    installed: InstalledPackage,
    torch: Mapping[str, Any] | None = None,
    **changes: str | None,
) -> PackageHealth:
    """Return what the package loads in the target; with what is known of its ``torch``, also what would help.

    Its own loader is run as a file, which works even if the package cannot be imported. ``changes`` are of variables.
    """
    answer, trouble = _answer(target, installed, **changes)
    label, verdicts, built = answer.get("chosen"), answer.get("verdicts"), answer.get("built") is True
    label = label if isinstance(label, str) and label else None
    missed = label if not built and label in installed.pruned else None
    state = PackageHealth(
        installed=installed,
        chosen=None if missed else label,
        verdicts=tuple((str(label), str(verdict)) for label, verdict in sorted(_items(verdicts))),
        built=built,
        missed=missed,
        trouble=trouble or None,
        faults=tuple(escape.line(str(each)) for each in _list(answer.get("problems"))),
        damaged=answer.get("damaged") is True,
        answers=bool(answer) or bool(torch and torch.get("error")),
    )
    if state.chosen or missed or not torch or torch.get("error") or not torch.get("version"):
        return state
    return replace(
        state,
        opt_in=_opt_in(target, installed, torch),
        build=_builds(installed, answer.get("build")) if "fallback" in installed.head else (),
        other_torch=_first_command(answer.get("remedy")),
    )


def _answer(target: TargetPython, installed: InstalledPackage, **changes: str | None) -> tuple[Mapping[str, Any], str]:
    """Return the answer of the package's loader, {} if there is none, and what it wrote to stderr."""
    environ = {"PYTHONSAFEPATH": "1", **changes}
    module = installed.root / "_variants.py"
    try:
        done = process.run(
            [target.python, module, "--json"], check=False, timeout=TIMEOUT, env_changes=environ, limit=OUTPUT
        )
        answer = untrusted.json(done.stdout)
    except ProcessError:
        return {}, "its loader gives no answer"
    except ValueError:
        return {}, done.stderr.strip() or "its loader gives no answer"
    return (answer, done.stderr.strip()) if isinstance(answer, dict) else ({}, "its loader gives no answer")


def _opt_in(target: TargetPython, installed: InstalledPackage, torch: Mapping[str, Any]) -> str | None:
    """Return what lets the package use a torch that is a pre-release, if one of its variants is for that release."""
    if not releases.is_prerelease(str(torch["version"])):
        return None
    answer, _ = _answer(target, installed, TORCH_EXT_PRERELEASE="1")
    label = answer.get("chosen")
    return "export TORCH_EXT_PRERELEASE=1" if label and label not in installed.pruned else None


def _builds(installed: InstalledPackage, given: object) -> tuple[str, ...]:
    """Return the commands of a loader that build the package for the torch that is here."""
    lines = tuple(escape.line(str(each)) for each in _list(given))
    return lines or (f"python -m {installed.package}._variants --build",)


def _first_command(lines: object) -> str | None:
    """Return the first command among the lines of a loader's remedy."""
    if not isinstance(lines, list):
        return None
    return next((escape.line(line.strip()) for line in map(str, lines) if line.startswith("  ")), None)


def _list(data: object) -> Sequence[object]:
    return data[:MANY] if isinstance(data, list) else ()


def _items(data: object) -> Iterable[tuple[str, object]]:
    return data.items() if isinstance(data, dict) else ()


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
    for each in (state.installed for state in health):
        reported = {each.distribution}
        files = [file for variant, _ in each.variants for file in variant.files]
        for what, names in (
            ("register the operator namespace", {name for file in files for name in file.namespaces}),
            ("define the operator", {name for file in files for name in file.operators}),
        ):
            for name in sorted(names):
                before = holders.setdefault(name, each.distribution)
                if before not in reported:
                    reported.add(before)
                    yield f"{before} and {each.distribution} both {what} `{name}`"


def _ptx(state: PackageHealth, machine: Machine) -> Iterable[str]:
    """Yield a problem for PTX that this driver cannot compile: minor-version compatibility does not cover PTX."""
    chosen = next((variant for variant, _ in state.installed.variants if variant.label == state.chosen), None)
    if chosen is None or not chosen.cuda or not machine.supported or machine.supported >= drivers.numbers(chosen.cuda):
        return
    code = [int(re.sub(r"[^0-9]", "", arch)) for arch in chosen.archs if not arch.endswith("+PTX")]
    for gpu in machine.visible:
        if gpu.capability is None:
            continue
        own = gpu.capability[0] * 10 + gpu.capability[1]
        if not any(each // 10 == gpu.capability[0] and each <= own for each in code):
            yield (
                f"{state.installed.distribution} has only PTX for GPU {gpu.index}, made by CUDA {chosen.cuda}, and "
                f"this driver compiles PTX up to CUDA {'.'.join(map(str, machine.supported))}: update the driver"
            )


def _tools(environ: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for name in COMPILERS:
        program = shutil.which(name, path=environ.get("PATH"))
        if program is None:
            continue
        try:
            done = process.run([program, "--version"], check=False, timeout=TIMEOUT, limit=OUTPUT)
        except ProcessError:
            continue
        lines = [line for line in done.stdout.splitlines() if re.search(r"[0-9]+\.[0-9]", line)]
        yield program, (lines[-1 if name == "nvcc" else 0].strip() if lines else "?")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(name):
            yield name, environ[name] + ("" if Path(environ[name]).is_dir() else " (no such folder)")


def _commands(
    health: Sequence[PackageHealth],
    missing: Sequence[str],
    target: TargetPython,
    torch: Mapping[str, Any],
    *,
    replace_torch: bool,
) -> Iterator[str]:
    """Yield the commands that mend it all, in the order to type: what costs least first, but a torch before a build.

    ``replace_torch`` says that the torch itself is what is wrong, or is not there.
    """
    broken = [each for each in health if not each.works]
    as_it_was = [each for each in broken if each.missed or each.damaged or not each.answers]
    yield from sorted({each.installed.again for each in as_it_was})
    rest = [each for each in broken if each not in as_it_was]
    if not replace_torch:
        yield from sorted({each.opt_in for each in rest if each.opt_in})
        builds = [line for each in rest if not each.opt_in for line in each.build]
        rest = [each for each in rest if not each.opt_in and not each.build]
        if missing and is_vendors(str(torch.get("version"))):
            yield shlex.join([*targets.pip_install(target), "--no-deps", *missing])
            missing = ()
    else:
        builds = []
    # No index serves a project that was installed from its folder; what has its name there is somebody else's.
    served = [name for each in (health if replace_torch else rest) if (name := each.installed.requirement)]
    names = [shlex.quote(name) for name in (*(["torch"] if replace_torch else []), *served, *missing)]
    if names:
        yield f"hatch-torch-ext install --python {_quoted(target)} {' '.join(names)}"
    yield from builds
    if not replace_torch:
        yield from (each.other_torch for each in rest if each.other_torch and not each.installed.requirement)


def is_vendors(version: str) -> bool:
    """Return whether a torch is one that no index has: a pre-release with a local name that is not torch's own."""
    local = version.partition("+")[2]
    return releases.is_prerelease(version) and re.fullmatch(r"(cpu|cu[0-9]+|rocm[0-9.]+|xpu)?", local) is None


def _quoted(target: TargetPython) -> str:
    return shlex.quote(os.fspath(target.python))
