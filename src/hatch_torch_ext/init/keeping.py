"""A project with a CMake project of its own, which scikit-build(-core) or a command of setup.py runs: CMake is kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import tomlkit
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.init import targets, texts
from hatch_torch_ext.init.recording import OF_BACKENDS
from hatch_torch_ext.init.texts import CMAKE, Note
from hatch_torch_ext.wheel import parsed_requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.declared import Declared
    from hatch_torch_ext.init.recording import Recording
    from hatch_torch_ext.init.targets import Target

SOURCES = (".c", ".cpp", ".cc", ".cxx", ".cu")
_COMMENT = re.compile(r"#(?!\[).*")
_MODULE = re.compile(
    r"\b(?:pybind11_add_module|nanobind_add_module|python3?_add_library)\s*\(\s*([^\s)]+)"
    r"|\badd_library\s*\(\s*([^\s)]+)\s+MODULE\b",
    re.IGNORECASE,
)
_LIBRARY = re.compile(r"\badd_library\s*\(\s*([^\s)]+)\s+([^\s)]+)", re.IGNORECASE)
_BY_DEFAULT = re.compile(r"\b(?:option|set)\s*\(\s*BUILD_SHARED_LIBS\b[^)]*\b(?:ON|TRUE|YES|1)\b", re.IGNORECASE)
_OTHER_KINDS = frozenset({"STATIC", "OBJECT", "INTERFACE", "MODULE", "IMPORTED", "ALIAS", "UNKNOWN", "GLOBAL"})
_BLOCK = re.compile(r"^\s*(if|endif)\s*\(", re.IGNORECASE | re.MULTILINE)
_INSTALLS = re.compile(r"\binstall\s*\(\s*(?:TARGETS|FILES|DIRECTORY)\b", re.IGNORECASE)
_PROJECT = re.compile(r"\bproject\s*\(\s*([^\s)]+)([^)]*)\)", re.IGNORECASE)
_SET = re.compile(r"\bset\s*\(\s*(\w+)\s+\"?([^\s\")]+)\"?\s*\)", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{(\w+)\}")
_OF_SKBUILD = re.compile(r"\b(?:find_package\s*\(\s*PythonExtensions|python_extension_module\s*\()", re.IGNORECASE)
_GIVEN = re.compile(
    r"-G|-D(?:CMAKE_(?:BUILD_TYPE|INSTALL_PREFIX|MAKE_PROGRAM|PREFIX_PATH)|Python\d?_\w+|PYTHON_\w+|Torch_DIR)(?::\w+)?="
)
"""Arguments of CMake that the build hook gives by itself."""
_CMAKES = ("999", *(f"3.{minor}.{patch}" for minor in range(26, 32) for patch in range(12)))
"""Versions of CMake that builds here take; the first stands for all from 4 on."""
_BROUGHT = OF_BACKENDS - {"cmake"} | {"numpy"}
"""What no entry's environment needs to name; of CMake see ``_needs``."""
_PASSED_OVER = frozenset({
    "build", "build-dir", "cmake.minimum-version", "cmake.verbose", "logging", "messages", "minimum-version", "ninja",
    "sdist.cmake", "strict-config",
})  # fmt: skip
"""Keys of [tool.scikit-build] that have no effect on the wheel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What ``init`` writes beside a CMake project that stays.

    ``package`` is the import package, and ``metadata`` what ``setup()`` was given, or would have been.
    ``options`` are those of the hook; ``targets`` are the Python modules, as far as imports and the matrix depend on
    them. ``needs`` are requirements of the build. ``files`` are (name, new text) of CMake's files; ``existing`` is the
    pyproject.toml that the new one is made of.
    """

    package: str
    metadata: Mapping[str, Any]
    options: Mapping[str, Any]
    targets: tuple[Target, ...]
    backends: tuple[str, ...]
    needs: tuple[str, ...]
    notes: tuple[Note, ...]
    files: tuple[tuple[str, str], ...]
    existing: str | None
    exclude: tuple[str, ...] = ()


def is_project(root: Path) -> bool:
    """Return whether scikit-build-core builds the project in ``root``."""
    backend = texts.document(root).get("build-system", {}).get("build-backend", "")
    return str(backend).startswith("scikit_build_core")


