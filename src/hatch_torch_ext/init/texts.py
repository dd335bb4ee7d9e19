"""The files of a project that ``init`` reads, and the ``Migration``, which it writes: new texts, and notes.

What is wrong with one of them is an error that names the file, the entry and what to do, before anything runs.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tomlkit
import tomlkit.exceptions
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

CMAKE = "CMakeLists.txt"
PYPROJECT = "pyproject.toml"
AGAIN = "Correct it, then run `init` again"
TABLES = (
    "build-system", "project", "project.optional-dependencies", "project.urls", "tool", "tool.hatch",
    "tool.hatch.build", "tool.hatch.build.hooks", "tool.hatch.build.targets", "tool.hatch.build.targets.sdist",
    "tool.hatch.build.targets.wheel", "tool.hatch.build.targets.wheel.force-include",
    "tool.hatch.build.targets.wheel.hooks", "tool.hatch.build.targets.wheel.hooks.torch-ext", "tool.hatch.envs",
    "tool.hatch.envs.matrix", "tool.hatch.metadata", "tool.hatch.metadata.hooks", "tool.hatch.version",
    "tool.scikit-build", "tool.scikit-build.cmake", "tool.scikit-build.metadata",
    "tool.scikit-build.metadata.version", "tool.scikit-build.sdist", "tool.scikit-build.wheel", "tool.setuptools",
    "tool.setuptools.dynamic", "tool.setuptools.dynamic.version", "tool.setuptools_scm",
)  # fmt: skip
"""What is a table where it is there, since ``init`` reads it or adds to it."""
LISTS = ("project.classifiers", "project.dynamic")
"""What is a list of texts."""
REQUIREMENTS = ("build-system.requires", "project.dependencies")
"""What is a list of requirements."""
TEXTS = ("build-system.build-backend", "project.name", "project.requires-python", "project.version")


def of(path: Path) -> str | None:
    """Return the text of a file, None where there is none.

    Raises ``ConfigurationError`` for what is not UTF-8, and for something that is not a file.
    """
    if not path.is_file():
        if path.exists():
            problem = f"{path} is not a file, and `init` writes one: move it away, then run `init` again"
            raise ConfigurationError(problem)
        return None
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1} is {error.object[error.start]:#04x}"
        raise ConfigurationError(f"{path} is not UTF-8 ({where}): save it so, then run `init` again") from error
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror}): make it readable, then run `init` again"
        raise ConfigurationError(problem) from error


def document(root: Path) -> tomlkit.TOMLDocument:
    """Return the pyproject.toml in ``root``, an empty document where there is none.

    Raises ``ConfigurationError`` with each table, list and requirement that is something else.
    """
    path = root / PYPROJECT
    found = of(path) or ""
    try:
        read = tomlkit.parse(found)
        plain = read.unwrap()
    except (tomlkit.exceptions.TOMLKitError, ValueError, RecursionError) as error:
        mark = found.startswith("\ufeff")
        why = "it begins with a byte order mark, which TOML does not have" if mark else str(error)
        raise ConfigurationError(f"{path} is not TOML: {why}. {AGAIN}") from error
    if problems := list(_problems(plain)):
        raise ConfigurationError(*(f"{path}: {each}. {AGAIN}" for each in problems))
    return read


def build_requirements(document: Mapping[str, Any], *, without: Collection[str]) -> list[str]:
    """Return what ``document`` requires for the build, ``without`` some packages."""
    declared = map(str, document.get("build-system", {}).get("requires", []))
    return [each for each in declared if canonicalize_name(Requirement(each).name) not in without]


def _problems(plain: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is not of its kind."""
    for name in TABLES:
        if (value := _at(plain, name)) is not None and not isinstance(value, dict):
            yield f"`{name}` must be a table, not `{_short(value)}`"
    for name in TEXTS:
        if (value := _at(plain, name)) is not None and not isinstance(value, str):
            yield f"`{name}` must be a text, not `{_short(value)}`"
    for name in (*LISTS, *REQUIREMENTS):
        if (value := _at(plain, name)) is not None and not isinstance(value, list):
            yield f"`{name}` must be a list, not `{_short(value)}`"
        elif value is not None:
            yield from _of_entries(name, value)


def _of_entries(name: str, value: list[Any]) -> Iterator[str]:
    for count, each in enumerate(value, 1):
        if not isinstance(each, str):
            yield f"`{name}`, entry {count}, must be a text, not `{_short(each)}`"
        elif name in REQUIREMENTS and (why := _not_required(each)):
            yield f"`{name}`, entry {count}, is not a requirement: `{_short(each)}` ({why})"


def _at(plain: Mapping[str, Any], name: str) -> object:
    """Return the value at a dotted name; None where one of its tables is missing or is something else."""
    value: object = plain
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _not_required(given: str) -> str:
    """Return in a line why a text is not a requirement; "" if it is one."""
    try:
        Requirement(given)
    except InvalidRequirement as error:
        return str(error).partition("\n")[0]
    return ""


def _short(value: object) -> str:
    return " ".join(str(value).split())[:60]


@dataclass(frozen=True, slots=True)
class Note:
    """Something that ``setup.py`` does and that is not carried over; ``line`` is its line, 0 if unknown."""

    text: str
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """``files`` are (name, new text), names POSIX, relative to the project; ``notes`` say what the author has to do.

    ``entries`` is the number of entries of the matrix, ``torch`` its releases; ``wider`` says how it gets more of what
    the project admits. ``name`` is the distribution's, and ``made_of`` the file that declared the project before.
    """

    root: Path
    files: tuple[tuple[str, str], ...]
    notes: tuple[Note, ...]
    entries: int
    torch: tuple[str, ...] = ()
    name: str = ""
    wider: str | None = None
    made_of: str = "setup.py"
    kept: tuple[str, ...] = ()
    """Those of the files that are CMake's own, with lines added."""

    def diff(self) -> str:
        """Return the changes in the form of ``diff -u``. Raises ``ConfigurationError`` for a file that is not text."""
        shown: list[str] = []
        for name, text in self.files:
            before = (of(self.root / name) or "").splitlines(keepends=True)
            there = f"a/{name}" if before else "/dev/null"
            lines = difflib.unified_diff(before, text.splitlines(keepends=True), there, f"b/{name}")
            shown += (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        return "".join(shown)

    def require(self, *, force: bool) -> None:
        """Raise ``ConfigurationError`` if a CMake project that is there would be replaced, unless ``force``."""
        there = self.root / CMAKE
        if not force and there.exists() and CMAKE in {name for name, _ in self.files} - {*self.kept}:
            raise ConfigurationError(
                f"{there} is there: `--force` replaces it; or keep it, and write the tables by hand."
            )

    def write(self, *, force: bool) -> None:
        """Write the files. Raises ``ConfigurationError`` as ``require`` does."""
        self.require(force=force)
        for name, text in self.files:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = "\r\n" if path.is_file() and b"\r\n" in path.read_bytes() else "\n"
            path.write_text(text, encoding="utf-8", newline=lines)


def ignored(root: Path) -> list[tuple[str, str]]:
    """Return .gitignore with the folders that a build writes: hatchling leaves ignored files out of the sdist."""
    text = of(root / ".gitignore") or ""
    there = {line.strip().strip("/") for line in text.splitlines()}
    new = "".join(f"/{name}/\n" for name in ("build", "dist") if name not in there)
    return [(".gitignore", f"{text.rstrip()}\n{new}".lstrip())] if new else []
