"""The audit of a variant right after its repair, in every build, when all facts are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext import elf
from hatch_torch_ext.audit import binary, libraries, opening, operators, python, symbols
from hatch_torch_ext.audit.findings import Finding, finding, settle
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from hatch_torch_ext.base.errors import ElfError
from hatch_torch_ext.facts import owners, releases
from hatch_torch_ext.facts.variant import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hatch_torch_ext.facts.variant import BuildRecord, BuiltVariant
    from hatch_torch_ext.values import InstallTree, Sdk, Setup

_INTERNALS = re.compile(r"^#\s*define PYBIND11_INTERNALS_VERSION (\d+)", re.MULTILINE)
THIS_PROCESSOR = re.compile(r"-m(?:arch|cpu)=native(?![\w-])")


def audit_variant(
    built: BuiltVariant,
    setup: Setup,
    tree: InstallTree,
    *,
    exports: Mapping[str, frozenset[str]] | None = None,
    others: Mapping[str, Mapping[str, frozenset[str]]] | None = None,
) -> tuple[Finding, ...]:
    """Return all findings on a repaired variant, faults before warnings.

    ``exports`` maps SONAMEs of torch's libraries to their exported names; without it only the form of torch's symbols
    is checked. ``others`` are the same of other torch releases, by version, to name one that would do. If the entry's
    environment has torch installed, every file is opened in it.
    """
    config, variant = setup.config, built.variant
    found: list[Finding] = []
    binaries: list[AuditedBinary] = []
    # Package folders, `_torch_ext`, and one more: a file of a label's folder may be moved to `shared/<hash>`, and its
    # RPATH leads to torch from both places.
    depth = len(config.package.split(".")) + 2
    for file in variant.files:
        if file.kind == "data":
            continue
        try:
            read = elf.read(built.root / file.path)
        except (ElfError, OSError) as error:
            found.append(finding("unreadable-file", file.path, str(error), variant=variant.label))
            continue
        places = {"unstripped": _unstripped(tree, file.path), "depth": depth + file.path.count("/")}
        binaries.append(AuditedBinary.of(file, place=file.path, elf=read, **places))
    subject = Subject.of(variant, binaries, exports=exports, others=others or {}, **_known(built, setup, tree))
    opened = opening.Opened()
    if setup.sdk.kind == "environment":
        opened = opening.open_all(
            setup.environment.python,
            [item for item in binaries if item.is_opened],
            variant=variant.label,
            package=config.package,
            beside=binaries,
        )
    found += opened.findings
    found += check(subject, opened=opened.operators)
    found += operators.check_archives(subject, tree.archives)
    found += binary.beyond_all_policies(binaries, variant=subject.variant)
    return settle(found, ignore=config.ignore)


def _known(built: BuiltVariant, setup: Setup, tree: InstallTree) -> dict[str, Any]:
    """Return what is known besides the variant, its files and the exports of torch."""
    config, sdk, toolkit = setup.config, setup.sdk, setup.toolchain.toolkit
    free_threaded = setup.environment.interpreter.tag.endswith("t")
    cross = config.cross_for(built.variant.machine)
    return {
        "torch": sdk.version,
        "headers": sdk.prefix / "include",
        "cuda": sdk.backend.version or None,
        "cuda_runtime": None if sdk.gpu_runtime is None else frozenset(elf.read(sdk.gpu_runtime).exported),
        "newer_nvcc": toolkit.version if toolkit is not None and toolkit.newer_minor else None,
        "pybind11_internals": _pybind11_internals(sdk),
        "frees_gil": python.frees_gil(config.root, config.source, setup.folder.parent) if free_threaded else None,
        "beside": _beside(built, sdk),
        "provided": frozenset({*sdk.libraries, *(name for name, _ in sdk.nvidia_libraries)}),
        "sysroot": Path(cross.sysroot) if cross.sysroot is not None else None,
        "build_dirs": tuple(str(folder) for folder in tree.build_dirs),
    }


def check(
    subject: Subject,
    *,
    used: Mapping[str, frozenset[str]] | None = None,
    opened: Mapping[str, frozenset[str]] | None = None,
) -> Iterator[Finding]:
    """Run every check that opens nothing; ``used`` and ``opened`` are as ``operators.check`` takes them."""
    if subject.build is not None:
        yield from _record(subject.build, subject.variant or subject.build.entry)
    yield from libraries.check(subject)
    yield from binary.check(subject)
    yield from symbols.check(subject)
    yield from binary.check_cuda(subject)
    yield from python.check(subject)
    yield from operators.check(subject, used=used, opened=opened)


def _record(build: BuildRecord, label: str) -> Iterator[Finding]:
    if releases.is_prerelease(build.torch_version):
        message = f"is compiled against torch {build.torch_version}, and users of the release get it"
        yield finding("pre-release", label, message, variant=label)
    for target, flags in build.flags:
        if match := THIS_PROCESSOR.search(flags):
            message = f"{target} is compiled with {match[0]}, for the processor of the machine that built it"
            yield finding("this-processor", label, message, variant=label)


def _beside(built: BuiltVariant, sdk: Sdk) -> dict[str, frozenset[str]]:
    """Return what the libraries that `exclude` names export, for those of which everything they load is here too."""
    found = {name: _exports_of_all(path, sdk) for name, path in built.excluded}
    return {name: exports for name, exports in found.items() if exports is not None}


def _exports_of_all(path: Path, sdk: Sdk) -> frozenset[str] | None:
    """Return what a library and those that it loads from its own folder export; None if one is not there.

    The libraries of glibc, GCC and torch are known otherwise.
    """
    names: set[str] = set()
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        try:
            read = elf.read(waiting.pop())
        except (ElfError, OSError):
            return None
        names.update(read.exported)
        seen.add(read.path)
        others = (name for name in read.needed if name not in sdk.libraries and not symbols.has_versions(name))
        waiting += [read.path.parent / name for name in others if read.path.parent / name not in seen]
    return frozenset(names)


def _pybind11_internals(sdk: Sdk) -> frozenset[int]:
    """Return the versions that torch's header states; which of them applies may depend on the Python."""
    try:
        text = (sdk.prefix / "include" / "pybind11" / "detail" / "internals.h").read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    return frozenset(int(number) for number in _INTERNALS.findall(text))


def _unstripped(tree: InstallTree, path: str) -> Path | None:
    """Return the file as CMake installed it: the one of the same name, if there is only one."""
    name = path.rpartition("/")[2]
    names = {name, owners.plain(name)} if path.startswith(f"{SHARED}/") else {name}
    same = [tree.prefix / installed for installed in tree.files if installed.rpartition("/")[2] in names]
    return same[0] if len(same) == 1 and elf.is_elf(same[0]) else None
