"""Members of wheels as they are packed: they go from one archive into another without being compressed again.

Their bytes were compared with RECORD and the manifest when the wheel was read; before a member is copied, its checksum
and its sizes are compared with what was read then.
"""

from __future__ import annotations

import contextlib
import struct
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import MergeError
from hatch_torch_ext.wheel.members import LOCAL_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.outlets.parts import Part
    from hatch_torch_ext.wheel import Member

CHUNK = 1 << 20


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
            chunk = source.read(min(left, CHUNK))
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
