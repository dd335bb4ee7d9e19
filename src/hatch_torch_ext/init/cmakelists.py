"""Targets -> CMakeLists.txt: an ordinary file, the author's from then on; and Python files that it writes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hatch_torch_ext.init.recording import Recording
    from hatch_torch_ext.init.targets import Flags, Target

OWN_FOLDER = "${CMAKE_CURRENT_SOURCE_DIR}/"
OF_NVCC = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)
"""What torch's setuptools command gives nvcc (``COMMON_NVCC_FLAGS``); torch's CMake files do not."""
WITH_CUDA = (
    "# With CUDA: in an entry of the matrix that declares `cuda`, or by hand with -DTORCH_EXT_CUDA=cu130.",
    "set(WITH_CUDA OFF)",
    'if(TORCH_EXT_CUDA AND NOT TORCH_EXT_CUDA STREQUAL "cpu")',
    "  set(WITH_CUDA ON)",
    "  enable_language(CUDA)",
    "endif()",
    "",
)
"""Lines of a project that is built with CUDA and without."""


def text(project: str, targets: Sequence[Target], *, cuda_only: bool = False, stamped: Sequence[Stamp] = ()) -> str:
    """Return CMakeLists.txt; ``cuda_only`` where nothing is built without CUDA."""
    if cuda_only:
        targets = [replace(target, when="cuda") for target in targets]
    with_cuda = not cuda_only and any(
        target.when != "always" or target.needs_cuda or {target.cuda, target.cpu} != {type(target.cuda)()}
        for target in targets
    )
    languages = "C CXX" if any(name.endswith(".c") for target in targets for name in target.sources) else "CXX"
    if cuda_only:
        languages += " CUDA"
    lines = [
        "# Written by `hatch-torch-ext init` from setup.py, and yours from now on: ordinary CMake.",
        "cmake_minimum_required(VERSION 3.26)",
        f"project({re.sub(r'[^A-Za-z0-9_]', '_', project)} LANGUAGES {languages})",
        "",
        *(WITH_CUDA if with_cuda else ()),
        *_packages(targets, with_cuda=with_cuda),
    ]
    if any(target.uses_torch and target.needs_cuda for target in targets):
        lines += [
            "",
            "# As torch's setuptools command has it: c10::Half has its own operators. A later `-U` takes one back.",
            "add_compile_options(",
            *(f'  "$<$<COMPILE_LANGUAGE:CUDA>:{flag}>"' for flag in OF_NVCC),
            ")",
        ]
    for target in targets:
        lines += ["", *(_body(target) if cuda_only else _target(target))]
    lines += _stamped(stamped, with_cuda=with_cuda)
    return "\n".join(lines) + "\n"


def _packages(targets: Sequence[Target], *, with_cuda: bool) -> list[str]:
    """Return the lines that find what the targets are compiled with."""
    lines = ["find_package(Torch REQUIRED)"]
    libraries = {
        each for target in targets for each in (*target.flags.libraries, *target.cuda.libraries, *target.cpu.libraries)
    }
    if modules := [target for target in targets if target.kind == "module"]:
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
        found = ["find_package(CUDAToolkit REQUIRED)"]
        lines += either(found, []) if with_cuda else found
    return lines


def _target(target: Target) -> list[str]:
    body = _body(target)
    if target.when == "always":
        return body
    condition = "WITH_CUDA" if target.when == "cuda" else "NOT WITH_CUDA"
    return [f"if({condition})", *indented(body), "endif()"]


def _body(target: Target) -> list[str]:
    if target.kind == "module":
        abi = f" USE_SABI {target.python_abi}" if target.python_abi else ""
        head = f"Python_add_library({target.name} MODULE{abi} WITH_SOABI"
    else:
        head = f"add_library({target.name} SHARED"
    lines = [head, *(f"  {quoted(name)}" for name in target.sources), ")"]
    if target.uses_torch and target.kind == "library":
        lines.append(
            "# Torch::Python for headers that include Python's: a library that needs none of it serves every Python."
        )
    if target.uses_torch:
        lines.append(f"target_link_libraries({target.name} PRIVATE Torch::Python)")
    if target.name != target.output:
        lines += [
            f"set_target_properties({target.name} PROPERTIES",
            f"  OUTPUT_NAME {target.output}",
            f"  LIBRARY_OUTPUT_DIRECTORY {target.name}  # where it is built: another may have the same file name",
            ")",
        ]
    if target.device_linked:
        lines.append(f"set_target_properties({target.name} PROPERTIES CUDA_SEPARABLE_COMPILATION ON)")
    if target.kind == "module" and target.uses_torch:
        of_torch = f"TORCH_EXTENSION_NAME={target.output} TORCH_API_INCLUDE_EXTENSION_H"
        lines.append(f"target_compile_definitions({target.name} PRIVATE {of_torch})")
    host = "C,CXX" if any(each.endswith(".c") for each in target.sources) else "CXX"
    lines += _flags(target.name, target.flags, host)
    with_cuda = [*_sources(target.name, target.cuda_sources), *_flags(target.name, target.cuda, host)]
    without = [*_sources(target.name, target.cpu_sources), *_flags(target.name, target.cpu, host)]
    if target.when == "always":
        lines += either(with_cuda, without)
    else:
        lines += with_cuda if target.when == "cuda" else without
    lines.append(f"install(TARGETS {target.name} LIBRARY DESTINATION {target.destination})")
    return lines


def either(with_cuda: Sequence[str], without: Sequence[str]) -> list[str]:
    """Return an ``if`` around the lines for entries with CUDA and the lines for those without."""
    if not with_cuda:
        return ["if(NOT WITH_CUDA)", *indented(without), "endif()"] if without else []
    return ["if(WITH_CUDA)", *indented(with_cuda), *(["else()", *indented(without)] if without else []), "endif()"]


def indented(lines: Iterable[str]) -> list[str]:
    """Return the lines of a block."""
    return [f"  {line}" if line else "" for line in lines]


def _sources(name: str, files: Iterable[str]) -> list[str]:
    listed = [f"  {quoted(each)}" for each in files]
    return [f"target_sources({name} PRIVATE", *listed, ")"] if listed else []


def _flags(name: str, flags: Flags, host: str) -> list[str]:
    lines = []
    if flags.include_dirs:
        lines.append(f"target_include_directories({name} PRIVATE {' '.join(map(quoted, flags.include_dirs))})")
    if flags.macros:
        lines.append(f"target_compile_definitions({name} PRIVATE {' '.join(map(quoted, flags.macros))})")
    options = [f'"$<$<COMPILE_LANGUAGE:{host}>:{in_expression(each)}>"' for each in flags.cxx]
    options += [f'"$<$<COMPILE_LANGUAGE:CUDA>:{in_expression(each)}>"' for each in flags.nvcc]
    if options:
        lines += [f"target_compile_options({name} PRIVATE", *(f"  {each}" for each in options), ")"]
    if flags.link:
        lines.append(f"target_link_options({name} PRIVATE {' '.join(map(quoted, flags.link))})")
    if flags.link_dirs:
        lines.append(f"target_link_directories({name} PRIVATE {' '.join(map(quoted, flags.link_dirs))})")
    if flags.libraries:
        lines.append(f"target_link_libraries({name} PRIVATE {' '.join(map(quoted, flags.libraries))})")
    return lines


def quoted(text: str) -> str:
    """Return an argument of a command, in quotes if it needs them; the project's own folder may begin it."""
    if not re.search(r'[\s;()#"\\$]', rest := text.removeprefix(OWN_FOLDER)):
        return text
    return f'"{text[: -len(rest)]}{_escaped(rest)}"'


