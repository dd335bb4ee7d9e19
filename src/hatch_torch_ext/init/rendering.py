"""Targets and metadata -> CMakeLists.txt and pyproject.toml: ordinary files, the author's from then on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from hatch_torch_ext.facts import releases

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.targets import Flags, Target

NEWEST = 4
"""Releases of torch that a new matrix has, and Pythons."""
CUDA = ("cu130", "13.0")
"""The CUDA whose compiler is on the default index, and that torch's wheels there are made with."""
FIRST_OF_CUDA = (2, 11)
"""The first release whose wheel there is made with it; 2.9 and 2.10 have builds with it on torch's own index alone."""
GPU = 'TORCH_EXT_CUDA AND NOT TORCH_EXT_CUDA STREQUAL "cpu"'


def cmake(project: str, targets: Sequence[Target], *, cuda_only: bool = False) -> str:
    """Return the text of CMakeLists.txt; ``cuda_only`` where nothing is built without CUDA."""
    with_cuda = not cuda_only and any(
        target.when != "always" or target.needs_cuda or target.cuda != type(target.cuda)() for target in targets
    )
    modules = [target for target in targets if target.kind == "module"]
    languages = "C CXX" if any(name.endswith(".c") for target in targets for name in target.sources) else "CXX"
    if cuda_only:
        languages += " CUDA"
    lines = [
        "# Written by `hatch-torch-ext init` from setup.py, and yours from now on: ordinary CMake.",
        "cmake_minimum_required(VERSION 3.26)",
        f"project({re.sub(r'[^A-Za-z0-9_]', '_', project)} LANGUAGES {languages})",
        "",
    ]
    if with_cuda:
        lines += [
            "# With CUDA: in an entry of the matrix that declares `cuda`, or by hand with -DTORCH_EXT_CUDA=cu130.",
            "set(WITH_CUDA OFF)",
            f"if({GPU})",
            "  set(WITH_CUDA ON)",
            "  enable_language(CUDA)",
            "endif()",
            "",
        ]
    lines.append("find_package(Torch REQUIRED)")
    libraries = {each for target in targets for each in (*target.flags.libraries, *target.cuda.libraries)}
    if modules:
        kinds = {"Development.SABIModule" if each.python_abi else "Development.Module" for each in modules}
        kinds |= {"NumPy"} & {each.removeprefix("Python::") for each in libraries}
        lines.append(f"find_package(Python REQUIRED COMPONENTS Interpreter {' '.join(sorted(kinds))})")
    if "pybind11::headers" in libraries:
        lines += [
            "execute_process(",
            "  COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir",
            "  OUTPUT_VARIABLE pybind11_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE",
            ")",
            "find_package(pybind11 CONFIG REQUIRED)",
        ]
    if any(each.startswith("CUDA::") for each in libraries):
        lines += (
            ["if(WITH_CUDA)", "  find_package(CUDAToolkit REQUIRED)", "endif()"]
            if with_cuda
            else ["find_package(CUDAToolkit REQUIRED)"]
        )
    for target in targets:
        lines += ["", *_target(target)]
    return "\n".join(lines) + "\n"


def _target(target: Target) -> list[str]:
    body = _body(target)
    if target.when == "always":
        return body
    condition = "WITH_CUDA" if target.when == "cuda" else "NOT WITH_CUDA"
    return [f"if({condition})", *(f"  {line}" if line else "" for line in body), "endif()"]


def _body(target: Target) -> list[str]:
    if target.kind == "module":
        abi = f" USE_SABI {target.python_abi}" if target.python_abi else ""
        head = f"Python_add_library({target.name} MODULE{abi} WITH_SOABI"
    else:
        head = f"add_library({target.name} SHARED"
    lines = [head, *(f"  {_file(name)}" for name in target.sources), ")"]
    links = "Torch::Python" if target.uses_torch else ""
    if target.uses_torch and target.kind == "library":
        lines.append(
            "# Torch::Python for headers that include Python's: a library that needs none of it serves every Python."
        )
    if links:
        lines.append(f"target_link_libraries({target.name} PRIVATE {links})")
    if target.name != target.output:
        lines.append(f"set_target_properties({target.name} PROPERTIES OUTPUT_NAME {target.output})")
    if target.device_linked:
        lines.append(f"set_target_properties({target.name} PROPERTIES CUDA_SEPARABLE_COMPILATION ON)")
    if target.kind == "module" and target.uses_torch:
        lines.append(f"target_compile_definitions({target.name} PRIVATE TORCH_EXTENSION_NAME={target.output})")
    lines += _flags(target.name, target.flags)
    extra = [*_sources(target.name, target.cuda_sources), *_flags(target.name, target.cuda)]
    if extra and target.when == "always":
        lines += ["if(WITH_CUDA)", *(f"  {line}" for line in extra)]
        lines += (
            ["else()", *(f"  {line}" for line in _sources(target.name, target.cpu_sources))]
            if target.cpu_sources
            else []
        )
        lines.append("endif()")
    else:
        lines += extra
    lines.append(f"install(TARGETS {target.name} LIBRARY DESTINATION {target.destination})")
    return lines


