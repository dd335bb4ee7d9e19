"""Members of a zip archive, read by ranges: first the directory, then the few ranges with the members to read."""

from __future__ import annotations

import io
import re
import stat
import struct
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    from hatch_torch_ext.remote.http import Source

TAIL = 1 << 16  # the end record and its comment fit in here
GAP = 1 << 18  # bytes that are discarded rather than sending one more request
LONGEST = 1 << 22  # of one range: some servers hold a longer answer back until they have all of it
AT_ONCE = 4  # ranges
LARGEST_DIRECTORY = 1 << 24  # torch's has 1.5 MB
MOST_FILES = 100_000
LONGEST_NAME = 255  # of one path component; the limit of file systems
LONGEST_PATH = 1000
LARGEST_TOTAL = 1 << 30  # of unpacked members: no torch has more headers
LARGEST_HEADER = 30 + 2 * 0xFFFF
LOCAL_HEADER = struct.Struct("<4s5H3I2H")


class ArchiveError(Exception):
    """The archive is damaged or malicious; the message is a clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMember:
    """One file of the archive: its local header and data are in ``[start, end)`` of the archive's bytes."""

    name: str
    start: int
    end: int
    compressed: int
    size: int
    crc: int
    method: int


def directory(source: Source) -> tuple[ArchiveMember, ...]:
    """Return the archive's files in the order of their bytes. Raises ``ArchiveError`` for a malformed directory."""
    view = _View(source)
    try:
        with zipfile.ZipFile(io.BufferedReader(view, 1 << 12)) as archive:
            infos, first_after = archive.infolist(), archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, OSError) as error:
        raise ArchiveError(f"it is not a zip archive ({error})") from error
    if len(infos) > MOST_FILES:
        raise ArchiveError("it has more files than any torch")
    infos.sort(key=lambda info: info.header_offset)
    starts = [*(info.header_offset for info in infos), first_after]
    members: list[ArchiveMember] = []
    for info, (start, end) in zip(infos, pairwise(starts), strict=True):
        if info.filename.endswith("/"):
            continue
        _check(info, start, end)
        members.append(
            ArchiveMember(
                name=info.filename,
                start=start,
                end=min(end, start + LARGEST_HEADER + info.compress_size),  # a gap behind it is not fetched
                compressed=info.compress_size,
                size=info.file_size,
                crc=info.CRC,
                method=info.compress_type,
            )
        )
    names = [member.name for member in members]
    if len(set(names)) != len(names):
        raise ArchiveError("it has two files of one name")
    folders = {name[:at] for name in names for at in _separators(name)}
    if (both := folders & set(names)) != set():
        raise ArchiveError(f"it has a file and a folder of one name ({min(both)!a})")
    return tuple(members)


def _separators(name: str) -> Iterator[int]:
    return (at for at, character in enumerate(name) if character == "/")


def _check(info: zipfile.ZipInfo, start: int, end: int) -> None:
    name = info.orig_filename
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in parts or re.match(r"[A-Za-z]:", name):
        raise ArchiveError(f"it has a file that would land outside its folder ({name[:LONGEST_NAME]!a})")
    if len(name) > LONGEST_PATH or any(len(part.encode(errors="replace")) > LONGEST_NAME for part in parts):
        raise ArchiveError(f"it has a file whose name is too long ({name[:40]!a}…)")
    if not info.filename.isprintable() or "" in parts or "." in parts:
        raise ArchiveError(f"it has a file with a name that cannot be used ({name[:LONGEST_NAME]!a})")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise ArchiveError(f"it has a link where a file belongs ({name!a})")
    if end - start < LOCAL_HEADER.size + info.compress_size:
        raise ArchiveError(f"it has files that overlap ({name!a})")
    if info.flag_bits & 0x1 or info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ArchiveError(f"it has a file in a form that wheels do not use ({name!a})")


def extract(source: Source, members: Iterable[ArchiveMember]) -> Iterator[tuple[ArchiveMember, bytes]]:
    """Yield each member with its bytes, checked by size and CRC; few large ranges are fetched, several at once."""
    ordered = sorted(members, key=lambda member: member.start)
    if max(sum(member.size for member in ordered), sum(member.compressed for member in ordered)) > LARGEST_TOTAL:
        raise ArchiveError("the files to read from it are larger than the headers of any torch")
    groups = list(gather(ordered))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ranges = pool.map(lambda group: b"".join(source.stream(group[0].start, group[-1].end)), groups)
        for group, data in zip(groups, ranges, strict=True):
            start = group[0].start
            for member in group:
                yield member, _unpack(member, memoryview(data)[member.start - start : member.end - start])


