"""Our CMake package, written for one entry: static files and facts; and the names of folders in objects."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import atomic, resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hatch_torch_ext.config.declaration import CMakeConfig
    from hatch_torch_ext.values import Setup


def mapped(setup: Setup) -> tuple[tuple[Path, str], ...]:
    """Return (folder, the name that replaces it); if several match, compilers take the last."""
    config, environment = setup.config, setup.environment
    pairs = [
        (environment.interpreter.include, "python/include"),
        (environment.prefix, "python"),
        (setup.sdk.prefix, "torch"),
        (config.root, "."),
    ]
    if setup.toolchain.toolkit is not None:
        pairs.insert(0, (setup.toolchain.toolkit.root, "cuda"))
    if not config.source.is_relative_to(config.root):
        pairs.append((config.source, config.source.name))
    return (*pairs, (setup.folder, "torch-ext"), (setup.torch, "torch"))


def base_dir(setup: Setup) -> Path | None:
    """Return the folder below which ccache makes paths relative, so that other folders hit too; None without ccache."""
    cache = setup.toolchain.cache
    if cache is None or not cache.ccache:
        return None
    common = Path(os.path.commonpath([setup.config.root, setup.config.source, setup.folder]))
    return None if common == Path(common.root) else common


def relative_maps(setup: Setup) -> list[str]:
    """Return the maps of folders for paths that ccache made relative.

    Longer ones come last, since compilers take the last that matches. The entry's own folder, plain ``..``, would match
    every path that leads out of it.
    """
    base = base_dir(setup)
    if base is None:
        return []
    below = [(old, new) for old, new in mapped(setup) if old.is_relative_to(base) and old != setup.folder]
    maps = [(os.path.relpath(old, setup.build), new) for old, new in below]
    return [f"{old}={new}" for old, new in sorted(maps, key=lambda pair: (len(pair[0]), pair))]


RESOURCES = resources.FOLDER / "cmake"
FACTS = "torch_ext_facts.cmake"
BEFORE = "CMAKE_PROJECT_INCLUDE_BEFORE"
"""The file that CMake includes first in every project(): ours, which includes the author's."""
_BEFORE = re.compile(rf"(?:-D)?{BEFORE}(?::\w+)?=(.*)", re.DOTALL)
PYBIND11 = Path("pybind11-of-torch")
"""The folder beside the SDK's that holds only the headers of torch's pybind11."""
STABLE_SINCE = (2, 10)  # torch enforces TORCH_TARGET_VERSION from this release on
NAMES_SOURCES_SINCE = (12, 4)  # nvcc's front end takes --orig_src_path_name; older ones were not tried

Value = str | bool | int | Path | None


