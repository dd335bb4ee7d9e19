"""Zip archives by ranges: what is read, how it is gathered, and the tricks that are refused."""

from __future__ import annotations

import io
import stat
import zipfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatch_torch_ext.remote import archive

if TYPE_CHECKING:
    from collections.abc import Iterator


class Bytes:
    """A source in memory that remembers the requested ranges."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.requests: list[tuple[int, int]] = []

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the stretch in small pieces."""
        self.requests.append((start, end))
        for at in range(start, end, 1000):
            yield self.data[at : min(at + 1000, end)]


def zipped(*files: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip archive of the files, in order."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as target:
        for name, data in files:
            target.writestr(name, data, method)
    return stream.getvalue()


@given(st.lists(st.binary(max_size=3000), max_size=20), st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_every_member_comes_back(contents: list[bytes], method: int) -> None:
    """Whatever is in an archive comes out as it went in, whole or streamed."""
    source = Bytes(zipped(*((f"d/{number}", data) for number, data in enumerate(contents)), method=method))
    members = archive.directory(source)
    assert [data for _, data in archive.extract(source, members)] == contents
    for member, data in zip(members, contents, strict=True):
        target = io.BytesIO()
        archive.copy(source, member, target, lambda _: None)
        assert target.getvalue() == data


def test_gathered_into_few_stretches() -> None:
    """Neighbours are fetched together, what is far apart is not; the directory in at most two requests."""
    far = bytes(range(256)) * 4000
    files = [(f"a/{number}", b"x" * 100) for number in range(2000)]
    source = Bytes(zipped(*files, ("big", far), ("z", b"end"), method=zipfile.ZIP_STORED))
    members = archive.directory(source)
    assert len(source.requests) == 2
    source.requests.clear()
    got = dict(archive.extract(source, [member for member in members if member.name != "big"]))
    assert len(got) == 2001
    assert len(source.requests) == 2
    assert sum(end - start for start, end in source.requests) < len(far)


def test_long_stretches_are_parted_and_fetched_side_by_side() -> None:
    """No request is longer than servers answer at once; the members come in the order of their bytes all the same."""
    contents = {f"a/{number}": bytes([number]) * (archive.LONGEST // 4) for number in range(20)}
    source = Bytes(zipped(*contents.items(), method=zipfile.ZIP_STORED))
    members = archive.directory(source)
    source.requests.clear()
    got = [(member.name, data) for member, data in archive.extract(source, members)]
    assert got == list(contents.items())
    assert len(source.requests) == 7
    assert all(end - start <= archive.LONGEST for start, end in source.requests)


@pytest.mark.parametrize(
    "name", ["../up", "a/../../up", "/etc/passwd", "a\\..\\b", "C:/windows", "a/..", "../"], ids=repr
)
def test_paths_that_leave_the_folder(name: str) -> None:
    """An archive with a name that would land elsewhere is refused as a whole."""
    if name.endswith("/"):
        pytest.skip("a folder is not written")
    with pytest.raises(archive.ArchiveError) as caught:
        archive.directory(Bytes(zipped(("good", b""), (name, b"x"))))
    assert str(caught.value) == f"it has a file that would land outside its folder ({name!r})"


def test_link() -> None:
    """A symbolic link in an archive is refused."""
    link = zipfile.ZipInfo("torch/include/link.h")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(archive.ArchiveError) as caught:
        archive.directory(Bytes(zipped((link, b"/etc/passwd"))))
    assert str(caught.value) == "it has a link where a file belongs ('torch/include/link.h')"


def test_two_files_of_one_name() -> None:
    """An archive whose directory has a name twice is refused, since either file could be meant."""
    with pytest.warns(UserWarning, match="Duplicate"):
        data = zipped(("same", b"1"), ("same", b"2"))
    with pytest.raises(archive.ArchiveError) as caught:
        archive.directory(Bytes(data))
    assert str(caught.value) == "it has two files of one name"


@pytest.mark.parametrize("data", [b"", b"PK", b"<html>" * 100, bytes(100_000), b"PK\x05\x06" + b"\xff" * 18])
def test_not_an_archive(data: bytes) -> None:
    """Bytes that are not an archive give the one error, not a traceback of a reader."""
    with pytest.raises(archive.ArchiveError, match="it is not a zip archive"):
        archive.directory(Bytes(data))


@given(st.data())
def test_damage_is_noticed(data: st.DataObject) -> None:
    """Whichever byte of an archive is changed, the content comes out unchanged or an ``ArchiveError`` is raised."""
    good = zipped(("a/one.h", b"#pragma once\n" * 30), ("a/two.h", bytes(range(256))))
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    expected = {"a/one.h": b"#pragma once\n" * 30, "a/two.h": bytes(range(256))}
    source = Bytes(bytes(bad))
    try:
        found = {member.name: content for member, content in archive.extract(source, archive.directory(source))}
    except archive.ArchiveError:
        return
    assert all(expected.get(name, content) == content for name, content in found.items())


def test_a_directory_that_lies_about_sizes() -> None:
    """A member that unpacks to more than the directory says is refused before it fills the memory."""
    data = bytearray(zipped(("bomb", bytes(5_000_000))))
    at = data.rindex(b"bomb") - 46 + 24  # the size in the central directory
    data[at : at + 4] = (10).to_bytes(4, "little")
    source = Bytes(bytes(data))
    (member,) = archive.directory(source)
    for read in (
        lambda: list(archive.extract(source, [member])),
        lambda: archive.copy(source, member, io.BytesIO(), lambda _: None),
    ):
        with pytest.raises(archive.ArchiveError) as caught:
            read()
        assert str(caught.value) == "bomb is damaged (its CRC or size is wrong)"
