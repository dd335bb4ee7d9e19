"""CUDA toolkits: found, assembled where a wheel has one, checked against torch and the host compiler, and described.

Nothing here raises: only CMake shows whether a toolkit is needed. A toolkit that does not fit becomes a sentence that
ends with the remedy.
"""

from __future__ import annotations

import platform
import re
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import atomic, untrusted
from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.base.process import answer, run
from hatch_torch_ext.toolchain.cudafit import (
    FIRST_WHEEL_MAJOR,
    Unfit,
    check_cmake,
    check_host,
    check_host_runtime,
    host_compiler,
    host_setting,
    major,
    minor,
    remedy,
    with_flags,
)
from hatch_torch_ext.toolchain.tools import TIMEOUT
from hatch_torch_ext.values import Tool, Toolkit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values import CrossTarget, Entry, Environment, Sdk

PROGRAMS = (("bin/cudafe++", "nvcc"), ("nvvm/bin/cicc", "nvcc"))
HEADERS = (
    ("include/crt/host_config.h", "nvcc"),
    ("include/cuda_runtime.h", "cudart"),
    ("lib/libcudart.so.*", "cudart"),
)
WHOLE = (*PROGRAMS, *HEADERS, ("include/nv/target", "cccl"))
"""(a required file, the extra of ``cuda-toolkit`` that installs it)."""


class WheelRootError(Exception):
    """Parts are missing; the text names them."""


def whole_root(wheels: Path, root: Path) -> Path:
    """Fill ``root`` with links to the toolkit in ``wheels`` (``…/nvidia/cu13``) and return it; correct links stay.

    Raises ``WheelRootError`` if a part is missing.
    """
    _check(f"the CUDA toolkit in {wheels}", WHOLE, [wheels])
    _programs(wheels, root)
    _libraries([wheels], root)
    _link(root / "include", wheels / "include")
    return root


def cross_root(toolkit: Path, parts: Sequence[Path], machine: str, root: Path, *, wheels: bool) -> Path:
    """Fill ``root`` with links to the programs of ``toolkit``, and to the files of ``machine`` in ``parts``; return it.

    ``wheels`` says that the toolkit is from wheels. Raises ``WheelRootError`` if a part is missing.
    """
    _check(f"the CUDA toolkit in {toolkit}", WHOLE if wheels else PROGRAMS, [toolkit])
    _check(f"the part for {machine} of the CUDA toolkit in {toolkit}", HEADERS, parts)
    _programs(toolkit, root)
    _libraries(parts, root)
    _merge(root / "include", [folder for part in parts if (folder := part / "include").is_dir()])
    return root


def host_script(compiler: Tool, words: Sequence[str], script: Path) -> Path:
    """Write a script that calls ``compiler`` with ``words`` first, and return it.

    A compiler cache reads the script as nvcc's host compiler: it names the version, so that it changes with it.

    nvcc asks the host compiler for its target without the flags of ``-Xcompiler``: if ``--target`` were one of these,
    nvcc would use the types of this machine.
    """
    text = f'#!/bin/sh\n# {compiler.version}\nexec {shlex.join([str(compiler.path), *words])} "$@"\n'
    return atomic.update(script, text, executable=True)


def _check(name: str, pieces: Sequence[tuple[str, str]], folders: Sequence[Path]) -> None:
    missing = sorted(
        {f"{path} ({extra})" for path, extra in pieces if not any(any(folder.glob(path)) for folder in folders)}
    )
    if missing:
        raise WheelRootError(f"{name} is incomplete: it lacks {', '.join(missing)}")


