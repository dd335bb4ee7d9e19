"""Reading a foreign wheel takes work in proportion to its size: counted in calls and allocated bytes, never timed."""

from __future__ import annotations

import json
import os
import sys
import tracemalloc
import zipfile
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag

import elves
import wheels
from hatch_torch_ext import audit, cli, report, wheel
from hatch_torch_ext.audit import wheels as audit_of_wheels
from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.facts import labels
from hatch_torch_ext.matrix import coverage
from hatch_torch_ext.remote.index import IndexFile
from hatch_torch_ext.user import packages
from hatch_torch_ext.values import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

INFO = "my_pkg-1.0.dist-info"


def calls(work: Callable[[], object]) -> int:
    """Return how many functions, of Python and of C, ``work`` calls; each step of a generator is a call."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def texts(count: int) -> Mapping[str, bytes]:
    """Return small Python files."""
    return {f"a/{number}.py": b"x = 1" for number in range(count)}


def libraries(count: int) -> Mapping[str, bytes]:
    """Return libraries each of which needs the next one."""
    return {
        f"a/lib{number}.so": elves.shared_object(
            needed=(f"lib{number + 1}.so", "libc.so.6"), soname=f"lib{number}.so", undefined=(f"f{number}",)
        )
        for number in range(count)
    }


def symbols(count: int) -> Mapping[str, bytes]:
    """Return one library with as many undefined symbols and version needs."""
    names = tuple(f"_ZN2at4name{number}E" for number in range(count))
    needs = {"libc.so.6": tuple(f"GLIBC_2.{number}" for number in range(count))}
    return {"a/lib.so": elves.shared_object(needed=("libc10.so", "libc.so.6"), undefined=names, versions=needs)}


def needs(count: int) -> Mapping[str, bytes]:
    """Return one library that needs as many others."""
    return {"a/lib.so": elves.shared_object(needed=tuple(f"lib{number}.so" for number in range(count)))}


def variants(folder: Path, count: int) -> Path:
    """Write a wheel of ours with as many variants."""
    built = []
    for number in range(count):
        files = {f"torch2.{number}_cpu_x86_64/x.txt": b"x"}
        built.append((wheels.variant(f"torch2.{number}_cpu_x86_64", files, torch=f"2.{number}"), files))
    return wheels.ours(folder, built)


@pytest.mark.parametrize(
    "members", [texts, libraries, symbols, needs, None], ids=lambda made: getattr(made, "__name__", "variants")
)
@pytest.mark.parametrize("command", [audit.audit_wheel, report.describe])
def test_twice_the_wheel_is_twice_the_work(
    command: Callable[[Path], object], members: Callable[[int], Mapping[str, bytes]] | None, tmp_path: Path
) -> None:
    """The added work of the second half is that of the first: nothing compares all with all."""
    counts = []
    for count in (40, 120, 200):
        folder = tmp_path / str(count)
        folder.mkdir()
        path = variants(folder, count) if members is None else wheels.write(folder, members(count))
        command(path)  # what is looked up once is there
        counts.append(calls(lambda path=path: command(path)))  # type: ignore[misc]
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert second < 1.2 * first + 500


def releases_of_torch(count: int) -> list[IndexFile]:
    """Return the files of a page with so many release lines of torch."""
    tags = [f"cp{python}-cp{python}-manylinux_2_28_x86_64" for python in (310, 311)]
    names = [f"torch-2.{minor}.{patch}+cu128-{tag}.whl" for minor in range(count) for patch in (0, 1) for tag in tags]
    return [IndexFile(name=name, url="") for name in names]


def test_twice_the_releases_are_twice_the_work() -> None:
    """CASE 138: the newest wheel, the builds beside the matrix, and the tables: each file counts once."""
    tags = frozenset([Tag("cp311", "cp311", "manylinux_2_28_x86_64")])
    entry = Entry(
        name="a", variables=(("torch", "2.8"),), dependencies=(), torch_requirement="torch==2.8.*", python=None
    )

    def work(files: list[IndexFile]) -> None:
        found = packages.newest(files, SpecifierSet(), tags, "3.11", prereleases=False)
        assert found is not None
        assert str(found[0]) == f"2.{len(files) // 4 - 1}.1+cu128"
        published = [build for file in files for build in labels.of_name(file.name)]
        coverage.compare([entry], published, machine="x86_64")
        list(labels.differences(published))

    once, twice = releases_of_torch(100), releases_of_torch(200)
    work(once)  # what is imported or kept at the first use counts for neither
    assert calls(lambda: work(twice)) < 2.5 * calls(lambda: work(once))


def test_a_long_name_costs_its_length(tmp_path: Path) -> None:
    """A name of 60 kB with a slash at every second letter: 1 GB of memory in an earlier version."""
    path = wheels.write(tmp_path, {"a/x.py": b""})
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(6):
            archive.writestr(f"{'a/' * 30_000}{number}", b"")
    tracemalloc.start()
    try:
        found = report.describe(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum("more than file systems take" in problem for problem in found.problems) == 6
    assert peak < 20_000_000


@pytest.mark.parametrize("command", ["inspect", "audit"])
@pytest.mark.parametrize(
    "members",
    [
        {f"{INFO}/RECORD": "".join(f"gone/{'x' * 150}{number},,\n" for number in range(50_000)).encode()},
        {f"{INFO}/RECORD": b"my_pkg/x.py," + b"x" * 100_000 + b"=1,2\n", "my_pkg/x.py": b""},
        {f"a/{'x' * 200}{number}.so": b"no ELF" for number in range(2000)},
        {"my_pkg/_torch_ext/manifest.json": b'{"variants": [{"' + b"x" * 3_000_000 + b'": 1}]}'},
        {f"{INFO}/METADATA": b"Requires-Dist: torch\n" * 40_000},
        {f"{INFO}/variant.json": b'{"variants": {"' + b"x" * 900_000 + b'": 1}}'},
    ],
    ids=["gone", "algorithm", "no ELF", "field", "requirements", "label"],
)
def test_text_is_short(
    members: Mapping[str, bytes], command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages name what is wrong, and do not repeat it: 21 kB of wheel made 21 MB of text once."""
    path = tmp_path / f"my_pkg-1.0-{wheels.TAG}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {f"{INFO}/METADATA": b"", f"{INFO}/WHEEL": b"", f"{INFO}/RECORD": b"", **members}.items():
            archive.writestr(name, data)
    cli.main([command, str(path)])
    said = capsys.readouterr()
    assert 0 < len(said.out + said.err) < 100_000


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    """A pipe would wait for a writer for ever; a device may do anything when it is opened."""
    pipe = tmp_path / f"my_pkg-1.0-{wheels.TAG}.whl"
    os.mkfifo(pipe)
    with pytest.raises(WheelError, match=r"is a pipe, a device or a socket, not a file\. Give the path of a wheel$"):
        audit.audit_wheel(pipe)
    pipe.unlink()
    pipe.symlink_to("/dev/zero")
    with pytest.raises(WheelError, match="is a pipe, a device or a socket, not a file"):
        report.describe(pipe)
    pipe.unlink()
    pipe.mkdir()
    with pytest.raises(WheelError, match="is a folder, not a file"):
        report.describe(pipe)


