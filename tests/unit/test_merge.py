"""Variants become one layout: equal bytes once, conflicts named, tag and requirement over all of them."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import elves
from hatch_torch_ext import merge
from hatch_torch_ext.base.errors import MergeError
from hatch_torch_ext.config import kinds
from hatch_torch_ext.facts.variant import HELP, BuiltVariant, VariantFile, from_json
from hatch_torch_ext.merge import sbom
from unit.test_variant import VARIANT

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.values import Layout

CPU = "torch2.8_cpu_cxx11_x86_64"


def built(
    tmp_path: Path,
    label: str,
    files: dict[str, str],
    *,
    entry: str | None = None,
    package_files: dict[str, str] | None = None,
    versions: tuple[str, ...] = (),
    **changes: object,
) -> BuiltVariant:
    """Write the files of a variant, named by path below ``_torch_ext``, and return it."""
    entry = entry or f"matrix.{label}"
    root = tmp_path / entry / "repaired"
    described = []
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        described.append(VariantFile(path=path, kind="library", sha256=sha256, size=len(text), versions=versions))
    installed = []
    for target, text in (package_files or {}).items():
        source = tmp_path / entry / "install" / target
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text, encoding="utf-8")
        installed.append((target, source))
    variant = replace(
        VARIANT,
        label=label,
        files=tuple(described),
        build=replace(VARIANT.build, entry=entry),
        backend="cpu",
        cuda=None,
    )
    variant = replace(variant, **changes)  # type: ignore[arg-type]
    return BuiltVariant(variant=variant, root=root, package_files=tuple(installed))


def targets(layout: Layout) -> list[str]:
    """Return where the files of a layout go, but for those of the loader."""
    return [file.target for file in layout.files if file.target != HELP]


def test_files_of_one_variant_keep_their_place(tmp_path: Path) -> None:
    """What is in only one variant is in the folder of its label."""
    layout = merge.merge([built(tmp_path, "a", {"a/x.so": "1"})], package="pkg", distribution="d")
    assert targets(layout) == ["_torch_ext/a/x.so"]


def test_equal_bytes_are_stored_once(tmp_path: Path) -> None:
    """A file that two variants share moves to shared/, named by its hash; a sibling that is there already stays."""
    first = built(tmp_path, "a", {"a/x.so": "same", "shared/0123456789ab/k.so": "kernel", "a/y.so": "1"})
    second = built(tmp_path, "b", {"b/x.so": "same", "shared/0123456789ab/k.so": "kernel", "b/y.so": "2"}, torch="2.9")
    layout = merge.merge([first, second], package="pkg", distribution="d")
    digest = hashlib.sha256(b"same").hexdigest()[:12]
    assert targets(layout) == [
        "_torch_ext/a/y.so",
        "_torch_ext/b/y.so",
        "_torch_ext/shared/0123456789ab/k.so",
        f"_torch_ext/shared/{digest}/x.so",
    ]
    assert dict(layout.variants[1].places)["b/x.so"] == f"_torch_ext/shared/{digest}/x.so"


def test_modules_of_two_pythons_are_two_files_though_their_bytes_agree(tmp_path: Path) -> None:
    """What is named for one Python is not served to the other; the library beside them is stored once."""
    variants = []
    for python in ("cp311", "cp312"):
        label = f"torch2.8_cpu_cxx11_x86_64_{python}"
        one = built(tmp_path, label, {f"{label}/_D.{python}.so": "module", f"{label}/libx.so": "x"}, python=python)
        module, library = one.variant.files
        files = (replace(module, kind="module", module="_D"), library)
        variants.append(replace(one, variant=replace(one.variant, files=files)))
    layout = merge.merge(variants, package="pkg", distribution="d")
    (shared,) = [file.target for file in layout.files if "/shared/" in file.target]
    assert shared.endswith("/libx.so")
    assert sorted(target.rpartition("/")[2] for target in targets(layout)) == ["_D.cp311.so", "_D.cp312.so", "libx.so"]


def test_two_entries_with_the_same_result_are_one_variant(tmp_path: Path) -> None:
    """A library compiled under two Pythons is one variant when its bytes are the same."""
    variants = [built(tmp_path, CPU, {f"{CPU}/x.so": "same"}, entry=f"matrix.py{minor}") for minor in (12, 11)]
    layout = merge.merge(variants, package="pkg", distribution="d")
    assert [placed.variant.build.entry for placed in layout.variants] == ["matrix.py11"]


def test_one_label_with_different_bytes_is_refused(tmp_path: Path) -> None:
    """Two entries that a user's machine could not tell apart must be the same; both and the file are named."""
    variants = [built(tmp_path, CPU, {f"{CPU}/x.so": text}, entry=f"matrix.{text}") for text in "ab"]
    with pytest.raises(MergeError) as caught:
        merge.merge(variants, package="pkg", distribution="d")
    assert str(caught.value) == (
        f"matrix.a and matrix.b both give the variant {CPU}, but `{CPU}/x.so` differs between them, so the loader "
        "could not choose. Leave one out with `skip`, or make the build independent of what tells the entries apart."
    )


