"""Other forms of a finished wheel: cut by backend, one wheel for each variant, and merged again."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

import wheels
from hatch_torch_ext import audit, cli
from hatch_torch_ext.base.errors import MergeError, WheelError
from hatch_torch_ext.outlets import exact, variantwheels
from merged import merge_wheels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hatch_torch_ext.facts.variant import Variant

CPU = "torch2.8_cpu_cxx11_x86_64"
CU12 = "torch2.8_cu12.8_cxx11_x86_64"
CU13 = "stable2.11_cu13.0_x86_64"
LOCAL = f"my_pkg-1.0+git5-{wheels.TAG}.whl"
PEP_825 = {
    "type": "object",
    "additionalProperties": False,
    "required": ["$schema", "default-priorities", "variants"],
    "properties": {
        "$schema": {"type": "string"},
        "default-priorities": {
            "type": "object",
            "additionalProperties": False,
            "required": ["namespace"],
            "properties": {
                "namespace": {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"pattern": "^[a-z0-9_]+$"}}
            },
        },
        "variants": {
            "additionalProperties": False,
            "patternProperties": {
                "^[a-z0-9_.]+$": {
                    "additionalProperties": False,
                    "patternProperties": {
                        "^[a-z0-9_]+$": {
                            "additionalProperties": False,
                            "patternProperties": {
                                "^[a-z0-9_]+$": {"type": "array", "minItems": 1, "items": {"pattern": "^[a-z0-9_.]+$"}}
                            },
                        }
                    },
                }
            },
        },
    },
}
"""What PEP 825 asks of ``variant.json`` and ``-variants.json``, rule by rule (its schema 0.1.1)."""


def described(label: str, **changes: object) -> tuple[Variant, dict[str, bytes]]:
    """Return a variant with one file of its own and one that all share."""
    files = {f"{label}/libx.so": label.encode(), "shared/0123456789ab/liby.so": b"shared"}
    return wheels.variant(label, files, **changes), files


@pytest.fixture
def fat(tmp_path: Path) -> Path:
    """Return a wheel for the CPU, CUDA 12 and CUDA 13 as a build leaves it; its author requested manylinux_2_28."""
    built = [
        described(CPU),
        described(CU12, backend="cuda", cuda="12.8", archs=("8.0", "9.0")),
        described(
            CU13, backend="cuda", cuda="13.0", archs=("9.0", "9.0+PTX"), torch="2.11", stable_abi=True, cxx11_abi=None
        ),
    ]
    draft = wheels.ours(tmp_path, built, extra={"my_pkg/zz.py": b"x = 1\n"})
    return merge_wheels([draft], out=tmp_path / "fat")


def labels(wheel: Path) -> list[str]:
    """Return the labels of the variants in a wheel of ours."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(each["label"] for each in json.loads(archive.read("my_pkg/_torch_ext/manifest.json"))["variants"])


