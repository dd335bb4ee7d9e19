"""Writes a wheel from a part: the author's members unchanged, the variants of a layout, and metadata that fit them.

Members have the order, times and modes that hatchling gives them, so a wheel that is split and merged again has the
same bytes if the same zlib compressed it. What a wheel has already goes from one archive into another without being
compressed again. Its bytes were compared with RECORD and the manifest when the wheel was read; before a member is
copied, its checksum and its sizes are compared with what was read then.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import stat
import struct
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.tags import parse_tag

from hatch_torch_ext.base import atomic
from hatch_torch_ext.base.errors import MergeError
from hatch_torch_ext.facts.variant import MANIFEST
from hatch_torch_ext.merge import loader, sbom
from hatch_torch_ext.outlets import parts
from hatch_torch_ext.outlets.parts import EXECUTABLE, SBOM, VARIANTS, forced_order
from hatch_torch_ext.wheel import parsed_requirement
from hatch_torch_ext.wheel.members import LOCAL_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hatch_torch_ext.outlets.parts import MemberInfo, Part
    from hatch_torch_ext.values import Layout
    from hatch_torch_ext.wheel import Member

CHUNK = 16384
"""hatchling's chunk size: with other chunks, the output of deflate may differ."""
_IN_CHUNKS = ("sboms/", "extra_metadata/")
"""Folders of .dist-info that hatchling writes in chunks; it writes the other files there at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A member to be written: its bytes, or a file with them; ``whole`` for text, which hatchling writes at once."""

    path: str
    data: bytes | Path
    like: MemberInfo
    whole: bool = False

    @property
    def info(self) -> zipfile.ZipInfo:
        """Return the member's name, time and mode."""
        found = zipfile.ZipInfo(self.path, self.like.time)
        found.external_attr = self.like.attributes
        found.compress_type = zipfile.ZIP_DEFLATED
        return found

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as hatchling hands them to the compressor; a file is never in memory as a whole."""
        if isinstance(self.data, bytes):
            yield from (self.data[start : start + CHUNK] for start in range(0, len(self.data), CHUNK))
            return
        with self.data.open("rb") as stream:
            yield from iter(lambda: stream.read(CHUNK), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What the wheel is a release of: ``version`` may have a local part, ``label`` is that of PEP 825."""

    version: str
    label: str | None = None
    build: str | None = None
    """The build number, if it is not that of the part."""

    def dist_info(self, part: Part) -> str:
        """Return the name of the wheel's ``.dist-info`` folder."""
        return f"{part.wheel.path.name.split('-')[0]}-{self.version}.dist-info"

    def number(self, part: Part) -> str | None:
        """Return the build number of the wheel."""
        return self.build or part.wheel.build


