"""hatch itself: matrices are read from it, and environments are made by it."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import uv

import fake_torch
import values
from hatch_torch_ext import environments
from hatch_torch_ext.base import locks, process
from hatch_torch_ext.base.errors import ConfigurationError, EnvironmentCreationError, SdkError
from hatch_torch_ext.config import Config
from hatch_torch_ext.sdk import environment as sdk_environment
from hatch_torch_ext.sdk import thin
from hatch_torch_ext.values import Entry, Matrix

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
    return values.entry(name="matrix.2.8", dependencies=dependencies, torch_requirement="torch==2.8.*", python=python)


def test_reads_the_matrix_as_hatch_resolves_it(tmp_path: Path) -> None:
    """Variables, dependencies with the matrix filled in, Pythons and environment variables of each entry."""
    matrix = environments.read(project(tmp_path), "matrix", project_name="my-pkg")
    assert matrix == Matrix(
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


@pytest.mark.performs("add `linux` to its")
def test_entries_for_other_systems_are_passed_over(tmp_path: Path) -> None:
    """`platforms` of an entry mean here what they mean to hatch."""
    overrides = '[tool.hatch.envs.matrix.overrides]\nmatrix.torch.platforms = [{ value = "macos", if = ["2.9"] }]\n'
    matrix = environments.read(project(tmp_path, PROJECT + overrides), "matrix", project_name="my-pkg")
    assert [*matrix.variables] == [*matrix.dependencies] == ["matrix.py3.11-2.8"]
    elsewhere = 'platforms = ["windows", "macos"]\n'
    with pytest.raises(ConfigurationError, match="No entry of the environment `plain` is for Linux: add `linux` to"):
        environments.read(project(tmp_path, PROJECT + elsewhere), "plain", project_name="my-pkg")
    added = elsewhere.replace("]", ', "linux"]')
    assert environments.read(project(tmp_path, PROJECT + added), "plain", project_name="my-pkg").variables


@pytest.mark.performs("a variable `torch` with")
def test_a_matrix_without_entries(tmp_path: Path) -> None:
    """It is reported as that, and not as a matrix for other systems; with a value for torch it has an entry."""
    table = '[[tool.hatch.envs.matrix.matrix]]\npython = ["3.11"]\ntorch = ["2.8", "2.9"]\n'
    text = PROJECT.replace(table, "").replace('"torch=={matrix:torch}.*", ', "").replace("{matrix:torch}", "x")
    none = text.replace("[tool.hatch.envs.matrix]\n", "[tool.hatch.envs.matrix]\nmatrix = []\n")
    with pytest.raises(ConfigurationError) as caught:
        environments.read(project(tmp_path, none), "matrix", project_name="my-pkg")
    assert str(caught.value) == (
        "The matrix has no entries: give the environment `matrix` a variable `torch` with at least one value."
    )
    one = none.replace("matrix = []", 'matrix = [{ torch = ["2.8"] }]')
    found = environments.read(project(tmp_path, one), "matrix", project_name="my-pkg")
    assert found.variables == {"matrix.2.8": {"torch": "2.8"}}


def test_an_environment_without_a_matrix_is_one_entry(tmp_path: Path) -> None:
    """The simplest project needs no matrix."""
    matrix = environments.read(project(tmp_path), "plain", project_name="my-pkg")
    assert matrix.variables == {"plain": {}}
    assert matrix.dependencies == {"plain": ("torch==2.9.*",)}


@pytest.mark.performs("Add `[tool.hatch.envs.")
def test_no_such_environment(tmp_path: Path) -> None:
    """The message names the option, the environments that exist, and what to add."""
    with pytest.raises(ConfigurationError) as caught:
        environments.read(project(tmp_path), "matrx", project_name="my-pkg")
    assert str(caught.value) == (
        "Option `environment` for build hook `torch-ext` names `matrx`, which is not a hatch environment of this "
        "project "
        "(there are: `default`, `matrix`, `matrix.py3.11-2.8`, `matrix.py3.11-2.9`, `plain`). "
        "Add `[tool.hatch.envs.matrx]` with a matrix over `torch`."
    )
    (table,) = re.findall(r"Add `(\[\S+\])`", str(caught.value))
    added = f'{table}\nskip-install = true\n[[{table.strip("[]")}.matrix]]\ntorch = ["2.8"]\n'
    assert environments.read(project(tmp_path, PROJECT + added), "matrx", project_name="my-pkg").variables == {
        "matrx.2.8": {"torch": "2.8"}
    }


@pytest.mark.performs("install the built wheel in a script")
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
    (line,) = re.findall(r"`(skip-install = true)`", caught.value.problems[0])
    scripts = '[tool.hatch.envs.matrix.scripts]\ntest = "pip install {root}/dist/my_pkg-1-py3-none-any.whl"\n'
    text = text.replace("[tool.hatch.envs.matrix]\n", f"[tool.hatch.envs.matrix]\n{line}\n").replace(', "My_Pkg"', "")
    assert len(environments.read(project(tmp_path, text + scripts), "matrix", project_name="my-pkg").variables) == 2


@pytest.mark.performs("Remove that dependency")
def test_a_dependency_that_requires_the_project(tmp_path: Path, wheelhouse: Path) -> None:
    """The project's build would start itself again: it stops, and without that dependency the environment is made."""
    system = '[build-system]\nrequires = ["hatchling"{}]\nbuild-backend = "hatchling.build"\n'
    text = system.format(', "hatch-torch-ext"') + "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n" + PROJECT
    root = project(tmp_path, text)
    for name in ("csrc/CMakeLists.txt", "src/my_pkg/__init__.py", "helper/pyproject.toml"):
        (root / name).parent.mkdir(parents=True)
        (root / name).touch()
    (root / "helper" / "pyproject.toml").write_text(
        f'{system.format("")}[project]\nname = "helper"\nversion = "1"\ndependencies = ["my-pkg @ {root.as_uri()}"]\n'
        "[tool.hatch.metadata]\nallow-direct-references = true\n"
        "[tool.hatch.build.targets.wheel]\nbypass-selection = true\n",
        encoding="utf-8",
    )
    helper = f"helper @ {(root / 'helper').as_uri()}"
    make = functools.partial(
        environments.without_torch,
        data=tmp_path / "data",
        uv=Path(uv.find_uv_bin()),
        installer={"UV_FIND_LINKS": str(wheelhouse)},
    )
    with pytest.raises(EnvironmentCreationError) as caught:
        make(entry("packaging", helper))
    message = " ".join(str(caught.value).split())
    assert "This build was started by a build of the same kind: an environment of the matrix installs the" in message
    assert "Remove that dependency, and install both in a script of the environment." in message
    assert (make(entry("packaging")).site_packages / "packaging").is_dir()


