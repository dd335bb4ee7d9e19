"""A wheel with variants added: which wheels are refused, what the new one is called, and which one installers take."""

from __future__ import annotations

import json
import os
import platform
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import elves
import wheels
from hatch_torch_ext import __version__, audit
from hatch_torch_ext.audit.findings import OF_THE_ARCHIVE
from hatch_torch_ext.base.errors import ConfigurationError, MergeError, NewerManifestError, WheelError
from hatch_torch_ext.cli import extend
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.facts.manifest import ORIGIN, Origin, origin_to_json
from hatch_torch_ext.outlets import exact, extension, merging, parts, variantwheels
from hatch_torch_ext.remote import settings
from hatch_torch_ext.remote.http import Http
from hatch_torch_ext.resolve import available
from hatch_torch_ext.values import Entry
from loopback import serving
from merged import merge_wheels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hatch_torch_ext.outlets.parts import Part
    from hatch_torch_ext.values import Layout

HERE = Origin(version=__version__, options=(("archs", "0" * 16),), folders=((".", "1" * 16), ("csrc", "2" * 16)))
OLD, NEW = "torch2.8_cpu_cxx11_x86_64", "torch2.9_cpu_cxx11_x86_64"


def described(label: str, torch: str, *, elf: bytes | None = None, **changes: object) -> tuple[Any, dict[str, bytes]]:
    """Return a variant with one file."""
    files = {f"{label}/libx.so": elf or label.encode()}
    versions: Any = changes.pop("versions", ())
    record = replace(wheels.RECORD, entry=f"matrix.{torch}")
    made = wheels.variant(label, files, torch=torch, build=record, **changes)
    return replace(made, files=tuple(replace(file, versions=versions) for file in made.files)), files


def part(folder: Path, label: str = OLD, torch: str = "2.8", *, name: str | None = None, **changes: Any) -> Part:
    """Return a wheel with one variant, read."""
    folder.mkdir(parents=True, exist_ok=True)
    variant = {key: changes.pop(key) for key in ("backend", "cuda", "machine", "policy", "versions") if key in changes}
    draft = wheels.ours(folder, [described(label, torch, **variant)], **changes)
    if name is not None:
        draft = draft.rename(folder / name)
    unpacked = folder / "unpacked"
    unpacked.mkdir()
    return parts.read(draft, folder=unpacked)


def written(old: Part, extended: Layout, out: Path, audit: Callable[[Path], None] = lambda _: None) -> Path:
    """Write one extended wheel."""
    (path,) = extension.write([(old, extended)], out=out, audit=lambda draft, *_: audit(draft))
    return path


def refused(read: Part, *, distribution: str = "my-pkg", version: str = "1.0") -> str:
    """Return why a wheel is not one to be extended."""
    with pytest.raises(MergeError) as caught:
        extension.check_whole(read, distribution=distribution, version=version)
    return str(caught.value)


@pytest.mark.performs("name the wheel that was published", "check out the sources of")
def test_only_a_whole_wheel_of_this_project_is_extended(tmp_path: Path) -> None:
    """Another project's, another version's, a partial, a cut, a pruned and a newer one, each with what to do."""
    name = f"my_pkg-1.0-{wheels.TAG}.whl"
    whole = part(tmp_path / "whole")
    extension.check_whole(whole, distribution="My.Pkg", version="1.0")
    other = refused(whole, distribution="other")
    assert other == f"{name} is a wheel of my-pkg, and the project in this folder is other"
    assert refused(whole, version="1.1") == (
        f"{name} is of version 1.0, and the project in this folder of version 1.1: check out the sources of 1.0, or "
        "release 1.1 with the new torch in its matrix"
    )
    partial = {
        "entries": ["a", "b"], "built": ["a"], "sources": "", "configuration": "", "builder": "", "machines": [],
    }  # fmt: skip
    assert "is a partial wheel: it lacks b. Join it" in refused(part(tmp_path / "partial", partial=partial))
    cut = exact.index([whole.wheel.path], out=tmp_path / "cut")[0].path
    (tmp_path / "read").mkdir()
    assert "is not a whole wheel: its version has the local part" in refused(parts.read(cut, folder=tmp_path / "read"))
    pruned = replace(whole, pruned=("torch2.7_cpu_cxx11_x86_64",))
    assert "from which `prune` removed torch2.7_cpu_cxx11_x86_64: name the wheel" in refused(pruned)
    newer = replace(whole, origin=replace(HERE, version="99.1"))
    assert refused(newer) == (
        f"{name} was built by hatch-torch-ext 99.1, and this is {__version__}: `pip install 'hatch-torch-ext>=99.1'`"
    )


