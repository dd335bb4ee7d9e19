"""A kernel repository made from a wheel: what is in it, what is refused and why, and the wheel made again from it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kernels._rust import Digest, DigestAlgorithm, Metadata
from kernels.validate import AllValidator, ArchValidator, default_metadata_validators
from kernels.variants import get_variants_local, parse_variant

import wheels
from hatch_torch_ext import cli
from hatch_torch_ext.base.errors import MergeError, WheelError
from hatch_torch_ext.facts.manifest import Fallback, Sources
from hatch_torch_ext.outlets import kernelrules, kernels, parts
from merged import merge_wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hatch_torch_ext.facts.variant import Variant

CPU = "torch2.8_cpu_cxx11_x86_64"
NEXT = "torch2.9_cpu_cxx11_x86_64"
CUDA = "torch2.8_cu12.8_cxx11_x86_64"
STABLE = "stable2.11_cu13.0_x86_64"
INIT = b"from . import _variants\nfrom ._ops import ops\n\n_variants.load()\n"
OPS = b"""import torch

from . import _variants

_variants.load()
NAMESPACE = "my_pkg"
ops = getattr(torch.ops, NAMESPACE)
"""
GOOD = {"my_pkg/__init__.py": INIT, "my_pkg/_ops.py": OPS}


def library(name: str, text: bytes = b"") -> bytes:
    """Return a file with a changeable namespace in it, as a library on ``registration.h`` has one."""
    return b"\x7fnot ELF\0" + text + f"\0TORCH_EXT_NAMESPACE={name}".encode().ljust(129, b"\0") + b"end"


def described(label: str, *, text: bytes = b"", **changes: Any) -> tuple[Variant, dict[str, bytes]]:
    """Return a variant with a library that registers operators, and a data file that variants share."""
    files = {f"{label}/libx.so": library("my_pkg", text or label.encode()), "shared/0123456789ab/table.bin": b"shared"}
    return wheels.variant(label, files, **changes), files


def wheel(
    folder: Path,
    *built: tuple[Variant, Mapping[str, bytes]],
    extra: Mapping[str, bytes] | None = None,
    licence: str = "MIT",
    **changes: Any,
) -> Path:
    """Return a wheel as a build leaves it, with the author's files ``extra`` beside those of a good kernel."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = wheels.ours(folder, built or [described(CPU)], extra={**GOOD, **(extra or {})}, **changes)
    if licence:
        put_licence(draft, licence)
    return merge_wheels([draft], out=folder / "fat")


def put_licence(path: Path, licence: str) -> None:
    """Add a licence to a wheel's METADATA."""
    change(path, ".dist-info/METADATA", lambda data: data + f"License-Expression: {licence}\n".encode())


