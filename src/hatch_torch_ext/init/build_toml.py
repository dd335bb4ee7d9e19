"""Reads ``build.toml``, in which kernel-builder declares a kernel of Hugging Face's Hub.

Of the backends, CPU and CUDA are carried over; the others are left out, with a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tomlkit
import tomlkit.exceptions
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import archs
from hatch_torch_ext.init import served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

BUILD = "build.toml"
FOLDER = "torch-ext"
EDITION = 5
CARRIED_OVER = ("cpu", "cuda")
COMPILED = (".c", ".cc", ".cpp", ".cu", ".cxx")
CUTLASS = {
    "cutlass_2_10": ("2.10.0", "fc9ebc645b63f3a6bc80aaefde5c063fb72110d6"),
    "cutlass_3_5": ("3.5.1", "f7b19de32c5d1f3cedfc735c2849f12b537522ee"),
    "cutlass_3_6": ("3.6.0", "bf9da7b76c766d7ee7d536afc77880a4ef1f1156"),
    "cutlass_3_8": ("3.8.0", "afa1772203677c5118fcd82537a9c8fefbcc7008"),
    "cutlass_3_9": ("3.9.2", "ad7b2f5e84fcfa124cb02b91d5bd26d238c0459e"),
    "cutlass_4_0": ("4.0.0", "b995f933179c22d3fe0d871c3a53d11e4681950f"),
    "cutlass_4_4": ("4.4.2", "da5e086dab31d63815acafdac9a9c5893b1c69e2"),
    "cutlass_4_5": ("4.5.2", "db1c288993354c88e551c40c19a8fb93a774a241"),
}
"""Dependencies by the names that kernel-builder has for them: the version, and the commit of its tag."""
PYTHON_DEPENDS = {"einops": "einops", "helion": "helion", "tvm-ffi": "apache-tvm-ffi"}
"""What ``python-depends`` may name, and the distributions; others have the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section ``[kernel.NAME]``; ``[torch]`` is one too, of every backend."""

    name: str
    backend: str
    sources: tuple[str, ...]
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    cuda_minver: str | None = None
    depends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What build.toml declares, of the backends that are carried over.

    ``stable`` are backend -> the oldest torch whose stable ABI it is compiled for; ``bounds`` are those of torch.
    """

    name: str
    version: int
    licence: str | None
    upstream: str | None
    backends: tuple[str, ...]
    binding: Section
    sections: tuple[Section, ...]
    stable: Mapping[str, str]
    bounds: SpecifierSet
    requires: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def package(self) -> str:
        """Return the name of the Python package."""
        return self.name.replace("-", "_")


def is_project(root: Path) -> bool:
    """Return whether the folder has a ``build.toml``."""
    return (root / BUILD).is_file()


def read(root: Path, *, cpu_only: bool = False) -> Kernel:
    """Return what ``build.toml`` in ``root`` declares. Raises ``ConfigurationError`` with every fault."""
    path = root / BUILD
    try:
        data = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    except (tomlkit.exceptions.TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}: correct it") from error
    if problem := _format(data):
        raise ConfigurationError(f"{path}: {problem}")
    problems: list[str] = []
    kernel = _kernel(root, data, problems, cpu_only=cpu_only)
    if problems:
        raise ConfigurationError(*(f"{path}: {each}" for each in problems))
    return kernel


def _format(data: Mapping[str, Any]) -> str:
    """Return why a build.toml is of a format that is not read, or of a kernel without code to compile; "" if it is."""
    general, kernels = _table(data, "general"), _table(data, "kernel")
    edition = general.get("edition")
    if edition is not None and (not isinstance(edition, int) or edition < EDITION):
        return (
            f"there is no edition {edition!r} of the format: editions are numbers from {EDITION} on, and older formats "
            "have none. Delete the line `edition`, then run `init` again"
        )
    if edition is not None and edition > EDITION:
        return (
            f"edition {edition} of the format is newer than {EDITION}, the newest that this hatch-torch-ext reads: "
            "upgrade hatch-torch-ext"
        )
    old = "extension" in data or "universal" in general or "universal" in _table(data, "torch")
    old |= any("language" in each for each in kernels.values() if isinstance(each, dict))
    if old or "backends" not in general:
        return "this is an older format: `kernel-builder update-build` writes it as the newest, then run `init` again"
    if "tvm-ffi" in data:
        return "the kernel is on TVM-FFI, and variants are for torch: register its operators with torch, in `[torch]`"
    if "torch-noarch" in data or "torch" not in data:
        return (
            "the kernel has no compiled code, so it needs no variants: hatchling packs it by itself, and `hatch new "
            "--init` starts a project"
        )
    return ""


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _kernel(root: Path, data: Mapping[str, Any], problems: list[str], *, cpu_only: bool) -> Kernel:
    general, torch = _table(data, "general"), _table(data, "torch")
    name = str(general.get("name", ""))
    if not re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]", name):
        problems.append(f"`name` in [general] must be a kernel's (a-z, 0-9 and `-`), not `{name[:60]}`")
    elif not (root / FOLDER / name.replace("-", "_") / "__init__.py").is_file():
        problems.append(f"`{FOLDER}/{name.replace('-', '_')}/__init__.py` is not there: add the Python package")
    notes: list[str] = []
    kept = _backends(general, problems, notes, cpu_only=cpu_only)
    sections = tuple(
        _section(root, key, value, problems, heading=f"[kernel.{key}]")
        for key, value in _table(data, "kernel").items()
        if isinstance(value, dict) and value.get("backend") in kept
    )
    binding = _section(root, "torch", {"backend": "all", **torch}, problems, heading="[torch]")
    if sections and (unused := [each for each in kept if not any(section.backend == each for section in sections)]):
        notes.append(f"no section `[kernel.NAME]` is for {', '.join(unused)}: only the sources of [torch] are compiled")
    depends = general.get("kernel-depends") or []
    ids = [str(each.get("repo-id", "")) if isinstance(each, dict) else str(each) for each in depends]
    notes += [f"it uses the kernel `{each}` of the Hub, which is fetched at run time" for each in ids]
    version = general.get("version")
    return Kernel(
        name=name,
        version=version if isinstance(version, int) else 0,
        licence=str(general["license"]) if general.get("license") else None,
        upstream=str(general["upstream"]) if general.get("upstream") else None,
        backends=kept,
        binding=binding,
        sections=sections,
        stable=_stable(torch.get("stable-abi"), kept, problems),
        bounds=_bounds(torch, problems),
        requires=tuple(_requires(general, kept)),
        notes=tuple(notes),
    )


