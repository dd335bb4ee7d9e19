"""Read any wheel without trusting it: members go to a folder one after another, never as a whole into memory.

What a hostile or damaged archive does (names that climb out, links, bombs, members that overlap, a torn end) becomes a
``Problem`` where the rest can still be read, else a ``WheelError``.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from hatch_torch_ext.errors import WheelError
from hatch_torch_ext.wheel import members
from hatch_torch_ext.wheel.members import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

ELF_MAGIC = b"\x7fELF"
CHUNK = 1 << 20
MAX_TEXT = 32 << 20
PARTS_WITH_BUILD = 6
"""Of a wheel's name: distribution, version, build tag, Python, ABI, platform."""
RECORD_HASHES = ("sha256", "sha384", "sha512")
UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")

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
    """A file of the wheel: ``size`` and ``compressed`` in bytes; ``elf`` by its first bytes, not by its name.

    ``sha256`` is of what was really read, in hex.
    """

    path: str
    size: int
    compressed: int
    sha256: str
    elf: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel that was read: its name, its members by path, and what is wrong with it as an archive.

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
    """The label of PEP 825 in the file's name, of a variant wheel."""

    def text(self, member: str) -> str | None:
        """Return the text of a kept member, or None where the wheel has none of that name or it is over the limit."""
        path = self.folder / member
        if not any(known.path == member and known.size <= MAX_TEXT for known in self.members) or not path.is_file():
            return None
        return path.read_text(encoding="utf-8", errors="replace")

    def metadata(self, member: str) -> tuple[tuple[str, str], ...]:
        """Return the header fields of METADATA or WHEEL in their order; nothing where it is missing."""
        fields = []
        for line in (self.text(f"{self.dist_info}/{member}") or "").splitlines():
            if not line.strip():
                break
            name, colon, value = line.partition(":")
            if colon and not line[0].isspace():
                fields.append((name.strip(), value.strip()))
        return tuple(fields)


def read(path: Path, *, folder: Path, keep: Callable[[str], bool] = lambda _: False) -> Wheel:
    """Read the wheel at ``path``; ELF and Python files, metadata and what ``keep`` names are written below ``folder``.

    Every member is read once, and compared with RECORD. Raises ``WheelError`` for what is no wheel at all.
    """
    distribution, version, tags, label = _parse_name(path)
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise WheelError(f"{path}: no such file. Give the path of a wheel") from error
    except (*_DAMAGE, zlib.error, OverflowError) as error:
        raise WheelError(
            f"{path}: is no zip archive, or its end is missing ({error}). Build or fetch the wheel again"
        ) from error
    with archive:
        infos, problems = members.select(path, archive)
        dist_info = _dist_info(path, infos)
        record, record_problems = _record(archive, infos, dist_info)
        problems += record_problems
        read_members = []
        for info in infos:
            try:
                member, digest = _extract(
                    archive, info, folder=folder, keep=keep, algorithm=(record or {}).get(info.filename, ("", ""))[0]
                )
            except _DAMAGE as error:
                problems.append(Problem(code="unreadable-file", file=info.filename, message=f"cannot be read: {error}"))
                continue
            read_members.append(member)
            problems += _compare(member.path, digest, record, dist_info)
    present = {info.filename for info in infos}
    problems += [
        Problem(code="record-missing-file", file=name, message="RECORD lists the file, but it is not in the wheel")
        for name in sorted((record or {}).keys() - present)
    ]
    return Wheel(
        path=path,
        distribution=distribution,
        version=version,
        tags=tags,
        size=path.stat().st_size,
        dist_info=dist_info,
        members=tuple(sorted(read_members, key=lambda member: member.path)),
        problems=tuple(problems),
        folder=folder,
        label=label,
    )


