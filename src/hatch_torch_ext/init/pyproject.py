"""The text of pyproject.toml: an existing one is kept, and what hatch-torch-ext needs is added.

Of a ``setup.py`` without one, [project] is made of what ``setup()`` was given, and the version comes from where it is.
"""

from __future__ import annotations

import configparser
import itertools
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tomlkit
from packaging.utils import canonicalize_name

from hatch_torch_ext.init import packing, served
from hatch_torch_ext.wheel import parsed_requirement

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
    version = version_table(document, metadata, root)
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
        if options := scm_options(document, metadata)[0]:
            about["version"] = {**version, "raw-options": options}
        if file := _file_of_scm(document, metadata):
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
    own = [_requirement(each) for each in metadata.get("install_requires") or []]
    if "project" not in document:
        document["project"] = project_table(metadata, root)
    declared = document["project"]
    if "dependencies" in declared:
        own = [str(each) for each in declared.pop("dependencies")]
    dynamic, found = {*map(str, declared.get("dynamic", []))}, project_table(metadata, root)
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


LICENSES = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "AUTHORS*")
"""The files that setuptools takes for those of the license."""
GROUPS = {"console_scripts": "scripts", "gui_scripts": "gui-scripts"}
"""Groups of entry points that have their own key in [project]."""


def project_table(metadata: Mapping[str, Any], root: Path) -> Any:  # noqa: ANN401 -- tomlkit's table
    """Return the [project] table, made of what ``setup()`` was given."""
    project = tomlkit.table()
    project["name"] = str(metadata.get("name") or root.name)
    project["version"] = str(metadata.get("version") or "0.1.0")
    if metadata.get("description"):
        project["description"] = " ".join(str(metadata["description"]).split())
    readme = next((name for name in ("README.md", "README.rst", "README.txt") if (root / name).is_file()), None)
    if readme:
        project["readme"] = readme
    if metadata.get("python_requires"):
        project["requires-python"] = str(metadata["python_requires"])
    if metadata.get("license"):
        project["license"] = {"text": str(metadata["license"])}
    licenses = {path.name for pattern in LICENSES for path in root.glob(pattern) if path.is_file()}
    _add(project, "license-files", sorted(licenses))
    for kind in ("author", "maintainer"):
        _add(project, f"{kind}s", _people(metadata.get(kind), metadata.get(f"{kind}_email")))
    keywords = metadata.get("keywords") or []
    words = keywords if isinstance(keywords, list) else str(keywords).split(",")
    _add(project, "keywords", [str(each).strip() for each in words])
    _add(project, "classifiers", [str(each) for each in metadata.get("classifiers") or []])
    own = {"Homepage": metadata.get("url"), "Download": metadata.get("download_url")}
    urls = {**own, **(metadata.get("project_urls") or {})}
    _add(project, "urls", {name: str(url) for name, url in urls.items() if url})
    optional: dict[str, list[str]] = {}
    for name, requirements in (metadata.get("extras_require") or {}).items():
        optional.setdefault(canonicalize_name(name), []).extend(map(_requirement, requirements))
    _add(project, "optional-dependencies", optional)
    for group, points in (metadata.get("entry_points") or {}).items():
        listed = dict([part.strip() for part in each.split("=", 1)] for each in points)
        if key := GROUPS.get(group):
            _add(project, key, listed)
        elif listed:
            project.setdefault("entry-points", {})[group] = listed
    return project


def versioned(existing: str | None, metadata: Mapping[str, Any], root: Path) -> bool:
    """Return whether the project states its version, or where it is read from."""
    document = tomlkit.parse(existing or "")
    given = metadata.get("version") or "version" in document.get("project", {})
    return bool(given or version_table(document, metadata, root))


