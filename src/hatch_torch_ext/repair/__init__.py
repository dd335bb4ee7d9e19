"""Install tree -> variant: remove what torch and CUDA provide, graft the rest, set NEEDED and RPATH, describe.

This module is the order of the work: ``contents`` reads the tree, ``linking`` decides file by file, ``writing`` writes.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from hatch_torch_ext.base.errors import ElfError, FatbinError, RepairError
from hatch_torch_ext.elf import fatbin
from hatch_torch_ext.facts import content, labels, owners, policy, registered
from hatch_torch_ext.facts.backend import VARIABLE, Backend
from hatch_torch_ext.facts.content import size
from hatch_torch_ext.facts.variant import BuildRecord, BuiltVariant, Variant, VariantFile
from hatch_torch_ext.repair import contents, exported, runpaths, search
from hatch_torch_ext.repair.contents import matches
from hatch_torch_ext.repair.linking import Linker
from hatch_torch_ext.repair.search import Provided
from hatch_torch_ext.repair.writing import Writer, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.repair.contents import Contents, Links, VariantBinary
    from hatch_torch_ext.repair.exported import Exported
    from hatch_torch_ext.values import Entry, InstallTree, Interpreter, Sdk, Setup

LICENCES = "_torch_ext/licenses"
_LIMITED = re.compile(r"Py_LIMITED_API=(?:0[xX]([0-9A-Fa-f]{8})|3\b)")
_OLDEST_LIMITED = "cp32"


class _Identity(NamedTuple):
    """The identity of a variant: its label, and the facts in the label."""

    label: str
    backend: Backend
    cxx11_abi: bool | None
    python: str | None
    archs: tuple[str, ...]


def repair(setup: Setup, tree: InstallTree, *, report: Callable[[str], None]) -> BuiltVariant:
    """Return the variant of the entry, its files in ``<setup.folder>/repaired``. Raises ``RepairError``."""
    root = setup.folder / "repaired"
    shutil.rmtree(root, ignore_errors=True)

    try:
        found = contents.read(setup, tree, report=report)
        links, linker = _links(setup, found, report=report)
        identity = _identity(setup, tree, links)
        described = exported.read(
            dict(found.data),
            [binary for binary in links if binary.kind != "graft"],
            package=setup.config.package,
            folder=setup.folder / "exported",
        )
    except (ElfError, FatbinError) as error:
        raise RepairError(setup.entry.name, str(error)) from error
    for line in (
        *_idle_globs(setup.config, found),
        *_left_out(setup.config, described),
        *_in_sources(setup, tree, links),
        *_debug_information_apart(setup.config, tree),
    ):
        report(line)
    ties = _ties(setup, tree, found, links, linker, report=report)
    written = Writer(setup, label=identity.label, ties=ties, root=root).write(links)
    acting = _acting(links, ties, setup.config)
    for binary in acting:
        report(
            f"{binary.place} registers no operator, but has code that runs when it is opened, so `load()` opens it; "
            "`unopened` leaves that to the package"
        )
    files = [_describe(each, setup, tree, acting=each.binary in acting) for each in written]
    own_data = (*found.variant_data, *described.variant)
    files += [_data(place, source, root, identity.label) for place, source in own_data]
    variant = _variant(setup, tree, identity, files, linker)
    report(f"{variant.label}, {size(sum(file.size for file in files))}, {variant.policy}")
    return BuiltVariant(
        variant=variant,
        root=root,
        package_files=_package_files(setup.entry, found, described, linker),
        excluded=tuple(sorted([*linker.excluded.items(), *_excluded(variant, linker, ties, setup)])),
    )


def _debug_information_apart(config: Config, tree: InstallTree) -> Iterator[str]:
    """Report the first target whose debug information is not in the files that the linker makes."""
    apart = next((target for target, flags in tree.flags if "-gsplit-dwarf" in flags.split()), None)
    if apart is not None and config.debug_symbols != "strip":
        yield (
            f"{apart} is compiled with -gsplit-dwarf: its debug information stays in .dwo files of the build folder, "
            f'and `debug-symbols = "{config.debug_symbols}"` gives none of it; take that option out'
        )


def _ties(
    setup: Setup,
    tree: InstallTree,
    found: Contents,
    links: Mapping[VariantBinary, Links],
    linker: Linker,
    *,
    report: Callable[[str], None],
) -> runpaths.Ties:
    """Return what connects the variant's files besides NEEDED, and report RPATHs that lead elsewhere in the wheel."""
    around = runpaths.Surroundings(
        package=setup.config.package,
        package_dir=setup.config.package_dir,
        site_packages=setup.environment.site_packages,
        machine_folders=(*tree.build_dirs, setup.sdk.prefix, setup.sdk.library_dir, tree.prefix),
    )
    ties = runpaths.ties(
        links,
        around,
        left=[name for name, who in linker.external.items() if who == "author"],
        with_data=bool(found.variant_data),
        report=report,
    )
    for line in runpaths.misplaced(links, [place for place, _ in found.data], around):
        report(line)
    return ties


