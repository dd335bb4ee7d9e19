"""One wheel from several builds: shards of a plain-C matrix, merged, are the bytes of one build of everything."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from plain import PROJECT, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")
RELEASES = ("2.6", "2.7", "2.8", "2.9")
METADATA_HOOK = PROJECT.replace('version = "1"', 'version = "1"\ndynamic = ["dependencies"]').replace(
    "[tool.hatch.envs.matrix]\n",
    '[tool.hatch.metadata.hooks.torch-ext]\ndependencies = ["numpy"]\n[tool.hatch.envs.matrix]\n',
)


@pytest.fixture
def shared(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder with tiny wheels of four releases."""
    return once("shards", lambda folder: make_wheels(folder / "wheels", [f"{release}.0" for release in RELEASES]))


@pytest.mark.performs(
    "Merge the parts first",
    "`hatch-torch-ext merge`",
    "give one of them",
    "name the wheels that do",
    "run `hatch build`",
    "uild both ",
)
@pytest.mark.slow
def test_two_machines_give_the_wheel_of_one(tmp_path: Path, shared: Path) -> None:
    """Each works in another folder; a part of a changed project is refused, and so is a single part."""
    page = METADATA_HOOK.format(releases=", ".join(f'"{release}"' for release in RELEASES))
    files = {"pyproject.toml": page, "src/my_pkg/__init__.py": "from my_pkg import _variants\n_variants.load()\n"}
    one, two = (Project(tmp_path / name, shared, releases=RELEASES, files=files) for name in ("one", "two"))
    both = one.cli("build", "--shard", "1/2", "--part", "1/2")
    assert both.stderr == (
        "hatch-torch-ext: `--shard` chooses entries and `--part` names what `--only` chose: give one of them\n"
    )
    early = one.cli("timeline", "-o", "page.html")
    assert early.stderr == f"hatch-torch-ext: {one.root} has no record of a build: run `hatch build` here first.\n"
    parts = []
    for number, project in enumerate((one, two), 1):
        done = project.cli("build", "--shard", f"{number}/2", "-d", "parts")
        assert done.returncode == 0, done.stderr
        (part,) = (project.root / "parts").glob("*.whl")
        assert done.stdout == f"{part}\n"
        assert part.name.startswith(f"my_pkg-1+part{number}of2-")
        parts.append(str(part))
    refused = one.cli("merge", parts[0], "-o", "merged")
    assert "no part holds matrix.2.7, matrix.2.9 for x86_64" in refused.stderr
    remedy = refused.stderr.partition("`hatch-torch-ext ")[2].partition("`")[0].replace("DIR", "others").split()
    assert one.cli(*remedy).returncode == 0
    by_hand = one.cli("merge", parts[0], str(one.wheel("others")), "-o", "by-hand")
    assert by_hand.returncode == 0, by_hand.stderr
    merged = two.cli("merge", *parts, "-o", "merged")
    assert merged.returncode == 0, merged.stderr
    named = one.cli("build", "--part", "1/3", "--only", "matrix.2.8", "-d", "other")
    assert one.wheel("other").name.startswith("my_pkg-1+part1of3-"), named.stderr
    assert one.cli("timeline", "-o", "page.html").returncode == 0
    whole = one.cli("build", "-d", "whole")
    assert whole.returncode == 0, whole.stderr
    assert one.digest("by-hand") == one.digest("whole")
    assert two.digest("merged") == one.digest("whole")
    assert two.wheel("merged").name == one.wheel("whole").name
    compared = two.cli("compare", parts[0], str(one.wheel("whole")))
    assert (compared.returncode, "Merge the parts first" in compared.stderr) == (1, True), compared.stderr
    compared = two.cli("compare", str(two.wheel("merged")), str(one.wheel("whole")))
    assert compared.stdout.splitlines()[-1] == "no difference", compared.stdout
    audited = two.cli("audit", "--json", str(two.wheel("merged")))
    assert "partial-wheel" not in {found["code"] for found in json.loads(audited.stdout)}
    assert "partial-wheel" in {found["code"] for found in json.loads(two.cli("audit", "--json", parts[0]).stdout)}
    (two.root / "csrc/plain.c").write_text("int answer(void) { return 43; }\n", encoding="utf-8")
    shutil.rmtree(two.root / "parts")
    assert two.cli("build", "--shard", "2/2", "-d", "parts").returncode == 0
    refused = two.cli("merge", parts[0], str(two.wheel("parts")), "-o", "mixed")
    assert refused.returncode == 1
    assert "were not built from the same sources. Build both from one commit" in refused.stderr


def test_what_is_left_out_for_now_and_for_good(tmp_path: Path, shared: Path) -> None:
    """`HATCH_TORCH_EXT_ONLY` makes a partial wheel under its plain name; `HATCH_TORCH_EXT_SKIP` says what is served."""
    project = Project(tmp_path / "project", shared)
    assert project.build(HATCH_TORCH_EXT_ONLY="matrix.2.9").returncode == 0
    assert manifest(project)["partial"]["built"] == ["matrix.2.9"]  # type: ignore[index]
    assert project.wheel().name.startswith("my_pkg-1-")
    assert project.build(HATCH_TORCH_EXT_SKIP="matrix.2.8").returncode == 0
    assert "partial" not in manifest(project)


def manifest(project: Project) -> dict[str, object]:
    """Return the manifest of the wheel that was built."""
    with zipfile.ZipFile(project.wheel()) as archive:
        return dict(json.loads(archive.read("my_pkg/_torch_ext/manifest.json")))