def test_the_head_of_the_manifest_is_read(tmp_path: Path) -> None:
    """What `prune` removed, and what the wheel was built from, come from there; nonsense is refused."""
    whole = part(tmp_path / "whole")
    (tmp_path / "again").mkdir()
    origin = {**origin_to_json(HERE), "of a later version": 1}
    path = wheels.changed(whole.wheel.path, {"pruned": ["x"], ORIGIN: origin})
    read = parts.read(path, folder=tmp_path / "again")
    assert (read.pruned, read.origin) == (("x",), HERE)
    for number, nonsense in enumerate(({}, {"version": "x"}, {"version": "1", "options": {"a": "b"}, "folders": {}})):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(Exception, match="`origin"):
            parts.read(wheels.changed(whole.wheel.path, {ORIGIN: nonsense}), folder=folder)


@pytest.mark.performs("--trust-sources")
def test_other_sources_are_refused_by_name(tmp_path: Path) -> None:
    """An option, a folder below the sources, a file of the package; a folder that an sdist lacks does not count.

    A wheel that says nothing needs the word of its author.
    """
    file = tmp_path / "__init__.py"
    file.write_bytes(b"from my_pkg import _variants\n\n_variants.load()\n")
    silent = part(tmp_path / "whole")
    read = replace(silent, origin=HERE)

    def check(here: Origin, *, read: Part = read, trusted: bool = False) -> None:
        shipped = {"my_pkg/__init__.py": file, "my_pkg/made_by_a_hook.py": file}
        extension.check_sources(read, here, source="csrc", shipped=shipped, trusted=trusted)

    check(replace(HERE, version="0", folders=(*HERE.folders, ("tests", "3" * 16))))
    changed = replace(
        HERE, options=(("archs", "4" * 16),), folders=((".", "5" * 16), ("csrc", "2" * 16), ("csrc/x", "6" * 16))
    )
    with pytest.raises(MergeError) as caught:
        check(changed)
    assert str(caught.value) == (
        f"{read.wheel.path.name} was not built from what is here: not the same are the option `archs`, the files of "
        "the project's own folder, the files in `csrc/x`. Check out the sources of 1.0 as they were, or release a new "
        "version"
    )
    with pytest.raises(MergeError, match=r"cannot be known.*say so with `--trust-sources`"):
        check(HERE, read=silent)
    check(HERE, read=silent, trusted=True)
    file.write_bytes(b"x = 1\n")
    with pytest.raises(MergeError, match=r"not the same are my_pkg/__init__\.py"):
        check(HERE)


@pytest.mark.performs("Extend that wheel, or name another")
def test_the_next_number_and_a_name_that_is_taken(tmp_path: Path) -> None:
    """The tag stays; the number counts on; a wheel with other contents is not replaced, and nothing is left over."""
    out = tmp_path / "out"
    old = part(tmp_path / "old")
    extended = extension.layout(old, [part(tmp_path / "new", NEW, "2.9")])
    audited: list[str] = []
    first = written(old, extended, out, lambda path: audited.append(path.name))
    assert [first.name] == audited == [f"my_pkg-1.0-1-{wheels.TAG}.whl"]
    assert written(old, extended, out) == first
    again = replace(old, wheel=replace(old.wheel, build="1"))
    assert written(again, extended, out).name == f"my_pkg-1.0-2-{wheels.TAG}.whl"
    first.write_bytes(b"other")
    with pytest.raises(MergeError, match=r"exists, with other contents: a published name is never used again"):
        written(old, extended, out)
    assert written(old, extended, tmp_path / "another").name == first.name

    def fail(_: Path) -> None:
        raise MergeError("not audited")

    with pytest.raises(MergeError, match="not audited"):
        written(replace(old, wheel=replace(old.wheel, build="7")), extended, out, fail)
    assert len(list(out.iterdir())) == 2