def _sources(name: str, files: Iterable[str]) -> list[str]:
    listed = [f"  {_file(each)}" for each in files]
    return [f"target_sources({name} PRIVATE", *listed, ")"] if listed else []


def _file(name: str) -> str:
    return f'"{name}"' if re.search(r"[\s;()#]", name) else name


def _flags(name: str, flags: Flags) -> list[str]:
    lines = []
    if flags.include_dirs:
        folders = " ".join(_file(each) for each in flags.include_dirs)
        lines.append(f"target_include_directories({name} PRIVATE {folders})")
    if flags.macros:
        lines.append(f"target_compile_definitions({name} PRIVATE {' '.join(_escaped(each) for each in flags.macros)})")
    options = [f'"$<$<COMPILE_LANGUAGE:CXX>:{_escaped_text(each)}>"' for each in flags.cxx]
    options += [f'"$<$<COMPILE_LANGUAGE:CUDA>:{_escaped_text(each)}>"' for each in flags.nvcc]
    if options:
        lines += [f"target_compile_options({name} PRIVATE", *(f"  {each}" for each in options), ")"]
    if flags.link:
        lines.append(f"target_link_options({name} PRIVATE {' '.join(_escaped(each) for each in flags.link)})")
    if flags.libraries:
        lines.append(f"target_link_libraries({name} PRIVATE {' '.join(_file(each) for each in flags.libraries)})")
    return lines


def _escaped(text: str) -> str:
    return f'"{_escaped_text(text)}"' if re.search(r'[\s;"()#\\$]', text) else text


def _escaped_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")


def pyproject(
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
) -> str:
    """Return the text of pyproject.toml: what is there stays, and what our build needs is added.

    ``sources`` is the folder of CMakeLists.txt; ``torch`` and ``pythons`` are what the matrix holds, the Pythons where
    modules need them, and ``backends`` (``cpu``, ``cuda``) where there is code for CUDA. A ``[project]`` table that is
    there already is kept; else it is made of what ``setup()`` was given.
    """
    document = tomlkit.parse(existing) if existing else tomlkit.document()
    version = _version(document, metadata, root)
    build = tomlkit.table()
    build["requires"] = ["hatchling", "hatch-torch-ext", *(["hatch-vcs"] if version.get("source") == "vcs" else [])]
    build["build-backend"] = "hatchling.build"
    document["build-system"] = build
    own = [_requirement(each) for each in metadata.get("install_requires") or []]
    if "project" not in document:
        document["project"] = _project(metadata, root)
    project = document["project"]
    if isinstance(project, dict) and "dependencies" in project:
        own = [str(each) for each in project.pop("dependencies")]
    if isinstance(project, dict):
        kept = {*map(str, project.get("dynamic", [])), "dependencies"} - {"version"}
        project["dynamic"] = sorted({*kept, *(["version"] if version else [])})
        if version:
            project.pop("version", None)
        elif "version" not in project:
            project["version"] = str(metadata.get("version") or "0.1.0")
    dependencies = [each for each in own if canonicalize_name(re.split(r"[^A-Za-z0-9._-]", each)[0]) != "torch"]
    tool = document.setdefault("tool", tomlkit.table(is_super_table=True))
    hatch = tool.setdefault("hatch", tomlkit.table(is_super_table=True))
    about = _hatch(dependencies, targets, metadata, package=package, sources=sources, root=root)
    with_pythons = any(each.kind == "module" and each.python_abi is None for each in targets)
    about["envs"]["matrix"] |= _matrix(torch, list(pythons) if with_pythons else [], backends)
    if version:
        about = {"version": version, **about}
    if version.get("source") == "vcs" and (written := _version_file(document, metadata)):
        about["build"] = {**about["build"], "hooks": {"vcs": {"version-file": written}}}
    _merge(hatch, about)
    return tomlkit.dumps(document)


