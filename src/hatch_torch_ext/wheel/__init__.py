"""Reads any wheel without trusting it; members are written to a folder one by one, never kept in memory as a whole.

What a hostile or damaged archive does (names that lead out of the folder, links, bombs, overlapping members, a
truncated end) becomes a ``Problem`` if the rest can still be read, else a ``WheelError``.
"""

from __future__ import annotations

import base64
import csv
import errno
import hashlib
import io
import re
import stat
import zipfile
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.facts import manifest
from hatch_torch_ext.wheel import members
from hatch_torch_ext.wheel.members import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from hatch_torch_ext.facts.manifest import Manifest
    from hatch_torch_ext.facts.variant import Variant

ELF_MAGIC = b"\x7fELF"
CHUNK = 1 << 20
MAX_TEXT = 32 << 20
"""Limit of all Python files that are read, in bytes."""
MAX_METADATA = 1 << 20
MAX_MANIFESTS = 8
MAX_RECORD = 16 << 20
"""Limit of RECORD in bytes: as many files as are read, with long names."""
MAX_LISTED = 1000
"""Number of files that only RECORD lists up to which each is reported."""
PARTS_WITH_BUILD = 6
"""The parts of a wheel's name: distribution, version, build tag, Python, ABI, platform."""
RECORD_HASHES = ("sha256", "sha384", "sha512")
UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a file system that takes no more."""
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
    MemoryError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file of the wheel; ``size`` and ``compressed`` in bytes.

    ``elf`` is decided by its first bytes, not by its name.

    ``sha256`` is that of the bytes that were read, in hex; ``crc`` is the archive's CRC-32, which they have.
    """

    path: str
    size: int
    compressed: int
    sha256: str
    crc: int
    elf: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel that was read: its name, its members by path, and the faults of its archive.

    ``folder`` holds the members that were kept, at their own paths; ``tags`` are those of the file name, sorted.
    """

    path: Path
    distribution: str
    version: str
    tags: tuple[str, ...]
    size: int
    dist_info: str
    members: tuple[Member, ...]
    problems: tuple[Problem, ...]
    folder: Path
    label: str | None = None
    """The label of PEP 825 in the file name of a variant wheel."""
    build: str | None = None
    """The build number in the file name (``1``): of two wheels of a version, installers take that with the higher."""
    texts: Mapping[str, bytes] = field(default_factory=dict)
    """Members that were requested as texts.

    They are in memory: writing thousands of small files takes most of the time.
    """
    elsewhere: Mapping[str, Path] = field(default_factory=dict)
    """The members that were not read, since an earlier wheel has them too, and where that one's files are."""

    def file(self, member: str) -> Path:
        """Return where the bytes of a kept member are."""
        return self.elsewhere.get(member) or self.folder / member

    def text(self, member: str, *, limit: int = MAX_TEXT) -> str | None:
        """Return the text of a kept member, or None if the wheel lacks it or it is over the limit."""
        if member in self.texts:
            return self.texts[member].decode("utf-8", "replace") if len(self.texts[member]) <= limit else None
        path = self.folder / member  # the folder holds only members that were read in full
        if not path.is_file() or path.stat().st_size > limit:
            return None
        return path.read_text(encoding="utf-8", errors="replace")

    def manifests(self) -> tuple[str, ...]:
        """Return the members that are manifests of ours. Raises ``WheelError`` if there are more than any wheel has."""
        found = tuple(member.path for member in self.members if manifest.is_manifest(member.path))
        if len(found) > MAX_MANIFESTS:
            raise WheelError(
                f"{self.path}: holds {len(found)} manifests (_torch_ext/manifest.json), and no wheel of ours has more "
                f"than {MAX_MANIFESTS}. Do not trust this wheel"
            )
        return found

    def manifest(self, place: str) -> Manifest:
        """Return the content of the manifest at the member ``place``; raises as ``manifest.parse`` does."""
        text = self.text(place, limit=manifest.MAX_BYTES)
        if text is None:
            raise WheelError(f"is too large to be read: it has more than {manifest.MAX_BYTES >> 20} MiB")
        return manifest.parse(text, place, file=f"{self.path}: {place}")

    def variants(self) -> list[Variant]:
        """Return the variants of all manifests; raises as ``manifest`` and ``manifests`` do."""
        return [item.variant for place in self.manifests() for item in self.manifest(place).variants]

    def metadata(self, member: str) -> tuple[tuple[str, str], ...]:
        """Return the header fields of METADATA or WHEEL in their order, or () if it is missing."""
        fields = []
        for line in (self.text(f"{self.dist_info}/{member}", limit=MAX_METADATA) or "").splitlines():
            if not line.strip():
                break
            name, colon, value = line.partition(":")
            if colon and not line[0].isspace():
                fields.append((name.strip(), value.strip()))
        return tuple(fields)

    def misnamed(self) -> str | None:
        """Return which part of the wheel states another name or version than its file name, as a clause, or None."""
        fields = dict(reversed(self.metadata("METADATA")))  # the first of each counts
        name, _, version = self.dist_info.removesuffix(".dist-info").partition("-")
        for place, stated in (
            (self.dist_info, (name, version)),
            (f"{self.dist_info}/METADATA", (fields.get("Name", ""), fields.get("Version", ""))),
        ):
            if (canonicalize_name(stated[0]), _normal(stated[1])) != (self.distribution, self.version):
                found = escape.name(" ".join(stated)) or "nothing"
                return f"is named {self.distribution} {self.version}, but {escape.name(place)} is of {found}"
        return None


