"""CUDA toolkits: looked for, checked against torch and the host compiler, and described.

Nothing here raises: whether a toolkit is needed shows only when CMake asks for CUDA. What does not fit becomes a
sentence, which ends in the remedy.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.errors import ProcessError
from hatch_torch_ext.process import answer, run
from hatch_torch_ext.toolchain.cudafit import (
    Unfit,
    check_cmake,
    check_host,
    host_compiler,
    major,
    minor,
    remedy,
    with_flags,
)
from hatch_torch_ext.toolchain.tools import TIMEOUT
from hatch_torch_ext.toolchain.values import CudaToolkit, Tool
from hatch_torch_ext.toolchain.wheelroot import WheelRootError, whole_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.environments import Environment
    from hatch_torch_ext.matrix import Entry
    from hatch_torch_ext.sdk import Sdk

SYSTEM = Path("/usr/local")
"""Where NVIDIA's installers put ``cuda-X.Y``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A place where a toolkit may be: ``nvcc`` exists; ``wheels`` says that the layout is that of the nvidia wheels."""

    nvcc: Path
    source: str
    wheels: bool = False


def find(
    entry: Entry,
    config: Config,
    environment: Environment,
    sdk: Sdk,
    *,
    cxx: Tool,
    cmake: Tool,
    work: Path,
    environ: Mapping[str, str],
) -> tuple[CudaToolkit | None, str | None]:
    """Return the toolkit for the entry and None, or None and why there is none.

    ``cxx`` is the C++ compiler, which nvcc calls too unless another is named for it. A toolkit that lies in wheels is
    made whole below ``work``.
    """
    if sdk.cuda is None:
        return None, _no_cuda_torch(entry, sdk)
    try:
        candidate, version, nvcc = _choose(config, environment, sdk.cuda, environ)
        host = host_compiler(config, cxx, environ)
        root = _root_of_wheels(candidate.nvcc, work / "cuda") if candidate.wheels else _root(candidate.nvcc)
        toolkit = CudaToolkit(
            root=root,
            nvcc=replace(nvcc, path=root / "bin" / "nvcc" if (root / "bin" / "nvcc").exists() else nvcc.path),
            version=version,
            source=candidate.source,
            host=host.path,
            newer_minor=minor(version) > minor(sdk.cuda),
        )
        check_host(toolkit, host, config, environ)
        return check_cmake(with_flags(toolkit, config, environment, sdk), cmake), None
    except WheelRootError as error:
        return None, f"{error}. {remedy(config, sdk.cuda)}"
    except (Unfit, ValueError) as error:
        return None, str(error)
    except ProcessError as error:
        return None, f"{error}: {error.output.strip() or 'no output'}. {remedy(config, sdk.cuda)}"


def no_cross(machine: str) -> str:
    """Return why an entry for another machine has no toolkit."""
    return (
        f"CMake asks for CUDA, and CUDA sources are not compiled for {machine} on another machine: build this entry on "
        f"{machine}, and join the wheels by `hatch-torch-ext merge`, or leave the CUDA sources out where "
        f"TORCH_EXT_MACHINE is `{machine}` (`include(CheckLanguage)`, `check_language(CUDA)`)"
    )


def _no_cuda_torch(entry: Entry, sdk: Sdk) -> str:
    if entry.variable("cuda") == "cpu":
        why = 'the matrix says cuda = "cpu"'
    else:
        why = f"torch {sdk.version} is " + (f"a ROCm build ({sdk.hip})" if sdk.hip else "a build without CUDA")
    return (
        f"CMake asks for CUDA, but {why}. Choose a CUDA torch for this entry, or let the "
        "CMakeLists.txt ask first: `include(CheckLanguage)`, `check_language(CUDA)`, then `enable_language(CUDA)` only "
        "`if(CMAKE_CUDA_COMPILER)`"
    )


