"""The message when CMake or a compiler fails, or when a project installs nothing, or into another folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import errors, escape, process
from hatch_torch_ext.base.errors import CompileError
from hatch_torch_ext.facts import project

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hatch_torch_ext.cmake.replies import Reply
    from hatch_torch_ext.values import Setup

_FETCHING = re.compile(r"FetchContent\.cmake:\d+ \(message\):\s+Build step for (\S+) failed")
IN_SOURCES = "Correct this in the project's sources"
IN_OPTIONS = " or in the hook's options `cmake.*`"
IN_MEMORY = (
    "end other programs, raise the limit of the container or batch job, or split the file that was compiled, and run "
    "the same command again"
)
FIRST_ERRORS = 5
LAST_LINES = 20
_ERROR = re.compile(r"\b(fatal )?error( #?[\w-]+)?:|^CMake Error|undefined reference|ld: cannot find |\(F\)")
_HINTS = (
    (
        # The #error of torch's own headers.
        re.compile("TORCH_STABLE_ONLY or TORCH_TARGET_VERSION is defined"),
        "This entry is for torch's stable ABI, but compiles sources that use torch's C++ API: give it sources of its "
        "own where TORCH_EXT_STABLE_ABI is ON, or remove `abi` from the entry.",
    ),
    (
        # The command that failed, and an error inside pybind11 that does not name it.
        re.compile(r"-DPy_LIMITED_API\b.*^[^\n]*/pybind11/[^\n]*error: ", re.DOTALL | re.MULTILINE),
        "pybind11 does not work with Python's limited API (USE_SABI): write that module on Python's C API, or build it "
        "for each Python (Development.Module, no USE_SABI).",
    ),
    (
        # CMake asks again after our own answer, and then reports that there is no torch at all.
        re.compile('package\\s+"Torch"\\s+that\\s+is\\s+compatible\\s+with\\s+requested\\s+version'),
        "The project asks find_package(Torch) for another version than this entry's torch: take the entry out of the "
        "matrix, or correct the version in CMakeLists.txt.",
    ),
    (
        re.compile(r"fatal error: '?Python\.h"),
        "The sources include Python's headers: link Torch::Python, or include torch/library.h instead of "
        "torch/extension.h: one library then serves every Python.",
    ),
    (
        re.compile(r"missing:\s[^)]*Python3?_INCLUDE_DIRS"),
        "This Python comes without its headers: `apt-get install python3-dev` (Debian, Ubuntu), `dnf install "
        "python3-devel` (Fedora, RHEL), or a Python of hatch, uv or pyenv, which has them.",
    ),
    (
        re.compile(r'-configure\b.*package\s+configuration\s+file\s+provided\s+by\s+"Torch"', re.DOTALL),
        "What ExternalProject builds has a CMake run of its own, in which the hook does not answer "
        "find_package(Torch): add its folder with add_subdirectory(), or name it in the option `source`.",
    ),
    (
        re.compile("installed Caffe2 version uses CUDA but I cannot find the CUDA"),
        "torch's own CMake package asks for a CUDA toolkit wherever torch is built for CUDA. Ours does not: take "
        '`cmake.torch-package = "upstream"` out.',
    ),
    (
        # https://cmake.org/cmake/help/latest/command/install.html#runtime-dependencies
        re.compile(r"Could not resolve runtime dependencies:\s+lib(?:torch|c10)"),
        "An install rule asks CMake to copy what the project's libraries need (RUNTIME_DEPENDENCIES, "
        "RUNTIME_DEPENDENCY_SET, file(GET_RUNTIME_DEPENDENCIES)). The hook copies these by itself, and torch's must "
        'stay out of the wheel: take that out, or give it PRE_EXCLUDE_REGEXES "^lib(torch|c10)".',
    ),
    (
        re.compile('package\\s+configuration\\s+file\\s+provided\\s+by\\s+"(?!Torch")'),
        "If a Python package contains it, as pybind11 and nanobind do, add that package to the dependencies of the "
        "environment. If it is in a folder that CMake does not search, name the folder as CMAKE_PREFIX_PATH in "
        "`cmake.define`.",
    ),
)
"""Explanations that the compiler's message lacks: a pattern of its output, and the sentence to add."""
_NO_MODULE = re.compile(
    r"No\s+module\s+named\s+'?([A-Za-z_]\w*)|No\s+package\s+metadata\s+was\s+found\s+for\s+([A-Za-z_]\w*)"
)
_NO_TORCH = re.compile(
    r"lib(?:torch|c10)\w*\.so\S*: cannot open shared object file|undefined symbol: \S*(?:N3c10|N2at|N5torch|aoti_torch)"
)
"""What the dynamic linker says of a file that links torch where there are link stubs instead of it."""
_PLACE = re.compile(r"(?<![^\s:(])((?:\.\./|/)[^\s:()]+)(?=[:(]\d|:\s)")
"""A file that a compiler names with a line, from the build folder or absolute."""
_OF_NINJA = re.compile(r"\[\d+/\d+\] |ninja: (?:Entering directory|Jobserver mode|build stopped)")
_STUB = re.compile(r"/torch/lib/lib(?:torch|c10)\w*\.so")
_IN_VAIN = re.compile(
    r"error while loading shared libraries|symbol lookup error|\"FAILED_TO_RUN\""
    r"|undefined reference to [^\n]*(?:c10|at|torch)::"
)
"""How a program ends that is linked to stubs, where neither CMake nor the linker treats it as ours are treated."""
_ANSWER = re.compile(r"(?:runResult:\s+variable|buildResult:\s+variable): \"(\w+)\"(?![\s\S]*runResult:)")
_INTO_PREFIX = re.compile(r"\bExternalProject_Add\b|\bCMAKE_INSTALL_PREFIX\b", re.IGNORECASE)
_BEYOND_TORCH = re.compile(
    r"/torch/include/([^\s:]+):\d+:\d+: fatal error: '?([^\s':]+)'?(?:: No such file| file not found)"
)
"""A header of torch that includes one that torch's wheel does not have."""
_OF_CUDA = re.compile(r"cu(?:da|blas|dnn|fft|rand|solver|sparse|b|dss)|nv|thrust")
_ABSENT = re.compile(
    r"Cannot find source file:\s+(/\S[^\n]*)|\bFile\s+(/\S[^\n]*?)\s+does\s+not\s+exist|"
    r"^ninja: error: '(/[^'\n]+)', needed by",
    re.MULTILINE,
)
"""A file that CMake or Ninja misses, by its path."""
_SUBMODULE = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)
_FULL = 1 << 20  # bytes left; CMake and compilers then report anything but a full disk
_LONGEST = 400  # characters; a compiler's command line fills screens


