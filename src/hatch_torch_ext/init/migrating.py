"""A setuptools project -> the files that ``init`` writes into it, and notes: its recordings compared."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import tomlkit

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.init import (
    cmakelists,
    declared,
    imports,
    keeping,
    pyproject,
    recording,
    served,
    splitting,
    targets,
    texts,
)
from hatch_torch_ext.init.served import MatrixOptions
from hatch_torch_ext.init.texts import CMAKE, PYPROJECT, Migration, Note, ignored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.declared import Declared
    from hatch_torch_ext.init.keeping import Kept
    from hatch_torch_ext.init.recording import Recording
    from hatch_torch_ext.init.served import FirstMatrix

CHOSEN = MatrixOptions()
"""Nothing is given."""


def migrate(
    root: Path,
    *,
    extra: Sequence[str] = (),
    arguments: Sequence[str] = (),
    timeout: float = recording.TIMEOUT,
    options: MatrixOptions = CHOSEN,
    split: bool = False,
) -> Migration:
    """Return the files that ``init`` writes for the project in ``root``.

    ``extra``, ``arguments`` and ``timeout`` are for its ``setup.py``, as in ``recording``; ``split`` splits modules
    that also register operators. Raises ``ConfigurationError``.
    """
    if not (root / "setup.py").is_file():
        if keeping.is_project(root):
            return _keep(root, keeping.of_pyproject(root), (), options)
        raise ConfigurationError(
            f"There is no setup.py in {root}: run `init` in the folder of a setuptools project, or give a NAME."
        )
    texts.document(root)
    texts.of(root / "setup.cfg")
    with recording.environment(root, extra) as (python, missing):
        record = functools.partial(recording.record, root, python, arguments=arguments, timeout=timeout)
        newest = max(options.torch, key=releases.minor_of) if options.torch else recording.NEWEST
        cpu, cuda, notes = record(torch=newest)
        migration = assemble(root, cpu, cuda, [*missing, *notes], options=options, split=split)
        others = [each for each in migration.torch if each != newest]
        more = _notes_on_others((cpu, cuda), newest, others, record)
        return replace(migration, notes=tuple(dict.fromkeys([*migration.notes, *more])))


OF_CMAKE = re.compile(r"runs `(?:\S*/)?(?:cmake3?|make|ninja) |the command `build_ext` is replaced")
"""Notes on what the build hook does instead, where the CMake project is kept."""
NOTHING_WITHOUT_CUDA = (
    "setup.py builds no extension without CUDA: the project is carried over only with CUDA, and where torch has no "
    "CUDA its import fails. If the package works there without them, put `_variants.load()` into a `try` that passes "
    "over ImportError"
)


def assemble(
    root: Path,
    cpu: Recording | None,
    cuda: Recording | None,
    notes: Sequence[Note] = (),
    *,
    options: MatrixOptions = CHOSEN,
    split: bool = False,
) -> Migration:
    """Return the migration for what was recorded without and with CUDA, one of which may be missing.

    ``notes`` are on the recordings; ``split`` splits modules that also register operators. Raises
    ``ConfigurationError``.
    """
    found = declared.of(root, cpu, cuda)
    if not found.has_sources and (kept := keeping.of_setup(found, cpu_only=options.cpu_only)) is not None:
        about = [*notes, *_about_pkg_info(root), *_about_variables(found.variables)]
        about += [each for each in found.notes if not OF_CMAKE.match(each.text)]
        return _keep(root, kept, about, options, found)
    return _replace(found, list(notes), options, split=split)


def _replace(found: Declared, notes: list[Note], options: MatrixOptions, *, split: bool) -> Migration:
    """Return the migration of a project whose extensions get a CMakeLists.txt."""
    root, package, metadata = found.root, found.package, found.metadata
    joined, left_out = targets.join(root, found.cpu, found.cuda, package=package)
    if not joined:
        reasons = "".join(f"\n  - {each.text}" for each in left_out)
        raise ConfigurationError(f"No extension of {root} can be carried over:{reasons}")
    only_cuda = targets.cuda_only(found.cpu, found.cuda)
    if not only_cuda and all(each.when == "cuda" for each in joined):
        only_cuda = True
        notes.append(Note(NOTHING_WITHOUT_CUDA))
    has_cuda = any(each.when != "always" or each.needs_cuda for each in joined)
    backends = ("cuda",) if only_cuda else ("cpu", "cuda") if has_cuda else ()
    matrix = served.choose(metadata, found.table, backends, options)
    built, of_splitting = splitting.part(root, joined, package=package, matrix=matrix, write=split)
    if not targets.for_each_python(built):
        matrix = matrix.for_every_python()
    folder = pyproject.package_folder(metadata, package, root)
    changes, by_hand = imports.change(root, folder, package, built)
    stamped = cmakelists.stamps_of(found.cpu, found.cuda, folder)
    contents = pyproject.Contents(
        root=root,
        existing=found.existing,
        metadata=metadata,
        package=package,
        targets=built,
        matrix=matrix.tables,
        packed=cmakelists.without_stamps(found.recordings[0].packed, stamped),
        version_file=found.version_file,
    )
    tables, of_packing = pyproject.render(contents)
    written = {recording.WRITES.format(each.source) for each in stamped}
    recorded = [note for note in found.notes if note.text not in written]
    about = [
        *notes,
        *matrix.notes,
        *_about_the_version(contents, tables, recorded),
        *_about_pkg_info(root),
        *of_packing,
        *_about_variables(found.variables),
        *recorded,
        *left_out,
        *of_splitting,
        *by_hand,
    ]
    cmake = cmakelists.text(found.name, built, cuda_only=only_cuda, stamped=stamped)
    return _migration(root, matrix, [(CMAKE, cmake), (PYPROJECT, tables), *changes], about, name=found.name)


def _keep(
    root: Path, kept: Kept, notes: Sequence[Note], options: MatrixOptions, found: Declared | None = None
) -> Migration:
    """Return the migration of a project whose CMake project stays; ``found``: a setup.py declares the project.

    Raises ``ConfigurationError``.
    """
    package, metadata = kept.package, kept.metadata
    table = tomlkit.parse(kept.existing or "").get("project", {})
    matrix = served.choose(metadata, table, kept.backends, options)
    if not kept.targets:
        matrix = matrix.for_every_python()
    changes, by_hand = imports.change(root, pyproject.package_folder(metadata, package, root), package, kept.targets)
    contents = pyproject.Contents(
        root=root,
        existing=kept.existing,
        metadata=metadata,
        package=package,
        targets=kept.targets,
        matrix=matrix.tables,
        hook=kept.options,
        requires=kept.needs,
        exclude=kept.exclude,
        packed=found.recordings[0].packed if found else None,
        version_file=found.version_file if found else None,
    )
    tables, of_packing = pyproject.render(contents)
    own = kept.notes if matrix.backends else [each for each in kept.notes if "TORCH_EXT_CUDA" not in each.text]
    version = _about_the_version(contents, tables, notes)
    migration = _migration(
        root,
        matrix,
        [(PYPROJECT, tables), *kept.files, *changes],
        [*matrix.notes, *version, *of_packing, *own, *notes, *by_hand],
        name=str(metadata.get("name") or table.get("name") or root.name),
    )
    made_of = "setup.py" if found else PYPROJECT
    return replace(migration, made_of=made_of, kept=tuple(name for name, _ in kept.files))


def _migration(
    root: Path, matrix: FirstMatrix, files: Sequence[tuple[str, str]], notes: Sequence[Note], *, name: str
) -> Migration:
    return Migration(
        root=root,
        files=(*files, *ignored(root)),
        notes=tuple(dict.fromkeys(notes)),
        entries=matrix.entries,
        torch=matrix.torch,
        name=name,
        wider=matrix.wider,
    )


def _about_the_version(contents: pyproject.Contents, tables: str, recorded: Iterable[Note]) -> Iterator[Note]:
    """Note a version that was not found, and one that ``setup.py`` computes, which is fixed in ``tables``.

    ``recorded`` are notes of the recordings, which tell of versioneer.
    """
    root, existing, metadata = contents.root, contents.existing, contents.metadata
    if not pyproject.versioned(existing, metadata, root):
        yield Note("setup() names no version: 0.1.0 is written; for versions out of tags, see hatch-vcs")
    elif any("versioneer" in each.text for each in recorded):
        pass
    elif (now := pyproject.computed(metadata, root)) and f'version = "{now}"' in tables:
        text = (
            f"setup.py computes the version, and {now}, which it gives now, is written: if a file has it, name that "
            'file as `path` in `[tool.hatch.version]`, and move "version" from `[project]` to its `dynamic`'
        )
        yield Note(text)
    for name in pyproject.scm_options(tomlkit.parse(existing or ""), metadata)[1]:
        yield Note(f"the option `{name}` of setuptools-scm is code, and versions are made without it")


def _about_pkg_info(root: Path) -> Iterator[Note]:
    """Note the metadata that setuptools wrote into a source distribution: hatchling prefers them to the matrix."""
    if (root / "PKG-INFO").is_file():
        text = "PKG-INFO is setuptools's, and hatchling takes metadata from it: remove that file"
        yield Note(f"{text}, or its lines `Requires-Dist` where its version is needed")


def _about_variables(variables: Sequence[str]) -> Iterator[Note]:
    """Note the environment variables that ``setup.py`` reads and that were not set."""
    if variables:
        yield Note(f"reads {', '.join(variables)}: what it does without these variables is carried over")


def _notes_on_others(
    first: tuple[Recording | None, Recording | None],
    newest: str,
    others: Sequence[str],
    record: Callable[..., tuple[Recording | None, Recording | None, list[Note]]],
) -> Iterator[Note]:
    """Yield notes on what ``setup.py`` declares under another release of the matrix and not under the newest.

    ``first`` was recorded under ``newest``, without and with CUDA; ``record`` records under another.
    """
    for release in others:
        try:
            found = record(torch=release)
        except ConfigurationError as error:
            yield Note(f"under torch {release}: {error}; leave it out of the matrix, or correct setup.py")
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
                yield Note(text)


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
