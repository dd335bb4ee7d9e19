"""A new package: its name, its matrix, its folder. That it is green at once is shown end to end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import tomlkit

import warm
from combinations import COMBINATIONS, named
from hatch_torch_ext import cli
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.init import fresh
from hatch_torch_ext.init.fresh import Choices

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.parametrize("choices", COMBINATIONS, ids=named)
def test_every_combination_has_a_matrix_that_resolves(choices: Choices, tmp_path: Path) -> None:
    """Each is a whole project: hatch reads its matrix, and our configuration has no fault."""
    fresh.new("my-ops", tmp_path, choices).write()
    done = warm.run([sys.executable, "-m", "hatch_torch_ext", "matrix", "--json"], cwd=tmp_path / "my-ops", check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"selected": true') >= (2 if choices.cuda else 1)


@pytest.mark.parametrize("choices", [each for each in COMBINATIONS if each.cuda], ids=named)
def test_entries_with_cuda_are_for_the_cuda_of_the_index(choices: Choices, tmp_path: Path) -> None:
    """A release is built for the CUDA that its wheel on the index is made with, by the compiler of that CUDA."""
    fresh.new("my-ops", tmp_path, choices).write()
    environment = tomlkit.parse((tmp_path / "my-ops" / "pyproject.toml").read_text(encoding="utf-8"))
    matrix = environment.unwrap()["tool"]["hatch"]["envs"]["matrix"]
    compilers = {
        name: each["value"]
        for each in matrix["overrides"]["matrix"]["cuda"]["extra-dependencies"]
        for name in each["if"]
    }
    for table in matrix["matrix"]:
        for torch in table["torch"]:
            cuda = releases.index_cuda(releases.minor_of(torch))
            assert table["cuda"] == ["cpu", f"cu{cuda.replace('.', '')}"]
            assert compilers[table["cuda"][1]] == f"cuda-toolkit[nvcc,cudart,cccl]=={cuda}.*"


@pytest.mark.performs("Choose another.")
@pytest.mark.parametrize("name", ["", "9lives", "a b", "class", "torch", "json", "../up", "-x"])
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    """Nothing is written for them; another is taken."""
    with pytest.raises(ConfigurationError):
        fresh.new(name, tmp_path, Choices()).write()
    assert list(tmp_path.iterdir()) == []
    assert fresh.new("another", tmp_path, Choices()).write()


@pytest.mark.performs("choose another name", "run `init` without")
def test_a_folder_with_files_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of it is replaced; a second call is refused too. Another name is taken; what is moved has a setup.py."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "my-ops"]) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "my-ops").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert cli.main(["init", "my-ops", "--cuda"]) == 1
    refused = f"hatch-torch-ext: {tmp_path / 'my-ops'} has files in it: choose another name"
    assert capsys.readouterr().err == f"{refused}.\n"
    assert {path: path.read_bytes() for path in (tmp_path / "my-ops").rglob("*") if path.is_file()} == before
    assert cli.main(["init", "another", "--cuda"]) == 0
    (tmp_path / "my-ops" / "setup.py").write_text(
        "from setuptools import Extension, setup\n"
        "setup(name='my-ops', packages=['my_ops'], ext_modules=[Extension('my_ops.plain', ['plain.c'])])\n"
    )
    capsys.readouterr()
    assert cli.main(["init", "my-ops"]) == 1
    assert capsys.readouterr().err == f"{refused}, or run `init` without a name in it, for its setup.py.\n"
    monkeypatch.chdir(tmp_path / "my-ops")
    assert cli.main(["init", "--dry-run"]) == 0


def test_the_matrix_of_a_new_package_is_the_one_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The releases and Pythons of the command line are in it, and no others; without, they are chosen."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "one", "--torch", "2.13", "--torch", "2.99"]) == 0
    assert _matrix(tmp_path / "one") == [{"torch": ["2.13", "2.99"]}]
    assert cli.main(["init", "two", "--module", "--torch", "2.13", "--python", "3.11", "--python", "3.13t"]) == 0
    assert _matrix(tmp_path / "two") == [{"torch": ["2.13"], "python": ["3.11", "3.13t"]}]
    assert cli.main(["init", "three", "--stable", "--torch", "2.12"]) == 0
    assert _matrix(tmp_path / "three") == [{"abi": ["stable"], "torch": ["2.12"]}]


def _matrix(root: Path) -> object:
    document = tomlkit.parse((root / "pyproject.toml").read_text(encoding="utf-8")).unwrap()
    return document["tool"]["hatch"]["envs"]["matrix"]["matrix"]


def test_a_dry_run_writes_nothing_of_a_new_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files are shown, as those that `patch` would make."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "my-ops", "--dry-run"]) == 0
    assert list(tmp_path.iterdir()) == []
    shown = capsys.readouterr().out
    assert "+++ b/my-ops/pyproject.toml\n" in shown
    assert cli.main(["init", "my-ops"]) == 0
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name in made if f"+++ b/{name}\n" not in shown} == {"my-ops/src/my_ops/py.typed"}  # it is empty


@pytest.mark.performs("add `--module`, or leave", "name a later one by", "give a NAME", "leave {} out", "write it as")
@pytest.mark.parametrize(
    ("given", "refusal", "helps"),
    [
        (["new", "--python=3.12"], "`--python` is for a Python module: add `--module`, or leave it out.", "--module"),
        (
            ["new", "--cuda", "--torch=2.4", "--torch=2.13"],
            "The index has no compiler for the CUDA of torch 2.4: name a later one by `--torch`.",
            ["new", "--cuda", "--torch=2.13"],
        ),
        (
            ["new", "--cpu", "--split"],
            "`--cpu`, `--split` are not for a new package (`init NAME`), only for a project with setup.py: "
            "leave them out.",
            ["new"],
        ),
        (
            ["--cuda"],
            "`--cuda` is not for a project with setup.py, only for a new package (`init NAME`): leave it out.",
            [],
        ),
        (
            ["--jit", "--with=x"],
            "`--jit` is not for a project with setup.py, only for a new package (`init NAME`): leave it out.",
            ["--with=wheel"],
        ),
    ],
)
def test_options_that_would_have_no_effect_are_refused(
    given: list[str],
    refusal: str,
    helps: list[str] | str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is written, and the option that is too much is named; without it, or with what is missing, it works."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.py").write_text(
        "from setuptools import Extension, setup\n"
        "setup(name='my-ops', packages=['my_ops'], ext_modules=[Extension('my_ops.plain', ['plain.c'])])\n"
    )
    assert cli.main(["init", *given]) == 1
    assert capsys.readouterr().err == f"hatch-torch-ext: {refusal}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["setup.py"]
    assert cli.main(["init", "--dry-run", *([*given, helps] if isinstance(helps, str) else helps)]) == 0


@pytest.mark.parametrize("option", ["--torch=abc", "--torch=2", "--python=three", "--python=2.7", "--timeout=long"])
def test_values_that_are_none(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A release of torch and a Python have a form; what has another is named with it."""
    with pytest.raises(SystemExit):
        cli.main(["init", option])
    assert f"argument {option.partition('=')[0]}: " in capsys.readouterr().err


@pytest.mark.performs("run `init` in the folder")
def test_init_where_there_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a setup.py the message asks for a NAME, with which a package is made."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init"]) == 1
    assert capsys.readouterr().err == (
        f"hatch-torch-ext: There is no setup.py in {tmp_path}: run `init` in the folder of a setuptools project, or "
        "give a NAME.\n"
    )
    assert cli.main(["init", "my-ops"]) == 0