def metadata(wheel: Path, field: str) -> list[str]:
    """Return the values of a field of METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return [line.removeprefix(f"{field}: ") for line in lines if line.startswith(f"{field}: ")]


def test_merging_one_wheel_gives_it_back(fat: Path, tmp_path: Path) -> None:
    """What is whole stays as it is, byte for byte."""
    assert merge_wheels([fat], out=tmp_path / "again").read_bytes() == fat.read_bytes()


def test_a_wheel_whose_loader_is_one_file_is_merged(tmp_path: Path) -> None:
    """Wheels made before the loader was split: what is written from them has all files, and its audit is clean."""
    old = wheels.ours(tmp_path, [described(CPU)])
    with zipfile.ZipFile(merge_wheels([old], out=tmp_path / "new")) as archive:
        names = [name for name in archive.namelist() if "/_torch_ext/" in name]
        manifest = json.loads(archive.read("my_pkg/_torch_ext/manifest.json"))
        helper = archive.read("my_pkg/_torch_ext/help.py")
    assert "my_pkg/_torch_ext/help.py" in names
    assert "my_pkg/_torch_ext/build.py" not in names
    sha256 = hashlib.sha256(helper).hexdigest()
    assert manifest["loader"] == [{"target": "_torch_ext/help.py", "sha256": sha256, "size": len(helper)}]
    found = audit.audit_wheel(tmp_path / "new" / old.name)
    assert not [each for each in found if each.code.startswith("manifest-")]


def test_a_wheel_is_cut_by_backend(fat: Path, tmp_path: Path) -> None:
    """One wheel for each CUDA major and one for the CPU, each still with its torches; the fat one is beside them."""
    cut = variantwheels.cut(fat, out=tmp_path / "out")
    assert {label: labels(wheel) for label, wheel in cut.wheels} == {"cu13": [CU13], "cu12": [CU12], "null": [CPU]}
    assert [wheel.name for _, wheel in cut.wheels] == [
        "my_pkg-1.0-py3-none-manylinux_2_28_x86_64-cu13.whl",
        "my_pkg-1.0-py3-none-manylinux_2_28_x86_64-cu12.whl",
        "my_pkg-1.0-py3-none-manylinux_2_28_x86_64-null.whl",
    ]
    assert cut.fat.read_bytes() == fat.read_bytes()
    requirements = [metadata(wheel, "Requires-Dist") for _, wheel in cut.wheels]
    assert requirements == [["torch>=2.11"], ["torch<2.9,>=2.8"], ["torch<2.9,>=2.8"]]


def test_installers_of_today_pass_over_variant_wheels(fat: Path, tmp_path: Path) -> None:
    """The package packaging does not accept their names, so that pip takes the plain wheel."""
    for _, wheel in variantwheels.cut(fat, out=tmp_path / "out").wheels:
        with pytest.raises(InvalidWheelFilename):
            parse_wheel_filename(wheel.name)


def test_the_variants_description_is_that_of_the_pep(fat: Path, tmp_path: Path) -> None:
    """A lower bound for CUDA, no upper one; cards where there is no PTX; providers come from a later PEP."""
    cut = variantwheels.cut(fat, out=tmp_path / "out")
    told = json.loads(cut.description.read_text(encoding="utf-8"))
    assert cut.description.name == "my_pkg-1.0-variants.json"
    assert told["variants"] == {
        "cu12": {"nvidia": {"cuda_version_lower_bound": ["12.0"], "sm_arch": ["80_real", "90_real"]}},
        "cu13": {"nvidia": {"cuda_version_lower_bound": ["13.0"]}},
        "null": {},
    }
    providers = told.pop("providers")
    jsonschema.validate(told, PEP_825)
    assert set(providers) == {"nvidia"}
    for label, wheel in cut.wheels:
        with zipfile.ZipFile(wheel) as archive:
            own = json.loads(archive.read("my_pkg-1.0.dist-info/variant.json"))
        assert own["variants"] == {label: told["variants"][label]}


def test_the_description_equals_what_variantlib_makes_of_the_wheels(fat: Path, tmp_path: Path) -> None:
    """Variantlib writes the index's file from the wheels: the same but for the address of its schema."""
    variantlib = pytest.importorskip("variantlib.commands.main", reason="variantlib needs Python 3.11")
    cut = variantwheels.cut(fat, out=tmp_path / "out")
    ours = json.loads(cut.description.read_text(encoding="utf-8"))
    cut.description.unlink()
    assert variantlib.main(["generate-index-json", "-d", str(tmp_path / "out")]) in {None, 0}
    theirs = json.loads(cut.description.read_text(encoding="utf-8"))
    assert ours | {"$schema": None} == theirs | {"$schema": None}


def test_variant_wheels_merge_to_the_fat_wheel(fat: Path, tmp_path: Path) -> None:
    """The way back gives the same bytes, in whatever order the parts are named."""
    parts = [wheel for _, wheel in variantwheels.cut(fat, out=tmp_path / "out").wheels]
    for number, order in enumerate((parts, parts[::-1])):
        assert merge_wheels(order, out=tmp_path / f"back{number}").read_bytes() == fat.read_bytes()


