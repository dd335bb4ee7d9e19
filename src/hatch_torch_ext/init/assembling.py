"""A project as its ``setup.py`` declares it -> the files that ``init`` writes, and notes on the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tomlkit

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.init import (
    cmakelists,
    declared,
    first_matrix,
    imports,
    keeping,
    project,
    pyproject,
    recording,
    splitting,
    stamps,
    targets,
)
from hatch_torch_ext.init.first_matrix import CHOSEN
from hatch_torch_ext.init.migration import CMAKE, Migration, ignored
from hatch_torch_ext.init.recording import Note
from hatch_torch_ext.init.texts import PYPROJECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.declared import Declared
    from hatch_torch_ext.init.first_matrix import Wanted
    from hatch_torch_ext.init.recording import Recording

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
    wanted: Wanted = CHOSEN,
    split: bool = False,
) -> Migration:
    """Return the migration for what was recorded without and with CUDA, one of which may be missing.

    ``notes`` are on the recordings; ``split`` splits modules that also register operators. Raises
    ``ConfigurationError``.
    """
    found = declared.of(root, cpu, cuda)
    if not found.has_sources and (kept := _own_cmake(found)) is not None:
        about = [*notes, *_about_what_is_packed(root), *_about_variables(found.variables)]
        about += [each for each in found.notes if not OF_CMAKE.match(each.text)]
        packed = found.recordings[0].packed
        return keep(root, kept, found.package, found.metadata, about, wanted=wanted, packed=packed)
    return _replace(found, list(notes), wanted, split=split)


def _own_cmake(found: Declared) -> keeping.Kept | None:
    """Return what is kept of the project's own CMake project, if it has one."""
    commanded = keeping.common(*(each.commanded for each in found.recordings))
    return keeping.of_setup(found.root, found.package, found.names, found.recordings[0].cmake or commanded)


def _replace(found: Declared, notes: list[Note], wanted: Wanted, *, split: bool) -> Migration:
    """Return the migration of a project whose extensions get a CMakeLists.txt."""
    root, package, metadata = found.root, found.package, found.metadata
    joined, left_out = targets.join(root, found.cpu, found.cuda, package=package)
    if not joined:
        raise ConfigurationError([f"No extension of {root} can be carried over:", *(each.text for each in left_out)])
    only_cuda = targets.cuda_only(found.cpu, found.cuda)
    if not only_cuda and all(each.when == "cuda" for each in joined):
        only_cuda = True
        notes.append(Note(line=0, text=NOTHING_WITHOUT_CUDA))
    backends = first_matrix.backends(joined, wanted, only_cuda=only_cuda)
    matrix = first_matrix.choose(metadata, found.table, backends, wanted)
    gain = splitting.Gain(entries=matrix.entries, pythons=len(matrix.pythons))
    built, of_splitting = splitting.part(root, joined, package=package, gain=gain, write=split)
    folder = pyproject.package_folder(metadata, package, root)
    changes, by_hand = imports.change(root, folder, package, built)
    stamped = stamps.of(found.cpu, found.cuda, folder)
    of_packing: list[Note] = []
    tables = pyproject.text(
        found.existing,
        metadata,
        built,
        root=root,
        package=package,
        sources=".",
        torch=matrix.torch,
        pythons=matrix.pythons,
        backends=backends,
        packed=stamps.without(found.recordings[0].packed, stamped),
        notes=of_packing,
    )
    written = {recording.WRITES.format(each.source) for each in stamped}
    recorded = [note for note in found.notes if note.text not in written]
    about = [
        *notes,
        *matrix.notes,
        *_about_the_version(root, found.existing, metadata, tables, recorded),
        *_about_what_is_packed(root),
        *of_packing,
        *_about_variables(found.variables),
        *recorded,
        *left_out,
        *of_splitting,
        *by_hand,
    ]
    for_each_python = pyproject.for_each_python(built)
    return Migration(
        root=root,
        files=(
            (CMAKE, cmakelists.text(found.name, built, cuda_only=only_cuda, stamped=stamped)),
            (PYPROJECT, tables),
            *((each.name, each.text) for each in changes),
            *ignored(root),
        ),
        notes=tuple(dict.fromkeys(about)),
        entries=matrix.all_entries(for_each_python=for_each_python),
        torch=matrix.torch,
        name=found.name,
        wider=matrix.wider(for_each_python=for_each_python),
    )


def keep(
    root: Path,
    kept: keeping.Kept,
    package: str,
    metadata: Mapping[str, Any],
    notes: Sequence[Note],
    *,
    wanted: Wanted,
    packed: Sequence[tuple[str, str]] | None = None,
    made_of: str = "setup.py",
) -> Migration:
    """Return the migration of a project whose CMake project stays. Raises ``ConfigurationError``."""
    table = tomlkit.parse(kept.existing or "").get("project", {})
    if wanted.cpu_alone and kept.backends == ("cuda",):
        raise ConfigurationError([first_matrix.NOTHING_ON_THE_CPU])
    backends = () if wanted.cpu_alone else kept.backends
    matrix = first_matrix.choose(metadata, table, backends, wanted)
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
        entries=matrix.all_entries(for_each_python=for_each_python),
        torch=matrix.torch,
        name=str(metadata.get("name") or table.get("name") or root.name),
        wider=matrix.wider(for_each_python=for_each_python),
        made_of=made_of,
        kept=tuple(name for name, _ in kept.files),
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