def versioned(existing: str | None, metadata: Mapping[str, Any], root: Path) -> bool:
    """Say whether something names the version of the project."""
    document = tomlkit.parse(existing or "")
    given = metadata.get("version") or "version" in document.get("project", {})
    return bool(given or _version(document, metadata, root))


def _version_file(document: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """Return the file that setuptools-scm writes the version to."""
    given = metadata.get("use_scm_version")
    tables = [document.get("tool", {}).get("setuptools_scm", {}), given if isinstance(given, dict) else {}]
    named = [each[key] for each in tables for key in ("version_file", "write_to") if each.get(key)]
    return str(named[0]) if named else None


def _version(document: Mapping[str, Any], metadata: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Return hatch's table for a version that setuptools reads out of tags or a file; empty where it does neither."""
    tool = document.get("tool", {})
    if metadata.get("version") or "version" in document.get("project", {}):
        return {}
    said = tool.get("setuptools", {}).get("dynamic", {}).get("version", {})
    if "file" in said:
        listed = said["file"] if isinstance(said["file"], str) else said["file"][0]
        return {"path": str(listed), "pattern": r"(?P<version>\S+)"}
    if "attr" in said:
        module, _, variable = str(said["attr"]).rpartition(".")
        parts = module.replace(".", "/")
        places = [f"{base}{parts}{end}" for base in ("", "src/") for end in (".py", "/__init__.py")]
        for place in places:
            if (root / place).is_file():
                return {"path": place, "pattern": rf"^{variable}[^=]*= *['\"](?P<version>[^'\"]+)"}
    required = " ".join(map(str, document.get("build-system", {}).get("requires", [])))
    if metadata.get("use_scm_version") or "setuptools_scm" in tool or re.search(r"setuptools[-_]scm", required):
        return {"source": "vcs"}
    return {}


def _matrix(torch: Sequence[str], pythons: list[str], backends: Sequence[str]) -> dict[str, Any]:
    """Return the tables of the matrix; what is built with CUDA has the compiler among its dependencies."""
    axes: dict[str, Any] = {"python": pythons} if pythons else {}
    if not backends:
        return {"matrix": [{"torch": list(torch), **axes}]}
    tables = [{"torch": list(torch), "cuda": ["cpu"], **axes}] if "cpu" in backends else []
    compiled = with_compiler(torch)
    if "cuda" not in backends or not compiled:
        return {"matrix": tables or [{"torch": list(torch), **axes}]}
    tables.append({"torch": compiled, "cuda": [CUDA[0]], **axes})
    compiler = {"value": f"cuda-toolkit[nvcc,cudart,cccl]=={CUDA[1]}.*", "if": [CUDA[0]]}
    return {"matrix": tables, "overrides": {"matrix": {"cuda": {"extra-dependencies": [compiler]}}}}


def with_compiler(torch: Sequence[str]) -> list[str]:
    """Return the releases whose wheel on the default index is made with the CUDA whose compiler is there too."""
    return [each for each in torch if releases.minor_of(each) >= FIRST_OF_CUDA]


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
) -> dict[str, Any]:
    folder = package_folder(metadata, package, root)
    folders = _packages(metadata, folder, package, root)
    inside = [name for each in targets for name in (*each.sources, *each.cuda_sources) if name.startswith(f"{folder}/")]
    wheel: dict[str, Any] = {"packages": folders}
    if folder.rpartition("/")[2] != package:  # hatch gives a package the name of its folder
        wheel = {"only-include": folders, "sources": {folder: package, **_bases(folders[1:])}}
    if inside:  # sources that lie in the package have no use in the wheel
        wheel["exclude"] = sorted({f"*{name[name.rindex('.') :]}" for name in inside})
    wheel["hooks"] = {"torch-ext": {"source": sources, "package": package}}
    needed = ["pybind11"] if any("pybind11::headers" in each.flags.libraries for each in targets) else []
    environment = {"skip-install": True, "dependencies": ["torch=={matrix:torch}.*", "numpy", *needed, "pytest"]}
    about: dict[str, Any] = {"hooks": {"torch-ext": {"dependencies": list(dependencies)}}}
    extras = [each for listed in (metadata.get("extras_require") or {}).values() for each in listed]
    if any("@" in str(each) for each in (*dependencies, *extras)):
        about = {"allow-direct-references": True, **about}  # setuptools takes addresses without being told
    return {
        "metadata": about,
        "build": {"targets": {"wheel": wheel}},
        "envs": {"matrix": environment},
    }


def _packages(metadata: Mapping[str, Any], folder: str, package: str, root: Path) -> list[str]:
    """Return the folders of all packages that setuptools would install, and the modules that lie beside them."""
    tops = {str(each).split(".")[0] for each in metadata.get("packages") or []} - {package}
    others = [package_folder(metadata, each, root) for each in sorted(tops)]
    modules = [f"{str(each).replace('.', '/')}.py" for each in metadata.get("py_modules") or []]
    return [folder, *(each for each in [*others, *modules] if (root / each).exists())]


def _bases(folders: Iterable[str]) -> dict[str, str]:
    """Return where folders of packages lie that a wheel does not have, as ``src``."""
    return {base: "" for each in folders if (base := each.rpartition("/")[0])}


def package_folder(metadata: Mapping[str, Any], package: str, root: Path) -> str:
    """Return where an import package lies, POSIX, relative to the project."""
    folders = metadata.get("package_dir") or {}
    if package in folders:
        return str(folders[package])
    base = str(folders.get("", "")).strip("./")
    path = package.replace(".", "/")
    if not base and not (root / path).is_dir() and (root / "src" / path).is_dir():
        base = "src"
    return f"{base}/{path}" if base else path


def torch_releases(wanted: SpecifierSet | None = None) -> list[str]:
    """Return the newest releases of torch, of those that ``wanted`` has; none where it has none that is known."""
    known = sorted(releases.PUBLISHED_PYTHONS)
    kept = known if wanted is None else sorted({*known} & {*releases.minors_of(releases.admitted_versions(wanted))})
    return [releases.format_minor(minor) for minor in kept[-NEWEST:]]


def torch_wanted(requirements: Iterable[str]) -> SpecifierSet | None:
    """Return what the requirements say about torch; None where they say nothing."""
    for each in requirements:
        try:
            requirement = Requirement(each)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) == "torch" and requirement.specifier:
            return requirement.specifier
    return None


