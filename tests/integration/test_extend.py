"""A published wheel gets variants for a new torch: the next build number of its version, the old variants untouched."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

import elves
import wheels
from plain import CMAKE, PROJECT, C, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")
DYNAMIC = PROJECT.replace('version = "1"', 'version = "1"\ndynamic = ["dependencies"]').replace(
    "[tool.hatch.envs.matrix]\n", "[tool.hatch.metadata.hooks.torch-ext]\n[tool.hatch.envs.matrix]\n"
)
FILES = {
    "src/my_pkg/__init__.py": "from my_pkg import _variants\n_variants.load()\n",
    "csrc/plain.c": f"{C}\nconst char *release = RELEASE;\n",
    "csrc/CMakeLists.txt": f'{CMAKE}\ntarget_compile_definitions(plain PRIVATE RELEASE="${{TORCH_EXT_TORCH}}")\n',
}


@pytest.fixture
def shared(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder with tiny wheels of three releases."""
    return once("extend", lambda folder: make_wheels(folder / "wheels", ["2.7.0", "2.8.0", "2.9.0"]))


def project_of(folder: Path, shared: Path, *releases: str, page: str = DYNAMIC) -> Project:
    """Return the project for these releases."""
    text = page.format(releases=", ".join(f'"{release}"' for release in releases))
    made = Project(folder, shared, releases=releases, files={"pyproject.toml": text, **FILES})
    made.environ["TORCH_EXT_TORCH_INDEX"] = str(shared / "wheels")
    return made


def contents(wheel: Path) -> dict[str, str]:
    """Return path -> hash of a wheel's members."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def text(wheel: Path, name: str) -> str:
    """Return the text of the one member whose path ends so."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [each for each in archive.namelist() if each.endswith(name)]
        return archive.read(path).decode()


@pytest.mark.performs("as they were, or release")
@pytest.mark.slow
def test_the_next_torch_without_another_release(tmp_path: Path, shared: Path) -> None:
    """The wheel is that of one build of all, but for its build number; the old variants are the same bytes.

    Only the new entry is compiled; the matrix is edited, and a second run says that nothing is to be added. Before
    that, a pruned wheel, another project's and those of a newer release and of a later format are refused, and the
    matrix stays as it was.
    """
    project = project_of(tmp_path / "project", shared, "2.7", "2.8")
    assert project.build().returncode == 0
    published = project.wheel()
    shutil.rmtree(project.root / "build")
    page = (project.root / "pyproject.toml").read_text(encoding="utf-8")
    (tmp_path / "odd").mkdir()
    made = {"version": "99.1", "options": {}, "folders": {}}
    pruned = wheels.changed(published, {"pruned": ["gone"]}, folder=tmp_path / "odd")
    (tmp_path / "newer").mkdir()
    newer = wheels.changed(published, {"origin": made}, folder=tmp_path / "newer")
    (tmp_path / "later").mkdir()
    later = wheels.changed(published, {"schema": 2, "origin": made}, folder=tmp_path / "later")
    label = "torch2.8_cpu_cxx11_x86_64"
    files = {f"{label}/libx.so": elves.shared_object(needed=("libc.so.6",))}
    foreign = wheels.ours(tmp_path / "odd", [(wheels.variant(label, files), files)], package="other")
    for wheel, refusal in (
        (pruned, "from which `prune` removed gone: name the wheel that was published"),
        (newer, "was built by hatch-torch-ext 99.1, and this is"),
        (later, "is of format 2 (`schema`), and hatch-torch-ext"),
        (foreign, "is a wheel of other, and the project in this folder is my-pkg"),
    ):
        refused = project.cli("extend", str(wheel), "--add", "torch=2.9", "-o", "more")
        assert (refused.returncode, refusal in refused.stderr) == (1, True), refused.stderr
    assert (project.root / "pyproject.toml").read_text(encoding="utf-8") == page
    assert not (project.root / "more").exists()
    done = project.cli("extend", str(published), "--add", "torch=2.9", "-o", "more")
    assert done.returncode == 0, done.stderr
    wheel = project.wheel("more")
    assert done.stdout.endswith(f"{wheel}\n")
    assert wheel.name == published.name.replace("my_pkg-1-", "my_pkg-1-1-")
    assert [event["entry"] for event in project.events("done")] == ["matrix.2.9"]
    old, new = contents(published), contents(wheel)
    variants = {path: found for path, found in old.items() if path.endswith(".so")}
    assert len(variants) == 2
    assert {path: new[path] for path in variants} == variants
    assert "Build: 1\n" in text(wheel, "/WHEEL")
    assert "Requires-Dist: torch<2.10,>=2.7" in text(wheel, "/METADATA")
    assert 'torch = ["2.7", "2.8", "2.9"]' in (project.root / "pyproject.toml").read_text(encoding="utf-8")
    assert "commit it" in done.stderr
    whole = project.build("whole")
    assert whole.returncode == 0, whole.stderr
    differing = {path for path, _ in contents(project.wheel("whole")).items() ^ new.items()}
    assert differing == {"my_pkg-1.dist-info/RECORD", "my_pkg-1.dist-info/WHEEL"}
    source = project.root / "csrc" / "plain.c"
    source.write_text(f"{FILES['csrc/plain.c']}int more(void) {{ return 1; }}\n", encoding="utf-8")
    other = project.cli("extend", str(published), "--add", "torch=2.9", "-o", "more")
    assert other.returncode == 1
    assert other.stderr.endswith(
        f"{published.name} was not built from what is here: not the same are the files in `csrc`. Check out the "
        "sources of 1 as they were, or release a new version\n"
    )
    source.write_text(FILES["csrc/plain.c"], encoding="utf-8")
    again = project.cli("extend", str(wheel), "--add", "torch=2.9")
    assert again.returncode == 1
    assert again.stderr.endswith(f"{wheel.name} serves matrix.2.9 already: nothing is to be added.\n")
    twice = project.cli("extend", str(published), "--add", "torch=2.9", "-o", "more")
    assert (twice.returncode, twice.stdout) == (0, done.stdout), twice.stderr
    assert not [path for path in (project.root / "more").iterdir() if path != wheel]


