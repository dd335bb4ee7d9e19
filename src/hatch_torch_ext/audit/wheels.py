"""The audit of a wheel: the archive, its RECORD, its manifest if it has one, and every ELF file in it."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from hatch_torch_ext import elf, wheel
from hatch_torch_ext.audit import binary, loading, opening, operators
from hatch_torch_ext.audit.findings import OF_THE_ARCHIVE, Finding, finding, settle, some
from hatch_torch_ext.audit.opening import Opened
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from hatch_torch_ext.audit.variants import check
from hatch_torch_ext.base import untrusted
from hatch_torch_ext.base.errors import ConfigurationError, ElfError, WheelError
from hatch_torch_ext.facts import owners, releases
from hatch_torch_ext.facts.content import size
from hatch_torch_ext.facts.manifest import SOURCES
from hatch_torch_ext.wheel import parsed_requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from packaging.specifiers import SpecifierSet

    from hatch_torch_ext.facts.manifest import Listed, Manifest
    from hatch_torch_ext.wheel import Wheel

LARGEST_SHOWN = 3
MAX_ELVES = 5000
MAX_SYMBOLS = 1_000_000
"""Limit of all compiled files of a wheel together, in bytes: the libraries of torch have fewer."""


def audit_wheel(
    path: Path,
    *,
    open_with: Path | None = None,
    ignore: Collection[str] = (),
    max_size: int | None = None,
    sources: Path | None = None,
    before: Wheel | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> tuple[Finding, ...]:
    """Return all findings on the wheel at ``path``, faults before warnings.

    ``open_with`` is a Python with torch; files for that torch are opened in it. ``max_size`` is the wheel's budget in
    bytes; ``sources`` the folder of its C++ files, if they are there. ``before`` is the wheel that this one adds
    variants to: what it has was audited when it was built, and is not read again; what concerns the whole (its tag, its
    metadata, what the package imports) is found as in any wheel. ``report`` gets the files that were not opened, and
    why. Raises ``WheelError`` for what is not a wheel, and ``ConfigurationError`` where ``open_with`` has no torch, or
    the file system of temporary files is mounted ``noexec``.
    """
    settle((), ignore=ignore)  # an unknown code is reported before the work
    with tempfile.TemporaryDirectory(prefix="torch-ext-audit-") as folder:
        keep = open_with is not None
        read = wheel.read(path, folder=Path(folder), keep=lambda _: keep, texts=_is_python, before=before)
        found = [finding(problem.code, problem.file, problem.message) for problem in read.problems]
        found += _size(read, max_size)
        elves, faults = _elves(read)
        found += faults
        found += [finding("wheel-name", read.path.name, wrong)] if (wrong := read.misnamed()) else []
        found += _tag(read, elves)
        found += _label(read)
        listed, manifest_faults = _manifests(read)
        found += manifest_faults
        audited = _audited(read, listed, before)
        subjects = [each for each in _subjects(read, listed, elves) if each.variant not in audited]
        python = [member.path for member in read.members if _is_python(member.path)]
        texts = {path: read.text(path) if path in read.texts else None for path in python}  # None: beyond the limit
        found += _of_packages(texts, listed, elves, audited, sources)
        used = operators.uses(text for text in texts.values() if text is not None)
        opened: dict[str, frozenset[str]] = {}
        if open_with is not None:
            for outcome in _open(open_with, read, listed, subjects, report=report):
                found += outcome.findings
                opened |= outcome.operators
        for subject in subjects:
            found += check(subject, used=used, opened=opened)
        found += binary.check_policy(read.tags, elves.values())
        found = list(_unaccepted(found, listed))
    return settle(found, ignore=ignore)


def _of_packages(
    texts: Mapping[str, str | None],
    listed: Sequence[Listed],
    elves: Mapping[str, AuditedBinary],
    audited: Collection[str],
    sources: Path | None,
) -> Iterator[Finding]:
    """Compare the Python files of each package with what its variants have, and register."""
    of_variants = {path for item in listed for path in item.files}
    for package in sorted({item.package for item in listed}):
        own = [item for item in listed if item.package == package]
        folder = f"{package.replace('.', '/')}/"
        variants = [
            (item.variant, {file.path: elves[path].elf.path for path, file in item.files.items() if path in elves})
            for item in own
            if item.variant.label not in audited
        ]
        yield from loading.check_package(
            package,
            texts,
            variants,
            modules={file.module for item in own for file in item.files.values() if file.module},
            elsewhere=[path for path in elves if path.startswith(folder) and path not in of_variants],
            sources=sources,
            more=bool(audited),
        )


def _unaccepted(found: Sequence[Finding], listed: Sequence[Listed]) -> Iterator[Finding]:
    """Leave out findings that the author set aside (`ignore`) in the manifests of the variants concerned.

    Nobody can set aside what protects the wheel as a file (its RECORD, its manifest, its names) for others.
    """
    ignored = {item.variant.label: item.variant.build.ignored for item in listed}
    owners: dict[str, list[str]] = {}
    for item in listed:
        for path in item.files:
            owners.setdefault(path, []).append(item.variant.label)
    for each in found:
        labels = [each.variant] if each.variant in ignored else owners.get(each.file, [])
        if each.code in OF_THE_ARCHIVE or not labels or not all(each.code in ignored[label] for label in labels):
            yield each


def _audited(read: Wheel, listed: Sequence[Listed], before: Wheel | None) -> frozenset[str]:
    """Return the labels of the variants that are those of ``before``: described alike, with the same compiled files."""
    if before is None:
        return frozenset()
    there = before.variants()
    read_again = {member.path for member in read.members if member.elf} - read.elsewhere.keys()
    same = (item for item in listed if item.variant in there and read_again.isdisjoint(item.files))
    return frozenset(item.variant.label for item in same)


def _elves(read: Wheel) -> tuple[dict[str, AuditedBinary], list[Finding]]:
    found: dict[str, AuditedBinary] = {}
    faults = []
    left = MAX_SYMBOLS
    for member in read.members:
        name = member.path.rpartition("/")[2]
        if f"/{SOURCES}/" in f"/{member.path}":
            continue  # sources: compiled where they are used, and never opened
        if member.elf and (len(found) >= MAX_ELVES or left < 0):
            many = f"more than {MAX_ELVES} compiled files, or {MAX_SYMBOLS} symbols in them"
            message = f"is not looked at: the wheel has {many}"
            faults.append(finding("unreadable-file", member.path, message))
        elif member.elf:
            try:
                read_elf = elf.read(read.file(member.path))
                left -= len(read_elf.undefined) + len(read_elf.weak) + len(read_elf.exported)
                found[member.path] = AuditedBinary(place=member.path, elf=read_elf, depth=_depth(member.path, read))
            except ElfError as error:
                message = str(error).replace(f"{read.folder}/", "")
                faults.append(finding("unreadable-file", member.path, message))
        elif name.endswith(".so") and member.size:
            faults.append(
                finding("unreadable-file", member.path, "is named as a shared library, but is not an ELF file")
            )
    return found, faults


def _depth(path: str, read: Wheel) -> int | None:
    """Return how many folders below site-packages the member is installed; None for files moved by ``.data``."""
    parts = path.split("/")[:-1]
    if parts and parts[0] == read.dist_info.replace(".dist-info", ".data"):
        return len(parts) - 2 if parts[1:2] in (["purelib"], ["platlib"]) else None
    # The merge may move a file of a manifest one folder deeper, and its RPATH leads to torch from both places.
    return len(parts) + ("_torch_ext" in parts)


def _tag(read: Wheel, elves: Mapping[str, AuditedBinary]) -> Iterator[Finding]:
    if elves and any(tag.endswith("-any") for tag in read.tags):
        first = min(elves)
        yield finding(
            "wheel-tag", read.path.name, f"is tagged for any platform, but holds {first} for {elves[first].elf.machine}"
        )
    if elves and dict(read.metadata("WHEEL")).get("Root-Is-Purelib", "").lower() == "true":
        remedy = (
            "Mark the wheel as platform-specific in the build backend (setuptools: `ext_modules`; hatchling: the "
            "hook sets `pure_python` to False), then its WHEEL file says Root-Is-Purelib: false."
        )
        message = "says Root-Is-Purelib: true, but holds compiled files"
        yield finding("wheel-tag", read.path.name, message, remedy=remedy)


def _label(read: Wheel) -> Iterator[Finding]:
    """Compare the label in the name of a variant wheel (PEP 825) with its ``variant.json``."""
    text = read.text(f"{read.dist_info}/variant.json", limit=wheel.MAX_METADATA)
    try:
        described = untrusted.json(text or "{}").get("variants", {})
        inside = sorted(str(label) for label in described)
    except (ValueError, AttributeError, TypeError, RecursionError):
        inside = []
    if (read.label is not None or text is not None) and inside != [read.label]:
        name = f"has the label `{read.label}` in its name" if read.label else "has no label in its name"
        says = f"describes {some(inside)}" if inside else "describes no variant, or is missing"
        yield finding("variant-label", read.path.name, f"{name}, but variant.json {says}")


def _size(read: Wheel, budget: int | None) -> Iterator[Finding]:
    if budget is None or read.size <= budget:
        return
    largest = sorted(read.members, key=lambda member: -member.compressed)[:LARGEST_SHOWN]
    parts = ", ".join(f"{member.path} ({size(member.compressed)})" for member in largest)
    over = f"is {size(read.size)}, over the budget of {size(budget)}"
    yield finding("size", read.path.name, f"{over}; the largest parts are {parts}")


def _manifests(read: Wheel) -> tuple[tuple[Listed, ...], list[Finding]]:
    """Return the variants of every manifest in the wheel, and findings where manifests and members disagree."""
    variants: list[Listed] = []
    faults: list[Finding] = []
    hashes = {member.path: member.sha256 for member in read.members}
    for place in read.manifests():
        try:
            manifest = read.manifest(place)
        except WheelError as error:
            faults.append(finding("manifest-invalid", place, str(error)))
            continue
        variants += manifest.variants
        faults += _compare(manifest, hashes)
        if manifest.partial is not None:
            lacking = some(manifest.partial.lacking)
            of = f"{len(manifest.partial.built)} of {len(manifest.partial.entries)} entries"
            faults.append(finding("partial-wheel", place, f"the wheel holds {of}; it lacks {lacking}"))
    return tuple(variants), faults


def _compare(manifest: Manifest, hashes: Mapping[str, str]) -> Iterator[Finding]:
    """Compare the files of a manifest with the members of the wheel (path -> SHA-256)."""
    listed = dict(manifest.package_files)
    for item in manifest.variants:
        label = item.variant.label
        for path, file in sorted(item.files.items()):
            listed[path] = file.sha256
            if path not in hashes:
                message = f"variant {label} needs the file, says {manifest.place}, but it is not in the wheel"
                yield finding("manifest-missing-file", path, message, variant=label)
    for path, sha256 in sorted(listed.items()):
        if path in hashes and hashes[path] != sha256:
            yield finding("manifest-hash", path, f"its sha256 is {hashes[path]}, but {manifest.place} says {sha256}")
    for path in sorted(manifest.package_files.keys() - hashes.keys()):
        yield finding("manifest-missing-file", path, f"{manifest.place} lists the file, but it is not in the wheel")
    for path in sorted(hashes.keys() - listed.keys()):
        if path.startswith(manifest.root) and path != manifest.place:
            message = f"is below {manifest.root}, but {manifest.place} does not list it"
            yield finding("manifest-unknown-file", path, message)


def _subjects(read: Wheel, listed: Sequence[Listed], elves: Mapping[str, AuditedBinary]) -> list[Subject]:
    """Return one subject for each variant, and one for all files that no variant lists."""
    subjects = []
    rest = dict(elves)
    for item in listed:
        own = []
        for path, file in sorted(item.files.items()):
            if (known := elves.get(path)) is not None:
                # One folder more: RPATHs lead to torch from `<label>/` and from `shared/<hash>/`, wherever it is.
                own.append(AuditedBinary.of(file, place=path, elf=known.elf, depth=(known.depth or 0) + 1))
            rest.pop(path, None)
        subjects.append(Subject.of(item.variant, own, torch=item.variant.torch))
    if rest:
        subjects.append(
            Subject(
                variant=None,
                binaries=tuple(rest[path] for path in sorted(rest)),
                machines=_machines(read.tags),
                python=_python(read.tags),
                promised=_promised(read),
                promise="the wheel's metadata admit",
            )
        )
    return subjects


def _machines(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the machines of Linux tags; none if a tag is for another system."""
    platforms = {tag.rpartition("-")[2] for tag in tags}
    known = ("x86_64", "aarch64", "i686", "armv7l", "ppc64le", "s390x", "riscv64")
    found = {machine for platform in platforms for machine in known if platform.endswith(f"_{machine}")}
    return tuple(sorted(found)) if platforms and all("linux" in platform for platform in platforms) else ()


