"""CUDA toolkits: looked for, checked against torch and the host compiler, and described.

Nothing here raises: whether a toolkit is needed shows only when CMake asks for CUDA. What does not fit becomes a
sentence, which ends in the remedy.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import archs
from hatch_torch_ext.errors import ProcessError
from hatch_torch_ext.process import run
from hatch_torch_ext.toolchain.tools import TIMEOUT
from hatch_torch_ext.toolchain.values import CudaToolkit, Tool
from hatch_torch_ext.toolchain.wheelroot import WheelRootError, whole_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.environments import Environment
    from hatch_torch_ext.sdk import Sdk

SYSTEM = Path("/usr/local")
"""Where NVIDIA's installers put ``cuda-X.Y``."""
FIRST_WHEEL_MAJOR = 13
"""The first CUDA whose compiler is on the package index as wheels; those for 11 and 12 lack nvcc."""
UNCHECKED_HOST = "allow-unsupported-compiler"
"""nvcc's own flag for a host compiler that it does not support."""


class Unfit(Exception):  # noqa: N818 - inside this module: becomes ``cuda_problem``
    """A toolkit cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A place where a toolkit may be: ``nvcc`` exists; ``wheels`` says that the layout is that of the nvidia wheels."""

    nvcc: Path
    source: str
    wheels: bool = False


def find(
    config: Config, environment: Environment, sdk: Sdk, host: Tool, *, work: Path
) -> tuple[CudaToolkit | None, str | None]:
    """Return the toolkit for the entry and None, or None and why there is none.

    ``host`` is the C++ compiler that nvcc would call. A toolkit that lies in wheels is made whole below ``work``.
    """
    try:
        if sdk.cuda is None:
            raise Unfit(_no_cuda_torch(sdk))
        candidate, version, nvcc = _choose(config, environment, sdk.cuda)
        root = whole_root(candidate.nvcc.parent.parent, work / "cuda") if candidate.wheels else _root(candidate.nvcc)
        toolkit = CudaToolkit(
            root=root,
            nvcc=replace(nvcc, path=root / "bin" / "nvcc" if (root / "bin" / "nvcc").exists() else nvcc.path),
            version=version,
            source=candidate.source,
            host=host.path,
            newer_minor=_minor(version) > _minor(sdk.cuda),
        )
        _check_host(toolkit, host, config)
        return _with_flags(toolkit, config, environment, sdk), None
    except WheelRootError as error:
        return None, f"{error}. {remedy(config, sdk.cuda)}"
    except Unfit as error:
        return None, str(error)


def _no_cuda_torch(sdk: Sdk) -> str:
    build = f"a ROCm build ({sdk.hip})" if sdk.hip else "a build without CUDA"
    return (
        f"CMake asks for CUDA, but torch {sdk.version} is {build}. Choose a CUDA torch for this entry, or let the "
        "CMakeLists.txt ask first: `include(CheckLanguage)`, `check_language(CUDA)`, then `enable_language(CUDA)` only "
        "`if(CMAKE_CUDA_COMPILER)`"
    )


def remedy(config: Config, cuda: str | None) -> str:
    """Return what to write, word for word, so that a compiler for CUDA ``cuda`` is there."""
    if cuda is None:
        return "Choose a CUDA torch for this entry"
    if _major(cuda) >= FIRST_WHEEL_MAJOR:
        return (
            f'Add "cuda-toolkit[nvcc,cudart,cccl]=={cuda}.*" to the dependencies of the hatch environment '
            f"`{config.environment}` (in a matrix of several CUDA versions: to the overrides of these entries), or set the "
            'option `cuda-home`, such as `cuda-home = "/usr/local/cuda-{cuda}"`'
        )
    return (
        f"The package index has no nvcc for CUDA {_major(cuda)}: install a CUDA {_major(cuda)} toolkit (or build in an "
        f'image that has one) and set the option `cuda-home`, such as `cuda-home = "/usr/local/cuda-{{cuda}}"`, or '
        "CUDA_HOME to its folder"
    )


