"""The hook as hatchling and pip's kin call it, up to the first compile: targets, bad input, nothing left behind."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import pytest

import warm

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.base import process

PROJECT = """
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"
[project]
name = "my-pkg"
version = "1"
[tool.hatch.build.hooks.torch-ext]
source = "csrc"
[tool.hatch.envs.matrix]
skip-install = true
dependencies = ["torch=={matrix:torch}.*"]
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.8", "2.9"]
"""


def project(folder: Path, text: str = PROJECT) -> Path:
    """Write a small project; its CMake file would fail at once if it were ever configured."""
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    (folder / "csrc").mkdir()
    (folder / "csrc" / "CMakeLists.txt").write_text('message(FATAL_ERROR "configured")\n', encoding="utf-8")
    (folder / "src" / "my_pkg").mkdir(parents=True)
    (folder / "src" / "my_pkg" / "__init__.py").touch()
    (folder / ".gitignore").write_text("/build/\n/dist/\n", encoding="utf-8")
    return folder


def hatchling(root: Path, *arguments: str, **environ: str) -> process.Completed:
    """Run hatchling in ``root`` with the interpreter of the tests, without build isolation."""
    return warm.run([sys.executable, "-m", "hatchling", *arguments], cwd=root, env_changes=environ, check=False)


def sources(root: Path) -> list[str]:
    """Return every file outside of build, dist and the store of SDKs, which is beside the project here."""
    found = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith(("build/", "dist/", "store/")))


def test_the_sdist_and_the_version_compile_nothing(tmp_path: Path) -> None:
    """The hook is registered for every target here, yet only wheels are its business (hatch#2015)."""
    root = project(tmp_path)
    before = sources(root)
    assert hatchling(root, "version").returncode == 0
    assert hatchling(root, "build", "-t", "sdist").returncode == 0
    assert [path.name for path in (root / "dist").iterdir()] == ["my_pkg-1.tar.gz"]
    assert not (root / "build").exists()
    assert sources(root) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            ("skip-install = true\n", ""),
            "Environment `matrix.2.8` installs the project itself, which would start this build again: "
            "set `skip-install = true` in the environment.",
            id="recursion",
        ),
        pytest.param(('source = "csrc"', 'sorce = "csrc"'), "`sorce`", id="unknown-option"),
        pytest.param(('source = "csrc"', "source = 3\nonly = 4"), "2 problems in the configuration", id="wrong-types"),
        pytest.param(('source = "csrc"', 'source = "cpp"'), "CMakeLists.txt", id="no-cmakelists"),
        pytest.param(('source = "csrc"', 'package = "other"'), "other", id="no-package"),
        pytest.param(
            ('source = "csrc"', 'environment = "test"'), "names `test`, which is not a hatch environment", id="no-env"
        ),
        pytest.param(('source = "csrc"', 'only = ["*2.7*"]'), "2.7", id="only-matches-nothing"),
        pytest.param(("torch=={matrix:torch}.*", "numpy"), "torch", id="no-torch"),
    ],
)
def test_bad_input_is_refused_before_any_work(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    """Each is one readable message without a traceback; no wheel and no stray file is left."""
    root = project(tmp_path, PROJECT.replace(*change))
    before = sources(root)
    done = hatchling(root, "build", "-t", "wheel")
    output = done.stdout + done.stderr
    assert done.returncode == 1
    assert message in output
    assert "Traceback" not in output
    assert not list(root.glob("dist/*"))
    assert sources(root) == before


@pytest.mark.performs("write them all into that one")
def test_options_in_two_tables(tmp_path: Path) -> None:
    """Hatchling takes the table of the target whole, and nothing of the one for every target."""
    own = '\n[tool.hatch.build.targets.wheel.hooks.torch-ext]\nenvironment = "none"\n'
    root = project(tmp_path, PROJECT.replace('"csrc"\n', '"csrc"\nmax-size = "1 kB"\n') + own)
    said = "hatchling disregards the options `source`, `max-size` of `[tool.hatch.build.hooks.torch-ext]`"
    assert said in hatchling(root, "build", "-t", "wheel").stderr
    text = PROJECT.replace("[tool.hatch.build.hooks.torch-ext]\n", f'{own}max-size = "1 kB"\n')
    (root / "pyproject.toml").write_text(text, encoding="utf-8")
    assert "hatchling disregards" not in hatchling(root, "build", "-t", "wheel").stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"2.8", "2.9"', "2.8"), "Value #1 of variable `torch` in matrix #1"),
        (('"torch==', '"not a requirement!!", "torch=='), "Dependency #1 of field"),
    ],
)
def test_what_hatch_refuses_is_one_sentence(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    """The last words of hatch stand in the message, without the traceback that it draws around them."""
    done = hatchling(project(tmp_path, PROJECT.replace(*change)), "build", "-t", "wheel")
    output = done.stdout + done.stderr
    assert done.returncode == 1
    assert said in output
    assert "`hatch env show` reads only them." in output
    assert not set("│╭╰") & set(output)


@pytest.mark.performs("`packages = [")
def test_a_package_that_hatchling_would_leave_out_is_refused(tmp_path: Path) -> None:
    """Hatchling looks for the project's name, and with files of a hook inside it does not miss the package."""
    root = project(tmp_path, PROJECT.replace('source = "csrc"', 'source = "csrc"\npackage = "other.ops"'))
    (root / "src" / "other" / "ops").mkdir(parents=True)
    (root / "src" / "other" / "ops" / "__init__.py").touch()
    done = hatchling(root, "build", "-t", "wheel")
    assert done.returncode == 1
    assert " ".join((done.stdout + done.stderr).split()) == (
        "hatch-torch-ext: The wheel would not hold `other/ops/__init__.py`: the build configuration of the wheel does "
        'not select it. Name its folder there: `packages = ["src/other"]`.'
    )
    line = (done.stdout + done.stderr).split("`")[-2]
    with (root / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write(f"[tool.hatch.build.targets.wheel]\n{line}\n")
    assert "matrix.nothing" in hatchling(root, "build", "-t", "wheel", **STOP).stderr


def test_a_build_started_by_a_build_stops(tmp_path: Path) -> None:
    """However it came about, the second one sees the first."""
    done = hatchling(project(tmp_path), "build", "-t", "wheel", HATCH_TORCH_EXT_ACTIVE="1")
    assert done.returncode == 1
    assert "This build was started by a build of the same kind" in done.stdout + done.stderr


@pytest.mark.performs("remove it.")
def test_a_generated_file_in_the_sources_is_refused(tmp_path: Path) -> None:
    """An author's ``_variants.py`` would be shadowed by the generated one: an error."""
    root = project(tmp_path)
    (root / "src" / "my_pkg" / "_variants.py").touch()
    done = hatchling(root, "build", "-t", "wheel")
    assert done.returncode == 1
    assert f"`{root / 'src' / 'my_pkg' / '_variants.py'}` is in the sources" in (done.stdout + done.stderr).replace(
        "\n", " "
    )
    assert (done.stdout + done.stderr).rstrip().endswith("remove it.")
    (root / "src" / "my_pkg" / "_variants.py").unlink()
    assert "matrix.nothing" in hatchling(root, "build", "-t", "wheel", **STOP).stderr


def test_only_from_the_environment_overrides_the_option(tmp_path: Path) -> None:
    """HATCH_TORCH_EXT_ONLY is what a CI job sets; a pattern that matches nothing lists the entries."""
    done = hatchling(project(tmp_path), "build", "-t", "wheel", HATCH_TORCH_EXT_ONLY="matrix.3.*")
    output = done.stdout + done.stderr
    assert done.returncode == 1
    assert "matrix.3.*" in output
    assert "matrix.2.8" in output
    assert os.environ.get("HATCH_TORCH_EXT_ONLY") is None


STOP = {"HATCH_TORCH_EXT_ONLY": "matrix.nothing"}
"""Ends a build once the project was looked at, before anything is made."""


@pytest.mark.performs("`artifacts = [")
def test_a_package_that_git_ignores(tmp_path: Path) -> None:
    """Hatchling would leave it out silently: the error names the line, and both remedies put it into the wheel."""
    root = project(tmp_path)
    ignored = root / ".gitignore"
    ignored.write_text("/build/\n# theirs\nmy_pkg/\n", encoding="utf-8")
    done = hatchling(root, "build", "-t", "wheel", **STOP)
    said = " ".join((done.stdout + done.stderr).split())
    assert (
        f"hatch-torch-ext: The wheel would not hold `my_pkg/__init__.py`: the line `my_pkg/` of {ignored} leaves it "
        "out, since hatchling leaves out what git ignores. Take the line out, or write "
        '`artifacts = ["/src/my_pkg"]` into `[tool.hatch.build.targets.wheel]`.'
    ) in said
    (root / "pyproject.toml").write_text(
        f'{PROJECT}\n[tool.hatch.build.targets.wheel]\nartifacts = ["/src/my_pkg"]\n', encoding="utf-8"
    )
    done = hatchling(root, "build", "-t", "wheel", **STOP)
    assert "matrix.nothing" in done.stdout + done.stderr
    (root / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    ignored.write_text("/build/\n", encoding="utf-8")
    done = hatchling(root, "build", "-t", "wheel", **STOP)
    assert "matrix.nothing" in done.stdout + done.stderr


def test_a_package_that_is_excluded(tmp_path: Path) -> None:
    """An `exclude` of the author's own is named as such."""
    root = project(tmp_path, PROJECT + '[tool.hatch.build]\nexclude = ["my_pkg"]\n')
    done = hatchling(root, "build", "-t", "wheel", **STOP)
    said = " ".join((done.stdout + done.stderr).split())
    assert (
        "The wheel would not hold `my_pkg/__init__.py`: `exclude` of `[tool.hatch.build.targets.wheel]` or "
        "`[tool.hatch.build]` leaves it out."
    ) in said


@pytest.mark.performs("write `hooks.torch-ext`")
def test_the_hooks_name_with_an_underscore(tmp_path: Path) -> None:
    """One sentence that names the right one, not hatchling's traceback."""
    root = project(tmp_path, PROJECT.replace("hooks.torch-ext", "hooks.torch_ext"))
    done = hatchling(root, "build", "-t", "wheel")
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert said.endswith(
        "hatch-torch-ext: the build hook is called `torch-ext`, with a dash: write `hooks.torch-ext` in place of "
        "`hooks.torch_ext`.\n"
    )
    assert "Traceback" not in said
    right, wrong = re.findall(r"`(hooks\.\S+)`", said)
    (root / "pyproject.toml").write_text(PROJECT.replace("hooks.torch-ext", wrong).replace(wrong, right))
    assert "matrix.nothing" in hatchling(root, "build", "-t", "wheel", **STOP).stderr


def test_an_unusable_date_is_reported_for_every_target(tmp_path: Path) -> None:
    """The sdist too, where the hook is called for it."""
    root = project(tmp_path)
    for target in ("sdist", "wheel"):
        done = hatchling(root, "build", "-t", target, SOURCE_DATE_EPOCH="1700000000000")
        assert done.returncode == 1
        assert "hatch-torch-ext: Environment variable `SOURCE_DATE_EPOCH` must be" in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