def version_table(document: Mapping[str, Any], metadata: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Return hatch's table for a version that is read out of tags or a file; empty where pyproject.toml states it."""
    if of_hatch := document.get("tool", {}).get("hatch", {}).get("version"):
        return dict(of_hatch)
    if "version" in document.get("project", {}):
        return {}
    dynamic = document.get("tool", {}).get("setuptools", {}).get("dynamic", {})
    declared = _of_setup_cfg(root) or dynamic.get("version", {})
    if metadata.get("version") and not declared:
        return _in_a_file(metadata, root) if computed(metadata, root) else {}
    return _as_setuptools_finds_it(declared, root) or _out_of_tags(document, metadata)


def _as_setuptools_finds_it(declared: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Return hatch's table for ``file`` or ``attr`` of setuptools; empty where neither says it."""
    if "file" in declared:
        listed = [declared["file"]] if isinstance(declared["file"], str) else list(declared["file"])
        return {"path": str(listed[0]), "pattern": r"(?P<version>\S+)"} if listed else {}
    module, _, variable = str(declared.get("attr", "")).rpartition(".")
    parts = module.replace(".", "/")
    places = [f"{base}{parts}{end}" for base in ("", "src/") for end in (".py", "/__init__.py")] if parts else []
    found = next((each for each in places if (root / each).is_file()), None)
    return {"path": found, "pattern": rf"^{variable}[^=]*= *['\"](?P<version>[^'\"]+)"} if found else {}


def _out_of_tags(document: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return hatch's table where setuptools-scm makes the version, else an empty one."""
    required = " ".join(map(str, document.get("build-system", {}).get("requires", [])))
    has_scm = metadata.get("use_scm_version") or "setuptools_scm" in document.get("tool", {})
    return {"source": "vcs"} if has_scm or re.search(r"setuptools[-_]scm", required) else {}


FILES = ("__init__.py", "version.py", "_version.py", "__version__.py", "__about__.py", "VERSION", "version.txt")
"""Files in which projects keep their version, below the package or the project."""
OF_HATCH = re.compile(r"""(?im)^(__version__|VERSION)(?: ?: ?str)? *= *(['"])v?(?P<version>.+?)\2""")
"""How hatch finds a version in a Python file."""


def _in_a_file(metadata: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Return hatch's table for the file that has the version which setup.py works out; empty where none has it."""
    packages = [str(each) for each in metadata.get("packages") or [] if "." not in str(each)]
    given = metadata.get("package_dir") or {}
    folders = [root / str(given.get(each) or f"{given.get('', '.')}/{each}") for each in packages]
    for path in (folder / name for folder in (*folders, root) for name in FILES):
        if not path.is_file():
            continue
        text = path.read_text("utf-8", "replace")
        place = path.resolve().relative_to(root.resolve()).as_posix()
        match = OF_HATCH.search(text)
        if match is not None and match["version"] == metadata["version"]:
            return {"path": place}
        if path.suffix != ".py" and text.strip() == metadata["version"]:
            return {"path": place, "pattern": r"(?P<version>\S+)"}
    return {}


def _of_setup_cfg(root: Path) -> dict[str, str]:
    """Return where setup.cfg lets setuptools read the version: ``{"file": …}``, ``{"attr": …}``, or nothing."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(root / "setup.cfg", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return {}
    kind, _, value = parser.get("metadata", "version", fallback="").partition(":")
    return {kind.strip(): value.partition(",")[0].strip()} if kind.strip() in {"file", "attr"} and value.strip() else {}


def computed(metadata: Mapping[str, Any], root: Path) -> str | None:
    """Return the version that ``setup()`` was given if setup.py computed it: neither setup.py nor setup.cfg has it."""
    given = str(metadata.get("version") or "")
    read = [path.read_text("utf-8", "replace") for name in ("setup.py", "setup.cfg") if (path := root / name).is_file()]
    return given if given and not any(given in text for text in read) else None


NOT_FOR_HATCH = frozenset({"relative_to", "version_file", "version_file_template", "write_to", "write_to_template"})
"""Options of setuptools-scm that hatch-vcs answers itself, or has a build hook for."""


def scm_options(document: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the options of setuptools-scm, hatch-vcs's ``raw-options``; and names of those that are code."""
    given = metadata.get("use_scm_version")
    tables = {**document.get("tool", {}).get("setuptools_scm", {}), **(given if isinstance(given, dict) else {})}
    options = {key: tables[key] for key in sorted({*tables} - NOT_FOR_HATCH) if tables[key] is not None}
    code = [key for key, value in options.items() if isinstance(value, str) and value.startswith("<")]
    return {key: value for key, value in options.items() if key not in code}, code


def _file_of_scm(document: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """Return the file that setuptools-scm writes the version to."""
    given = metadata.get("use_scm_version")
    tables = [document.get("tool", {}).get("setuptools_scm", {}), given if isinstance(given, dict) else {}]
    named = [each[key] for each in tables for key in ("version_file", "write_to") if each.get(key)]
    return str(named[0]) if named else None


def _requirement(text: str) -> str:
    """Return a requirement in its normal form; other text is returned unchanged."""
    return str(parsed_requirement(text) or text)


def _add(table: Any, key: str, value: object) -> None:  # noqa: ANN401 -- tomlkit's table
    if value:
        table[key] = value


def _people(author: object, email: object) -> list[dict[str, str]]:
    texts = [", ".join(map(str, each)) if isinstance(each, list) else str(each or "") for each in (author, email)]
    names = [each.strip() for each in texts[0].split(",") if each.strip()]
    mails = [each.strip() for each in texts[1].split(",") if "@" in each]
    if len(mails) == len(names):
        return [{"name": name, "email": mail} for name, mail in zip(names, mails, strict=True)]
    return [*({"name": name} for name in names), *({"email": mail} for mail in mails)]
