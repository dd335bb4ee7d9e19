"""A kernel as ``build_toml`` read it -> a project of ours: CMakeLists.txt, pyproject.toml, tests that import it.

The sources stay where they are.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any

import tomlkit

from hatch_torch_ext.base import resources
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import archs, releases, syntax
from hatch_torch_ext.init import build_toml, cmakelists, pyproject, served, targets, texts
from hatch_torch_ext.init.build_toml import BUILD, CUTLASS, FOLDER
from hatch_torch_ext.init.cmakelists import indented, quoted
from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.build_toml import Kernel, Section
    from hatch_torch_ext.init.texts import Migration

HEADER = f"{FOLDER}/registration.h"
OF_TESTS = frozenset({"einops", "expecttest", "kernels", "numpy", "packaging", "parameterized", "scipy", "tqdm"})
"""Modules that tests of kernels import, and whose distribution has the same name."""
NEWEST_ARCH_GONE = 75
"""The oldest architecture, 7.5, for which CUDA 13 compiles: it is the first CUDA whose compiler is on the index."""
GONE = frozenset({101})
"""Architectures that CUDA 13 has under another number (10.1 is 11.0)."""
NEEDS_PYTHON = re.compile(
    r"#\s*include\s*[<\"](?:Python\.h|pybind11/|torch/(?:extension|python)\.h|torch/csrc/utils/py)"
)
"""Headers of Python, and those of torch that include them."""


def migrate(root: Path, *, torch: Sequence[str] = (), cpu_only: bool = False) -> Migration:
    """Return the files that ``init`` writes for the kernel in ``root``.

    ``torch`` are the releases of the matrix; if empty, they are chosen. ``cpu_only`` leaves CUDA out. Raises
    ``ConfigurationError`` with all that keeps the kernel from being carried over.
    """
    kernel = build_toml.read(root, cpu_only=cpu_only)
    texts.document(root)
    folder = f"{FOLDER}/{kernel.package}"
    known = tuple(torch) or tuple(served.torch_releases(kernel.bounds or None))
    chosen = known if torch else known[-1 if len(kernel.backends) > 1 else -served.FIRST :]
    if not chosen:
        text = f"{root / BUILD}: no known release of torch is {kernel.bounds}: name one by `--torch`"
        raise ConfigurationError(text)
    tables, entries, notes = _matrix(kernel, chosen)
    tests = [*_read_tests(root)]
    changed, of_tests = _changed(tests, kernel)
    (name, text), of_header = _header(root)
    files = [
        (texts.CMAKE, cmake(root, kernel)),
        (texts.PYPROJECT, _pyproject(root, kernel, folder, tables, _imported((tree for *_, tree in tests), kernel))),
        (f"{folder}/_ops.py", resources.text("hub/ops.txt").replace("kernel_name", kernel.package)),
        *([(name, text)] if text else []),
        *changed,
        *texts.ignored(root),
    ]
    every = [*kernel.notes, *notes, *of_header, *of_tests, *_about_ignored(root, folder)]
    return texts.Migration(
        root=root,
        files=tuple(files),
        notes=tuple(Note(each) for each in dict.fromkeys(every)),
        entries=entries,
        torch=chosen,
        name=kernel.name,
        wider=f"hatch-torch-ext matrix --add torch={known[-len(chosen) - 1]}" if len(known) > len(chosen) else None,
        made_of=BUILD,
    )


# CMakeLists.txt -------------------------------------------------------------------------------------------------------


def cmake(root: Path, kernel: Kernel) -> str:
    """Return CMakeLists.txt: one library with the sources of every section, for CUDA or for the CPU."""
    target = f"{kernel.package}_ops" if kernel.package in targets.TAKEN else kernel.package
    torch = "Torch::Python" if _includes_python(root, kernel) else "torch"
    both = len(kernel.backends) > 1
    head = [
        f"# Written by `hatch-torch-ext init` from {BUILD}, and yours from now on: ordinary CMake.",
        "cmake_minimum_required(VERSION 3.26)",
        f"project({target} LANGUAGES CXX{' CUDA' if kernel.backends == ('cuda',) else ''})",
        "",
    ]
    if both:
        head += cmakelists.WITH_CUDA
    head += [
        "find_package(Torch REQUIRED)",
        "",
        f"add_library({target} SHARED {' '.join(map(quoted, kernel.binding.sources))})",
        f"target_link_libraries({target} PRIVATE {torch})",
        f"target_include_directories({target} PRIVATE {FOLDER} .)",
        "# The operators' name, the same in every variant. A build on the Hub has another (`hatch-torch-ext kernels`).",
        f"target_compile_definitions({target} PRIVATE TORCH_EXTENSION_NAME={kernel.package})",
        "# Two libraries in a process are not to share the static variables of inline functions.",
        f"target_compile_options({target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)",
        *_of_files(kernel.binding),
    ]
    parts = {backend: _backend(kernel, backend, target, torch) for backend in kernel.backends}
    body = cmakelists.either(parts["cuda"], parts["cpu"]) if both else parts[kernel.backends[0]]
    return "\n".join([*head, "", *body, "", f"install(TARGETS {target} LIBRARY DESTINATION .)"]) + "\n"


def _backend(kernel: Kernel, backend: str, target: str, torch: str) -> list[str]:
    sections = [each for each in kernel.sections if each.backend == backend]
    macros = "CUDA_KERNEL USE_CUDA=1" if backend == "cuda" else "CPU_KERNEL"
    lines = [f"target_compile_definitions({target} PRIVATE {macros})"]
    needed = sorted({each for section in (kernel.binding, *sections) for each in section.depends if each in CUTLASS})
    for each in needed:
        version, commit = CUTLASS[each]
        lines += [
            "include(FetchContent)",
            f"# CUTLASS {version}, its headers only. A copy of it: -DFETCHCONTENT_SOURCE_DIR_{each.upper()}=FOLDER",
            f"FetchContent_Declare({each}",
            "  GIT_REPOSITORY https://github.com/NVIDIA/cutlass.git",
            f"  GIT_TAG {commit}",
            "  SOURCE_SUBDIR none  # no CMake project of its own",
            ")",
            f"FetchContent_MakeAvailable({each})",
        ]
    for section in sections:
        lines += ["", f"# [kernel.{section.name}]"]
        lines += _conditional(section, _sources(section, target, kernel.package, torch=torch, macros=macros))
    if any("-fopenmp" in section.cxx_flags for section in (kernel.binding, *sections)):
        lines += ["", f"target_link_options({target} PRIVATE -fopenmp)"]
    return lines


def _conditional(section: Section, lines: list[str]) -> list[str]:
    if section.cuda_minver is None:
        return lines
    condition = f"CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL {section.cuda_minver}"
    return [f"if({condition})", *indented(lines), "endif()"]


def _sources(section: Section, target: str, package: str, *, torch: str, macros: str) -> list[str]:
    """Return the lines that compile a section: its sources, or a library of objects if it has its own architectures."""
    files = [f"  {quoted(each)}" for each in section.sources]
    code = _codes(section)
    own = target
    if code and any(each.endswith(".cu") for each in section.sources):
        own = f"{target}_{section.name}"
        lines = [
            f"add_library({own} OBJECT",
            *files,
            ")",
            f'set_target_properties({own} PROPERTIES CUDA_ARCHITECTURES "{code}" POSITION_INDEPENDENT_CODE ON)',
            f"target_link_libraries({own} PRIVATE {torch})",
            f"target_include_directories({own} PRIVATE {FOLDER} .)",
            f"target_compile_definitions({own} PRIVATE TORCH_EXTENSION_NAME={package} {macros})",
            f"target_sources({target} PRIVATE $<TARGET_OBJECTS:{own}>)",
        ]
    else:
        lines = [f"target_sources({target} PRIVATE", *files, ")"] if files else []
    lines += _of_files(section)
    for each in section.depends:
        if each in CUTLASS:
            folders = f"${{{each}_SOURCE_DIR}}/include ${{{each}_SOURCE_DIR}}/tools/util/include"
            lines.append(f"target_include_directories({own} SYSTEM PRIVATE {folders})")
    return lines


def _codes(section: Section) -> str:
    """Return the value of CUDA_ARCHITECTURES for what a section names, of what CUDA 13 compiles for."""
    found = [archs.parse(each) for each in section.capabilities]
    kept = sorted({each for each in found if each.number >= NEWEST_ARCH_GONE and each.number not in GONE})
    return archs.cmake_value(kept)


def _of_files(section: Section) -> list[str]:
    """Return the lines with the flags and folders of a section's files."""
    lines = []
    names = " ".join(map(quoted, section.sources))
    if section.include and names:
        folders = ";".join(f"${{CMAKE_CURRENT_SOURCE_DIR}}/{each}".removesuffix("/.") for each in section.include)
        lines.append(f'set_property(SOURCE {names} APPEND PROPERTY INCLUDE_DIRECTORIES "{folders}")')
    for language, flags, files in (
        ("CXX", section.cxx_flags, names),
        ("CUDA", section.cuda_flags, " ".join(quoted(each) for each in section.sources if each.endswith(".cu"))),
    ):
        if flags and files:
            text = ";".join(f"$<$<COMPILE_LANGUAGE:{language}>:{cmakelists.in_expression(each)}>" for each in flags)
            lines.append(f'set_property(SOURCE {files} APPEND PROPERTY COMPILE_OPTIONS "{text}")')
    return lines