def change(path: Path, place: str, edit: Callable[[bytes], bytes]) -> None:
    """Change the member of a wheel whose path ends with ``place``."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    (name,) = (each for each in members if each.endswith(place))
    members[name] = edit(members[name])
    record = next(each for each in members if each.endswith("/RECORD"))
    lines = [f"{each},sha256={wheels.digest(data)},{len(data)}" for each, data in members.items() if each != record]
    members[record] = ("\n".join([*lines, f"{record},,"]) + "\n").encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in members.items():
            archive.writestr(each, data)


def refused(path: Path, out: Path, **options: Any) -> str:
    """Return why no kernel is made of a wheel; nothing is written."""
    with pytest.raises(MergeError) as error:
        kernels.write(path, out=out, **options)
    assert not out.exists()
    return str(error.value)


def test_folders_are_named_as_kernels_reads_them(tmp_path: Path) -> None:
    """The package `kernels` finds each variant by its folder, and reads back what the variant is for."""
    built = [
        described(CPU),
        described(CUDA, backend="cuda", cuda="12.8", archs=("8.0", "9.0+PTX")),
        described(STABLE, backend="cuda", cuda="13.0", torch="2.11", stable_abi=True, cxx11_abi=None, archs=("9.0a",)),
        described("torch2.6_cpu_cxx98_x86_64", torch="2.6", cxx11_abi=False),
        described(
            "torch2.9_cpu_aarch64", torch="2.9", cxx11_abi=None, machine="aarch64", policy="manylinux_2_17_aarch64"
        ),
    ]
    made = kernels.write(wheel(tmp_path, *built), out=tmp_path / "out")
    names = [
        "torch-stable-abi211-cu130-x86_64-linux",
        "torch26-cxx98-cpu-x86_64-linux",
        "torch28-cxx11-cpu-x86_64-linux",
        "torch28-cxx11-cu128-x86_64-linux",
        "torch29-cpu-aarch64-linux",
    ]
    assert [name for name, _, _ in made.variants] == names
    assert sorted(each.variant_str for each in get_variants_local(tmp_path / "out" / "build")) == names
    assert all(parse_variant(name).variant_str == name for name in names)


def test_metadata_are_those_that_kernels_reads(tmp_path: Path) -> None:
    """`kernels` reads metadata.json, validates it, and finds every file's digest right."""
    built = [described(CPU), described(CUDA, backend="cuda", cuda="12.8", archs=("8.0", "9.0+PTX"))]
    made = kernels.write(wheel(tmp_path, *built), out=tmp_path / "out")
    assert (made.name, made.version) == ("my-pkg", 1)
    archs = {}
    for name, identifier, _ in made.variants:
        folder = tmp_path / "out" / "build" / name
        read = Metadata.read_from_file(folder / "metadata.json")
        assert (str(read.name), read.id, read.version, read.license) == ("my-pkg", identifier, 1, "MIT")
        AllValidator([*default_metadata_validators(), ArchValidator()]).validate_metadata(metadata=read, variant=name)
        read.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, folder))
        archs[name] = read.backend.archs
    assert archs == {"torch28-cxx11-cpu-x86_64-linux": None, "torch28-cxx11-cu128-x86_64-linux": ["8.0", "9.0+PTX"]}


def test_each_build_has_operators_of_its_own(tmp_path: Path) -> None:
    """The id is the operators' namespace in library, loader, manifest and Python; another wheel has another id."""
    fat = wheel(tmp_path, described(CPU), described(CUDA, backend="cuda", cuda="12.8"))
    made = kernels.write(fat, out=tmp_path / "out")
    other = kernels.write(wheel(tmp_path / "2", described(CPU, text=b"2")), out=tmp_path / "2" / "out")
    ids = {identifier for _, identifier, _ in (*made.variants, *other.variants)}
    assert len(ids) == 3
    for name, identifier, label in made.variants:
        folder = tmp_path / "out" / "build" / name
        data = (folder / "_torch_ext" / label / "libx.so").read_bytes()
        assert kernels.fields(data) == {identifier}
        assert len(data) == len(library("my_pkg", label.encode()))
        assert f'NAMESPACE = "{identifier}"' in (folder / "_ops.py").read_text()
        assert f'"package": "{identifier}"' in (folder / "_variants.py").read_text()
        assert hashlib.sha256(data).hexdigest() in (folder / "_torch_ext" / "manifest.json").read_text()
        assert re.fullmatch(r"_my_pkg_(cpu|cuda)_[0-9a-f]{10}", identifier)


def test_files_are_shared_by_links(tmp_path: Path) -> None:
    """What is the same in two variants is one file on the disk; the package's Python is, too."""
    kernels.write(wheel(tmp_path, described(CPU), described(NEXT, torch="2.9")), out=tmp_path / "out")
    (one, other) = sorted((tmp_path / "out" / "build").iterdir())
    assert (one / "__init__.py").samefile(other / "__init__.py")
    (first,), (second,) = (list(each.rglob("table.bin")) for each in (one, other))
    assert first.samefile(second)


