"""The tutorials of docs/: what is shown there is what hatch, CMake and our commands take, and what they make."""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomlkit

import warm
from hatch_torch_ext import cli
from hatch_torch_ext.base import process
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.init import fresh
from workbench import ENTRY

if TYPE_CHECKING:
    from workbench import Workbench

DOCS = Path(__file__).resolve().parents[2] / "docs"
START = '[project]\nname = "my-pkg"\nversion = "1"\n[tool.hatch.build.targets.wheel.hooks.torch-ext]\n'
yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed")


def blocks(page: str, language: str) -> list[str]:
    """Return a page's code of one language."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def joined(into: Any, new: Any) -> Any:
    """Return both tables as one; the second overrides the first."""
    if isinstance(into, dict) and isinstance(new, dict):
        return {key: joined(into.get(key), new.get(key, into.get(key))) for key in {**into, **new}}
    return new


@pytest.mark.parametrize(
    ("page", "entries"),
    [
        ("first-cuda.md", ["2.11-cpu", "2.11-cu130", "2.12-cpu", "2.12-cu130", "2.13-cpu", "2.13-cu130"]),
        ("stable-abi.md", ["2.8", "2.9", "2.10-stable"]),
        ("from-scikit-build-core.md", ["2.11", "2.12", "2.13"]),
    ],
)
def test_tables_are_of_a_project(page: str, entries: list[str], tmp_path: Path) -> None:
    """All tables of a page in one pyproject.toml: hatch reads the matrix, and no option is wrong."""
    project: Any = tomlkit.parse(START).unwrap()
    for text in blocks(page, "toml"):
        project = joined(project, tomlkit.parse(text).unwrap())
    for place in ("my_pkg/__init__.py", "csrc/CMakeLists.txt", "CMakeLists.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(tomlkit.dumps(project), encoding="utf-8")
    done = warm.run([sys.executable, "-m", "hatch_torch_ext", "matrix", "--json"], cwd=tmp_path)
    assert [each["name"] for each in json.loads(done.stdout)] == [f"matrix.{name}" for name in entries]


def test_the_stable_sources_are_compiled(thin: Workbench, tmp_path: Path) -> None:
    """C++ and CMake of the page, as they stand, for a stable entry."""
    (source,), (lines,) = blocks("stable-abi.md", "cpp"), blocks("stable-abi.md", "cmake")
    (tmp_path / "ops_stable.cpp").write_text(source, encoding="utf-8")
    head = "cmake_minimum_required(VERSION 3.18)\nproject(my_ops LANGUAGES CXX)\n"
    (tmp_path / "CMakeLists.txt").write_text(head + lines, encoding="utf-8")
    thin.entry = replace(ENTRY, stable_abi=True)
    assert thin.build("", source=tmp_path).files == ("libmy_ops.so",)


def test_the_cuda_lines_leave_the_entry_for_the_cpu_alone(thin: Workbench, tmp_path: Path) -> None:
    """An entry without CUDA compiles what is always there, and looks for no compiler of CUDA."""
    (lines,) = blocks("first-cuda.md", "cmake")
    head = "cmake_minimum_required(VERSION 3.18)\nproject(my_ops LANGUAGES CXX)\nadd_library(my_ops SHARED a.cpp)\n"
    (tmp_path / "a.cpp").write_text("int answer() { return 42; }\n", encoding="utf-8")
    install = "install(TARGETS my_ops LIBRARY DESTINATION .)\n"
    (tmp_path / "CMakeLists.txt").write_text(head + lines + install, encoding="utf-8")
    thin.entry = replace(ENTRY, backend=Backend("cpu"), variables=(*ENTRY.variables, ("cuda", "cpu")))
    assert thin.build("", source=tmp_path).files == ("libmy_ops.so",)


def test_what_a_new_package_is(tmp_path: Path) -> None:
    """Every file of the page's table is made, every option of it is one, and the name is that of the commands."""
    page = (DOCS / "new-package.md").read_text(encoding="utf-8")
    root = tmp_path / "point-ops"
    made = {path.relative_to(root).as_posix() for path in fresh.new("point-ops", tmp_path, fresh.Choices()).write()}
    named = re.findall(r"^\| `([^`]+)`(?:, `([^`]+)`)? \|", page.split("## What is where")[1], re.MULTILINE)
    for first, second in named:
        places = [first, f"{first.rpartition('/')[0]}/{second}"] if second else [first]
        for place in places:
            assert any(each == place or each.startswith(place) for each in made), place
    assert len(named) == 8
    done = warm.run([sys.executable, "-m", "hatch_torch_ext", "init", "--help"])
    options = set(re.findall(r"`(--\w+)`", page))
    assert options == {"--cuda", "--jit", "--module", "--stable"}
    assert options <= set(re.findall(r"--\w+", done.stdout))


@pytest.mark.slow
def test_an_operator_of_ones_own(tmp_path: Path, torch_cpu_python: Path) -> None:
    """The files of the page, in a new package: it is built, and the page's tests pass beside torch."""
    fresh.new("point-ops", tmp_path, fresh.Choices()).write()
    root = tmp_path / "point-ops"
    (kernel,), (lines,) = blocks("own-operator.md", "cpp"), blocks("own-operator.md", "cmake")
    ops, tests = blocks("own-operator.md", "python")
    start, tables = ((root / each).read_text("utf-8") for each in ("src/point_ops/__init__.py", "pyproject.toml"))
    for place, text in {
        "csrc/ops.cpp": kernel,
        "csrc/CMakeLists.txt": lines,
        "src/point_ops/ops.py": ops,
        "tests/test_ops.py": tests,
        "src/point_ops/__init__.py": start.replace("muladd", "nearest"),
        "pyproject.toml": re.sub(r"torch = \[.*\]", 'torch = ["2.13"]', tables),
    }.items():
        (root / place).write_text(text, encoding="utf-8")
    for name in ("kernels.h", "kernels.cpp"):
        (root / "csrc" / name).unlink()
    warm.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=root)
    (wheel,) = (root / "dist").glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as zipped:
        zipped.extractall(site)
    run: list[str | Path] = [torch_cpu_python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", root / "tests"]
    process.run(run, cwd=tmp_path, env_changes={"PYTHONPATH": str(site)})


def test_the_workflows_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ci init` prints what the pages show, the same files as in a new package; the short workflow is YAML."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    assert cli.main(["ci", "init"]) == 0
    printed = capsys.readouterr().out
    for page in ("ci.md", "scale.md"):
        shown = next(each for each in blocks(page, "console") if "ci init" in each)
        assert shown == f"$ hatch-torch-ext ci init\n{printed}", page
    fresh.new("point-ops", tmp_path, fresh.Choices()).write()
    for place in printed.split():
        assert (tmp_path / place).read_bytes() == (tmp_path / "point-ops" / place).read_bytes()
    (workflow,) = blocks("ci.md", "yaml")
    assert [step.get("run", "").split(" ", 1)[-1] for step in yaml.safe_load(workflow)["jobs"]["wheel"]["steps"]] == [
        "",
        "-m pip install hatch",
        "-m hatch build",
    ]


def test_python_on_the_pages_is_python() -> None:
    """What is to be pasted into a package can be parsed."""
    tutorials = ("new-package.md", "own-operator.md", "first-cuda.md", "stable-abi.md", "ci.md")
    texts = [text for page in ("from-scikit-build-core.md", *tutorials) for text in blocks(page, "python")]
    assert texts
    for text in texts:
        ast.parse(text)
