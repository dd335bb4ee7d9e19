"""What ``docs/locked.md`` says of uv, poetry and PDM, performed: its files, its commands, and what each resolves."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tomlkit
import uv

import hatch_torch_ext
import plain
import warm
import wheels
from hatch_torch_ext.base import process
from loopback import served

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parent.parent.parent / "docs" / "locked.md").read_text(encoding="utf-8")
CP = f"cp{sys.version_info[0]}{sys.version_info[1]}"
MACHINES = ("aarch64", "x86_64")
TOOLS = {"poetry": "poetry", "pdm": "pdm[locked]"}
HERE = {"torch": "2.9.1", "my-pkg": "1.0"}

pytestmark = pytest.mark.skipif(CP != "cp311" or os.uname().machine not in MACHINES, reason="the page's Python")


def blocks(section: str, kind: str) -> list[str]:
    """Return the blocks of a section of the page, without comments."""
    text = re.split(rf"(?m)^#+ {re.escape(section)}$", PAGE)[1]
    text = re.split(r"(?m)^#+ ", re.sub(r"(?m)^# .*\n", "", text))[0]
    return re.findall(rf"```{kind}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve torch 2.8, 2.9 and 2.13 and a package of ours that serves the first two, each for two machines."""
    root = tmp_path_factory.mktemp("index")
    for name in ("torch", "my-pkg"):
        (root / name).mkdir()
    for machine in MACHINES:
        for version in ("2.8.0", "2.9.1", "2.13.0"):
            source = f"__version__ = {version!r}\n".encode()
            file = f"torch-{version}-{CP}-{CP}-manylinux_2_28_{machine}.whl"
            wheels.write(root / "torch", {"torch/__init__.py": source}, name=file, requires=())
        built = []
        for torch in ("2.8", "2.9"):
            label = f"torch{torch}_cpu_cxx11_{machine}"
            files = {f"{label}/libx.so": label.encode()}
            built.append((wheels.variant(label, files, torch=torch, machine=machine), files))
        wheels.ours(root / "my-pkg", built, name=f"my_pkg-1.0-py3-none-manylinux_2_28_{machine}.whl")
    for folder in root.iterdir():
        links = "".join(f'<a href="{path.name}">{path.name}</a>\n' for path in sorted(folder.glob("*.whl")))
        (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    with served(root) as address:
        yield address


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str | None]:
    """Return the variables of a project in a folder of its own, with caches of its own."""
    return {
        "VIRTUAL_ENV": None,
        "UV_CACHE_DIR": None,
        "UV_PYTHON": sys.executable,
        "POETRY_VIRTUALENVS_IN_PROJECT": "true",
        "POETRY_CACHE_DIR": str(tmp_path / "poetry"),
        "PDM_CACHE_DIR": str(tmp_path / "pdm"),
        "PDM_CHECK_UPDATE": "false",
        "PDM_IGNORE_ACTIVE_VENV": "1",  # a .venv of its own, by the first Python of PATH
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": None,
        "PYTHONPATH": None,
    }


def typed(folder: Path, environ: dict[str, str | None], block: str) -> None:
    """Type the commands of a block, each by the tool of that name."""
    for line in block.splitlines():
        words = shlex.split(line.removeprefix("$ "))
        program = [uv.find_uv_bin()]
        if words[0] in TOOLS:
            program += ["tool", "run", "--quiet", "--no-config", "--python", sys.executable, "--from", TOOLS[words[0]]]
            program.append(words[0])
        process.run([*program, *words[1:]], cwd=folder, env_changes=environ)


def installed(folder: Path) -> dict[str, str]:
    """Return what is in the environment of the project."""
    python = folder / ".venv" / "bin" / "python"
    done = process.run([uv.find_uv_bin(), "pip", "list", "--format", "json", "--python", python])
    return {each["name"]: each["version"] for each in json.loads(done.stdout) if each["name"] != "pip"}