def _escaped(text: str) -> str:
    """Return ``text`` for use inside of CMake's quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace(";", "\\;").replace("$", "\\$")


def in_expression(text: str) -> str:
    """Return a flag for use inside of a generator expression, in which ``>`` and ``;`` mean something."""
    angles = _escaped(text.replace(";", "\0")).replace(">", "$<ANGLE-R>")
    return angles.replace("\0", "$<SEMICOLON>")


WHY = "# setup.py wrote it with torch's version in it: each variant has its own."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """A file: ``source`` is its place in the project, ``place`` that below the package, both POSIX.

    ``cpu`` and ``cuda`` are its texts, in CMake's form; where only one was recorded, both are that one.
    """

    source: str
    place: str
    cpu: str
    cuda: str


def stamps_of(cpu: Recording | None, cuda: Recording | None, folder: str) -> tuple[Stamp, ...]:
    """Return the files that both recordings, or the only one, wrote into the package in ``folder``."""
    recorded = [dict(each.stamps) for each in (cpu, cuda) if each is not None]
    names = set.intersection(*({*each} for each in recorded)) if recorded else set()
    return tuple(
        Stamp(source=name, place=name.removeprefix(f"{folder}/"), cpu=recorded[0][name], cuda=recorded[-1][name])
        for name in sorted(names)
        if name.startswith(f"{folder}/")
    )


def without_stamps(
    packed: Sequence[tuple[str, str]] | None, stamps: Iterable[Stamp]
) -> Sequence[tuple[str, str]] | None:
    """Return what setuptools packs, as ``Recording.packed``, without such files."""
    sources = {each.source for each in stamps}
    return None if packed is None else [pair for pair in packed if pair[1] not in sources]


def _stamped(stamps: Iterable[Stamp], *, with_cuda: bool) -> list[str]:
    """Return the lines of CMakeLists.txt; ``with_cuda`` where it has the variable ``WITH_CUDA``."""
    lines: list[str] = []
    for each in stamps:
        lines += ["", WHY]
        if each.cpu == each.cuda or not with_cuda:
            lines += _configured(each.place, each.cuda)
        else:
            lines += [
                "if(WITH_CUDA)",
                *_configured(each.place, each.cuda),
                "else()",
                *_configured(each.place, each.cpu),
            ]
            lines.append("endif()")
        path = PurePosixPath(each.place)
        lines.append(f"install(FILES ${{CMAKE_CURRENT_BINARY_DIR}}/{path} DESTINATION {path.parent})")
    return lines


def _configured(place: str, text: str) -> Sequence[str]:
    """Return the command that writes a file; nothing in brackets of CMake is changed but the version."""
    equals = "="
    while f"]{equals}]" in text:
        equals += "="
    return [f"file(CONFIGURE OUTPUT {place} @ONLY CONTENT [{equals}[", f"{text.rstrip()}", f"]{equals}])"]