def test_exact_wheels_and_their_index(fat: Path, tmp_path: Path) -> None:
    """One wheel for each variant, its torch in the local version; pages by torch, for installers and for people."""
    served = exact.index([fat], out=tmp_path / "ix")
    assert {each.version: each.torch for each in served} == {
        "1.0+pt211stablecu13": "torch-2.11+cu13-stable",
        "1.0+pt28cpu": "torch-2.8+cpu",
        "1.0+pt28cu128": "torch-2.8+cu128",
    }
    data = json.loads((tmp_path / "ix/whl/torch-2.8+cu128/my-pkg/index.json").read_text(encoding="utf-8"))
    (file,) = data["files"]
    assert file["filename"] == "my_pkg-1.0+pt28cu128-py3-none-manylinux_2_28_x86_64.whl"
    assert (tmp_path / "ix/whl/torch-2.8+cu128/my-pkg" / file["url"].replace("%2B", "+")).resolve().is_file()
    assert metadata(served[1].path, "Version") == ["1.0+pt28cpu"]
    people = (tmp_path / "ix/index.html").read_text(encoding="utf-8")
    assert "torch 2.11 and newer, built for CUDA 13.0 or a newer 13.x" in people
    assert 'pip install my-pkg --index-url <span class="here"></span>whl/torch-2.8+cpu/' in people


def test_exact_wheels_merge_to_the_fat_wheel(fat: Path, tmp_path: Path) -> None:
    """Local versions go, requirements widen again: the same bytes."""
    parts = [each.path for each in exact.index([fat], out=tmp_path / "ix")]
    assert merge_wheels(parts, out=tmp_path / "back").read_bytes() == fat.read_bytes()


@pytest.mark.performs("one release after the other")
def test_a_release_is_added_to_an_index(fat: Path, tmp_path: Path) -> None:
    """Older releases stay on every page."""
    exact.index([fat], out=tmp_path / "ix")
    (tmp_path / "later").mkdir()
    newer = tmp_path / "later" / fat.name.replace("1.0", "1.1")
    with zipfile.ZipFile(fat) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    wheels.write(newer.parent, members, name=newer.name)
    exact.index([newer], out=tmp_path / "ix")
    page = (tmp_path / "ix/whl/torch-2.8+cpu/my-pkg/index.html").read_text(encoding="utf-8")
    assert page.index("my_pkg-1.0+pt28cpu") < page.index("my_pkg-1.1+pt28cpu")


def test_variants_that_differ_in_little_get_names_of_their_own(tmp_path: Path) -> None:
    """No variant takes another's place: where the short names meet, CUDA's minor and the C++ ABI are named too."""
    stable = {"torch": "2.10", "stable_abi": True, "cxx11_abi": None, "backend": "cuda", "archs": ("9.0",)}
    built = [
        described("stable2.10_cu12.6_x86_64", **stable, cuda="12.6"),
        described("stable2.10_cu12.8_x86_64", **stable, cuda="12.8"),
        described("torch2.8_cpu_x86_64", cxx11_abi=None),
        described(CPU),
        described("torch2.9_cpu_cxx11_x86_64", torch="2.9"),
    ]
    fat = merge_wheels([wheels.ours(tmp_path, built)], out=tmp_path / "fat")
    served = exact.index([fat], out=tmp_path / "index")
    locals_ = [each.version.partition("+")[2] for each in served]
    assert sorted(locals_) == ["pt210stablecu126", "pt210stablecu128", "pt28cpu", "pt28cpucxx11", "pt29cpu"]
    back = merge_wheels([each.path for each in served], out=tmp_path / "back")
    assert (back.name, back.read_bytes()) == (fat.name, fat.read_bytes())