def _choose(config: Config, environment: Environment, cuda: str) -> tuple[Candidate, str, Tool]:
    """Return the first toolkit of torch's CUDA major; among the system's, one that is not newer than torch first."""
    refused = []
    newer = None
    for candidate in _candidates(config, environment, cuda):
        tool = _describe(candidate.nvcc)
        if tool is None:
            refused.append(f"{candidate.nvcc} ({candidate.source}) does not run")
            continue
        version = ".".join(tool.version.split(".")[:2])
        found = candidate, version, tool
        if _major(version) != _major(cuda):
            refused.append(f"{candidate.nvcc} ({candidate.source}) is CUDA {version}")
        elif candidate.source == "the system" and _minor(version) > _minor(cuda):
            newer = newer or found
        else:
            return found
    if newer is not None:
        return newer
    if refused:
        raise Unfit(
            f"CMake asks for CUDA, and torch is built for CUDA {cuda}, but no nvcc of CUDA {_major(cuda)} was found: "
            f"{'; '.join(dict.fromkeys(refused))}. {remedy(config, cuda)}"
        )
    raise Unfit(f"CMake asks for CUDA, but no nvcc was found for torch's CUDA {cuda}. {remedy(config, cuda)}")


def _candidates(config: Config, environment: Environment, cuda: str) -> Iterator[Candidate]:
    name = "the entry's environment"
    for nvcc in sorted(environment.site_packages.glob("nvidia/cu*/bin/nvcc"), reverse=True):
        yield Candidate(nvcc=nvcc, source=name, wheels=True)
    if (nvcc := environment.bin / "nvcc").is_file():
        yield Candidate(nvcc=nvcc, source=name)
    if config.cuda_home is not None:
        folder = Path(config.cuda_home.format(cuda=cuda, cuda_major=_major(cuda)))
        nvcc = config.root / folder / "bin" / "nvcc"
        if not nvcc.is_file():
            raise Unfit(
                f"CMake asks for CUDA, and option `cuda-home` gives {folder} for CUDA {cuda}, but {nvcc} is not there: "
                "install that toolkit, or correct the option"
            )
        yield Candidate(nvcc=nvcc, source="option `cuda-home`")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        if home and (nvcc := Path(home) / "bin" / "nvcc").is_file():
            yield Candidate(nvcc=nvcc.absolute(), source=variable)
    yield from _system(cuda)


def _system(cuda: str) -> Iterator[Candidate]:
    exact = SYSTEM / f"cuda-{cuda}"
    others = sorted(SYSTEM.glob(f"cuda-{_major(cuda)}.*"), key=lambda path: _minor(path.name[len("cuda-") :]), reverse=True)
    for folder in (exact, *others, SYSTEM / f"cuda-{_major(cuda)}", SYSTEM / "cuda"):
        if (nvcc := folder / "bin" / "nvcc").is_file():
            yield Candidate(nvcc=nvcc, source="the system")
    if found := shutil.which("nvcc"):
        yield Candidate(nvcc=Path(found), source="the system")


def _describe(nvcc: Path) -> Tool | None:
    try:
        output = run([nvcc, "--version"], timeout=TIMEOUT).stdout
    except ProcessError:
        return None
    match = re.search(r"\bV(\d+\.\d+\.\d+)", output)
    return Tool(path=nvcc, version=match[1]) if match is not None else None


def _root(nvcc: Path) -> Path:
    """Return the real folder of the toolkit: what nvcc itself says, for it may be a script that starts another."""
    try:
        completed = run([nvcc, "--dryrun", "-x", "cu", "-E", "/dev/null"], timeout=TIMEOUT)
        match = re.search(r"^#\$ TOP=(.+)$", completed.stdout + completed.stderr, re.MULTILINE)
    except ProcessError:
        match = None
    root = Path(match[1].strip()) if match is not None else nvcc.parent.parent
    return root.resolve()


