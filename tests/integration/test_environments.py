"""hatch itself: matrices are read from it, and environments are made by it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import uv

from hatch_torch_ext import environments, process
from hatch_torch_ext.errors import ConfigurationError, EnvironmentCreationError
from hatch_torch_ext.matrix import Entry

PROJECT = """
[project]
name = "my-pkg"
version = "1"
[tool.hatch.envs.matrix]
skip-install = true
dependencies = ["torch=={matrix:torch}.*", "packaging"]
[tool.hatch.envs.matrix.env-vars]
CHANNEL = "{matrix:torch}"
[[tool.hatch.envs.matrix.matrix]]
python = ["3.11"]
torch = ["2.8", "2.9"]
[tool.hatch.envs.plain]
skip-install = true
dependencies = ["torch==2.9.*"]
"""


def project(folder: Path, text: str = PROJECT) -> Path:
    """Write a hatch project that needs nothing else."""
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def entry(*dependencies: str, python: str | None = None) -> Entry:
    """Return an entry with these dependencies."""
    return Entry(
        name="matrix.2.8", variables=(), dependencies=dependencies, torch_requirement="torch==2.8.*", python=python
    )


def test_reads_the_matrix_as_hatch_resolves_it(tmp_path: Path) -> None:
    """Variables, dependencies with the matrix filled in, Pythons and environment variables of each entry."""
    matrix = environments.read(project(tmp_path), "matrix", project_name="my-pkg")
    assert matrix == environments.Matrix(
        variables={
            "matrix.py3.11-2.8": {"python": "3.11", "torch": "2.8"},
            "matrix.py3.11-2.9": {"python": "3.11", "torch": "2.9"},
        },
        dependencies={
            "matrix.py3.11-2.8": ("torch==2.8.*", "packaging"),
            "matrix.py3.11-2.9": ("torch==2.9.*", "packaging"),
        },
        pythons={"matrix.py3.11-2.8": "3.11", "matrix.py3.11-2.9": "3.11"},
        env_vars={"matrix.py3.11-2.8": (("CHANNEL", "2.8"),), "matrix.py3.11-2.9": (("CHANNEL", "2.9"),)},
    )


def test_entries_for_other_systems_are_passed_over(tmp_path: Path) -> None:
    """`platforms` of an entry mean here what they mean to hatch."""
    overrides = '[tool.hatch.envs.matrix.overrides]\nmatrix.torch.platforms = [{ value = "macos", if = ["2.9"] }]\n'
    matrix = environments.read(project(tmp_path, PROJECT + overrides), "matrix", project_name="my-pkg")
    assert [*matrix.variables] == [*matrix.dependencies] == ["matrix.py3.11-2.8"]
    with pytest.raises(ConfigurationError, match="No entry of the environment `plain` is for Linux"):
        environments.read(
            project(tmp_path, PROJECT + 'platforms = ["windows", "macos"]\n'), "plain", project_name="my-pkg"
        )


def test_an_environment_without_a_matrix_is_one_entry(tmp_path: Path) -> None:
    """The simplest project needs no matrix."""
    matrix = environments.read(project(tmp_path), "plain", project_name="my-pkg")
    assert matrix.variables == {"plain": {}}
    assert matrix.dependencies == {"plain": ("torch==2.9.*",)}


def test_no_such_environment(tmp_path: Path) -> None:
    """The message names the option, the environments that exist, and what to add."""
    with pytest.raises(ConfigurationError) as caught:
        environments.read(project(tmp_path), "matrx", project_name="my-pkg")
    assert str(caught.value) == (
        "Option `environment` for build hook `torch-ext` names `matrx`, which is no hatch environment of this project "
        "(there are: `default`, `matrix`, `matrix.py3.11-2.8`, `matrix.py3.11-2.9`, `plain`). "
        "Add `[tool.hatch.envs.matrx]` with a matrix over `torch`."
    )


def test_an_environment_that_installs_the_project_is_refused_before_any_work(tmp_path: Path) -> None:
    """It would start the same build again, for ever."""
    text = PROJECT.replace("skip-install = true\n", "", 1).replace('"packaging"', '"My_Pkg"')
    with pytest.raises(ConfigurationError) as caught:
        environments.read(project(tmp_path, text), "matrix", project_name="my-pkg")
    assert caught.value.problems[:2] == (
        "Environment `matrix.py3.11-2.8` installs the project itself, which would start this build again: "
        "set `skip-install = true` in the environment.",
        "Environment `matrix.py3.11-2.8` depends on `My_Pkg`, which is this project: building it would start this "
        "build again. Remove it, and install the built wheel in a script of the environment.",
    )


def test_what_hatch_says_of_a_broken_configuration_is_passed_on(tmp_path: Path) -> None:
    """Hatch's own words stand in the error."""
    with pytest.raises(ConfigurationError, match=r"hatch cannot read the environments of .*(?s:.)*must be a table"):
        environments.read(
            project(tmp_path, PROJECT + "\n[tool.hatch.envs]\nbad = 1\n"), "matrix", project_name="my-pkg"
        )