def _choose(
    config: Config, environment: Environment, cuda: str, environ: Mapping[str, str]
) -> tuple[Candidate, str, Tool]:
    """Return the first toolkit of torch's CUDA major; among the system's, one that is not newer than torch first."""
    refused = []
    newer = None
    for candidate in _candidates(config, environment, cuda, environ):
        if not candidate.nvcc.is_file():
            refused.append(f"{candidate.nvcc} ({candidate.source}) is not there")
            continue
        tool = _describe(candidate.nvcc)
        if tool is None:
            refused.append(f"{candidate.nvcc} ({candidate.source}) does not run")
            continue
        version = ".".join(tool.version.split(".")[:2])
        found = candidate, version, tool
        if major(version) != major(cuda):
            refused.append(f"{candidate.nvcc} ({candidate.source}) is CUDA {version}")
        elif candidate.source == "the system" and minor(version) > minor(cuda):
            newer = newer or found
        else:
            return found
    if newer is not None:
        return newer
    if refused:
        raise Unfit(
            f"CMake asks for CUDA, and torch is built for CUDA {cuda}, but no nvcc of CUDA {major(cuda)} was found: "
            f"{'; '.join(dict.fromkeys(refused))}. {remedy(config, cuda)}"
        )
    raise Unfit(f"CMake asks for CUDA, but no nvcc was found for torch's CUDA {cuda}. {remedy(config, cuda)}")


def _candidates(config: Config, environment: Environment, cuda: str, environ: Mapping[str, str]) -> Iterator[Candidate]:
    name = "the entry's environment"
    for nvcc in sorted(environment.site_packages.glob("nvidia/cu*/bin/nvcc"), reverse=True):
        yield Candidate(nvcc=nvcc, source=name, wheels=True)
    if (nvcc := environment.bin / "nvcc").is_file():
        yield Candidate(nvcc=nvcc, source=name)
    if config.cuda_home is not None:
        folder = Path(config.cuda_home.format(cuda=cuda, cuda_major=major(cuda)))
        nvcc = config.root / folder / "bin" / "nvcc"
        if not nvcc.is_file():
            raise Unfit(
                f"CMake asks for CUDA, and option `cuda-home` gives {folder} for CUDA {cuda}, but {nvcc} is not there: "
                "install that toolkit, or correct the option"
            )
        yield Candidate(nvcc=nvcc, source="option `cuda-home`")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = environ.get(variable)
        if home:
            yield Candidate(nvcc=(Path(home) / "bin" / "nvcc").absolute(), source=variable)
    yield from _system(cuda)


def _system(cuda: str) -> Iterator[Candidate]:
    exact = SYSTEM / f"cuda-{cuda}"
    others = sorted(
        SYSTEM.glob(f"cuda-{major(cuda)}.*"), key=lambda path: minor(path.name[len("cuda-") :]), reverse=True
    )
    for folder in (exact, *others, SYSTEM / f"cuda-{major(cuda)}", SYSTEM / "cuda"):
        if (nvcc := folder / "bin" / "nvcc").is_file():
            yield Candidate(nvcc=nvcc, source="the system")
    if found := shutil.which("nvcc"):
        yield Candidate(nvcc=Path(found), source="the system")


def _describe(nvcc: Path) -> Tool | None:
    try:
        output = answer(nvcc, "--version", timeout=TIMEOUT)
    except ProcessError:
        return None
    match = re.search(r"\bV(\d+\.\d+\.\d+)", output)
    return Tool(path=nvcc, version=match[1]) if match is not None else None


def _root_of_wheels(nvcc: Path, root: Path) -> Path:
    if " " in str(root):
        raise Unfit(
            f"CMake cannot link with a CUDA toolkit in a folder that has spaces in its name, and the wheels' one comes "
            f"to lie in {root}: move the project to a folder without spaces"
        )
    return whole_root(nvcc.parent.parent, root)


def _root(nvcc: Path) -> Path:
    """Return the real folder of the toolkit: what nvcc itself says, for it may be a script that starts another."""
    try:
        completed = run([nvcc, "--dryrun", "-x", "cu", "-E", "/dev/null"], timeout=TIMEOUT)
        match = re.search(r"^#\$ TOP=(.+)$", completed.stdout + completed.stderr, re.MULTILINE)
    except ProcessError:
        match = None
    root = Path(match[1].strip()) if match is not None else nvcc.parent.parent
    return root.resolve()