def test_more_findings_than_anybody_reads(tmp_path: Path) -> None:
    """The first fifty of a code are listed, with the number of the others; no code hides another."""
    path = wheels.write(tmp_path, {f"a/{number}.so": b"no ELF" for number in range(60)})
    found = audit.audit_wheel(path)
    assert [each.message for each in found if each.file == "other files"] == ["10 more of these"]
    assert sum(each.code == "unreadable-file" for each in found) == 51


def test_json_of_very_many_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One MB of rows is listed, compiled files first, with the number of the others; `--all` lists every file."""
    members = {f"a/{number:04}/{'ü' * 60}.txt": b"" for number in range(2500)}
    path = wheels.write(tmp_path, {**members, "z/lib.so": elves.shared_object()})
    assert cli.main(["inspect", "--json", str(path)]) == 0
    text = capsys.readouterr().out
    said = json.loads(text)
    assert 900_000 < len(text) < 1_010_000
    assert said["files"][-1]["path"] == "z/lib.so"
    assert len(said["files"]) + said["left_out"]["files"] == 2504
    assert said["files"] == sorted(said["files"], key=lambda row: row["path"])
    assert cli.main(["inspect", "--json", "--all", str(path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (len(said["files"]), said["left_out"]) == (2504, {})


def test_findings_of_more_than_a_megabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst are listed, with the number of the others."""
    codes = sorted(audit.CODES)[:12]
    found = [
        audit.Finding(code=code, file=f"{number}.so", message="ü" * 2000, remedy="r", warning=number > 10)
        for code in codes
        for number in range(50)
    ]
    settled = audit.settle(found)
    assert len(escape.json([asdict(each) for each in settled])) < 1_010_000
    assert (
        settled[-1].message
        == f"{600 - len(settled) + 1} more findings, of this code and others; output is limited to 1 MB"
    )
    assert not settled[-1].warning
    monkeypatch.setattr(escape, "JSON", 100_000_000)
    assert len(audit.settle(found)) == 600


def test_texts_are_kept_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python files are read into memory up to a limit, and not written; those beyond it are not looked at."""
    monkeypatch.setattr(wheel, "MAX_TEXT", 100)
    path = wheels.write(tmp_path, {"a/1.py": b"x" * 60, "a/2.py": b"y" * 60, "a/3.py": b"z" * 40})
    read = wheel.read(path, folder=tmp_path / "members", texts=lambda name: name.endswith(".py"))
    assert sorted(read.texts) == ["a/1.py", "a/3.py"]
    assert read.text("a/1.py") == "x" * 60
    assert read.text("a/2.py") is None
    assert not (tmp_path / "members" / "a").exists()


def test_more_compiled_files_than_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a bound of files, and one of symbols, nothing is opened, and the audit says so: the wheel fails."""
    path = wheels.write(tmp_path, libraries(8))
    monkeypatch.setattr(audit_of_wheels, "MAX_ELVES", 5)
    unread = [each for each in audit.audit_wheel(path) if each.code == "unreadable-file"]
    assert [each.file for each in unread] == ["a/lib5.so", "a/lib6.so", "a/lib7.so"]
    assert {each.message for each in unread} == {
        "is not looked at: the wheel has more than 5 compiled files, or 1000000 symbols in them"
    }
    monkeypatch.setattr(audit_of_wheels, "MAX_ELVES", 5000)
    monkeypatch.setattr(audit_of_wheels, "MAX_SYMBOLS", 3)
    unread = [each for each in audit.audit_wheel(path) if each.code == "unreadable-file"]
    assert [each.file for each in unread] == [f"a/lib{number}.so" for number in range(4, 8)]
    assert not any(each.warning for each in unread)