def of_setup(found: Declared, *, cpu_only: bool = False) -> Kept | None:
    """Return what is kept of a project whose setup.py has CMake run; None where there is no CMake project.

    ``cpu_only``: no entry will have CUDA, so that what CMake is given without CUDA is given always.
    """
    root, recordings, own = found.root, found.recordings, found.recordings[0].cmake
    known = own or next((each.commanded for each in recordings if each.commanded is not None), None)
    source = str(known["source"]) if known else targets.own_cmake(root)
    if source is None or not (root / source / CMAKE).is_file():
        return None
    document = texts.document(root)
    kept = _kept(
        root,
        source,
        document,
        package=found.package,
        metadata=found.metadata,
        requires=texts.build_requirements(document, without=_BROUGHT),
        extensions=found.names,
    )
    if found.cpu is not None and (cpu_only or not kept.backends):
        recordings = [found.cpu]
    given = own["args"] if own else _commanded(recordings)
    notes, options = [], dict(kept.options)
    if given is None:
        why = "variables belong in the hook's `cmake.define`"
        notes.append(Note(f"what its command gives to CMake is not carried over: {why}"))
    elif arguments := [str(each) for each in given if not _GIVEN.match(str(each))]:
        options["cmake"] = {"args": arguments, **kept.options.get("cmake", {})}
    notes += _only_with_cuda(recordings)
    return replace(kept, options=options, notes=(*notes, *kept.notes))


def _commanded(recordings: Sequence[Recording]) -> list[Any] | None:
    """Return what commands of the project give to CMake on every machine; None where one was recorded without any."""
    known = [each.commanded["args"] for each in recordings if each.commanded is not None]
    if len(known) < len(recordings):
        return None
    return [given for given in known[0] if all(given in each for each in known)]


def _only_with_cuda(recordings: Sequence[Recording]) -> Iterator[Note]:
    """Note the arguments of CMake that depend on whether the machine has CUDA."""
    given = [[str(each) for each in one.commanded["args"]] for one in recordings if one.commanded is not None]
    pairs = ((given[0], given[-1]), (given[-1], given[0])) if given else ()  # with CUDA, and without
    own = [" ".join(each for each in one if each not in other and not _GIVEN.match(each)) for one, other in pairs]
    if any(own):
        with_cuda, without = (f"`{each}`" if each else "nothing" for each in own)
        text = (
            f"its command gives CMake {with_cuda} with CUDA and {without} without it: write that into CMakeLists.txt, "
            'as `if(TORCH_EXT_CUDA AND NOT TORCH_EXT_CUDA STREQUAL "cpu")`'
        )
        yield Note(text)


def of_pyproject(root: Path) -> Kept:
    """Return what is kept of a project of scikit-build-core.

    Raises ``ConfigurationError`` where it has no package or no CMakeLists.txt.
    """
    document = texts.document(root)
    settings = document.get("tool", {}).get("scikit-build", tomlkit.table()).unwrap()
    cmake, wheel, sdist = (dict(settings.pop(name, None) or {}) for name in ("cmake", "wheel", "sdist"))
    source = str(cmake.pop("source-dir", ".")).strip("/") or "."
    if not (root / source / CMAKE).is_file():
        raise ConfigurationError(f"There is no {root / source / CMAKE}, which scikit-build-core would build.")
    name = str(document.get("project", {}).get("name") or root.name)
    folders = _packages(root, name, wheel.pop("packages", None))
    package = next(iter(folders))
    options = {key: value for key in ("args", "define", "build-type") if (value := cmake.pop(key, None))}
    requires = texts.build_requirements(document, without=_BROUGHT)
    if (of_cmake := parsed_requirement(f"cmake {cmake.pop('version', '')}")) is not None:
        requires.append(str(of_cmake))
    exclude = tuple(wheel.pop("exclude", ()))
    hatch = document.setdefault("tool", tomlkit.table()).setdefault("hatch", tomlkit.table(is_super_table=True))
    for key in ("include", "exclude"):
        if value := sdist.pop(key, None):
            target = hatch.setdefault("build", tomlkit.table()).setdefault("targets", tomlkit.table())
            target.setdefault("sdist", tomlkit.table())[key] = value
    if licenses := wheel.pop("license-files", None):
        document["project"].setdefault("license-files", licenses)
    if found := _version(settings.pop("metadata", {}).get("version", {})):
        hatch["version"] = found
    left = [
        f"{table}{key}" for table, keys in (("cmake.", cmake), ("wheel.", wheel), ("sdist.", sdist)) for key in keys
    ]
    unknown = [key for key in (*left, *settings) if key not in _PASSED_OVER]
    notes = [Note(f"`{key}` of [tool.scikit-build] is not carried over") for key in unknown]
    document["tool"].pop("scikit-build", None)
    metadata = {"name": name, "packages": list(folders), "package_dir": folders}
    kept = _kept(root, source, document, package=package, metadata=metadata, cmake=options, requires=requires)
    return replace(kept, exclude=exclude, notes=(*notes, *kept.notes))


