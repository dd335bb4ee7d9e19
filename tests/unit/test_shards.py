"""Parts of one wheel: how entries are split, what a part says of itself, and which parts do not belong together."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import values
import wheels
from hatch_torch_ext import audit
from hatch_torch_ext.base.errors import ConfigurationError, MergeError, WheelError
from hatch_torch_ext.config import Config
from hatch_torch_ext.facts import manifest as partials
from hatch_torch_ext.facts.manifest import Origin, differences
from hatch_torch_ext.outlets import exact, merging, variantwheels
from hatch_torch_ext.pipeline import inputs, shards
from hatch_torch_ext.pipeline.history import History, Took
from merged import merge_wheels

if TYPE_CHECKING:
    from hatch_torch_ext.values import Entry

ORIGIN = {"sources": "5", "configuration": "c", "builder": "b", "machines": []}


def entry(name: str, *, cuda: str | None = None) -> Entry:
    """Return an entry of the matrix."""
    return values.entry(name, torch_requirement="torch", cuda=cuda)


def part(
    folder: Path,
    torch: str,
    *,
    machine: str = "x86_64",
    entries: tuple[str, ...] = ("m.2.8", "m.2.9"),
    **changes: Any,
) -> Path:
    """Write the partial wheel of the entry ``m.<torch>``."""
    label = f"torch{torch}_cpu_cxx11_{machine}"
    files = {f"{label}/libx.so": label.encode()}
    record = replace(wheels.RECORD, entry=f"m.{torch}")
    variant = wheels.variant(label, files, torch=torch, machine=machine, build=record)
    variant = replace(variant, policy=f"manylinux_2_17_{machine}")
    partial = {"entries": list(entries), "built": [f"m.{torch}"], **ORIGIN, **changes}
    folder.mkdir(parents=True)
    return wheels.ours(folder, [(variant, files)], partial=partial, name=f"my_pkg-1.0+part1of2-{wheels.TAG}.whl")


@pytest.mark.performs("write `1/")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9/8", "`--shard 9/8`: there is no such part: write `1/8` to `8/8`"),
        ("0/3", "`--shard 0/3`: there is no such part: write `1/3` to `3/3`"),
        ("1/0", "`--shard 1/0`: there is no such part: write `1/1` to `1/1`"),
        ("three", "`--shard three` must be two numbers: `--shard 3/8` is the third of eight parts"),
    ],
)
def test_a_shard_that_there_is_not(text: str, message: str) -> None:
    """Each mistake with what would be right, which is taken."""
    with pytest.raises(ConfigurationError) as caught:
        shards.parse_shard(text)
    assert str(caught.value) == message
    for right in re.findall(r"(\d+/\d+)`", message.partition(":")[2]):
        assert shards.parse_shard(right).count == int(right.partition("/")[2])


def test_a_split_is_fair_by_kind_and_the_same_everywhere() -> None:
    """CUDA entries are spread before others; every entry is in one group, in the order of the matrix."""
    entries = [*(entry(f"cpu{n}") for n in range(4)), entry("gpu0", cuda="12.8"), entry("gpu1", cuda="13.0")]
    groups = shards.split(entries, 2)
    assert [[each.name for each in group] for group in groups] == [
        ["cpu0", "cpu2", "gpu0"],
        ["cpu1", "cpu3", "gpu1"],
    ]
    with pytest.raises(ConfigurationError, match=r"^7 shards of 6 entries: some would be empty; split into at most 6$"):
        shards.split(entries, 7)


def test_a_split_by_what_entries_took(tmp_path: Path) -> None:
    """One slow entry outweighs the others; one that is new counts as its kind does."""
    history = tmp_path / "history.json"
    took = {"a": {"seconds": 100.0, "peak": 0}, "b": {"seconds": 10.0, "peak": 0}, "c": {"seconds": 10.0, "peak": 0}}
    history.write_text(json.dumps(took), encoding="utf-8")
    times = History.named(history, "abcd", root=tmp_path)
    groups = shards.split([entry(name) for name in "abcd"], 2, times=times)
    assert [[each.name for each in group] for group in groups] == [["a"], ["b", "c", "d"]]
    assert History.named(None, "abcd", root=tmp_path) is None


@pytest.mark.performs("name {}, which does", "leave `--times` out")
@pytest.mark.parametrize("place", ["build/torch-ext", "store/work/{}"])
def test_times_of_other_entries(place: str, tmp_path: Path) -> None:
    """The message names the file of this project, wherever its work is, which then is taken; else none is needed."""
    other = tmp_path / "other.json"
    for text in (None, "{}", "[]", '{"x": {"seconds": 1.0, "peak": 0}}'):
        if text is not None:
            other.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigurationError) as caught:
            History.named(other, ["a"], root=tmp_path)
        assert str(caught.value) == (
            f"`--times {other}` does not say what any entry of the matrix took: leave `--times` out."
        )
        assert History.named(None, ["a"], root=tmp_path) is None
    work = tmp_path / place.format(hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16])
    work.mkdir(parents=True)
    History(work / "history.json").note("a", Took(seconds=3.0, peak=0))
    with pytest.raises(ConfigurationError) as caught:
        History.named(other, ["a"], root=tmp_path)
    named = re.findall(r"name (\S+), which does", str(caught.value))
    assert named == [str(work / "history.json")]
    times = History.named(Path(named[0]), ["a"], root=tmp_path)
    assert times is not None
    assert times.of("a") == Took(seconds=3.0, peak=0)


def test_a_part_is_described_only_by_content(tmp_path: Path) -> None:
    """The digests do not depend on the project's place; other sources and options have other digests."""
    found = []
    for folder in (tmp_path / "here", tmp_path / "there"):
        config = Config(root=folder, package="p", package_dir=folder / "p", source=folder / "csrc")
        found.append(
            shards.describe(config, files={f"{folder}/csrc/a.c": "1"}, whole=[entry("a"), entry("b")], built=["b"])
        )
        assert shards.describe(config, files={}, whole=[entry("a"), entry("b")], built=["a", "b"]) is None
    first, second = found
    assert first is not None
    assert first == second
    assert first.lacking == ("a",)
    other = shards.describe(replace(config, exclude=("x",)), files={}, whole=[entry("a"), entry("b")], built=["b"])
    assert other is not None
    assert other.configuration != first.configuration
    assert other.sources != first.sources
    jobs = shards.describe(replace(config, jobs=3, only=("b",)), files={}, whole=[entry("a"), entry("b")], built=["b"])
    assert jobs == replace(other, configuration=first.configuration)
    assert partials.partial_from_json(json.loads(json.dumps(partials.partial_to_json(first)))) == first