def entry(torch: str, python: str = "3.11", *, cuda: str = "cpu", machine: str | None = None) -> Entry:
    """Return an entry of the matrix, named by what it is for."""
    return Entry(
        name=".".join(filter(None, ["matrix", torch, python, cuda, machine])),
        variables=(("torch", torch), ("python", python), ("cuda", cuda)),
        dependencies=(),
        torch_requirement=f"torch=={torch}.*",
        python=python,
        torch=torch,
        backend=Backend.parse(cuda),
        machine=machine,
    )


def named(*found: Entry) -> list[str]:
    """Return the names of entries."""
    return [each.name for each in found]


@pytest.mark.performs("To add it, change that option first")
def test_new_are_the_releases_of_which_there_is_no_variant(tmp_path: Path) -> None:
    """Entries with one result are one variant: none of them is new; of a release that is named, by what variants serve.

    What `only` and `skip` leave out is not built, and where nothing is new, the message says so.
    """
    old = part(tmp_path / "old")
    names = old.wheel.path.name
    here = platform.machine()
    old = replace(
        old,
        variants=tuple(
            replace(built, variant=replace(built.variant, machine=here, build=replace(wheels.RECORD, entry=name)))
            for built, name in zip(old.variants, named(entry("2.8")), strict=True)
        ),
    )
    of_old = [entry("2.8"), entry("2.8", "3.12"), entry("2.8", cuda="12.8")]
    more = [entry("2.9"), entry("2.9", "3.12")]
    assert extend.lacking([old], [*of_old, *more], ["new"]) == tuple(more)
    assert extend.lacking([old], [*of_old, *more], ["new"], skip=["*3.12*"]) == (more[0],)
    assert extend.lacking([old], [*of_old, *more], ["2.9"], only=["*3.12*"]) == (more[1],)
    assert extend.lacking([old], [*of_old, *more], ["2.8"]) == (of_old[2],)  # no Python is in it
    for wanted, options, message in (
        ("new", {}, f"{names} serves every release already: nothing is to be added."),
        ("2.8", {"only": [of_old[0].name]}, f"{names} serves {of_old[0].name} already: nothing is to be added."),
        ("2.8", {"skip": ["*2.8*"]}, f"{', '.join(named(*of_old))}: left out by option `skip`"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            extend.lacking([old], of_old, [wanted], **options)
        assert message in str(caught.value)
    with pytest.raises(MergeError, match=f"is for {here}, and the entries that this machine builds are not"):
        extend.lacking([old], [entry("2.9", machine="other")], ["new"])


def test_each_entry_is_compared_with_the_wheel_of_its_machine(tmp_path: Path) -> None:
    """Wheels of two machines: neither lacks the entries of the other."""
    both = [entry("2.8", machine=machine) for machine in ("x86_64", "aarch64")]
    read = []
    for each in both:
        one = part(tmp_path / str(each.machine), OLD.replace("x86_64", str(each.machine)), machine=each.machine)
        (built,) = one.variants
        record = replace(wheels.RECORD, entry=each.name)
        read.append(replace(one, variants=(replace(built, variant=replace(built.variant, build=record)),)))
    more = entry("2.9", machine="aarch64")
    for wanted in ("new", "2.8"):
        with pytest.raises(ConfigurationError, match=r"serve .* already: nothing is to be added"):
            extend.lacking(read, both, [wanted])
    assert extend.lacking(read, [*both, more], ["new"]) == (more,)
    assert extend.lacking(read[:1], [*both, entry("2.9", machine="x86_64")], ["new"])[0].machine == "x86_64"


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audited wheel gets its name there, too; a name that is taken by another wheel stays, with the same words."""

    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    old, out = part(tmp_path / "old"), tmp_path / "out"
    extended = extension.layout(old, [part(tmp_path / "new", NEW, "2.9")])
    linked = written(old, extended, tmp_path / "linked")
    monkeypatch.setattr(os, "link", link)
    wheel = written(old, extended, out)
    assert wheel.read_bytes() == linked.read_bytes()
    assert written(old, extended, out) == wheel
    wheel.write_bytes(b"other")
    with pytest.raises(MergeError, match=r"exists, with other contents: a published name is never used again"):
        written(old, extended, out)
    assert (list(out.iterdir()), wheel.read_bytes()) == ([wheel], b"other")


@pytest.mark.performs("Release a new version that requires more")
def test_what_does_not_belong_together(tmp_path: Path) -> None:
    """A variant that is there, a newer platform, another requirement, a pin of torch: no wheel would be right."""
    old = part(tmp_path / "old")
    with pytest.raises(MergeError, match=f"holds the variant {OLD} already"):
        extension.layout(old, [part(tmp_path / "same")])
    newer = part(tmp_path / "newer", NEW, "2.9", versions=("GLIBC_2.39",))
    with pytest.raises(MergeError, match="to py3-none-manylinux_2_39_x86_64, and installers compare tags"):
        extension.layout(old, [newer])
    more = part(tmp_path / "more", NEW, "2.9", requires=["torch<2.10,>=2.8", "numpy"])
    with pytest.raises(MergeError, match="not the same are `Requires-Dist: numpy`"):
        extension.layout(old, [more])
    other = part(tmp_path / "other", NEW, "2.9", extra={"my_pkg/x.py": b""})
    with pytest.raises(MergeError, match=r"not the same are my_pkg/x\.py"):
        extension.layout(old, [other])
    extension.layout(old, [other], generated=["x.py"])
    pinned = part(tmp_path / "pinned", requires=["torch<2.9"])
    with pytest.raises(MergeError, match=r"`torch<2\.9` is what the project itself requires, and no torch 2\.9 is"):
        extension.layout(pinned, [part(tmp_path / "pinned-new", NEW, "2.9", requires=["torch<2.9"])])


@pytest.mark.performs("build for it, too")
def test_the_wheels_of_each_machine_are_extended(tmp_path: Path) -> None:
    """Each by what was built for its machine; one for which nothing was built would serve less than the others."""
    old = part(tmp_path / "old")
    here = part(tmp_path / "here", NEW, "2.9")
    there = part(tmp_path / "there", NEW.replace("x86_64", "aarch64"), "2.9", machine="aarch64")
    assert extension.fitting(old, [there, here]) == [here]
    with pytest.raises(MergeError, match=r"is for x86_64, and none of .* is: build for it, too$"):
        extension.fitting(old, [there], unserved=["aarch64"])
    assert extension.fitting(there, [there, here]) == [there]


def required(path: Path) -> tuple[list[str], str]:
    """Return the requirements of torch in a wheel's METADATA, and the one in its manifest."""
    with zipfile.ZipFile(path) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
        manifest = json.loads(archive.read("my_pkg/_torch_ext/manifest.json"))
    found = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: torch")]
    return found, manifest["requires"]


def test_the_wheels_of_all_machines_require_the_same_torch(tmp_path: Path) -> None:
    """The wheel of each machine, also where it has other releases; every form that is made of it knows the line."""
    there = {"machine": "aarch64", "policy": "manylinux_2_17_aarch64"}
    old = [part(tmp_path / "old"), part(tmp_path / "arm", NEW.replace("x86_64", "aarch64"), "2.9", **there)]
    merged = merging.merge_by_machine([each.wheel.path for each in old], out=tmp_path / "merged", each=True)
    assert [required(path) for path in merged] == [(["torch<2.10,>=2.8"], "torch>=2.8,<2.10")] * 2
    cut = exact.index(merged, out=tmp_path / "index")
    assert sorted(required(each.path)[0] for each in cut) == [["torch<2.10,>=2.9"], ["torch<2.9,>=2.8"]]
    read = []
    for path in merged:
        (folder := tmp_path / path.stem).mkdir()
        read.append(parts.read(path, folder=folder))
    labels = [f"torch2.{minor}_cpu_cxx11_{machine}" for machine, minor in (("x86_64", 10), ("aarch64", 11))]
    new = [
        part(tmp_path / "new", labels[0], "2.10"),
        part(tmp_path / "new-arm", labels[1], "2.11", **there),
    ]
    layouts = extension.layouts(read, new)
    out = tmp_path / "out"
    extended = extension.write(list(zip(read, layouts, strict=True)), out=out, audit=lambda *_: None)
    assert [required(path) for path in extended] == [(["torch<2.12,>=2.8"], "torch>=2.8,<2.12")] * 2


@pytest.mark.performs("write `NAME==VERSION`", "Download it, and name the file", "and name the file")
def test_published_wheels_by_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each tag the highest build number; other projects, versions and forms are not among them."""
    names = [
        *("my_pkg-1.0-py3-none-manylinux_2_28_x86_64.whl", "my_pkg-1.0-1-py3-none-manylinux_2_28_x86_64.whl"),
        *("my_pkg-1.0-10-py3-none-manylinux_2_28_x86_64.whl", "my_pkg-1.0-2-py3-none-manylinux_2_28_x86_64.whl"),
        *("my_pkg-1.0-py3-none-manylinux_2_28_aarch64.whl", "my_pkg-1.1-py3-none-manylinux_2_28_x86_64.whl"),
        *("my_pkg-1.0-py3-none-manylinux_2_28_x86_64-cu12.whl", "my_pkg_more-1.0-py3-none-any.whl"),
    ]
    for variable in [each for each in os.environ if each.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    expected = [names[2], names[4]]
    with serving() as index:
        for name in names:
            index.add(name.encode(), name)
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.simple)
        with Http(settings.of_environ(os.environ)) as http:
            fetched = available.fetch("My.Pkg==1.0", http, tmp_path)
            assert [path.name for path in fetched] == sorted(expected)
            assert {path.name: path.read_text() for path in fetched} == {name: name for name in expected}
            for text, why in (
                ("my-pkg", "`my-pkg` is neither a wheel nor a published version of a project: write `NAME==VERSION`"),
                ("my-pkg>=1", "write `NAME==VERSION`"),
                ("my-pkg==3", "No index has a wheel of my-pkg 3. Download it, and name the file"),
            ):
                with pytest.raises(ConfigurationError) as caught:
                    available.fetch(text, http, tmp_path)
                assert why in str(caught.value)
            index.fault = 404
            with pytest.raises(ConfigurationError, match="Download the wheel by other means, and name the file"):
                available.fetch("my-pkg==1.0", http, tmp_path)


def test_a_newer_manifest_names_what_reads_it(tmp_path: Path) -> None:
    """A field that this release does not know: the message says which release does, where the manifest says so."""
    whole = part(tmp_path / "whole")
    (tmp_path / "again").mkdir()
    made = {"version": "99.1", "options": {}, "folders": {}}
    path = wheels.changed(whole.wheel.path, {"variants": [{"new": 1}], ORIGIN: made})
    with pytest.raises(WheelError, match=r"hatch-torch-ext 99\.1 made it: `pip install 'hatch-torch-ext>=99\.1'`"):
        parts.read(path, folder=tmp_path / "again")


def test_a_wheel_of_a_later_format_is_not_extended(tmp_path: Path) -> None:
    """It is read as the other commands read it (`test_border.py`): the message says what to upgrade to."""
    path = wheels.changed(part(tmp_path / "whole").wheel.path, {"schema": 2, ORIGIN: {"version": "99.1"}})
    with pytest.raises(NewerManifestError, match=r"is of format 2 .*: upgrade hatch-torch-ext to 99\.1,"):
        parts.read_all([path], folder=tmp_path / "again")


def test_merging_keeps_the_build_number(tmp_path: Path) -> None:
    """So does every other form; wheels with different ones are not parts of one."""
    numbered = f"my_pkg-1.0-3-{wheels.TAG}.whl"
    one = part(tmp_path / "one", name=numbered).wheel.path
    cuda = "torch2.9_cu12.8_cxx11_x86_64"
    two = part(tmp_path / "two", cuda, "2.9", name=numbered, backend="cuda", cuda="12.8").wheel.path
    merged = merge_wheels([one, two], out=tmp_path / "merged")
    assert merged.name == numbered
    with zipfile.ZipFile(merged) as archive:
        assert archive.read("my_pkg-1.0.dist-info/WHEEL").decode().endswith("\nBuild: 3\n")
    assert merge_wheels([merged], out=tmp_path / "again").read_bytes() == merged.read_bytes()
    cut = variantwheels.cut(merged, out=tmp_path / "cut")
    names = [numbered.replace(".whl", f"-{label}.whl") for label in ("cu12", "null")]
    assert [wheel.name for _, wheel in cut.wheels] == names
    split = exact.index([merged], out=tmp_path / "index")
    assert sorted(each.path.name.split("-")[1:3] for each in split) == [["1.0+pt28cpu", "3"], ["1.0+pt29cu128", "3"]]
    plain = part(tmp_path / "plain", NEW, "2.9").wheel.path
    with pytest.raises(MergeError, match="the build number is 3 and none"):
        merge_wheels([one, plain], out=tmp_path / "mixed")


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_installers_take_the_extended_wheel_and_lock_files_keep_the_old_one(installer: str, tmp_path: Path) -> None:
    """From an index with both; with the hash of the old one in a requirements file, that one is installed."""
    old = part(tmp_path / "old")
    extended = extension.layout(old, [part(tmp_path / "new", NEW, "2.9")])
    new = written(old, extended, tmp_path / "out")
    own = [sys.executable, "-m"] if installer == "pip" else []
    common = ["--no-deps", "--no-cache-dir"] if installer == "pip" else ["--no-deps", "--no-cache", "--no-config"]
    program = [*own, installer, *(["pip"] if installer == "uv" else []), "install", *common]

    def installed(*arguments: str) -> list[str]:
        folder = tmp_path / "-".join(["installed", *arguments[:1]]).replace("=", "")
        done = subprocess.run(
            [*program, "--index-url", index.simple, "--target", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        manifest = json.loads((folder / "my_pkg" / "_torch_ext" / "manifest.json").read_text(encoding="utf-8"))
        return [each["label"] for each in manifest["variants"]]

    with serving() as index:
        for path in (old.wheel.path, new):
            index.add(path.read_bytes(), path.name)
        assert installed("my-pkg==1.0") == [OLD, NEW]
        locked = tmp_path / "requirements.txt"
        locked.write_text(f"my-pkg==1.0 --hash=sha256:{index.hashes[old.wheel.path.name]}\n", encoding="utf-8")
        assert installed("--require-hashes", "-r", str(locked)) == [OLD]


def packed(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return path -> compressed bytes, and the method, of each member."""
    found = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
        for info in archive.infolist():
            stream.seek(info.header_offset + 26)
            lengths = struct.unpack("<HH", stream.read(4))
            stream.seek(sum(lengths), os.SEEK_CUR)
            found[info.filename] = stream.read(info.compress_size), info.compress_type
    return found


def repacked(path: Path, level: int | None) -> Path:
    """Pack a wheel anew at another level of deflate; None: members are stored."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    method = zipfile.ZIP_STORED if level is None else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "w", method, compresslevel=level) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("level", [1, None])
def test_what_is_there_is_copied_as_it_is_packed(level: int | None, tmp_path: Path) -> None:
    """Whatever packed it: the old library and the author's files keep their compressed bytes, and so do the new ones.

    Python's own reader and the audit accept the archive.
    """
    extra = {"my_pkg/data.bin": b"0123456789" * 5000}
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = (
        wheels.ours(folder, [described(label, torch, elf=elves.shared_object(data=torch.encode() * 9999))], extra=extra)
        for folder, label, torch in ((tmp_path / "old", OLD, "2.8"), (tmp_path / "new", NEW, "2.9"))
    )
    read = []
    for path in (repacked(old, level), repacked(new, 1)):
        (folder := path.parent / "unpacked").mkdir()
        read.append(parts.read(path, folder=folder))
    (path,) = extension.write(
        [(read[0], extension.layout(read[0], read[1:]))], out=tmp_path / "out", audit=lambda *_: None, added=read[1:]
    )
    before, made = {**packed(new), **packed(old)}, packed(path)
    for name in ("my_pkg/data.bin", f"my_pkg/_torch_ext/{OLD}/libx.so", f"my_pkg/_torch_ext/{NEW}/libx.so"):
        assert made[name] == before[name], name
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    assert not [item for item in audit.audit_wheel(path) if item.code in OF_THE_ARCHIVE]


@pytest.mark.performs("name a copy that no other program writes to")
def test_a_wheel_that_changes_while_it_is_extended(tmp_path: Path) -> None:
    """Other bytes under its name, or fewer: no wheel is written."""
    old = part(tmp_path / "old")
    extended = extension.layout(old, [part(tmp_path / "new", NEW, "2.9")])
    copy = old.wheel.path.read_bytes()
    repacked(old.wheel.path, None)
    with pytest.raises(MergeError, match=r"was changed while it was read: name a copy that no other program writes to"):
        written(old, extended, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    old.wheel.path.write_bytes(copy)
    assert written(old, extended, tmp_path / "out").is_file()


def test_old_variants_are_not_audited_again(tmp_path: Path) -> None:
    """What is wrong with a new variant and with the whole is found; the old libraries are not read.

    An operator that only an old variant defines is not missed.
    """
    needed = ("libtorch_cpu.so", "libnowhere.so.1")
    use = {"my_pkg/ops.py": b"import torch\ntorch.ops.my_pkg.add(1)\n"}
    (folder := tmp_path / "old").mkdir()
    old_elf = elves.shared_object(needed=needed, data=b"\0my_pkg\0add\0")
    (tmp_path / "unpacked").mkdir()
    old = wheels.ours(folder, [described(OLD, "2.8", elf=old_elf)], extra=use)
    before = parts.read(old, folder=tmp_path / "unpacked").wheel
    new_elf = elves.shared_object(needed=needed, versions={"libc.so.6": ("GLIBC_2.39",)}, data=b"\0my_pkg\0")
    (folder := tmp_path / "new").mkdir()
    both = [described(OLD, "2.8", elf=old_elf), described(NEW, "2.9", elf=new_elf)]
    path = wheels.ours(folder, both, extra=use)
    alone = audit.audit_wheel(path)
    beside = audit.audit_wheel(path, before=before)
    assert {item.variant for item in alone if item.code == "missing-library"} == {OLD, NEW}
    assert {item.variant for item in beside if item.code == "missing-library"} == {NEW}
    assert "policy-too-low" in {item.code for item in beside}
    assert not [item for item in (*alone, *beside) if item.code == "not-registered"]
    os.truncate(tmp_path / "unpacked" / f"my_pkg/_torch_ext/{OLD}/libx.so", 100)  # it is there that the old one is read
    (fault,) = (item for item in audit.audit_wheel(path, before=before) if item.code == "unreadable-file")
    assert fault.file.endswith(f"{OLD}/libx.so")
    changed = replace(before, members=tuple(replace(each, sha256="0" * 64) for each in before.members))
    assert audit.audit_wheel(path, before=changed) == alone  # RECORD has another hash: it is read


@pytest.mark.parametrize(
    ("variant", "asked", "serves"),
    [
        ({"python": "cp311"}, {"python": "3.11"}, True),
        ({"python": "cp311"}, {"python": "3.12"}, False),
        ({"python": "abi3-cp39"}, {"python": "3.12"}, True),
        ({"python": "abi3-cp312"}, {"python": "3.11"}, False),
        ({"python": "abi3-cp39"}, {"python": "3.13t"}, False),
        ({}, {"cuda": "cu128"}, False),
        ({"backend": "cuda", "cuda": "12.8"}, {"cuda": "12.8"}, True),
        ({"backend": "cuda", "cuda": "12.6"}, {"cuda": "12.8"}, True),
        ({"backend": "cuda", "cuda": "12.8"}, {"cuda": "12.6"}, False),
        ({"backend": "cuda", "cuda": "12.8"}, {"cuda": "13.0"}, False),
        ({"backend": "cuda", "cuda": "12.8"}, {"cuda": "cpu"}, False),
        ({"build": replace(wheels.RECORD, variables=(("cuda", "12.8"),))}, {"cuda": "13.0"}, True),
        ({"stable_abi": True}, {}, False),
        ({"machine": "aarch64"}, {}, False),
    ],
)
def test_a_named_release_is_compared_by_what_variants_serve(
    variant: dict[str, Any],
    asked: dict[str, str],
    serves: bool,  # noqa: FBT001 -- a parameter
    tmp_path: Path,
) -> None:
    """Torch, Python, CUDA and machine of the entry decide; what it is called does not."""
    old = part(tmp_path / "old")
    (built,) = old.variants
    other = replace(built.variant, torch="2.7", machine=platform.machine())
    made = replace(other, torch="2.8", **variant)
    there = replace(old, variants=tuple(replace(built, variant=each) for each in (made, other)))
    asking = entry("2.8", asked.get("python", "3.11"), cuda=asked.get("cuda", "cpu"))
    if serves:
        with pytest.raises(ConfigurationError, match="already: nothing is to be added"):
            extend.lacking([there], [asking], ["2.8"])
    else:
        assert extend.lacking([there], [asking], ["2.8"]) == (asking,)


@pytest.mark.performs("name those of the other machines, too")
def test_all_wheels_of_a_version_are_extended(tmp_path: Path) -> None:
    """Of two machines' wheels one is refused; where the new torch has no build for one, that gets the requirement."""
    there: dict[str, Any] = {"machine": "aarch64", "policy": "manylinux_2_17_aarch64"}
    there["name"] = "my_pkg-1.0-py3-none-manylinux_2_17_aarch64.whl"
    old, arm = part(tmp_path / "old"), part(tmp_path / "arm", OLD.replace("x86_64", "aarch64"), **there)
    both = ["aarch64", "x86_64"]
    with pytest.raises(MergeError) as caught:
        extension.check_all([old], both)
    assert str(caught.value) == (
        f"The matrix has entries for aarch64, and {old.wheel.path.name} is not for it. All wheels of a version have to "
        "require the same torch: name those of the other machines, too, or all of them by `my-pkg==1.0`"
    )
    extension.check_all([old, arm], both)
    new = [part(tmp_path / "new", NEW, "2.9")]
    extended = list(zip([old, arm], extension.layouts([old, arm], new, unserved=["aarch64"]), strict=True))
    paths = extension.write(extended, out=tmp_path / "out", audit=lambda *_: None, added=new)
    assert [required(path)[0] for path in paths] == [["torch<2.10,>=2.8"]] * 2
    paths[1].write_bytes(b"other")
    paths[0].unlink()
    with pytest.raises(MergeError, match="exists, with other contents"):
        extension.write(extended, out=tmp_path / "out", audit=lambda *_: None, added=new)
    assert list((tmp_path / "out").iterdir()) == [paths[1]]


def test_machines_without_the_new_torch(tmp_path: Path) -> None:
    """Those that the matrix names, and has no entry of that release for; of others nobody knows what they lack."""
    new = [part(tmp_path / "new", NEW, "2.9")]
    arm = entry("2.8", machine="aarch64")
    assert extend._unserved([entry("2.8"), entry("2.9"), arm], new) == {"aarch64"}
    assert extend._unserved([entry("2.9"), arm, entry("2.9", machine="aarch64")], new) == set()
    assert extend._unserved([entry("2.8"), entry("2.9")], new) == set()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch>=2.6,<2.9", "torch>=2.6,<2.10"),
        ("torch>=2.6,<2.9,!=2.7.*", "torch>=2.6,<2.10,!=2.7.*"),
        ("torch>=2.8,!=2.9.*", "torch>=2.8"),
        ("torch>=2.8,<2.9", "torch>=2.8,<2.10"),
    ],
)
def test_the_requirement_keeps_what_the_version_admitted(before: str, after: str, tmp_path: Path) -> None:
    """A wheel of one machine may require releases that only the wheel of another serves."""
    old = replace(part(tmp_path / "old"), requires=before)
    (extended,) = extension.layouts([old], [part(tmp_path / "new", NEW, "2.9")])
    assert extended.requires == after


@pytest.mark.performs("name a wheel, or `NAME==VERSION`")
@pytest.mark.parametrize("name", ["nothing.whl", "folder", "folder.whl"])
def test_what_is_not_a_file(name: str, tmp_path: Path) -> None:
    """A folder, or nothing: told before anything is built; a file is taken whatever its name."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.whl").mkdir()
    with pytest.raises(ConfigurationError) as caught:
        extend._wheels([str(tmp_path / name)], tmp_path)
    assert str(caught.value) == f"{tmp_path / name} is not a file: name a wheel, or `NAME==VERSION`"
    old = part(tmp_path / "old").wheel.path
    assert extend._wheels([str(old)], tmp_path) == [old]