def _excluded(variant: Variant, linker: Linker, ties: runpaths.Ties, setup: Setup) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of libraries of `exclude` that are only where the author's own RPATHs lead."""
    folders = {setup.environment.site_packages / folder for kept in ties.kept.values() for folder in kept.outside}
    for name, who in variant.external:
        if who == "author" and name not in linker.excluded:
            yield from ((name, folder / name) for folder in folders if (folder / name).is_file())


def _idle_globs(config: Config, found: Contents) -> Iterator[str]:
    """Report which globs of the options match no file: a misspelt one would have no effect without notice."""
    compiled = [binary.installed for binary in found.binaries]
    data = [place for place, _ in found.variant_data]
    for option, globs, places in (("unopened", config.unopened, compiled), ("variant-data", config.variant_data, data)):
        for glob in globs:
            if not any(matches(place, (glob,)) for place in places):
                yield f"`{glob}` of `{option}` matches nothing that CMake installed ({', '.join(places) or 'no file'})"


def _left_out(config: Config, described: Exported) -> Iterator[str]:
    if described.left:
        how = " or ".join(f"`python -m {config.package}._variants --path {name}`" for name in described.libraries)
        yield (
            f"left out: {', '.join(described.left)}, since a wheel has one library for each variant, and these files "
            f"name one in a way that cannot be redirected. C++ dependents ask {how}: docs/loader.md, C++ programs, "
            "has the lines for CMake"
        )


def _in_sources(setup: Setup, tree: InstallTree, links: Iterable[VariantBinary]) -> Iterator[str]:
    """Report files of the package's sources that name a library of the variant: what they name is not beside them."""
    config = setup.config
    folders = [folder for folder in (config.source, *tree.build_dirs) if not config.package_dir.is_relative_to(folder)]
    own = [binary for binary in links if binary.kind != "graft"]
    for place, libraries in exported.of_sources(config.package_dir, own, folders).items():
        yield (
            f"`{place}` of {config.package} names {', '.join(libraries)}, of which the wheel has one for each variant, "
            f"and not beside it: C++ dependents do not find it that way. Let CMake install that file "
            f"(install(FILES ...)), which makes it lead to the variant, or leave it out of the package"
        )


def _links(
    setup: Setup, found: Contents, *, report: Callable[[str], None]
) -> tuple[dict[VariantBinary, Links], Linker]:
    """Return what each file will need: those of the install tree that stay, and the grafts that they need."""
    entry, machine = setup.entry, setup.environment.interpreter.machine
    facts = [binary.elf for binary in found.binaries]
    libc = policy.libc_of(name for each in facts for name in each.needed) or "glibc"
    versions = {version for each in facts for version in each.versions}
    provided = Provided(setup.sdk, policy.lowest(machine, libc, versions))
    kept = []
    for binary in found.binaries:
        if provider := next(filter(None, map(provided.provider, sorted(binary.names))), None):
            report(f"{binary.place} is left out: {_WORDS[provider]} provides it")
        else:
            kept.append(binary)
    if not kept:
        raise RepairError(
            entry.name, "CMake installed no library and no module; add `install(TARGETS <yours> LIBRARY DESTINATION .)`"
        )
    linker = Linker(
        entry=entry.name,
        no_gpu=_no_gpu(setup),
        sdk=setup.sdk,
        provided=provided,
        search=search.Search(
            machine=machine, build=setup.build, prefixes=search.prefixes(setup.config), environ=os.environ
        ),
        exclude=setup.config.exclude,
        siblings={name: binary for binary in kept for name in binary.names},
        report=report,
    )
    links: dict[VariantBinary, Links] = {}
    waiting = list(kept)
    while waiting:
        binary = waiting.pop()
        links[binary] = linker.links(binary)
        waiting += [target for target in links[binary].targets if target not in links and target not in waiting]
    return links, linker


