"""The folders of the author's package and CMake project: named by options, or found in the usual places."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from hatch_torch_ext.config.options import HOOK, alternatives
from hatch_torch_ext.facts import project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hatch_torch_ext.config.options import Options


_SDIST = (
    "build the wheel from the tree (`hatch build -t wheel`), or include the folder in the sdist: it must be in the "
    "project, and neither `exclude` nor .gitignore may match it"
)


def package(
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


def source(options: Options, root: Path) -> Path:
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