def test_the_origin_of_a_wheel_is_what_compilers_read(tmp_path: Path) -> None:
    """The same in any place; files of other tools, the matrix and this machine's options do not count; sources do."""
    files = {
        "csrc/CMakeLists.txt": "1", "csrc/data.json": "1", "csrc/ops/a.cpp": "1", "third_party/x.h": "1",
        "pyproject.toml": "1", "build": "1", "coverage.xml": "1",
    }  # fmt: skip

    def made(
        place: str = "here",
        *,
        source: str = "csrc",
        lacks: str = "",
        options: dict[str, Any] | None = None,
        **changed: str,
    ) -> Origin:
        root = tmp_path / place
        config = Config(root=root, package="p", package_dir=root / "p", source=root / source, **(options or {}))
        found = {**files, **{name.replace("__", "/").replace("_dot_", "."): value for name, value in changed.items()}}
        project = {f"{root}/{name}": value for name, value in found.items()}
        return inputs.origin(config, files=project, sdist=set(found) - {lacks})

    first = made()
    assert [name for name, _ in first.folders] == ["csrc", "csrc/ops", "third_party"]
    assert first == made("there", build="2", coverage_dot_xml="2", pyproject_dot_toml="2")
    assert first == made(options={"jobs": 7, "index_url": "https://example.org", "only": ("a",)})
    assert first == made(lacks="csrc/notes", csrc__notes="left by an editor, and git ignores it")
    changes: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({"csrc__data_dot_json": "2"}, ["the files in `csrc`"]),
        ({"third_party__x_dot_h": "2"}, ["the files in `third_party`"]),
        ({"csrc__new__b_dot_cpp": "1"}, ["the files in `csrc/new`"]),
        ({"options": {"archs": (("cuda", ("9.0",)),)}}, ["the option `archs`"]),
        ({"examples__b_dot_cpp": "1"}, []),
    )
    for change, told in changes:
        other = made(**change)
        assert list(differences(first, other, source="csrc")) == told
        assert (other == first) == (not told and "examples" not in str(change))
    root = made(source=".")
    assert [name for name, _ in root.folders] == ["csrc", "csrc/ops", "third_party"]


