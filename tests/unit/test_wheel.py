"""Reading wheels that are honest, damaged, or made to harm: a problem or one clean error, never more."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import stat
import struct
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wheels
from hatch_torch_ext import wheel
from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.wheel import members

NAME = "my_pkg-1.0-py3-none-manylinux_2_28_x86_64.whl"
ELF = b"\x7fELF" + bytes(60)
INFO = "my_pkg-1.0.dist-info"


def read(path: Path, folder: Path) -> wheel.Wheel:
    """Read a wheel, its members into a folder beside it."""
    return wheel.read(path, folder=folder / "members", keep=lambda name: name.endswith(".py"))


def codes(found: wheel.Wheel) -> list[tuple[str, str]]:
    """Return code and file of every problem."""
    return [(problem.code, problem.file) for problem in found.problems]


def add(path: Path, *infos: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    """Append members to a wheel, past its RECORD."""
    with zipfile.ZipFile(path, "a") as archive:
        for info, data in infos:
            archive.writestr(info, data)
    return path


def test_an_honest_wheel(tmp_path: Path) -> None:
    """Name, tags, metadata and members are read; ELF files and Python files are kept, other data is not."""
    path = wheels.write(tmp_path, {"my_pkg/__init__.py": b"x = 1\n", "my_pkg/lib.so": ELF, "my_pkg/data.bin": b"123"})
    found = read(path, tmp_path)
    assert found.problems == ()
    assert (found.distribution, found.version) == ("my-pkg", "1.0")
    assert found.tags == ("py3-none-manylinux_2_28_x86_64",)
    assert dict(found.metadata("METADATA"))["Requires-Dist"] == "torch<2.10,>=2.8"
    member = next(member for member in found.members if member.path == "my_pkg/lib.so")
    assert (member.size, member.elf, member.sha256) == (64, True, hashlib.sha256(ELF).hexdigest())
    assert (tmp_path / "members/my_pkg/lib.so").read_bytes() == ELF
    assert not (tmp_path / "members/my_pkg/data.bin").exists()


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("../evil.py", "its name leads out of the folder that it is unpacked into"),
        ("my_pkg/../../evil.py", "its name leads out of the folder that it is unpacked into"),
        ("/etc/evil.py", "its name is an absolute path"),
        ("C:/evil.py", "its name begins with a drive"),
        ("my_pkg\\..\\evil.py", "its name holds a NUL or a backslash"),
        ("my_pkg//evil.py", "its name has an empty part"),
        ("my_pkg/./evil.py", "its name has an empty part"),
        ("my_pkg/\x1b[2Jevil.py", "its name has control characters"),
        ("my_pkg/" + "a" * 300 + ".py", "its name is longer than file systems take"),
    ],
)
def test_names_that_climb(name: str, fault: str, tmp_path: Path) -> None:
    """A member whose name leads out of the wheel is reported and not written."""
    path = add(wheels.write(tmp_path, {"my_pkg/__init__.py": b""}), (name, b"evil"))
    found = read(path, tmp_path)
    assert [(problem.code, problem.message) for problem in found.problems] == [("unsafe-path", fault)]
    assert not [file for file in tmp_path.rglob("*evil*") if file.is_file()]
    assert not any("\x1b" in problem.file for problem in found.problems)


def test_links_and_devices(tmp_path: Path) -> None:
    """A symbolic link or a device in the archive is reported, and nothing is written through it."""
    link, device = zipfile.ZipInfo("my_pkg/link.py"), zipfile.ZipInfo("my_pkg/device.py")
    link.external_attr, device.external_attr = (stat.S_IFLNK | 0o777) << 16, (stat.S_IFCHR | 0o600) << 16
    path = add(wheels.write(tmp_path, {"my_pkg/__init__.py": b""}), (link, b"/etc/passwd"), (device, b""))
    assert codes(read(path, tmp_path)) == [("unsafe-path", "my_pkg/link.py"), ("unsafe-path", "my_pkg/device.py")]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice(tmp_path: Path) -> None:
    """Two members of one name, or a file that is a folder too, are reported: installers differ in their choice."""
    path = wheels.write(tmp_path, {"my_pkg/a.py": b"1", "my_pkg/b.py": b""})
    add(path, ("my_pkg/a.py", b"2"), ("my_pkg/b.py/c.py", b""))
    found = read(path, tmp_path)
    assert ("duplicate-file", "my_pkg/a.py") in codes(found)
    assert ("duplicate-file", "my_pkg/b.py") in codes(found)
    assert (tmp_path / "members/my_pkg/a.py").read_bytes() == b"1"


def test_record_against_the_members(tmp_path: Path) -> None:
    """Members that RECORD lacks, or lists with a wrong, weak or no hash, and names without a member, are reported."""
    data = b"data"
    record = "\n".join(
        [
            f"my_pkg/good.py,sha256={wheels.digest(data)},4",
            f"my_pkg/strong.py,sha512={base64.urlsafe_b64encode(hashlib.sha512(data).digest()).decode().rstrip('=')},4",
            f"my_pkg/changed.py,sha256={wheels.digest(b'other')},5",
            "my_pkg/weak.py,md5=abc,4",
            "my_pkg/none.py,,",
            "my_pkg/gone.py,,",
            f"{INFO}/METADATA,,",
            f"{INFO}/WHEEL,,",
        ]
    )
    names = ("good", "strong", "changed", "weak", "none", "extra")
    path = wheels.write(tmp_path, {f"my_pkg/{name}.py": data for name in names}, record=record)
    assert codes(read(path, tmp_path)) == [
        ("record-hash", "my_pkg/changed.py"),
        ("record-hash", "my_pkg/weak.py"),
        ("record-hash", "my_pkg/none.py"),
        ("record-unknown-file", "my_pkg/extra.py"),
        ("record-hash", f"{INFO}/METADATA"),
        ("record-hash", f"{INFO}/WHEEL"),
        ("record-missing-file", "my_pkg/gone.py"),
    ]


def test_a_damaged_member(tmp_path: Path) -> None:
    """A member that cannot be unpacked, or has a wrong checksum, is reported; the others are read."""
    path = wheels.write(tmp_path, {"my_pkg/a.py": b"a" * 5000, "my_pkg/b.py": b"b"})
    data = bytearray(path.read_bytes())
    at = data.index(b"my_pkg/a.py") + len("my_pkg/a.py")
    data[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    found = read(path, tmp_path)
    assert codes(found) == [("unreadable-file", "my_pkg/a.py")]
    assert "my_pkg/b.py" in {member.path for member in found.members}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not a zip archive, or its end is missing"),
        (b"not a wheel at all", "is not a zip archive, or its end is missing"),
        (ELF, "is not a zip archive, or its end is missing"),
        (b"PK\x05\x06" + bytes(18), "has no .dist-info folder, and a wheel has one"),
    ],
)
def test_what_is_not_a_wheel(data: bytes, message: str, tmp_path: Path) -> None:
    """A file that is not an archive, or an empty one, is one clean error that names the file."""
    path = tmp_path / NAME
    path.write_bytes(data)
    with pytest.raises(WheelError, match=f"^{re.escape(str(path))}: {re.escape(message)}"):
        read(path, tmp_path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A wrong path gives one line."""
    with pytest.raises(WheelError, match=r": no such file. Give the path of a wheel$"):
        read(tmp_path / NAME, tmp_path)


