"""The CUDA toolkit of an entry: found, assembled if it is from wheels, and checked.

``find`` raises no error, since only CMake shows whether a toolkit is needed: it returns the reason why there is none,
and the remedy.
"""

from __future__ import annotations

import os
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
from hatch_torch_ext.toolchain.crosscompiler import flags_for
from hatch_torch_ext.toolchain.cudafit import (
    FIRST_WHEEL_MAJOR,
    Unfit,
    check_cmake,
    check_host,
    check_host_runtime,
    host_compiler,
    major,
    minor,
    remedy,
    with_flags,
)
from hatch_torch_ext.toolchain.tools import TIMEOUT
from hatch_torch_ext.values import Tool, Toolkit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hatch_torch_ext.toolchain.cudafit import HostCompiler
    from hatch_torch_ext.values import CrossTarget, PreparedEntry

PROGRAMS = (("bin/cudafe++", "nvcc"), ("nvvm/bin/cicc", "nvcc"))
HEADERS = (
    ("include/crt/host_config.h", "nvcc"),
    ("include/cuda_runtime.h", "cudart"),
    ("lib/libcudart.so.*", "cudart"),
)
WHOLE = (*PROGRAMS, *HEADERS, ("include/nv/target", "cccl"))
"""(a required file, the extra of ``cuda-toolkit`` that installs it)."""


class IncompleteToolkitError(Exception):
    """A toolkit lacks parts, which the text names."""


def whole_root(wheels: Path, root: Path) -> Path:
    """Fill ``root`` with links to the toolkit in ``wheels`` (``…/nvidia/cu13``), and return it.

    Raises ``IncompleteToolkitError`` if a part is missing.
    """
    _check(f"the CUDA toolkit in {wheels}", WHOLE, [wheels])
    _programs(wheels, root)
    _libraries([wheels], root)
    _link(root / "include", wheels / "include")
    return root


def cross_root(toolkit: Path, parts: Sequence[Path], machine: str, root: Path, *, wheels: bool) -> Path:
    """Fill ``root`` with links to the programs of ``toolkit`` and to the files of ``machine`` in ``parts``; return it.

    ``wheels`` is True if the toolkit is from wheels. Raises ``IncompleteToolkitError`` if a part is missing.
    """
    _check(f"the CUDA toolkit in {toolkit}", WHOLE if wheels else PROGRAMS, [toolkit])
    _check(f"the part for {machine} of the CUDA toolkit in {toolkit}", HEADERS, parts)
    _programs(toolkit, root)
    _libraries(parts, root)
    _merge(root / "include", [folder for part in parts if (folder := part / "include").is_dir()])
    return root


def host_script(compiler: Tool, words: Sequence[str], script: Path) -> Path:
    """Write a script that calls ``compiler`` with ``words`` as its first arguments, and return the path of the script.

    The script is nvcc's host compiler. nvcc queries the host compiler's target without the flags of ``-Xcompiler``: if
    ``--target`` were among these, nvcc would use the types of this machine.
    """
    # A compiler cache hashes the script, so the script has the version, and changes with the compiler.
    text = f'#!/bin/sh\n# {compiler.version}\nexec {shlex.join([str(compiler.path), *words])} "$@"\n'
    return atomic.update(script, text, executable=True)


def _check(name: str, required: Sequence[tuple[str, str]], folders: Sequence[Path]) -> None:
    missing = sorted(
        {f"{path} ({extra})" for path, extra in required if not any(any(folder.glob(path)) for folder in folders)}
    )
    if missing:
        raise IncompleteToolkitError(f"{name} is incomplete: it lacks {', '.join(missing)}")


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
    """Fill ``folder`` with links to the contents of ``sources``; a folder that several of them have is merged too."""
    contents: dict[str, list[Path]] = {}
    for source in sources:
        for path in source.iterdir():
            contents.setdefault(path.name, []).append(path)
    folder.mkdir(exist_ok=True)
    shared = {name for name, paths in contents.items() if len(paths) > 1 and all(path.is_dir() for path in paths)}
    for path in folder.iterdir():
        if path.is_symlink() and (path.name not in contents or path.name in shared):
            path.unlink()
        elif not path.is_symlink() and path.name not in shared:
            shutil.rmtree(path)
    for name, paths in contents.items():
        if name in shared:
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
FROM_SYSTEM = "the system"
"""The source of a toolkit that no option and no variable names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A path at which a toolkit's nvcc may be; ``wheels`` is True if its folders are as in NVIDIA's wheels."""

    nvcc: Path
    source: str
    wheels: bool = False


