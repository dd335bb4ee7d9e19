"""The user's side: ``hatch-torch-ext install``, ``doctor`` and ``prune``."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from hatch_torch_ext.base import escape
from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from hatch_torch_ext.user.doctor import Diagnosis, PackageHealth
    from hatch_torch_ext.user.installing import Plan
    from hatch_torch_ext.user.pruning import InstalledPackage, Pruning
    from hatch_torch_ext.user.target import TargetPython

OTHER_PLACES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
)
"""Variables that name package indexes; none of them may affect where torch is fetched from."""
PLACES_OF_UV = frozenset({*OTHER_PLACES, "UV_INDEX_STRATEGY", "UV_INSECURE_HOST"})


def add_install(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "install",
        help="install the right torch for this machine and for packages, and the packages",
        epilog="Other options are handed on to `uv pip install`, or to `pip install` where there is no uv.",
    )
    command.add_argument(
        "packages", metavar="PACKAGE", nargs="+", help="a requirement, the path of a wheel, or `torch`"
    )
    command.add_argument("--dry-run", action="store_true", help="print the commands, and run nothing")
    command.add_argument("--backend", metavar="NAME", help="cu130, rocm6.4, xpu, cpu or auto, which is the default")
    command.add_argument("--channel", choices=("stable", "test", "nightly"), default="stable", help="of torch")
    command.add_argument("--python", metavar="PYTHON", type=path, help="the Python or environment to install into")
    command.add_argument(
        "-r",
        "--requirement",
        "--requirements",
        metavar="FILE",
        action="append",
        default=[],
        help="install what a file lists, too; torch is chosen for the packages of the command line only",
    )
    command.add_argument(
        "-e", "--editable", metavar="PATH", action="append", default=[], help="install a project, too, as editable"
    )
    command.add_argument(
        "-c",
        "--constraint",
        "--constraints",
        metavar="FILE",
        action="append",
        default=[],
        help="limit versions by a file, as for pip; torch is chosen within its lines on torch",
    )
    command.add_argument("--target", metavar="DIR", type=path, help="install into a folder, as pip's --target")
    terminal.add_torch_index(command)
    places = command.add_argument_group("where packages other than torch come from, as for pip and uv")
    places.add_argument("-i", "--index-url", "--default-index", metavar="URL", help="the index")
    places.add_argument("--extra-index-url", "--index", metavar="URL", action="append", default=[], help="one more")
    places.add_argument("-f", "--find-links", metavar="PLACE", action="append", default=[], help="a folder or a page")
    places.add_argument("--no-index", action="store_true", help="only what --find-links names")
    command.set_defaults(run=run_install, hands_on=True)


def run_install(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.base import process
    from hatch_torch_ext.remote import pipconfig
    from hatch_torch_ext.user import doctor, target

    environ = pipconfig.merged(os.environ)
    into = target.find(options.python, os.environ, folder=Path.cwd())
    plan = _plan(options, into, environ)
    for line in plan.because:
        terminal.say(f"# {line}")
    if options.target is None and doctor.is_vendors(there := target.torch_version(into)):
        others = [each for each in options.packages if each != "torch"]
        others += _projects(options)
        keep = shlex.join([*target.pip_install(into), "--no-deps", *(others or ["PACKAGE"])])
        terminal.say(f"# this replaces torch {there}, which no index has: to keep it, type instead: {keep}")
    installer = _Installer.find(into, options.target)
    steps: tuple[tuple[list[str], dict[str, str | None]], ...] = (
        (installer.from_torch(plan), installer.only_torch(os.environ)),
        (
            [*installer.command, *installer.options(options, environ), *plan.packages, *_projects(options)],
            installer.places(environ),
        ),
    )
    for command, changes in steps:
        full = [*command, *(option for option in options.more if option not in command)]
        terminal.say(process.command_line(full, changes))
        if options.dry_run:
            continue
        with tempfile.TemporaryDirectory(prefix="torch-ext-install-") as folder:
            process.run_logged(full, Path(folder) / "log.txt", env_changes=changes, line=_shown)
    return 0


def _plan(options: argparse.Namespace, into: TargetPython, environ: Mapping[str, str]) -> Plan:
    """Return what to install; print what limits the choice."""
    from hatch_torch_ext.base.errors import ConfigurationError
    from hatch_torch_ext.remote import pipconfig, settings
    from hatch_torch_ext.remote.http import Http, RemoteError
    from hatch_torch_ext.user import installing, machine

    here = machine.read(os.environ)
    for problem in here.problems:
        terminal.complain(f"hatch-torch-ext: {problem}")
    limits = [line for file in options.constraint for line in pipconfig.torch_constraints(file, into.python_version)]
    for line in limits:
        terminal.say(f"# {line}: a limit of --constraint")
    try:
        places = settings.of_environ(
            environ,
            index=options.index_url,
            extra=options.extra_index_url,
            find_links=options.find_links,
            no_index=options.no_index,
        )
        with Http(places) as http:
            return installing.plan(
                [*options.packages, *limits],
                into,
                here,
                http,
                backend=options.backend or "auto",
                channel=options.channel,
                torch_index=terminal.torch_index(options),
            )
    except RemoteError as error:
        raise ConfigurationError(str(error)) from error


def _projects(options: argparse.Namespace) -> list[str]:
    """Return the options for files and editable projects, which only the second command gets."""
    named = (("-r", options.requirement), ("-e", options.editable), ("-c", options.constraint))
    return [word for option, values in named for value in values for word in (option, value)]


def _shown(line: str) -> str:
    """Show a line of the installer's output as it comes: torch is large, and the user wants to see the download."""
    terminal.say(line)
    sys.stdout.flush()
    return line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Installer:
    """uv if it is available, else pip of the target's Python; ``command`` is what is typed up to the packages."""

    command: tuple[str, ...]
    is_uv: bool

    @classmethod
    def find(cls, into: TargetPython, folder: Path | None) -> _Installer:
        from hatch_torch_ext.base import uv
        from hatch_torch_ext.user import target

        folders = ("--target", str(folder)) if folder else ()
        return cls(command=(*target.pip_install(into), *folders), is_uv=uv.installed() is not None)

    def from_torch(self, plan: Plan) -> list[str]:
        """Return the command that takes torch and its dependencies only from torch's index."""
        if "://" not in plan.index:  # a folder of wheels
            only_from = ["--no-index", "--find-links", plan.index]
        else:
            only_from = ["--default-index" if self.is_uv else "--index-url", plan.index]
        return [*self.command, "--no-deps", *(["--no-config"] if self.is_uv else []), *only_from, *plan.torch]

    def only_torch(self, environ: Mapping[str, str]) -> dict[str, str | None]:
        """Return the changes of variables that keep all other indexes out of that command."""
        changes: dict[str, str | None] = {name: None for name in OTHER_PLACES if name in environ}
        return changes if self.is_uv else {**changes, "PIP_CONFIG_FILE": os.devnull}

    def options(self, options: argparse.Namespace, environ: Mapping[str, str]) -> list[str]:
        """Return the options for places of packages, in words that pip and uv both know."""
        from hatch_torch_ext.remote import settings

        # uv knows no variable for it
        without = options.no_index or (self.is_uv and settings.of_environ(environ).index is None)
        words = ["--no-index"] if without else []
        words += [f"--index-url={options.index_url}"] if options.index_url else []
        words += [f"--extra-index-url={url}" for url in options.extra_index_url]
        return words + [f"--find-links={place}" for place in options.find_links]

    def places(self, environ: Mapping[str, str]) -> dict[str, str | None]:
        """Return the changes of variables that give uv the places that pip's variables and files name."""
        from hatch_torch_ext.remote import settings

        named = ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "TRUSTED_HOST")
        if not self.is_uv or not any(environ.get(f"PIP_{name}") for name in named):
            return {}
        return {name: value for name, value in settings.for_uv(environ).items() if name in PLACES_OF_UV}