def test_the_version_of_a_part_is_local(tmp_path: Path) -> None:
    """An index refuses it; an author's own local part stays, there and back."""
    assert partials.partial_version("1.0", 3, 8) == "1.0+part3of8"
    assert partials.partial_version("1.0+mine", 3, 8) == "1.0+mine.part3of8"
    assert [partials.whole_version(each) for each in ("1.0+part3of8", "1.0+mine.part3of8", "1.0+mine")] == [
        "1.0",
        "1.0+mine",
        "1.0+mine",
    ]
    wheel = merging.name_part(part(tmp_path / "a", "2.8"), number=1, count=2, out=tmp_path)
    assert wheel.name.startswith("my_pkg-1.0+part1of2")


def test_parts_give_the_whole(tmp_path: Path) -> None:
    """The version loses its local part, and nothing says `partial` any more; the order does not matter."""
    parts = [part(tmp_path / "a", "2.8"), part(tmp_path / "b", "2.9")]
    merged = merge_wheels(parts, out=tmp_path / "out")
    assert merged.name.startswith("my_pkg-1.0-")
    with zipfile.ZipFile(merged) as archive:
        assert "partial" not in json.loads(archive.read("my_pkg/_torch_ext/manifest.json"))
        assert b'"partial"' not in archive.read("my_pkg/_variants.py").partition(b"DATA: ")[2]
    again = merge_wheels(parts[::-1], out=tmp_path / "again")
    assert again.read_bytes() == merged.read_bytes()


def test_a_part_that_is_missing(tmp_path: Path) -> None:
    """The error names the entry and the command that builds it; each machine has its own."""
    first = part(tmp_path / "a", "2.8")
    with pytest.raises(MergeError) as caught:
        merge_wheels([first], out=tmp_path / "out")
    assert str(caught.value) == (
        "no part holds m.2.9 for x86_64: name the wheels that do, or build it with "
        "`hatch-torch-ext build --only m.2.9 -d DIR`"
    )
    arm = part(tmp_path / "c", "2.9", machine="aarch64")
    with pytest.raises(MergeError, match=r"^no part holds m\.2\.8 for aarch64: "):
        merge_wheels([first, part(tmp_path / "b", "2.9"), arm], out=tmp_path / "out")
    lone = part(tmp_path / "d", "2.9", machine="aarch64", entries=("m.2.9",))
    merged = merge_wheels([first, tmp_path / "b" / first.name, lone], out=tmp_path / "out")
    assert "aarch64.manylinux" in merged.name


def test_parts_of_one_machine_each(tmp_path: Path) -> None:
    """An entry that names its machine is not required of another machine's parts; a missing one is an error."""
    entries, machines = ("m.2.8", "m.2.9"), [["m.2.8", "x86_64"], ["m.2.9", "aarch64"]]
    here = part(tmp_path / "a", "2.8", entries=entries, machines=machines)
    with pytest.raises(MergeError, match=r"^no part holds m\.2\.9 for aarch64: "):
        merge_wheels([here], out=tmp_path / "out")
    there = part(tmp_path / "b", "2.9", machine="aarch64", entries=entries, machines=machines)
    assert "aarch64.manylinux" in merge_wheels([here, there], out=tmp_path / "out").name


