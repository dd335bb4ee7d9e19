"""Which entries are built: all that ``only`` and ``skip`` leave, or what the environment of an installation needs."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hatch_torch_ext import audit, environments, matrix
from hatch_torch_ext.base import redact
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import labels
from hatch_torch_ext.matrix import CURRENT, declaring
from hatch_torch_ext.values import TorchFolders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.environments import InstalledTorch
    from hatch_torch_ext.values import Entry, Matrix

    Report = Callable[[str], None]


def expand(config: Config, *, distribution: str, found: Matrix | None = None) -> tuple[Entry, ...]:
    """Return every entry of the matrix, before ``only`` and ``skip``.

    ``found`` is hatch's answer, if there is one already.
    """
    optional = config.fallback == "build"
    audit.settle((), ignore=config.ignore)  # an unknown code is reported before any work
    files = [config.root / name for name in ("pyproject.toml", "hatch.toml")]
    redact.learn_fields((file.read_text(encoding="utf-8") for file in files if file.is_file()), os.environ)
    if found is None:
        found = environments.read_cached(
            config.root, config.environment, project_name=distribution, optional=optional, environ=os.environ
        )
    for variables in found.env_vars.values():
        redact.learn_environ(dict(variables))
    return declaring.entries_of(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The entries to build, and the configuration for them.

    ``torch`` is that of the environment of an installation, if it is known; ``here``: the wheel is for that environment
    and for no other, and ``installed`` is its torch.
    """

    config: Config
    entries: tuple[Entry, ...]
    torch: InstalledTorch | None = None
    here: bool = False
    installed: TorchFolders | None = None


def choose(config: Config, entries: Sequence[Entry], *, for_editable: bool, report: Report, warn: Report) -> Selected:
    """Return what is built of the matrix: for an editable install, for the user's own environment, or for a wheel."""
    if for_editable:
        torch = environments.installed_torch(config.root)
        return Selected(config=config, entries=editable(config, entries, torch=torch, report=report), torch=torch)
    if config.only == (CURRENT,) or (not config.only and environments.installs(environments.parent())):
        torch = environments.installed_torch(config.root)
        return for_this_environment(config, entries, torch=torch, report=report, warn=warn)
    return Selected(config=config, entries=select(config, entries, report=report))


def select(config: Config, entries: Sequence[Entry], *, report: Report) -> tuple[Entry, ...]:
    """Return the entries that ``only`` and ``skip`` leave; report the others, and what excluded them."""
    selected = matrix.select(entries, only=config.only, skip=config.skip, describe=named)
    skipped = matrix.matching(entries, config.skip)
    for entry in entries:
        if entry not in selected:
            report(f"{entry.name}: left out by {named('skip' if entry.name in skipped else 'only')}")
    return selected


def named(option: str) -> str:
    """Return where the globs of ``option`` come from: its variable overrides it."""
    variable = f"HATCH_TORCH_EXT_{option.upper()}"
    if not os.environ.get(variable, "").strip(", \t\n"):
        return f"option `{option}`"
    return f"the variable `{variable}`{' (`--only` sets it)' if option == 'only' else ''}"


def editable(
    config: Config, entries: Sequence[Entry], *, torch: InstalledTorch | None, report: Report
) -> tuple[Entry, ...]:
    """Return the entries of an editable install: those that were requested, else those for ``torch``, else the newest.

    ``torch`` is that of the environment, if it is known; the choice is reported.
    """
    only = () if config.only == (CURRENT,) else config.only or config.editable_only
    if only:
        return matrix.select(entries, only=only, skip=config.skip, describe=named)
    fitting = _running_here(matrix.select(entries, only=(), skip=config.skip))
    if torch is not None:
        if chosen := matrix.serving(fitting, torch=torch.version, backend=torch.backend):
            report(f"editable: for torch {torch.version} of {torch.python}")
            return chosen
        report(f"editable: no entry of the matrix serves torch {torch.version} of {torch.python}: the newest is built")
    return matrix.newest(fitting)


def _running_here(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries for this machine and this Python; if none is for this Python, all for this machine.

    Raises ``ConfigurationError`` if there are entries, and none is for this machine.
    """
    found, machine = matrix.of_this_machine(entries), platform.machine()
    if entries and not found:
        raise ConfigurationError(
            f"Every entry of the matrix is for another machine than {machine}, on which it is installed: add "
            f"entries without the variable `machine`, or with `{machine}`."
        )
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return [entry for entry in found if labels.python_tag(entry.python) in {None, here}] or found


def for_this_environment(
    config: Config, entries: Sequence[Entry], *, torch: InstalledTorch | None, report: Report, warn: Report
) -> Selected:
    """Return what is built only for the installed ``torch``; if it is unknown, for the newest entry.

    No entry of the matrix need serve that torch. Raises ``ConfigurationError`` if no torch is found and the user
    requires it by name, or if there is no entry either.
    """
    if torch is not None:
        found = TorchFolders(environment=environments.of_python(torch.python), torch=torch.folder, nvidia=torch.nvidia)
        report(f"for torch {torch.version} of {torch.python}, and for no other")
        own = matrix.current(matrix.common(entries), torch=torch.version, built_for=torch.backend)
        return Selected(config=replace(config, environment=""), entries=(own,), torch=torch, here=True, installed=found)
    where = f"This build finds no torch (its Python is {sys.executable})"
    if config.only == (CURRENT,):
        raise ConfigurationError(
            f"HATCH_TORCH_EXT_ONLY={CURRENT} asks for the torch that is installed. {where}: install torch first, "
            "then `pip install --no-build-isolation`, with hatchling and hatch-torch-ext installed, too."
        )
    newest = matrix.newest(_running_here(matrix.select(entries, only=(), skip=config.skip)))
    names = ", ".join(entry.name for entry in newest) or "nothing but the sources"
    warn(
        f"{where}, so it is built only for the newest torch of the matrix ({names}). For a torch that is installed: "
        "`pip install --no-build-isolation`, with hatchling and hatch-torch-ext installed, too."
    )
    return Selected(config=config, entries=newest, here=True)
