"""What CMake is told of another machine that is compiled for: a toolchain file, and what a failure then means."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hatch_torch_ext.facts.cmakefiles import cmake_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hatch_torch_ext.cmake.job import Job

_Q = "['\u2018\u2019]"  # compilers quote by the locale
_FOREIGN_FLAG = re.compile(
    rf"(?:unrecognized command-line option|unsupported option) {_Q}(-m[^'\u2019]+){_Q}"
    rf"|unknown value {_Q}[^'\u2019]*{_Q} for {_Q}(-m[^'\u2019=]+){_Q}"
    rf"|unsupported argument {_Q}[^'\u2019]*{_Q} to option {_Q}(-m[^'\u2019=]+)=?{_Q}"
)
_INTRINSICS = re.compile(rf"fatal error: {_Q}?(\w*intrin\.h|cpuid\.h)\b")
_TRY_RUN = re.compile(r"try_run\(\)\s+invoked\s+in\s+cross-compiling\s+mode", re.IGNORECASE)
_SHOWN = 3


def cache_entries(job: Job) -> dict[str, Path]:
    """Return the entry that names our toolchain file, unless the author names one; nothing for this machine."""
    if job.toolchain.target is None or _author_names_one(job):
        return {}
    return {"CMAKE_TOOLCHAIN_FILE": _file(job)}


def write(job: Job) -> None:
    """Write the toolchain file; one that has not changed keeps its time."""
    target, toolchain = job.toolchain.target, job.toolchain
    if target is None:
        return
    triplet = next((flag.partition("=")[2] for flag in target.flags if flag.startswith("--target=")), "")
    rest = " ".join(flag for flag in target.flags if not flag.startswith("--target="))
    settings: list[tuple[str, object]] = [
        ("CMAKE_SYSTEM_NAME", "Linux"),
        ("CMAKE_SYSTEM_PROCESSOR", target.machine),
        ("CMAKE_C_COMPILER", target.cc),
        ("CMAKE_CXX_COMPILER", toolchain.cxx.path),
        *((f"CMAKE_{language}_COMPILER_TARGET", triplet) for language in ("C", "CXX")),
        *((f"CMAKE_{language}_FLAGS_INIT", rest) for language in ("C", "CXX")),
        ("CMAKE_SYSROOT", target.sysroot),
        ("CMAKE_CROSSCOMPILING_EMULATOR", ";".join(target.emulator)),
        # Programs are started here, from wherever they lie here.
        ("CMAKE_FIND_ROOT_PATH_MODE_PROGRAM", "NEVER"),
    ]
    lines = [f"# How hatch-torch-ext compiles for {target.machine}; CMAKE_TOOLCHAIN_FILE of your own replaces it."]
    lines += [f"set({name} [==[{value}]==])" for name, value in settings if value]
    text = "\n".join(lines) + "\n"
    path = _file(job)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def env_changes(job: Job) -> dict[str, str | None]:
    """Return the changes to the environment: compilers and flags of this process are for this machine."""
    if job.toolchain.target is None:
        return {}
    given = dict(job.entry.env_vars)
    return {**{name: given.get(name) for name in ("CC", "CXX")}, **dict(job.toolchain.target.variables)}


def hints(job: Job, output: str) -> Iterator[str]:
    """Yield what a failure means that comes of compiling for another machine."""
    target = job.toolchain.target
    if target is None:
        return
    found = [next(filter(None, match.groups())) for match in _FOREIGN_FLAG.finditer(output)]
    for flag in list(dict.fromkeys(found))[:_SHOWN]:
        places = ", ".join(list(_places(job, flag))[:_SHOWN])
        yield (
            f"`{flag}` is no flag for {target.machine}{f': it stands in {places}' if places else ''}. Give it where "
            '`CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64"` alone, or where `check_cxx_compiler_flag` finds that it is taken'
        )
    if match := _INTRINSICS.search(output):
        yield (
            f"`{match[1]}` is a header for x86 processors alone: include it, and use what it declares, below "
            "`#if defined(__x86_64__)`"
        )
    if _TRY_RUN.search(output):
        yield (
            f"The project runs a program that it compiles for {target.machine} (try_run, check_cxx_source_runs): "
            "install qemu, which runs it here (`apt-get install qemu-user-static` in Debian and Ubuntu, `dnf install "
            "qemu-user-static` in Fedora), or say the answers that CMake asks for in the option `cmake.define`"
        )


def _file(job: Job) -> Path:
    return job.package / "toolchain.cmake"


def _author_names_one(job: Job) -> bool:
    if job.entry.environ(os.environ).get("CMAKE_TOOLCHAIN_FILE"):
        return True
    return any(re.match(r"--toolchain|-D\s*CMAKE_TOOLCHAIN_FILE\b", argument) for argument in job.config.cmake.args)


def _places(job: Job, flag: str) -> Iterator[str]:
    """Yield where the author writes ``flag``: file and line, option, variable."""
    for path in cmake_files(job.config.source):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if flag in line.partition("#")[0]:
                yield f"{path}:{number}"
    if any(flag in argument for argument in job.config.cmake.args):
        yield "the option `cmake.args`"
    yield from (f"the option `cmake.define` ({name})" for name, value in job.config.cmake.define if flag in value)
    yield from (f"{name} of the hatch environment" for name, value in job.entry.env_vars if flag in value)