def digest() -> str:
    """Return a digest of the static files."""
    text = hashlib.sha256()
    for path in sorted(RESOURCES.rglob("*.cmake")):
        text.update(path.relative_to(RESOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return text.hexdigest()


def write(setup: Setup) -> None:
    """Write the package into ``setup.package`` and ``setup.torch``; unchanged files keep their times."""
    _link_sdk(setup)
    for source in sorted(RESOURCES.rglob("*.cmake")):
        atomic.update(setup.package / source.relative_to(RESOURCES), source.read_text(encoding="utf-8"))
    atomic.update(setup.package / FACTS, render(_facts(setup)))


def before(config: CMakeConfig) -> tuple[list[str], list[str]]:
    """Return the author's files for ``BEFORE``, and the arguments of the configure step without them."""
    files = [value for name, value in config.define if name == BEFORE]
    arguments: list[str] = []
    for argument in config.args:
        match = _BEFORE.fullmatch(argument)
        if match is None:
            arguments.append(argument)
            continue
        files.append(match[1])
        if arguments[-1:] == ["-D"]:
            arguments.pop()
    return files, arguments


def render(facts: Iterable[tuple[str, Value | Sequence[Value]]]) -> str:
    """Return CMake text that sets ``TorchExt_<name>`` to each value; a sequence becomes a list."""
    lines = ["# The facts of one entry, written by hatch-torch-ext."]
    for name, value in facts:
        items = [value] if isinstance(value, Value) else value
        lines.append(f'set(TorchExt_{name} "{";".join(_quoted(item) for item in items)}")')
    return "\n".join(lines) + "\n"


def target_version(minor: str) -> str:
    """Return ``TORCH_TARGET_VERSION`` for a torch ``major.minor``: ``2.10`` is 0x020a000000000000."""
    major, minor_number = (int(part) for part in minor.split("."))
    return f"0x{major:02x}{minor_number:02x}{0:012x}"


def _quoted(value: Value) -> str:
    text = {True: "ON", False: "OFF", None: ""}[value] if isinstance(value, bool | None) else str(value)
    return re.sub(r'([\\"$;])', r"\\\1", text)


def _facts(setup: Setup) -> list[tuple[str, Value | Sequence[Value]]]:
    sdk, cuda = setup.sdk, setup.toolchain.toolkit
    absolute = [f"{old}={new}" for old, new in mapped(setup)]
    relative = relative_maps(setup)
    return [
        ("VERSION", _release(sdk.version)),
        ("ROOT", setup.config.root),
        ("INCLUDE_BEFORE", before(setup.config.cmake)[0]),
        ("PACKAGE_DIR", setup.package),
        ("ANSWER_TORCH", not setup.upstream),
        ("PREFIX", setup.torch),
        ("REAL_PREFIX", sdk.prefix),
        ("LIBRARY_DIR", setup.torch / "lib"),
        ("INCLUDE_DIRS", [_under(path, sdk.prefix, setup.torch) for path in sdk.include_dirs]),
        ("PYBIND11_DIR", setup.torch / PYBIND11 if (sdk.prefix / "include" / "pybind11").is_dir() else None),
        ("CXX11_ABI", int(sdk.cxx11_abi)),
        ("CXX_STANDARD", sdk.cxx_standard),
        ("CUDA", sdk.backend.version or None),
        ("CUDA_DESCRIBED", [] if cuda is None else cuda.described()),
        ("CUDA_TOOLKIT", None if cuda is None else cuda.root),
        ("CUDA_ENABLE", _enables_cuda(setup)),
        ("CUDA_NAMES_SOURCES", cuda is not None and _numbers(cuda.version) >= NAMES_SOURCES_SINCE),
        ("CUDA_INCLUDE_DIRS", sdk.toolkit_include_dirs),
        ("STABLE_ABI", setup.entry.stable_abi),
        ("STABLE_DEFINITIONS", _stable_definitions(setup)),
        ("TARGET_VERSION", target_version(sdk.minor) if _stable_definitions(setup) else None),
        ("RUN_LIBRARY_DIR", sdk.prefix / "lib" if sdk.kind == "environment" else None),
        ("PYTHON_INCLUDE_DIR", setup.environment.interpreter.include),
        ("PREFIX_MAP", [*absolute, *relative]),
        # ccache knows the option and leaves its folders out of the hash, but not inside nvcc's -Xcompiler. If ccache
        # makes paths relative, those maps are enough, and they are the same in every entry and checkout.
        ("CUDA_PREFIX_MAP", relative or absolute),
    ]


def _enables_cuda(setup: Setup) -> bool:
    """Say whether find_package(Torch) enables CUDA: not for every entry whose torch is a build for it."""
    return setup.toolchain.toolkit is not None and setup.entry.variable("cuda") is not None


def _stable_definitions(setup: Setup) -> list[str]:
    if _numbers(setup.sdk.minor) < STABLE_SINCE:
        return []
    defined = [f"TORCH_TARGET_VERSION={target_version(setup.sdk.minor)}"]
    return [*defined, "USE_CUDA"] if _enables_cuda(setup) else defined


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _release(version: str) -> str:
    """Return the numbers at the beginning of a version: find_package knows no suffixes (``2.14.0a0+git1``)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return match.group() if match else version


def _under(path: Path, old: Path, new: Path) -> Path:
    return new / path.relative_to(old) if path.is_relative_to(old) else path


def _link_sdk(setup: Setup) -> None:
    (setup.torch / PYBIND11).mkdir(parents=True, exist_ok=True)
    prefix = setup.sdk.prefix
    links = {"include": prefix / "include", "share": prefix / "share", "lib": setup.sdk.library_dir}
    links[f"{PYBIND11}/pybind11"] = prefix / "include" / "pybind11"
    for name, target in links.items():
        link = setup.torch / name
        if link.is_symlink() and link.readlink() == target:
            continue
        if link.is_symlink() or link.is_file():
            link.unlink()
        elif link.is_dir():
            shutil.rmtree(link)
        link.symlink_to(target)