def test_what_hatch_says_of_a_broken_configuration_is_passed_on(tmp_path: Path) -> None:
    """The error contains hatch's message."""
    with pytest.raises(ConfigurationError, match=r"hatch cannot read the environments of .*(?s:.)*must be a table"):
        environments.read(
            project(tmp_path, PROJECT + "\n[tool.hatch.envs]\nbad = 1\n"), "matrix", project_name="my-pkg"
        )


def test_the_thin_environment_has_the_dependencies_less_torch(tmp_path: Path) -> None:
    """Entries that differ only in torch share one environment, made once; torch is nowhere in it."""
    uv_path = Path(uv.find_uv_bin())
    first = environments.without_torch(entry("torch==2.8.*", "packaging"), data=tmp_path, uv=uv_path, installer={})
    second = environments.without_torch(entry("torch==2.9.*", "packaging"), data=tmp_path, uv=uv_path, installer={})
    assert first == second
    assert (first.site_packages / "packaging").is_dir()
    assert not (first.site_packages / "torch").exists()
    assert first.interpreter.tag == f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert (first.interpreter.include / "Python.h").is_file()


def test_who_waits_for_another_entry_s_environment_says_so(tmp_path: Path) -> None:
    """Entries that share an environment make it once: the second says for whom it waits, and takes what was made."""
    reports: list[str] = []
    uv_path = Path(uv.find_uv_bin())
    make = functools.partial(
        environments.without_torch, entry("packaging"), data=tmp_path, uv=uv_path, installer={}, report=reports.append
    )
    made = make()
    (lock,) = tmp_path.glob("environments/*/lock")
    with ThreadPoolExecutor() as pool:
        with locks.held(lock, what="it"):
            waiting = pool.submit(make)
            while not reports and not waiting.done():
                time.sleep(0.01)
        assert waiting.result() == made
    (sentence,) = reports
    like = "the environment of matrix.2.8 and of entries with the same dependencies"
    assert sentence.startswith(f"waiting for {like}, which process {os.getpid()} (")