def _includes_python(root: Path, kernel: Kernel) -> bool:
    """Return whether a source includes Python's headers, itself or by those of torch that do."""
    sources = (name for section in (kernel.binding, *kernel.sections) for name in section.sources)
    return any(NEEDS_PYTHON.search(targets.source_text(root, name)) for name in sources)


# pyproject.toml -------------------------------------------------------------------------------------------------------


def _matrix(kernel: Kernel, torch: Sequence[str]) -> tuple[dict[str, Any], int, list[str]]:
    """Return the matrix, the number of its entries, and notes.

    A backend on the stable ABI has one entry, which serves every later release; the others have one for each release.
    """
    tables: list[dict[str, Any]] = []
    overrides: dict[str, Any] = {}
    notes: list[str] = []
    exact = [each for each in kernel.backends if each not in kernel.stable]
    with_both = len(kernel.backends) > 1 or "cuda" in kernel.backends
    if "cuda" in exact:
        notes += served.without_compiler(torch)
    if exact:
        made = served.matrix(torch, backends=exact if with_both else ())
        tables += made["matrix"]
        overrides |= made.get("overrides", {})
    for backend, version in sorted(kernel.stable.items()):
        first = served.first_stable(with_compiler=backend == "cuda")
        oldest = max(version, first, key=releases.minor_of)
        if oldest != version:
            notes.append(f"the stable ABI of {backend} is for torch {oldest} and newer here, where it was {version}")
        made = served.matrix([oldest], backends=[backend] if with_both else (), abi="stable")
        tables += made["matrix"]
        overrides |= made.get("overrides", {})
    made = {"matrix": tables, **({"overrides": overrides} if overrides else {})}
    return made, served.count(made), notes