def pythons(metadata: Mapping[str, Any], torch: Iterable[str]) -> list[str]:
    """Return the Pythons that the project names, in its classifiers or by a range, of those that every torch has."""
    chosen = [releases.published_pythons(each, later=False) for each in torch]
    newest = max(high for _, high in releases.PUBLISHED_PYTHONS.values())
    first, last = max(low for low, _ in chosen) - 300, min(newest, *(high for _, high in chosen)) - 300
    try:
        asked = SpecifierSet(str(metadata.get("python_requires") or ""))
    except InvalidSpecifier:
        asked = SpecifierSet()
    served = [f"3.{minor}" for minor in range(first, last + 1)]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(map(str, metadata.get("classifiers") or [])))
    inside = [each for each in served if asked.contains(f"{each}.99")]
    return [each for each in inside if each in named] or inside or served


def _requirement(text: str) -> str:
    try:
        return str(Requirement(text))
    except InvalidRequirement:
        return text


def _project(metadata: Mapping[str, Any], root: Path) -> Any:  # noqa: ANN401 -- tomlkit's table
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
    _add(project, "license-files", sorted(path.name for path in root.glob("LICEN[CS]E*") if path.is_file()))
    _add(project, "authors", _people(metadata.get("author"), metadata.get("author_email")))
    keywords = metadata.get("keywords") or []
    _add(
        project, "keywords", keywords if isinstance(keywords, list) else [each.strip() for each in keywords.split(",")]
    )
    _add(project, "classifiers", [str(each) for each in metadata.get("classifiers") or []])
    urls = {"Homepage": metadata.get("url"), **(metadata.get("project_urls") or {})}
    _add(project, "urls", {name: str(url) for name, url in urls.items() if url})
    extras = (metadata.get("extras_require") or {}).items()
    optional = {canonicalize_name(name): [_requirement(each) for each in requirements] for name, requirements in extras}
    _add(project, "optional-dependencies", optional)
    points = metadata.get("entry_points")
    scripts = points.get("console_scripts") or [] if isinstance(points, dict) else []
    _add(project, "scripts", dict([part.strip() for part in each.split("=", 1)] for each in scripts))
    return project


def _add(table: Any, key: str, value: object) -> None:  # noqa: ANN401 -- tomlkit's table
    if value:
        table[key] = value


def _people(author: object, email: object) -> list[dict[str, str]]:
    names = [each.strip() for each in str(author or "").split(",") if each.strip()]
    mails = [each.strip() for each in str(email or "").split(",") if "@" in each]
    if len(mails) == len(names):
        return [{"name": name, "email": mail} for name, mail in zip(names, mails, strict=True)]
    return [*({"name": name} for name in names), *({"email": mail} for mail in mails)]