@pytest.mark.performs("which needs no such environment")
@pytest.mark.parametrize("shared", [True, False])
def test_a_value_by_which_hatch_would_leave_its_folder(tmp_path: Path, shared: bool) -> None:  # noqa: FBT001
    """Hatch makes a folder of an environment's name as it is: one that climbs is refused, and nothing is made."""
    requested = replace(entry("packaging"), name="matrix.2.8-../../../escaped")
    with pytest.raises(EnvironmentCreationError, match=r"its `\.\.` leads out of the folder"):
        environments.of_entry(requested, root=tmp_path, shared_with_author=shared, data=tmp_path / "data")
    assert list(tmp_path.iterdir()) == []
    # With `sdk = "thin"`, as the message has it:
    made = environments.without_torch(requested, data=tmp_path / "data", uv=Path(uv.find_uv_bin()), installer={})
    assert made.prefix.is_relative_to(tmp_path / "data")


@pytest.mark.slow
def test_what_is_known_of_an_environment_may_be_damaged(tmp_path: Path) -> None:
    """It is made again, whatever is in the file."""
    make = functools.partial(
        environments.without_torch, entry("packaging"), data=tmp_path, uv=Path(uv.find_uv_bin()), installer={}
    )
    made = make()
    (finished,) = tmp_path.glob("environments/*/finished.json")
    before = finished.read_text()
    for damage in ("[" * 100_000, "[]", "{}", '{"python": 1}', ""):
        finished.write_text(damage)
        assert make() == made
        assert finished.read_text() == before


def test_a_project_may_lie_in_a_folder_with_spaces(tmp_path: Path) -> None:
    """Variables of uv are lists, separated by spaces: no path of ours is in one."""
    uv_path = Path(uv.find_uv_bin())
    made = environments.without_torch(
        entry("torch==2.8.*", "packaging"), data=tmp_path / "my wörk", uv=uv_path, installer={}
    )
    assert (made.site_packages / "packaging").is_dir()


def test_a_dependency_that_requires_torch_does_not_bring_it(tmp_path: Path) -> None:
    """Packages that only torch requires are not installed either: the resolver leaves torch out."""
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


