"""The workflow for authors, run here step by step, from the plan to the tested wheel; and what linters say of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plain import PROJECT, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed")
CI = resources.files("hatch_torch_ext") / "resources" / "ci"
WORKFLOWS = Path(__file__).resolve().parent.parent.parent / ".github" / "workflows"
TEST = "[tool.hatch.envs.matrix.scripts]\ntest = 'python -c \"print(1)\"'\n"


class Runner:
    """Runs the ``run`` steps of a job in the project's folder, as GitHub would: expressions are filled in first."""

    def __init__(self, project: Project, workflow: Mapping[Any, Any]) -> None:
        self.project, self.workflow = project, workflow
        self.values = {
            f"inputs.{name}": str(said["default"]) for name, said in workflow[True]["workflow_call"]["inputs"].items()
        }
        bin_folder = project.root.parent / "bin"
        bin_folder.mkdir()
        (bin_folder / "python3.11").symlink_to(sys.executable)
        self.path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(self, job: str, **matrix: str) -> dict[str, str]:
        """Run the steps but for actions of others and installing; return the outputs."""
        output = self.project.root.parent / "output"
        output.write_text("", encoding="utf-8")
        values = {**self.values, **{f"matrix.{name}": value for name, value in matrix.items()}}
        for step in self.workflow["jobs"][job]["steps"]:
            if "run" not in step or "pip install" in step["run"]:
                continue
            given = {name: self._filled(str(text), values) for name, text in step.get("env", {}).items()}
            env = {name: value for name, value in {**os.environ, **self.project.environ}.items() if value is not None}
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", step["run"].replace("python3.11 -m", f"{sys.executable} -m")],
                cwd=self.project.root,
                env={**env, **given, "PATH": self.path, "GITHUB_OUTPUT": str(output)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{step['run']}\n{done.stdout}\n{done.stderr}"
        lines = output.read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    @staticmethod
    def _filled(text: str, values: Mapping[str, str]) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values[found[1]], text)


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")
def test_the_whole_sequence(tmp_path: Path, once: Callable[[str, Callable[[Path], None]], Path]) -> None:
    """Plan, every build job, merge and audit; the wheel is that of one build."""
    shared = once("ci", lambda folder: make_wheels(folder / "wheels", ["2.7.0", "2.8.0", "2.9.0"]))
    releases = ("2.7", "2.8", "2.9")
    files = {
        "pyproject.toml": PROJECT.format(releases=", ".join(f'"{release}"' for release in releases)) + TEST,
        "src/my_pkg/__init__.py": "from my_pkg import _variants\n_variants.load()\n",
    }
    project = Project(tmp_path / "project", shared, releases=releases, files=files)
    runner = Runner(project, yaml.safe_load((CI / "build-wheels.yml").read_text("utf-8")))
    runner.values["inputs.shards"] = "2"
    planned = runner.run("plan")
    build, tests = (json.loads(planned[name])["include"] for name in ("build", "test"))
    assert [job["part"] for job in build] == ["1/2", "2/2"]
    assert {job["image"] for job in build} == {"quay.io/pypa/manylinux_2_28_x86_64"}
    assert [job["entry"] for job in tests] == [f"matrix.{release}" for release in releases]
    for job in build:
        runner.run("build", **job)
    assert len(list((project.root / "parts").glob("*.whl"))) == 2
    runner.run("merge")
    assert project.build("whole").returncode == 0
    assert project.digest() == project.digest("whole")
    done = project.cli("matrix", "--tests")
    assert (done.returncode, "add `--github`" in done.stderr) == (1, True)
    assert json.loads(project.cli("matrix", "--tests", "--github").stdout)["include"]


@pytest.mark.parametrize("file", [*sorted(WORKFLOWS.glob("*.yml")), "wheels.yml"], ids=lambda file: Path(file).name)
def test_zizmor(file: Path | str) -> None:
    """No finding, offline: pinned actions, no template injection, no idle permission."""
    path = file if isinstance(file, Path) else Path(str(CI / file))
    program = shutil.which("zizmor", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("zizmor is not installed")
    done = subprocess.run([program, "--offline", "--no-progress", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_actionlint(tmp_path: Path) -> None:
    """No finding in our workflows, nor in the two that `ci init` writes; an input that is misspelt is found."""
    program = shutil.which("actionlint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("no actionlint on this machine: no maintained wheel holds the program")
    written = tmp_path / ".github" / "workflows"
    shutil.copytree(str(CI), written)
    (tmp_path / ".git").mkdir()  # where the repository is, so that the caller's inputs are held against the other's

    def found(*files: Path) -> str:
        command = [program, "-no-color", "-oneline", *map(str, files)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    assert found(*WORKFLOWS.glob("*.yml"), *written.glob("*.yml")) == ""
    caller = written / "wheels.yml"
    text = re.sub("(?m)^    uses: .*$", r"\g<0>\n    with:\n      shrads: 2", caller.read_text(encoding="utf-8"))
    caller.write_text(text, encoding="utf-8")
    assert 'input "shrads" is not defined' in found(caller)


@pytest.mark.parametrize("file", sorted(WORKFLOWS.glob("*.yml")), ids=lambda file: file.name)
def test_shellcheck(file: Path, tmp_path: Path) -> None:
    """Every `run` block is sound bash."""
    program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("shellcheck is not installed")
    workflow = yaml.safe_load(file.read_text("utf-8"))
    steps = [step["run"] for job in workflow["jobs"].values() for step in job.get("steps", ()) if "run" in step]
    scripts = []
    for number, text in enumerate(steps):
        scripts.append(tmp_path / f"{number}.sh")
        expanded = re.sub(r"\$\{\{.*?\}\}", "filled-in", text)
        scripts[-1].write_text(f"#!/bin/bash\nset -e\n{expanded}\n", encoding="utf-8")
    done = subprocess.run([program, "-e", "SC2154", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