def locked(file: Path) -> dict[str, set[str]]:
    """Return the versions and the wheels of each package of a lock file."""
    found: dict[str, set[str]] = {}
    for package in tomlkit.parse(file.read_text(encoding="utf-8")).unwrap()["package"]:
        files = package.get("wheels") or package.get("files") or ()
        names = {each.get("file") or each["url"].rpartition("/")[2] for each in files}
        found.setdefault(package["name"], set()).update({package["version"], *names})
    return found


def for_both(*torches: str) -> dict[str, set[str]]:
    """Return what a lock has to hold for both machines."""
    ours = {"1.0", *(f"my_pkg-1.0-py3-none-manylinux_2_28_{machine}.whl" for machine in MACHINES)}
    torch = {f"torch-{each}-{CP}-{CP}-manylinux_2_28_{machine}.whl" for each in torches for machine in MACHINES}
    return {"my-pkg": ours, "torch": {*torches, *torch}}


def test_uv(index: str, tmp_path: Path, environ: dict[str, str | None]) -> None:
    """One lock for two platforms; with conflicting extras two torches are in it, and either is synced."""
    (toml,), (typed_first,) = blocks("uv", "toml"), blocks("uv", "console")
    section = "Two torches in one project"
    (extras,), (extra_typed,) = blocks(section, "toml"), blocks(section, "console")
    source = f'\n[[tool.uv.index]]\nurl = "{index}"\ndefault = true\n'
    (tmp_path / "pyproject.toml").write_text(toml + source)
    typed(tmp_path, environ, typed_first)
    found = locked(tmp_path / "uv.lock")
    found.pop("app")
    assert found == for_both("2.9.1")
    assert installed(tmp_path) == HERE
    optional, _, conflicts = extras.partition("[tool.uv]\n")
    (tmp_path / "pyproject.toml").write_text(toml.replace("[tool.uv]\n", f"{optional}[tool.uv]\n{conflicts}") + source)
    first, second = extra_typed.splitlines()
    typed(tmp_path, environ, first)
    found = locked(tmp_path / "uv.lock")
    found.pop("app")
    assert found == for_both("2.8.0", "2.9.1")
    assert installed(tmp_path) == {**HERE, "torch": "2.8.0"}
    typed(tmp_path, environ, second)
    assert installed(tmp_path) == HERE


@pytest.mark.slow
def test_poetry(index: str, tmp_path: Path, environ: dict[str, str | None]) -> None:
    """One lock for two platforms, and one torch in it: the newest, or that of the project."""
    (toml,), (commands,) = blocks("poetry", "toml"), blocks("poetry", "console")
    source = f'\n[[tool.poetry.source]]\nname = "here"\nurl = "{index}/"\npriority = "primary"\n'
    (tmp_path / "pyproject.toml").write_text(toml + source)
    typed(tmp_path, environ, commands)
    assert locked(tmp_path / "poetry.lock") == for_both("2.9.1")
    assert installed(tmp_path) == HERE
    added = toml.replace('["my-pkg"]', '["my-pkg", "torch==2.8.*"]')
    assert '"torch==2.8.*"' in PAGE
    (tmp_path / "pyproject.toml").write_text(added + source)
    typed(tmp_path, environ, commands.splitlines()[0])
    assert locked(tmp_path / "poetry.lock") == for_both("2.8.0")


@pytest.mark.slow
def test_pdm(index: str, tmp_path: Path, environ: dict[str, str | None]) -> None:
    """A platform after the other in one lock; another lock file for a group with another torch."""
    (toml,), (commands,) = blocks("PDM", "toml"), blocks("PDM", "console")
    source = f'\n[[tool.pdm.source]]\nname = "pypi"\nurl = "{index}/"\nverify_ssl = false\n'
    (tmp_path / "pyproject.toml").write_text(toml + source)
    lines = commands.splitlines()
    typed(tmp_path, environ, "\n".join(lines[:3]))
    assert locked(tmp_path / "pdm.lock") == for_both("2.9.1")
    assert installed(tmp_path) == HERE
    typed(tmp_path, environ, "\n".join(lines[3:]))
    assert "2.8.0" in locked(tmp_path / "torch28.lock")["torch"]