def _programs(toolkit: Path, root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    # Real folders with a link for each file: nvcc searches for its parts relative to `..` of its own folder.
    _link_files(root / "bin", {path.name: path for path in (toolkit / "bin").iterdir()})
    _link(root / "nvvm", toolkit / "nvvm")


def _libraries(parts: Sequence[Path], root: Path) -> None:
    folders = [folder for part in parts if (folder := part / "lib").is_dir()]
    libraries = {path.name: path for folder in folders for path in folder.iterdir()}
    for name in sorted(libraries):
        stem, so, _ = name.partition(".so.")
        if so:
            libraries.setdefault(f"{stem}.so", libraries[name])
    _link_files(root / "lib64", libraries)
    _link(root / "lib", root / "lib64")


def _merge(folder: Path, sources: Sequence[Path]) -> None:
    """Fill ``folder`` with links to the contents of ``sources``; a folder that several have becomes a real one."""
    found: dict[str, list[Path]] = {}
    for source in sources:
        for path in source.iterdir():
            found.setdefault(path.name, []).append(path)
    folder.mkdir(exist_ok=True)
    merged = {name for name, paths in found.items() if len(paths) > 1 and all(path.is_dir() for path in paths)}
    for path in folder.iterdir():
        if path.is_symlink() and (path.name not in found or path.name in merged):
            path.unlink()
        elif not path.is_symlink() and path.name not in merged:
            shutil.rmtree(path)
    for name, paths in found.items():
        if name in merged:
            _merge(folder / name, paths)
        else:
            _link(folder / name, paths[0])


def _link_files(folder: Path, files: Mapping[str, Path]) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, target in files.items():
        _link(folder / name, target)


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


SYSTEM = Path("/usr/local")
"""The folder in which NVIDIA's installers put ``cuda-X.Y``."""
TARGETS = {"aarch64": "sbsa-linux"}
"""Machine -> the folder in a toolkit's ``targets`` with the files for compiling for servers of that machine."""


VARIABLES = ("CUDA_HOME", "CUDA_PATH")
SYSTEMS = "the system"
"""The source of a toolkit that no option and no variable names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A place where a toolkit may be: ``nvcc`` exists; ``wheels`` says that it has the layout of NVIDIA's wheels."""

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
    target: CrossTarget | None = None,
) -> tuple[Toolkit | None, str | None]:
    """Return the toolkit for the entry and None, or None and the reason.

    ``cxx`` is the C++ compiler; nvcc calls it too unless another is named for it. A toolkit from wheels, or for another
    machine (``target``), is assembled below ``work``.
    """
    if not sdk.backend.is_gpu:
        return None, _no_cuda_torch(entry, sdk)
    try:
        candidate, version, nvcc = _choose(config, environment, sdk.backend.version, environ)
        if target is not None:
            host = _cross_host(config, entry, cxx, target, work)
            root = _cross_root(candidate, version, sdk, target, work)
        else:
            host = host_compiler(config, cxx, environ)
            root = _root_of_wheels(candidate.nvcc, work / "cuda") if candidate.wheels else _root(candidate.nvcc)
        toolkit = Toolkit(
            root=root,
            compiler=replace(nvcc, path=root / "bin" / "nvcc" if (root / "bin" / "nvcc").exists() else nvcc.path),
            version=version,
            source=candidate.source,
            host=host.path,
            newer_minor=minor(version) > minor(sdk.backend.version),
        )
        named = environ if target is None else dict(entry.env_vars)
        setting = host_setting(config, named, target)
        check_host(toolkit, host, config, environ, target, setting=setting)
        if target is None and host.path != cxx.path and "static-runtime" not in config.ignore:
            check_host_runtime(host, cxx, setting=setting)
        return check_cmake(with_flags(toolkit, config, environment, sdk), cmake), None
    except WheelRootError as error:
        return None, f"{error}. {remedy(config, sdk.backend.version)}"
    except (Unfit, ValueError) as error:
        return None, str(error)
    except ProcessError as error:
        return None, f"{error}: {error.output.strip() or 'no output'}. {remedy(config, sdk.backend.version)}"


def _no_cuda_torch(entry: Entry, sdk: Sdk) -> str:
    if entry.is_cpu:
        why = 'the matrix says cuda = "cpu"'
    else:
        why = f"torch {sdk.version} is " + (f"a build for {sdk.foreign}" if sdk.foreign else "a build without CUDA")
    return (
        f"CMake asks for CUDA, but {why}. Choose a CUDA torch for this entry, or let the "
        "CMakeLists.txt ask first: `include(CheckLanguage)`, `check_language(CUDA)`, then `enable_language(CUDA)` only "
        "`if(CMAKE_CUDA_COMPILER)`"
    )


def _choose(
    config: Config, environment: Environment, cuda: str, environ: Mapping[str, str]
) -> tuple[Candidate, str, Tool]:
    """Return the first toolkit of torch's CUDA major; among the system's, one not newer than torch is preferred."""
    refused: list[str] = []
    newer = None
    for candidate in _candidates(config, environment, cuda, environ):
        if not untrusted.is_file(candidate.nvcc):
            refused.append(f"{candidate.nvcc} ({candidate.source}) does not exist")
            continue
        tool = _describe(candidate.nvcc)
        if tool is None:
            refused.append(f"{candidate.nvcc} ({candidate.source}) does not run")
            continue
        version = ".".join(tool.version.split(".")[:2])
        found = _in_place_of(candidate, refused), version, tool
        if major(version) != major(cuda):
            refused.append(f"{candidate.nvcc} ({candidate.source}) is CUDA {version}")
        elif candidate.source == SYSTEMS and minor(version) > minor(cuda):
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


def _in_place_of(candidate: Candidate, refused: Sequence[str]) -> Candidate:
    """Return the toolkit; of the system's, the source says which variable names one that does not serve."""
    named = [why for why in refused if any(f"({variable})" in why for variable in VARIABLES)]
    if candidate.source != SYSTEMS or not named:
        return candidate
    return replace(candidate, source=f"{SYSTEMS}, as {' and '.join(named)}")