def test_the_thin_environment_has_the_dependencies_less_torch(tmp_path: Path) -> None:
    """Entries that differ in torch alone share one environment, made once; torch is nowhere in it."""
    uv_path = Path(uv.find_uv_bin())
    first = environments.without_torch(entry("torch==2.8.*", "packaging"), data=tmp_path, uv=uv_path, installer={})
    second = environments.without_torch(entry("torch==2.9.*", "packaging"), data=tmp_path, uv=uv_path, installer={})
    assert first == second
    assert (first.site_packages / "packaging").is_dir()
    assert not (first.site_packages / "torch").exists()
    assert first.interpreter.tag == f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert (first.interpreter.include / "Python.h").is_file()


def test_a_project_may_lie_in_a_folder_with_spaces(tmp_path: Path) -> None:
    """Variables of uv are lists, parted by spaces: no path of ours is in one."""
    uv_path = Path(uv.find_uv_bin())
    made = environments.without_torch(
        entry("torch==2.8.*", "packaging"), data=tmp_path / "my wörk", uv=uv_path, installer={}
    )
    assert (made.site_packages / "packaging").is_dir()


def test_a_dependency_that_requires_torch_does_not_bring_it(tmp_path: Path) -> None:
    """What only torch brings stays away too: the resolver is told to leave torch out."""
    source = tmp_path / "wants_torch"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "wants-torch"\nversion = "1"\ndependencies = ["torch"]\n'
        "[tool.hatch.build.targets.wheel]\nbypass-selection = true\n",
        encoding="utf-8",
    )
    made = environments.without_torch(
        entry("torch==2.8.*", f"wants-torch @ {source.as_uri()}"),
        data=tmp_path / "data",
        uv=Path(uv.find_uv_bin()),
        installer={},
    )
    assert list(made.site_packages.glob("wants_torch*"))
    assert not (made.site_packages / "torch").exists()


def test_hatchs_output_stands_in_the_error_when_the_environment_cannot_be_made(tmp_path: Path) -> None:
    """The entry, hatch's words, and the command that shows the same thing alone."""
    with pytest.raises(EnvironmentCreationError) as caught:
        environments.without_torch(
            entry("no-such-distribution-of-ours==1"), data=tmp_path, uv=Path(uv.find_uv_bin()), installer={}
        )
    message = str(caught.value)
    assert message.startswith("matrix.2.8: hatch cannot make the environment.\n")
    assert "no-such-distribution-of-ours" in message
    assert message.endswith("Run `hatch env create matrix.2.8` to see it alone.")


def test_matrix_of_pythons_is_not_served_by_one_python(tmp_path: Path) -> None:
    """An interpreter other than the matrix says is an error that names both (hatch#738)."""
    root = project(tmp_path, PROJECT.replace("{matrix:torch}.*", "2.8.*").replace('"torch==2.8.*", ', ""))
    asked = Entry(name="plain", variables=(), dependencies=(), torch_requirement="torch==2.9.*", python="3.9")
    text = PROJECT.replace('dependencies = ["torch==2.9.*"]', "dependencies = []")
    project(root, text)
    with pytest.raises(EnvironmentCreationError) as caught:
        environments.of_entry(asked, root=root, shared_with_author=False, data=tmp_path / "data")
    version = ".".join(str(part) for part in sys.version_info[:3])
    assert f"plain: the matrix asks for Python 3.9, but the environment runs Python {version}" in str(caught.value)


def test_what_the_front_end_set_for_itself_does_not_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPATH (how pip isolates a build) does not reach the environment's interpreter."""
    leak = tmp_path / "leak"
    leak.mkdir()
    (leak / "sitecustomize.py").write_text(
        "import os, sys\nif os.path.basename(sys.prefix) == '.venv': sys.exit('leaked')\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", os.fspath(leak))
    made = environments.without_torch(entry("packaging"), data=tmp_path, uv=Path(uv.find_uv_bin()), installer={})
    done = process.run([made.python, "-c", "import packaging"], env_changes={"PYTHONPATH": None})
    assert done.returncode == 0