_WORDS = {
    "torch": "torch",
    "gpu": "torch or the driver",
    "openmp": "torch",
    "python": "the interpreter",
    "process": "the process",
    "desktop": "the user's system",
    "system": "every system",
}


def _identity(setup: Setup, tree: InstallTree, links: Mapping[VariantBinary, Links]) -> _Identity:
    entry, sdk, interpreter = setup.entry, setup.sdk, setup.environment.interpreter
    device = [binary for binary in links if binary.elf.gpu_code]
    archs = {arch for binary in device for arch in fatbin.archs(binary.source)}
    uses_gpu = bool(device) or any(each.gpu for each in links.values())
    if device and not sdk.backend.is_gpu:
        raise RepairError(entry.name, f"`{device[0].place}` has GPU code, but {_no_gpu(setup)}")
    backend = sdk.backend if uses_gpu else Backend("cpu")
    cxx11_abi = None if entry.stable_abi else sdk.cxx11_abi
    python = _python(links, interpreter, tree)
    label = labels.label(
        torch_minor=sdk.minor,
        stable_abi=entry.stable_abi,
        backend=backend,
        cxx11_abi=cxx11_abi,
        machine=interpreter.machine,
        python=python,
    )
    return _Identity(label, backend, cxx11_abi, python, tuple(sorted(archs, key=policy.natural)))


def _no_gpu(setup: Setup) -> str:
    """Return why the entry has no GPU's toolkit, and what to do about code that needs one."""
    if setup.entry.is_cpu:
        return (
            f"the matrix says `{VARIABLE} = cpu`: leave the GPU sources out where `TORCH_EXT_{VARIABLE.upper()}` is "
            "`cpu`, or give the entry the version of its toolkit"
        )
    return (
        f"torch {setup.sdk.version} is a CPU build: take a GPU build of torch for this entry, or leave the GPU sources "
        "out of it"
    )


def _python(binaries: Iterable[VariantBinary], interpreter: Interpreter, tree: InstallTree) -> str | None:
    """Return the Python of the files: none, the oldest of the limited API, or the interpreter's own."""
    limited = False
    for binary in binaries:
        if binary.module is not None and binary.name.endswith(".abi3.so"):
            limited = True
        elif binary.module is not None or _needs_python(binary):
            return interpreter.tag
    return f"abi3-{_limited(tree, interpreter)}" if limited else None


def _needs_python(binary: VariantBinary) -> bool:
    symbols = binary.elf.undefined
    return owners.needs_python((*symbols, *binary.elf.weak)) or owners.PYTHON in owners.libraries(symbols)


def _limited(tree: InstallTree, interpreter: Interpreter) -> str:
    """Return the oldest Python of the limited API that the flags name; by default the one that compiled."""
    versions = [match[1] for _, flags in tree.flags for match in _LIMITED.finditer(flags)]
    if not versions:
        return interpreter.tag.rstrip("t")
    newest = max(versions, key=lambda number: int(number or "0", 16))
    return f"cp{int(newest[:2], 16)}{int(newest[2:4], 16)}" if newest else _OLDEST_LIMITED


def _acting(links: Mapping[VariantBinary, Links], ties: runpaths.Ties, config: Config) -> list[VariantBinary]:
    """Return the libraries that only act when they are opened: hooks of a device, a fallback, a pass of the JIT.

    Such a library calls torch, no other file needs it or opens it by name, and the package does not open it itself.
    """
    needed = {target for each in links.values() for target in each.targets}
    return [
        binary
        for binary in sorted(links, key=lambda each: each.place)
        if binary.kind == "library"
        and binary.elf.runs_when_opened
        and owners.libraries(binary.elf.undefined)
        and not owners.registers(binary.elf.undefined)
        and binary not in needed
        and binary not in ties.named
        and not matches(binary.installed, config.unopened)
    ]


