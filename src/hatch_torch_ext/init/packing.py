"""The options by which hatchling packs what setuptools packs, where it would pack something else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hatchling.builders.constants import EXCLUDED_DIRECTORIES, EXCLUDED_FILES
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata

from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_SPECIAL = frozenset("*?[]!#\\ ")
"""Characters that mean something in a pattern of hatchling, which are git's."""
NEVER = "setuptools packs `{}`, which hatchling packs in no project and no user needs: it is left out"
TOGETHER = 3
"""Notes on one folder up to which each is of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Options of ``[tool.hatch.build.targets.wheel]``, and notes."""

    exclude: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    force_include: tuple[tuple[str, str], ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def table(self) -> dict[str, Any]:
        """Return the options that have a value."""
        lists = {"exclude": list(self.exclude), "artifacts": list(self.artifacts)}
        return {key: value for key, value in {**lists, "force-include": dict(self.force_include)}.items() if value}


def options(
    root: Path, document: Mapping[str, Any], packed: Sequence[tuple[str, str]], *, own: tuple[str, str] = ("", "")
) -> Packing:
    """Return what makes hatchling pack ``packed``, where ``document`` is pyproject.toml as it is so far.

    ``packed`` are (place in the wheel, place in the project), both POSIX. So is ``own``, the file that loads the
    variant: it is packed in any case, and may not be there yet.
    """
    there = {installed: source for installed, source in (*packed, own) if (root / source).is_file()}
    never = {installed: source for installed, source in there.items() if _is_never_packed(source)}
    expected = {installed: source for installed, source in there.items() if installed not in never}
    taken = _taken(root, document)
    extra = {source: installed for installed, source in taken.items() if installed not in expected}
    missing = {installed: source for installed, source in expected.items() if installed not in taken}
    placed = _placed(taken)
    ignored = {one: other for one, other in missing.items() if any(_at(one, other, *folders) for folders in placed)}
    elsewhere = {installed: source for installed, source in missing.items() if installed not in ignored}
    forced = tuple(_folders(root, elsewhere, expected))
    return Packing(
        exclude=tuple(_patterns(extra, {own[1], *(each for place, each in taken.items() if place in expected)})),
        artifacts=tuple(sorted(f"/{_literal(source)}" for source in ignored.values())),
        force_include=forced,
        notes=(*_notes(root, forced), *(Note(NEVER.format(installed)) for installed in never)),
    )


def _is_never_packed(source: str) -> bool:
    parts = PurePosixPath(source).parts
    return parts[-1] in EXCLUDED_FILES or not EXCLUDED_DIRECTORIES.isdisjoint(parts)


def _taken(root: Path, document: Mapping[str, Any]) -> dict[str, str]:
    """Return what hatchling would pack: place in the wheel -> place in the project."""
    metadata: ProjectMetadata[Any] = ProjectMetadata(str(root), None, config=dict(document))
    builder = WheelBuilder(str(root), metadata=metadata)
    with builder.config.set_build_data({"artifacts": [], "force_include": {}}):
        included = list(builder.recurse_included_files())
    found = {each.distribution_path: each.relative_path for each in included if not each.path.endswith((".so", ".pyc"))}
    return {installed.replace("\\", "/"): source.replace("\\", "/") for installed, source in found.items()}


def _placed(taken: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return the pairs of folders, in the wheel and in the project, whose files hatchling looks at."""
    found: set[tuple[str, str]] = set()
    for installed, source in taken.items():
        one, other = PurePosixPath(installed).parent, PurePosixPath(source).parent
        found.add((one.as_posix(), other.as_posix()))
        while one.name and one.name == other.name:
            one, other = one.parent, other.parent
            if one.name and one.name == other.name:
                found.add((one.as_posix(), other.as_posix()))
    return found


def _at(installed: str, source: str, folder: str, of_project: str) -> bool:
    """Return whether a file is in both folders, at one place below them."""
    one, other = PurePosixPath(installed), PurePosixPath(source)
    if not one.is_relative_to(folder) or not other.is_relative_to(of_project) or folder == ".":
        return False
    return one.relative_to(folder) == other.relative_to(of_project)


def _patterns(extra: Mapping[str, str], kept: set[str]) -> Iterator[str]:
    """Yield patterns that leave out ``extra``: whole folders, kinds of files of which none is packed, else files."""
    folders = {parent.as_posix() for each in kept for parent in PurePosixPath(each).parents}
    suffixes = {PurePosixPath(each).suffix for each in kept}
    found: set[str] = set()
    for source in extra:
        path = PurePosixPath(source)
        outer = [parent for parent in path.parents if parent.as_posix() not in folders and parent.as_posix() != "."]
        if outer:
            found.add(f"/{_literal(outer[-1].as_posix())}/")
        elif path.suffix and path.suffix not in suffixes:
            found.add(f"*{_literal(path.suffix)}")
        else:
            found.add(f"/{_literal(source)}")
    yield from sorted(found)


def _literal(path: str) -> str:
    """Return a path as a pattern that means only it."""
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in path)


def _folders(root: Path, missing: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (place in the project, place in the wheel) of files; of folders, where all in them is packed together."""
    found: dict[str, str] = {}
    pairs = {(source, installed) for installed, source in expected.items()}
    for installed, source in sorted(missing.items()):
        one, other = PurePosixPath(installed), PurePosixPath(source)
        best = (other.as_posix(), one.as_posix())
        while True:
            together = one.name == other.name
            one, other = one.parent, other.parent
            if not together or other.as_posix() == "." or one.as_posix() == ".":
                break
            inside = _files(root, other.as_posix())
            if all((each, f"{one.as_posix()}{each[len(other.as_posix()) :]}") in pairs for each in inside):
                best = (other.as_posix(), one.as_posix())
        found[best[1]] = best[0]
    yield from sorted((source, installed) for installed, source in found.items())


def _files(root: Path, folder: str) -> list[str]:
    found = (path for path in (root / folder).rglob("*") if path.is_file() and path.suffix != ".pyc")
    return [path.relative_to(root).as_posix() for path in found]


def _notes(root: Path, forced: Iterable[tuple[str, str]]) -> Iterator[Note]:
    """Yield a note for each file and folder that comes from elsewhere; for many of one folder, one note."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for source, installed in forced:
        one, other = PurePosixPath(source), PurePosixPath(installed)
        while one.parent.name and other.parent.name and one.name == other.name:
            one, other = one.parent, other.parent
        groups.setdefault((one.as_posix(), other.as_posix()), []).append((source, installed))
    does = "`force-include` of pyproject.toml does so"
    for (folder, target), pairs in groups.items():
        if len(pairs) > TOGETHER:
            many = f"{len(pairs)} files and folders of `{folder}/`"
            yield Note(f"setuptools packs {many} as `{target}`: {does}")
            continue
        for source, installed in pairs:
            place = f"{source}/" if (root / source).is_dir() else source
            yield Note(f"setuptools packs `{place}` as `{installed}`: {does}")