def test_package_files_land_once(tmp_path: Path) -> None:
    """Headers that every entry installs are in the package once."""
    variants = [built(tmp_path, name, {f"{name}/x.so": name}, package_files={"include/x.h": "h"}) for name in "ab"]
    layout = merge.merge(variants, package="pkg", distribution="d")
    assert targets(layout) == ["_torch_ext/a/x.so", "_torch_ext/b/x.so", "include/x.h"]


def test_descriptions_that_differ_are_kept_for_each_variant(tmp_path: Path) -> None:
    """A CMake package that names its torch is in each variant; one that is the same everywhere is there once."""
    variants = [
        built(
            tmp_path,
            name,
            {f"{name}/x.so": name},
            package_files={"share/cmake/x/xConfig.cmake": name, "share/cmake/x/xTargets.cmake": "same"},
        )
        for name in "ab"
    ]
    layout = merge.merge(variants, package="pkg", distribution="d")
    assert targets(layout) == [
        "_torch_ext/a/share/cmake/x/xConfig.cmake",
        "_torch_ext/a/x.so",
        "_torch_ext/b/share/cmake/x/xConfig.cmake",
        "_torch_ext/b/x.so",
        "share/cmake/x/xTargets.cmake",
    ]


def test_python_that_differs_belongs_to_the_variants(tmp_path: Path) -> None:
    """What a build wrote down of itself is a module of each variant; what is the same in two of them is there once."""
    variants = [
        built(
            tmp_path,
            name,
            {f"{name}/x.so": name},
            package_files={"sub/_built.py": text, "same.py": "same"},
        )
        for name, text in [("a", "2.8"), ("b", "2.9"), ("c", "2.9")]
    ]
    layout = merge.merge(variants, package="pkg", distribution="d")
    shared = f"_torch_ext/shared/{hashlib.sha256(b'2.9').hexdigest()[:12]}/_built.py"
    own = ["_torch_ext/a/sub/_built.py", "_torch_ext/a/x.so", "_torch_ext/b/x.so", "_torch_ext/c/x.so", shared]
    assert targets(layout) == [*own, "same.py"]
    assert {file.target: file.source.read_text(encoding="utf-8") for file in layout.files}[shared] == "2.9"
    python = [file for placed in layout.variants for file in placed.variant.files if file.kind == "python"]
    assert [(file.path, file.module) for file in python] == [(f"{name}/sub/_built.py", "sub._built") for name in "abc"]


def test_package_files_that_differ_are_refused(tmp_path: Path) -> None:
    """One place cannot hold two contents: the file and both entries are named."""
    variants = [built(tmp_path, name, {f"{name}/x.so": name}, package_files={"include/x.h": name}) for name in "ab"]
    with pytest.raises(MergeError) as caught:
        merge.merge(variants, package="pkg", distribution="d")
    assert str(caught.value) == (
        "CMake installs `include/x.h` in matrix.a and in matrix.b, but not the same: the package has one place for "
        "it. Let CMake write the same everywhere, or give each variant its own, beside its libraries: "
        '`variant-data = ["include/x.h"]`.'
    )


@pytest.mark.parametrize(
    ("pythons", "tag"),
    [
        ((None,), "py3-none"),
        (("cp311",), "cp311-cp311"),
        (("cp313t",), "cp313-cp313t"),
        (("cp311", "cp312"), "py3-none"),
        (("cp311", None), "py3-none"),
        (("abi3-cp39", "abi3-cp310"), "cp39-abi3"),
    ],
)
def test_python_tag(tmp_path: Path, pythons: tuple[str | None, ...], tag: str) -> None:
    """A wheel is for one Python only where everything in it is; it is never for any platform."""
    variants = [built(tmp_path, f"v{i}", {f"v{i}/x.so": str(i)}, python=python) for i, python in enumerate(pythons)]
    layout = merge.merge(variants, package="pkg", distribution="d")
    assert layout.tag == f"{tag}-manylinux_2_5_x86_64"


