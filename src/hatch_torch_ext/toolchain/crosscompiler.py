"""Compilers for another machine: which one is used, whether it works, and with which flags it is called."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import elf
from hatch_torch_ext.base.errors import ElfError, ProcessError, ToolchainError
from hatch_torch_ext.base.process import run
from hatch_torch_ext.facts import variables
from hatch_torch_ext.facts.labels import MACHINES
from hatch_torch_ext.facts.variables import Use
from hatch_torch_ext.toolchain import tools
from hatch_torch_ext.values import CrossTarget, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hatch_torch_ext.config import Config, Cross
    from hatch_torch_ext.values import Entry

VENDORS = ("", "unknown-", "redhat-", "suse-", "conda-")
"""The middle of the names of cross compilers, between machine and system: Debian and Arch, crosstool-NG, others."""
PACKAGES = {
    "alpine": "no package: name a compiler by the option `cross.{machine}.cxx`",
    "arch": "`pacman -S {machine}-linux-gnu-gcc`",
    "debian": "`apt-get install g++-{debian}-linux-gnu`",
    "fedora": "`dnf install gcc-c++-{machine}-linux-gnu` installs no C library: install clang, and name a "
    "sysroot by the option `cross.{machine}.sysroot`",
    "suse": "`zypper install cross-{machine}-gcc13`",
}
"""ID or ID_LIKE of /etc/os-release -> the command that installs a cross compiler."""
_HOST, _TO_HOST = ("-ccbin", "--compiler-bindir"), ("-Xcompiler", "--compiler-options")
"""nvcc's arguments that name its host compiler, and those that pass flags to it."""
PROBE = (
    "#include <string>\n#include <cmath>\nstd::string torch_ext(double x) { return std::to_string(std::sqrt(x)); }\n"
)


def compiler(entry: Entry, config: Config, machine: str, *, environ: Mapping[str, str]) -> tuple[Tool, CrossTarget]:
    """Return the C++ compiler for ``machine``, and how it is called. Raises ``ToolchainError``.

    The option `cross.<machine>.cxx` comes first, then ``CXX`` of the entry's hatch environment, then the compilers of
    the GNU toolchain by their usual names, then Clang, if it has a sysroot. ``CXX`` of the process is for this machine.
    """
    options = config.cross_for(machine)
    named = options.cxx or dict(entry.env_vars).get("CXX")
    names = [named] if named else _names(machine)
    sysroot = _sysroot(entry, options)
    for path, flags in filter(None, map(_program, names)):
        tool = Tool(path=path, version=tools.describe_compiler(path, *flags, entry=entry.name))
        if not tool.version.startswith("Clang"):
            return tool, _target(entry, options, tool, flags, sysroot)
        if named or sysroot is not None or _usual_sysroot(machine).is_dir():
            return tool, _target(entry, options, tool, (*flags, f"--target={machine}-linux-gnu"), sysroot)
    looked_for = f"looked for {', '.join(names)} on PATH"
    missing = f"the compiler `{named}` {_is_missing(named)}" if named else looked_for
    raise ToolchainError(
        entry.name,
        f"no C++ compiler for {machine} was found ({missing}). Install one: {_how_to_install(machine, environ)}, or "
        f"name one by the option `cross.{machine}.cxx`",
    )


def _target(entry: Entry, options: Cross, tool: Tool, flags: tuple[str, ...], sysroot: Path | None) -> CrossTarget:
    """Return how the compiler is called. Raises ``ToolchainError`` if it does not compile for the machine."""
    machine = options.machine
    if (why := _unfit(tool.path, flags, sysroot, machine)) is not None:
        raise ToolchainError(
            entry.name,
            f"{tool.version} ({tool.path}) does not compile for {machine}: {why}\nName another compiler by the "
            f"option `cross.{machine}.cxx`, or its sysroot by `cross.{machine}.sysroot`"
            + (f" (it is {sysroot} now)" if sysroot is not None else ""),
        )
    cc, cc_flags = _named_cc(entry, options) or (_c_compiler(tool.path), ())
    libraries = _libraries(tool.path, flags) if sysroot is None else None
    usual = _usual_sysroot(machine)
    return CrossTarget(
        machine=machine,
        cc=cc,
        cc_flags=cc_flags,
        flags=flags,
        sysroot=sysroot,
        libraries=libraries,
        emulator=emulator(machine, sysroot or libraries or (usual if usual.is_dir() else None)),
    )


