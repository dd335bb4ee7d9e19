"""What linters say of the workflows: ours, and those that `ci init` writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed")
CI = resources.files("hatch_torch_ext") / "resources" / "ci"
WORKFLOWS = Path(__file__).resolve().parent.parent.parent / ".github" / "workflows"
WRITTEN = ("add-torch.yml", "wheels.yml", "follow-torch.yml")


@pytest.mark.parametrize("file", [*sorted(WORKFLOWS.glob("*.yml")), *WRITTEN], ids=lambda file: Path(file).name)
def test_zizmor(file: Path | str) -> None:
    """No finding, offline: pinned actions, no template injection, no idle permission."""
    path = file if isinstance(file, Path) else Path(str(CI / file))
    program = shutil.which("zizmor", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("zizmor is not installed")
    done = subprocess.run([program, "--offline", "--no-progress", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_actionlint(tmp_path: Path) -> None:
    """No finding in our workflows, nor in those that `ci init` writes; an input that is misspelt is found."""
    program = shutil.which("actionlint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("actionlint is not installed")
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


@pytest.mark.parametrize("file", [*sorted(WORKFLOWS.glob("*.yml")), "add-torch.yml"], ids=lambda file: Path(file).name)
def test_shellcheck(file: Path | str, tmp_path: Path) -> None:
    """Every `run` block is sound bash."""
    program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("shellcheck is not installed")
    workflow = yaml.safe_load((file if isinstance(file, Path) else Path(str(CI / file))).read_text("utf-8"))
    steps = [step["run"] for job in workflow["jobs"].values() for step in job.get("steps", ()) if "run" in step]
    scripts = []
    for number, text in enumerate(steps):
        scripts.append(tmp_path / f"{number}.sh")
        expanded = re.sub(r"\$\{\{.*?\}\}", "filled-in", text)
        scripts[-1].write_text(f"#!/bin/bash\nset -e\n{expanded}\n", encoding="utf-8")
    done = subprocess.run([program, "-e", "SC2154", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