def add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("doctor", help="report what is installed here, what does not work, and what to type")
    command.add_argument("packages", metavar="PACKAGE", nargs="*", help="only these (default: all that are installed)")
    command.add_argument("--python", metavar="PYTHON", type=path, help="the Python or environment to look at")
    command.add_argument(
        "--json", action="store_true", help="JSON for bug reports, without user names, tokens or paths in your home"
    )
    command.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """Run the command; return the exit status: 1 when something does not work."""
    from hatch_torch_ext.user import doctor, machine, target

    into = target.find(options.python, os.environ, folder=Path.cwd(), with_torch=True)
    found = doctor.diagnose(into, machine.read(os.environ), options.packages, os.environ)
    terminal.say(found.to_json(os.environ) if options.json else _text(found))
    return 0 if found.healthy else 1


def _text(found: Diagnosis) -> str:
    here = found.machine
    driver = f"driver {here.driver or 'unknown'}" if here.driver or here.supported else "no NVIDIA driver"
    supports = f", supports CUDA {'.'.join(map(str, here.supported))}" if here.supported else ""
    lines = [
        f"machine   {here.system} {here.machine}{', WSL' if here.wsl else ''}; {driver}{supports}"
        f"{f' (from {here.source})' if here.source else ''}"
    ]
    for gpu in here.gpus:
        number = ".".join(map(str, gpu.capability)) if gpu.capability else "unknown"
        notes = "".join([", MIG" if gpu.mig else "", "" if gpu.visible else ", hidden by CUDA_VISIBLE_DEVICES"])
        lines.append(f"GPU {gpu.index}     {gpu.name or 'unknown'}, compute capability {number}{notes}")
    lines += [f"GPU       {line}" for line in found.other_gpus]
    lines.append(f"python    {found.python}")
    torch = found.torch
    if torch.get("version"):
        lines.append(f"torch     {torch['version']}, built for {found.built_for}, in {torch.get('folder')}")
    else:
        lines.append("torch     none")
    lines += [f"tool      {program}: {version}" for program, version in found.tools]
    for each in found.packages:
        pruned = each.installed.pruned
        notes = "".join(
            [", built here at first use" if each.built else "", f"; {len(pruned)} pruned" if pruned else ""]
        )
        lines.append(f"package   {each.named}: {each.chosen or 'nothing fits'}{notes}")
        if not each.works:
            gone = dict.fromkeys(pruned, "removed by prune")
            lines += [f"          {label}: {gone.get(label, verdict)}" for label, verdict in each.verdicts]
    lines += [f"problem   {problem}" for problem in found.problems]
    lines += [f"type      {command}" for command in found.commands]
    return "\n".join(escape.line(line) for line in lines)


