"""The text of pyproject.toml: an existing one is kept, and what hatch-torch-ext needs is added."""

from __future__ import annotations

import itertools
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tomlkit
from packaging.utils import canonicalize_name

from hatch_torch_ext.init import packing, project, served

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tomlkit import TOMLDocument

    from hatch_torch_ext.init.targets import Target
    from hatch_torch_ext.init.texts import Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What the new pyproject.toml holds.

    ``existing`` is the text of the one that is there: a ``[project]`` table in it is kept, else it is made of
    ``metadata``, which ``setup()`` was given. ``package`` is the import package, ``matrix`` the tables of the matrix.
    """

    root: Path
    existing: str | None
    metadata: Mapping[str, Any]
    package: str
    matrix: Mapping[str, Any]
    targets: Sequence[Target] = ()
    hook: Mapping[str, Any] = field(default_factory=dict)
    """The hook's options besides `source` and `package`; `source` if it is not the project's own folder."""
    requires: Sequence[str] = ()
    """What the build or the tests require besides torch, numpy and pytest."""
    exclude: Sequence[str] = ()
    """Patterns of files that the wheel leaves out."""
    packed: Sequence[tuple[str, str]] | None = None
    """What setuptools packs, as ``Recording.packed``."""
    version_file: tuple[str, str] | None = None
    """A file with the version that a build writes, and its template."""


def render(contents: Contents) -> tuple[str, tuple[Note, ...]]:
    """Return the text, and notes on what is packed."""
    root, metadata = contents.root, contents.metadata
    document = tomlkit.parse(contents.existing or "")
    version = project.version(document, metadata, root)
    from_tags = version.get("source") == "vcs"
    build = tomlkit.table()
    build["requires"] = ["hatchling", "hatch-torch-ext", *(["hatch-vcs"] if from_tags else [])]
    build["build-backend"] = "hatchling.build"
    build["build-backend"].comment('or "hatch_torch_ext.backend", with which `uv lock` does not compile')
    document["build-system"] = build
    declared, own = _declared(document, metadata, root, version)
    dependencies = [each for each in own if canonicalize_name(re.split(r"[^A-Za-z0-9._-]", each)[0]) != "torch"]
    name = str(declared.get("name") or metadata.get("name") or root.name)
    tool = document.setdefault("tool", tomlkit.table(is_super_table=True))
    hatch = tool.setdefault("hatch", tomlkit.table(is_super_table=True))
    about: dict[str, Any] = {"version": version} if version else {}
    about["metadata"] = _metadata(metadata, dependencies)
    about["build"] = {"targets": {"wheel": _wheel(contents)}}
    about["envs"] = {"matrix": _environment(contents, name, requires=bool(dependencies))}
    if from_tags:
        if options := project.scm_options(document, metadata)[0]:
            about["version"] = {**version, "raw-options": options}
        if file := project.version_file(document, metadata):
            about["build"]["hooks"] = {"vcs": {"version-file": file}}
    elif contents.version_file is not None:
        path, template = contents.version_file
        about["build"]["hooks"] = {"version": {"path": path, "template": tomlkit.string(template, multiline=True)}}
    _merge(hatch, about)
    if contents.packed is None:
        return _spaced(document, contents.existing), ()
    inner, folder = contents.package.replace(".", "/"), package_folder(metadata, contents.package, root)
    loads = (f"{inner}/__init__.py", f"{folder}/__init__.py")
    tables = tomlkit.parse(tomlkit.dumps(document)).unwrap()
    found = packing.options(root, tables, contents.packed, own=loads)
    _merge(document["tool"]["hatch"]["build"]["targets"]["wheel"], found.table)
    return _spaced(document, contents.existing), found.notes


_TABLE = re.compile(r"\[\[?[\w.\"' -]+\]\]?")
"""The line that begins a table."""


def _spaced(document: TOMLDocument, before: str | None) -> str:
    """Return the text with an empty line before each table that ``before`` does not have in the same place."""
    text = tomlkit.dumps(document)
    lines, kept = text.splitlines(), {*itertools.pairwise((before or "").splitlines())}
    spaced = lines[:1]
    for last, line in itertools.pairwise(lines):
        if _TABLE.fullmatch(line) and last.strip() and not last.startswith("#") and (last, line) not in kept:
            spaced.append("")
        spaced.append(line)
    found = "".join(f"{line}\n" for line in spaced)
    return found if tomlkit.parse(found).unwrap() == tomlkit.parse(text).unwrap() else text  # not in a text of lines


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


def _add_addresses(declared: Any, of_setup: Mapping[str, str]) -> None:  # noqa: ANN401 -- tomlkit's table
    """Add the addresses of ``setup()`` to those in a [project] table, as setuptools does."""
    known = {name.lower(): str(address).rstrip("/") for name, address in declared.get("urls", {}).items()}
    for name, address in of_setup.items():
        if name.lower() not in known and str(address).rstrip("/") not in known.values():
            declared.setdefault("urls", tomlkit.table())[name] = address


def _merge(into: Any, new: Mapping[str, Any]) -> None:  # noqa: ANN401 -- tomlkit's tables
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _metadata(metadata: Mapping[str, Any], dependencies: Sequence[str]) -> dict[str, Any]:
    """Return the table of the metadata hook."""
    extras = [each for listed in (metadata.get("extras_require") or {}).values() for each in listed]
    direct = any("@" in str(each) for each in (*dependencies, *extras))  # setuptools takes addresses without a setting
    hook = {"hooks": {"torch-ext": {"dependencies": list(dependencies)}}}
    return {**({"allow-direct-references": True} if direct else {}), **hook}


def _wheel(contents: Contents) -> dict[str, Any]:
    """Return the table of the wheel, with that of the build hook."""
    root, metadata, package = contents.root, contents.metadata, contents.package
    folder = package_folder(metadata, package, root)
    folders = _packages(metadata, folder, package, root)
    wheel: dict[str, Any] = {"packages": folders}
    inner = package.replace(".", "/")
    if f"/{folder}".endswith(f"/{inner}"):  # hatch gives a package the name of its folder
        folders[0] = folder.removesuffix(inner) + inner.partition("/")[0]
    else:
        bases = {base: "" for each in folders[1:] if (base := each.rpartition("/")[0])}  # that a wheel lacks, as `src`
        wheel = {"only-include": folders, "sources": {folder: inner, **bases}}
    if scripts := [str(each) for each in metadata.get("scripts") or []]:
        wheel["shared-scripts"] = {each: each.rpartition("/")[2] for each in scripts}
    if data := _data_files(metadata):
        wheel["shared-data"] = data
    exclude = list(contents.exclude)
    if contents.packed is None:  # sources in the package have no use in the wheel
        sources = [name for each in contents.targets for name in each.every_source]
        exclude += sorted({f"*{name[name.rindex('.') :]}" for name in sources if name.startswith(f"{folder}/")})
    if exclude:
        wheel["exclude"] = exclude
    wheel["hooks"] = {"torch-ext": {"source": ".", "package": package, **contents.hook}}
    return wheel


def _environment(contents: Contents, name: str, *, requires: bool) -> dict[str, Any]:
    """Return the environment with the matrix; ``requires``: the distribution ``name`` requires more than torch."""
    has_pybind11 = any("pybind11::headers" in each.flags.libraries for each in contents.targets)
    tests = next((each for each in ("tests", "test") if (contents.root / each).is_dir()), "")
    needed = [*(["pybind11"] if has_pybind11 else []), *contents.requires]
    return {
        "skip-install": True,
        "dependencies": ["torch=={matrix:torch}.*", "numpy", *needed, "pytest"],
        "scripts": {"test": served.script_of_tests(name, tests, requires=requires)},
        **contents.matrix,
    }


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


def package_folder(metadata: Mapping[str, Any], package: str, root: Path) -> str:
    """Return the place of an import package, POSIX, relative to the project."""
    folders = metadata.get("package_dir") or {}
    if package in folders:
        return posixpath.normpath(str(folders[package]))
    base = str(folders.get("", "")).strip("./")
    path = package.replace(".", "/")
    if not base and not (root / path).is_dir() and (root / "src" / path).is_dir():
        base = "src"
    return f"{base}/{path}" if base else path