def _describe(written: Written, setup: Setup, tree: InstallTree, *, acting: bool) -> VariantFile:
    binary, facts = written.binary, written.elf
    registers = owners.registers(facts.undefined)
    return VariantFile(
        path=written.place,
        kind=binary.kind,
        installed="" if binary.kind == "graft" else binary.place,
        fixed=written.fixed,
        unopened=binary.kind != "graft" and matches(binary.installed, setup.config.unopened),
        sha256=written.sha256,
        size=facts.path.stat().st_size,
        soname=facts.soname,
        needed=facts.needed,
        module=binary.module,
        registers=registers or acting,
        versions=tuple(sorted({*facts.versions}, key=policy.natural)),
        ends=content.ends(facts.path),
        mapped=content.mapped(facts.path),
        **(_registered(binary, tree, setup.sdk) if registers else {}),
        origin=binary.origin,
    )


def _registered(binary: VariantBinary, tree: InstallTree, sdk: Sdk) -> dict[str, Any]:
    """Return the fields of what the file registers with torch, read before it is stripped."""
    found = registered.read(binary.source)
    spaces = registered.namespaces(
        found, torch=sdk.version, definitions=registered.definitions(tree.flags, binary.name)
    )
    known = [f"{space}::{name}" for space, name in registered.operators(found, spaces) if space is not None]
    doubtful = registered.by_function(binary.elf.undefined) or len(known) < len(found.schemas)
    return {
        "namespaces": tuple(sorted(spaces.whole)),
        "operators": tuple(sorted(known)),
        "fragments": tuple(sorted(spaces.fragments)) if doubtful else (),
        "classes": bool(found.classes),
    }


def _data(place: str, source: Path, root: Path, label: str) -> VariantFile:
    target = root / label / place
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return VariantFile(
        path=f"{label}/{place}",
        kind="data",
        sha256=content.sha256(target),
        size=target.stat().st_size,
        installed=place,
        fixed=True,
    )


def _variant(
    setup: Setup, tree: InstallTree, identity: _Identity, files: Sequence[VariantFile], linker: Linker
) -> Variant:
    sdk, entry, interpreter = setup.sdk, setup.entry, setup.environment.interpreter
    needed = {name for file in files for name in file.needed}
    libc = policy.libc_of(name for file in files for name in file.needed) or "glibc"
    versions = {version for file in files for version in file.versions}
    met = policy.lowest(interpreter.machine, libc, versions)
    return Variant(
        label=identity.label,
        torch=sdk.minor,
        stable_abi=entry.stable_abi,
        backend=identity.backend.kind,
        **identity.backend.fields,
        cxx11_abi=identity.cxx11_abi,
        python=identity.python,
        machine=interpreter.machine,
        libc=libc,
        libc_floor=policy.floor(libc, met, versions),
        policy=met.name,
        archs=identity.archs,
        files=tuple(sorted(files, key=lambda file: file.path)),
        external=tuple((name, who) for name, who in sorted(linker.external.items()) if name in needed),
        build=BuildRecord(
            entry=entry.name,
            variables=entry.variables,
            torch_version=sdk.version,
            python=interpreter.version,
            sdk=sdk.kind,
            compiler=tree.compiler,
            cmake=setup.toolchain.cmake.version,
            cuda_compiler=tree.gpu_compiler,
            flags=tree.flags,
            torch_sha256=sdk.wheel_sha256,
            debug_symbols=setup.config.debug_symbols,
            ignored=tuple(sorted(set(setup.config.ignore))),
        ),
    )


def _package_files(entry: Entry, found: Contents, described: Exported, linker: Linker) -> tuple[tuple[str, Path], ...]:
    """Return what CMake installed for the package as a whole, and the licences of the grafts."""
    files = {place: path for place, path in found.data if place not in described.left} | dict(described.package)
    for taken in ("_variants.py", "_torch_ext"):
        if clash := next((target for target in files if target.split("/")[0] == taken), None):
            raise RepairError(
                entry.name, f"CMake installed `{clash}`, a name that the wheel needs itself; give it another"
            )
    for graft, licences in linker.licences.items():
        folder = graft.partition(".so")[0]
        files.update({f"{LICENCES}/{folder}/{licence.name}": licence for licence in licences})
    return tuple(sorted(files.items()))