def test_platform_tag_is_the_strictest(tmp_path: Path) -> None:
    """One variant with a newer symbol raises the tag of the whole wheel."""
    variants = [
        built(tmp_path, "a", {"a/x.so": "1"}, versions=("GLIBC_2.17",)),
        built(tmp_path, "b", {"b/x.so": "2"}, versions=("GLIBC_2.28",), torch="2.9"),
    ]
    assert merge.merge(variants, package="pkg", distribution="d").tag == "py3-none-manylinux_2_28_x86_64"


def test_a_higher_policy_that_is_requested_is_used(tmp_path: Path) -> None:
    """`manylinux` may promise less than what the symbols meet."""
    variant = built(tmp_path, "a", {"a/x.so": "1"}, versions=("GLIBC_2.17",))
    layout = merge.merge([variant], package="pkg", manylinux="manylinux_2_34", distribution="d")
    assert layout.tag == "py3-none-manylinux_2_34_x86_64"


def test_a_policy_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """The message names the option, the machine and a policy that would do, as the option takes it."""
    variant = built(tmp_path, "a", {"a/x.so": "1"})
    with pytest.raises(MergeError) as caught:
        merge.merge([variant], package="pkg", manylinux="manylinux_9_99", distribution="d")
    assert str(caught.value) == (
        '`manylinux = "manylinux_9_99"` is not a policy for glibc on x86_64; take the option `manylinux` out or set '
        "it to `manylinux_2_5`"
    )
    named = kinds.policy(str(caught.value).split("`")[-2])
    for instead in (None, named):
        layout = merge.merge([variant], package="pkg", manylinux=instead, distribution="d")
        assert layout.tag == "py3-none-manylinux_2_5_x86_64"


@pytest.mark.performs("take the option `manylinux` out")
@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        ("GLIBC_2.34", "take the option `manylinux` out or set it to `manylinux_2_34`, or build in"),
        ("GLIBC_2.99", "take the option `manylinux` out, or build in"),
    ],
)
def test_a_policy_that_is_not_met(tmp_path: Path, version: str, remedy: str) -> None:
    """What the message says to set is taken by the option, and met; where no policy is, none is named."""
    variant = built(tmp_path, "a", {}, versions=())
    place = variant.root / "a" / "x.so"
    place.parent.mkdir(parents=True)
    place.write_bytes(elves.shared_object(needed=("libc.so.6",)))
    file = VariantFile(path="a/x.so", kind="library", sha256="0", size=1, versions=(version,))
    variant = replace(variant, variant=replace(variant.variant, files=(file,)))
    with pytest.raises(MergeError, match=f"needs {re.escape(version)}, which that policy does not promise") as caught:
        merge.merge([variant], package="pkg", manylinux="manylinux_2_17", distribution="d")
    assert f"; {remedy} the image of manylinux_2_17_x86_64" in str(caught.value)
    for named in (None, *re.findall("set it to `(.*?)`", str(caught.value))):
        asked = named and kinds.policy(named)
        tag = merge.merge([variant], package="pkg", manylinux=asked, distribution="d").tag
        assert tag == f"py3-none-{asked or 'linux' if version == 'GLIBC_2.99' else 'manylinux_2_34'}_x86_64"


def test_requirement_covers_the_matrix_and_nothing_else(tmp_path: Path) -> None:
    """`Requires-Dist: torch` admits the releases that variants serve."""
    variants = [built(tmp_path, f"v{minor}", {f"v{minor}/x.so": minor}, torch=f"2.{minor}") for minor in ("8", "9")]
    assert merge.merge(variants, package="pkg", distribution="d").requires == "torch>=2.8,<2.10"


@pytest.mark.performs("leave at least one entry")
def test_no_variant_is_refused(tmp_path: Path) -> None:
    """A wheel without a variant is not a wheel of ours; with that of one entry it is."""
    with pytest.raises(MergeError) as caught:
        merge.merge([], package="pkg", distribution="d")
    assert str(caught.value) == "no variant to put into the wheel; let `only` and `skip` leave at least one entry"
    assert merge.merge([built(tmp_path, "a", {"a/x.so": "1"})], package="pkg", distribution="d").variants


