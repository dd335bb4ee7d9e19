"""The steps of a migration: a setuptools project -> the files that ``init`` writes into it, and notes on the rest."""

from __future__ import annotations

import dataclasses
import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tomlkit

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cmake import failures
from hatch_torch_ext.facts import releases
from hatch_torch_ext.init import (
    cmakelists,
    imports,
    keeping,
    project,
    pyproject,
    recording,
    served,
    splitting,
    stamps,
    targets,
)
from hatch_torch_ext.init.recording import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.recording import Recording
    from hatch_torch_ext.init.targets import Target

CMAKE = "CMakeLists.txt"
PYPROJECT = "pyproject.toml"
RUNS_CMAKE = re.compile(r"runs `(?:\S*/)?cmake3? ")
OF_CMAKE = re.compile(r"runs `(?:\S*/)?(?:cmake3?|make|ninja) |the command `build_ext` is replaced")
"""Notes on what the build hook does instead, where the CMake project is kept."""
FIRST = 2
"""Releases of torch in a first matrix."""


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
        """Return the changes in the form of ``diff -u``."""
        shown: list[str] = []
        for name, text in self.files:
            path = self.root / name
            before = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
            there = f"a/{name}" if before else "/dev/null"
            lines = difflib.unified_diff(before, text.splitlines(keepends=True), there, f"b/{name}")
            shown += (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        return "".join(shown)

    def require(self, *, force: bool) -> None:
        """Raise ``ConfigurationError`` if a CMake project that is there would be replaced, unless ``force``."""
        there = self.root / CMAKE
        if not force and there.exists() and CMAKE in {name for name, _ in self.files} - {*self.kept}:
            raise ConfigurationError(
                [f"{there} is there: `--force` replaces it; or keep it, and write the tables by hand."]
            )

    def write(self, *, force: bool) -> None:
        """Write the files. Raises ``ConfigurationError`` as ``require`` does."""
        self.require(force=force)
        for name, text in self.files:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


NOTHING_ON_THE_CPU = "Nothing of this project is built without CUDA: leave `--cpu` out."
NOTHING_WITHOUT_CUDA = (
    "setup.py builds no extension without CUDA: the project is carried over only with CUDA, and where torch has no "
    "CUDA its import fails. If the package works there without them, put `_variants.load()` into a `try` that passes "
    "over ImportError"
)


def migrate(
    root: Path,
    *,
    extra: Sequence[str] = (),
    arguments: Sequence[str] = (),
    timeout: float = recording.TIMEOUT,
    torch: Sequence[str] = (),
    pythons: Sequence[str] = (),
    cpu_alone: bool = False,
    split: bool = False,
) -> Migration:
    """Return the files that ``init`` writes for the project in ``root``.

    ``torch`` and ``pythons`` are the values of the matrix; if empty, they are chosen. ``cpu_alone`` leaves CUDA out of
    the matrix. ``split`` splits modules that also register operators. Raises ``ConfigurationError``.
    """
    if not (root / "setup.py").is_file() and keeping.is_project(root):
        kept, package, metadata = keeping.of_pyproject(root)
        return _keep(
            root, kept, package, metadata, [], torch=torch, pythons=pythons, cpu_alone=cpu_alone, made_of=PYPROJECT
        )
    recording.require(root)
    with recording.environment(root, extra) as python:

        def recorded(release: str) -> tuple[Recording | None, Recording | None, list[Note]]:
            return _recordings(root, python, arguments, timeout, release)

        newest = max(torch, key=releases.minor_of) if torch else recording.NEWEST
        cpu, cuda, notes = recorded(newest)
        migration = assemble(root, cpu, cuda, notes, torch=torch, pythons=pythons, cpu_alone=cpu_alone, split=split)
        others = [each for each in migration.torch if each != newest]
        differing = _differing((cpu, cuda), newest, others, recorded)
        return replace(migration, notes=tuple(dict.fromkeys([*migration.notes, *differing])))


def assemble(
    root: Path,
    cpu: Recording | None,
    cuda: Recording | None,
    notes: list[Note],
    *,
    torch: Sequence[str] = (),
    pythons: Sequence[str] = (),
    cpu_alone: bool = False,
    split: bool = False,
) -> Migration:
    """Return the migration for what was recorded without and with CUDA, one of which may be missing.

    The other arguments are as for ``migrate``. Raises ``ConfigurationError``.
    """
    recordings = [each for each in (cuda, cpu) if each is not None]
    metadata = recordings[0].metadata
    variables = sorted({name for each in recordings for name in each.variables})
    of_cmake = recordings[0].cmake
    runs_cmake = any(RUNS_CMAKE.match(each.text) for each in recordings[0].notes) and bool(targets.own_cmake(root))
    if not recordings[0].extensions and of_cmake is None and not runs_cmake:
        raise ConfigurationError([_nothing(root, variables, recordings[0].printed)])
    path = root / PYPROJECT
    existing = path.read_text(encoding="utf-8") if path.is_file() else None
    declared = tomlkit.parse(existing or "").get("project", {})
    name = str(metadata.get("name") or declared.get("name") or root.name)
    names = [each.name for each in recordings[0].extensions]
    package = _package(root, metadata, name, [] if of_cmake else names)
    if not any(each.sources for one in recordings for each in one.extensions):
        commanded = keeping.common(*(each.commanded for each in recordings))
        kept = keeping.of_setup(root, package, [] if of_cmake else names, of_cmake or commanded)
        if kept is not None:
            kept_notes = [note for each in reversed(recordings) for note in each.notes]
            notes += [*_about_what_is_packed(root), *_about_variables(variables)]
            notes += [each for each in kept_notes if not OF_CMAKE.match(each.text)]
            packed = recordings[0].packed
            return _keep(
                root, kept, package, metadata, notes, torch=torch, pythons=pythons, cpu_alone=cpu_alone, packed=packed
            )
    joined, left_out = targets.join(root, cpu, cuda, package=package)
    if not joined:
        raise ConfigurationError([f"No extension of {root} can be carried over:", *(each.text for each in left_out)])
    only_cuda = targets.cuda_only(cpu, cuda)
    if not only_cuda and all(each.when == "cuda" for each in joined):
        only_cuda = True
        notes.append(Note(line=0, text=NOTHING_WITHOUT_CUDA))
    backends = _backends(joined, only_cuda=only_cuda, cpu_alone=cpu_alone)
    matrix = _matrix(metadata, declared, backends, torch=torch, pythons=pythons)
    gain = splitting.Gain(entries=matrix.entries, pythons=len(matrix.pythons))
    built, of_splitting = splitting.part(root, joined, package=package, gain=gain, write=split)
    folder = pyproject.package_folder(metadata, package, root)
    changes, by_hand = imports.change(root, folder, package, built)
    stamped = stamps.of(cpu, cuda, folder)
    carried = {each.source for each in stamped}
    packed = recordings[0].packed
    of_packing: list[Note] = []
    tables = pyproject.text(
        existing,
        metadata,
        built,
        root=root,
        package=package,
        sources=".",
        torch=matrix.torch,
        pythons=matrix.pythons,
        backends=backends,
        packed=None if packed is None else [(place, source) for place, source in packed if source not in carried],
        notes=of_packing,
    )
    files = (
        (CMAKE, cmakelists.text(name, built, cuda_only=only_cuda, stamped=stamped)),
        (PYPROJECT, tables),
        *((each.name, each.text) for each in changes),
        *ignored(root),
    )
    written = {recording.WRITES.format(each) for each in carried}
    recorded = [note for each in reversed(recordings) for note in each.notes if note.text not in written]
    notes += [
        *matrix.notes,
        *_about_the_version(root, existing, metadata, tables, recorded),
        *_about_what_is_packed(root),
        *of_packing,
        *_about_variables(variables),
        *recorded,
        *left_out,
        *of_splitting,
        *by_hand,
    ]
    return Migration(
        root=root,
        files=files,
        notes=tuple(dict.fromkeys(notes)),
        entries=matrix.entries * (len(matrix.pythons) if pyproject.for_each_python(built) else 1),
        torch=matrix.torch,
        name=name,
        wider=_wider(matrix, for_each_python=pyproject.for_each_python(built)),
    )


def _keep(
    root: Path,
    kept: keeping.Kept,
    package: str,
    metadata: Mapping[str, Any],
    notes: list[Note],
    *,
    torch: Sequence[str],
    pythons: Sequence[str],
    cpu_alone: bool,
    packed: Sequence[tuple[str, str]] | None = None,
    made_of: str = "setup.py",
) -> Migration:
    """Return the migration of a project whose CMake project stays. Raises ``ConfigurationError``."""
    declared = tomlkit.parse(kept.existing or "").get("project", {})
    if cpu_alone and kept.backends == ("cuda",):
        raise ConfigurationError([NOTHING_ON_THE_CPU])
    backends = () if cpu_alone else kept.backends
    matrix = _matrix(metadata, declared, backends, torch=torch, pythons=pythons)
    changes, by_hand = imports.change(root, pyproject.package_folder(metadata, package, root), package, kept.targets)
    of_packing: list[Note] = []
    tables = pyproject.text(
        kept.existing,
        metadata,
        kept.targets,
        root=root,
        package=package,
        sources=str(kept.options["source"]),
        torch=matrix.torch,
        pythons=matrix.pythons,
        backends=backends,
        packed=packed,
        notes=of_packing,
        kept=kept,
    )
    own = kept.notes if backends else [each for each in kept.notes if "TORCH_EXT_CUDA" not in each.text]
    version = _about_the_version(root, kept.existing, metadata, tables, notes)
    for_each_python = pyproject.for_each_python(kept.targets)
    return Migration(
        root=root,
        files=((PYPROJECT, tables), *kept.files, *((each.name, each.text) for each in changes), *ignored(root)),
        notes=tuple(dict.fromkeys([*matrix.notes, *version, *of_packing, *own, *notes, *by_hand])),
        entries=matrix.entries * (len(matrix.pythons) if for_each_python else 1),
        torch=matrix.torch,
        name=str(metadata.get("name") or declared.get("name") or root.name),
        wider=_wider(matrix, for_each_python=for_each_python),
        made_of=made_of,
        kept=tuple(name for name, _ in kept.files),
    )


def _wider(matrix: _Matrix, *, for_each_python: bool) -> str | None:
    """Return how the matrix is made wider, where what the project admits is more than it has."""
    more = [f"hatch-torch-ext matrix --add torch={each}" for each in reversed(matrix.more_torch)][:1]
    if for_each_python and matrix.more_pythons:
        more.append(f"`python` in pyproject.toml (the project names {', '.join(matrix.more_pythons)} too)")
    return " and ".join(more) or None


def _differing(
    first: tuple[Recording | None, Recording | None],
    newest: str,
    others: Sequence[str],
    recorded: Callable[[str], tuple[Recording | None, Recording | None, list[Note]]],
) -> Iterator[Note]:
    """Note what ``setup.py`` declares under another release of the matrix and not under the newest."""
    for release in others:
        try:
            found = recorded(release)
        except ConfigurationError as error:
            yield Note(line=0, text=f"under torch {release}: {error}; leave it out of the matrix, or correct setup.py")
            continue
        last = ""
        for backend, one, other in zip(("", " with CUDA"), first, found[:2], strict=True):
            differences = _differences(one, other)
            if differences and last != "; ".join(differences):
                last = "; ".join(differences)
                text = (
                    f"under torch {release}{backend} setup.py declares {last}. What it declares under {newest} is "
                    f"carried over: write the rest as `if(Torch_VERSION VERSION_LESS {newest})` into CMakeLists.txt"
                )
                yield Note(line=0, text=text)


def _differences(newest: Recording | None, other: Recording | None) -> list[str]:
    """Return in words what ``other`` declares and ``newest`` does not, and the reverse."""
    if newest is None or other is None:
        return [] if newest is other else ["another kind of machine"]
    theirs = {each.name: each for each in other.extensions}
    ours = {each.name: each for each in newest.extensions}
    found = [f"`{name}` too" for name in theirs if name not in ours]
    found += [f"no `{name}`" for name in ours if name not in theirs]
    for name, mine in ours.items():
        compiled = any(source.endswith(".cu") for source in mine.sources)
        for field in dataclasses.fields(mine) if name in theirs else ():
            if field.name != "nvcc" or compiled:
                found += _differences_of(name, field.name, getattr(mine, field.name), getattr(theirs[name], field.name))
    return found


def _differences_of(name: str, field: str, newest: object, other: object) -> list[str]:
    """Return in words in what one field of an extension differs."""
    if newest == other:
        return []
    if not isinstance(newest, tuple) or not isinstance(other, tuple):
        return [f"{field} of `{name}` as {other}"]
    added = [_written(each) for each in other if each not in newest]
    gone = [_written(each) for each in newest if each not in other]
    words = [f"`{' '.join(added)}` among {field} of `{name}`"] if added else []
    return [*words, f"no `{' '.join(gone)}` among {field} of `{name}`"] if gone else words


def _written(value: object) -> str:
    """Return a flag, or a macro with its value."""
    if isinstance(value, tuple):
        return str(value[0]) if value[1] is None else f"{value[0]}={value[1]}"
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """The values of the matrix, and the number of its entries for one Python."""

    torch: tuple[str, ...]
    pythons: tuple[str, ...]
    entries: int
    notes: tuple[Note, ...]
    more_torch: tuple[str, ...] = ()
    """Releases that the project admits and that a first matrix leaves out, oldest first."""
    more_pythons: tuple[str, ...] = ()


def _matrix(
    metadata: Mapping[str, Any],
    declared: Mapping[str, Any],
    backends: Sequence[str],
    *,
    torch: Sequence[str],
    pythons: Sequence[str],
) -> _Matrix:
    """Return the matrix: ``torch`` and ``pythons`` as the author gave them, else chosen by the project's metadata."""
    notes: list[Note] = []
    required = [*metadata.get("install_requires", []), *declared.get("dependencies", [])]
    known = torch or _releases(required, notes)
    # A first matrix is small: two releases, or one for the CPU and with CUDA, and one Python.
    chosen = known if torch else known[-1:] if len(backends) > 1 else known[-FIRST:]
    more = known[: len(known) - len(chosen)]
    torch = chosen
    named = pythons or served.pythons({**_of_project(declared), **metadata}, torch)
    pythons = pythons or served.first_python(named)
    others = [each for each in named if each not in pythons]
    compiled = served.with_compiler(torch)
    if left := [each for each in torch if "cuda" in backends and each not in compiled]:
        why = "the index has no compiler for its CUDA: with a toolkit and the option `cuda-home`, add one"
        notes.append(Note(line=0, text=f"torch {', '.join(left)} has no entry with CUDA, since {why}"))
    entries = len(torch) * ("cuda" not in backends or "cpu" in backends) + len(compiled) * ("cuda" in backends)
    return _Matrix(
        torch=tuple(torch),
        pythons=tuple(pythons),
        entries=entries,
        notes=tuple(notes),
        more_torch=tuple(more),
        more_pythons=tuple(others),
    )


def _about_the_version(
    root: Path, existing: str | None, metadata: Mapping[str, Any], tables: str, recorded: Iterable[Note]
) -> Iterator[Note]:
    """Note a version that was not found, and one that ``setup.py`` computes, which is fixed in ``tables``.

    ``recorded`` are notes of the recordings, which tell of versioneer.
    """
    if not project.versioned(existing, metadata, root):
        text = "setup() names no version: 0.1.0 is written; for versions out of tags, see hatch-vcs"
        yield Note(line=0, text=text)
    elif any("versioneer" in each.text for each in recorded):
        pass
    elif (now := project.computed(metadata, root)) and f'version = "{now}"' in tables:
        text = (
            f"the version is worked out by setup.py, and {now} is written: where a file says it, name that file as "
            '`path` in `[tool.hatch.version]`, and move "version" from `[project]` to its `dynamic`'
        )
        yield Note(line=0, text=text)
    for name in project.scm_options(tomlkit.parse(existing or ""), metadata)[1]:
        yield Note(line=0, text=f"the option `{name}` of setuptools-scm is code, and versions are made without it")


def _about_what_is_packed(root: Path) -> Iterator[Note]:
    """Note the metadata that setuptools wrote into a source distribution: hatchling prefers them to the matrix."""
    if (root / "PKG-INFO").is_file():
        text = "PKG-INFO is setuptools's, and hatchling takes metadata from it: remove that file"
        yield Note(line=0, text=f"{text}, or its lines `Requires-Dist` where its version is needed")


def _about_variables(variables: Sequence[str]) -> Iterator[Note]:
    """Note the environment variables that ``setup.py`` reads and that were not set."""
    if variables:
        text = f"reads {', '.join(variables)}: what it does without these variables is carried over"
        yield Note(line=0, text=text)


def _releases(requirements: Sequence[str], notes: list[Note]) -> list[str]:
    """Return the releases of torch for the matrix: the newest of those that the project's requirement admits."""
    required = served.torch_specifier(requirements)
    found = served.torch_releases(required)
    if not found:
        text = f"requires torch{required}, of which no release is known: the matrix has the newest"
        notes.append(Note(line=0, text=text))
    return found or served.torch_releases()


def _nothing(root: Path, names: Sequence[str], printed: str) -> str:
    text = (
        f"setup.py in {root} declares no extension: there is nothing to compile. "
        "If it looks for a word on its command line, as `ext`, add `--argument ext`."
    )
    if names:
        text += f" It reads {', '.join(names)}: `{names[0]}=1 hatch-torch-ext init` sets one."
    return f"{text} It prints:\n{printed}" if printed else text


def _of_project(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of a [project] table by the names that ``setup()`` has for them."""
    names = {"classifiers": "classifiers", "python_requires": "requires-python"}
    return {name: declared[key] for name, key in names.items() if key in declared}


def ignored(root: Path) -> list[tuple[str, str]]:
    """Return .gitignore with the folders that a build writes: hatchling leaves ignored files out of the sdist."""
    path = root / ".gitignore"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    there = {line.strip().strip("/") for line in text.splitlines()}
    new = "".join(f"/{name}/\n" for name in ("build", "dist") if name not in there)
    return [(".gitignore", f"{text.rstrip()}\n{new}".lstrip())] if new else []


def _recordings(
    root: Path, python: Path, arguments: Sequence[str], timeout: float, release: str
) -> tuple[Recording | None, Recording | None, list[Note]]:
    """Return the recordings without and with CUDA; one that ``setup.py`` refuses is None, and noted.

    Submodules of git that were not fetched are noted too.
    """
    cpu: Recording | None
    cuda: Recording | None
    notes = []
    try:
        cpu, cuda = recording.record(root, arguments=arguments, timeout=timeout, torch=release, python=python)
    except recording.RecordingError as error:
        if error.other is None:
            if empty := failures.empty_submodules(root):
                raise ConfigurationError([str(error), empty]) from error
            raise
        cpu, cuda = (None, error.other) if error.backend == "cpu" else (error.other, None)
        kept = "only with CUDA" if cpu is None else "only for the CPU"
        notes.append(Note(line=error.line, text=f"{error}; the project is carried over {kept}"))
    if empty := failures.empty_submodules(root):
        notes.append(Note(line=0, text=empty))
    return cpu, cuda, notes


def _backends(joined: Sequence[Target], *, only_cuda: bool, cpu_alone: bool) -> tuple[str, ...]:
    """Return the backends that the matrix declares; none if no entry has CUDA."""
    if only_cuda:
        if cpu_alone:
            raise ConfigurationError([NOTHING_ON_THE_CPU])
        return ("cuda",)
    has_cuda = any(each.when != "always" or each.needs_cuda for each in joined)
    return ("cpu", "cuda") if has_cuda and not cpu_alone else ()


def _package(root: Path, metadata: Mapping[str, Any], name: str, extensions: Sequence[str]) -> str:
    """Return the import package: that of the extensions, else the one with the project's name, else the first."""
    parents = {_regular(root, metadata, parent) for name in extensions if (parent := name.rpartition(".")[0])}
    found = [str(each) for each in metadata.get("packages") or [] if "." not in str(each)]
    packages = [each for each in found if each not in {"tests", "test", "examples", "benchmarks", "benchmark", "docs"}]
    named = name.replace("-", "_")
    modules = [str(each) for each in metadata.get("py_modules") or [] if "." not in str(each)]
    there = [each for each in (named, *modules) if any((root / base / each).is_dir() for base in ("", "src"))]
    own = sorted(parents, key=lambda each: (each.partition(".")[0] not in found, each))
    candidates = [*own, *([named] if named in packages else []), *packages, *there]
    if not candidates:
        remedy = f"Make a folder `{named}` with an empty `__init__.py`, or give setup() its `packages`."
        # An empty folder would hide a module of its name; and what imports the extension is in the module.
        lying = (each for each in sorted(modules, key=named.__ne__) if (root / f"{each}.py").is_file())
        if module := next(lying, None):
            remedy = f"Move `{module}.py` to `{module}/__init__.py`: its import stays `{module}`."
        raise ConfigurationError([f"setup.py in {root} names no package: extensions are part of one. {remedy}"])
    return candidates[0]


def _regular(root: Path, metadata: Mapping[str, Any], dotted: str) -> str:
    """Return the outermost package that has an ``__init__.py``; namespace packages around it belong to no project."""
    parts = dotted.split(".")
    names = [".".join(parts[: count + 1]) for count in range(len(parts))]
    folders = {each: root / pyproject.package_folder(metadata, each, root) for each in names}
    return next((each for each in names if (folders[each] / "__init__.py").is_file()), dotted)