def _packages(root: Path, name: str, given: object) -> dict[str, str]:
    """Return the packages, import name -> folder, as scikit-build-core finds them. Raises ``ConfigurationError``."""
    named = re.sub(r"[-.]+", "_", name)
    listed = [*given.items()] if isinstance(given, dict) else [(str(each).rstrip("/"),) * 2 for each in given or ()]  # type: ignore[attr-defined]
    if given is None:
        places = (f"{base}{named}" for base in ("src/", "python/", ""))
        listed = [(each, each) for each in places if (root / each / "__init__.py").is_file()][:1]
    found = {
        str(key).rpartition("/")[2] if key == folder else str(key).replace("/", "."): str(folder)
        for key, folder in listed
        if (root / str(folder)).is_dir()
    }
    if not found:
        raise ConfigurationError(
            f"{root / 'pyproject.toml'} names no package: what is built is part of one. "
            f"Make a folder `{named}` with an `__init__.py`, and name it in `wheel.packages`."
        )
    return found


def _version(declared: Mapping[str, Any]) -> dict[str, str]:
    """Return hatch's table for a version that scikit-build-core finds by a pattern, else nothing."""
    if not str(declared.get("provider", "")).endswith(".regex"):
        return {}
    pattern = str(declared.get("regex") or "").replace("(?P<value>", "(?P<version>")
    return {"path": str(declared.get("input", "")), **({"pattern": pattern} if pattern else {})}


def _kept(
    root: Path,
    source: str,
    document: Mapping[str, Any],
    *,
    package: str,
    metadata: Mapping[str, Any],
    requires: Sequence[str],
    cmake: Mapping[str, Any] = MappingProxyType({}),
    extensions: Sequence[str] = (),
) -> Kept:
    """Return what is kept; ``cmake`` are the options of that table, ``extensions`` dotted names that are known."""
    files = dict(_files(root / source))
    whole = "\n".join(files.values())
    made = _modules(files, _variables(whole, document))
    known = {each.rpartition(".")[2] for each in extensions}
    names = [*extensions, *(each for each in made if each not in known and each != package)]
    code = [path for path in _below(root / source) if path.suffix in SOURCES]
    is_module = bool(made) or any(targets.MODULE.search(targets.source_text(root, each)) for each in code)
    if is_module and not names:
        names = [f"{package}._C"]  # whatever its name: it is built for each Python
    options: dict[str, Any] = {"source": source, **({"cmake": dict(cmake)} if cmake else {})}
    if found := _of_skbuild(whole, document, cmake.get("define", {})):
        options.setdefault("cmake", {})["define"] = {**cmake.get("define", {}), **found}
    changed: list[tuple[str, str]] = []
    notes: list[Note] = []
    if not _INSTALLS.search(whole):
        dotted_names = {each.rpartition(".")[2]: each for each in extensions} or {each: each for each in made}
        for place, added in _installing(files, made, dotted_names, package, _shared(files)).items():
            before = texts.of(root / source / place) or ""
            changed.append((_name(source, place), f"{before.rstrip()}\n\n" + "".join(f"{line}\n" for line in added)))
        if not changed:
            text = f"{_name(source, CMAKE)} installs nothing: add `install(TARGETS … LIBRARY DESTINATION .)`"
            notes.append(Note(text))
    notes += _about(source, files)
    return Kept(
        package=package,
        metadata=metadata,
        options=options,
        targets=tuple(
            targets.Target(name=each.rpartition(".")[2], dotted=each, kind="module") for each in names if is_module
        ),
        backends=_backends(whole, code, notes, _name(source, CMAKE)),
        needs=tuple(_needs(requires, notes)),
        notes=tuple(notes),
        files=tuple(changed),
        existing=tomlkit.dumps(document) if document else None,
    )


def _needs(requires: Iterable[str], notes: list[Note]) -> Iterator[str]:
    """Yield what is required in each entry: all but CMake, of which only a ceiling is kept, as `cmake<4`."""
    for each in requires:
        requirement = Requirement(each)
        if canonicalize_name(requirement.name) != "cmake":
            yield each
        elif not any(map(requirement.specifier.contains, _CMAKES)):
            notes.append(Note(f"the build requires `{each}`, and builds here need CMake 3.26 or newer: it is left out"))
        elif not requirement.specifier.contains("999"):
            yield each


