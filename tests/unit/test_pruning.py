"""``prune`` trusts neither a package's manifest nor its RECORD: files that are not the package's stay."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

import wheels
from hatch_torch_ext import __version__, cli
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts.variant import MANIFEST
from hatch_torch_ext.user import pruning

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEPT, GONE = "torch2.8_cpu_cxx11", "torch2.9_cpu_cxx11"
FILES = {label: {f"{label}/libx.so": label.encode()} for label in (KEPT, GONE)}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder of packages with one of ours, and a file of somebody else's beside it."""
    built = [(wheels.variant(label, FILES[label]), FILES[label]) for label in FILES]
    folder = tmp_path / "site"
    folder.mkdir()
    with zipfile.ZipFile(wheels.ours(tmp_path, built)) as archive:
        archive.extractall(folder)
    (tmp_path / "precious.txt").write_text("x")
    return folder


def manifest(site: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest of the package."""
    file = site / "my_pkg" / MANIFEST
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def place(target: str) -> Callable[[dict[str, Any]], None]:
    """Return a change that lets the file of the variant that goes lie at ``target``."""

    def change(data: dict[str, Any]) -> None:
        data["variants"][1]["places"] = {f"{GONE}/libx.so": target}

    return change


def prune(site: Path) -> None:
    """Prune the package."""
    (installed,) = pruning.packages(site)
    pruning.apply(pruning.prepare(installed, [KEPT]))


def test_what_is_its_own_goes(site: Path) -> None:
    """An honest package is pruned, by a second run too."""
    prune(site)
    assert not (site / "my_pkg/_torch_ext" / GONE).exists()
    assert (site / "my_pkg/_torch_ext" / KEPT / "libx.so").is_file()
    prune(site)


@pytest.mark.parametrize("target", ["../../precious.txt", "{outside}", "a/../../../precious.txt", "..", ""])
def test_places_that_leave_the_package(site: Path, tmp_path: Path, target: str) -> None:
    """A manifest that climbs is refused whole, with the way to a good one."""
    manifest(site, place(target.format(outside=tmp_path / "precious.txt")))
    with pytest.raises(ConfigurationError, match=r"`places` must map paths to paths\): pip install --force-reinstall"):
        prune(site)
    assert (tmp_path / "precious.txt").exists()
    assert (site / "my_pkg/_torch_ext" / GONE / "libx.so").exists()


def test_files_of_other_packages(site: Path) -> None:
    """What the package's own RECORD does not list stays, be it in the same folder."""
    (site / "my_pkg" / "plugin").mkdir()
    (site / "my_pkg" / "plugin" / "theirs.py").touch()
    manifest(site, place("plugin/theirs.py"))
    with pytest.raises(ConfigurationError, match=r"lists .*theirs.py, which is not a file of this package"):
        prune(site)
    assert (site / "my_pkg" / "plugin" / "theirs.py").exists()


@pytest.mark.parametrize("link", [f"my_pkg/_torch_ext/{GONE}", "my_pkg/_torch_ext", "my_pkg"])
def test_links_that_lead_out(site: Path, tmp_path: Path, link: str) -> None:
    """Where a folder of the package is a link to elsewhere, nothing there is removed."""
    shutil.move(site / link, tmp_path / "elsewhere")
    (site / link).symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    found = pruning.packages(site)
    if found:
        with pytest.raises(ConfigurationError, match="which is not a file of this package"):
            pruning.prepare(found[0], [KEPT])
    assert next((tmp_path / "elsewhere").rglob("libx.so")).exists()
    assert len(found) == (link.endswith(GONE))


def test_only_files_that_are_links_go(site: Path, tmp_path: Path) -> None:
    """An installer may have linked files into its cache: the link is removed, and the cache is not changed."""
    for file in ("libx.so", "../manifest.json"):
        installed = site / "my_pkg/_torch_ext" / GONE / file
        cached = tmp_path / installed.name
        shutil.move(installed, cached)
        installed.symlink_to(cached)
    before = (tmp_path / "manifest.json").read_bytes()
    prune(site)
    assert not (site / "my_pkg/_torch_ext" / GONE).exists()
    assert (tmp_path / "libx.so").read_bytes() == GONE.encode()
    assert (tmp_path / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("row", ["../other/my_pkg/_torch_ext/manifest.json", "{outside}"])
def test_a_record_that_leaves_its_folder(site: Path, tmp_path: Path, row: str) -> None:
    """A manifest outside of site-packages is not read."""
    shutil.copytree(site / "my_pkg", tmp_path / "other" / "my_pkg")
    record = site / "my_pkg-1.0.dist-info" / "RECORD"
    outside = tmp_path / "other/my_pkg/_torch_ext/manifest.json"
    record.write_text(row.format(outside=outside) + ",,\n")
    assert pruning.packages(site) == ()


def _deep(file: Path) -> None:
    file.write_text('{"variants":' + "[" * 200_000)


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _large(file: Path) -> None:
    os.truncate(file, 5 << 20)


def _surrogate(file: Path) -> None:
    file.write_text(file.read_text().replace('"schema": 1', '"schema": "\\ud800"'))


def _labels(file: Path) -> None:
    file.write_text(file.read_text().replace('"schema": 1', '"pruned": [[]]'))


@pytest.mark.parametrize("damage", [_deep, _pipe, _large, _surrogate, _labels])
def test_manifests_that_cannot_be_read(site: Path, damage: Callable[[Path], None]) -> None:
    """One sentence says which file it is, and what to type."""
    damage(site / "my_pkg" / MANIFEST)
    with pytest.raises(
        ConfigurationError, match=r"manifest\.json .*: pip install --force-reinstall --no-deps my.pkg=="
    ):
        prune(site)


def test_a_manifest_of_a_later_format(site: Path) -> None:
    """To install the package again would not help: it is hatch-torch-ext that is too old."""
    manifest(site, lambda data: data.update(schema=2))
    with pytest.raises(ConfigurationError) as caught:
        prune(site)
    where = f"my_pkg: {site / 'my_pkg' / MANIFEST} is of format 2 (`schema`)"
    known = f"hatch-torch-ext {__version__} reads formats up to 1"
    assert str(caught.value) == f"{where}, and {known}: upgrade hatch-torch-ext. Nothing is removed."


def test_another_package_s_name(site: Path) -> None:
    """A package has the name of its installation: its manifest cannot claim another's."""
    manifest(site, lambda data: data.update(distribution="numpy"))
    (installed,) = pruning.packages(site)
    assert installed.distribution == "my_pkg"


@pytest.mark.performs("Give labels that are there")
def test_a_label_to_keep_that_is_not_there(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside one that is right, too, it is refused before anything is removed; with a label of the message it works."""
    command = ["prune", "my-pkg", "--target", str(site), "--keep"]
    for more in ([], ["--keep", GONE]):
        assert cli.main([*command, "torch2.8_cpu", *more]) == 1
        told = capsys.readouterr().err
        assert "--keep: torch2.8_cpu: no variant has that label. Nothing is removed. Give labels that are there" in told
        assert (site / "my_pkg/_torch_ext" / GONE / "libx.so").is_file()
        assert (site / "my_pkg/_torch_ext" / KEPT / "libx.so").is_file()
    _, _, there = told.partition("my-pkg: ")
    assert there.rstrip(").\n").split(", ") == [KEPT, GONE]
    assert cli.main([*command, KEPT]) == 0
    assert not (site / "my_pkg/_torch_ext" / GONE).exists()
    assert cli.main([*command, KEPT]) == 0
    assert cli.main([*command, GONE]) == 1
    assert "an earlier prune removed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        (
            {"vcs_info": {"vcs": "git", "commit_id": "abc123", "requested_revision": "main"}, "subdirectory": "a b/c"},
            "git+https://x.example/y.git@abc123#subdirectory=a%20b/c",
        ),
        ({"vcs_info": {"vcs": "git", "requested_revision": "v1"}}, "git+https://x.example/y.git@v1"),
        ({"archive_info": {}, "subdirectory": "c"}, "https://x.example/y.git#subdirectory=c"),
        ({"archive_info": {}}, "https://x.example/y.git"),
    ],
)
def test_the_way_back_has_commit_and_subdirectory(site: Path, origin: dict[str, Any], address: str) -> None:
    """What came from a repository comes back from the same commit and folder of it."""
    described = {"url": "https://x.example/y.git", **origin}
    (site / "my_pkg-1.0.dist-info" / "direct_url.json").write_text(json.dumps(described), encoding="utf-8")
    (installed,) = pruning.packages(site)
    requirement = Requirement(shlex.split(installed.again)[-1])
    assert (requirement.name, requirement.url) == ("my-pkg", address)


def test_commands_to_paste_are_quoted(site: Path) -> None:
    """A folder's name cannot put a command into the line that is to be typed."""
    (site / "my_pkg-1.0.dist-info").rename(site / "my_pkg-1;id.dist-info")
    (installed,) = pruning.packages(site)
    assert installed.again.endswith(" 'my-pkg==1;id'")