@pytest.mark.performs("comes from a folder or a repository")
def test_a_torch_in_a_folder_is_for_an_installed_sdk(tmp_path: Path) -> None:
    """The thin SDK reads wheels: the setting of the message installs that torch, and compiles against it."""
    source = tmp_path / "torch-source"
    for name, data in fake_torch.contents("2.9.0", cuda=None).items():
        if name.startswith("torch/") and "/ops/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(data)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "torch"\nversion = "2.9.0"\n[tool.hatch.build.targets.wheel]\npackages = ["torch"]\n',
        encoding="utf-8",
    )
    line = f"torch @ {source.as_uri()}"
    entry = values.entry(name="plain", dependencies=(line,), torch_requirement=line)
    text = (
        PROJECT.replace('["torch==2.9.*"]', f'["{line}"]') + "[tool.hatch.metadata]\nallow-direct-references = true\n"
    )
    config = Config(root=project(tmp_path, text), package="p", package_dir=tmp_path, source=tmp_path)
    environment = environments.without_torch(entry, data=tmp_path / "data", uv=Path(uv.find_uv_bin()), installer={})
    with pytest.raises(SdkError) as caught:
        thin.acquire(entry, environment, config, report=print)
    assert str(caught.value).endswith(
        'torch comes from a folder or a repository, not from a wheel: use `sdk = "environment"` for it'
    )
    made = environments.of_entry(entry, root=tmp_path, shared_with_author=False, data=tmp_path / "data")
    assert sdk_environment.acquire(entry, made).version == "2.9.0"


@pytest.mark.performs("Correct the environment's dependencies")
def test_hatchs_output_is_in_the_error_when_the_environment_cannot_be_made(tmp_path: Path) -> None:
    """The entry, hatch's words, and what to correct: the environment is ours, no command of the author's shows it."""
    with pytest.raises(EnvironmentCreationError) as caught:
        environments.without_torch(
            entry("no-such-distribution-of-ours==1"), data=tmp_path, uv=Path(uv.find_uv_bin()), installer={}
        )
    message = str(caught.value)
    assert message.startswith("matrix.2.8: hatch cannot make the environment.\n")
    assert "no-such-distribution-of-ours" in message
    assert message.endswith(
        "\nCorrect the environment's dependencies, or the settings that say where packages come from."
    )
    made = environments.without_torch(entry("packaging"), data=tmp_path, uv=Path(uv.find_uv_bin()), installer={})
    assert (made.site_packages / "packaging").is_dir()


def test_without_an_index_none_is_asked(tmp_path: Path) -> None:
    """There is no variable of uv for that: pip's, or its option, would be lost, and the public index used."""
    uv_path, installer = Path(uv.find_uv_bin()), {"PIP_NO_INDEX": "1", "UV_NO_CACHE": "1"}
    with pytest.raises(EnvironmentCreationError, match="packaging was not found in the provided package locations"):
        environments.without_torch(entry("packaging"), data=tmp_path, uv=uv_path, installer=installer)


def test_matrix_of_pythons_is_not_served_by_one_python(tmp_path: Path) -> None:
    """An interpreter other than the matrix says is an error that names both (hatch#738)."""
    root = project(tmp_path, PROJECT.replace("{matrix:torch}.*", "2.8.*").replace('"torch==2.8.*", ', ""))
    requested = values.entry(name="plain", torch_requirement="torch==2.9.*", python="3.9")
    text = PROJECT.replace('dependencies = ["torch==2.9.*"]', "dependencies = []")
    project(root, text)
    with pytest.raises(EnvironmentCreationError) as caught:
        environments.of_entry(requested, root=root, shared_with_author=False, data=tmp_path / "data")
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


