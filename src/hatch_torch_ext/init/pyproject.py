"""The text of pyproject.toml: an existing one is kept, what hatch-torch-ext needs is added, and what was packed is."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import tomlkit
from hatchling.builders.constants import EXCLUDED_DIRECTORIES, EXCLUDED_FILES
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from packaging.utils import canonicalize_name

from hatch_torch_ext.init import project, served
from hatch_torch_ext.init.recording import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.keeping import Kept
    from hatch_torch_ext.init.targets import Target


def text(
    existing: str | None,
    metadata: Mapping[str, Any],
    targets: Sequence[Target],
    *,
    root: Path,
    package: str,
    sources: str,
    torch: Sequence[str],
    pythons: Sequence[str],
    backends: Sequence[str] = (),
    packed: Sequence[tuple[str, str]] | None = None,
    notes: list[Note] | None = None,
    kept: Kept | None = None,
) -> str:
    """Return the text of pyproject.toml: the existing one with what hatch-torch-ext needs.

    ``sources`` is the folder of CMakeLists.txt, ``kept`` tells of a CMake project that stays; ``torch`` and ``pythons``
    are what the matrix holds, the Pythons where modules need them, and ``backends`` (``cpu``, ``cuda``) where there is
    code for CUDA. A ``[project]`` table that is there already is kept; else it is made of what ``setup()`` was given.
    ``packed`` is what setuptools packs, as ``Recording.packed``; ``notes`` takes what the author should know of it.
    """
    notes = [] if notes is None else notes
    document = tomlkit.parse(existing) if existing else tomlkit.document()
    version = project.version(document, metadata, root)
    build = tomlkit.table()
    build["requires"] = ["hatchling", "hatch-torch-ext", *(["hatch-vcs"] if version.get("source") == "vcs" else [])]
    build["build-backend"] = "hatchling.build"
    build["build-backend"].comment('or "hatch_torch_ext.backend", with which `uv lock` does not compile')
    document["build-system"] = build
    declared, own = _declared(document, metadata, root, version)
    dependencies = [each for each in own if canonicalize_name(re.split(r"[^A-Za-z0-9._-]", each)[0]) != "torch"]
    tool = document.setdefault("tool", tomlkit.table(is_super_table=True))
    hatch = tool.setdefault("hatch", tomlkit.table(is_super_table=True))
    about = _hatch(dependencies, targets, metadata, package=package, sources=sources, root=root, packed=packed)
    if kept is not None:
        _add_kept(about, kept)
    named = str(declared.get("name") or metadata.get("name") or root.name)
    about["envs"]["matrix"]["scripts"] = {"test": _test(named, root, requires=bool(dependencies))}
    of_each = list(pythons) if for_each_python(targets) else []
    about["envs"]["matrix"] |= served.matrix(torch, of_each, backends)
    if version:
        options, _ = project.scm_options(document, metadata) if version.get("source") == "vcs" else ({}, [])
        about = {"version": {**version, **({"raw-options": options} if options else {})}, **about}
    if version.get("source") == "vcs" and (written := project.version_file(document, metadata)):
        about["build"] = {**about["build"], "hooks": {"vcs": {"version-file": written}}}
    _merge(hatch, about)
    if packed is not None:
        inner, folder = package.replace(".", "/"), package_folder(metadata, package, root)
        loads = (f"{inner}/__init__.py", f"{folder}/__init__.py")
        tables = tomlkit.parse(tomlkit.dumps(document)).unwrap()
        _add_packing(document, packing(root, tables, packed, own=loads), notes)
    return tomlkit.dumps(document)


def _declared(
    document: Any,  # noqa: ANN401 -- tomlkit's
    metadata: Mapping[str, Any],
    root: Path,
    version: Mapping[str, str],
) -> tuple[Any, list[str]]:
    """Make the [project] table say what setuptools knew; return it, and the requirements, which the hook takes."""
    own = [project.requirement(each) for each in metadata.get("install_requires") or []]
    if "project" not in document:
        document["project"] = project.table(metadata, root)
    declared = document["project"]
    if "dependencies" in declared:
        own = [str(each) for each in declared.pop("dependencies")]
    dynamic, found = {*map(str, declared.get("dynamic", []))}, project.table(metadata, root)
    for name in sorted(dynamic & {*found} - {"dependencies", "version"}):  # setuptools read it elsewhere
        declared[name] = found[name]
    _add_addresses(declared, found.get("urls", {}))
    fields = {*dynamic, "dependencies"} - {"version", *found}
    declared["dynamic"] = sorted({*fields, *(["version"] if version else [])})
    if version:
        declared.pop("version", None)
    elif "version" not in declared:
        declared["version"] = str(metadata.get("version") or "0.1.0")
    return declared, own


def _add_packing(document: Any, found: Packing, notes: list[Note]) -> None:  # noqa: ANN401 -- tomlkit's
    """Add the options that make hatchling pack what setuptools packs."""
    lists = {"exclude": list(found.exclude), "artifacts": list(found.artifacts)}
    forced = {"force-include": dict(found.force_include)}
    wheel = document["tool"]["hatch"]["build"]["targets"]["wheel"]
    _merge(wheel, {key: value for key, value in {**lists, **forced}.items() if value})
    notes += found.notes


def _add_kept(about: dict[str, Any], kept: Kept) -> None:
    """Add what a CMake project that stays is built with."""
    wheel, environment = about["build"]["targets"]["wheel"], about["envs"]["matrix"]
    wheel["hooks"]["torch-ext"] |= kept.options
    environment["dependencies"][-1:-1] = kept.needs
    if kept.exclude:
        wheel["exclude"] = list(kept.exclude)


def _add_addresses(declared: Any, of_setup: Mapping[str, str]) -> None:  # noqa: ANN401 -- tomlkit's table
    """Add the addresses of ``setup()`` to those in a [project] table, as setuptools does."""
    known = {name.lower(): str(address).rstrip("/") for name, address in declared.get("urls", {}).items()}
    for name, address in of_setup.items():
        if name.lower() not in known and str(address).rstrip("/") not in known.values():
            declared.setdefault("urls", tomlkit.table())[name] = address


def for_each_python(targets: Iterable[Target]) -> bool:
    """Return whether a target has to be compiled for each Python."""
    return any(each.kind == "module" and each.python_abi is None for each in targets)


def _merge(into: Any, new: Mapping[str, Any]) -> None:  # noqa: ANN401 -- tomlkit's tables
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _hatch(
    dependencies: Sequence[str],
    targets: Sequence[Target],
    metadata: Mapping[str, Any],
    *,
    package: str,
    sources: str,
    root: Path,
    packed: Sequence[tuple[str, str]] | None,
) -> dict[str, Any]:
    folder = package_folder(metadata, package, root)
    folders = _packages(metadata, folder, package, root)
    inside = [name for each in targets for name in (*each.sources, *each.cuda_sources) if name.startswith(f"{folder}/")]
    wheel: dict[str, Any] = {"packages": folders}
    inner = package.replace(".", "/")
    if f"/{folder}".endswith(f"/{inner}"):  # hatch gives a package the name of its folder
        folders[0] = folder.removesuffix(inner) + inner.partition("/")[0]
    else:
        wheel = {"only-include": folders, "sources": {folder: inner, **_bases(folders[1:])}}
    scripts = [str(each) for each in metadata.get("scripts") or []]
    if scripts:
        wheel["shared-scripts"] = {each: each.rpartition("/")[2] for each in scripts}
    if data := _data_files(metadata):
        wheel["shared-data"] = data
    if inside and packed is None:  # sources in the package have no use in the wheel
        wheel["exclude"] = sorted({f"*{name[name.rindex('.') :]}" for name in inside})
    wheel["hooks"] = {"torch-ext": {"source": sources, "package": package}}
    needed = ["pybind11"] if any("pybind11::headers" in each.flags.libraries for each in targets) else []
    environment = {"skip-install": True, "dependencies": ["torch=={matrix:torch}.*", "numpy", *needed, "pytest"]}
    about: dict[str, Any] = {"hooks": {"torch-ext": {"dependencies": list(dependencies)}}}
    extras = [each for listed in (metadata.get("extras_require") or {}).values() for each in listed]
    if any("@" in str(each) for each in (*dependencies, *extras)):
        about = {"allow-direct-references": True, **about}  # setuptools takes addresses without a setting
    return {
        "metadata": about,
        "build": {"targets": {"wheel": wheel}},
        "envs": {"matrix": environment},
    }


def _test(name: str, root: Path, *, requires: bool) -> list[str]:
    """Return what `hatch run matrix:test` does: the wheel in `dist`, what it ``requires``, and the project's tests.

    The folder of the sources comes last on the path: the installed package is tested, which has the variants.
    """
    folder = next((f"{{root}}/{each} " for each in ("tests", "test") if (root / each).is_dir()), "")
    install = "python -m pip install --quiet"
    wheel = f"{install} --no-index --no-deps --force-reinstall --only-binary :all: --find-links {{root}}/dist {name}"
    return [
        wheel,
        *([f"{install} {name}"] if requires else []),
        f"python -P -m pytest --import-mode=append {folder}{{args}}",
    ]


def _packages(metadata: Mapping[str, Any], folder: str, package: str, root: Path) -> list[str]:
    """Return the folders of all packages that setuptools would install, and the modules beside them."""
    tops = {str(each).split(".")[0] for each in metadata.get("packages") or []} - {package.partition(".")[0]}
    others = [package_folder(metadata, each, root) for each in sorted(tops)]
    modules = [f"{str(each).replace('.', '/')}.py" for each in metadata.get("py_modules") or []]
    return [folder, *(each for each in [*others, *modules] if (root / each).exists())]


def _data_files(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return where the files go that are installed outside of packages, by their own place."""
    given = metadata.get("data_files") or []
    folders = {".": [each for each in given if isinstance(each, str)]}  # a file by itself goes where all folders are
    pairs = [*folders.items(), *(each[:2] for each in given if isinstance(each, list) and len(each) > 1)]
    found = [(str(folder), str(name)) for folder, names in pairs if isinstance(names, list) for name in names]
    return {name: posixpath.normpath(f"{folder}/{name.rpartition('/')[2]}") for folder, name in found}


def _bases(folders: Iterable[str]) -> dict[str, str]:
    """Return the folders of packages that a wheel does not have, as ``src``."""
    return {base: "" for each in folders if (base := each.rpartition("/")[0])}


def package_folder(metadata: Mapping[str, Any], package: str, root: Path) -> str:
    """Return the place of an import package, POSIX, relative to the project."""
    folders = metadata.get("package_dir") or {}
    if package in folders:
        return str(folders[package])
    base = str(folders.get("", "")).strip("./")
    path = package.replace(".", "/")
    if not base and not (root / path).is_dir() and (root / "src" / path).is_dir():
        base = "src"
    return f"{base}/{path}" if base else path


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


def packing(
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
        notes=(*_notes(root, forced), *(Note(line=0, text=NEVER.format(installed)) for installed in never)),
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
            yield Note(line=0, text=f"setuptools packs {many} as `{target}`: {does}")
            continue
        for source, installed in pairs:
            place = f"{source}/" if (root / source).is_dir() else source
            yield Note(line=0, text=f"setuptools packs `{place}` as `{installed}`: {does}")