def test_an_authors_own_local_version_stays(tmp_path: Path) -> None:
    """An exact wheel has both local parts, and the way back gives the author's."""
    draft = wheels.ours(tmp_path, [described(CPU), described(CU12, backend="cuda", cuda="12.8")], name=LOCAL)
    fat = merge_wheels([draft], out=tmp_path / "fat")
    assert fat.name == LOCAL
    served = exact.index([fat], out=tmp_path / "index")
    assert [each.version for each in served] == ["1.0+git5.pt28cpu", "1.0+git5.pt28cu128"]
    assert "my-pkg 1.0+git5</td>" in (tmp_path / "index/index.html").read_text()
    assert merge_wheels([each.path for each in served], out=tmp_path / "back").read_bytes() == fat.read_bytes()
    with pytest.raises(MergeError, match=r"its version has the local part git5\.pt28cpu"):
        exact.index([served[0].path], out=tmp_path / "other")


def test_what_a_kill_left_in_an_index_is_made_whole(fat: Path, tmp_path: Path) -> None:
    """Metadata that were cut off are written again, also for a release that is not in the call; drafts go."""
    out = tmp_path / "index"
    (first, *_) = exact.index([fat], out=out)
    metadata = first.path.with_name(f"{first.path.name}.metadata")
    whole = metadata.read_bytes()
    metadata.write_bytes(whole[:20])
    draft = first.path.with_name(f".{first.path.name}.1")
    draft.write_bytes(b"half")
    page = out / "simple/my-pkg/.index.html.1"
    page.write_bytes(b"half")
    (again, *_) = exact.index([fat], out=out)
    assert metadata.read_bytes() == whole
    assert again == first
    assert [path.name for path in out.rglob("*") if path.name.startswith(".")] == [".torch-ext-index"]


@pytest.mark.performs("move it to another folder")
def test_other_wheels_in_an_index(fat: Path, tmp_path: Path) -> None:
    """A wheel that no call of ours put there is named, and what to do with it."""
    out = tmp_path / "index"
    exact.index([fat], out=out)
    foreign = wheels.write(out / "files", {"x.py": b""}, name="x-1-py3-none-any.whl")
    for other in (foreign, out / "files" / fat.name):
        if other != foreign:
            shutil.copy(fat, other)
        with pytest.raises(MergeError, match="is not an exact wheel of an index: move it to another folder"):
            exact.index([fat], out=out)
        other.rename(tmp_path / "elsewhere.whl")
        exact.index([fat], out=out)


