"""What ``setup()`` was given -> the [project] table, and where the version comes from."""

from __future__ import annotations

import configparser
import re
from typing import TYPE_CHECKING, Any

import tomlkit
from packaging.utils import canonicalize_name

from hatch_torch_ext.wheel import parsed_requirement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LICENSES = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "AUTHORS*")
"""The files that setuptools takes for those of the license."""
GROUPS = {"console_scripts": "scripts", "gui_scripts": "gui-scripts"}
"""Groups of entry points that have their own key in [project]."""


def table(metadata: Mapping[str, Any], root: Path) -> Any:  # noqa: ANN401 -- tomlkit's table
    """Return the table, made of what ``setup()`` was given."""
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
        optional.setdefault(canonicalize_name(name), []).extend(map(requirement, requirements))
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
    return bool(given or version(document, metadata, root))


def version(document: Mapping[str, Any], metadata: Mapping[str, Any], root: Path) -> dict[str, str]:
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


def version_file(document: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """Return the file that setuptools-scm writes the version to."""
    given = metadata.get("use_scm_version")
    tables = [document.get("tool", {}).get("setuptools_scm", {}), given if isinstance(given, dict) else {}]
    named = [each[key] for each in tables for key in ("version_file", "write_to") if each.get(key)]
    return str(named[0]) if named else None


def requirement(text: str) -> str:
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
