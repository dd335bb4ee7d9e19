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
    from collections.abc import Mapping, Sequence

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
    """Return the options by which ``raw``, the hook's table, and ``environ`` select entries; others are not checked.

    The project's folders need not exist: `uv sync --no-install-project` reads metadata before they are copied.

    Raises ``ConfigurationError`` for faults of these options.
    """
    problems: list[str] = []
    table = Options(raw=raw, problems=problems)
    options = declared(Config)
    found: dict[str, Any] = {name: _value(options[name], options[name].name, table, environ) for name in SELECTING}
    if problems:
        raise ConfigurationError(*problems)
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
    _check_names(tables, environ)

    def value(option: Option) -> object:
        table, _, name = option.name.rpartition(".")
        return _value(option, name, tables[table], environ)

    values = {option.name: value(option) for option in OPTIONS}
    package, package_dir = _package(options, root, project_name, sources)
    source = _source(options, root)
    problems += [*epoch_faults(environ), *_path_faults(root)]

    def fields(config: type[Config | CMakeConfig]) -> dict[str, Any]:
        return {name: values[option.name] for name, option in declared(config).items()}

    found = {"root": root, "package": package, "package_dir": package_dir, "source": source}
    config = Config(**{**fields(Config), "cmake": CMakeConfig(**fields(CMakeConfig)), **found})
    if problems:
        raise ConfigurationError(*problems)
    return replace(
        config,
        compiler_launcher=_program(root, config.compiler_launcher),
        cross=tuple(kinds.with_absolute_paths(each, root) for each in config.cross),
        cuda_home=config.cuda_home and os.path.join(root, config.cuda_home),  # noqa: PTH118 - a template, not yet a path
    )


def _check_names(tables: Mapping[str, Options], environ: Mapping[str, str]) -> None:
    """Record the options and variables that do not exist, or do not exist any more."""
    options = tables[""]
    for name in RETIRED.keys() & options.raw.keys():
        options.fault(name, RETIRED[name])
    options.unknown(KNOWN, (*RESERVED, *RETIRED))
    for name, text in RETIRED_VARIABLES.items():
        if environ.get(name):
            options.problems.append(f"Environment variable `{name}` {text}")
    for name in TABLES:
        tables[name].unknown(KNOWN)


def epoch_faults(environ: Mapping[str, str]) -> list[str]:
    """Return the faults of ``SOURCE_DATE_EPOCH``, on which hatchling and compilers would fail without naming it."""
    text = environ.get("SOURCE_DATE_EPOCH")
    if text is None or (re.fullmatch("[0-9]{1,18}", text) and int(text) < END_OF_ZIP):
        return []
    expected = f"must be a whole number of seconds since 1970, below {END_OF_ZIP} (2108, where dates of zip files end)"
    seconds = f"; in seconds it would be `{text[:-3]}`" if re.fullmatch("[0-9]{13}", text) else ""
    return [f"Environment variable `SOURCE_DATE_EPOCH` {expected}, not `{text}`{seconds}"]


def _path_faults(root: Path) -> list[str]:
    try:
        str(root).encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        remedy = "rename the folder" if encoding == "utf-8" else "run `export PYTHONUTF8=1`, or rename the folder"
        return [
            f"The path of the project, {escape.name(root)}, is not text for this Python, which decodes names of files "
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


def _program(root: Path, program: str) -> str:
    """Return the path of a program, relative to the root; a bare name is looked up later."""
    return str(root / program) if "/" in program else program


_SDIST = (
    "build the wheel from the tree (`hatch build -t wheel`), or include the folder in the sdist: it must be in the "
    "project, and neither `exclude` nor .gitignore may match it"
)


def _package(options: Options, root: Path, project_name: str, sources: Mapping[str, str]) -> tuple[str, Path]:
    """Return the package's dotted name and its folder; by default the project's name, as hatchling finds it.

    If CMake installs files, the folder need not exist: the package may be among them, which is known only later.
    """
    named = options.string("package")
    if named is not None and not all(part.isidentifier() and not keyword.iskeyword(part) for part in named.split(".")):
        options.fault("package", f"must be an import name such as `my_package` or `my.package`, not `{named}`")
        return named, root
    names = [named] if named is not None else _package_names(project_name)
    folders = _package_folders(root, names, sources)
    for is_package in (lambda path: (path / "__init__.py").is_file(), Path.is_dir):
        for name, folder in folders:
            if is_package(folder):
                return name, folder
    if _installs_files(options, root):
        return folders[-1]
    places = alternatives([folder.relative_to(root).as_posix() for _, folder in reversed(folders)])
    if named is not None:
        options.fault("package", f"is `{named}`, but there is no folder {places}; create it, or correct the name")
        return names[0], root
    remedy = _namespace_remedy(root, project_name) or (
        f"create it, or name another package with option `package` {HOOK}{_renaming_remedy(root, names[-1])}"
    )
    options.problems.append(f"No folder {places} for the package of project `{project_name}`; {remedy}")
    return names[0], root


def _package_names(project_name: str) -> list[str]:
    """Return the names that the package of a project may have."""
    return list(dict.fromkeys([re.sub(r"[-.]", "_", project_name), re.sub(r"[-_.]+", "_", project_name).lower()]))


def _package_folders(root: Path, names: Sequence[str], sources: Mapping[str, str]) -> list[tuple[str, Path]]:
    """Return the packages and the folders in which each may be, in the order of the search.

    The wheel takes packages from the folders in ``sources``, as hatchling computes it from its options ``packages`` and
    ``sources`` (``packages = ["python/my_pkg"]`` is ``{"python/": ""}``), from the root, and from ``src``.
    """
    prefixes = [*((prefix, installed) for prefix, installed in sources.items() if prefix), ("", ""), ("src/", "")]
    paths = [(name, name.replace(".", "/") + "/") for name in names]
    found = [
        (name, root / f"{prefix}{path.removeprefix(installed)}")
        for name, path in paths
        for prefix, installed in prefixes
        if path.startswith(installed)
    ]
    return list(dict.fromkeys(found))


def _namespace_remedy(root: Path, project_name: str) -> str | None:
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
    """Return whether the project's CMake files install anything but targets; CMake shows later what it is."""
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


_NOT_PACKAGES = ("benchmarks", "build", "docs", "examples", "scripts", "test", "tests", "tools")
"""Folders whose ``__init__.py`` does not mark a package to ship."""


def _renaming_remedy(root: Path, name: str) -> str:
    """Return the remedy for a package that has another name in the sources, or an empty text."""
    found = sorted(path.parent.relative_to(root).as_posix() for path in root.glob("*/__init__.py"))
    folders = [folder for folder in found if folder[0] not in "._" and folder not in _NOT_PACKAGES]
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
                "source", f"is `{named}`, but there is no such folder; name the one that contains CMakeLists.txt"
            )
        elif not folder.is_dir():
            options.fault("source", f"is `{named}`, which is a file; name the folder that contains CMakeLists.txt")
        else:
            options.fault("source", f"is `{named}`, which has no CMakeLists.txt; create it there, or name its folder")
    return root
