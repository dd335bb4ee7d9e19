"""CMake's settings for another machine: a toolchain file; and what a failure means when cross-compiling."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from hatch_torch_ext.base import atomic
from hatch_torch_ext.base.errors import CompileError
from hatch_torch_ext.facts import project

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hatch_torch_ext.values import CrossTarget, Setup

_Q = "['\u2018\u2019]"  # the quotes of compilers depend on the locale
_FOREIGN_FLAG = re.compile(
    rf"(?:unrecognized command-line option|unsupported option) {_Q}(-m[^'\u2019]+){_Q}"
    rf"|unknown value {_Q}[^'\u2019]*{_Q} for {_Q}(-m[^'\u2019=]+){_Q}"
    rf"|unsupported argument {_Q}[^'\u2019]*{_Q} to option {_Q}(-m[^'\u2019=]+)=?{_Q}"
)
_INTRINSICS = re.compile(rf"fatal error: {_Q}?(\w*intrin\.h|cpuid\.h)\b")
_TRY_RUN = re.compile(r"try_run\(\)\s+invoked\s+in\s+cross-compiling\s+mode", re.IGNORECASE)
_SHOWN = 3
_NO_PROGRAM = 127
_NOT_ANSWERED = re.compile(rf"^(\w+):\w+={_NO_PROGRAM}$", re.MULTILINE)
"""A variable of CMake's cache that has the exit status of a program which could not run."""
RUNNER = "run"
NOT_RUN = "not-run"
"""A file beside the runner, written when it was given a program that cannot run here."""


def cache_entries(setup: Setup) -> dict[str, Path | str]:
    """Return the entry for our toolchain file, unless the author names one; empty for this machine."""
    if setup.toolchain.target is None or _author_names_one(setup):
        return {}
    # Our runner runs it: FindPython may ask the interpreter although the target is another machine.
    return {"CMAKE_TOOLCHAIN_FILE": _file(setup), "CMAKE_POLICY_DEFAULT_CMP0190": "NEW"}


def write(setup: Setup) -> None:
    """Write the toolchain file; an unchanged one keeps its time."""
    target, toolchain = setup.toolchain.target, setup.toolchain
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
        ("CMAKE_C_FLAGS_INIT", " ".join([*([rest] if rest else []), *target.cc_flags])),
        ("CMAKE_CXX_FLAGS_INIT", rest),
        ("CMAKE_SYSROOT", target.sysroot),
        ("CMAKE_CROSSCOMPILING_EMULATOR", setup.package / RUNNER),
        # Searched first: find_library() finds that machine's parts of the C library.
        ("CMAKE_FIND_ROOT_PATH", target.libraries),
        # Programs run on this machine, so they are found in any folder.
        ("CMAKE_FIND_ROOT_PATH_MODE_PROGRAM", "NEVER"),
    ]
    lines = [f"# How hatch-torch-ext compiles for {target.machine}; CMAKE_TOOLCHAIN_FILE of your own replaces it."]
    lines += [f"set({name} [==[{value}]==])" for name, value in settings if value]
    text = "\n".join(lines) + "\n"
    atomic.update(_file(setup), text)
    atomic.update(setup.package / RUNNER, _runner(setup, target), executable=True)
    (setup.package / NOT_RUN).unlink(missing_ok=True)
    if _answers(setup):
        _write_python(setup)


def check_runs(setup: Setup) -> None:
    """Raise ``CompileError`` if CMake tried to run a compiled program and nothing here could."""
    if (setup.package / NOT_RUN).exists():
        variables = _NOT_ANSWERED.findall((setup.build / "CMakeCache.txt").read_text(encoding="utf-8"))
        raise CompileError(setup.entry.name, f"{_not_run(setup, variables)}. The whole log is {setup.log}")


def _runner(setup: Setup, target: CrossTarget) -> str:
    """Return a script that runs programs: those of this machine directly (CMake runs Python by it), others by qemu."""
    code = {"x86_64": "3e00", "aarch64": "b700"}[target.machine]  # e_machine, in the file's order
    if target.emulator:
        run = f'exec {shlex.join(target.emulator)} "$@"'
    else:
        lines = f"touch {shlex.quote(str(setup.package / NOT_RUN))}\necho 'no qemu for {target.machine}' >&2"
        run = f"{lines}\nexit {_NO_PROGRAM}"
    return (
        f'#!/bin/sh\ncase "$(od -An -t x1 -j 18 -N 2 "$1" | tr -d " ")" in\n{code}) ;;\n*) exec "$@" ;;\nesac\n{run}\n'
    )