def _python(tags: Sequence[str]) -> str | None:
    """Return the one Python that the wheel is for, or None."""
    pythons = {tuple(tag.split("-")[:2]) for tag in tags}
    if len(pythons) != 1:
        return None
    python, abi = next(iter(pythons))
    if abi == "abi3":
        return f"abi3-{python}"
    return abi if abi.startswith("cp") else None


def _is_python(name: str) -> bool:
    return name.endswith(".py") and f"/{SOURCES}/" not in f"/{name}"


def _open(
    python: Path,
    read: Wheel,
    listed: Sequence[Listed],
    subjects: Sequence[Subject],
    *,
    report: Callable[[str], None],
) -> Iterator[Opened]:
    """Open the files for the torch of ``python``: variants by the loader's rules, foreign files by what they need."""
    python = python / "bin" / "python" if python.is_dir() else python
    here = opening.probe(python)
    if isinstance(here, str):
        raise ConfigurationError(
            f"`--python`: the torch of {python} cannot be imported, so nothing can be opened: {here}. Repair "
            f"that installation (`{shlex.quote(str(python))} -c 'import torch'` must work), or name another Python."
        )
    if here is None:
        if shutil.which(python) is None:
            raise ConfigurationError(f"`--python`: {python} is not a program. Name the Python itself, by its path.")
        install = f"uv pip install --python {shlex.quote(str(python))} torch"
        raise ConfigurationError(
            f"`--python`: {python} has no torch that can be imported, so nothing can be opened. Install one, "
            f"such as by `{install}`, or name another Python."
        )
    torch = f"torch {here['torch']} ({here['backend']})"
    variants = {item.variant.label: item for item in listed}
    idle = []
    for subject in subjects:
        if subject.variant is None:
            yield _open_foreign(python, read, subject, here, report=report)
            continue
        item = variants[subject.variant]
        if opening.serves(item.variant, here):
            loadable = [binary for binary in subject.binaries if binary.is_opened]
            yield opening.open_all(python, loadable, variant=subject.variant, package=item.package)
        else:
            idle.append(subject.variant)
    if idle:
        report(f"not opened, because they are not for {here['python']} and {torch}: {', '.join(idle)}")


