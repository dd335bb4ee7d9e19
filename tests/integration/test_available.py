"""`matrix --available`: the matrix of a project beside indexes that are laid out as the default one and torch's."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wheels
from hatch_torch_ext import cli
from hatch_torch_ext.facts import labels, releases
from hatch_torch_ext.remote import index, settings
from hatch_torch_ext.remote.http import Http, Limits, RemoteError
from loopback import served

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = """
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"
[project]
name = "my-pkg"
version = "1"
[tool.hatch.build.targets.wheel.hooks.torch-ext]
[tool.hatch.envs.matrix]
skip-install = true
dependencies = ["torch=={matrix:torch}.*"]
"""
MATRIX = """
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.8", "2.9"]
cuda = ["cpu", "cu126"]
"""
PLUGIN = """
[tool.hatch.env.collectors.custom]
path = "hatch_plugin.py"
"""
COLLECTOR = """
from hatch.env.collectors.plugin.interface import EnvironmentCollectorInterface

class Collector(EnvironmentCollectorInterface):
    def finalize_config(self, config):
        config["matrix"]["matrix"] = [{"torch": ["2.8", "2.9"], "cuda": ["cpu", "cu126"]}]
"""
CPU = "torch2.8_cpu_cxx11_x86_64"
MACHINE = platform.machine()
OTHER = "aarch64" if MACHINE == "x86_64" else "x86_64"
HAVE: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": {"2.7.0": ("311",), "2.8.0": ("311", "312"), "2.9.1": ("311", "312"), "2.16.0": ("312",)},
    "cu126": {"2.8.0": ("311", "312"), "2.9.1": ("312",)},
    "cu129": {"2.8.0": ("311", "312")},
    "cu130": {"2.9.1": ("311", "312"), "2.16.0": ("312",)},
}
"""Build -> release -> Pythons of the wheels on torch's own index, for this machine."""


def name(version: str, python: str, machine: str = MACHINE) -> str:
    """Return the name of a wheel of torch."""
    return f"torch-{version}-cp{python}-cp{python}-manylinux_2_28_{machine}.whl"