def _pyproject(root: Path, kernel: Kernel, folder: str, tables: Mapping[str, Any], of_tests: Sequence[str]) -> str:
    metadata: dict[str, Any] = {
        "name": kernel.name,
        "version": f"{kernel.version}.0.0",
        "packages": [kernel.package],
        "package_dir": {kernel.package: folder},
        "install_requires": list(kernel.requires),
        "url": kernel.upstream,
    }
    existing = texts.of(root / texts.PYPROJECT)
    text, _ = pyproject.render(
        pyproject.Contents(
            root=root,
            existing=existing,
            metadata=metadata,
            package=kernel.package,
            matrix=tables,
            requires=[each for each in of_tests if each != "numpy"],
        )
    )
    document = tomlkit.parse(text)
    declared: Any = document["project"]
    if kernel.licence and "license" not in declared:
        declared["license"] = kernel.licence
    return tomlkit.dumps(document)


# The rest -------------------------------------------------------------------------------------------------------------


def _header(root: Path) -> tuple[tuple[str, str], list[str]]:
    """Return registration.h for the project, empty if the project has one of its own, and a note on that."""
    path = root / HEADER
    if path.is_file() and "REGISTER_EXTENSION" not in path.read_text(encoding="utf-8", errors="replace"):
        return (HEADER, ""), [f"`{HEADER}` is the project's own: operators keep one name, on the Hub too"]
    return (HEADER, resources.text("hub/registration.h")), []


def _about_ignored(root: Path, folder: str) -> Iterator[str]:
    """Note files that git ignores, and that hatchling would leave out."""
    lines = (texts.of(root / ".gitignore") or "").splitlines()
    for name in (f"{folder}/_ops.py", HEADER, texts.CMAKE, texts.PYPROJECT):
        for line in lines:
            if line.strip().strip("/") in {name, name.rpartition("/")[2]}:
                yield f".gitignore has `{line.strip()}`, and `{name}` is yours now: remove the line"


def _read_tests(root: Path) -> Iterator[tuple[str, str, ast.Module]]:
    """Yield the name of each test file of the kernel, its text, and its syntax tree."""
    for path in sorted((root / "tests").rglob("*.py")):
        with contextlib.suppress(ValueError):
            text = path.read_text(encoding="utf-8")
            yield path.relative_to(root).as_posix(), text, syntax.parse(text)


def _imported(trees: Iterable[ast.Module], kernel: Kernel) -> list[str]:
    """Return the distributions that the kernel's tests import."""
    found: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return sorted((found & OF_TESTS) - {kernel.package, *sys.stdlib_module_names})


GET = re.compile(r"(?:kernels\.)?get_(?:local_)?kernel")


def _changed(tests: Iterable[tuple[str, str, ast.Module]], kernel: Kernel) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the tests that fetch the kernel from the Hub, changed to import it, and notes on what was left."""
    files, notes = [], []
    for name, text, tree in tests:
        lines = text.splitlines(keepends=True)
        edits = []
        for node in ast.walk(tree):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=variable)],
                    value=ast.Call(func=function, args=[ast.Constant(value=str(repository)), *_]),
                    lineno=first,
                    end_lineno=last,
                    col_offset=column,
                ) if GET.fullmatch(ast.unparse(function)):
                    if repository.rpartition("/")[2] == kernel.name:
                        alias = "" if variable == kernel.package else f" as {variable}"
                        edits.append((first, last or first, f"{' ' * column}import {kernel.package}{alias}\n"))
                    else:
                        notes.append(f"{name}:{first}: fetches `{repository}` from the Hub")
        for first, last, new in sorted(edits, reverse=True):
            lines[first - 1 : last] = [new]
        if edits:
            files.append((name, "".join(lines)))
    return files, notes
