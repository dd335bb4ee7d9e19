"""The names that torch's libraries export, read once and stored as sorted lists; and link stubs.

An installed torch has the libraries; for a thin SDK, only the library is streamed out of the wheel (115 MB for
libtorch_cpu.so). A linker reads two things of a library: its SONAME and its exports. To link a shared object the SONAME
is enough, since a shared object may have undefined symbols. A stub is written directly; no compiler runs.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from hatch_torch_ext.base.errors import TorchExtError
from hatch_torch_ext.remote.archive import ArchiveError, copy
from hatch_torch_ext.remote.http import FileSource, Http, HttpSource, Limits, RemoteError
from hatch_torch_ext.remote.settings import IndexSettings
from hatch_torch_ext.sdk import fetch
from hatch_torch_ext.sdk.facts import REAL, ThinRecord
from hatch_torch_ext.store import Store, open_store
from hatch_torch_ext.store import path as store_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hatch_torch_ext.remote.archive import ArchiveMember
    from hatch_torch_ext.remote.http import Source
    from hatch_torch_ext.values import Sdk

FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
DYNSYM = 11
HIDDEN = (1, 2)  # STV_INTERNAL, STV_HIDDEN
OF_TORCH = "torch"
"""The record of a library's torch version, beside the names of an installed library."""


class UnreadableError(Exception):
    """The file is not a readable shared object; the message is a clause."""


class _Section(NamedTuple):
    """A row of an ELF file's section table; ``link`` is the number of the section with its strings or symbols."""

    name: bytes
    kind: int
    flags: int
    at: int
    size: int
    link: int = 0
    info: int = 0
    entry: int = 0

    def pack(self, names: bytes) -> bytes:
        """Return the row; ``names`` are the bytes of ``.shstrtab``."""
        name_at = names.index(b"\0" + self.name + b"\0") + 1
        address = self.at if self.flags & _ALLOC else 0
        align = 8 if self.entry else 1
        return SECTION.pack(
            name_at, self.kind, self.flags, address, self.at, self.size, self.link, self.info, align, self.entry
        )


def read(path: Path) -> list[str]:
    """Return the names that a 64-bit little-endian shared object exports, sorted.

    It reads 100,000 symbols in a tenth of a second; a general ELF reader needs many seconds.
    """
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return sorted(set(_names(data)))
    except (OSError, OverflowError, MemoryError, ValueError, struct.error, IndexError) as error:
        raise UnreadableError(f"{path} is not a shared object that can be read ({error})") from error


def _names(data: mmap.mmap) -> Iterator[str]:
    header = FILE_HEADER.unpack_from(data)
    if header[0][:6] != b"\x7fELF\x02\x01":
        raise ValueError("not 64-bit little-endian ELF")
    sections_at, entry_size, count = header[6], header[11], header[12]
    sections = [SECTION.unpack_from(data, sections_at + entry_size * index) for index in range(count)]
    for kind, at, size, link in ((section[1], section[4], section[5], section[6]) for section in sections):
        if kind != DYNSYM:
            continue
        strings = data[sections[link][4] : sections[link][4] + sections[link][5]]
        for name, info, other, index, _, _ in SYMBOL.iter_unpack(data[at : at + size]):
            if index != 0 and info >> 4 and other & 3 not in HIDDEN:
                yield strings[name : strings.index(b"\0", name)].decode()


def of(
    sdk: Sdk,
    sonames: Iterable[str],
    *,
    fetch: bool,
    report: Callable[[str], None],
    settings: IndexSettings | None = None,
    most: int | None = None,
) -> Mapping[str, frozenset[str]] | None:
    """Return the names that each of torch's own libraries among ``sonames`` exports; others are left out.

    Return None if one of them is not available and ``fetch`` does not allow it to be streamed. ``settings`` give
    credentials and certificates for that, ``most`` limits its bytes. Raises ``TorchExtError`` if streaming was allowed
    and failed.
    """
    known = sorted(set(sonames) & set(sdk.libraries))
    if sdk.kind == "environment":
        store = _open_store(os.environ)
        return {soname: frozenset(_of_file(store, sdk.prefix / "lib" / soname, sdk.version)) for soname in known}
    folder = sdk.prefix.parent
    store = Store(folder.parent.parent)
    found: dict[str, frozenset[str]] = {}
    limits = Limits() if most is None else Limits(largest=most)
    with Http(settings or IndexSettings(), limits, report) as http:
        for soname in known:
            real = folder / REAL / soname
            names = _of_file(store, real, sdk.version) if real.is_file() else _load(store, folder.name, soname)
            if names is None:
                record = ThinRecord.read(folder)
                if not fetch and record.wheel.path is None:
                    return None
                names = _of_wheel(store, sdk, record, soname, http=http, report=report)
            found[soname] = frozenset(names)
    return found


