"""`audit` and `inspect` on the command line: exit status, output streams, and files that are not wheels."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import elves
import wheels
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import _parser, init, main
from hatch_torch_ext.cli.project import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LABEL = "torch2.8_cpu_cxx11_x86_64"
LIBRARY = f"my_pkg/_torch_ext/{LABEL}/libx.so"


def wheel(folder: Path, **parts: object) -> Path:
    """Write a wheel of ours with one library."""
    library = elves.shared_object(**{"needed": ("libc.so.6",), **parts})  # type: ignore[arg-type]
    files = {f"{LABEL}/libx.so": library}
    return wheels.ours(folder, [(wheels.variant(LABEL, files), files)])


def test_a_clean_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing found: one line, status 0; as JSON an empty list."""
    path = wheel(tmp_path)
    assert main(["audit", str(path)]) == 0
    assert capsys.readouterr().out == f"{path.name}: 0 findings\n"
    assert main(["audit", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1, also for warnings; the text has remedy and file, JSON every field; an ignored code is left out."""
    path = wheel(tmp_path, runpath="/opt/lib")
    assert main(["audit", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == (
        "fault rpath: Use paths that begin with $ORIGIN and stay inside site-packages, or none. The hook's repair sets "
        f"them.\n  {LIBRARY}: its RUNPATH has the absolute path /opt/lib\n{path.name}: 1 finding\n"
    )
    assert said.err == ""
    assert main(["audit", "--json", str(path)]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["code"], found["file"], found["variant"], found["warning"]) == ("rpath", LIBRARY, LABEL, False)
    assert main(["audit", "--ignore", "rpath", str(path)]) == 0


def test_an_unknown_code_is_reported_before_the_wheel_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message knows the code that was meant."""
    assert main(["audit", "--ignore", "rpaths", str(tmp_path / "nothing.whl")]) == 1
    said = capsys.readouterr()
    assert said.err == "hatch-torch-ext: There is no audit code `rpaths` to ignore; did you mean `rpath`?\n"


@pytest.mark.performs("Give the path of a wheel")
@pytest.mark.parametrize("command", ["audit", "inspect"])
def test_what_is_not_a_wheel(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another file, a cut one, none at all: status 1, and one line on stderr that ends in what to do, which helps."""
    whole = wheel(tmp_path)
    cut = tmp_path / "cut" / whole.name
    cut.parent.mkdir()
    cut.write_bytes(whole.read_bytes()[:500])
    other = tmp_path / "download.zip"
    shutil.copy(whole, other)
    gone = tmp_path / "gone-1-py3-none-any.whl"
    unmatched = tmp_path / "dist" / "*.whl"  # what a shell leaves where nothing matches
    said = []
    for path in (other, cut, gone, unmatched, tmp_path):
        assert main([command, str(path)]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        said.append(printed.err)
    assert said == [
        f"hatch-torch-ext: {other}: is not named as a wheel, NAME-VERSION-PYTHON-ABI-PLATFORM.whl. Give the file its "
        "published name back\n",
        f"hatch-torch-ext: {cut}: is not a zip archive, or its end is missing (File is not a zip file). Build or fetch "
        "the wheel again\n",
        f"hatch-torch-ext: {gone}: no such file. Give the path of a wheel\n",
        f"hatch-torch-ext: {unmatched}: no such file. Give the path of a wheel\n",
        f"hatch-torch-ext: {tmp_path}: is a folder, not a file. Give the path of a wheel\n",
    ]
    shutil.copy(whole, cut)
    (tmp_path / "renamed").mkdir()
    for path in (other.rename(tmp_path / "renamed" / whole.name), cut, whole):
        assert main([command, str(path)]) == 0


@pytest.mark.performs("run the command for each")
def test_several_wheels_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One answer is one wheel's: the command for each gives it."""
    path = wheel(tmp_path)
    assert main(["audit", "--json", str(path), str(path)]) == 1
    assert capsys.readouterr().err == "hatch-torch-ext: `--json` is for one wheel: run the command for each\n"
    assert main(["audit", "--json", str(path)]) == 0


@pytest.mark.performs("run this in the folder")
def test_outside_of_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a project is named; in that of the project the same is read."""
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    (project / "pyproject.toml").write_text(f"{SYSTEM}[project]\nname = 'my-pkg'\nversion = '1'\n{hook}")
    monkeypatch.chdir(project / "csrc")
    with pytest.raises(ConfigurationError) as caught:
        read()
    assert str(caught.value) == (
        f"There is no pyproject.toml in {project / 'csrc'}: run this in the folder of your project."
    )
    monkeypatch.chdir(project)
    assert read().name == "my-pkg"


def test_inspect_shows_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table names the variant, JSON describes it, `--html` writes a page that needs nothing else."""
    path = wheel(tmp_path)
    assert main(["inspect", str(path)]) == 0
    assert "py3-none-manylinux_2_28_x86_64" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["inspect", "--json", "--html", str(page), str(path)]) == 0
    (variant,) = json.loads(capsys.readouterr().out)["variants"]
    assert variant["label"] == LABEL
    text = page.read_text(encoding="utf-8")
    assert LABEL in text
    assert "<script src" not in text
    assert "<link" not in text


def test_a_page_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing folder gives one line, not a traceback."""
    page = tmp_path / "nowhere" / "page.html"
    assert main(["inspect", "--html", str(page), str(wheel(tmp_path))]) == 1
    assert capsys.readouterr().err == f"hatch-torch-ext: {page}: No such file or directory\n"


def test_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    """Argparse's own status 2 and usage."""
    with pytest.raises(SystemExit) as caught:
        main(["audit"])
    assert caught.value.code == 2
    assert "usage: hatch-torch-ext audit" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["only", "shard", "part", "dask"])
def test_an_option_without_a_value(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a shell gives for an unset variable is not taken for an option that was left out: that builds everything."""
    assert main(["build", f"--{option}", ""]) == 1
    said = f"hatch-torch-ext: `--{option}` is empty, as a shell gives it where a variable is not set\n"
    assert capsys.readouterr().err == said


def test_an_empty_path(capsys: pytest.CaptureFixture[str]) -> None:
    """It is not this folder."""
    with pytest.raises(SystemExit) as caught:
        main(["build", "-d", ""])
    assert caught.value.code == 2
    assert "argument -d/--directory: an empty path" in capsys.readouterr().err


@pytest.mark.performs("change to one that is there (cd /)")
def test_a_current_folder_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are taken from it: a sentence, not a traceback; elsewhere the command works."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SystemExit) as caught:
        main(["sdk", "path"])
    assert caught.value.code == "hatch-torch-ext: the current folder was removed: change to one that is there (cd /)"
    monkeypatch.chdir("/")
    assert main(["sdk", "path"]) == 0


def arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield every argument of every command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from arguments(command)
        else:
            yield action


def test_relative_paths_work_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path of every command is absolute from the start: what runs in another folder finds it."""
    monkeypatch.chdir(tmp_path)
    others = {None, int, init.release, init.python}
    taken = [action for action in arguments(_parser()) if action.type not in others]
    assert {action.dest for action in taken} >= {"wheel", "python", "html", "directory"}
    for action in taken:
        assert callable(action.type)
        assert action.type("../env/bin/python") == tmp_path.parent / "env" / "bin" / "python", action.dest


SYSTEM = '[build-system]\nrequires = ["hatchling", "hatch-torch-ext"]\nbuild-backend = "hatchling.build"\n'
RIGHT = "`[tool.hatch.build.targets.wheel.hooks.torch-ext]`"


@pytest.mark.performs("add {} to pyproject.toml", "write {}")
@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", f"The wheel target has no build hook `torch-ext`: add {RIGHT} to pyproject.toml."),
        *(
            (f"[{place}]", f"`[{place}]` is not a table of a build hook, so nothing reads it: write {RIGHT}.")
            for place in (
                "tool.hatch.build.targets.wheel.torch-ext",
                "tool.hatch.build.targets.wheel.hooks.torch_ext",
                "tool.hatch.build.hooks.torch_ext",
                "tool.hatch.build.torch-ext",
                "tool.hatch.hooks.torch-ext",
                "tool.hatch.torch_ext",
            )
        ),
    ],
)
def test_a_table_that_nothing_reads(
    table: str, said: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`hooks` forgotten, or the name with an underscore: hatchling would build a plain wheel, so that this is an error.

    With the table that the message gives, the hook is found.
    """
    (project / "pyproject.toml").write_text(f"{SYSTEM}[project]\nname = 'my-pkg'\nversion = '1'\n{table}\n")
    monkeypatch.chdir(project)
    assert main(["matrix"]) == 1
    assert capsys.readouterr().err == f"hatch-torch-ext: {said}\n"
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.replace(table, "") + RIGHT.strip("`"))
    assert main(["matrix"]) == 1
    assert "Option `environment` for build hook `torch-ext` names `matrix`" in capsys.readouterr().err


@pytest.mark.performs("Add {}.", "Write {}.")
@pytest.mark.parametrize(
    ("system", "said"),
    [
        (SYSTEM, None),
        ("", "pyproject.toml has no `[build-system]`: pip and uv would build without the hook. Add"),
        (SYSTEM.replace("hatchling.build", "flit_core"), "`build-backend` is not `hatchling.build`: pip and uv would"),
        (
            SYSTEM.replace("hatch-torch-ext", "numpy"),
            "`requires` of `[build-system]` lacks `hatch-torch-ext`:",
        ),
        (SYSTEM.replace("hatch-torch-ext", "Hatch_Torch.Ext>=0.1"), None),
        (SYSTEM.replace("hatchling.build", "hatch_torch_ext.backend"), None),
    ],
)
def test_a_build_system_that_would_not_call_the_hook(
    system: str, said: str | None, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command works, and warns that other tools would not call the hook; the lines of the warning help."""
    (project / "pyproject.toml").write_text(
        f"{system}[project]\nname = 'my-pkg'\nversion = '1'\n[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    )
    monkeypatch.chdir(project)
    read()
    err = capsys.readouterr().err
    assert err.startswith(f"hatch-torch-ext: {said}") if said else err == ""
    if said:
        written = re.findall("`([^`]*)`", err)[-3:]
        text = (project / "pyproject.toml").read_text().removeprefix(system)
        (project / "pyproject.toml").write_text("\n".join([*written, text]))
        read()
        assert capsys.readouterr().err == ""


PLUGIN = """
from hatchling.plugin import hookimpl
from hatchling.version.source.plugin.interface import VersionSourceInterface


class Seven(VersionSourceInterface):
    PLUGIN_NAME = "seven"

    def get_version_data(self):
        return {"version": "7"}


@hookimpl
def hatch_register_version_source():
    return Seven
"""
PROJECT = """
[build-system]
requires = ["hatchling", "hatch-torch-ext", "hatch-seven>=1"]
build-backend = "hatchling.build"
[project]
name = "my-pkg"
dynamic = ["version"]
[tool.hatch.version]
source = "seven"
[tool.hatch.build.targets.wheel.hooks.torch-ext]
"""


@pytest.mark.performs("Install what the build needs")
def test_a_build_requirement_that_is_missing(tmp_path: Path) -> None:
    """It is named with the command that installs it; once that was run, the command goes through."""
    root, links, site = tmp_path / "project", tmp_path / "links", tmp_path / "site"
    for path, text in (
        (root / "pyproject.toml", PROJECT),
        (root / "csrc" / "CMakeLists.txt", ""),
        (root / "src" / "my_pkg" / "__init__.py", ""),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    links.mkdir()
    members = {"hatch_seven.py": PLUGIN.encode()}
    members["hatch_seven-1.0.dist-info/entry_points.txt"] = b"[hatch]\nseven = hatch_seven\n"
    wheels.write(links, members, name="hatch_seven-1.0-py3-none-any.whl", pure=True, requires=[])

    def run(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(site), **environ}
        return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)

    tag = [sys.executable, "-m", "hatch_torch_ext", "ci", "tag", "v7"]
    failed = run(tag)
    assert failed.returncode == 1
    assert failed.stderr.startswith(
        "hatch-torch-ext: Unknown version source: seven. `requires` of `[build-system]` has hatch-seven>=1, which this "
        "Python lacks. Install what the build needs: `"
    )
    command = shlex.split(failed.stderr.split("`")[-2])
    done = run(command, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(links), PIP_TARGET=str(site), PIP_NO_CACHE_DIR="1")
    assert done.returncode == 0, done.stderr
    assert run(tag).stdout == "name=my-pkg\nversion=7\n"
