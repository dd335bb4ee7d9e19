"""Raw hook configuration -> ``Config``; pure except that it looks for folders. All problems are reported at once."""

from __future__ import annotations

import keyword
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.base import escape, resources, untrusted
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.config import kinds
from hatch_torch_ext.config.declaration import (
    KNOWN,
    OPTIONS,
    RESERVED,
    RETIRED,
    RETIRED_VARIABLES,
    TABLES,
    CMakeConfig,
    Config,
    Option,
    declared,
)
from hatch_torch_ext.config.kinds import Cross
from hatch_torch_ext.config.options import HOOK, Options, alternatives
from hatch_torch_ext.facts import project

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "KNOWN",
    "OPTIONS",
    "RESERVED",
    "CMakeConfig",
    "Config",
    "Cross",
    "Selection",
    "epoch_faults",
    "parse",
    "selection",
]

END_OF_ZIP = 4354819200
"""2108-01-01 in seconds since 1970."""


SCHEMA = resources.FOLDER / "torch-ext.schema.json"
"""The declared options as a JSON Schema, for editors and validate-pyproject."""
SELECTING = ("environment", "only", "skip", "fallback", "fallback_requires")
"""Fields of ``Config`` on which the metadata depend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options that select the entries to build; the project's metadata depend on no others."""

    environment: str
    only: tuple[str, ...]
    skip: tuple[str, ...]
    fallback: str
    fallback_requires: tuple[str, ...]

    @property
    def builds_anywhere(self) -> bool:
        """Return whether the wheel can be built at first use for a torch that the matrix does not serve."""
        return self.fallback == "build"


def selection(raw: Mapping[str, object], environ: Mapping[str, str]) -> Selection:
    """Return which entries the hook's table ``raw`` and ``environ`` select, whatever else the table holds.

    The project's folders need not exist: `uv sync --no-install-project` reads metadata before they are copied.

    Raises ``ConfigurationError`` for faults of these options.
    """
    problems: list[str] = []
    table = Options(raw=raw, problems=problems)
    options = declared(Config)
    found: dict[str, Any] = {name: _value(options[name], options[name].name, table, environ) for name in SELECTING}
    if problems:
        raise ConfigurationError(problems)
    return Selection(**found)


def tool_schema(tool: str) -> dict[str, object]:  # noqa: ARG001 -- the signature of validate-pyproject
    """Check the tables of the build hook `torch-ext` of hatch-torch-ext below `tool.${tool}`."""
    return dict(untrusted.json(SCHEMA.read_text(encoding="utf-8")))


def parse(
    raw: Mapping[str, object],
    *,
    root: Path,
    project_name: str,
    environ: Mapping[str, str],
    sources: Mapping[str, str] = MappingProxyType({}),
) -> Config:
    """Return the configuration that the hook's table ``raw`` and the environment variables ``environ`` give.

    ``root`` is the project's folder; ``project_name`` is ``project.name`` as written; ``sources`` are the folders from
    which the wheel takes its packages, as hatchling's builder has them.

    Raises ``ConfigurationError`` with every problem: unknown options first, in the author's order, then the faults of
    each option in the order of declaration.
    """
    root = root.resolve()
    problems: list[str] = []
    options = Options(raw=raw, problems=problems)
    tables = {"": options, **{name: options.table(name) for name in TABLES}}
    for name in RETIRED.keys() & raw.keys():
        options.fault(name, RETIRED[name])
    options.unknown(KNOWN, (*RESERVED, *RETIRED))
    problems += [
        f"Environment variable `{name}` {text}" for name, text in RETIRED_VARIABLES.items() if environ.get(name)
    ]
    for name in TABLES:
        tables[name].unknown(KNOWN)

    def value(option: Option) -> object:
        table, _, name = option.name.rpartition(".")
        return _value(option, name, tables[table], environ)

    values = {option.name: value(option) for option in OPTIONS}
    package, package_dir = _package(options, root, project_name, sources)
    source = _source(options, root)
    problems += [*epoch_faults(environ), *_unreadable(root)]

    def fields(config: type[Config | CMakeConfig]) -> dict[str, Any]:
        return {name: values[option.name] for name, option in declared(config).items()}

    found = {"root": root, "package": package, "package_dir": package_dir, "source": source}
    config = Config(**{**fields(Config), "cmake": CMakeConfig(**fields(CMakeConfig)), **found})
    if problems:
        raise ConfigurationError(problems)
    return replace(
        config,
        compiler_launcher=_below(root, config.compiler_launcher),
        cross=tuple(kinds.below(root, each) for each in config.cross),
        cuda_home=config.cuda_home and os.path.join(root, config.cuda_home),  # noqa: PTH118 - a template, not yet a path
    )