@pytest.mark.performs("install this file elsewhere")
def test_a_place_that_belongs_to_the_variants(tmp_path: Path) -> None:
    """CMake cannot install over a variant; elsewhere it can."""
    for place, refused in (("_torch_ext/a/x.so", True), ("lib/x.so", False)):
        variant = built(tmp_path / place, "a", {"a/x.so": "1"}, package_files={place: "2"})
        if refused:
            with pytest.raises(MergeError) as caught:
                merge.merge([variant], package="pkg", distribution="d")
            assert str(caught.value) == (
                f"`{place}` is reserved for the variants; let CMake install this file elsewhere"
            )
        else:
            assert place in targets(merge.merge([variant], package="pkg", distribution="d"))


def test_any_order_gives_the_same_layout_manifest_and_sbom(tmp_path: Path) -> None:
    """The order in which entries were built is not in the wheel."""
    variants = [built(tmp_path, name, {f"{name}/x.so": "same"}, package_files={"h.h": "h"}) for name in "abc"]
    layouts = [merge.merge(order, package="pkg", distribution="d") for order in itertools.permutations(variants)]
    assert len({layout.manifest for layout in layouts}) == 1
    assert len({tuple(targets(layout)) for layout in layouts}) == 1
    assert len({sbom.render(layout, distribution="d") for layout in layouts}) == 1


def test_the_manifest_gives_the_variants_back(tmp_path: Path) -> None:
    """What is in manifest.json is read back to the same variants, with the place of each file."""
    layout = merge.merge([built(tmp_path, "a", {"a/x.so": "1"})], package="pkg", distribution="d")
    data = json.loads(layout.manifest)
    item = data["variants"][0]
    assert item.pop("places") == {"a/x.so": "_torch_ext/a/x.so"}
    assert from_json(item) == layout.variants[0].variant
    assert (data["package"], data["distribution"], data["requires"]) == ("pkg", "d", "torch>=2.8,<2.9")


def test_wheels_of_one_version_require_the_same_in_their_manifests_too(tmp_path: Path) -> None:
    """The manifest has the line of METADATA, and is otherwise as it was written."""
    layouts = [
        merge.merge([built(tmp_path, name, {f"{name}/x.so": name}, torch=torch)], package="pkg", distribution="d")
        for name, torch in (("a", "2.8"), ("b", "2.10"))
    ]
    found = merge.alike(layouts)
    for before, after in zip(layouts, found, strict=True):
        assert after.requires == "torch>=2.8,<2.11,!=2.9.*"
        assert after.manifest == before.manifest.replace(f'"{before.requires}"', f'"{after.requires}"')
    assert merge.alike(found) == found
    assert merge.alike(layouts[:1]) == (layouts[0],)


def test_largest_files(tmp_path: Path) -> None:
    """The largest parts come first, as many as are requested."""
    layout = merge.merge(
        [built(tmp_path, "a", {"a/s.so": "1", "a/m.so": "22", "a/l.so": "333"})],
        package="pkg",
        distribution="d",
    )
    _, *largest = merge.largest(layout, 3)  # the first is the loader's
    assert largest == [("_torch_ext/a/l.so", 3), ("_torch_ext/a/m.so", 2)]


def test_the_sbom_names_what_went_in(tmp_path: Path) -> None:
    """torch, CUDA, the compilers and every graft are components, and each variant says which it used."""
    variant = built(tmp_path, "a", {"shared/0123456789ab/libfoo-12345678.so.2": "x"}, cuda="12.8", backend="cuda")
    file = replace(variant.variant.files[0], kind="graft", origin="pkg:deb/debian/libfoo2@2.1-1?arch=amd64")
    variant = replace(variant, variant=replace(variant.variant, files=(file,)))
    layout = merge.merge([variant], package="pkg", distribution="My.Dist")
    document = json.loads(sbom.render(layout, distribution="My.Dist"))
    names = {component["name"]: component.get("version") for component in document["components"]}
    assert names == {
        "torch": "2.8.0+cu128",
        "CUDA": "12.8",
        "GNU": "12.2.0",
        "CMake": "3.31.0",
        "libfoo2": "2.1-1",
        "a": None,
    }
    assert document["bomFormat"] == "CycloneDX"
    depends = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    assert depends["pkg:pypi/my-dist"] == ["variant:a"]
    assert len(depends["variant:a"]) == 5