def find(
    prepared: PreparedEntry, *, cxx: Tool, cmake: Tool, target: CrossTarget | None
) -> tuple[Toolkit | None, str | None]:
    """Return the toolkit for the entry and None, or None and the reason.

    ``cxx`` is the C++ compiler; nvcc calls it too unless another is named for it. A toolkit from wheels, or for another
    machine (``target``), is assembled in the entry's work folder.
    """
    cuda = prepared.sdk.backend.version
    if not prepared.sdk.backend.is_gpu:
        return None, _no_cuda_torch(prepared)
    try:
        return check_cmake(_find_fitting(prepared, cxx, target), cmake), None
    except IncompleteToolkitError as error:
        return None, f"{error}. {remedy(prepared.config, cuda)}"
    except (Unfit, ValueError) as error:
        return None, str(error)
    except ProcessError as error:
        return None, f"{error}: {error.output.strip() or 'no output'}. {remedy(prepared.config, cuda)}"


def _find_fitting(prepared: PreparedEntry, cxx: Tool, target: CrossTarget | None) -> Toolkit:
    """Return a toolkit that fits the entry's torch, its host compiler and its architectures.

    Raises ``Unfit``, ``IncompleteToolkitError``, ``ProcessError``, or ``ValueError`` for an architecture.
    """
    config = prepared.config
    environ = prepared.entry.environ(os.environ)
    candidate, version, nvcc = _choose(prepared, environ)
    if target is None:
        host = host_compiler(config, cxx, environ)
        root = _root_of_wheels(candidate.nvcc, prepared.folder) if candidate.wheels else _root(candidate.nvcc)
    else:
        host = _cross_host(prepared, cxx, target)
        root = _cross_root(candidate, version, prepared, target)
    toolkit = Toolkit(
        root=root,
        compiler=replace(nvcc, path=root / "bin" / "nvcc" if (root / "bin" / "nvcc").exists() else nvcc.path),
        version=version,
        source=candidate.source,
        host=host.tool.path,
        newer_minor=minor(version) > minor(prepared.sdk.backend.version),
    )
    check_host(toolkit, host, config, environ)
    if target is None and host.tool.path != cxx.path and "static-runtime" not in config.ignore:
        check_host_runtime(host, cxx)
    return with_flags(toolkit, prepared)


def _no_cuda_torch(prepared: PreparedEntry) -> str:
    sdk = prepared.sdk
    if prepared.entry.is_cpu:
        why = 'the matrix says cuda = "cpu"'
    else:
        why = f"torch {sdk.version} is " + (f"a build for {sdk.foreign}" if sdk.foreign else "a build without CUDA")
    return (
        f"CMake asks for CUDA, but {why}. Choose a CUDA torch for this entry, or let the CMakeLists.txt check for CUDA "
        "first: `include(CheckLanguage)`, `check_language(CUDA)`, then `enable_language(CUDA)` only "
        "`if(CMAKE_CUDA_COMPILER)`"
    )


def _choose(prepared: PreparedEntry, environ: Mapping[str, str]) -> tuple[Candidate, str, Tool]:
    """Return the first toolkit of torch's CUDA major, its version (``12.8``), and its nvcc.

    Among the toolkits of the system, one that is not newer than torch's CUDA is preferred.
    """
    config, cuda = prepared.config, prepared.sdk.backend.version
    refused: list[str] = []
    newer = None
    for candidate in _candidates(prepared, environ):
        if not untrusted.is_file(candidate.nvcc):
            refused.append(f"{candidate.nvcc} ({candidate.source}) does not exist")
            continue
        tool = _describe(candidate.nvcc)
        if tool is None:
            refused.append(f"{candidate.nvcc} ({candidate.source}) does not run")
            continue
        version = ".".join(tool.version.split(".")[:2])
        found = _with_reason(candidate, refused), version, tool
        if major(version) != major(cuda):
            refused.append(f"{candidate.nvcc} ({candidate.source}) is CUDA {version}")
        elif candidate.source == FROM_SYSTEM and minor(version) > minor(cuda):
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