class StoredExports(Mapping[str, Mapping[str, frozenset[str]]]):
    """The exports of other torch releases in the user's store: version -> SONAME -> names.

    They make a message more precise: each is read only when it is used, and nothing is fetched.
    """

    def __init__(self, environ: Mapping[str, str], *, excluding: str) -> None:
        self._store = Store(store_path(environ))
        self._excluding = excluding

    @cached_property
    def _lists(self) -> dict[str, list[tuple[str, str]]]:
        lists: dict[str, list[tuple[str, str]]] = {}
        for file in sorted(self._store.root.glob("exports/*/*.gz")):
            key = file.parent.name
            version = _version(self._store, key)
            if version is not None and version != self._excluding:
                lists.setdefault(version, []).append((key, file.name.removesuffix(".gz")))
        return lists

    def __getitem__(self, version: str) -> Mapping[str, frozenset[str]]:
        """Return SONAME -> names of one release."""
        return {soname: frozenset(_load(self._store, key, soname) or ()) for key, soname in self._lists[version]}

    def __iter__(self) -> Iterator[str]:
        """Return the versions, the oldest first."""
        return iter(sorted(self._lists, key=Version))

    def __len__(self) -> int:
        """Return the number of known releases."""
        return len(self._lists)


def _version(store: Store, key: str) -> str | None:
    """Return the torch version of a stored list, from the record beside it or from the SDK of that key."""
    text = store.text("exports", f"{key}/{OF_TORCH}")
    try:
        version = text.decode() if text is not None else ThinRecord.read(store.root / "torch" / key).facts.version
        Version(version)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return version


def save_all(store: Store, key: str, source: Source, members: Iterable[ArchiveMember]) -> None:
    """Read and store the names of every library while its wheel is on disk, so it need not be fetched again."""
    for member in members:
        with contextlib.suppress(UnreadableError):  # reported when its names are needed
            _save(store, key, Path(member.name).name, _unpacked(store, source, member, lambda _: None))


def _of_wheel(
    store: Store, sdk: Sdk, record: ThinRecord, soname: str, *, http: Http, report: Callable[[str], None]
) -> list[str]:
    member = next(member for member in record.libraries if Path(member.name).name == soname)
    try:
        path = record.wheel.path
        if path is None:
            report(f"torch {sdk.version}: reading the symbols of {soname} ({member.compressed / 1e6:.0f} MB, once)")
            source: Source = HttpSource(http, record.wheel.url, record.wheel.size)
        else:
            source = FileSource(path)
        with fetch.progress(f"symbols of {soname}", member.compressed, report) as tick:
            names = _unpacked(store, source, member, tick)
    except (RemoteError, ArchiveError, UnreadableError, OSError) as error:
        raise TorchExtError(
            f"the symbols of {soname} of torch {sdk.version} cannot be read: {error}. "
            'Try again, or set `audit-symbols = "cached"`'
        ) from error
    _save(store, sdk.prefix.parent.name, soname, names)
    return names


def _unpacked(store: Store, source: Source, member: ArchiveMember, tick: Callable[[int], None]) -> list[str]:
    # To disk, not to memory: a library has up to 1 GB, and its names are at both ends.
    with store.scratch() as scratch:
        file = scratch / Path(member.name).name
        with file.open("wb") as stream:
            copy(source, member, stream, tick)
        return read(file)


def _of_file(store: Store | None, path: Path, version: str) -> list[str]:
    status = path.stat()
    key = (
        "file-"
        + hashlib.sha256(f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ino}".encode()).hexdigest()
    )
    names = _load(store, key, path.name) if store is not None else None
    if names is None:
        try:
            names = read(path)
        except UnreadableError as error:
            raise TorchExtError(f"{error}. Reinstall torch") from error
        if store is not None:
            _save(store, key, path.name, names)
            with contextlib.suppress(OSError):
                store.set_text("exports", f"{key}/{OF_TORCH}", version.encode())
    return names


def _load(store: Store, key: str, soname: str) -> list[str] | None:
    data = store.text("exports", f"{key}/{soname}.gz")
    if data is None:
        return None
    try:
        return gzip.decompress(data).decode().split("\n")
    except (OSError, EOFError, MemoryError, zlib.error, UnicodeDecodeError):
        store.remove_text("exports", f"{key}/{soname}.gz")
        return None


def _save(store: Store, key: str, soname: str, names: list[str]) -> None:
    with contextlib.suppress(OSError):  # storing the list is optional: a full disk must not fail the audit
        store.set_text("exports", f"{key}/{soname}.gz", gzip.compress("\n".join(names).encode(), 6, mtime=0))


def _open_store(environ: Mapping[str, str]) -> Store | None:
    try:
        return open_store(store_path(environ))
    except OSError:
        return None


MACHINES = {"x86_64": 62, "aarch64": 183}
"""``platform.machine()`` -> e_machine."""