def test_a_part_that_is_there_twice(tmp_path: Path) -> None:
    """The entry and both wheels are named."""
    parts = [part(tmp_path / "a", "2.8"), part(tmp_path / "b", "2.9"), part(tmp_path / "c", "2.8")]
    with pytest.raises(
        MergeError, match=r"^the entry m\.2\.8 for x86_64 is in my_pkg-1\.0.* leave one of the wheels out$"
    ):
        merge_wheels(parts, out=tmp_path / "out")


def test_entries_of_one_variant_in_two_parts(tmp_path: Path) -> None:
    """What one build collapses, since the bytes are the same, merging collapses too."""
    first = part(tmp_path / "a", "2.8", entries=("m.2.8", "m.other"))
    second = part(tmp_path / "b", "2.8", entries=("m.2.8", "m.other"), built=["m.other"])
    merged = merge_wheels([first, second], out=tmp_path / "out")
    with zipfile.ZipFile(merged) as archive:
        (variant,) = json.loads(archive.read("my_pkg/_torch_ext/manifest.json"))["variants"]
    assert variant["label"] == "torch2.8_cpu_cxx11_x86_64"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("sources", "were not built from the same sources. Build both from one commit, both in its checkout or both"),
        (
            "configuration",
            "were not built with the same options. Build both with the same `HATCH_TORCH_EXT_` variables",
        ),
        ("builder", "were not built by the same hatch-torch-ext. Build both with one version of it"),
    ],
)
def test_parts_of_different_origin(tmp_path: Path, changed: str, message: str) -> None:
    """Other sources, other options, another version of this project: the error distinguishes them."""
    parts = [part(tmp_path / "a", "2.8"), part(tmp_path / "b", "2.9", **cast("dict[str, Any]", {changed: "other"}))]
    with pytest.raises(MergeError) as caught:
        merge_wheels(parts, out=tmp_path / "out")
    assert message in str(caught.value)


def test_parts_of_other_metadata(tmp_path: Path) -> None:
    """A requirement that only one part has; which torch is required may differ."""
    first, second = part(tmp_path / "a", "2.8"), tmp_path / "b" / "second.whl"
    part(second.parent, "2.9").rename(second)
    changed = tmp_path / f"my_pkg-1.0-{wheels.TAG}.whl"
    with zipfile.ZipFile(second) as source:
        members = {name: source.read(name) for name in source.namelist() if ".dist-info/" not in name}
    wheels.write(changed.parent, members, name=changed.name, requires=["torch<2.10,>=2.9", "numpy"])
    with pytest.raises(MergeError, match=r"do not have the same metadata: `METADATA` of \.dist-info is not the same"):
        merge_wheels([first, changed], out=tmp_path / "out")


def test_a_damaged_part(tmp_path: Path) -> None:
    """What the manifest says of itself must be whole, too."""
    wheel = part(tmp_path / "a", "2.8", built=[])
    with pytest.raises(WheelError, match=r"`partial\.built` must be an array of names of entries"):
        merge_wheels([wheel], out=tmp_path / "out")


def test_a_part_is_not_to_be_published(tmp_path: Path) -> None:
    """The audit warns: the file works for users of the variants in it; other outlets refuse it."""
    wheel = part(tmp_path / "a", "2.8")
    (found,) = [each for each in audit.audit_wheel(wheel) if each.code == "partial-wheel"]
    assert found.message == "the wheel holds 1 of 2 entries; it lacks m.2.9"
    assert found.warning
    for outlet in (variantwheels.cut, lambda path, out: exact.index([path], out=out)):
        with pytest.raises(
            MergeError, match=r"is a partial wheel: it lacks m\.2\.9\. Join it with the other parts first"
        ):
            outlet(wheel, out=tmp_path / "out")
