"""What is known of entries from one build to the next: from what each was built, whether it is finished.

Each entry's memory is one file in its folder, replaced whole: what the last build that began was made from, and, until
the next one begins, the *finished* entry. That holds its ``EntryInputs``, and the content of every other file that
CMake and Ninja name as an input or install. While nothing of it changes, the entry is reused; its files are compared
with their hashes before.

Apart from it are what is not of one entry: what entries took (``history``); the hashes of files, since entries share
headers (``Digests``); that some entry wrote into the sources, and, inside of a build folder and ending with it, what it
was made and configured from (both: ``cmake.buildfolder``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext import store
from hatch_torch_ext.base import atomic, process, untrusted
from hatch_torch_ext.base.errors import ProcessError, WheelError
from hatch_torch_ext.facts import content, project, variant
from hatch_torch_ext.pipeline.inputs import MISSING, path_of, place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.pipeline.inputs import EntryInputs, Inputs
    from hatch_torch_ext.pipeline.stages import Result
    from hatch_torch_ext.values import Setup, Task

FILE = "memory.json"
RESULTS = ("repaired", "package")
"""Folders of an entry with the files of a finished one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedVariant:
    """A finished entry, from its memory."""

    built: BuiltVariant
    warnings: tuple[str, ...]
    """The messages about the entry, which are repeated."""
    peak: int


class Memory:
    """The memory of one build's entries; ``earlier`` is another work folder of the same project."""

    def __init__(self, inputs: Inputs, *, earlier: Path | None = None) -> None:
        self._inputs, self._config, self._digests = inputs, inputs.config, inputs.digests
        self._earlier = earlier

    def take(self, task: Task) -> RecordedVariant | None:
        """Return the finished entry; None if there is none, it is damaged, or any input changed.

        An entry that another work folder has finished is copied here.
        """
        own, inputs = task.folder, self._inputs.of(task)
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
        folder = task.folder
        known = _read(folder)
        last = known["begun"]
        files, used = (_texts(found) for found in (last.get("files"), known.get("finished", {}).get("used")))
        read = (path_of(self._config, name) for name in used if not name.endswith("/"))
        now = self._digests.all({*self._inputs.project, *read, *files})
        unseen = [path for path in sorted(files) if now[path] not in {files[path], MISSING} and _older(path, last)]
        if unseen:
            shutil.rmtree(folder / "build", ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, begun={"began": self._inputs.began, "files": now})
        return unseen[0] if unseen else None

    def keep(self, task: Task, result: Result) -> BuiltVariant:
        """Remember the finished entry, and return the variant with its files in their final place."""
        folder, site = task.folder, result.setup.environment.site_packages
        used = self._used(result.setup)
        built = _moved(result.built, folder / "package")
        memory = {
            "inputs": dataclasses.asdict(self._inputs.of(task)),
            "used": used,
            "packages": {str(site): sorted(_packages(site))},
            "built": variant.built_to_json(built, folder),
            "hashes": {path.relative_to(folder).as_posix(): content.sha256(path) for _, path in built.package_files},
            "warnings": list(result.warnings),
            "peak": result.peak,
        }
        _write(folder, begun=_read(folder)["begun"], finished=memory)
        return built

    def _used(self, setup: Setup) -> dict[str, str]:
        """Return the hash, by ``place``, of every file outside of the work folders that a step or install rule reads.

        A folder that an install rule copies is one name, which ends in a slash.
        """
        sdk, toolchain = setup.sdk, setup.toolchain
        named = _named(setup.build, toolchain.ninja.path)
        programs = [toolchain.cxx, toolchain.toolkit.compiler] if toolchain.toolkit else [toolchain.cxx]
        named |= {os.path.realpath(tool.path) for tool in programs}
        # What is in the store never changes. It may be removed, which affects no result either.
        kept = (store.path(os.environ), sdk.prefix, sdk.library_dir)
        own = (setup.folder.parent, setup.environment.prefix, *kept, toolchain.cmake.path.parent.parent)
        ours = tuple(f"{os.path.normpath(path)}/" for path in own)
        named |= set(_installed(setup.build))
        outside = sorted(path for path in named if not path.startswith(ours) and path not in self._inputs.project)
        return {name: self._digest(name) for name in (place(self._config, path) for path in outside)}

    def _digest(self, name: str) -> str:
        """Return the hash of the file that ``place`` named or, with a slash at the end, of all that a folder holds."""
        path = path_of(self._config, name)
        if not path.endswith("/"):
            return self._digests.of(path)
        root = self._config.root
        walked = project.walk(Path(path), Path(path), without=[root / "build", root / "dist", self._inputs.work])
        files = (os.path.join(folder, each) for folder, names in walked for each in names)  # noqa: PTH118 -- thousands
        found = {os.path.relpath(file, path): self._digests.of(file) for file in files}
        return content.digest(found)


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
    atomic.write_held(folder / FILE, json.dumps(parts))


def _older(path: str, last: Mapping[str, Any]) -> bool:
    """Return whether a file was last written before the build ``last`` began."""
    try:
        return os.stat(path).st_mtime_ns <= int(last["began"])  # noqa: PTH116 -- as in ``Digests``
    except (KeyError, OSError, TypeError, ValueError):
        return True


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
    for below, source in built.package_files:
        target = folder / below
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        moved.append((below, target))
    return dataclasses.replace(built, package_files=tuple(moved))
