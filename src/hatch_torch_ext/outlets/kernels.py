"""A kernel repository of Hugging Face's Hub, made from a finished wheel without compiling; and the wheel again from it.

The package ``kernels`` takes one folder of such a repository, by the name of a variant, and imports it as a package
under an ``id`` of its own, so that several versions can be in one process::

    build/torch213-cxx11-cpu-x86_64-linux/   the package with one variant, its loader, metadata.json
    torch-ext/                               what gives the wheel back: `merge` reads it
    README.md                                the Hub's page

Where the package registers its operators by ``registration.h``, their namespace is a field of the library, and each
build gets the name that its ``id`` is; the wheel keeps the author's name.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from hatch_torch_ext.base import escape, resources, untrusted
from hatch_torch_ext.base.errors import MergeError, WheelError
from hatch_torch_ext.facts import content
from hatch_torch_ext.facts.variant import MANIFEST
from hatch_torch_ext.merge import loader
from hatch_torch_ext.outlets import kernelrules, parts, writing
from hatch_torch_ext.outlets.kernelrules import NAMESPACE, OPS
from hatch_torch_ext.outlets.merging import relaid
from hatch_torch_ext.outlets.parts import VARIANTS, MemberInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hatch_torch_ext.facts.variant import BuiltVariant, Variant
    from hatch_torch_ext.outlets.parts import Part
    from hatch_torch_ext.values import Layout

BUILD = "build"
KEPT = "torch-ext"
"""The folder of the repository from which the wheel is made again."""
RECORD = "wheel.json"
MEMBERS = "members"
PAGE = "README.md"
DRAFT = ".torch-ext-kernels-"
"""The name, but for its end, of the folder in the repository in which it is written."""
METADATA = "metadata.json"
FIELD = re.compile(rb"TORCH_EXT_NAMESPACE=([A-Za-z_]\w{0,106})\0+")
"""The field of a library with its namespace, as ``registration.h`` makes it: 128 bytes, filled with zeros."""
FIELD_SIZE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The written repository: ``variants`` are (its folder's name, the kernel's id, the label of ours), sorted."""

    folder: Path
    name: str
    version: int
    variants: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The wheel that a kernel is made of, and what all of its variants share.

    ``spaces`` are sha256 of a library -> the namespaces in its fields, for those that have fields.
    """

    part: Part
    name: str
    version: int
    licence: str
    sha256: str
    spaces: Mapping[str, frozenset[str]]

    @property
    def namespaces(self) -> frozenset[str]:
        """Return the names in the fields of all libraries."""
        return frozenset(name for names in self.spaces.values() for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """What one variant of the repository is made of."""

    folder: str
    id: str
    built: BuiltVariant
    layout: Layout


def write(
    path: Path,
    *,
    out: Path,
    name: str | None = None,
    version: int | None = None,
    licence: str | None = None,
    keep_namespace: bool = False,
) -> Repository:
    """Write the kernel repository of the wheel at ``path`` into the folder ``out``.

    ``name``, ``version`` and ``licence`` are the kernel's; by default those of the package, the major of its version,
    and that of its metadata. ``keep_namespace`` allows operators under the name that they have in the wheel. Raises
    ``WheelError`` for a wheel that this project did not make, ``MergeError`` for one of which no kernel can be made.
    """
    if path.is_dir():
        raise WheelError(f"{path} is a folder: name the wheel, as `hatch build` wrote it to dist/")
    _check_folder(out)
    with tempfile.TemporaryDirectory(prefix="torch-ext-kernels-") as scratch:
        part = parts.read(path, folder=_empty(Path(scratch) / "wheel"))
        source = _source(part, name, version, licence, keep_namespace=keep_namespace)
        kernels = [_kernel(source, built, _empty(Path(scratch) / built.variant.label)) for built in part.variants]
        with _draft(out) as draft:
            _write_all(source, kernels, draft)
            _write_record(source, kernels, draft / KEPT)
            (draft / PAGE).write_bytes(_page(source).encode())
            _put(draft, out)
        notes = tuple(kernelrules.notes(part, source.namespaces))
    return Repository(
        folder=out,
        name=source.name,
        version=source.version,
        variants=tuple(sorted((each.folder, each.id, each.built.variant.label) for each in kernels)),
        notes=notes,
    )


def _source(part: Part, name: str | None, version: int | None, licence: str | None, *, keep_namespace: bool) -> _Source:
    """Return what the kernel is made of. Raises ``MergeError`` with all that keeps the wheel from being one."""
    parts.refuse_cut(part)
    kernel = name or part.package.rpartition(".")[2].lower().replace("_", "-")
    spaces = _namespaces(part)
    problems = [*kernelrules.problems(part, kernel, spaces, name_given=name is not None, keep_namespace=keep_namespace)]
    licence = licence or kernelrules.licence(part)
    if licence is None:
        problems.append(
            "its metadata name no licence, which a kernel's must: add `license` to [project], or give `--license`"
        )
    if problems:
        raise MergeError(_problems(part.wheel.path, problems))
    return _Source(
        part=part,
        name=kernel,
        version=Version(part.wheel.version).major if version is None else version,
        licence=str(licence),
        sha256=content.sha256(part.wheel.path),
        spaces={} if keep_namespace else spaces,
    )


def write_header(target: Path) -> None:
    """Write ``registration.h``, with which operators get a name of their own in each build. An existing file stays."""
    if target.exists():
        raise MergeError(f"{target} is there: name another file with `--header`, or remove it")
    target.write_text(resources.text("hub/registration.h"), encoding="utf-8")


@contextlib.contextmanager
def _draft(out: Path) -> Iterator[Path]:
    """Provide a folder in ``out`` from which files are moved there; remove it, and a new ``out`` after an error."""
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=out))
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if new:
            with contextlib.suppress(OSError):  # it holds the repository
                out.rmdir()


def _put(draft: Path, out: Path) -> None:
    """Move what was written from ``draft`` into ``out``, for what an earlier run wrote; all else in ``out`` stays.

    After an error everything is as it was before. The record is the last, and is never missing if there was one.
    """
    kept = [f"{KEPT}/{MEMBERS}", f"{KEPT}/{RECORD}"] if (out / KEPT).is_dir() else [KEPT]
    page = [PAGE] if _is_own_page(out) else []
    before = _empty(draft / "before")
    with contextlib.ExitStack() as undo:
        for number, place in enumerate([BUILD, *page, *kept]):
            target, old = out / place, before / str(number)
            if target.is_file():
                shutil.copy2(target, old)
                undo.callback(_move, old, target)
            elif os.path.lexists(target):
                undo.callback(_move, old, target)
                target.rename(old)
            undo.callback(_move, target, draft / place)
            (draft / place).replace(target)
        undo.pop_all()


def _is_own_page(out: Path) -> bool:
    """Return whether README.md is to be written: it is not there, or as an earlier run wrote it."""
    if not os.path.lexists(out / PAGE):
        return True
    try:
        record = untrusted.json((out / KEPT / RECORD).read_text(encoding="utf-8"))
        return bool(record["page"] == content.sha256(out / PAGE))
    except (OSError, KeyError, TypeError, ValueError):
        return False


def _move(there: Path, back: Path) -> None:
    if os.path.lexists(there):
        there.replace(back)


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _check_folder(out: Path) -> None:
    writing.check_folder(out)
    others = out.is_dir() and any(not each.name.startswith(DRAFT) for each in out.iterdir())
    if others and not (out / KEPT / RECORD).is_file():
        raise MergeError(f"{out} holds other files: name an empty folder with `-o`, or one that `kernels` made before")


def _problems(path: Path, problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return f"no kernel can be made of {path.name}: {problems[0]}"
    listed = "".join(f"\n  - {each}" for each in problems)
    return f"no kernel can be made of {path.name}, for {len(problems)} reasons:{listed}"


# One variant ----------------------------------------------------------------------------------------------------------


def _namespaces(part: Part) -> dict[str, frozenset[str]]:
    """Return sha256 of a library -> the namespaces in its fields, for those that have fields."""
    found: dict[str, frozenset[str]] = {}
    for built in part.variants:
        for file in built.variant.files:
            if file.kind in {"library", "module"} and file.sha256 not in found:
                names = fields(built.source(file.path).read_bytes())
                if names:
                    found[file.sha256] = names
    return found


def fields(data: bytes) -> frozenset[str]:
    """Return the namespaces in the fields of a library."""
    return frozenset(match[1].decode() for match in _fields(data))


def renamed(data: bytes, names: Mapping[str, str]) -> bytes:
    """Return a library with other names in its fields; all else stays."""
    whole = bytearray(data)
    for match in _fields(data):
        old = match[1].decode()
        if old in names:
            start = match.start(1)
            size = FIELD_SIZE - (start - match.start())
            whole[start : start + size] = names[old].encode().ljust(size, b"\0")
    return bytes(whole)


def _fields(data: bytes) -> Iterator[re.Match[bytes]]:
    return (match for match in FIELD.finditer(data) if len(match[0]) >= FIELD_SIZE)


def _kernel(source: _Source, built: BuiltVariant, folder: Path) -> _Kernel:
    """Return one variant under its own id, its libraries written to ``folder`` where their namespace changes."""
    variant, spaces = built.variant, source.spaces
    name = f"_{source.name.replace('-', '_')}_{variant.backend}_{source.sha256[:10]}"
    files, elsewhere = [], dict(built.elsewhere)
    for number, file in enumerate(variant.files):
        if file.sha256 not in spaces:
            files.append(file)
            continue
        old = spaces[file.sha256]
        before = built.source(file.path)
        target = folder / str(number)
        target.write_bytes(renamed(before.read_bytes(), dict.fromkeys(old, name)))
        target.chmod(stat.S_IMODE(before.stat().st_mode))
        elsewhere[file.path] = target
        files.append(
            replace(
                file,
                sha256=content.sha256(target),
                ends=None if file.ends is None else content.ends(target),
                namespaces=tuple(sorted(name if each in old else each for each in file.namespaces)),
                operators=tuple(sorted(_operator(each, old, name) for each in file.operators)),
                fragments=tuple(sorted(name if each in old else each for each in file.fragments)),
            )
        )
    ours = replace(built, variant=replace(variant, files=tuple(files)), elsewhere=tuple(sorted(elsewhere.items())))
    layout = relaid([ours], [source.part], open_ended=False)
    return _Kernel(folder=kernelrules.variant_name(variant), id=name, built=built, layout=layout)


def _operator(operator: str, old: Iterable[str], new: str) -> str:
    space, colons, name = operator.partition("::")
    return f"{new}::{name}" if colons and space in old else operator


# The repository -------------------------------------------------------------------------------------------------------


def _write_all(source: _Source, kernels: Sequence[_Kernel], out: Path) -> None:
    """Write the folder of each variant; files with the same bytes and mode in several of them are one on the disk."""
    first: dict[tuple[str, int], Path] = {}
    for each in kernels:
        folder = out / BUILD / each.folder
        digests = {}
        for target, data, mode in _files(source, each):
            path = folder / target
            path.parent.mkdir(parents=True, exist_ok=True)
            sha256 = hashlib.sha256(data)
            digests[target] = base64.b64encode(sha256.digest()).decode()
            _link(path, data, mode, first.setdefault((sha256.hexdigest(), mode), path))
        text = json.dumps(_metadata(source, each.built.variant, each.id, digests), indent=2, sort_keys=True)
        (folder / METADATA).write_text(f"{text}\n", encoding="utf-8")


def _link(path: Path, data: bytes, mode: int, first: Path) -> None:
    if first != path:
        try:
            os.link(first, path)
        except OSError:  # a file system without hard links
            pass
        else:
            return
    path.write_bytes(data)
    path.chmod(mode)


def _files(source: _Source, each: _Kernel) -> Iterator[tuple[str, bytes, int]]:
    """Yield (path in the variant's folder, bytes, mode) of the package with one variant."""
    part = source.part
    placed = {file.target: file.source for file in each.layout.files}
    own = {VARIANTS, MANIFEST, *placed}
    names = dict.fromkeys(source.namespaces, each.id)
    for member in sorted(part.authors):
        target = member.removeprefix(part.prefix)
        if target in own:
            continue
        data = (part.wheel.folder / member).read_bytes()
        if target == OPS:
            data = NAMESPACE.sub(
                lambda match: f'NAMESPACE = "{names.get(match[1], match[1])}"', data.decode("utf-8")
            ).encode()
        yield target, data, 0o644
    for target, path in sorted(placed.items()):
        yield target, path.read_bytes(), 0o755 if path.stat().st_mode & parts.EXECUTABLE else 0o644
    named = replace(each.layout, package=each.id)
    text = loader.render(named, distribution=part.distribution, kernel=(source.name, source.version))
    yield VARIANTS, text.encode(), 0o644
    yield MANIFEST, each.layout.manifest.encode(), 0o644


def _metadata(source: _Source, variant: Variant, identifier: str, digests: Mapping[str, str]) -> dict[str, object]:
    known = kernelrules.known_requirements(variant)
    needed = {known[each.name] for each in kernelrules.requirements(source.part) if each.name in known}
    return {
        "name": source.name,
        "id": identifier,
        "version": source.version,
        "license": source.licence,
        "python-depends": sorted(needed),
        "kernel-depends": [],
        "backend": {"type": variant.backend, **({"archs": list(variant.archs)} if variant.archs else {})},
        "digest": {"algorithm": "sha256", "files": dict(sorted(digests.items()))},
    }


def _page(source: _Source) -> str:
    """Return the text of README.md, which the Hub shows as the kernel's page."""
    part, name = source.part, source.name
    summary = dict(part.wheel.metadata("METADATA")).get("Summary", "")
    return (
        f"---\nlibrary_name: kernels\nlicense: {source.licence.lower()}\ntags:\n- kernels\n---\n\n# {name}\n\n"
        f"{f'{summary}{chr(10)}{chr(10)}' if summary else ''}"
        f"```python\nfrom kernels import get_kernel\n\n"
        f'{name.replace("-", "_")} = get_kernel("OWNER/{name}", version={source.version})\n```\n\n'
        f"The same build, for pip: `pip install {part.distribution}=={part.wheel.version}`.\n"
    )


# The wheel again ------------------------------------------------------------------------------------------------------


def _write_record(source: _Source, kernels: Sequence[_Kernel], folder: Path) -> None:
    """Write what gives the wheel back: its list of members, and those that no variant's folder holds as they are."""
    folder.mkdir()
    part = source.part
    hashes = {member.path: content.sha256(part.wheel.folder / member.path) for member in part.members}
    names = {each.id: name for each in kernels for name in sorted(source.namespaces)[:1]}
    held = _sources(folder.parent, {*hashes.values()}, names)
    members = []
    for member in part.members:
        sha256 = hashes[member.path]
        if sha256 not in held:
            target = folder / MEMBERS / member.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((part.wheel.folder / member.path).read_bytes())
        members.append([member.path, sha256, list(member.time), member.attributes])
    record = {
        "schema": 1,
        "file": part.wheel.path.name,
        "sha256": source.sha256,
        "dist_info": part.wheel.dist_info,
        "page": hashlib.sha256(_page(source).encode()).hexdigest(),
        "namespaces": {each.id: sorted(source.namespaces) for each in kernels},
        "variants": {each.folder: each.built.variant.label for each in kernels},
        "members": members,
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def is_repository(folder: Path) -> bool:
    """Return whether ``folder`` is a kernel repository that ``write`` made."""
    return (folder / KEPT / RECORD).is_file()


def wheel_of(folder: Path, *, out: Path) -> Path:
    """Write the wheel that the kernel repository in ``folder`` was made of into the folder ``out``; return its path.

    Raises ``WheelError`` if a file of it is missing or was changed.
    """
    path = folder / KEPT / RECORD
    try:
        record = untrusted.json(path.read_text(encoding="utf-8"))
        members = [
            (MemberInfo(path=str(name), time=tuple(map(int, time)), attributes=int(attributes)), str(sha256))  # type: ignore[arg-type]
            for name, sha256, time, attributes in record["members"]
        ]
        file, digest, info = (str(record[key]) for key in ("file", "sha256", "dist_info"))
        names = {str(new): str(old[0]) for new, old in record["namespaces"].items() if old}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise WheelError(f"{path} is damaged: run `hatch-torch-ext kernels` again") from error
    if Path(file).name != file or not file.endswith(".whl"):
        raise WheelError(f"{path} has no file name of a wheel: run `hatch-torch-ext kernels` again")
    sources = _sources(folder, {sha256 for _, sha256 in members}, names)
    lacking = [member.path for member, sha256 in members if sha256 not in sources]
    if lacking:
        raise WheelError(
            f"`{lacking[0]}`{escape.more(len(lacking))} of {file} is missing in {folder}, or was changed there: fetch "
            "the repository again, or run `hatch-torch-ext kernels` again"
        )
    writing.check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    target = out / file
    writing.pack(target, info, ((member, renamed(sources[sha256].read_bytes(), names)) for member, sha256 in members))
    if content.sha256(target) != digest:
        raise WheelError(
            f"{target} has the files of the wheel, and not its bytes: another zlib compressed it. It can be used as it "
            "is; the same bytes come with the Python that built it"
        )
    return target


def _sources(folder: Path, hashes: set[str], names: Mapping[str, str]) -> dict[str, Path]:
    """Return sha256 of a member -> a file with these bytes, once its namespace is that of the wheel."""
    found: dict[str, Path] = {}
    for base in (folder / KEPT / MEMBERS, folder / BUILD):
        for path in sorted(base.rglob("*")):
            if path.is_file():
                sha256 = hashlib.sha256(renamed(path.read_bytes(), names)).hexdigest()
                if sha256 in hashes:
                    found.setdefault(sha256, path)
    return found