def epoch_faults(environ: Mapping[str, str]) -> list[str]:
    """Return the faults of ``SOURCE_DATE_EPOCH``, on which hatchling and compilers would fail without naming it."""
    text = environ.get("SOURCE_DATE_EPOCH")
    if text is None or (re.fullmatch("[0-9]{1,18}", text) and int(text) < END_OF_ZIP):
        return []
    expected = f"must be a whole number of seconds since 1970, below {END_OF_ZIP} (2108, where dates of zip files end)"
    seconds = f"; in seconds it would be `{text[:-3]}`" if re.fullmatch("[0-9]{13}", text) else ""
    return [f"Environment variable `SOURCE_DATE_EPOCH` {expected}, not `{text}`{seconds}"]


def _unreadable(root: Path) -> list[str]:
    try:
        str(root).encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        remedy = "rename the folder" if encoding == "utf-8" else "run `export PYTHONUTF8=1`, or rename the folder"
        return [
            f"The path of the project, {escape.name(root)}, is not text to this Python, which reads names of files "
            f"as {encoding}: {remedy}"
        ]
    return []


def _value(option: Option, name: str, table: Options, environ: Mapping[str, str]) -> object:
    """Return the value of the option's environment variable, else of the table, else the default.

    The first two are checked.
    """
    value = option.kind.read(table, name) if option.in_projects else None
    text = environ.get(option.variable, "").strip() if option.variable else ""
    raw = option.kind.raw(text) if text else None
    if raw is not None:
        variable = Options(raw={name: raw}, problems=table.problems, variable=option.variable)
        return option.kind.read(variable, name)
    return option.default if value is None else value


def _below(root: Path, program: str) -> str:
    """Return the path of a program, relative to the root; a bare name is looked up later."""
    return str(root / program) if "/" in program else program


_SDIST = (
    "build the wheel from the tree (`hatch build -t wheel`), or include the folder in the sdist: it must be in the "
    "project, and neither `exclude` nor .gitignore may match it"
)


def _package(
    options: Options, root: Path, project_name: str, sources: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, Path]:
    """Return the package's dotted name and its folder; by default the project's name, as hatchling finds it.

    If CMake installs files, the folder need not exist: the package may be among them, which is known only later. It is
    searched for where the wheel takes it from, which ``sources`` says, as hatchling computes it from ``packages`` and
    ``sources`` (``packages = ["python/my_pkg"]`` is ``{"python/": ""}``), in the root, and in ``src``.
    """
    named = options.string("package")
    if named is None:
        written = re.sub(r"[-.]", "_", project_name)
        names = list(dict.fromkeys([written, re.sub(r"[-_.]+", "_", project_name).lower()]))
    else:
        names = [named]
        if not all(part.isidentifier() and not keyword.iskeyword(part) for part in named.split(".")):
            options.fault("package", f"must be an import name such as `my_package` or `my.package`, not `{named}`")
            return named, root
    prefixes = [*((prefix, installed) for prefix, installed in sources.items() if prefix), ("", ""), ("src/", "")]
    paths = [(name, name.replace(".", "/") + "/") for name in names]
    folders = list(
        dict.fromkeys(
            (name, root / f"{prefix}{path.removeprefix(installed)}")
            for name, path in paths
            for prefix, installed in prefixes
            if path.startswith(installed)
        )
    )
    for is_package in (lambda path: (path / "__init__.py").is_file(), Path.is_dir):
        for name, folder in folders:
            if is_package(folder):
                return name, folder
    if _installs_files(options, root):
        return folders[-1]
    places = alternatives([folder.relative_to(root).as_posix() for _, folder in reversed(folders)])
    if named is None and (dotted := _in_namespace(root, project_name)) is not None:
        options.problems.append(f"No folder {places} for the package of project `{project_name}`; {dotted}")
    elif named is None:
        options.problems.append(
            f"No folder {places} for the package of project `{project_name}`; create it, or name another package with "
            f"option `package` {HOOK}{_elsewhere(root, names[-1])}"
        )
    else:
        options.fault("package", f"is `{named}`, but there is no folder {places}; create it, or correct the name")
    return names[0], root