def step_failed(
    setup: Setup,
    step: str,
    command: Sequence[str],
    output: str,
    *,
    hints: Sequence[str] = (),
    killed: str | None = None,
) -> str:
    """Return the message of a failed step, with its first errors, since later ones often follow from them.

    ``hints`` are further explanations; ``killed`` says that something was killed.
    """
    log, source, left_out = setup.log, setup.config.source, setup.sdk.left_out
    first = first_errors(output)
    parts = [f"{step} failed: `{_shortened(process.command_line(command))}`"]
    if first:
        parts += ["the first errors:", *(f"  {line}" for line in first)]
    last = process.tail("\n".join(_besides(output, first)), LAST_LINES).splitlines()
    if last:
        parts += ["the last lines:", *(f"  {_shortened(line)}" for line in last)]
    parts += [*hints, *(hint for pattern, hint in _HINTS if pattern.search(output))]
    parts += _not_fetched(output)
    parts += _beyond_torch(output, in_cuda=setup.toolchain.toolkit is not None)
    full = list(_needs_full_torch(output, left_out)) if setup.sdk.kind == "thin" else []
    parts += [*full, *_missing_modules(output, left_out)]
    parts += filter(None, [empty_submodules(source)])
    parts += _not_packed(output, source)
    if shutil.disk_usage(log.parent).free < _FULL:
        parts.append(f"The disk of {log.parent} is full: free some space, and run the same command again.")
    elif (crowded := errors.crowded(output)) is not None:
        return "\n".join([*parts, f"{crowded}; the whole log is {log}"])
    elif killed is not None:
        return "\n".join([*parts, f"{killed}, most likely because memory ran out: {IN_MEMORY}; the whole log is {log}"])
    if full:
        return "\n".join([*parts, f"The whole log is {log}"])
    remedy = f"{IN_SOURCES}{IN_OPTIONS}" if step == "configuring" else IN_SOURCES
    return "\n".join([*parts, f"{remedy}; the whole log is {log}"])


