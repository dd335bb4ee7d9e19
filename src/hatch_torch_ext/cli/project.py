"""The project in the current folder."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from importlib import metadata as distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatchling.builders.wheel import WheelBuilder

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values import Entry


def say(line: str) -> None:
    """Print what the command is doing to stderr, apart from its answer."""
    terminal.complain(f"hatch-torch-ext: {line}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """``config`` is the configuration, ``name`` the distribution's; ``builder`` is hatchling's, which read both."""

    config: Config
    name: str
    builder: WheelBuilder


def root() -> Path:
    """Return this folder. Raises ``ConfigurationError`` if it is not that of a project."""
    folder = Path.cwd()
    if not (folder / "pyproject.toml").is_file():
        raise ConfigurationError(f"There is no pyproject.toml in {folder}: run this in the folder of your project.")
    return folder


def read() -> Project:
    """Return the project in this folder, read as hatchling reads it.

    Raises ``ConfigurationError`` if there is none.
    """
    from hatchling.builders.wheel import WheelBuilder

    from hatch_torch_ext import config as configuration
    from hatch_torch_ext import environments
    from hatch_torch_ext.hooks import metadata
    from hatch_torch_ext.hooks.shipping import package_folders

    folder = root()
    builder = WheelBuilder(str(folder))
    name = str(builder.metadata.core_raw_metadata["name"])  # not by `core`, which calls the metadata hooks
    raw = metadata.build_hook_options(builder)
    if raw is None:
        raise ConfigurationError(_no_hook(builder.metadata.hatch.config))
    if (warning := _not_called(builder.metadata.config)) is not None:
        say(warning)
    environments.replace_home(say)
    sources = package_folders(builder.config)
    config = configuration.parse(raw, root=folder, project_name=name, environ=os.environ, sources=sources)
    return Project(config=config, name=name, builder=builder)


def check_metadata(project: Project, entries: Sequence[Entry]) -> None:
    """Say what is odd about the project's metadata beside ``entries`` and about its sdist, as a build does.

    Raises ``ConfigurationError`` if no user could install the wheel. A metadata hook that fails ends the program.
    """
    from hatch_torch_ext.hooks import metadata, shipping

    builder = project.builder
    options = metadata.build_hook_options(builder) or {}
    hook = metadata.hook_of(builder.metadata)
    open_ended = project.config.fallback == "build"
    try:
        found = metadata.judge(builder.metadata, options, entries, hook=hook, open_ended=open_ended)
    except (TypeError, ValueError) as error:  # hatchling's own, about a field of `[project]`
        raise ConfigurationError(f"pyproject.toml: {error}") from error
    root = str(project.config.root)
    lacking = shipping.sdist_lacks_cmake(root, project.config.source, shipping.of_sdist(root))
    for line in filter(None, (*found.notes, *found.warnings, lacking)):
        say(line)


def not_installed() -> str | None:
    """Return which of the project's build requirements this Python lacks, and the command that installs them, or None.

    Isolated builds have them; our commands build in this Python.
    """
    import tomlkit

    file = Path.cwd() / "pyproject.toml"
    try:
        system = tomlkit.parse(file.read_text(encoding="utf-8")).unwrap().get("build-system", {})
        lacking = [str(each) for each in map(Requirement, system.get("requires", [])) if not _is_installed(each)]
    except (OSError, ValueError, AttributeError, TypeError):  # no project here, or not one of hatchling's
        return None
    if not lacking:
        return None
    command = shlex.join([sys.executable, "-m", "pip", "install", *lacking])
    return (
        f"`requires` of `[build-system]` has {', '.join(lacking)}, which this Python lacks. Install what the build "
        f"needs: `{command}`"
    )


def _is_installed(requirement: Requirement) -> bool:
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return True
    try:
        version = distributions.version(requirement.name)
    except distributions.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def _no_hook(hatch: Mapping[str, Any]) -> str:
    """Return why hatchling has no such hook, from the table ``tool.hatch``, which may declare it in a wrong place."""
    right = "`[tool.hatch.build.targets.wheel.hooks.torch-ext]`"
    build = hatch.get("build", {})
    places = {"tool.hatch": hatch, "tool.hatch.build": build}
    places |= {f"tool.hatch.build.targets.{name}": table for name, table in build.get("targets", {}).items()}
    places |= {f"{place}.hooks": table["hooks"] for place, table in places.items() if "hooks" in table}
    for place, table in places.items():
        for name in ("torch-ext", "torch_ext"):
            if name in table:
                return f"`[{place}.{name}]` is not a table of a build hook, so nothing reads it: write {right}."
    return f"The wheel target has no build hook `torch-ext`: add {right} to pyproject.toml."


def _not_called(pyproject: Mapping[str, Any]) -> str | None:
    """Return a warning if the `[build-system]` would make other tools build a wheel without the hook, else None."""
    system = pyproject.get("build-system")
    right = '`[build-system]` with `requires = ["hatchling", "hatch-torch-ext"]`, `build-backend = "hatchling.build"`'
    if system is None:
        return f"pyproject.toml has no `[build-system]`: pip and uv would build without the hook. Add {right}."
    if system.get("build-backend") not in {"hatchling.build", "hatch_torch_ext.backend"}:
        return f"`build-backend` is not `hatchling.build`: pip and uv would build without the hook. Write {right}."
    if not any(canonicalize_name(Requirement(line).name) == "hatch-torch-ext" for line in system.get("requires", [])):
        return f"`requires` of `[build-system]` lacks `hatch-torch-ext`: isolated builds would fail. Write {right}."
    return None