def _open_foreign(
    python: Path, read: Wheel, subject: Subject, here: opening.Facts, *, report: Callable[[str], None]
) -> Opened:
    """Open files that no variant lists, except those for another Python, torch or backend."""
    torch = f"torch {here['torch']} ({here['backend']})"
    if not opening.python_fits(subject.python, here):
        report(f"not opened: the wheel is for {subject.python}, and the Python is {here['python']}")
        return Opened()
    requirement = _torch_requirement(read)
    if requirement is not None and not requirement.contains(here["torch"].partition("+")[0], prereleases=True):
        report(f"not opened: the wheel requires torch{requirement}, and there is {torch}")
        return Opened()
    loadable = [item for item in subject.binaries if item.is_module or owners.registers(item.elf.undefined)]
    reasons = {item.place: opening.expects_another(item, here) for item in loadable}
    for place, reason in sorted(reasons.items()):
        if reason:
            report(f"{place} was not opened: it needs {reason}, and there is {torch}")
    return opening.open_all(python, [item for item in loadable if not reasons[item.place]], variant=None, package=None)


def _torch_requirement(read: Wheel) -> SpecifierSet | None:
    """Return the torch requirement in the wheel's metadata, extras left aside; None if there is none."""
    for name, value in read.metadata("METADATA"):
        # Only a name that begins so can be torch's; the check saves the time to parse a hostile list.
        if name == "Requires-Dist" and value[:5].lower() == "torch":
            requirement = parsed_requirement(value)
            if requirement is None or canonicalize_name(requirement.name) != "torch":
                continue
            if "extra" not in str(requirement.marker or ""):
                return requirement.specifier
    return None


def _promised(read: Wheel) -> str | None:
    """Return the lowest release line of torch that the wheel's metadata admit, None if they do not mention torch."""
    requirement = _torch_requirement(read)
    admitted = releases.minors_of(releases.admitted_versions(requirement)) if requirement is not None else ()
    return releases.format_minor(admitted[0]) if admitted else None