@pytest.mark.performs("Make room there")
@pytest.mark.parametrize("command", ["variants", "index", "merge"])
def test_a_full_disk_is_not_the_wheels_fault(command: str, fat: Path, tmp_path: Path) -> None:
    """What cannot be unpacked for want of room says so, and leaves no wheel; with room, it is unpacked."""
    run = (
        "import resource, signal, sys; from hatch_torch_ext import cli; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    )
    run += "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)); sys.exit(cli.main(sys.argv[1:]))"
    out = tmp_path / "out"
    line = [sys.executable, "-B", "-c", run, command, str(fat), "-o", str(out)]  # -B: no compiled file of ours cut off
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{fat}: cannot be unpacked into " in done.stderr
    assert "File too large. Make room there, or name another folder with TMPDIR" in done.stderr
    assert not list(out.rglob("*.whl"))
    assert cli.main([command, str(fat), "-o", str(out)]) == 0


def test_a_build_number_is_kept(fat: Path, tmp_path: Path) -> None:
    """Every form of the wheel has it, and installers prefer it there as well."""
    numbered = tmp_path / fat.name.replace("-1.0-", "-1.0-7a-")
    shutil.copy(fat, numbered)
    cut = variantwheels.cut(numbered, out=tmp_path / "cut")
    split = exact.index([numbered], out=tmp_path / "index")
    for path in (*(wheel for _, wheel in cut.wheels), cut.fat, *(each.path for each in split)):
        assert path.name.split("-")[2] == "7a"
    assert merge_wheels([each.path for each in split], out=tmp_path / "back").name == numbered.name


def test_one_backend_is_nothing_to_cut(tmp_path: Path) -> None:
    """A wheel only for the CPU serves everybody as it is."""
    wheel = wheels.ours(tmp_path, [described(CPU)])
    with pytest.raises(MergeError) as caught:
        variantwheels.cut(wheel, out=tmp_path / "out")
    assert str(caught.value) == (
        f"{wheel.name} has variants for only one backend (null): there is nothing that an installer could choose, "
        "and the wheel as it is serves all of them"
    )


@pytest.mark.performs("Name the fat wheel")
def test_what_was_cut_is_not_cut_again(fat: Path, tmp_path: Path) -> None:
    """Both outlets take the fat wheel, and say so."""
    (_, variant), *_ = variantwheels.cut(fat, out=tmp_path / "out").wheels
    single, *_ = exact.index([fat], out=tmp_path / "ix")
    for wheel, words in ((variant, "was cut already: it holds variant.json"), (single.path, "is not a whole wheel")):
        with pytest.raises(MergeError, match=words) as caught:
            variantwheels.cut(wheel, out=tmp_path / "again")
        assert "Name the fat wheel" in str(caught.value)
    assert variantwheels.cut(fat, out=tmp_path / "again").wheels


@pytest.mark.performs("Name a wheel that was built with the build hook `torch-ext`")
@pytest.mark.parametrize("command", ["merge", "variants", "index"])
def test_a_wheel_that_is_not_ours(fat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """The error says so and does not call it damaged; nothing is written. One that a build left is taken."""
    foreign = wheels.write(tmp_path, {"a/__init__.py": b""})
    assert cli.main([command, str(foreign), "-o", str(tmp_path / "out")]) == 1
    assert "was not made by hatch-torch-ext" in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("*.whl"))
    assert cli.main([command, str(fat), "-o", str(tmp_path / "out")]) == 0


def test_a_wheel_with_a_single_variant(tmp_path: Path) -> None:
    """It has one exact wheel, which merges to it again."""
    fat = merge_wheels([wheels.ours(tmp_path, [described(CPU)])], out=tmp_path / "fat")
    (single,) = exact.index([fat], out=tmp_path / "ix")
    assert single.version == "1.0+pt28cpu"
    assert merge_wheels([single.path], out=tmp_path / "again").read_bytes() == fat.read_bytes()


@pytest.mark.parametrize("label", ["CU13", "cu+13", "c\u00fc13"])
def test_a_label_that_the_pep_forbids(fat: Path, tmp_path: Path, label: str) -> None:
    """A wheel that somebody renamed so is refused by its name."""
    (_, wheel), *_ = variantwheels.cut(fat, out=tmp_path / "out").wheels
    renamed = wheel.rename(wheel.with_name(wheel.name.replace("-cu13.whl", f"-{label}.whl")))
    with pytest.raises(WheelError, match="is not named as a wheel"):
        merge_wheels([renamed], out=tmp_path / "again")


def test_parts_of_other_sources(fat: Path, tmp_path: Path) -> None:
    """The file that differs is named."""
    (tmp_path / "other").mkdir()
    other = wheels.ours(tmp_path / "other", [described("torch2.9_cpu_cxx11_x86_64", torch="2.9")])
    with pytest.raises(MergeError) as caught:
        merge_wheels([fat, other], out=tmp_path / "out")
    assert "do not come from the same sources: `my_pkg/zz.py` is not the same in them" in str(caught.value)


@pytest.mark.performs("leave one of the wheels out")
def test_a_variant_that_is_in_two_parts(fat: Path, tmp_path: Path) -> None:
    """Both wheels are named; nothing is written; without one of them they are joined."""
    (_, one), *others = variantwheels.cut(fat, out=tmp_path / "cut").wheels
    copy = tmp_path / one.name
    shutil.copy(one, copy)
    given = [one, copy, *(wheel for _, wheel in others)]
    with pytest.raises(MergeError, match="leave one of the wheels out"):
        merge_wheels(given, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for left_out in (one, copy):
        joined = merge_wheels([each for each in given if each != left_out], out=tmp_path / "out")
        assert joined.read_bytes() == fat.read_bytes()


@pytest.mark.performs("name the parts")
def test_nothing_to_merge(fat: Path, tmp_path: Path) -> None:
    """Without parts there is a sentence; with them named, a wheel."""
    with pytest.raises(MergeError) as caught:
        merge_wheels([], out=tmp_path / "out")
    assert str(caught.value) == "no wheel to merge: name the parts"
    assert merge_wheels([fat], out=tmp_path / "out").is_file()


def test_two_versions_in_one_call(fat: Path, tmp_path: Path) -> None:
    """An index is added to one release after the other."""
    with pytest.raises(MergeError, match=r"two versions of my-pkg in one call \(1.0, 1.1\)"):
        exact.index([fat, fat.with_name(fat.name.replace("1.0", "1.1"))], out=tmp_path / "ix")


@pytest.mark.performs("name an empty folder", "name another with `-o`")
def test_a_folder_with_other_files_is_not_an_index(fat: Path, tmp_path: Path) -> None:
    """Nothing is written among them, nor over a file; an empty folder is taken, and that of an index, again."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(MergeError, match="holds other files: name an empty folder with `-o`, or one that `index` made"):
        exact.index([fat], out=tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    with pytest.raises(MergeError, match=r"notes\.txt is not a folder: name another with `-o`"):
        exact.index([fat], out=tmp_path / "mine" / "notes.txt")
    (tmp_path / "empty").mkdir()
    assert exact.index([fat], out=tmp_path / "empty") == exact.index([fat], out=tmp_path / "empty")


@pytest.mark.performs("Build the wheel again")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.pop("requires"), "lacks `requires`. Build the wheel again"),
        (lambda data: data.update(tag="a b"), "`tag` cannot be `a b`. Build the wheel again"),
        (
            lambda data: data["variants"][0].pop("label"),
            "variant lacks the field `label`. Build the wheel again, or use",
        ),
        (
            lambda data: data["variants"][0].update(news=1),
            "`news`, which this hatch-torch-ext does not know. Build the",
        ),
        (
            lambda data: data.update(variants=1),
            "must be an object with a list `variants`. Build the wheel again, or use",
        ),
        (
            lambda data: data["variants"][0]["files"][0].update(sha256="0" * 64),
            ".so has another hash than in the manifest. Build or fetch the wheel again",
        ),
        (
            lambda data: data["variants"][0]["files"][0].update(path="gone/libx.so"),
            "gone/libx.so is in the manifest, and missing. Build or fetch the wheel again",
        ),
    ],
)
def test_a_manifest_that_is_damaged(
    change: Callable[[Any], object], said: str, fat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the file; the wheel as it was built is taken."""
    place = "my_pkg/_torch_ext/manifest.json"
    with zipfile.ZipFile(fat) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    data = json.loads(members[place])
    change(data)
    (tmp_path / "damaged").mkdir()
    damaged = wheels.write(tmp_path / "damaged", {**members, place: json.dumps(data).encode()}, name=fat.name)
    out = str(tmp_path / "out")
    assert cli.main(["merge", str(damaged), "-o", out]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"hatch-torch-ext: {damaged}: my_pkg/_torch_ext/")
    assert said in told
    assert cli.main(["merge", str(fat), "-o", out]) == 0


def retold(path: Path, place: str, before: bytes, after: bytes) -> Path:
    """Write a wheel again with another name or version in a member, or in the members' names; RECORD agrees."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}
    changed = {name.replace(before.decode(), after.decode()) if place == "names" else name: data
               for name, data in members.items()}  # fmt: skip
    changed |= {name: data.replace(before, after) for name, data in changed.items() if name.endswith(place)}
    info = next(name for name in changed if name.endswith("/METADATA")).rpartition("/")[0]
    lines = [f"{name},sha256={wheels.digest(data)},{len(data)}" for name, data in changed.items()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**changed, f"{info}/RECORD": "\n".join([*lines, f"{info}/RECORD,,\n"]).encode()}.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (("", "my_pkg-1.0", "my_pkg-9.9"), "is named my-pkg 9.9, but my_pkg-1.0.dist-info is of my_pkg 1.0"),
        (("", "my_pkg-1.0", "other-1.0"), "is named other 1.0, but my_pkg-1.0.dist-info is of my_pkg 1.0"),
        (("names", "-1.0.dist", "-9.9.dist"), "is named my-pkg 1.0, but my_pkg-9.9.dist-info is of my_pkg 9.9"),
        (
            ("METADATA", "Version: 1.0", "Version: 9.9"),
            "is named my-pkg 1.0, but my_pkg-1.0.dist-info/METADATA is of my_pkg 9.9",
        ),
        (
            ("manifest.json", '"my-pkg"', '"other"'),
            "is named my-pkg, but my_pkg/_torch_ext/manifest.json is of other",
        ),
    ],
)
def test_a_wheel_of_another_name_is_not_merged(
    change: tuple[str, str, str], wrong: str, fat: Path, tmp_path: Path
) -> None:
    """CASE 127: file name, folder, metadata and manifest must agree; the file by its published name is merged."""
    place, before, after = change
    given = fat.rename(fat.with_name(fat.name.replace(before, after) if not place else fat.name))
    if place:
        whole = given.read_bytes()
        retold(given, place, before.encode(), after.encode())
    with pytest.raises(WheelError) as caught:
        merge_wheels([given], out=tmp_path / "out")
    told = f"{given}: {wrong}. Give the file its published name back, or build the wheel again"
    assert str(caught.value) == told
    audited = [item.message for item in audit.audit_wheel(given) if item.code == "wheel-name"]
    assert audited == ([] if place == "manifest.json" else [wrong])
    if place:
        given.write_bytes(whole)
    else:
        given = given.rename(fat)
    assert merge_wheels([given], out=tmp_path / "out").is_file()
    assert "wheel-name" not in {item.code for item in audit.audit_wheel(given)}


@pytest.mark.performs("Give the file its published name", "fetch the wheel again")
@pytest.mark.parametrize("command", ["index", "audit", "inspect"])
def test_a_wheel_that_was_not_fetched_whole(
    command: str, fat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut, changed in a member, or renamed: one line, and the file under its name as it was published is taken."""
    fetched = tmp_path / "fetched" / fat.name
    fetched.parent.mkdir()
    whole = fat.read_bytes()
    at = whole.index(b"my_pkg/zz.py") + len("my_pkg/zz.py")
    rest = ["-o", str(tmp_path / "out")] if command == "index" else []
    for damaged in (whole[:-30], whole[: len(whole) // 2], whole[:at] + b"\xff\xff" + whole[at + 2 :]):
        fetched.write_bytes(damaged)
        status = cli.main([command, str(fetched), *rest])
        told = capsys.readouterr()
        assert status == (0 if command == "inspect" and damaged[-30:] == whole[-30:] else 1)
        assert "fetch the wheel again" in told.err or "my_pkg/zz.py" in told.out
        fetched.write_bytes(whole)
        assert cli.main([command, str(fetched), *rest]) == (command == "audit")
    named = fetched.rename(tmp_path / "fetched" / "download.zip")
    capsys.readouterr()
    assert cli.main([command, str(named), *rest]) == 1
    said = capsys.readouterr().err
    assert "is not named as a wheel" in said
    assert "Give the file its published name back" in said
    assert cli.main([command, str(named.rename(fetched)), *rest]) == (command == "audit")


@pytest.mark.performs("leave one of them out of the matrix")
def test_variants_of_one_name_in_an_index(tmp_path: Path) -> None:
    """No file takes another's place: which variants they are is reported, and without one of them there is an index."""
    both = [described(f"torch{torch}_cpu_cxx11_x86_64", torch=torch) for torch in ("2.28", "22.8")]
    (tmp_path / "one").mkdir()
    fat, one = (
        merge_wheels([wheels.ours(folder, built)], out=folder / "fat")
        for folder, built in ((tmp_path, both), (tmp_path / "one", both[:1]))
    )
    with pytest.raises(MergeError) as caught:
        exact.index([fat], out=tmp_path / "ix")
    assert re.fullmatch(
        r"the variants torch2\.28_cpu_cxx11_x86_64, torch22\.8_cpu_cxx11_x86_64 would get one name, .*\+pt228.*: "
        "leave one of them out of the matrix",
        str(caught.value),
    )
    assert [each.version for each in exact.index([one], out=tmp_path / "ix")] == ["1.0+pt228cpu"]


@pytest.mark.performs("`hatch-torch-ext variants`")
def test_variant_wheels_are_audited(fat: Path, tmp_path: Path) -> None:
    """The name's label is compared with variant.json; nothing else is found in them that the fat wheel has not."""
    before = {finding.code for finding in audit.audit_wheel(fat)}
    for label, wheel in variantwheels.cut(fat, out=tmp_path / "out").wheels:
        assert {finding.code for finding in audit.audit_wheel(wheel)} <= before
        renamed = wheel.rename(wheel.with_name(wheel.name.replace(f"-{label}.whl", "-other.whl")))
        (remedy,) = {item.remedy for item in audit.audit_wheel(renamed) if item.code == "variant-label"}
        command = remedy.split("`")[1].split()[1:]
        assert cli.main([*command, str(fat), "-o", str(tmp_path / label)]) == 0
        for again in (tmp_path / label).glob("*.whl"):
            assert {finding.code for finding in audit.audit_wheel(again)} <= before


def test_a_cut_wheel_says_where_the_other_variants_are(fat: Path, tmp_path: Path) -> None:
    """Where nothing fits, the loader of a cut wheel names the wheels with the rest; the fat one has no such line."""
    cut = variantwheels.cut(fat, out=tmp_path / "out")
    (_, cuda), *_ = cut.wheels
    said = {}
    for wheel in (cuda, fat):
        with zipfile.ZipFile(wheel) as archive:
            for name in ("_variants.py", "_torch_ext/help.py"):
                archive.extract(f"my_pkg/{name}", tmp_path / "at" / wheel.name)
        module = tmp_path / "at" / wheel.name / "my_pkg" / "_variants.py"
        program = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1])['load']()"
        command = [sys.executable, "-c", program, str(module)]
        said[wheel] = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "or take another wheel of this release, as this one was cut: the other variants are in" in said[cuda]
    assert (
        "my_pkg-1.0-py3-none-manylinux_2_28_x86_64-cu12.whl, my_pkg-1.0-py3-none-manylinux_2_28_x86_64-null.whl"
        in said[cuda]
    )
    assert "none of its compiled variants (3) fits here" in said[fat]
    assert "was cut" not in said[fat]


@pytest.mark.performs("leave architectures or entries out")
def test_max_size_says_which_form_fits(fat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1 where not even the smallest form fits; without an entry, or its architectures, it may."""
    assert cli.main(["variants", str(fat), "-o", str(tmp_path / "a"), "--max-size", "100MB"]) == 0
    assert "variant wheels: the largest, my_pkg-1.0-py3-none-manylinux_2_28_x86_64-cu12.whl" in capsys.readouterr().out
    assert cli.main(["index", str(fat), "-o", str(tmp_path / "b"), "--max-size", "1kB"]) == 1
    assert ": over 1.0 kB" in capsys.readouterr().out
    assert cli.main(["index", str(fat), "-o", str(tmp_path / "c"), "--max-size", "big"]) == 1
    assert "--max-size must be a number of bytes" in capsys.readouterr().err
    large = [described(f"torch2.{minor}_cpu_cxx11_x86_64", torch=f"2.{minor}") for minor in range(8, 14)]
    other = described(CU12, backend="cuda", cuda="12.8")
    said = []
    for number, built in enumerate((large, large[:1])):
        folder = tmp_path / f"matrix{number}"
        folder.mkdir()
        fat = merge_wheels([wheels.ours(folder, [*built, other])], out=folder / "fat")
        largest = max(wheel.stat().st_size for _, wheel in variantwheels.cut(fat, out=folder / "cut").wheels)
        said.append((fat, largest))
    limit = str(sum(largest for _, largest in said) // 2)
    assert cli.main(["variants", str(said[0][0]), "-o", str(tmp_path / "d"), "--max-size", limit]) == 1
    assert "nothing fits: leave architectures or entries out" in capsys.readouterr().err
    assert cli.main(["variants", str(said[1][0]), "-o", str(tmp_path / "e"), "--max-size", limit]) == 0
