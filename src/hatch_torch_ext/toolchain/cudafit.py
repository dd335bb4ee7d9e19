"""Checks whether a CUDA toolkit fits: its host compiler, architectures, compression; and the remedy if none fits."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from hatch_torch_ext.base.errors import ToolchainError
from hatch_torch_ext.base.process import answer, run
from hatch_torch_ext.facts import archs, variables
from hatch_torch_ext.toolchain.tools import STATIC_RUNTIME, TIMEOUT, describe_compiler, links_runtime
from hatch_torch_ext.values import Tool, Toolkit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values import CrossTarget, PreparedEntry

FIRST_WHEEL_MAJOR = 13
"""The first CUDA whose compiler is on the package index as wheels; those for 11 and 12 lack nvcc."""
FAMILIES_SINCE = "4.0.2"
"""The first CMake found to accept ``100f`` in CUDA_ARCHITECTURES: 4.0.0 and 3.31.6 refuse it."""
UNCHECKED_HOST = "allow-unsupported-compiler"
"""nvcc's own flag for a host compiler that it does not support."""


class Unfit(Exception):  # noqa: N818 - inside this package: becomes ``toolkit_problem``
    """A toolkit cannot be used; the text has the reason and the remedy."""


def remedy(config: Config, cuda: str) -> str:
    """Return what to do so that a compiler for CUDA ``cuda`` is found."""
    if not config.environment:
        return _remedy_here(cuda)
    if major(cuda) >= FIRST_WHEEL_MAJOR:
        return (
            f'Add "cuda-toolkit[nvcc,cudart,cccl]=={cuda}.*" to the dependencies of the hatch environment '
            f"`{config.environment}` (in a matrix of several CUDA versions: to the overrides of these entries), or "
            'set the option `cuda-home`, such as `cuda-home = "/usr/local/cuda-{cuda}"`'
        )
    return (
        f"The package index has no nvcc for CUDA {major(cuda)}: install a CUDA {major(cuda)} toolkit (or build in an "
        f'image that has one) and set the option `cuda-home`, such as `cuda-home = "/usr/local/cuda-{{cuda}}"`, or '
        "CUDA_HOME to its folder"
    )


