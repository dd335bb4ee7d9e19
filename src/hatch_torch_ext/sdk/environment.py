"""The torch SDK of an entry whose environment has torch installed; torch's files are read in place and not copied.

torch need not be importable: ``pip install --no-deps torch`` is enough to compile and link against it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import store as sdk_store
from hatch_torch_ext.base import process, resources, untrusted
from hatch_torch_ext.base.errors import ProcessError, SdkError
from hatch_torch_ext.sdk import exports, facts
from hatch_torch_ext.values import Sdk

if TYPE_CHECKING:
    from hatch_torch_ext.values import Entry, Environment, TorchFolders

PROBE_TIMEOUT = 120.0  # seconds; a cold start on a network file system takes several


def acquire(entry: Entry, environment: Environment, *, found: TorchFolders | None = None) -> Sdk:
    """Return the SDK of the torch in ``environment``. Raises ``SdkError`` if there is none or it is damaged.

    ``found`` has its folders, if they are known.
    """
    prefix, nvidia = (found.torch, found.nvidia) if found is not None else _probe(entry, environment)
    again = (
        f'Remove the environment; the next build makes it again: `{environment.removal}`, or use `sdk = "thin"`'
        if found is None
        else f"Reinstall torch: `{environment.python} -m pip install --force-reinstall --no-deps torch`"
    )
    try:
        read = facts.read(prefix)
    except facts.FactError as error:
        raise SdkError(
            entry.name,
            f"the torch in {prefix} is not usable to compile against: {error}. {again}",
        ) from error
    if not (prefix / "lib" / "libtorch_cpu.so").is_file():
        raise SdkError(
            entry.name,
            f"the torch in {prefix} has no lib/libtorch_cpu.so: it is not a complete Linux build of torch. {again}",
        )
    libraries = _shared_objects(prefix / "lib")
    return Sdk(
        kind="environment",
        version=read.version,
        backend=read.backend,
        foreign=read.foreign,
        cxx11_abi=read.cxx11_abi,
        cxx_standard=read.cxx_standard,
        prefix=prefix,
        library_dir=_link_targets(environment, libraries),
        include_dirs=torch_include_dirs(prefix),
        toolkit_include_dirs=_cuda_include_dirs(nvidia),
        libraries=libraries,
        nvidia_libraries=_nvidia_libraries(nvidia),
        gpu_runtime=_cuda_runtime(prefix, nvidia),
    )


def torch_include_dirs(prefix: Path) -> tuple[Path, ...]:
    """Return the two header folders below the ``prefix`` of any torch."""
    return (prefix / "include", prefix / "include" / "torch" / "csrc" / "api" / "include")


def _probe(entry: Entry, environment: Environment) -> tuple[Path, tuple[Path, ...]]:
    try:
        answer = process.run([environment.python, "-I", resources.PROBE, "files"], timeout=PROBE_TIMEOUT).stdout
        found = untrusted.json(answer)
    except ProcessError as error:
        raise SdkError(
            entry.name,
            f"the Python of the environment gives no facts of torch: {error}\n{process.tail(error.output)}\n"
            f"Remove the environment; the next build makes it again: `{environment.removal}`",
        ) from error
    if found["torch"] is None:
        raise SdkError(
            entry.name,
            f"torch is not installed in {environment.prefix}, although `{entry.torch_requirement}` is required. "
            f"Remove the environment; the next build makes it again: `{environment.removal}`",
        )
    return Path(found["torch"]), tuple(Path(folder) for folder in found["nvidia"])


def _link_targets(environment: Environment, libraries: tuple[str, ...]) -> Path:
    # Stubs here too: a linker that reads the real libraries writes other symbol tables (types of undefined symbols,
    # `_edata`), and a variant must have the same bytes whichever kind of SDK it was built with.
    store = sdk_store.open_usable(os.environ, environment.prefix / "torch-ext-cache", lambda _: None)
    return exports.folder(store, libraries, environment.interpreter.machine)


def _shared_objects(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir() if ".so" in path.suffixes))


def _cuda_include_dirs(nvidia: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(sorted(include for folder in nvidia for include in folder.glob("*/include")))


def _nvidia_libraries(nvidia: tuple[Path, ...]) -> tuple[tuple[str, str], ...]:
    # In these wheels file names are SONAMEs: there are no development links.
    return tuple(
        sorted(
            (library.name, library.parent.relative_to(folder.parent).as_posix())
            for folder in nvidia
            for library in folder.glob("*/lib/*.so*")
        )
    )


def _cuda_runtime(prefix: Path, nvidia: tuple[Path, ...]) -> Path | None:
    """Return the runtime of the NVIDIA wheels, else the copy in older builds of torch."""
    found = sorted(library for folder in nvidia for library in folder.glob("*/lib/libcudart.so.*"))
    found += sorted((prefix / "lib").glob("libcudart*.so.*"))
    return found[0] if found else None