@pytest.fixture
def another_python(tmp_path: Path) -> Path:
    """Return a Python that is somebody else's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "another"], check=True)
    return tmp_path / "another"


@pytest.mark.slow
@pytest.mark.parametrize("thin", [True, False], ids=["uv", "pip"])
def test_the_entrys_own_interpreter_whatever_the_environment_says(
    thin: bool,  # noqa: FBT001 -- a parameter of the test
    another_python: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Variables that send packages to another Python or folder reach neither hatch nor its installer."""
    elsewhere = str(tmp_path / "elsewhere")
    for name, value in {
        "UV_PYTHON": str(another_python / "bin" / "python"),
        "UV_SYSTEM_PYTHON": "1",
        "UV_PROJECT_ENVIRONMENT": str(another_python),
        "UV_WORKING_DIR": str(another_python),
        "VIRTUAL_ENV": str(another_python),
        "CONDA_PREFIX": str(another_python),
        "PYTHONHOME": "/nope",
        "PIP_PYTHON": str(another_python / "bin" / "python"),
        "PIP_TARGET": elsewhere,
        "PIP_NO_DEPS": "1",
        "HATCH_ENV_TYPE_VIRTUAL_PATH": str(tmp_path / "hatchs"),
        "HATCH_QUIET": "3",
    }.items():
        if thin or name != "HATCH_ENV_TYPE_VIRTUAL_PATH":  # the author's own wish for the environments
            monkeypatch.setenv(name, value)
    if thin:
        made = environments.without_torch(entry("packaging"), data=tmp_path, uv=Path(uv.find_uv_bin()), installer={})
    else:
        text = PROJECT.replace('"torch==2.9.*"', '"packaging"')
        requested = values.entry(name="plain", dependencies=("packaging",), torch_requirement="torch")
        made = environments.of_entry(requested, root=project(tmp_path, text), shared_with_author=False, data=tmp_path)
    assert made.prefix.is_relative_to(tmp_path)
    assert (made.site_packages / "packaging").is_dir()
    assert not list(another_python.rglob("packaging"))
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "hatchs").exists()


def test_an_environment_is_finished_when_what_it_should_hold_is_there(tmp_path: Path) -> None:
    """A package that is gone, or that never arrived, is installed by the next build."""
    requested = entry("packaging", "no-such-distribution-of-ours; python_version < '3'")
    uv_path = Path(uv.find_uv_bin())
    made = environments.without_torch(requested, data=tmp_path, uv=uv_path, installer={})
    before = (made.prefix / "pyvenv.cfg").stat().st_mtime_ns
    assert environments.without_torch(requested, data=tmp_path, uv=uv_path, installer={}) == made
    assert (made.prefix / "pyvenv.cfg").stat().st_mtime_ns == before
    for folder in made.site_packages.glob("packaging*"):
        shutil.rmtree(folder)
    assert environments.without_torch(requested, data=tmp_path, uv=uv_path, installer={}) == made
    assert (made.site_packages / "packaging").is_dir()


@pytest.mark.performs("remove the environment with", "remove it{}.")
@pytest.mark.slow
def test_what_pips_own_files_send_elsewhere_is_refused_and_the_remedy_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variable of ours outdoes `target` in pip.conf: the message says what to take out, and the command to type."""
    conf = tmp_path / "pip.conf"
    conf.write_text(f"[install]\ntarget = {tmp_path}/elsewhere\n", encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    root = project(tmp_path, PROJECT.replace('"torch==2.9.*"', '"packaging"'))
    requested = values.entry(name="plain", dependencies=("packaging",), torch_requirement="torch")
    with pytest.raises(EnvironmentCreationError) as caught:
        environments.of_entry(requested, root=root, shared_with_author=False, data=tmp_path / "our data")
    message = str(caught.value)
    assert "but `packaging` is missing, since a setting sends packages to another folder. Look for `target`" in message
    removal = message.partition("remove the environment with `")[2].removesuffix("`.")
    conf.write_text("", encoding="utf-8")
    process.run(shlex.split(removal))
    made = environments.of_entry(requested, root=root, shared_with_author=False, data=tmp_path / "our data")
    assert (made.site_packages / "packaging").is_dir()


@pytest.fixture
def torches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have pip find two releases of torch, and hatch keep its environments in a folder of the test."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("2.8.0", "2.9.0"):
        name = f"torch-{version}-{fake_torch.TAG}.whl"
        (folder / name).write_bytes(fake_torch.wheel(fake_torch.contents(version, cuda=None)))
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("HATCH_DATA_DIR", str(tmp_path / "hatch"))
    return folder


@pytest.mark.performs("before the build", "export PIP_CONSTRAINT", "unset {}")
@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")
@pytest.mark.parametrize("where", ["variable", "file"])
def test_a_constraint_on_torch_is_named_and_its_remedy_works(
    where: str, torches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images for GPUs constrain torch for every installation: the error names the line, and its command removes it."""
    assert torches.is_dir()
    pins = tmp_path / "constraint.txt"
    pins.write_text("# of the image\nnumpy==1.26\ntorch==2.8.0  # theirs\n", encoding="utf-8")
    if where == "variable":
        monkeypatch.setenv("PIP_CONSTRAINT", str(pins))
        expected, command = f"`PIP_CONSTRAINT` ({pins})", "unset PIP_CONSTRAINT"
    else:
        conf = tmp_path / "pip.conf"
        conf.write_text(f"[global]\nconstraint = {pins}\n", encoding="utf-8")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
        expected, command = f"`constraint` in {conf} ({pins})", "export PIP_CONSTRAINT=/dev/null"
    requested = values.entry(name="plain", dependencies=("torch==2.9.*",), torch_requirement="torch==2.9.*")
    root = project(tmp_path)
    with pytest.raises(EnvironmentCreationError) as caught:
        environments.of_entry(requested, root=root, shared_with_author=True, data=tmp_path)
    message = str(caught.value)
    assert "torch==2.9.*" in message
    assert message.endswith(
        f"\nIt is held back by constraints: {expected} has the line `torch==2.8.0`. Run `{command}` before the build, "
        'or correct the matrix. `sdk = "thin"` installs no torch, and ignores the constraints of pip.'
    )
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    if command.startswith("export"):
        name, _, value = command.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value)
    made = environments.of_entry(requested, root=root, shared_with_author=True, data=tmp_path)
    assert (made.site_packages / "torch-2.9.0.dist-info").is_dir()
    assert made.removal == "hatch env remove plain"