def _remedy_here(cuda: str) -> str:
    """Return the same for a build for an installed torch: a user who installs a package has no matrix."""
    home = f"or set CUDA_HOME to the folder of an installed CUDA {major(cuda)} toolkit"
    if major(cuda) >= FIRST_WHEEL_MAJOR:
        return f'Install one: `pip install "cuda-toolkit[nvcc,cudart,cccl]=={cuda}.*"`, {home}'
    return (
        f"The package index has no nvcc for CUDA {major(cuda)}. Install one: `conda install -c nvidia "
        f"cuda-toolkit={cuda}` in a conda environment, else NVIDIA's own for your distribution "
        f"(https://developer.nvidia.com/cuda-toolkit-archive, package `cuda-toolkit-{cuda.replace('.', '-')}` of its "
        f"repositories for apt, dnf and zypper), {home}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCompiler:
    """The C++ compiler that nvcc calls.

    ``setting`` is where it is named, with ``{}`` for the compiler; ``prefix`` precedes the names of GNU compilers for
    the machine to compile for.
    """

    tool: Tool
    setting: str
    prefix: str = ""


def host_compiler(
    config: Config, cxx: Tool, environ: Mapping[str, str], target: CrossTarget | None = None
) -> HostCompiler:
    """Return the C++ compiler that is named for nvcc, else ``cxx``. Raises ``Unfit``."""
    defined = dict(config.cmake.define)
    prefix = "" if target is None else f"{target.machine}-linux-gnu-"
    if "CMAKE_CUDA_HOST_COMPILER" in defined:
        setting = 'CMAKE_CUDA_HOST_COMPILER of the option `cmake.define` to "{}"'
    elif environ.get("CUDAHOSTCXX"):
        setting = "CUDAHOSTCXX={}"
    else:
        setting = "CXX={}" if target is None else f'the option `cross.{target.machine}.cxx` to "{{}}"'
    named = defined.get("CMAKE_CUDA_HOST_COMPILER") or environ.get("CUDAHOSTCXX")
    if not named:
        return HostCompiler(tool=cxx, setting=setting, prefix=prefix)
    path = shutil.which(named)
    if path is None:
        raise Unfit(
            f"the host compiler for CUDA, `{named}` (CMAKE_CUDA_HOST_COMPILER, CUDAHOSTCXX), does not exist: "
            "install it, or remove the setting"
        )
    try:
        tool = Tool(path=Path(path), version=describe_compiler(Path(path), entry=""))
    except ToolchainError as error:
        raise Unfit(error.message) from error
    return HostCompiler(tool=tool, setting=setting, prefix=prefix)


def check_host(toolkit: Toolkit, host: HostCompiler, config: Config, environ: Mapping[str, str]) -> None:
    """Raise ``Unfit`` for a host compiler that the toolkit's own headers would refuse: nothing is compiled yet."""
    values = [environ.get(name) for name in variables.names(variables.Use.NVCC_FLAGS)]
    flags = [*(value or "" for value in values), *config.cmake.args, *(value for _, value in config.cmake.define)]
    if any(UNCHECKED_HOST in text for text in flags):
        return
    vendor, _, version = host.tool.version.partition(" ")
    newest = _newest_host(toolkit.root, vendor)
    if newest is not None and major(version) > newest:
        name = {"GNU": f"{host.prefix}g++", "Clang": "clang++"}[vendor]
        installed = next((f"{name}-{n}" for n in range(newest, newest - 6, -1) if shutil.which(f"{name}-{n}")), None)
        use = f"set {host.setting.format(installed or f'{name}-{newest}')}"
        use = f"{use}, which is installed" if installed else f"install {name}-{newest} and {use}"
        raise Unfit(
            f"nvcc {toolkit.compiler.version} ({toolkit.compiler.path}) supports {vendor} up to {newest}, but the C++ "
            f"compiler is {host.tool.version} ({host.tool.path}): {use}, or use a newer CUDA toolkit"
        )


def check_host_runtime(host: HostCompiler, cxx: Tool) -> None:
    """Raise ``Unfit`` for a host compiler that links the C++ runtime into libraries.

    CMake links libraries that contain CUDA with the host compiler.
    """
    if links_runtime(host.tool.path, ()):
        raise Unfit(
            f"nvcc's host compiler {host.tool.path} links the C++ runtime (libstdc++) into each library: "
            f"{STATIC_RUNTIME}. Set {host.setting.format(cxx.path)}"
        )


def check_cmake(toolkit: Toolkit, cmake: Tool) -> Toolkit:
    """Return the toolkit. Raises ``Unfit`` if it has architectures that this CMake would not pass on."""
    families = [arch.name for arch in toolkit.archs if arch.suffix == "f"]
    if families and Version(cmake.version) < Version(FAMILIES_SINCE):
        raise Unfit(
            f"CMake {cmake.version} ({cmake.path}) does not know {', '.join(families)} ({toolkit.archs_source}): "
            f"architectures with `f` need CMake {FAMILIES_SINCE}. Put `cmake>={FAMILIES_SINCE}` into the environment's "
            "dependencies, or leave them out of `archs`"
        )
    return toolkit


def _newest_host(root: Path, vendor: str) -> int | None:
    """Return the newest major version of the compiler that ``crt/host_config.h`` accepts; None if it has no limit."""
    for folder in (
        root / "include",
        root / "targets" / "x86_64-linux" / "include",
        root / "targets" / "sbsa-linux" / "include",
    ):
        try:
            text = (folder / "crt" / "host_config.h").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if vendor == "GNU":
            match = re.search(r"^\s*#\s*if\s+__GNUC__\s*>\s*(\d+)", text, re.MULTILINE)
            return int(match[1]) if match else None
        match = re.search(r"^\s*#\s*if\s+\(__clang_major__\s*>=\s*(\d+)\)", text, re.MULTILINE)
        return int(match[1]) - 1 if match else None
    return None


def with_flags(toolkit: Toolkit, prepared: PreparedEntry) -> Toolkit:
    """Return the toolkit with the entry's architectures and flags. Raises ``Unfit`` if nvcc does not support them."""
    config = prepared.config
    supported = archs.from_nvcc(answer(toolkit.compiler.path, "--list-gpu-code", timeout=TIMEOUT))
    chosen, source = _architectures(toolkit, prepared, supported)
    refused = archs.unsupported(chosen, supported) or _refused_suffixes(toolkit, chosen)
    if refused:
        raise Unfit(
            f"nvcc {toolkit.compiler.version} ({toolkit.compiler.path}) cannot compile for "
            f"{', '.join(arch.name for arch in refused)} ({source}): it has "
            f"{', '.join(archs.Arch(number=number).name for number in supported)}. "
            + (
                f"Change `archs`, or give this CUDA its own list: `archs.{major(toolkit.version)} = [...]`"
                if config.environment
                else "Use a newer toolkit of that CUDA major (CUDA_HOME), or set TORCH_CUDA_ARCH_LIST to what it has"
            )
        )
    return replace(toolkit, archs=chosen, archs_source=source, flags=_compression(toolkit, config))


def _architectures(
    toolkit: Toolkit, prepared: PreparedEntry, supported: tuple[int, ...]
) -> tuple[tuple[archs.Arch, ...], str]:
    """Return the entry's architectures, and where they come from, in words for messages."""
    config, cuda = prepared.config, prepared.sdk.backend.version
    configured = archs.longest_match(config.archs, cuda)
    if configured is not None:
        name = f"archs.{configured[0]}" if configured[0] else "archs"
        return archs.resolve(configured[1], supported), config.archs_source or f"option `{name}`"
    of_torch = archs.resolve(archs.torch_build(cuda, prepared.environment.interpreter.machine), supported)
    chosen = archs.with_fallback(tuple(arch for arch in of_torch if arch.number in supported))
    if chosen:
        return chosen, (
            f"those of torch's wheels for CUDA {cuda} that nvcc {toolkit.version} supports, with PTX of the newest"
        )
    return archs.resolve(("all-major",), supported), f"the major ones of nvcc {toolkit.version}"


def _refused_suffixes(toolkit: Toolkit, chosen: tuple[archs.Arch, ...]) -> tuple[archs.Arch, ...]:
    """Return the architectures with ``a`` or ``f`` that nvcc refuses: its lists do not have them, so each is tried."""
    return tuple(
        arch
        for arch in chosen
        if arch.suffix
        and run(
            [toolkit.compiler.path, "--dryrun", *archs.gencode([arch]), "-x", "cu", "-E", "/dev/null"],
            check=False,
            timeout=TIMEOUT,
        ).returncode
    )


def _compression(toolkit: Toolkit, config: Config) -> tuple[str, ...]:
    if config.cuda_compress == "default":
        return ()
    if "--compress-mode" not in answer(toolkit.compiler.path, "--help", timeout=TIMEOUT):
        raise Unfit(
            f"option `cuda.compress` needs an nvcc that has `--compress-mode` (CUDA 12.8 or newer), and this one is "
            f"{toolkit.compiler.version} ({toolkit.compiler.path}): remove the option, or use a newer toolkit of CUDA "
            f"{major(toolkit.version)}"
        )
    return (f"--compress-mode={config.cuda_compress}",)


def major(version: str) -> int:
    """Return 12 for ``12.4``."""
    return int(version.split(".", maxsplit=1)[0])


def minor(version: str) -> int:
    """Return 4 for ``12.4``, 0 if there is no minor."""
    parts = version.split(".")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