def gather(ordered: Sequence[ArchiveMember]) -> Iterator[list[ArchiveMember]]:
    """Yield runs of members that are close enough together to be fetched as one range."""
    group: list[ArchiveMember] = []
    for member in ordered:
        if group and (member.start - group[-1].end > GAP or member.end - group[0].start > LONGEST):
            yield group
            group = []
        group.append(member)
    if group:
        yield group


def copy(source: Source, member: ArchiveMember, target: BinaryIO, tick: Callable[[int], None]) -> None:
    """Write a member of any size to ``target`` as it arrives; size and CRC are checked at its end."""
    chunks = source.stream(member.start, member.end)
    head = b""
    while len(head) < LOCAL_HEADER.size or len(head) < _data_offset(member, head):
        chunk = next(chunks, None)
        if chunk is None:
            raise ArchiveError(f"{member.name} is cut short")
        head += chunk
    inflate = zlib.decompressobj(-zlib.MAX_WBITS) if member.method == zipfile.ZIP_DEFLATED else None
    remaining, crc, size = member.compressed, 0, 0
    data = head[_data_offset(member, head) :]
    while True:
        data, remaining = data[:remaining], remaining - len(data[:remaining])
        try:
            plain = inflate.decompress(data) if inflate is not None else data
        except zlib.error as error:
            raise ArchiveError(f"{member.name} is damaged ({error})") from error
        crc, size = zlib.crc32(plain, crc), size + len(plain)
        if size > member.size:
            break
        target.write(plain)
        tick(len(data))
        if remaining == 0 or not (data := next(chunks, b"")):
            break
    if size != member.size or crc != member.crc:
        raise ArchiveError(f"{member.name} is damaged (its CRC or size is wrong)")


def _data_offset(member: ArchiveMember, head: bytes | memoryview) -> int:
    if len(head) < LOCAL_HEADER.size:
        return LOCAL_HEADER.size
    signature, *_, name_length, extra_length = LOCAL_HEADER.unpack_from(head)
    if signature != b"PK\x03\x04":
        raise ArchiveError(f"{member.name} is not where the directory says")
    offset = LOCAL_HEADER.size + int(name_length) + int(extra_length)
    name = bytes(head[LOCAL_HEADER.size : LOCAL_HEADER.size + name_length])
    if len(head) >= offset and name != member.name.encode() and name != member.name.encode("cp437", "replace"):
        raise ArchiveError(f"{member.name} has another name in its own header")
    return offset


def _unpack(member: ArchiveMember, span: memoryview) -> bytes:
    offset = _data_offset(member, span)
    packed = span[offset : offset + member.compressed]
    if len(packed) != member.compressed:
        raise ArchiveError(f"{member.name} is cut short")
    if member.method == zipfile.ZIP_STORED:
        data = bytes(packed)
    else:
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = inflate.decompress(packed, member.size + 1)
        except zlib.error as error:
            raise ArchiveError(f"{member.name} is damaged ({error})") from error
    if len(data) != member.size or zlib.crc32(data) != member.crc:
        raise ArchiveError(f"{member.name} is damaged (its CRC or size is wrong)")
    return data


class _View(io.RawIOBase):
    """The archive's end as a seekable file, of which ``zipfile`` reads the end record and the directory."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._position = 0
        self._from = max(source.size - TAIL, 0)
        self._known = b"".join(source.stream(self._from, source.size)) if source.size else b""

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        if base + offset < 0:
            raise OSError("an offset before the archive's start")  # the exception that `zipfile` expects
        self._position = base + offset
        return self._position

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        end = min(self._position + len(view), self._source.size)
        if end <= self._position:
            return 0
        if self._position < self._from:  # extend the known end towards the front, so that the directory is one request
            if self._from - self._position > LARGEST_DIRECTORY:
                raise ArchiveError("its directory is larger than any torch's")
            missing = b"".join(self._source.stream(self._position, self._from))
            self._known, self._from = missing + self._known, self._position
        data = self._known[self._position - self._from : end - self._from]
        view[: len(data)] = data
        self._position = end
        return len(data)