def test_merge_gives_the_wheel_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same name and the same bytes, from the folder by itself, even without its links."""
    built = described(CPU), described(CUDA, backend="cuda", cuda="12.8")
    fat = wheel(tmp_path, *built, extra={"my_pkg/zz.py": b"x=1\n"})
    assert cli.main(["kernels", str(fat), "-o", str(tmp_path / "out")]) == 0
    shutil.copytree(tmp_path / "out", tmp_path / "fetched")
    capsys.readouterr()
    assert cli.main(["merge", str(tmp_path / "fetched"), "-o", str(tmp_path / "again")]) == 0
    again = tmp_path / "again" / fat.name
    assert capsys.readouterr().out == f"{again}\n"
    assert again.read_bytes() == fat.read_bytes()


def test_a_wheel_with_an_older_loader_comes_back(tmp_path: Path) -> None:
    """The kernel has the loader of this version; the files of the one that built the wheel travel beside it."""
    fat = wheel(tmp_path)
    with zipfile.ZipFile(fat) as archive:
        data = archive.read("my_pkg/_torch_ext/help.py")
    older = data + b"# older\n"
    before, after = (hashlib.sha256(each).hexdigest().encode() for each in (data, older))
    change(fat, "_torch_ext/help.py", lambda _: older)
    change(fat, "_torch_ext/manifest.json", lambda text: text.replace(before, after))
    made = kernels.write(fat, out=tmp_path / "out")
    ((folder, _, _),) = made.variants
    assert b"# older" not in (made.folder / "build" / folder / "_torch_ext" / "help.py").read_bytes()
    assert kernels.wheel_of(made.folder, out=tmp_path / "again").read_bytes() == fat.read_bytes()


@pytest.mark.performs("is damaged: run `hatch-torch-ext kernels` again", "fetch the repository again, or run")
def test_a_repository_that_was_changed_gives_no_wheel(tmp_path: Path) -> None:
    """A file that is gone or was edited is named; after `kernels` ran again, the wheel is there."""
    fat = wheel(tmp_path)
    kernels.write(fat, out=tmp_path / "out")
    (tmp_path / "out" / "build" / "torch28-cxx11-cpu-x86_64-linux" / "__init__.py").write_text("x = 1\n")
    with pytest.raises(WheelError, match=r"^`my_pkg/__init__\.py` of my_pkg-1\.0.* is missing in .*, or was changed"):
        kernels.wheel_of(tmp_path / "out", out=tmp_path / "again")
    kernels.write(fat, out=tmp_path / "out")
    assert kernels.wheel_of(tmp_path / "out", out=tmp_path / "again").read_bytes() == fat.read_bytes()


@pytest.mark.parametrize("record", ["{", "[]", '{"members": 3}', '{"members": [[1]]}'])
def test_a_damaged_record(tmp_path: Path, record: str) -> None:
    """wheel.json is read as what others wrote: a sentence, not an exception of ours."""
    kernels.write(wheel(tmp_path), out=tmp_path / "out")
    (tmp_path / "out" / "torch-ext" / "wheel.json").write_text(record)
    with pytest.raises(WheelError, match=r"wheel\.json is damaged: run `hatch-torch-ext kernels` again"):
        kernels.wheel_of(tmp_path / "out", out=tmp_path / "again")


@pytest.mark.performs("has no file name of a wheel: run")
def test_a_record_leads_nowhere_else(tmp_path: Path) -> None:
    """A name that is not that of a wheel is refused before anything is written."""
    kernels.write(wheel(tmp_path), out=tmp_path / "out")
    path = tmp_path / "out" / "torch-ext" / "wheel.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "file": "../x.whl"}))
    with pytest.raises(WheelError, match="has no file name of a wheel"):
        kernels.wheel_of(tmp_path / "out", out=tmp_path / "again")


@pytest.mark.performs("kernels` made: name wheels")
def test_merging_other_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not a kernel repository, or one beside wheels, is named."""
    assert cli.main(["merge", str(tmp_path), "-o", str(tmp_path / "again")]) == 1
    assert "is not a kernel repository that `hatch-torch-ext kernels` made: name wheels" in capsys.readouterr().err
    assert cli.main(["merge", str(tmp_path), "x.whl", "-o", str(tmp_path / "again")]) == 1
    assert "a kernel repository is merged by itself" in capsys.readouterr().err