def _parse_name(path: Path) -> tuple[str, str, tuple[str, ...], str | None]:
    plain, label = _without_label(path.name)
    try:
        name, version, _, tags = parse_wheel_filename(plain)
    except InvalidWheelFilename as error:
        raise WheelError(
            f"{path}: is not named as a wheel, NAME-VERSION-PYTHON-ABI-PLATFORM.whl. "
            "Give the file its published name back"
        ) from error
    return name, str(version), tuple(sorted(str(tag) for tag in tags)), label


def _without_label(name: str) -> tuple[str, str | None]:
    """Part the label of PEP 825 from a wheel's name: a sixth or seventh part, where a build tag begins with a digit."""
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
        has = "no .dist-info folder" if not found else f"{len(found)} .dist-info folders ({', '.join(found)})"
        raise WheelError(f"{path}: has {has}, and a wheel has one. Build or fetch the wheel again")
    return found[0]


def _record(
    archive: zipfile.ZipFile, infos: Iterable[zipfile.ZipInfo], dist_info: str
) -> tuple[dict[str, tuple[str, str]] | None, list[Problem]]:
    """Return path -> (algorithm, digest) of RECORD, both empty where it gives none; None when it cannot be read."""
    name = f"{dist_info}/RECORD"
    info = next((info for info in infos if info.filename == name), None)
    if info is None or info.file_size > MAX_TEXT:
        return None, [
            Problem(code="record-missing-file", file=name, message="the wheel has no RECORD that can be read")
        ]
    try:
        rows = list(csv.reader(io.StringIO(archive.read(info).decode("utf-8"))))
    except (*_DAMAGE, csv.Error) as error:
        return None, [Problem(code="unreadable-file", file=name, message=f"cannot be read: {error}")]
    lines: dict[str, tuple[str, str]] = {}
    for row in rows:
        if row:
            algorithm, _, digest = (row[1] if len(row) > 1 else "").partition("=")
            lines[row[0]] = (algorithm, digest)
    return lines, []


def _extract(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, folder: Path, keep: Callable[[str], bool], algorithm: str
) -> tuple[Member, str]:
    """Read one member to its end; return it with its digest in RECORD's notation (empty without a known algorithm)."""
    sha256 = hashlib.sha256()
    other = hashlib.new(algorithm) if algorithm in RECORD_HASHES and algorithm != "sha256" else None
    size = 0
    with archive.open(info) as stream:
        chunk = stream.read(CHUNK)
        elf = chunk.startswith(ELF_MAGIC)
        target = folder / info.filename
        wanted = elf or _is_text(info.filename) or keep(info.filename)
        if wanted:
            target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") if wanted else io.BytesIO() as sink:
            while chunk:
                size += len(chunk)
                sha256.update(chunk)
                if other is not None:
                    other.update(chunk)
                if wanted:
                    sink.write(chunk)
                chunk = stream.read(CHUNK)
    member = Member(path=info.filename, size=size, compressed=info.compress_size, sha256=sha256.hexdigest(), elf=elf)
    digest = (other or sha256).digest() if algorithm in RECORD_HASHES else b""
    return member, base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _is_text(name: str) -> bool:
    return name.endswith((".py", "/METADATA", "/WHEEL", "/RECORD", "/manifest.json", "/variant.json"))


def _compare(name: str, digest: str, record: Mapping[str, tuple[str, str]] | None, dist_info: str) -> list[Problem]:
    if record is None or name in {f"{dist_info}/{unrecorded}" for unrecorded in UNRECORDED}:
        return []
    if name not in record:
        return [Problem(code="record-unknown-file", file=name, message="RECORD does not list the file")]
    algorithm, expected = record[name]
    if algorithm not in RECORD_HASHES:
        said = f"the hash `{algorithm}`" if algorithm else "no hash"
        return [Problem(code="record-hash", file=name, message=f"RECORD gives {said}; sha256 or stronger is asked for")]
    if digest != expected.rstrip("="):
        return [
            Problem(code="record-hash", file=name, message=f"its {algorithm} is {digest}, but RECORD says {expected}")
        ]
    return []