def _backends(general: Mapping[str, Any], problems: list[str], notes: list[str], *, cpu_only: bool) -> tuple[str, ...]:
    """Return the backends that are carried over."""
    declared = _texts(general, "backends", "[general]", problems)
    if general.get("backends") == []:
        problems.append("`backends` in [general] is empty: name what the kernel is for, as `cpu` or `cuda`")
    kept = [each for each in CARRIED_OVER if each in declared and not (cpu_only and each != "cpu")]
    if not declared:
        return ()
    if not kept:
        if "cuda" in declared:
            problems.append("the kernel has no part for the CPU: run `init` without `--cpu`")
        else:
            problems.append(
                f"the kernel is for {', '.join(sorted(declared))}, and variants are built for CPU and CUDA only: "
                "nothing can be carried over"
            )
        return ()
    if left_out := sorted({*declared} - {*CARRIED_OVER}):
        notes.append(f"{', '.join(left_out)}: no variant is built for such backends: they are left out")
    maxver = str(_table(general, "cuda").get("maxver") or "")
    if "cuda" in kept and _older(maxver, str(served.FIRST_COMPILER)):
        first = f"{served.FIRST_COMPILER}, the first whose compiler is on the package index"
        why = f"`maxver` {maxver} of CUDA is older than {first}"
        how = "with a toolkit and the option `cuda-home`"
        kept.remove("cuda")
        if kept:
            notes.append(f"{why}: CUDA is left out; {how}, add its entries")
        else:
            problems.append(f"{why}: write its entries by hand, {how}")
    return tuple(kept)


def _requires(general: Mapping[str, Any], backends: Sequence[str]) -> Iterator[str]:
    listed = [*(general.get("python-depends") or [])]
    if "cuda" in backends:
        listed += _table(general, "cuda").get("python-depends") or []
    for each in listed:
        yield PYTHON_DEPENDS.get(str(each), str(each))


def _older(version: str, other: str) -> bool:
    try:
        return Version(version) < Version(other)
    except InvalidVersion:
        return False


def _texts(table: Mapping[str, Any], key: str, heading: str, problems: list[str]) -> tuple[str, ...]:
    value = table.get(key) or []
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    problems.append(f"`{key}` in {heading} must be an array of strings")
    return ()


def _section(root: Path, name: str, table: Mapping[str, Any], problems: list[str], *, heading: str) -> Section:
    listed = _texts(table, "src", heading, problems)
    missing = [each for each in listed if not (root / each).is_file()]
    problems += [f"{heading} names `{each}`, which is not there: fetch or add it" for each in missing]
    depends = _texts(table, "depends", heading, problems)
    strange = [each for each in depends if each != "torch" and each not in CUTLASS]
    problems += [f"{heading} depends on `{each}`, which is not known here: compile without it" for each in strange]
    capabilities = _texts(table, "cuda-capabilities", heading, problems)
    problems += [f"`cuda-capabilities` in {heading}: {fault}" for each in capabilities if (fault := _not_an_arch(each))]
    return Section(
        name=name,
        backend=str(table.get("backend")),
        sources=tuple(each for each in listed if each.endswith(COMPILED)),
        include=_texts(table, "include", heading, problems),
        cxx_flags=_texts(table, "cxx-flags", heading, problems),
        cuda_flags=_texts(table, "cuda-flags", heading, problems),
        capabilities=capabilities,
        cuda_minver=str(table["cuda-minver"]) if table.get("cuda-minver") else None,
        depends=depends,
    )


def _not_an_arch(text: str) -> str:
    try:
        archs.parse(text)
    except ValueError as error:
        return str(error)
    return ""


def _stable(value: object, backends: Sequence[str], problems: list[str]) -> dict[str, str]:
    if value is None:
        return {}
    given = value if isinstance(value, dict) else dict.fromkeys(backends, value)
    return {
        str(backend): str(version)
        for backend, version in given.items()
        if backend in backends and _is_release(version, "stable-abi", problems)
    }


def _bounds(torch: Mapping[str, Any], problems: list[str]) -> SpecifierSet:
    parts = []
    for key, words in (("minver", ">={}"), ("maxver", "<{}.999")):
        if (value := torch.get(key)) is not None and _is_release(value, key, problems):
            parts.append(words.format(value))
    return SpecifierSet(",".join(parts))


def _is_release(value: object, key: str, problems: list[str]) -> bool:
    """Return whether a value names a release of torch; that it does not is a problem."""
    if re.fullmatch(r"\d+\.\d+", str(value)):
        return True
    problems.append(f"`{key}` in [torch] must be a release of torch, as `2.10`, not `{value}`")
    return False