@pytest.mark.performs("`from . import` and the names", "{}: change {} line{}")
def test_absolute_imports_are_reported_with_their_lines(tmp_path: Path) -> None:
    """Each line, with what to write instead; with that written, a kernel is made."""
    bad = {
        "my_pkg/__init__.py": b"from my_pkg import _variants\nfrom my_pkg._ops import ops\nimport my_pkg.sub.deep\n",
        "my_pkg/sub/__init__.py": b"from my_pkg.sub import deep as d\n",
        "my_pkg/sub/deep.py": b"import importlib\nimportlib.import_module('my_pkg._ops')\nimport my_package\n",
    }
    assert refused(wheel(tmp_path, extra=bad), tmp_path / "out").splitlines()[1:] == [
        "      my_pkg/__init__.py:1: from my_pkg import _variants  ->  from . import _variants",
        "      my_pkg/__init__.py:2: from my_pkg._ops import ops  ->  from ._ops import ops",
        "      my_pkg/__init__.py:3: import my_pkg.sub.deep  ->  from .sub import deep",
        "      my_pkg/sub/__init__.py:1: from my_pkg.sub import deep as d  ->  from ..sub import deep as d",
        "      my_pkg/sub/deep.py:2: importlib.import_module('my_pkg._ops')  ->  "
        'import_module(".._ops", __package__)',
    ]
    good = {
        "my_pkg/__init__.py": b"from . import _variants\nfrom ._ops import ops\nfrom .sub import deep\n",
        "my_pkg/sub/__init__.py": b"from ..sub import deep as d\n",
        "my_pkg/sub/deep.py": b"import importlib\nimportlib.import_module('.._ops', __package__)\nimport my_package\n",
    }
    assert kernels.write(wheel(tmp_path / "2", extra=good), out=tmp_path / "out").variants


def test_operators_named_in_python_are_reported(tmp_path: Path) -> None:
    """Where the namespace changes, Python that spells it out would not find its operators."""
    bad = {"my_pkg/fake.py": b'import torch\ntorch.ops.my_pkg.f(1)\ntorch.library.register_fake("my_pkg::f", None)\n'}
    fat = wheel(tmp_path, extra=bad)
    assert refused(fat, tmp_path / "out").splitlines()[1:] == [
        "      my_pkg/fake.py:2: torch.ops.my_pkg.f(1)  ->  ops, with `from ._ops import ...`",
        '      my_pkg/fake.py:3: torch.library.register_fake("my_pkg::f", None)  ->  add_op_namespace_prefix("f"), '
        "with `from ._ops import ...`",
    ]
    assert kernels.write(fat, out=tmp_path / "out", keep_namespace=True).variants


def test_a_package_without_a_place_for_the_name(tmp_path: Path) -> None:
    """_ops.py is shown as it has to be."""
    text = refused(wheel(tmp_path, extra={"my_pkg/_ops.py": b"import torch\n"}), tmp_path / "out")
    assert "its Python has no place for the name of the operators: add `my_pkg/_ops.py` with\n" in text
    assert 'NAMESPACE = "my_pkg"' in text


def test_operators_of_one_name_in_every_build(tmp_path: Path) -> None:
    """TORCH_LIBRARY with a fixed name is reported with the line to change; --keep-namespace takes it as it is."""
    files = {f"{CPU}/libx.so": b"ELF without a field"}
    variant = wheels.variant(CPU, files)
    fat = wheel(tmp_path, (variant, files))
    text = refused(fat, tmp_path / "out")
    assert "libx.so registers its operators as `NAME` in every build" in text
    assert "TORCH_LIBRARY(NAME, m)  ->  TORCH_LIBRARY_EXPAND(NAME, m)" in text
    made = kernels.write(fat, out=tmp_path / "out", keep_namespace=True)
    ((name, _, _),) = made.variants
    assert (tmp_path / "out" / "build" / name / "_torch_ext" / CPU / "libx.so").read_bytes() == files[f"{CPU}/libx.so"]