def _normal(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        return version


def read(
    path: Path,
    *,
    folder: Path,
    keep: Callable[[str], bool] = lambda _: False,
    texts: Callable[[str], bool] = lambda _: False,
    before: Wheel | None = None,
) -> Wheel:
    """Read the wheel at ``path``; write ELF files, metadata, manifests and what ``keep`` names below ``folder``.

    Members that ``texts`` names are kept in memory, up to ``MAX_TEXT`` bytes altogether. ELF files that ``before``, the
    wheel that this one was made from, has too are not read again. Every other member is read once, and compared with
    RECORD; time and memory are proportional to the file. Raises ``WheelError`` for what is not a wheel.
    """
    distribution, version, tags, label, build = _parse_name(path)
    problems = Problems()
    with open_archive(path) as archive:
        infos = members.select(path, archive, problems)
        dist_info = _dist_info(path, infos)
        record, others = _record(archive, infos, dist_info, problems)
        reader = _Reader(
            path=path,
            archive=archive,
            folder=folder,
            dist_info=dist_info,
            record=record,
            problems=problems,
            room=MAX_TEXT,
        )
        same = _unchanged(infos, record or {}, before) if before is not None else {}
        found = [
            replace(same[info.filename], path=info.filename)
            if info.filename in same
            else reader.read(info, keep=keep(info.filename), text=texts(info.filename))
            for info in infos
        ]
    for name in others:
        problems.add("record-missing-file", name, "RECORD lists the file, but it is not in the wheel")
    return Wheel(
        path=path,
        distribution=distribution,
        version=version,
        tags=tags,
        size=path.stat().st_size,
        dist_info=dist_info,
        members=tuple(sorted(filter(None, found), key=lambda member: member.path)),
        problems=problems.all(),
        folder=folder,
        label=label,
        build=build,
        texts=reader.texts,
        elsewhere={name: before.file(member.path) for name, member in same.items()} if before is not None else {},
    )


def _unchanged(
    infos: Iterable[zipfile.ZipInfo], record: Mapping[str, tuple[str, str]], before: Wheel
) -> dict[str, Member]:
    """Return, by path, the ELF files of ``before`` that have the bytes which RECORD and the archive state."""
    known = {(member.crc, member.size, member.compressed): member for member in before.members if member.elf}
    found = {}
    for info in infos:
        member = known.get((info.CRC, info.file_size, info.compress_size))
        if member is not None and record.get(info.filename) == ("sha256", _in_record(bytes.fromhex(member.sha256))):
            found[info.filename] = member
    return found


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open the archive at ``path``. Raises ``WheelError`` if there is none; pipes and devices are not opened."""
    require_file(path)
    try:
        return zipfile.ZipFile(path)
    except (*_DAMAGE, OverflowError) as error:
        message = escape.name(error)
        raise WheelError(
            f"{path}: is not a zip archive, or its end is missing ({message}). Build or fetch the wheel again"
        ) from error


def require_file(path: Path) -> None:
    """Raise ``WheelError`` where there is no file at ``path``, whatever its name."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError | NotADirectoryError) else error.strerror
        raise WheelError(f"{path}: {reason}. Give the path of a wheel") from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe, a device or a socket"
        raise WheelError(f"{path}: is {what}, not a file. Give the path of a wheel")


def _parse_name(path: Path) -> tuple[str, str, tuple[str, ...], str | None, str | None]:
    plain, label = _without_label(path.name)
    try:
        name, version, build, tags = parse_wheel_filename(plain)
    except ValueError as error:  # InvalidWheelFilename and, for its version, others
        require_file(path)
        raise WheelError(
            f"{path}: is not named as a wheel, NAME-VERSION-PYTHON-ABI-PLATFORM.whl. "
            "Give the file its published name back"
        ) from error
    number = "".join(map(str, build)) or None
    return name, str(version), tuple(sorted(str(tag) for tag in tags)), label, number


def _without_label(name: str) -> tuple[str, str | None]:
    """Separate the label of PEP 825 from a wheel's name.

    It is the sixth part or, after a build tag (which begins with a digit), the seventh.
    """
    parts = name.removesuffix(".whl").split("-")
    labelled = len(parts) == PARTS_WITH_BUILD + 1 or (len(parts) == PARTS_WITH_BUILD and not parts[2][:1].isdigit())
    if not labelled or re.fullmatch(r"[0-9a-z._]+", parts[-1]) is None:
        return name, None
    return f"{'-'.join(parts[:-1])}.whl", parts[-1]


def _dist_info(path: Path, infos: Iterable[zipfile.ZipInfo]) -> str:
    found = sorted(
        {info.filename.split("/")[0] for info in infos if info.filename.split("/")[0].endswith(".dist-info")}
    )
    if len(found) != 1:
        names = ", ".join(map(escape.name, found[:3])) + (", ..." if len(found) > 3 else "")  # noqa: PLR2004 -- a few
        has = "no .dist-info folder" if not found else f"{len(found)} .dist-info folders ({names})"
        raise WheelError(f"{path}: has {has}, and a wheel has one. Build or fetch the wheel again")
    return found[0]


def _record(
    archive: zipfile.ZipFile, infos: Collection[zipfile.ZipInfo], dist_info: str, problems: Problems
) -> tuple[dict[str, tuple[str, str]] | None, list[str]]:
    """Return path -> (algorithm, digest) of RECORD, both empty if it states none; None if it cannot be read.

    It has only members of the wheel; the second value are the other files that RECORD lists, up to a limit.
    """
    name = f"{dist_info}/RECORD"
    info = next((info for info in infos if info.filename == name), None)
    if info is None or info.file_size > MAX_RECORD:
        problems.add("record-missing-file", name, "the wheel has no RECORD that can be read")
        return None, []
    present = {info.filename for info in infos}
    lines: dict[str, tuple[str, str]] = {}
    others: set[str] = set()
    try:
        with archive.open(info) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
            for row in csv.reader(text):
                if row and row[0] in present:
                    algorithm, _, digest = (row[1] if len(row) > 1 else "").partition("=")
                    lines[row[0]] = (algorithm, digest)
                elif row and len(others) < MAX_LISTED:
                    others.add(row[0])
    except (*_DAMAGE, csv.Error) as error:
        problems.add("unreadable-file", name, f"cannot be read: {error}")
        return None, []
    return lines, sorted(others)


@dataclass(kw_only=True)
class _Reader:
    """Reads the members of one archive, and compares each with its line of RECORD; faults go to ``problems``."""

    path: Path
    archive: zipfile.ZipFile
    folder: Path
    dist_info: str
    record: Mapping[str, tuple[str, str]] | None
    problems: Problems
    room: int
    """Bytes of texts that may still be kept in memory."""
    texts: dict[str, bytes] = field(default_factory=dict)
    folders: set[Path] = field(default_factory=set)
    """Those that exist already."""

    def read(self, info: zipfile.ZipInfo, *, keep: bool, text: bool) -> Member | None:
        """Return a member that was read to its end, or None; one with ``text`` is in memory if there is room."""
        memory = io.BytesIO() if text and info.file_size <= self.room else None
        algorithm = (self.record or {}).get(info.filename, ("", ""))[0]
        try:
            member, digest = self._extract(info, keep=keep, text=memory, algorithm=algorithm)
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise WheelError(
                    f"{self.path}: cannot be unpacked into {self.folder}: {error.strerror}. Make room there, or name "
                    "another folder with TMPDIR"
                ) from error
            self.problems.add("unreadable-file", info.filename, f"cannot be read: {error}")
            return None
        if memory is not None:
            self.texts[member.path] = memory.getvalue()
            self.room -= member.size
        if fault := _record_fault(member.path, digest, self.record, self.dist_info):
            self.problems.add(*fault)
        return member

    def _extract(
        self, info: zipfile.ZipInfo, *, keep: bool, text: io.BytesIO | None, algorithm: str
    ) -> tuple[Member, str]:
        """Read one member to its end; return it with its digest in RECORD's notation (empty for an unknown algorithm).

        ``text`` takes the bytes of a text. A member that cannot be read to its end is not kept.
        """
        sha256 = hashlib.sha256()
        other = hashlib.new(algorithm) if algorithm in RECORD_HASHES and algorithm != "sha256" else None
        size = 0
        with self.archive.open(info) as stream:
            chunk = stream.read(CHUNK)
            elf = chunk.startswith(ELF_MAGIC)
            target = self.folder / info.filename
            is_kept = elf or _is_text(info.filename) or keep
            if is_kept and target.parent not in self.folders:
                target.parent.mkdir(parents=True, exist_ok=True)
                self.folders.add(target.parent)
            try:
                with target.open("wb") if is_kept else io.BytesIO() as sink:
                    while chunk:
                        size += len(chunk)
                        for each in (sha256, other):
                            if each is not None:
                                each.update(chunk)
                        if text is not None:
                            text.write(chunk)
                        if is_kept:
                            sink.write(chunk)
                        chunk = stream.read(CHUNK)
            except _DAMAGE:
                if is_kept:
                    target.unlink(missing_ok=True)
                raise
        member = Member(
            path=info.filename,
            size=size,
            compressed=info.compress_size,
            sha256=sha256.hexdigest(),
            crc=info.CRC,
            elf=elf,
        )
        digest = (other or sha256).digest() if algorithm in RECORD_HASHES else b""
        return member, _in_record(digest)


def _in_record(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _is_text(name: str) -> bool:
    return name.endswith(("/METADATA", "/WHEEL", "/manifest.json", "/variant.json"))


def _record_fault(
    name: str, digest: str, record: Mapping[str, tuple[str, str]] | None, dist_info: str
) -> tuple[str, str, str] | None:
    """Return code, file and message if a member differs from what RECORD says."""
    if record is None or name in {f"{dist_info}/{unrecorded}" for unrecorded in UNRECORDED}:
        return None
    if name not in record:
        return "record-unknown-file", name, "RECORD does not list the file"
    algorithm, expected = record[name]
    if algorithm not in RECORD_HASHES:
        given = f"the hash `{escape.name(algorithm)}`" if algorithm else "no hash"
        return "record-hash", name, f"RECORD gives {given}; sha256 or stronger is required"
    if digest != expected.rstrip("="):
        return "record-hash", name, f"its {algorithm} is {digest}, but RECORD says {escape.name(expected)}"
    return None


LONGEST_REQUIREMENT = 1000
"""Longest requirement that is parsed, in characters; those of people and resolvers are shorter."""


def parsed_requirement(text: str) -> Requirement | None:
    """Return the requirement ``text``, or None if it is invalid or a number in a version is too long."""
    if len(text) > LONGEST_REQUIREMENT:
        return None
    try:
        requirement = Requirement(text)
        for clause in requirement.specifier:
            clause.contains("1")  # parses the version, which Requirement does lazily
    except (ValueError, RecursionError):  # InvalidRequirement, InvalidVersion and int()'s own are ValueErrors
        return None
    return requirement