def _check_host(toolkit: CudaToolkit, host: Tool, config: Config) -> None:
    """Refuse a host compiler that the toolkit's own headers would refuse, before anything is compiled."""
    asked = (os.environ.get("NVCC_PREPEND_FLAGS"), os.environ.get("NVCC_APPEND_FLAGS"), os.environ.get("CUDAFLAGS"))
    flags = [*(value or "" for value in asked), *config.cmake.args, *(value for _, value in config.cmake.define)]
    if any(UNCHECKED_HOST in text for text in flags):
        return
    vendor, _, version = host.version.partition(" ")
    newest = _newest_host(toolkit.root, vendor)
    if newest is not None and _major(version) > newest:
        name = {"GNU": "g++", "Clang": "clang++"}[vendor]
        here = next((f"{name}-{n}" for n in range(newest, newest - 6, -1) if shutil.which(f"{name}-{n}")), None)
        use = f"set CXX={here}, which is here" if here else f"install {name}-{newest} and set CXX={name}-{newest}"
        raise Unfit(
            f"nvcc {toolkit.nvcc.version} ({toolkit.nvcc.path}) supports {vendor} up to {newest}, but the C++ compiler is "
            f"{host.version} ({host.path}): {use}, or take a newer CUDA toolkit"
        )


def _newest_host(root: Path, vendor: str) -> int | None:
    """Return the newest major version of the compiler that ``crt/host_config.h`` lets pass, None where it does not say."""
    for folder in (root / "include", root / "targets" / "x86_64-linux" / "include", root / "targets" / "sbsa-linux" / "include"):
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


def _with_flags(toolkit: CudaToolkit, config: Config, environment: Environment, sdk: Sdk) -> CudaToolkit:
    try:
        supported = archs.from_nvcc(run([toolkit.nvcc.path, "--list-gpu-code"], timeout=TIMEOUT).stdout)
    except ProcessError as error:
        raise Unfit(f"nvcc cannot say what it supports: {error}\n{error.output}") from error
    wanted, source = _wanted(toolkit, config, environment, sdk, supported)
    refused = archs.unsupported(wanted, supported) or _refused_suffixes(toolkit, wanted)
    if refused:
        raise Unfit(
            f"nvcc {toolkit.nvcc.version} ({toolkit.nvcc.path}) cannot compile for "
            f"{', '.join(arch.name for arch in refused)} ({source}): it has "
            f"{', '.join(archs.Arch(number=number).name for number in supported)}. Change `archs`, or give this CUDA "
            f'its own list: `archs.{_major(toolkit.version)} = [...]`'
        )
    return replace(toolkit, archs=wanted, archs_source=source, flags=_compression(toolkit, config))


def _wanted(
    toolkit: CudaToolkit, config: Config, environment: Environment, sdk: Sdk, supported: tuple[int, ...]
) -> tuple[tuple[archs.Arch, ...], str]:
    configured = archs.longest_match(config.archs, sdk.cuda or "")
    if configured is not None:
        name = f"archs.{configured[0]}" if configured[0] else "archs"
        return archs.resolve(configured[1], supported), f"option `{name}`"
    own = sdk.torch_archs or archs.torch_build(sdk.cuda or "", environment.interpreter.machine)
    wanted = archs.resolve(own, supported) or archs.resolve(("all-major",), supported)
    kept = tuple(arch for arch in wanted if arch.number in supported)
    return kept, f"what torch {sdk.version} is built for, as far as nvcc {toolkit.version} has it"


def _refused_suffixes(toolkit: CudaToolkit, wanted: tuple[archs.Arch, ...]) -> tuple[archs.Arch, ...]:
    """Return what nvcc refuses of those with ``a`` or ``f``: its lists leave them out, so it is asked one by one."""
    return tuple(
        arch
        for arch in wanted
        if arch.suffix
        and run(
            [toolkit.nvcc.path, "--dryrun", *archs.gencode([arch]), "-x", "cu", "-E", "/dev/null"],
            check=False,
            timeout=TIMEOUT,
        ).returncode
    )


def _compression(toolkit: CudaToolkit, config: Config) -> tuple[str, ...]:
    if config.cuda_compress is None:
        return ()
    if "--compress-mode" not in run([toolkit.nvcc.path, "--help"], timeout=TIMEOUT).stdout:
        raise Unfit(
            f"option `cuda.compress` needs an nvcc that has `--compress-mode` (CUDA 12.8 or newer), and this one is "
            f"{toolkit.nvcc.version} ({toolkit.nvcc.path}): take the option out, or take a newer toolkit of CUDA "
            f"{_major(toolkit.version)}"
        )
    return (f"--compress-mode={config.cuda_compress}",)


def _major(version: str) -> int:
    return int(version.split(".")[0])


def _minor(version: str) -> int:
    parts = version.split(".")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