def page(folder: Path, names: list[str]) -> None:
    """Write the page of torch on an index, as HTML."""
    (folder / "torch").mkdir(parents=True)
    links = "".join(f'<a href="../files/{each}">{each}</a>\n' for each in names)
    (folder / "torch" / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>", encoding="utf-8")


@pytest.fixture
def web(tmp_path: Path) -> Path:
    """Return the folder of two indexes: `simple`, the default one, and `whl`, a page for each build as torch has it."""
    own = tmp_path / "web" / "whl"
    for build, versions in HAVE.items():
        names = [name(f"{version}%2B{build}", python) for version, pythons in versions.items() for python in pythons]
        page(own / build, [*names, name(f"2.17.0.dev20270101%2B{build}", "312")])
    general = {version: pythons for versions in reversed(HAVE.values()) for version, pythons in versions.items()}
    names = [name(version, python) for version, pythons in general.items() for python in pythons]
    page(tmp_path / "web" / "simple", [*names, name("2.9.1", "311", OTHER), "torch-2.9.1.tar.gz"])
    return tmp_path / "web"


@pytest.fixture
def address(web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve them, for a project in this folder."""
    project = tmp_path / "project"
    (project / "src" / "my_pkg").mkdir(parents=True)
    (project / "src" / "my_pkg" / "__init__.py").touch()
    (project / "csrc").mkdir()
    (project / "csrc" / "CMakeLists.txt").touch()
    (project / "pyproject.toml").write_text(PROJECT + MATRIX, encoding="utf-8")
    monkeypatch.chdir(project)
    for variable in [each for each in os.environ if each.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with served(web) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{url}/simple")
        monkeypatch.setenv("TORCH_EXT_TORCH_INDEX", f"{url}/whl")
        yield url


def answer_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return what the command says as JSON."""
    assert cli.main(["matrix", "--available", "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def states(answer: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Return (release line, backend) -> state."""
    return {(row["torch"], row["backend"]): row["state"] for row in answer["rows"]}


def test_the_matrix_beside_both_indexes(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Served, higher minors of a CUDA major too; not served; new; the share; older releases are left out."""
    answer = answer_of(capsys)
    assert states(answer) == {
        ("2.8", "cpu"): "served",
        ("2.8", "12.6"): "served",
        ("2.8", "12.9"): "served",
        ("2.9", "cpu"): "served",
        ("2.9", "12.6"): "served",
        ("2.9", "13.0"): "not served",
        ("2.16", "cpu"): "new",
        ("2.16", "13.0"): "new",
    }
    assert (answer["served"], answer["total"], answer["machine"], answer["others"]) == (9, 13, MACHINE, [OTHER])
    assert answer["impossible"] == []
    assert (answer["releases_from"], answer["backends_from"]) == (f"{address}/simple", f"{address}/whl")
    by = {(row["torch"], row["backend"]): row["entries"] for row in answer["rows"]}
    assert by["2.8", "12.9"] == ["matrix.2.8-cu126"]
    assert cli.main(["matrix", "--available"]) == 0
    line = f'There are builds for {OTHER} too: `machine = ["{MACHINE}", "{OTHER}"]` in the matrix serves them.'
    assert line in " ".join(capsys.readouterr().out.split())


@pytest.mark.performs("add to the matrix:")
def test_the_edit_serves_all(address: str, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ARG001 -- served
    """The lines that the command prints, pasted: everything that there is is served, and nothing is left to add."""
    assert cli.main(["matrix", "--available"]) == 0
    shown = capsys.readouterr().out
    assert "9 of 13 combinations of torch, CUDA and Python" in shown
    assert "(69%)" in shown
    lines = shown.partition("add to the matrix:\n")[2]
    assert lines.strip() == (
        '[[tool.hatch.envs.matrix.matrix]]\ntorch = ["2.9"]\ncuda = ["cu130"]\n'
        '[[tool.hatch.envs.matrix.matrix]]\ntorch = ["2.16"]\ncuda = ["cpu", "cu130"]'
    )
    file = Path("pyproject.toml")
    file.write_text(file.read_text(encoding="utf-8") + lines, encoding="utf-8")
    answer = answer_of(capsys)
    assert set(states(answer).values()) == {"served"}
    assert (answer["served"], answer["total"], answer["edit"]) == (13, 13, [])


def test_what_cannot_be_built(address: str, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ARG001 -- served
    """A release, a CUDA build and a Python that the indexes do not have, each with what they do have."""
    matrix = """
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.8"]
cuda = ["cu128"]
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.9"]
cuda = ["cpu"]
python = ["3.14"]
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.99"]
cuda = ["cpu"]
"""
    Path("pyproject.toml").write_text(PROJECT + matrix, encoding="utf-8")
    why = {each["entry"]: each["why"] for each in answer_of(capsys)["impossible"]}
    assert why == {
        "matrix.2.8-cu128": "torch 2.8 has no build for CUDA 12.8; it has cpu, 12.6, 12.9",
        "matrix.py3.14-2.9-cpu": "torch 2.9 has no build for cp314; it has cp311, cp312",
        "matrix.2.99-cpu": "there is no torch 2.99; the newest are 2.7, 2.8, 2.9, 2.16",
    }


def test_answers_are_kept_and_tables_speak_at_last(
    address: str, web: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is read once a day; if it fails, an older answer is used, else the tables; a line reports either."""
    first = answer_of(capsys)
    shutil.rmtree(web / "simple")
    shutil.rmtree(web / "whl")
    assert answer_of(capsys) == first
    store = Path(os.environ["HATCH_TORCH_EXT_CACHE"])
    for record in (store / "resolved").glob("published-*.json"):
        kept = json.loads(record.read_text(encoding="utf-8"))
        record.write_text(json.dumps({**kept, "time": kept["time"] - 90_000}), encoding="utf-8")
    assert cli.main(["matrix", "--available", "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == first
    assert f"{address}/simple/torch/" in output.err
    assert "what it had on " in output.err

    monkeypatch.setenv("HATCH_TORCH_EXT_CACHE", str(store.parent / "another"))
    assert cli.main(["matrix", "--available"]) == 0
    output = capsys.readouterr()
    assert "No index answered: these are the releases that this hatch-torch-ext knows" in output.out
    assert "2.8    CUDA 12.8" in output.out
    assert "not for cp39" not in output.out


@pytest.mark.slow
def test_the_tables_agree_with_the_default_index() -> None:
    """The default index has what facts/releases.py states about releases and Pythons; else correct the table."""
    there: list[labels.Build] = []
    with Http(settings.IndexSettings(), Limits(attempts=2)) as http:
        try:
            files = index.files(http, settings.PUBLIC_INDEX, "torch")
        except RemoteError as error:
            pytest.skip(f"the default index cannot be reached: {error}")
    there = [build for file in files if not file.yanked for build in labels.of_name(file.name)]
    assert {build.minor for build in there} >= set(releases.PUBLISHED_PYTHONS)
    assert list(labels.differences(there)) == []


@pytest.mark.performs("write a release line of torch", "add `--available`", "add `--github`")
def test_what_is_new_is_added_where_the_matrix_is(address: str, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ARG001 -- served
    """`--new` exits with 1 and the list; `--add` edits the file, keeps its comments, and then nothing new is left."""
    file = Path("pyproject.toml")
    text = file.read_text(encoding="utf-8").replace('cuda = ["cpu", "cu126"]', 'cuda = ["cpu", "cu126"]  # no cu129')
    file.write_text(f"{text}\n[tool.other]\nx = 1\n", encoding="utf-8")
    assert cli.main(["matrix", "--tests"]) == 1
    assert "add `--github`" in capsys.readouterr().err
    assert cli.main(["matrix", "--tests", "--github", "--entries", "ends"]) == 0
    assert [each["entry"] for each in json.loads(capsys.readouterr().out)["include"]] == [
        "matrix.2.8-cpu",
        "matrix.2.9-cu126",
    ]
    assert cli.main(["matrix", "--new"]) == 1
    assert "add `--available`" in capsys.readouterr().err
    assert cli.main(["matrix", "--available", "--new"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"torch 2.9, CUDA 13.0, {MACHINE}: not served",
        f"torch 2.16, cpu, {MACHINE}: new",
        f"torch 2.16, CUDA 13.0, {MACHINE}: new",
    ]
    assert cli.main(["matrix", "--add", "cuda=12"]) == 1
    assert "write a release line of torch, such as `--add torch=2.13`" in capsys.readouterr().err
    assert cli.main(["matrix", "--add", "torch=2.16"]) == 0
    assert capsys.readouterr().out == f"{file.resolve()}: added matrix.2.16-cpu, matrix.2.16-cu130\n"
    block = '[[tool.hatch.envs.matrix.matrix]]\ntorch = ["2.16"]\ncuda = ["cpu", "cu130"]\n\n'
    edited = file.read_text(encoding="utf-8")
    assert edited.replace(block, "", 1) == f"{text}\n[tool.other]\nx = 1\n"
    assert cli.main(["matrix", "--add", "torch=2.16", "--add", "torch=new"]) == 0
    assert capsys.readouterr().out == "Nothing to add: the matrix serves torch 2.16 and the newest release already.\n"
    assert file.read_text(encoding="utf-8") == edited
    assert cli.main(["matrix", "--add", "torch=2.9"]) == 0
    assert cli.main(["matrix", "--available", "--new"]) == 0


def extended(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `extend` on the project in this folder."""
    command = [sys.executable, "-m", "hatch_torch_ext", "extend", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.performs("Add this where the matrix is made", "give either `--add torch=X.Y`")
def test_an_extension_that_fails_leaves_all_as_it_was(address: str, tmp_path: Path) -> None:
    """A release that no index has; a matrix that a plugin makes, with the lines to add; a download that fails.

    The index lists torch 2.16 and does not have the file: the matrix is as before, and there is no wheel.
    """
    files = {f"{CPU}/libx.so": b"x"}
    wheel = wheels.ours(tmp_path, [(wheels.variant(CPU, files), files)], name=f"my_pkg-1-{wheels.TAG}.whl")
    Path("src/my_pkg/__init__.py").write_text("from my_pkg import _variants\n\n_variants.load()\n", encoding="utf-8")
    file = Path("pyproject.toml")
    before = file.read_bytes()
    arguments = (str(wheel), "-o", "out", "--trust-sources", "--add")
    assert "give either `--add torch=X.Y`, to build it here, or `--parts`" in extended(str(wheel)).stderr
    lacking = extended(*arguments, "torch=2.99")
    assert lacking.returncode == 1
    assert lacking.stderr.endswith(f"There is no torch 2.99 on {address}/simple; the newest are 2.7, 2.8, 2.9, 2.16.\n")
    failed = extended(*arguments, "torch=2.16")
    assert failed.returncode == 1
    assert f"{file.resolve()} is as it was before. What is finished is kept: the same command" in failed.stderr
    assert (file.read_bytes(), Path("out").exists()) == (before, False)
    file.write_text(PROJECT.replace("[tool.hatch.envs.matrix]", PLUGIN + "[tool.hatch.envs.matrix]"), encoding="utf-8")
    Path("hatch_plugin.py").write_text(COLLECTOR, encoding="utf-8")
    by_plugin = extended(*arguments, "torch=2.16")
    assert by_plugin.stderr.endswith(
        f"{file.resolve()} cannot be edited: it has no `tool.hatch.envs.matrix.matrix`. Add this where the matrix is "
        'made:\n\n[[tool.hatch.envs.matrix.matrix]]\ntorch = ["2.16"]\ncuda = ["cpu", "cu130"]\n'
    )
    more = COLLECTOR.replace("}]", '}, {"torch": ["2.16"], "cuda": ["cpu", "cu130"]}]')
    Path("hatch_plugin.py").write_text(more, encoding="utf-8")
    assert "There is no torch" not in extended(*arguments, "torch=2.16").stderr
    assert cli.main(["matrix", "--add", "torch=2.16"]) == 0