@pytest.mark.performs("give operators tensors and numbers instead")
def test_classes(tmp_path: Path) -> None:
    """A class under two names ends the process in which torch gets the second: one build of it is in a process."""
    variant, files = described(CPU)
    classes = replace(variant, files=tuple(replace(each, classes=each.registers) for each in variant.files))
    fat = wheel(tmp_path, (classes, files))
    assert "libx.so registers a class (torch::class_), and torch ends a process" in refused(fat, tmp_path / "out")
    assert kernels.write(fat, out=tmp_path / "out", keep_namespace=True).variants
    assert kernels.write(wheel(tmp_path / "good"), out=tmp_path / "good" / "out").variants


@pytest.mark.performs("register them all under one name")
def test_two_namespaces(tmp_path: Path) -> None:
    """A kernel has one name for its operators; with one, or with the wheel's names kept, it is made."""
    files = {f"{CPU}/libx.so": library("my_pkg"), f"{CPU}/liby.so": library("my_more")}
    fat = wheel(tmp_path, (wheels.variant(CPU, files), files))
    assert "its operators are in 2 namespaces (my_more, my_pkg), and a kernel has one" in refused(fat, tmp_path / "out")
    assert kernels.write(fat, out=tmp_path / "out", keep_namespace=True).variants
    files[f"{CPU}/liby.so"] = library("my_pkg", b"y")
    again = wheel(tmp_path / "2", (wheels.variant(CPU, files), files))
    assert kernels.write(again, out=tmp_path / "2" / "out").variants


@pytest.mark.performs("on the limited API of 3.{} (`Python_add_library")
def test_modules_for_one_python(tmp_path: Path) -> None:
    """Modules on the full API, or on the limited API of a Python newer than 3.9, are named with what to do."""
    for python in ("cp311", "cp313t", "abi3-cp310"):
        label = f"{CPU}_{python.partition('-')[0]}"
        fat = wheel(tmp_path / python, described(label, python=python))
        text = refused(fat, tmp_path / python / "out")
        assert f"{label} is for {python} only, and a kernel serves every Python from 3.9: build its modules" in text
        assert "USE_SABI 3.9 WITH_SOABI" in text
    fat = wheel(tmp_path / "good", described(f"{CPU}_abi3", python="abi3-cp38"))
    assert kernels.write(fat, out=tmp_path / "out").variants


@pytest.mark.performs(
    "are for glibc: leave its entry out",
    "build it for a release, or leave its entry out",
    "would both be `{}`: leave one of the entries out",
    "add `license` to [project], or give `--license`",
)
def test_what_is_not_for_the_hub(tmp_path: Path) -> None:
    """musl, a pre-release of torch, two variants of one folder, two packages, no licence: all at once."""
    built = [
        described(CPU, build=replace(wheels.RECORD, torch_version="2.8.0a0+git1")),
        described(f"{CPU}_abi3", python="abi3-cp39"),
        described(NEXT, torch="2.9", libc="musl", libc_floor="1.2", policy="musllinux_1_2_x86_64"),
    ]
    text = refused(wheels.ours(tmp_path, built, extra={**GOOD, "tests/test_a.py": b""}), tmp_path / "out")
    assert text.splitlines()[0].endswith("for 5 reasons:")
    good = wheel(tmp_path / "good", described(CPU), described(NEXT, torch="2.9"), licence="")
    assert kernels.write(good, out=tmp_path / "good" / "out", licence="MIT").variants
    for words in (
        "`tests/test_a.py` is outside of the package `my_pkg`, and a kernel is one package",
        f"{CPU} was built for the pre-release 2.8.0a0+git1, and a kernel is for every torch 2.8",
        f"{CPU} and {CPU}_abi3 would both be `torch28-cxx11-cpu-x86_64-linux`: leave one of the entries out",
        "torch2.9_cpu_cxx11_x86_64 is for musl, and kernels for Linux are for glibc",
        "its metadata name no licence, which a kernel's must",
    ):
        assert words in text