LAYOUT = 1
PAGE = 0x10000  # the larger page size of the two machines
SEGMENT = struct.Struct("<IIQQQQQQ")
DYNAMIC = struct.Struct("<QQ")
_PT_LOAD, _PT_DYNAMIC, _PT_STACK = 1, 2, 0x6474E551
_STRTAB, _HASH, _DYNAMIC = 3, 5, 6
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_ALLOC, _WRITE = 2, 1
_GLOBAL_FUNC = (1 << 4) | 2


def folder(store: Store, sonames: Iterable[str], machine: str) -> Path:
    """Return a folder of the store with a stub for each of ``sonames``."""
    names = sorted(sonames)
    key = hashlib.sha256("\n".join((f"{LAYOUT}", machine, *names)).encode()).hexdigest()

    def fill(made: Path) -> dict[str, object]:
        for name in names:
            store.put(stub(name, machine), made, name)
        return {"title": f"{len(names)} link stubs for {machine}"}

    return store.make("stubs", key, fill)[0]


def _tables(soname: str, exports: Sequence[str]) -> tuple[bytes, bytes, bytes]:
    """Return ``.dynstr`` (the SONAME first, at 1), ``.dynsym`` and ``.hash``."""
    strings = bytearray(b"\0" + soname.encode() + b"\0")
    symbols = bytearray(SYMBOL.size)
    for name in exports:
        symbols += SYMBOL.pack(len(strings), _GLOBAL_FUNC, 0, 1, 0, 0)
        strings += name.encode() + b"\0"
    count = len(symbols) // SYMBOL.size
    chain = [0, *range(2, count), 0][:count]  # one bucket that begins at symbol 1, with every symbol in one chain
    hashes = struct.pack(f"<{3 + count}I", 1, count, min(1, count - 1), *chain)
    return bytes(strings), bytes(symbols), hashes


def _file_header(machine: str, sections_at: int, sections: int) -> bytes:
    """Return the header of a shared object with three segments; the last of its ``sections`` has their names."""
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    return FILE_HEADER.pack(
        ident, 3, MACHINES[machine], 1, 0, FILE_HEADER.size, sections_at, 0,
        FILE_HEADER.size, SEGMENT.size, 3, SECTION.size, sections, sections - 1,
    )  # fmt: skip


def stub(soname: str, machine: str, *, exports: Sequence[str] = ()) -> bytes:
    """Return a shared object for ``machine`` with the SONAME ``soname`` that exports ``exports`` as functions.

    Two calls with the same arguments give the same bytes. Raises ``KeyError`` for an unknown machine.
    """
    strings, symbols, hashes = _tables(soname, exports)
    body = bytearray(FILE_HEADER.size + 3 * SEGMENT.size)  # the headers, which are filled in at the end

    def put(data: bytes, align: int = 1) -> int:
        body.extend(bytes(-len(body) % align))
        at = len(body)
        body.extend(data)
        return at

    symbols_at, hashes_at, strings_at = put(symbols), put(hashes), put(strings)
    entries = (
        (_DT_SONAME, 1),
        (_DT_HASH, hashes_at),
        (_DT_STRTAB, strings_at),
        (_DT_SYMTAB, symbols_at),
        (_DT_STRSZ, len(strings)),
        (_DT_SYMENT, SYMBOL.size),
        (0, 0),
    )
    dynamic = b"".join(DYNAMIC.pack(*entry) for entry in entries)
    dynamic_at = put(dynamic, 8)
    loaded = len(body)
    names = b"\0.dynsym\0.hash\0.dynstr\0.dynamic\0.shstrtab\0"
    names_at = put(names)
    rows = (
        _Section(b".dynsym", DYNSYM, _ALLOC, symbols_at, len(symbols), link=3, info=1, entry=SYMBOL.size),
        _Section(b".hash", _HASH, _ALLOC, hashes_at, len(hashes), link=1, entry=4),
        _Section(b".dynstr", _STRTAB, _ALLOC, strings_at, len(strings)),
        _Section(b".dynamic", _DYNAMIC, _ALLOC | _WRITE, dynamic_at, len(dynamic), link=3, entry=DYNAMIC.size),
        _Section(b".shstrtab", _STRTAB, 0, names_at, len(names)),
    )
    sections_at = put(b"".join([bytes(SECTION.size), *(row.pack(names) for row in rows)]), 8)
    headers = (
        _file_header(machine, sections_at, 1 + len(rows)),
        SEGMENT.pack(_PT_LOAD, 6, 0, 0, 0, loaded, loaded, PAGE),
        SEGMENT.pack(_PT_DYNAMIC, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8),
        SEGMENT.pack(_PT_STACK, 6, 0, 0, 0, 0, 0, 16),
    )
    body[:symbols_at] = b"".join(headers)
    return bytes(body)