def _with_reason(candidate: Candidate, refused: Sequence[str]) -> Candidate:
    """Return the candidate; if it is from the system although a variable names another, its source has the reason."""
    named = [why for why in refused if any(f"({variable})" in why for variable in VARIABLES)]
    if candidate.source != FROM_SYSTEM or not named:
        return candidate
    return replace(candidate, source=f"{FROM_SYSTEM}, as {' and '.join(named)}")


def _candidates(prepared: PreparedEntry, environ: Mapping[str, str]) -> Iterator[Candidate]:
    config, environment, cuda = prepared.config, prepared.environment, prepared.sdk.backend.version
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
            yield Candidate(nvcc=nvcc, source=FROM_SYSTEM)
    if found := shutil.which("nvcc"):
        yield Candidate(nvcc=Path(found), source=FROM_SYSTEM)


def _describe(nvcc: Path) -> Tool | None:
    try:
        output = answer(nvcc, "--version", timeout=TIMEOUT)
    except ProcessError:
        return None
    match = re.search(r"\bV(\d+\.\d+\.\d+)", output)
    return Tool(path=nvcc, version=match[1]) if match is not None else None


def _root_of_wheels(nvcc: Path, work: Path) -> Path:
    root = work / "cuda"
    _check_spaces(root, "the one from wheels")
    return whole_root(nvcc.parent.parent, root)


def _check_spaces(root: Path, what: str) -> None:
    if " " in str(root):
        raise Unfit(
            f"CMake cannot link with a CUDA toolkit in a folder that has spaces in its name, and {what} would be "
            f"in {root}: move the project to a folder without spaces"
        )


def _cross_host(prepared: PreparedEntry, cxx: Tool, target: CrossTarget) -> HostCompiler:
    """Return the C++ compiler that nvcc calls; CUDAHOSTCXX of the process does not count, as it is for this machine."""
    host = host_compiler(prepared.config, cxx, dict(prepared.entry.env_vars), target)
    words = flags_for(target)
    if host.tool is not cxx or not words:
        return host
    script = host_script(cxx, words, prepared.folder / f"c++-{target.machine}")
    return replace(host, tool=replace(cxx, path=script))


def _cross_root(candidate: Candidate, version: str, prepared: PreparedEntry, target: CrossTarget) -> Path:
    """Return a toolkit with the headers and libraries for ``target``'s machine."""
    if platform.machine() != "x86_64" or target.machine not in TARGETS:
        raise Unfit(
            f"CMake asks for CUDA, and NVIDIA has no CUDA toolkit that compiles for {target.machine} on "
            f"{platform.machine()}: build this entry on {target.machine}, and join the wheels by `hatch-torch-ext "
            "merge`"
        )
    root = prepared.folder / f"cuda-{target.machine}"
    _check_spaces(root, f"the one for {target.machine}")
    if candidate.wheels:
        toolkit = candidate.nvcc.parent.parent
        parts = [part / "nvidia" / toolkit.name for part in prepared.sdk.toolkit_parts]
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
    except IncompleteToolkitError as error:
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
    """Return the real folder of the toolkit, as nvcc prints it: nvcc may be a script that starts another one."""
    try:
        completed = run([nvcc, "--dryrun", "-x", "cu", "-E", "/dev/null"], timeout=TIMEOUT)
        match = re.search(r"^#\$ TOP=(.+)$", completed.stdout + completed.stderr, re.MULTILINE)
    except ProcessError:
        match = None
    root = Path(match[1].strip()) if match is not None else nvcc.parent.parent
    return root.resolve()