@pytest.mark.performs("give `--name` another", "give one with `--name`")
def test_names_of_kernels(tmp_path: Path) -> None:
    """The Hub's names are lower-case words with dashes; `--name` gives another, and `--kernel-version` a version."""
    fat = wheel(tmp_path)
    assert "`My_Kernel` is not a kernel's name" in refused(fat, tmp_path / "out", name="My_Kernel")
    assert "give `--name` another" in refused(fat, tmp_path / "out", name="x")
    made = kernels.write(fat, out=tmp_path / "out", name="other-name", version=7)
    assert (made.name, made.version) == ("other-name", 7)
    assert all(identifier.startswith("_other_name_cpu_") for _, identifier, _ in made.variants)


@pytest.mark.performs("is a folder: name the wheel, as")
def test_wheels_that_are_not_finished(tmp_path: Path) -> None:
    """A part, a wheel of another project, a folder, and sources for a build at first use are refused by their names."""
    origin = {"sources": "5", "configuration": "c", "builder": "b", "machines": []}
    partial = {"entries": ["matrix.2.8", "matrix.2.9"], "built": ["matrix.2.8"], **origin}
    part = wheels.ours(tmp_path, [described(CPU)], partial=partial)
    with pytest.raises(MergeError, match=r"is a partial wheel: it lacks matrix\.2\.9\. Join it"):
        kernels.write(part, out=tmp_path / "out")
    with zipfile.ZipFile(wheel(tmp_path / "whole")) as archive:
        pruned = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(pruned["my_pkg/_torch_ext/manifest.json"])
    pruned["my_pkg/_torch_ext/manifest.json"] = json.dumps({**head, "pruned": [NEXT]}).encode()
    members = {name: data for name, data in pruned.items() if ".dist-info/" not in name}
    again = wheels.write(tmp_path, members, name=f"my_pkg-2.0-{wheels.TAG}.whl")
    with pytest.raises(MergeError, match=f"from which `prune` removed {NEXT}: name the wheel that was published"):
        kernels.write(again, out=tmp_path / "out")
    other = wheels.write(tmp_path, {"other/__init__.py": b""}, name=f"other-1.0-{wheels.TAG}.whl")
    with pytest.raises(WheelError, match=r"holds no _torch_ext/manifest\.json"):
        kernels.write(other, out=tmp_path / "out")
    with pytest.raises(WheelError, match="is a folder: name the wheel"):
        kernels.write(tmp_path, out=tmp_path / "out")


@pytest.mark.performs("it holds sources for a build at first use", "it holds no compiled variant: build it")
def test_sources_for_a_build_at_first_use(tmp_path: Path) -> None:
    """A kernel is never built by its users: sources are refused, and so is a wheel that has nothing else."""
    part = parts.read(wheel(tmp_path), folder=tmp_path)
    fallback = Fallback(version="1.0", source=".", options={}, files=())
    sources = replace(part, sources=Sources(fallback=fallback, root=tmp_path), variants=())
    first, second = kernelrules._about_the_wheel(sources, "my-pkg", name_given=False)
    assert first.startswith("it holds sources for a build at first use")
    assert second.startswith("it holds no compiled variant")
    assert not list(kernelrules._about_the_wheel(part, "my-pkg", name_given=False))