def flags_for(target: CrossTarget) -> tuple[str, ...]:
    """Return the flags that come before all others of the compiler: those for the machine, and the sysroot."""
    return (*target.flags, *([f"--sysroot={target.sysroot}"] if target.sysroot is not None else []))


def programs(machine: str | None) -> tuple[str, ...]:
    """Return the names of the programs that are searched for on PATH to compile for ``machine``."""
    return (*_names(machine), f"qemu-{machine}", f"qemu-{machine}-static") if machine is not None else ()


def emulator(machine: str, root: Path | None) -> tuple[str, ...]:
    """Return the command that runs programs for ``machine`` here, with the C library below ``root``; else nothing."""
    program = next(filter(None, map(shutil.which, (f"qemu-{machine}", f"qemu-{machine}-static"))), None)
    if program is None:
        return ()
    return (program, "-L", str(root)) if root is not None else (program,)


def binutil(name: str, tool: Tool, machine: str) -> Path | None:
    """Return the binutils program (``strip``) for files of ``machine``, or None."""
    names = (f"{machine}-{vendor}linux-gnu-{name}" for vendor in VENDORS)
    path = next(filter(None, map(shutil.which, (*names, f"llvm-{name}"))), None)
    return Path(path) if path is not None else tools.binutil(tool.path, name)


def without_refused_flags(
    entry: Entry, tool: Tool, target: CrossTarget, *, environ: Mapping[str, str], report: Callable[[str], None]
) -> CrossTarget:
    """Return ``target`` with the flags of the process, without those that its compiler refuses; these are reported.

    Flags in the entry's hatch environment were written for the entry, and stay.
    """
    changed = []
    of_nvcc = variables.names(Use.NVCC_FLAGS)
    for name in (*variables.names(Use.FLAGS), *of_nvcc):
        text = environ.get(name, "") if name not in dict(entry.env_vars) else ""
        split = _split_nvcc_flags if name in of_nvcc else _split_flags
        kept, dropped = split(shlex.split(text), lambda flag: _accepts(tool.path, target.flags, flag))
        if dropped:
            changed.append((name, shlex.join(kept)))
            report(f"{name}: {' '.join(dropped)} is not for {target.machine}, and is left out here")
    return replace(target, variables=tuple(changed))