def _modules(files: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the Python modules: name -> the file of CMake that has it."""
    made = dict[str, str]()
    for place, text in files.items():
        for match in _MODULE.finditer(text):
            name = _REFERENCE.sub(lambda found: variables.get(found[1], found[0]), match[1] or match[2])
            if re.fullmatch(r"\w+", name):
                made.setdefault(name, place)
    return made


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that are the project's own."""
    for path in sorted(folder.rglob("*")):
        parts = {part.lower() for part in path.relative_to(folder).parts[:-1]}
        if not parts & targets.OF_OTHERS and path.is_file():
            yield path


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each file of CMake in a folder, and its text without comments."""
    for path in _below(folder):
        if path.name == CMAKE or path.suffix == ".cmake":
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            yield path.relative_to(folder).as_posix(), "\n".join(_COMMENT.sub("", line) for line in lines)


def _variables(text: str, document: Mapping[str, Any]) -> dict[str, str]:
    found = {match[1]: match[2] for match in _SET.finditer(text)}
    found["SKBUILD_PROJECT_NAME"] = str(document.get("project", {}).get("name", ""))
    if (match := _PROJECT.search(text)) is not None:
        found["PROJECT_NAME"] = _REFERENCE.sub(lambda each: found.get(each[1], each[0]), match[1])
    return found


def _of_skbuild(text: str, document: Mapping[str, Any], defined: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of scikit-build(-core) that the project reads."""
    declared = document.get("project", {})
    values = {
        "SKBUILD": "2",
        "SKBUILD_PROJECT_NAME": str(declared.get("name", "")),
        "SKBUILD_PROJECT_VERSION": str(declared.get("version", "0")),
    }
    read = [name for name in values if re.search(rf"\b{name}\b", text) and name not in defined]
    return {name: values[name] for name in read if values[name]}


def _shared(files: Mapping[str, str]) -> dict[str, tuple[str, bool]]:
    """Return the shared libraries: name -> the file of CMake that has it, and whether that is inside of an ``if``."""
    by_default = any(_BY_DEFAULT.search(text) for text in files.values())
    found = dict[str, tuple[str, bool]]()
    for place, text in files.items():
        for match in _LIBRARY.finditer(text):
            kind = match[2].upper()
            if kind == "SHARED" or (by_default and kind not in _OTHER_KINDS):
                blocks = [each[1].lower() for each in _BLOCK.finditer(text, 0, match.start())]
                found.setdefault(match[1], (place, blocks.count("if") > blocks.count("endif")))
    return found


def _installing(
    files: Mapping[str, str],
    made: Mapping[str, str],
    dotted_names: Mapping[str, str],
    package: str,
    shared: Mapping[str, tuple[str, bool]],
) -> dict[str, list[str]]:
    """Return files of CMake -> the commands that install what they define; ``dotted_names``: name -> dotted name."""
    lines: dict[str, list[str]] = {}
    for name, (file, inside) in shared.items():
        if name not in dotted_names and name not in made:
            command = f"install(TARGETS {name} LIBRARY DESTINATION .)"
            added = [f"if(TARGET {name})", f"  {command}", "endif()"] if inside else [command]
            lines.setdefault(file, []).extend(added)
    for name, dotted in dotted_names.items():
        pattern = re.compile(rf"\badd_library\s*\(\s*{re.escape(name)}\s", re.IGNORECASE)
        place = made.get(name) or next((each for each, text in files.items() if pattern.search(text)), None)
        below = dotted.rpartition(".")[0].removeprefix(package).strip(".").replace(".", "/")
        if place:
            lines.setdefault(place, []).append(f"install(TARGETS {name} LIBRARY DESTINATION {below or '.'})")
    return lines


def _name(source: str, place: str) -> str:
    return place if source == "." else f"{source}/{place}"


def _about(source: str, files: Mapping[str, str]) -> Iterator[Note]:
    """Note what in CMake's files works with another backend only."""
    for place, text in files.items():
        if (match := _OF_SKBUILD.search(text)) is not None:
            line = text.count("\n", 0, match.start()) + 1
            remedy = "`Python_add_library(NAME MODULE WITH_SOABI …)` takes the place of `python_extension_module`"
            yield Note(f"{_name(source, place)}:{line}: scikit-build's own modules of CMake are not there: {remedy}")


def _backends(text: str, code: Iterable[Path], notes: list[Note], where: str) -> tuple[str, ...]:
    """Return the backends of the matrix; none where nothing is for CUDA."""
    if (match := _PROJECT.search(text)) is not None and re.search(r"\bCUDA\b", match[2]):
        return ("cuda",)
    if not any(path.suffix == ".cu" for path in code):
        return ()
    when = "CUDA is on in entries of the matrix with `cuda`, where TORCH_EXT_CUDA is set and nvcc is found"
    notes.append(Note(f"{where}: {when}: check what turns it on"))
    return ("cpu", "cuda")
