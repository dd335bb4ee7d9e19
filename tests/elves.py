"""Small ELF files made without a compiler, byte for byte, for tests of readers and of the audit."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PAGE = 0x1000
MACHINES = {"x86_64": 62, "aarch64": 183}
DYNAMIC_TAGS = {"needed": 1, "soname": 14, "rpath": 15, "runpath": 29}
GLOBAL_FUNCTION, WEAK_FUNCTION = 0x12, 0x22


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def shared_object(
    *,
    needed: Sequence[str] = (),
    soname: str | None = None,
    rpath: str | None = None,
    runpath: str | None = None,
    undefined: Sequence[str] = (),
    exported: Sequence[str] = (),
    versions: Mapping[str, Sequence[str]] | None = None,
    machine: str = "x86_64",
    executable_stack: bool = False,
    text_relocations: bool = False,
    constructor: bytes = b"",
    data: bytes = b"",
) -> bytes:
    """Return a 64-bit little-endian shared object; ``versions`` is its .gnu.version_r, ``data`` follows all tables.

    ``constructor`` is the code of one, whose address is only in a relocation.

    An undefined name may require one of the ``versions``, as in ``memcpy@GLIBC_2.14``. The file has no sections, so a
    reader must use the program headers, as the dynamic linker does.
    """
    strings = _Strings()
    tags = [(DYNAMIC_TAGS["needed"], strings.add(name)) for name in needed]
    tags += [
        (DYNAMIC_TAGS[name], strings.add(text))
        for name, text in (("soname", soname), ("rpath", rpath), ("runpath", runpath))
        if text is not None
    ]
    symbols = bytes(24)
    numbers = _version_numbers(versions or {})
    asked = [0]
    for name in undefined:
        symbol, _, version = name.partition("@")
        symbols += struct.pack("<IBBHQQ", strings.add(symbol), GLOBAL_FUNCTION, 0, 0, 0, 0)
        asked.append(numbers[version] if version else 1)
    asked += [1] * len(exported)
    for name in exported:
        symbols += struct.pack("<IBBHQQ", strings.add(name), GLOBAL_FUNCTION, 0, 1, PAGE, 1)
    count = 1 + len(undefined) + len(exported)
    # One bucket whose chain contains all symbols: correct, but slow.
    hashes = struct.pack(f"<{3 + count}I", 1, count, count - 1, 0, *range(count - 1))
    needs = _version_needs(versions or {}, numbers, strings)
    of_symbols = struct.pack(f"<{len(asked)}H", *asked)

    headers = 64 + 56 * 3
    places: dict[str, int] = {}
    body = b""
    for name, table in (
        ("strings", strings.data),
        ("symbols", symbols),
        ("hashes", hashes),
        ("needs", needs),
        ("versions", of_symbols),
        ("constructor", constructor),
        ("constructors", bytes(8)),
        ("relocations", bytes(24)),
    ):
        body += bytes(-len(body) % 8)
        places[name] = headers + len(body)
        body += table
    tags += [(5, places["strings"]), (10, len(strings.data)), (6, places["symbols"]), (11, 24), (4, places["hashes"])]
    if versions:
        tags += [(0x6FFFFFFE, places["needs"]), (0x6FFFFFFF, len(versions)), (0x6FFFFFF0, places["versions"])]
    if text_relocations:
        tags.append((22, 0))
    if constructor:
        tags += [(25, places["constructors"]), (27, 8), (7, places["relocations"]), (8, 24)]
        relative = {"x86_64": 8, "aarch64": 1027}[machine]
        at = places["relocations"] - headers
        relocation = struct.pack("<QQQ", places["constructors"], relative, places["constructor"])
        body = body[:at] + relocation + body[at + 24 :]
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in [*tags, (0, 0)])
    body += bytes(-len(body) % 8)
    dynamic_at = headers + len(body)
    body += dynamic + data
    size = headers + len(body)
    segments = [
        (1, 5, 0, size, size, PAGE),
        (2, 6, dynamic_at, len(dynamic), len(dynamic), 8),
        (0x6474E551, 7 if executable_stack else 6, 0, 0, 0, 16),
    ]
    table = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, at, at, at, in_file, in_memory, align)
        for kind, flags, at, in_file, in_memory, align in segments
    )
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9), 3, MACHINES[machine], 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0,
    )  # fmt: skip
    return header + table + body


def _version_numbers(versions: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the number that .gnu.version has for each version; 0 and 1 mean names without one."""
    return {name: number for number, name in enumerate((name for names in versions.values() for name in names), 2)}