def _candidates(config: Config, environment: Environment, cuda: str, environ: Mapping[str, str]) -> Iterator[Candidate]:
    name = "the entry's environment"
    for nvcc in sorted(environment.site_packages.glob("nvidia/cu*/bin/nvcc"), reverse=True):
        yield Candidate(nvcc=nvcc, source=name, wheels=True)
    if untrusted.is_file(nvcc := environment.bin / "nvcc"):
        yield Candidate(nvcc=nvcc, source=name)
    if config.cuda_home is not None:
        folder = Path(config.cuda_home.format(cuda=cuda, cuda_major=major(cuda)))
        nvcc = config.root / folder / "bin" / "nvcc"
        if not untrusted.is_file(nvcc):
            raise Unfit(
                f"CMake asks for CUDA, and option `cuda-home` gives {folder} for CUDA {cuda}, but {nvcc} does not "
                "exist: install that toolkit, or correct the option"
            )
        yield Candidate(nvcc=nvcc, source="option `cuda-home`")
    for variable in VARIABLES:
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
        if untrusted.is_file(nvcc := folder / "bin" / "nvcc"):
            yield Candidate(nvcc=nvcc, source=SYSTEMS)
    if found := shutil.which("nvcc"):
        yield Candidate(nvcc=Path(found), source=SYSTEMS)


def _describe(nvcc: Path) -> Tool | None:
    try:
        output = answer(nvcc, "--version", timeout=TIMEOUT)
    except ProcessError:
        return None
    match = re.search(r"\bV(\d+\.\d+\.\d+)", output)
    return Tool(path=nvcc, version=match[1]) if match is not None else None


def _root_of_wheels(nvcc: Path, root: Path) -> Path:
    _check_spaces(root, "the wheels' one")
    return whole_root(nvcc.parent.parent, root)


def _check_spaces(root: Path, what: str) -> None:
    if " " in str(root):
        raise Unfit(
            f"CMake cannot link with a CUDA toolkit in a folder that has spaces in its name, and {what} would be "
            f"in {root}: move the project to a folder without spaces"
        )


def _cross_host(config: Config, entry: Entry, cxx: Tool, target: CrossTarget, work: Path) -> Tool:
    """Return the C++ compiler that nvcc calls; that of the process (CUDAHOSTCXX) is for this machine."""
    host = host_compiler(config, cxx, dict(entry.env_vars))
    words = [*target.flags, *([f"--sysroot={target.sysroot}"] if target.sysroot is not None else [])]
    if host is not cxx or not words:
        return host
    return replace(cxx, path=host_script(cxx, words, work / f"c++-{target.machine}"))


def _cross_root(candidate: Candidate, version: str, sdk: Sdk, target: CrossTarget, work: Path) -> Path:
    """Return a toolkit with the headers and libraries for ``target``'s machine."""
    if platform.machine() != "x86_64" or target.machine not in TARGETS:
        raise Unfit(
            f"CMake asks for CUDA, and NVIDIA has no CUDA toolkit that compiles for {target.machine} on "
            f"{platform.machine()}: build this entry on {target.machine}, and join the wheels by `hatch-torch-ext "
            "merge`"
        )
    root = work / f"cuda-{target.machine}"
    _check_spaces(root, f"the one for {target.machine}")
    if candidate.wheels:
        toolkit = candidate.nvcc.parent.parent
        parts = [part / "nvidia" / toolkit.name for part in sdk.toolkit_parts]
    else:
        toolkit = _root(candidate.nvcc)
        parts = [toolkit / "targets" / TARGETS[target.machine]]
        if not parts[0].is_dir():
            raise Unfit(
                f"CMake asks for CUDA, and the CUDA {version} toolkit in {toolkit} ({candidate.source}) does not "
                f"compile for {target.machine}: it has no {parts[0]}. {_how_to_cross(version)}"
            )
    try:
        return cross_root(toolkit, parts, target.machine, root, wheels=candidate.wheels)
    except WheelRootError as error:
        if candidate.wheels:
            raise
        raise Unfit(f"{error}. {_how_to_cross(version)}") from error


def _how_to_cross(version: str) -> str:
    sbsa = f"cuda-cross-sbsa-{version.replace('.', '-')}"
    wheels = (
        f'add "cuda-toolkit[nvcc,cudart,cccl]=={version}.*" to the dependencies of the hatch environment, or '
        if major(version) >= FIRST_WHEEL_MAJOR
        else ""
    )
    return (
        f"What to do: {wheels}install `{sbsa}` (NVIDIA's repository `cross-linux-sbsa` for apt), or, in a conda "
        f"environment, `conda install -c conda-forge cuda-cudart-dev_linux-aarch64 cuda-crt-dev_linux-aarch64 "
        f"cuda-cccl_linux-aarch64 cuda-version={version}`"
    )


def _root(nvcc: Path) -> Path:
    """Return the real folder of the toolkit, as nvcc states it: nvcc may be a script that starts another."""
    try:
        completed = run([nvcc, "--dryrun", "-x", "cu", "-E", "/dev/null"], timeout=TIMEOUT)
        match = re.search(r"^#\$ TOP=(.+)$", completed.stdout + completed.stderr, re.MULTILINE)
    except ProcessError:
        match = None
    root = Path(match[1].strip()) if match is not None else nvcc.parent.parent
    return root.resolve()