def test_a_name_that_is_not_a_wheels(tmp_path: Path) -> None:
    """A wheel under another name cannot be judged: the error says which form is meant."""
    path = wheels.write(tmp_path, {}).rename(tmp_path / "download.zip")
    with pytest.raises(WheelError) as caught:
        read(path, tmp_path)
    assert str(caught.value) == (
        f"{path}: is not named as a wheel, NAME-VERSION-PYTHON-ABI-PLATFORM.whl. Give the file its published name back"
    )


def test_a_bomb_by_its_own_words(tmp_path: Path) -> None:
    """An archive that says it unpacks to hundreds of times its size is refused before a byte is unpacked."""
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("my_pkg/zeros.bin", "w") as member:
            for _ in range(100):
                member.write(bytes(1 << 20))
        archive.writestr(f"{INFO}/RECORD", "")
    size = path.stat().st_size
    with pytest.raises(WheelError, match=f"{size} bytes say that they unpack to 104857600, as a zip bomb does"):
        read(path, tmp_path)


def test_members_that_overlap(tmp_path: Path) -> None:
    """Directory entries that share one stream of bytes, as in a non-recursive zip bomb, are refused."""
    path = wheels.write(tmp_path, {"my_pkg/a.bin": bytes(1000), "my_pkg/b.bin": bytes(1000)})
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        first = archive.getinfo("my_pkg/a.bin").header_offset
    entry = data.rindex(b"my_pkg/b.bin") - 46
    struct.pack_into("<I", data, entry + 42, first)
    path.write_bytes(data)
    with pytest.raises(WheelError, match=r"members of the archive overlap \(as in a zip bomb\)"):
        read(path, tmp_path)