def add_prune(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "prune", help="remove the variants of an installed package that cannot be loaded here"
    )
    command.add_argument("packages", metavar="PACKAGE", nargs="+")
    command.add_argument("--dry-run", action="store_true", help="show what would be removed, and remove nothing")
    command.add_argument("--python", metavar="PYTHON", type=path, help="the Python or environment to look at")
    command.add_argument("--target", metavar="DIR", type=path, help="a folder that pip's --target filled")
    command.add_argument(
        "--keep", metavar="LABEL", action="append", help="keep these variants instead of the one that is loaded here"
    )
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run_prune)


def run_prune(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.base.errors import ConfigurationError
    from hatch_torch_ext.facts.content import size
    from hatch_torch_ext.user import builtcache, doctor, pruning, target

    into = target.find(options.python, os.environ, folder=Path.cwd())
    there = pruning.packages(options.target) if options.target else doctor.installed(into)
    installed = {canonicalize_name(each.distribution): each for each in there}
    missing = [name for name in options.packages if canonicalize_name(name) not in installed]
    if missing:
        where = options.target or into.python
        there_are = f"There are: {', '.join(sorted(each.distribution for each in there)) or 'none'}."
        why = f"not installed in {where}, or not made with hatch-torch-ext"
        raise ConfigurationError(f"{', '.join(missing)}: {why}. {there_are}")
    if options.keep:
        pruning.check_keep([installed[canonicalize_name(name)] for name in options.packages], options.keep)
    prepared = [_prepared(options, into, installed[canonicalize_name(name)]) for name in options.packages]
    rows = []
    for state, pruned in prepared:
        each = pruned.installed
        if not options.dry_run:
            pruning.apply(pruned)
        rows.append(
            {
                "package": each.distribution,
                "kept": sorted(set(each.labels) - set(pruned.labels)),
                "removed": list(pruned.labels),
                "bytes": pruned.size,
            }
        )
        if not options.json:
            verb = "would remove" if options.dry_run else "removed"
            terminal.say(
                f"{each.distribution}: {verb} {len(pruned.labels)} of {len(each.labels)} variants, {size(pruned.size)}"
            )
            terminal.say(f"the way back: {pruned.again}")
            if state is not None and state.built:
                where = os.environ.get(builtcache.VARIABLE) or "the cache of this user"
                terminal.say(f"loaded here: {state.chosen}, built at first use, from {where}")
    if options.json:
        terminal.say_json(rows)
    return 0


def _prepared(
    options: argparse.Namespace, into: TargetPython, each: InstalledPackage
) -> tuple[PackageHealth | None, Pruning]:
    """Return the state of a package, unless the labels to keep are given, and what is removed of it."""
    from hatch_torch_ext.user import doctor, pruning, target

    # A variable of this user's process decides nothing for others.
    own = f"{each.package.replace('.', '_').upper()}_TORCH_EXT_VARIANT"
    state = None if options.keep else doctor.health(into, each, **{"TORCH_EXT_VARIANT": None, own: None})
    built = state is not None and state.built
    if built:
        pruning.check_cache(each, os.environ)
    keep = options.keep or ([label] if state and not built and (label := state.chosen or state.missed) else [])
    again = target.there(into, each.again, folder=options.target)
    pruned = pruning.prepare(each, keep, built=built, python=os.fspath(into.python), again=again)
    return state, pruned