def from_root(output: str, *, root: Path, build: Path) -> str:
    """Return a compiler's output with the project's files named from its root: ``csrc/ops.cpp:17:3``.

    Compilers name them as CMake does, from the build folder; what is elsewhere gets its whole path.
    """

    def named(match: re.Match[str]) -> str:
        path = Path(os.path.normpath(build / match[1]))
        if not path.is_file():
            return match[0]
        return str(path.relative_to(root) if path.is_relative_to(root) else path)

    return _PLACE.sub(named, output)


def _not_fetched(output: str) -> list[str]:
    """Return a sentence for each of the project's dependencies that FetchContent could not fetch."""
    return [
        f"The project fetches `{name}` while CMake configures, which failed. Where there is no network, name a folder "
        f"with its sources in the option `cmake.define`: FETCHCONTENT_SOURCE_DIR_{name.upper()}."
        for name in dict.fromkeys(_FETCHING.findall(output))
    ]


def _beyond_torch(output: str, *, in_cuda: bool) -> Iterator[str]:
    """Yield a sentence for each header of torch that needs one from elsewhere."""
    for header, missing in dict.fromkeys(_BEYOND_TORCH.findall(output)):
        needs = f"torch's own header `{header}` includes `{missing}`"
        if _OF_CUDA.match(missing) and not in_cuda:
            yield (
                f"{needs}, which is CUDA's, and this entry is built without CUDA: include that header of torch only in "
                "sources for CUDA, or declare `cuda` in the entry."
            )
        else:
            yield (
                f"{needs}, which torch's wheel does not have: name the folder that has it by "
                "`target_include_directories`, or do not include that header of torch."
            )


def _needs_full_torch(output: str, left_out: Sequence[str]) -> Iterator[str]:
    """Yield a sentence where something was run or imported that needs more of torch than a thin SDK has."""
    where = "in the hook's configuration to build with the full torch."
    if _NO_TORCH.search(output):
        yield (
            "While the project is built, it runs a program or a Python module that links torch (a POST_BUILD command, "
            "a generator, gtest_discover_tests, nanobind_add_stub). The thin torch SDK has link stubs in place of "
            f'torch\'s libraries: set `sdk = "environment"` {where}'
        )
    for name in _not_found(output):
        if name in left_out:
            yield (
                f"`{name}` comes with torch's wheel or its requirements, of which the thin torch SDK has only headers "
                f'and link stubs: set `sdk = "environment"` {where}'
            )


def tried_in_vain(build: Path) -> list[str]:
    """Return a sentence for each program that CMake tried while it configured, and that stubs could not serve."""
    try:
        text = (build / "CMakeFiles" / "CMakeConfigureLog.yaml").read_text(encoding="utf-8", errors="replace")
    except OSError:  # older versions of CMake have another log
        return []
    tried = [event for event in re.split(r"^  -$", text, flags=re.MULTILINE) if _STUB.search(event)]
    names = [match[1] for event in tried if _IN_VAIN.search(event) and (match := _ANSWER.search(event))]
    return [
        f"While CMake configures, it tries a program that links torch, for its variable {name}. That fails, since "
        f"such programs are linked to stubs, whatever the SDK. Give the answer in the option `cmake.define` ({name}): "
        "CMake's own checks then do not try it; put a try_run or try_compile of the project's own into "
        f"`if(NOT DEFINED {name})`"
        for name in dict.fromkeys(names)
    ]