def _version_needs(versions: Mapping[str, Sequence[str]], numbers: Mapping[str, int], strings: _Strings) -> bytes:
    found = b""
    for number, (file, names) in enumerate(versions.items(), 1):
        following = 0 if number == len(versions) else 16 + 16 * len(names)
        found += struct.pack("<HHIII", 1, len(names), strings.add(file), 16, following)
        for position, name in enumerate(names, 1):
            found += struct.pack("<IHHII", 0, 0, numbers[name], strings.add(name), 0 if position == len(names) else 16)
    return found


def object_file(*, undefined: Sequence[str] = (), lto: Mapping[str, int] | None = None, data: bytes = b"") -> bytes:
    """Return a relocatable file with a symbol table; ``data`` follows its tables.

    ``lto`` are the symbols of GCC's own table, for ``-flto``, each with its kind.
    """
    strings, symbols, before = _Strings(), bytes(24), b""
    for name in undefined:
        symbols += struct.pack("<IBBHQQ", strings.add(name), 0x10, 0, 0, 0, 0)
    for name, kind in (lto or {}).items():
        before += name.encode() + b"\0\0" + struct.pack("<BBQI", kind, 0, 0, 10)
    named = strings.add(".gnu.lto_.symtab.907bd008")
    places = (64, 64 + len(symbols), 64 + len(symbols) + len(strings.data))
    tables = symbols + strings.data + before
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, places[0], len(symbols), 2, 1, 8, 24)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, places[1], len(strings.data), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", named, 1, 0, 0, places[2], len(before), 0, 0, 1, 0)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, places[2] + len(before), 0, 64, 0, 0, 64, 4, 2)
    return ident + header + tables + sections + data


def bitcode(symbols: Mapping[str, int]) -> bytes:
    """Return what Clang writes with ``-flto``, as far as its symbols go; each has its flags (8: undefined)."""
    names, table = b"x", b""
    for name, flags in symbols.items():
        table += struct.pack("<IIIIII", len(names), len(name.encode()), 0, 0, 0xFFFFFFFF, flags)
        names += name.encode()
    header = struct.pack("<IIIIIIIII", 3, 0, 0, 36, 0, 36, 0, 36, len(symbols))
    identification = _block(13, b"\0" * 20)
    return b"BC\xc0\xde" + identification + _block(25, _blob(header + table)) + _block(23, _blob(names))


def _block(number: int, content: bytes) -> bytes:
    return struct.pack("<II", 1 | number << 2 | 3 << 10, len(content) // 4) + content


def _blob(data: bytes) -> bytes:
    length, at, size = 0, 24, len(data)
    while size >> 5:
        length |= (size & 31 | 32) << at
        at, size = at + 6, size >> 5
    length |= size << at
    head = b"\x12\x03\x94" + (length >> 24).to_bytes(9, "little")
    return head[: (at + 6 + 31) // 32 * 4] + data + b"\0" * (-len(data) % 4)


def archive(members: Mapping[str, bytes]) -> bytes:
    """Return a static library as GNU ``ar`` writes it, without an index of symbols."""
    names = "".join(f"{name}/\n" for name in members).encode()
    found, at = b"!<arch>\n" + _member("//", names), 0
    for name, data in members.items():
        found += _member(f"/{at}" if len(name) > 15 else f"{name}/", data)
        at += len(name) + 2
    return found


def _member(name: str, data: bytes) -> bytes:
    return f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