def write(
    part: Part,
    layout: Layout,
    release: Release,
    *,
    out: Path,
    dist_info: Mapping[str, bytes] | None = None,
    others: Sequence[str] = (),
    read: Sequence[Part] = (),
) -> Path:
    """Write the wheel of the author's members of ``part`` and of ``layout`` into the folder ``out``; return its path.

    ``dist_info`` are further files for ``.dist-info``; ``others`` are the wheels with the variants that this one lacks,
    for the loader's messages; ``read`` are the wheels, besides ``part``, that have files of the layout. A file of that
    name is replaced atomically.
    """
    target = out / file_name(part, layout, release)
    check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    record = io.StringIO()
    lines = csv.writer(record, lineterminator="\n")
    with (
        members([part, *(each for each in read if each is not part)]) as there,
        atomic.replacing(target) as draft,
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for file in _files(part, layout, release, dist_info=dist_info or {}, others=others):
            if isinstance(file.data, Path) and (kept := there.get(file.data)) is not None:
                kept.copy(archive, file.info)
                sha256, size = bytes.fromhex(kept.member.sha256), kept.member.size
            else:
                sha256, size = _add(archive, file)
            digest = base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()
            lines.writerow((file.path, f"sha256={digest}", str(size)))
        own = f"{release.dist_info(part)}/RECORD"
        lines.writerow((own, "", ""))
        like = part.member(f"{part.wheel.dist_info}/RECORD")
        _add(archive, _File(path=own, data=record.getvalue().encode(), like=like, whole=True))
    return target


def check_folder(out: Path) -> None:
    """Raise ``MergeError`` if there is something else than a folder at ``out``."""
    if out.exists() and not out.is_dir():
        raise MergeError(f"{out} is not a folder: name another with `-o`")


def beside(wheel: Path, layouts: Sequence[Layout]) -> Iterator[Path]:
    """Write a wheel of each of ``layouts`` beside ``wheel``, with the author's files of that; yield their paths."""
    with tempfile.TemporaryDirectory(prefix="torch-ext-machines-") as folder:
        part = parts.read(wheel, folder=Path(folder))
        for layout in layouts:
            yield write(part, layout, Release(version=part.wheel.version), out=wheel.parent)


def file_name(part: Part, layout: Layout, release: Release) -> str:
    """Return the name of the wheel that ``write`` makes."""
    name = part.wheel.path.name.split("-")[0]
    return f"{'-'.join(filter(None, [name, release.version, release.number(part), layout.tag, release.label]))}.whl"


def pack(target: Path, dist_info: str, members: Iterable[tuple[MemberInfo, bytes]]) -> None:
    """Write a wheel of these members, RECORD among them, as ``write`` does."""
    with atomic.replacing(target) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for like, data in members:
            name = like.path.removeprefix(f"{dist_info}/")
            whole = name != like.path and not name.startswith(_IN_CHUNKS)
            _add(archive, _File(path=like.path, data=data, like=like, whole=whole))


def _add(archive: zipfile.ZipFile, file: _File) -> tuple[bytes, int]:
    """Write a member; return the SHA-256 of its bytes, and their number."""
    info = file.info
    if file.whole:
        data = b"".join(file.chunks())
        archive.writestr(info, data, compress_type=zipfile.ZIP_DEFLATED)
        return hashlib.sha256(data).digest(), len(data)
    info.file_size = len(file.data) if isinstance(file.data, bytes) else file.data.stat().st_size
    sha256 = hashlib.sha256()
    with archive.open(info, "w") as stream:
        for chunk in file.chunks():
            sha256.update(chunk)
            stream.write(chunk)
    return sha256.digest(), info.file_size


def _files(
    part: Part, layout: Layout, release: Release, *, dist_info: Mapping[str, bytes], others: Sequence[str]
) -> Iterator[_File]:
    """Yield every member but RECORD: the author's, then what the build added, in its place, then the metadata."""
    old = f"{part.wheel.dist_info}/"
    package = [member for member in part.members if not member.path.startswith(old)]
    ours = [number for number, member in enumerate(package) if member.path in part.generated]
    before, among, after = package[: ours[0]], package[ours[0] : ours[-1] + 1], package[ours[-1] + 1 :]
    yield from (_kept(part, member) for member in before)
    added = [
        *_ours(part, layout, others),
        *(_kept(part, member) for member in among if member.path not in part.generated),
    ]
    yield from sorted(added, key=lambda file: forced_order(file.path))
    yield from (_kept(part, member) for member in after)
    for member in part.members:
        name = member.path.removeprefix(old)
        if member.path.startswith(old) and name not in {"RECORD", "variant.json"}:
            yield _metadata(part, layout, member, name, release)
            if name == "WHEEL":
                for extra, data in sorted(dist_info.items()):
                    yield _File(path=f"{release.dist_info(part)}/{extra}", data=data, like=member, whole=True)


def _kept(part: Part, member: MemberInfo) -> _File:
    return _File(path=member.path, data=part.wheel.folder / member.path, like=member)


def _ours(part: Part, layout: Layout, others: Sequence[str]) -> Iterator[_File]:
    """Yield the files of the layout, the loader and the manifest."""
    loader_member, manifest = part.member(f"{part.prefix}{VARIANTS}"), part.member(f"{part.prefix}{MANIFEST}")
    authors = part.authors
    for file in layout.files:
        path = f"{part.prefix}{file.target}"
        if path not in authors:
            mode = stat.S_IFREG | (0o755 if file.source.stat().st_mode & EXECUTABLE else 0o644)
            yield _File(path=path, data=file.source, like=replace(manifest, attributes=mode << 16))
    text = loader.render(layout, distribution=part.distribution, cut=others)
    yield _File(path=loader_member.path, data=text.encode(), like=loader_member)
    yield _File(path=manifest.path, data=layout.manifest.encode(), like=manifest)


def _metadata(part: Part, layout: Layout, member: MemberInfo, name: str, release: Release) -> _File:
    data = _read(part, member.path)
    path = f"{release.dist_info(part)}/{name}"
    if name == "METADATA":
        return _File(path=path, data=_core_metadata(data, part, layout, release.version), like=member, whole=True)
    if name == "WHEEL":
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        kept = [line for line in lines if line and not line.startswith(("Tag:", "Build:"))]
        tags = [f"Tag: {tag}" for tag in sorted(map(str, parse_tag(layout.tag)))]
        build = release.number(part)
        number = [f"Build: {build}"] if build is not None else []
        return _File(
            path=path,
            data=("\n".join([*kept, *tags, *number]) + "\n").encode("utf-8", "surrogateescape"),
            like=member,
            whole=True,
        )
    if name == SBOM:
        text = sbom.render(layout, distribution=part.distribution)
        return _File(path=path, data=text.encode(), like=member)
    return _File(path=path, data=data, like=member, whole=not name.startswith(_IN_CHUNKS))


def _core_metadata(data: bytes, part: Part, layout: Layout, version: str) -> bytes:
    """Return METADATA with this wheel's version and torch requirement; every other byte stays."""
    head, blank, body = data.partition(b"\n\n")
    lines = []
    for line in head.decode("utf-8", "surrogateescape").split("\n"):
        field, _, value = line.partition(": ")
        if field == "Version":
            lines.append(f"Version: {version}")
        elif field == "Requires-Dist" and _same(value, part.requires):
            lines.append(f"Requires-Dist: {Requirement(layout.requires)}")
        else:
            lines.append(line)
    return "\n".join(lines).encode("utf-8", "surrogateescape") + blank + body


def _same(one: str, other: str) -> bool:
    parsed = parsed_requirement(one)
    return parsed is not None and parsed == parsed_requirement(other)


def _read(part: Part, path: str) -> bytes:
    return (part.wheel.folder / path).read_bytes()


COPIED = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A member of the archive at ``path``, as it is in there; ``member`` is what was read."""

    path: Path
    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    member: Member

    def copy(self, target: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
        """Append the member to ``target``, which is being written, under the name and the attributes of ``info``.

        Raises ``MergeError`` if the archive is not the one that was read.
        """
        source, sink = self.archive.fp, target.fp
        assert source is not None  # noqa: S101 -- open, both
        assert sink is not None  # noqa: S101
        source.seek(self.info.header_offset)
        header = source.read(LOCAL_HEADER)
        before = self.member.crc, self.member.size, self.member.compressed
        if len(header) < LOCAL_HEADER or (self.info.CRC, self.info.file_size, self.info.compress_size) != before:
            raise _changed(self.path)
        source.seek(sum(struct.unpack_from("<HH", header, 26)), 1)  # the name and the extra fields
        info.compress_type, info.CRC = self.info.compress_type, self.info.CRC
        info.compress_size, info.file_size = self.info.compress_size, self.info.file_size
        info.header_offset = target.start_dir
        sink.seek(target.start_dir)
        sink.write(info.FileHeader(zip64=info.file_size * 1.05 > zipfile.ZIP64_LIMIT))  # as zipfile decides it
        left = info.compress_size
        while left:
            chunk = source.read(min(left, COPIED))
            if not chunk:
                raise _changed(self.path)
            sink.write(chunk)
            left -= len(chunk)
        target.start_dir = sink.tell()
        target.filelist.append(info)
        target.NameToInfo[info.filename] = info


def _changed(path: Path) -> MergeError:
    return MergeError(f"{path} was changed while it was read: name a copy that no other program writes to")


@contextlib.contextmanager
def members(read: Sequence[Part]) -> Iterator[Mapping[Path, Packed]]:
    """Open the archives of the wheels ``read``; give unpacked file -> the member that it was."""
    found: dict[Path, Packed] = {}
    with contextlib.ExitStack() as stack:
        for part in read:
            path = part.wheel.path
            archive = stack.enter_context(zipfile.ZipFile(path))
            for member in part.wheel.members:
                info = archive.NameToInfo.get(member.path)
                if info is None:
                    raise _changed(path)
                found[part.wheel.folder / member.path] = Packed(path=path, archive=archive, info=info, member=member)
        yield found