@pytest.mark.slow
def test_two_at_once(tmp_path: Path, shared: Path) -> None:
    """The second waits and says for whom; both give the same wheel, and nothing else is left.

    Where the other one adds another release, it says that the name is taken, and takes back what it did to the matrix.
    """
    project = project_of(tmp_path / "project", shared, "2.7")
    assert project.build().returncode == 0
    command = [sys.executable, "-m", "hatch_torch_ext", "extend", str(project.wheel()), "-o", "more", "--add"]
    environ = {**os.environ, **{name: value for name, value in project.environ.items() if value is not None}}

    def both(*releases: str) -> list[tuple[int, str, str]]:
        started = [
            subprocess.Popen(
                [*command, f"torch={release}"],
                cwd=project.root,
                env=environ,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for release in releases
        ]
        answers = [each.communicate(timeout=300) for each in started]
        return sorted((each.returncode, *answer) for each, answer in zip(started, answers, strict=True))

    page = project.root / "pyproject.toml"
    first, second = both("2.8", "2.8")
    wheel = project.wheel("more")
    assert [each[:2] for each in (first, second)] == [(0, f"{wheel}\n")] * 2
    assert sum("waiting for the matrix of" in each[2] for each in (first, second)) == 1
    assert 'torch = ["2.7", "2.8"]' in page.read_text(encoding="utf-8")
    before = wheel.read_bytes()
    done, failed = both("2.9", "2.8")
    assert (done[:2], failed[0]) == ((0, f"{wheel}\n"), 1)
    assert f"{wheel} exists, with other contents: a published name is never used again" in failed[2]
    assert 'torch = ["2.7", "2.8"]' in page.read_text(encoding="utf-8")
    assert (wheel.read_bytes(), list((project.root / "more").iterdir())) == (before, [wheel])