def _in_namespace(root: Path, project_name: str) -> str | None:
    """Return the remedy for project `myns.my-pkg` with the folder ``myns/my_pkg``, which hatchling does not find."""
    dotted = project_name.replace("-", "_")
    if "." not in dotted:
        return None
    for prefix in ("src/", ""):
        for name in dict.fromkeys([dotted, dotted.lower()]):
            if (root / prefix / name.replace(".", "/")).is_dir():
                return (
                    f'write `package = "{name}"` {HOOK}, and `packages = ["{prefix}{name.partition(".")[0]}"]` below '
                    "`[tool.hatch.build.targets.wheel]`"
                )
    return None


_INSTALLING = re.compile(r"^\s*install\s*\(\s*(?!TARGETS|EXPORT)", re.IGNORECASE | re.MULTILINE)


def _installs_files(options: Options, root: Path) -> bool:
    """Return whether the project's CMake files install anything but targets.

    What it is, CMake says after configuring.
    """
    named = options.raw.get("source")
    folder = root / named if isinstance(named, str) else next((f for f in (root / "csrc", root) if _is_cmake(f)), root)
    if not _is_cmake(folder):
        return False
    found = (path for pattern in ("CMakeLists.txt", "*.cmake") for path in sorted(folder.rglob(pattern)))
    own = (
        path
        for path in found
        if path.is_file() and not any(part == "build" or part[0] == "." for part in path.relative_to(folder).parts)
    )
    return any(_INSTALLING.search(path.read_text(encoding="utf-8", errors="replace")) for path in own)


def _is_cmake(folder: Path) -> bool:
    return (folder / "CMakeLists.txt").is_file()


_NO_PACKAGE = ("benchmarks", "build", "docs", "examples", "scripts", "test", "tests", "tools")
"""Folders whose ``__init__.py`` does not mark a package to ship."""


def _elsewhere(root: Path, name: str) -> str:
    """Return the remedy for a package whose files have another name in the folder from which CMake installs them."""
    found = sorted(path.parent.relative_to(root).as_posix() for path in root.glob("*/__init__.py"))
    folders = [folder for folder in found if folder[0] not in "._" and folder not in _NO_PACKAGE]
    if not folders:
        return ""
    return (
        f". If `{folders[0]}`, which has an __init__.py, is that package under another name, write below "
        f'`[tool.hatch.build.targets.wheel]`: `sources = {{ "{folders[0]}" = "{name}" }}` and '
        f'`only-include = ["{folders[0]}"]`'
    )


def _source(options: Options, root: Path) -> Path:
    """Return the folder of CMakeLists.txt; by default ``csrc``, then the root."""
    named = options.string("source")
    if named is None and "source" not in options.raw:
        for folder in (root / "csrc", root):
            if (folder / "CMakeLists.txt").is_file():
                return folder
        if project.is_unpacked(root):
            options.problems.append(f"This unpacked sdist has no CMakeLists.txt in `csrc` or in its root: {_SDIST}")
            return root
        options.problems.append(
            f"No CMakeLists.txt in `csrc` or in the project's root; create one, or name its folder with option "
            f"`source` {HOOK}"
        )
    elif named is not None:
        folder = (root / named).resolve()
        if (folder / "CMakeLists.txt").is_file():
            return folder
        if not folder.exists() and project.is_unpacked(root):
            options.fault(
                "source",
                f"is `{named}`, and this unpacked sdist has no such folder: {_SDIST}",
            )
        elif not folder.exists():
            options.fault(
                "source", f"is `{named}`, but there is no such folder; name the one that holds CMakeLists.txt"
            )
        elif not folder.is_dir():
            options.fault("source", f"is `{named}`, which is a file; name the folder that holds CMakeLists.txt")
        else:
            options.fault("source", f"is `{named}`, which has no CMakeLists.txt; create it there, or name its folder")
    return root
