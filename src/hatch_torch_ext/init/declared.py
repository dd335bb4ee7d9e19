"""What a ``setup.py`` says of its project, by its recordings and the pyproject.toml beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tomlkit

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.init import pyproject, targets, texts
from hatch_torch_ext.init.recording import WRITES, WRITES_VERSION
from hatch_torch_ext.init.texts import PYPROJECT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.recording import Recording
    from hatch_torch_ext.init.texts import Note

RUNS_CMAKE = re.compile(r"runs `(?:\S*/)?cmake3? ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A project as its ``setup.py`` declares it, recorded without and with CUDA; one of the two may be missing.

    ``package`` is the import package that the extensions become part of.
    """

    root: Path
    cpu: Recording | None
    cuda: Recording | None
    existing: str | None
    """The text of the pyproject.toml that is there."""
    package: str = ""

    @property
    def recordings(self) -> list[Recording]:
        """Return the recordings that there are: with CUDA before without."""
        return [each for each in (self.cuda, self.cpu) if each is not None]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return what ``setup()`` was given."""
        return self.recordings[0].metadata

    @property
    def name(self) -> str:
        """Return the distribution's name."""
        return str(self.metadata.get("name") or self.table.get("name") or self.root.name)

    @property
    def table(self) -> Mapping[str, Any]:
        """Return the [project] table that is there."""
        table: Mapping[str, Any] = tomlkit.parse(self.existing or "").get("project", {})
        return table

    @property
    def variables(self) -> list[str]:
        """Return the environment variables that ``setup.py`` reads."""
        return sorted({name for each in self.recordings for name in each.variables})

    @property
    def names(self) -> list[str]:
        """Return the names of the extensions, except those of a CMake project that scikit-build builds."""
        recording = self.recordings[0]
        return [] if recording.cmake else [each.name for each in recording.extensions]

    @property
    def has_sources(self) -> bool:
        """Return whether setuptools would compile anything itself."""
        return any(each.sources for one in self.recordings for each in one.extensions)

    @property
    def notes(self) -> list[Note]:
        """Return the notes of the recordings."""
        found = [note for each in reversed(self.recordings) for note in each.notes]
        if self.version_file is None:
            return found
        before, now = (words.format(self.version_file[0]) for words in (WRITES, WRITES_VERSION))
        return [replace(note, text=now) if note.text == before else note for note in found]

    @property
    def version_file(self) -> tuple[str, str] | None:
        """Return the Python file in which ``setup.py`` writes the version, and hatchling's template of its text."""
        version = str(self.metadata.get("version"))
        for name, text in sorted(set.intersection(*({*each.made} for each in self.recordings))):
            if (match := pyproject.OF_HATCH.search(text)) is not None and match["version"] == version:
                return name, text.replace("{", "{{").replace("}", "}}").replace(version, "{version}")
        return None


def of(root: Path, cpu: Recording | None, cuda: Recording | None) -> Declared:
    """Return what was declared. Raises ``ConfigurationError`` where there is nothing to compile, or no package."""
    found = Declared(root=root, cpu=cpu, cuda=cuda, existing=texts.of(root / PYPROJECT))
    recording = found.recordings[0]
    runs_cmake = any(RUNS_CMAKE.match(each.text) for each in recording.notes) and bool(targets.own_cmake(root))
    if not recording.extensions and recording.cmake is None and not runs_cmake:
        raise ConfigurationError(_nothing(root, found.variables, recording.printed))
    return replace(found, package=_package(found))


def _nothing(root: Path, names: Sequence[str], printed: str) -> str:
    """Return why nothing is carried over of a ``setup.py`` that declares nothing."""
    text = (
        f"setup.py in {root} declares no extension: there is nothing to compile. "
        "If it looks for a word on its command line, as `ext`, add `--argument ext`."
    )
    if own := targets.own_cmake(root):
        text += f" Where CMake is run beside setup.py, {targets.with_own_cmake(own)}."
    if names:
        text += f" It reads {', '.join(names)}: `{names[0]}=1 hatch-torch-ext init` sets one."
    return f"{text} It prints:\n{printed}" if printed else text


def _package(declared: Declared) -> str:
    """Return the import package: that of the extensions, else the one with the project's name, else the first."""
    root, metadata = declared.root, declared.metadata
    parents = {_regular(root, metadata, parent) for name in declared.names if (parent := name.rpartition(".")[0])}
    found = [str(each) for each in metadata.get("packages") or [] if "." not in str(each)]
    packages = [each for each in found if each not in {"tests", "test", "examples", "benchmarks", "benchmark", "docs"}]
    named = declared.name.replace("-", "_")
    modules = [str(each) for each in metadata.get("py_modules") or [] if "." not in str(each)]
    there = [each for each in (named, *modules) if any((root / base / each).is_dir() for base in ("", "src"))]
    own = sorted(parents, key=lambda each: (each.partition(".")[0] not in found, each))
    dotted = [each for each in map(str, metadata.get("packages") or []) if "." in each]  # of a namespace
    inner = sorted(dotted, key=lambda each: each.count("."))
    candidates = [*own, *([named] if named in packages else []), *packages, *there, *inner]
    if not candidates:
        remedy = f"Make a folder `{named}` with an empty `__init__.py`, or give setup() its `packages`."
        # An empty folder would hide a module of its name; and what imports the extension is in the module.
        beside = (each for each in sorted(modules, key=named.__ne__) if (root / f"{each}.py").is_file())
        if module := next(beside, None):
            remedy = f"Move `{module}.py` to `{module}/__init__.py`: its import stays `{module}`."
        raise ConfigurationError(f"setup.py in {root} names no package: extensions are part of one. {remedy}")
    return candidates[0]


def _regular(root: Path, metadata: Mapping[str, Any], dotted: str) -> str:
    """Return the outermost package that has an ``__init__.py``; namespace packages around it belong to no project."""
    parts = dotted.split(".")
    names = [".".join(parts[: count + 1]) for count in range(len(parts))]
    folders = {each: root / pyproject.package_folder(metadata, each, root) for each in names}
    return next((each for each in names if (folders[each] / "__init__.py").is_file()), dotted)
