"""Static libraries (``ar`` archives): the names that each object file in one leaves undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.elf.image import Image, Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

MAGIC = b"!<arch>\n"
HEADER = 60
"""Bytes before each member: name (16), date, owner, group, mode, then its size at 48, and two bytes that end it."""
END = b"`\n"
MAX_NAMES = 1 << 24
"""Limit of the table of long names, in bytes."""


def undefined(path: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name of each object file in a static library, and the symbols that it needs of others.

    A member that is no object file (LLVM's bitcode, say) has none. What cannot be read of an archive (it is thin, or
    cut off) is left out. Raises ``OSError`` if there is no such file.
    """
    with path.open("rb") as stream:
        for name, size in _members(stream):
            try:
                symbols = list(Image(stream.read(size)).symbols())
            except Malformed:
                symbols = []
            yield name, frozenset(symbol for symbol, is_defined in symbols if not is_defined)


def _members(stream: BinaryIO) -> Iterator[tuple[str, int]]:
    """Yield name and size of each member, while the stream is at the member's first byte."""
    names = b""
    at = len(MAGIC)
    if stream.read(at) != MAGIC:
        return
    while len(header := stream.read(HEADER)) == HEADER and header.endswith(END):
        name, text = header[:16].decode("ascii", "replace").rstrip(), header[48:58].strip()
        if not text.isdigit():
            return
        size = int(text)
        if name == "//":
            names = stream.read(min(size, MAX_NAMES))
        elif name not in {"/", "/SYM64/"}:
            long = names[int(name[1:]) :].partition(b"/\n")[0] if name[1:].isdigit() else b""
            yield long.decode("utf-8", "replace") or name.removesuffix("/"), size
        at += HEADER + size + size % 2
        stream.seek(at)