def _not_run(setup: Setup, variables: Sequence[str] = ()) -> str:
    """Return the message on a program that was not run; without ``variables``, CMake has named its variables."""
    answer = "give the variables of its answers in the option `cmake.define`"
    if variables:
        names = ", ".join(name.removesuffix("_EXITCODE") for name in variables)
        answer = (
            f"give its answer in the option `cmake.define` ({names}), after which CMake's own checks do not run it; a "
            "try_run of the project's own needs `if(NOT DEFINED …)` around it for that"
        )
    return (
        f"The project runs a program that it compiles for {setup.environment.interpreter.machine} (try_run, "
        "check_cxx_source_runs): install qemu, which runs it here (`apt-get install qemu-user-static` in Debian and "
        f"Ubuntu, `dnf install qemu-user-static` in Fedora), or {answer}"
    )


def _write_python(setup: Setup) -> None:
    """Write a module that makes the entry's Python report the other machine's facts when CMake's modules ask.

    Cross compilers of Python packages work in this way: https://github.com/benfogle/crossenv. The module is among the
    environment's packages, since an isolated Python (``-E``, ``-I``) ignores ``PYTHONPATH`` but reads the variable.
    """
    suffix = setup.environment.interpreter.ext_suffix
    machine = setup.environment.interpreter.machine
    answers = {
        "EXT_SUFFIX": suffix,
        "SOABI": suffix.removeprefix(".").removesuffix(".so"),
        "MULTIARCH": f"{machine}-linux-gnu",
    }
    text = (
        "import importlib\nimport sys\n\n"
        'own = "_sysconfigdata_{}_{}_{}".format(\n'
        '    sys.abiflags, sys.platform, getattr(sys.implementation, "_multiarch", "")\n)\n'
        f"build_time_vars = {{**importlib.import_module(own).build_time_vars, **{answers!r}}}\n"
    )
    atomic.update(setup.environment.site_packages / f"{_sysconfigdata(machine)}.py", text)


def _answers(setup: Setup) -> bool:
    return setup.environment.cross and setup.environment.modules


def _sysconfigdata(machine: str) -> str:
    return f"_sysconfigdata_torch_ext_{machine}"


def env_changes(setup: Setup) -> dict[str, str | None]:
    """Return the changes to the environment: the process's own compilers and flags are for this machine."""
    if setup.toolchain.target is None:
        return {}
    given = dict(setup.entry.env_vars)
    changes: dict[str, str | None] = {name: given.get(name) for name in ("CC", "CXX")}
    if _answers(setup):
        machine = setup.environment.interpreter.machine
        changes |= {"_PYTHON_SYSCONFIGDATA_NAME": _sysconfigdata(machine), "_PYTHON_HOST_PLATFORM": f"linux-{machine}"}
    return {**changes, **dict(setup.toolchain.target.variables)}


def hints(setup: Setup, output: str) -> Iterator[str]:
    """Yield explanations of failures that cross-compiling causes."""
    target = setup.toolchain.target
    if target is None:
        return
    found = [next(filter(None, match.groups())) for match in _FOREIGN_FLAG.finditer(output)]
    for flag in list(dict.fromkeys(found))[:_SHOWN]:
        places = ", ".join(list(_places(setup, flag))[:_SHOWN])
        yield (
            f"`{flag}` is not a valid flag for {target.machine}{f' (found in {places})' if places else ''}. Give it "
            'only where `CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64"`, or where `check_cxx_compiler_flag` accepts it'
        )
    if match := _INTRINSICS.search(output):
        yield (
            f"`{match[1]}` is a header only for x86 processors: include it, and use what it declares, below "
            "`#if defined(__x86_64__)`"
        )
    if (setup.package / NOT_RUN).exists() or _TRY_RUN.search(output):
        yield _not_run(setup)


def _file(setup: Setup) -> Path:
    return setup.package / "toolchain.cmake"


def _author_names_one(setup: Setup) -> bool:
    if setup.entry.environ(os.environ).get("CMAKE_TOOLCHAIN_FILE"):
        return True
    return any(re.match(r"--toolchain|-D\s*CMAKE_TOOLCHAIN_FILE\b", argument) for argument in setup.config.cmake.args)


def _places(setup: Setup, flag: str) -> Iterator[str]:
    """Yield the places where the author writes ``flag``: file and line, option, variable."""
    for path in project.cmake_files(setup.config.source):
        for number, line in enumerate(project.text(path).splitlines(), 1):
            if flag in line.partition("#")[0]:
                yield f"{path}:{number}"
    if any(flag in argument for argument in setup.config.cmake.args):
        yield "the option `cmake.args`"
    yield from (f"the option `cmake.define` ({name})" for name, value in setup.config.cmake.define if flag in value)
    yield from (f"{name} of the hatch environment" for name, value in setup.entry.env_vars if flag in value)