def _split_flags(flags: Sequence[str], accepts: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Return the flags that stay, and those for a processor that the compiler refuses."""
    dropped = [flag for flag in flags if flag.startswith("-m") and not accepts(flag)]
    return [flag for flag in flags if flag not in dropped], dropped


def _split_nvcc_flags(flags: Sequence[str], accepts: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Return the same for nvcc's flags, of which those are dropped too that name a host compiler."""
    kept: list[str] = []
    dropped: list[str] = []
    rest = iter(flags)
    for flag in rest:
        option, equals, value = flag.partition("=")
        if option not in {*_HOST, *_TO_HOST}:
            kept.append(flag)
            continue
        value = value if equals else next(rest, "")
        if option in _HOST:
            dropped.append(f"{option}={value}")
            continue
        accepted, refused = _split_flags(value.split(","), accepts)
        dropped += refused
        kept += [f"{option}={','.join(accepted)}"] if accepted else []
    return kept, dropped


def _names(machine: str) -> list[str]:
    return [*(f"{machine}-{vendor}linux-gnu-g++" for vendor in VENDORS), "clang++"]


def _usual_sysroot(machine: str) -> Path:
    return Path(f"/usr/{machine}-linux-gnu")


def _program(command: str) -> tuple[Path, tuple[str, ...]] | None:
    """Return the compiler that a command names, and its arguments; None if it is not there."""
    words = tools.command(command)
    path = shutil.which(words[0]) if words else None
    return None if path is None else (Path(path), tuple(words[1:]))


def _is_missing(program: str) -> str:
    return "does not exist" if "/" in program else "is not on PATH"


def _named_cc(entry: Entry, options: Cross) -> tuple[Path, tuple[str, ...]] | None:
    """Return the C compiler of the option `cross.<machine>.cc` and its flags, or None if the option is not set."""
    if options.cc is None:
        return None
    if (found := _program(options.cc)) is None:
        named = next(iter(tools.command(options.cc)), options.cc)
        raise ToolchainError(
            entry.name,
            f"option `cross.{options.machine}.cc` names `{named}`, which {_is_missing(named)}: correct it, or remove "
            "it to use the C compiler beside the C++ compiler",
        )
    return found


def _c_compiler(cxx: Path) -> Path | None:
    """Return the C compiler in the folder of a C++ compiler, by its name; None if there is none."""
    for old, new in (("clang++", "clang"), ("g++", "gcc"), ("c++", "cc")):
        head, found, tail = cxx.name.rpartition(old)
        if found and (path := cxx.with_name(f"{head}{new}{tail}")).is_file():
            return path
    return None


@cache
def _libraries(path: Path, flags: tuple[str, ...]) -> Path | None:
    """Return ``/usr/aarch64-linux-gnu`` for Debian's compilers, which has the C library in ``lib``, else None."""
    try:
        output = run([path, *flags, "-print-file-name=libc.so"], timeout=tools.TIMEOUT).stdout.strip()
    except ProcessError:
        return None
    library = Path(os.path.normpath(output))
    root = library.parent.parent
    return root if library == root / "lib" / "libc.so" and library.is_file() and root != Path("/usr") else None


def _sysroot(entry: Entry, options: Cross) -> Path | None:
    """Return the folder of the option `cross.<machine>.sysroot`. Raises ``ToolchainError`` if it is not a sysroot."""
    if options.sysroot is None:
        return None
    folder, machine = Path(options.sysroot), options.machine
    if (why := _no_sysroot(folder, machine)) is not None:
        raise ToolchainError(
            entry.name, f"option `cross.{machine}.sysroot` names {folder}, which {why}: it must be that of {machine}"
        )
    return folder


def _no_sysroot(folder: Path, machine: str) -> str | None:
    """Return why ``folder`` is not a sysroot for ``machine``, judged by its C library; None if it is one."""
    if not folder.is_dir():
        return "is not a folder"
    names = {"libc.so.6", f"libc.musl-{machine}.so.1"}
    folders = [folder / up / name for up in ("", "usr") for name in ("lib", "lib64", f"lib/{machine}-linux-gnu")]
    found = [each / name for each in folders for name in sorted(names) if (each / name).is_file()]
    if not found:
        return "has no C library"
    try:
        machines = {elf.read(path).machine for path in found}
    except ElfError as error:
        return f"has a C library that cannot be read ({error})"
    return None if machine in machines else f"has a C library for {', '.join(sorted(machines))}"


@cache
def _accepts(path: Path, flags: tuple[str, ...], flag: str) -> bool:
    try:
        run([path, *flags, flag, "-fsyntax-only", "-x", "c++", "/dev/null"], timeout=tools.TIMEOUT)
    except ProcessError:
        return False
    return True


@cache
def _unfit(path: Path, flags: tuple[str, ...], sysroot: Path | None, machine: str) -> str | None:
    """Return why the compiler cannot make a shared library with C++ headers for ``machine``; None if it can."""
    command: Sequence[str | Path] = [path, *flags, *([f"--sysroot={sysroot}"] if sysroot is not None else [])]
    try:
        macros = run([*command, "-dM", "-E", "-x", "c++", "/dev/null"], timeout=tools.TIMEOUT).stdout
        if f"#define __{machine}__ 1" not in macros:
            known = next((each for each in MACHINES if f"#define __{each}__ 1" in macros), "another machine")
            return f"it compiles for {known}"
        with tempfile.TemporaryDirectory(prefix="torch-ext-cross-") as folder:
            source = Path(folder) / "probe.cpp"
            source.write_text(PROBE, encoding="ascii")
            run([*command, "-shared", "-fPIC", source, "-o", source.with_suffix(".so")], timeout=tools.TIMEOUT)
    except ProcessError as error:
        lines = [line for line in error.output.splitlines() if "error" in line or "cannot find" in line]
        return "\n".join(lines[:3]) or str(error)
    return None


def _how_to_install(machine: str, environ: Mapping[str, str]) -> str:
    names = {"machine": machine, "debian": machine.replace("_", "-")}
    if environ.get("CONDA_PREFIX"):
        return f"`conda install -c conda-forge gxx_linux-{'64' if machine == 'x86_64' else machine}`"
    for word in tools.distribution():
        known = {"rhel": "fedora", "ubuntu": "debian"}.get(word, word)
        if known in PACKAGES:
            return PACKAGES[known].format(**names)
    return f"{PACKAGES['debian'].format(**names)} (Debian, Ubuntu), {PACKAGES['arch'].format(**names)} (Arch)"