def test_a_member_that_is_larger_than_it_says(tmp_path: Path) -> None:
    """Unpacking stops at the declared size, and the fault is reported."""
    path = wheels.write(tmp_path, {"my_pkg/a.bin": bytes(50_000_000)})
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"my_pkg/a.bin") - 46 + 24, 10)
    path.write_bytes(data)
    found = read(path, tmp_path)
    assert ("unreadable-file", "my_pkg/a.bin") in codes(found)


def test_encrypted_and_oddly_packed_members(tmp_path: Path) -> None:
    """Members that installers cannot read are reported with the reason."""
    path = wheels.write(tmp_path, {"my_pkg/a.py": b"a"})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_LZMA) as archive:
        archive.writestr("my_pkg/b.py", b"b")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"my_pkg/a.py") - 46 + 8] |= 1
    path.write_bytes(data)
    messages = {
        problem.file: problem.message for problem in read(path, tmp_path).problems if problem.code == "unsafe-path"
    }
    assert messages == {
        "my_pkg/a.py": "it is encrypted",
        "my_pkg/b.py": "it is packed by method 14: installers read stored and deflated",
    }


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of members is bounded."""
    monkeypatch.setattr(members, "MAX_MEMBERS", 3)
    path = wheels.write(tmp_path, {"my_pkg/a.py": b""})
    with pytest.raises(WheelError, match="has 4 members, more than the 3 that are read"):
        read(path, tmp_path)


def test_two_dist_infos(tmp_path: Path) -> None:
    """A wheel has one name: two .dist-info folders are refused."""
    path = add(wheels.write(tmp_path, {}), ("other-1.dist-info/METADATA", b""))
    with pytest.raises(WheelError, match=r"has 2 .dist-info folders \(my_pkg-1.0.dist-info, other-1.dist-info\)"):
        read(path, tmp_path)


def test_cut_at_every_place(tmp_path: Path) -> None:
    """A truncated wheel, wherever it is cut, gives one error."""
    whole = wheels.write(tmp_path, {"my_pkg/a.py": b"a" * 100}).read_bytes()
    path = tmp_path / NAME
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(WheelError):
            read(path, tmp_path)


def _small() -> bytes:
    with TemporaryDirectory() as folder:
        return wheels.write(Path(folder), {"my_pkg/a.py": b"a = 1\n" * 9, "my_pkg/l.so": ELF}).read_bytes()


SMALL = _small()


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=12))
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    """Whatever bytes are changed: a wheel with problems, or a ``WheelError``; and nothing outside the folder."""
    data = bytearray(SMALL)
    for at, value in changes:
        data[at] = value
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / NAME).write_bytes(data)
        try:
            read(folder / NAME, folder)
        except WheelError as error:
            assert str(error).startswith(str(folder))  # noqa: PT017 - either outcome is right
        assert {path.name for path in folder.iterdir()} <= {NAME, "members"}


@settings(max_examples=100)
@given(st.binary(max_size=400))
def test_any_bytes_as_record(record: bytes) -> None:
    """RECORD may hold anything."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = wheels.write(folder, {"my_pkg/a.py": b""})
        source = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
        with source, zipfile.ZipFile(path, "w") as target:
            for info in source.infolist():
                target.writestr(info.filename, record if info.filename.endswith("RECORD") else source.read(info))
        assert read(path, folder).problems