def test_folders_of_others_stay(tmp_path: Path) -> None:
    """A folder with other files is refused; one that `kernels` made is replaced."""
    fat = wheel(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(MergeError, match="holds other files: name an empty folder"):
        kernels.write(fat, out=out)
    (out / "mine.txt").unlink()
    kernels.write(fat, out=out)
    (out / "build" / "old").mkdir()
    kernels.write(fat, out=out)
    assert [each.name for each in (out / "build").iterdir()] == ["torch28-cxx11-cpu-x86_64-linux"]
    with pytest.raises(MergeError, match="is not a folder"):
        kernels.write(fat, out=fat)


def test_a_later_run_replaces_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    """The author's page, git's folder and further files stay; a page that nobody changed is that of the new wheel."""
    out = tmp_path / "out"
    kernels.write(wheel(tmp_path), out=out, version=1)
    mine = [out / ".git" / "HEAD", out / "tests" / "test_a.py", out / "torch-ext" / "notes.txt"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    again = wheel(tmp_path / "again", described(NEXT, torch="2.9"))
    kernels.write(again, out=out, version=2)
    assert "version=2" in (out / "README.md").read_text()
    (out / "README.md").write_text("mine")
    kernels.write(again, out=out, version=3)
    assert {path.read_text() for path in [*mine, out / "README.md"]} == {"mine"}
    assert [each.name for each in (out / "build").iterdir()] == ["torch29-cxx11-cpu-x86_64-linux"]
    assert sorted(each.name for each in out.iterdir()) == [".git", "README.md", "build", "tests", "torch-ext"]
    assert kernels.wheel_of(out, out=tmp_path / "back").read_bytes() == again.read_bytes()


@pytest.mark.parametrize("part", ["build", "README.md", "torch-ext/members", "torch-ext/wheel.json"])
def test_a_run_that_fails_half_way_changes_nothing(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it fails, the repository of the earlier run is there, with no file more; a new folder is not there."""
    out = tmp_path / "out"
    kernels.write(wheel(tmp_path), out=out, version=1)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    again = wheel(tmp_path / "again", described(NEXT, torch="2.9"))
    replace_file = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if self.parent.name != "before" and kernels.DRAFT in str(self) and target == out / part:
            raise OSError(28, "No space left on device")
        return replace_file(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="No space left"):
            kernels.write(again, out=out, version=2)
        part = part.partition("/")[0]  # of a new folder, it is moved as a whole
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
        out.rename(tmp_path / "earlier")
        with pytest.raises(OSError, match="No space left"):
            kernels.write(again, out=out)
        assert not out.exists()
    kernels.write(again, out=out)


def test_what_users_should_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Requirements that `kernels` does not install, a policy that is too new, and no variant for CUDA are noted."""
    built = described(CPU, libc_floor="2.34", policy="manylinux_2_34_x86_64")
    fat = wheel(tmp_path, built, requires=("torch<2.9,>=2.8", "numpy>=1", "einops", "pytest; extra == 'test'"))
    assert cli.main(["kernels", str(fat), "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert re.findall("note: (.{30})", said.err) == [
        "what users save with the wheel",
        "the wheel requires numpy>=1, a",
        "a variant needs manylinux_2_34",
        "all variants are for the CPU: ",
    ]
    read = Metadata.read_from_file(next((tmp_path / "out" / "build").iterdir()) / "metadata.json")
    assert read.python_depends == ["einops"]
    assert cli.main(["kernels", str(fat), "-o", str(tmp_path / "kept"), "--keep-namespace"]) == 0
    assert "what users save" not in capsys.readouterr().err


@pytest.mark.performs("name another file with `--header`")
def test_the_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--header` writes registration.h once, and `kernels` without a wheel says what it takes."""
    target = tmp_path / "registration.h"
    assert cli.main(["kernels", "--header", str(target)]) == 0
    assert "define TORCH_LIBRARY_EXPAND(NAME, MODULE)" in target.read_text()
    assert cli.main(["kernels", "--header", str(target)]) == 1
    assert cli.main(["kernels", "--header", str(target.with_name("other.h"))]) == 0
    assert cli.main(["kernels"]) == 1
    assert "hatch-torch-ext kernels WHEEL -o DIR" in capsys.readouterr().err


def test_names_in_libraries() -> None:
    """Only whole fields are names; a longer or shorter name fits, and all other bytes stay."""
    data = library("a") + b"TORCH_EXT_NAMESPACE=short\0" + library("bb")
    assert kernels.fields(data) == {"a", "bb"}
    long = "x" * 100
    changed = kernels.renamed(data, {"a": long})
    assert kernels.fields(changed) == {long, "bb"}
    assert kernels.renamed(changed, {long: "a"}) == data
    assert base64.b64encode(changed)[:8] == base64.b64encode(data)[:8]