def _not_found(output: str) -> Iterator[str]:
    """Yield each Python module that the interpreter which CMake runs did not find."""
    yield from dict.fromkeys(match[1] or match[2] for match in _NO_MODULE.finditer(output))


def _missing_modules(output: str, left_out: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each Python module that was not found, and that no torch brings."""
    for name in _not_found(output):
        if name not in left_out:
            also = ' (if a requirement of torch installs it, set `sdk = "environment"`)' if left_out else ""
            yield f"Python has no `{name}` here: add it to the `dependencies` of the hatch environment{also}."


def _not_packed(output: str, source: Path) -> Iterator[str]:
    """Yield a sentence for each file that is missing where ``source`` is in an unpacked sdist."""
    root = next((folder for folder in (source, *source.parents) if project.is_unpacked(folder)), None)
    missing = [Path(next(filter(None, match.groups())).strip()) for match in _ABSENT.finditer(output)]
    for file in dict.fromkeys(missing):
        if root is None or not file.is_relative_to(root):
            continue
        place = file.relative_to(root).as_posix()
        yield (
            f"`{place}` is not in this sdist: hatchling leaves out what git ignores, and what `exclude` names. Where "
            f'the project has the file, write `artifacts = ["/{place}"]` into `[tool.hatch.build.targets.sdist]`, and '
            "make the sdist again."
        )


def empty_submodules(source: Path) -> str | None:
    """Return the sentence for git submodules around ``source`` that are not checked out."""
    for root in (source, *source.parents):
        if (root / ".gitmodules").is_file():
            break
        if (root / ".git").exists():
            return None
    else:
        return None
    empty = sorted(_not_checked_out(root, root))
    if not empty:
        return None
    named = escape.few(empty, 1)
    if not (root / ".git").exists():
        return (
            f"{root / '.gitmodules'} names the submodule {named}, and that folder is empty: what these sources "
            "were packed from had no submodules checked out. Take a clone, with `git clone --recurse-submodules`."
        )
    return (
        f"{root / '.gitmodules'} names the submodule {named}, and that folder is empty. Check it out: "
        f"`git -C {shlex.quote(str(root))} submodule update --init --recursive`"
    )


def _not_checked_out(root: Path, module: Path) -> Iterator[str]:
    """Yield the folders of submodules below ``module`` that are empty or missing, relative to ``root``."""
    try:
        text = (module / ".gitmodules").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for path in _SUBMODULE.findall(text):
        folder = module / path
        if not folder.is_dir() or not any(folder.iterdir()):
            yield folder.relative_to(root).as_posix()
        else:
            yield from _not_checked_out(root, folder)


def first_errors(output: str) -> list[str]:
    """Return the first lines of ``output`` that report an error; for CMake, with the following sentence."""
    lines = output.splitlines()
    found: list[str] = []
    for number, line in enumerate(lines):
        if not _ERROR.search(line):
            continue
        text = line.strip()
        if line.startswith("CMake Error"):
            text = " ".join([text, *_sentence(lines[number + 1 :])])
        if (text := _shortened(text)) not in found:
            found.append(text)
        if len(found) == FIRST_ERRORS:
            break
    return found


def _besides(output: str, first: Sequence[str]) -> Iterator[str]:
    """Yield the lines of ``output`` that are not among the ``first`` errors, without Ninja's own and its commands."""
    shown, of_ninja = set(first), False
    for line in output.splitlines():
        was_failed, of_ninja = of_ninja, line.startswith("FAILED: ")
        if not (was_failed or of_ninja or _OF_NINJA.match(line) or _shortened(line.strip()) in shown):
            yield line


def did_not_run(setup: Setup) -> str:
    """Return the message for a project that replaced our CMake files, which set architectures and paths."""
    return (
        f"the project in {setup.config.source} overwrites CMAKE_PROJECT_INCLUDE_BEFORE, by which hatch-torch-ext sets "
        "CUDA architectures and the C++ ABI, and keeps paths of this machine out of the wheel. Set "
        "CMAKE_PROJECT_<name>_INCLUDE_BEFORE instead, with the name that the project has in project(), or set "
        "CMAKE_PROJECT_INCLUDE_BEFORE in the option `cmake.define`, which keeps both. The whole log is "
        f"{setup.log}"
    )


def installs_while_compiling(source: Path) -> bool:
    """Return whether the project may put files into the prefix without an install rule."""
    return any(_INTO_PREFIX.search(project.text(path)) for path in project.cmake_files(source))


def nothing_installed(setup: Setup, reply: Reply) -> str:
    """Return the message for a project that builds but installs nothing, with the line to add."""
    loadable = [target for target in reply.targets if target.loadable]
    names = " ".join(target.name for target in loadable)
    where, log = setup.config.source / "CMakeLists.txt", setup.log
    if loadable:
        built = ", ".join(name for target in loadable for name in target.names)
        return (
            f"CMake builds {built}, but installs nothing, and only what is installed is packed. "
            f"Add to {where}:\n  install(TARGETS {names} LIBRARY DESTINATION .)\nThe whole log is {log}"
        )
    others = ", ".join(f"{target.name} ({target.type.lower()})" for target in reply.targets if target.files)
    return (
        f"CMake installs nothing, and the project has no shared library or module"
        f"{f', only {others}' if others else ''}. Add to {where}:\n"
        "  find_package(Torch REQUIRED)\n  add_library(my_ops SHARED my_ops.cpp)\n"
        "  target_link_libraries(my_ops PRIVATE torch)\n"
        f"  install(TARGETS my_ops LIBRARY DESTINATION .)\nThe whole log is {log}"
    )


def beside_the_package(installed: Iterable[str], package: str) -> str | None:
    """Return the note on Python files that CMake installs into site-packages, but not into the package."""
    folder = f"{package.replace('.', '/')}/"
    places = filter(None, map(project.below_site, installed))
    beside = sorted(place for place in places if place.endswith(".py") and not place.startswith(folder))
    if not beside:
        return None
    name = beside[0].partition("/")[0].removesuffix(".py")
    let = "Let"
    if f"{name}/__init__.py" in beside:
        let = f'If that is the package, name it: `package = "{name}"`. Else let'
    return (
        f"CMake installs {escape.few(beside, 1)} into site-packages, beside `{package}`, and the wheel "
        f"has it in `{package}`: `import {name}` does not find it. {let} hatchling install it, by `packages` of "
        f"`[tool.hatch.build.targets.wheel]`, or import it from `{package}`"
    )


def check_folders(entry: str, *folders: Path) -> None:
    """Raise ``CompileError`` for a folder in which CMake cannot work, before it fails with an unrelated error."""
    for folder in folders:
        if (why := project.unusable(folder)) is not None:
            raise CompileError(entry, f"{why}. Rename that folder")


def check_destinations(entry: str, reply: Reply, *, prefix: Path, site: Path) -> None:
    """Raise ``CompileError`` before anything is installed outside of both ``prefix`` and ``site``."""
    places = [(rule, Path(os.path.normpath(prefix / rule.destination))) for rule in reply.rules if rule.destination]
    outside = [
        f"{rule.where} installs into {rule.destination}"
        for rule, place in places
        if not (place.is_relative_to(prefix) or place.is_relative_to(site))
    ]
    if outside:
        raise CompileError(
            entry,
            f"{', '.join(dict.fromkeys(outside))}, outside the install prefix, which would leave files there and none "
            "in the wheel. Use a relative destination: `install(… DESTINATION .)`",
        )


def _sentence(lines: Sequence[str]) -> list[str]:
    """Return the first sentence of CMake's message, which is indented, and may have blank lines around a path."""
    found: list[str] = []
    for line in lines:
        text = line.strip()
        if text and not line.startswith(" "):
            break
        if text:
            found.append(text)
        elif found and found[-1].endswith((".", "!", "?")):
            break
    return found


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