@pytest.mark.performs("Remove the environment")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")
@pytest.mark.parametrize("damage", ["", "share"])
def test_an_environment_whose_torch_is_damaged_is_removed_by_the_command(
    damage: str, torches: Path, tmp_path: Path
) -> None:
    """Files of torch are gone, and hatch finds nothing to do: removed by the command, it is made again, and whole."""
    assert torches.is_dir()
    requested = values.entry(name="plain", dependencies=("torch==2.9.*",), torch_requirement="torch")
    root = project(tmp_path)
    made = environments.of_entry(requested, root=root, shared_with_author=True, data=tmp_path)
    shutil.rmtree(made.site_packages / "torch" / damage)
    made = environments.of_entry(requested, root=root, shared_with_author=True, data=tmp_path)
    with pytest.raises(SdkError) as caught:
        sdk_environment.acquire(requested, made)
    (command,) = re.findall(r"Remove the environment; the next build makes it again: `([^`]+)`", str(caught.value))
    process.run([sys.executable, "-m", *shlex.split(command)], cwd=root)
    made = environments.of_entry(requested, root=root, shared_with_author=True, data=tmp_path)
    assert sdk_environment.acquire(requested, made).version == "2.9.0"


@pytest.mark.performs("to see only this")
@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")
def test_the_command_that_shows_only_a_failed_environment(torches: Path, tmp_path: Path) -> None:
    """It is typed when the environment exists already, without its packages, and shows the cause."""
    (torches / f"torch-2.9.0-{fake_torch.TAG}.whl").unlink()
    requested = values.entry(name="plain", dependencies=("torch==2.9.*",), torch_requirement="torch")
    root = project(tmp_path)
    with pytest.raises(EnvironmentCreationError) as caught:
        environments.of_entry(requested, root=root, shared_with_author=True, data=tmp_path)
    command = str(caught.value).partition("\nRun `")[2].partition("`")[0]
    assert command == "hatch run plain:python -V"
    typed = process.run([sys.executable, "-m", *shlex.split(command)], cwd=root, check=False)
    assert typed.returncode != 0
    assert "torch==2.9.*" in typed.stdout + typed.stderr
    assert "already exists" not in typed.stdout + typed.stderr