def test_match_runtime(tmp_path: Path, torches: Path, environ: dict[str, str | None]) -> None:
    """Uv refuses a folder with dynamic metadata, and builds one with the static line, for the torch of the lock.

    The line is what a build of the author's prints; with it nothing is noted any more. An sdist needs no such line.
    """
    text = plain.PROJECT.format(releases='"2.8", "2.9"').replace('["hatchling", "hatch-torch-ext"]', "[]")
    dynamic = 'dynamic = ["dependencies"]\n[tool.hatch.metadata.hooks.torch-ext]\n'
    project = plain.Project(tmp_path / "my-pkg", torches, files={"pyproject.toml": text})
    (line,) = re.findall(r"`(dependencies = \[.*\])`", project.cli("matrix").stderr)
    write = (project.root / "pyproject.toml").write_text
    write(text.replace('version = "1"\n', f'version = "1"\n{dynamic}'))
    web = tmp_path / "web"
    for name, files in (("torch", sorted(torches.glob("wheels/torch-*.whl"))), ("my-pkg", [sdist(project)])):
        (web / name).mkdir(parents=True)
        for file in files:
            (web / name / file.name).symlink_to(file)
        links = "".join(f'<a href="{file.name}">{file.name}</a>\n' for file in files)
        (web / name / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    option = blocks("Built from source: `match-runtime`", "toml")[0]
    app = blocks("uv", "toml")[0].partition("[tool.uv]")[0].replace('"my-pkg"]', '"my-pkg", "torch==2.8.*"]')
    changes = environ | {"PYTHONPATH": os.pathsep.join(paths()), **project.environ}
    changes |= {"UV_FIND_LINKS": None, "PIP_NO_INDEX": None}

    def uvs(folder: str, command: str, source: str = "") -> process.Completed:
        (tmp_path / folder).mkdir()
        with served(web) as address:
            index = f'[[tool.uv.index]]\nurl = "{address}"\n'  # first; what a build requires comes from the default one
            (tmp_path / folder / "pyproject.toml").write_text(f"{app}\n{source}\n{option}\n{index}")
            return process.run([uv.find_uv_bin(), command], cwd=tmp_path / folder, env_changes=changes, check=False)

    done = uvs("sdist", "lock")
    assert done.returncode == 0, done.stderr
    folder = '[tool.uv.sources]\nmy-pkg = { path = "../my-pkg" }\n'
    done = uvs("refused", "sync", folder)
    assert done.returncode != 0
    refused = "`my-pkg` does not declare static metadata"
    assert refused in " ".join(done.stderr.split()), done.stderr
    assert refused in PAGE
    write(text.replace('version = "1"\n', f'version = "1"\n{line}\n'))
    assert "dependencies = [" not in project.cli("matrix").stderr
    done = uvs("app", "sync", folder)
    assert done.returncode == 0, done.stderr
    (site,) = (tmp_path / "app/.venv/lib").glob("python*/site-packages")
    manifest = json.loads((site / "my_pkg/_torch_ext/manifest.json").read_text())
    assert [each["torch"] for each in manifest["variants"]] == ["2.8"]


def sdist(project: plain.Project) -> Path:
    """Return the sdist of a project."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", "sdists"]
    warm.run(command, cwd=project.root, env_changes=project.environ)
    (made,) = (project.root / "sdists").iterdir()
    return made


def paths() -> list[str]:
    """Return the folders from which an isolated build without requirements imports hatchling and this package."""
    return [str(Path(hatch_torch_ext.__file__).parents[1]), sysconfig.get_path("purelib")]
