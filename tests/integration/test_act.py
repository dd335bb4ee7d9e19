"""The workflows that `ci init` writes, run by act here: from a tag to the release, from a new torch to a branch.

What others' actions do is done by small actions of the test; all steps of ours are run as they are.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fake_torch
from hatch_torch_ext import __version__, cli
from plain import CMAKE, PROJECT, C, write

if TYPE_CHECKING:
    from collections.abc import Mapping

ACT = shutil.which("act", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
pytestmark = [
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11"),
    pytest.mark.skipif(ACT is None, reason="act is not installed"),
]
TORCH = """
from torch import version
__version__ = version.__version__
class _C:
    _GLIBCXX_USE_CXX11_ABI = True
"""
PAGE = (
    PROJECT.replace('version = "1"', 'version = "1"\ndynamic = ["dependencies"]')
    .replace("[tool.hatch.envs.matrix]\n", "[tool.hatch.metadata.hooks.torch-ext]\n[tool.hatch.envs.matrix]\n")
    .format(releases='"2.7", "2.8"')
)
TEST = """
[tool.hatch.envs.matrix.scripts]
test = [
  "pip install --quiet --no-deps --no-index --find-links dist my-pkg",
  'python -c "import my_pkg, torch; print(torch.__version__, file=open(chr(116) + torch.__version__, chr(119)))"',
  "cp t2* {env:TESTED}",
]
"""
CHECKOUT = """
  - shell: bash
    run: |
      cd "$GITHUB_WORKSPACE"
      rm -rf .git && git init -q . && git fetch -q --tags "$REMOTE" "${REF:-$STARTED}"
      git checkout -q -f FETCH_HEAD && git clean -fdxq
    env: { REF: "${{ inputs.ref }}" }
"""
NOTHING = '  - { shell: bash, run: "true" }\n'
UPLOAD = """
  - shell: bash
    run: mkdir -p "$ARTIFACTS/$NAME" && cp -r "$GITHUB_WORKSPACE/$FROM". "$ARTIFACTS/$NAME"
    env: { NAME: "${{ inputs.name }}", FROM: "${{ inputs.path }}" }
"""
DOWNLOAD = """
  - shell: bash
    run: mkdir -p "$GITHUB_WORKSPACE/$TO" && cp -r "$ARTIFACTS"/$WHICH/. "$GITHUB_WORKSPACE/$TO" 2> /dev/null ||
      for each in "$ARTIFACTS"/$WHICH; do cp -r "$each"/. "$GITHUB_WORKSPACE/$TO"; done
    env: { WHICH: "${{ inputs.name || inputs.pattern }}", TO: "${{ inputs.path }}" }
"""
PUBLISH = '  - { shell: bash, run: cp "$GITHUB_WORKSPACE"/dist/* "$INDEX" }\n'
ACTIONS = {
    "actions/checkout": CHECKOUT,
    "actions/setup-python": NOTHING,
    "actions/cache": NOTHING,
    "actions/upload-artifact": UPLOAD,
    "actions/download-artifact": DOWNLOAD,
    "pypa/gh-action-pypi-publish": PUBLISH,
}
INPUTS = ("ref", "name", "path", "pattern")


class Hub:
    """A repository with the workflows, its remote, an index, and what runs its events."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.root, self.index = folder, folder / "project", folder / "index"
        self.remote = folder / "remote.git"
        for name in ("index", "tested", "artifacts", "torches", "bin", "project"):
            (folder / name).mkdir()
        files = {
            "pyproject.toml": PAGE + TEST,
            "src/my_pkg/__init__.py": "from my_pkg import _variants\nlibrary = _variants.path('libplain.so')\n",
            "csrc/plain.c": f"{C}\nconst char *release = RELEASE;\n",
            "csrc/CMakeLists.txt": CMAKE + 'target_compile_definitions(plain PRIVATE RELEASE="${TORCH_EXT_TORCH}")\n',
        }
        write(self.root, files)
        monkeypatch.chdir(self.root)
        assert cli.main(["ci", "init"]) == 0
        self.used = self._stand_ins()
        self.programs()
        subprocess.run(["git", "init", "-q", "--bare", str(self.remote)], check=True)
        self.git("init", "-q", "-b", "main")
        self.commit("one")
        self.git("push", "-q", str(self.remote), "main")

    def git(self, *arguments: str) -> str:
        """Run git in the repository; return its output."""
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=self.root, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, message: str) -> None:
        """Commit everything."""
        self.git("add", "--all")
        self.git("commit", "-q", "-m", message)

    def add_torch(self, version: str) -> None:
        """Publish a torch."""
        files = fake_torch.contents(version, cuda=None, extra={"torch/__init__.py": TORCH.encode()})
        path = self.folder / "torches" / f"torch-{version}-{fake_torch.TAG}.whl"
        path.write_bytes(fake_torch.wheel(files))

    def _stand_ins(self) -> list[str]:
        """Write an action for each of others' that the workflows use; return the options that put them in place."""
        folder = self.root / ".github" / "workflows"
        used = set()
        for path in folder.glob("*.yml"):
            text = re.sub(r"(?m)^    container: .*\n", "", path.read_text(encoding="utf-8"))
            assert f": hatch-torch-ext[build]=={__version__}\n" in text
            path.write_text(text, encoding="utf-8")
            used |= set(re.findall(r"uses: ([\w-]+/[\w-]+@[0-9a-f]{40})", text))
        options = []
        for each in sorted(used):
            name = each.partition("@")[0]
            action = self.folder / "actions" / name
            action.mkdir(parents=True, exist_ok=True)
            inputs = "".join(f"  {given}: {{ required: false, default: '' }}\n" for given in INPUTS)
            steps = ACTIONS[name].strip("\n")
            text = f"name: stand-in\ninputs:\n{inputs}runs:\n  using: composite\n  steps:\n{steps}\n"
            (action / "action.yml").write_text(text, encoding="utf-8")
            options += ["--local-repository", f"{each}={action}"]
        return options

    def programs(self) -> None:
        """Put Python and our programs on the PATH of the jobs, and a `gh` that writes down its arguments."""
        bin_folder = self.folder / "bin"
        for name in ("python", "python3.11"):
            (bin_folder / name).write_text(
                '#!/bin/sh\n[ "$4" = "hatch-torch-ext[build]==' + __version__ + '" ] && exit 0  # is installed\n'
                f'exec {shlex.quote(sys.executable)} "$@"\n',
                encoding="utf-8",
            )
        for name in ("hatch", "hatch-torch-ext"):
            module = name.replace("-", "_")
            (bin_folder / name).write_text(
                f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n', encoding="utf-8"
            )
        (bin_folder / "gh").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {self.folder}/proposed\n', encoding="utf-8")
        for path in bin_folder.iterdir():
            path.chmod(0o755)

    def run(self, event: str, workflow: str, *, ref: str = "refs/heads/main", **inputs: str) -> str:
        """Let act run the workflow on an event; return its output."""
        shutil.rmtree(self.folder / "artifacts")
        payload = self.folder / "event.json"
        payload.write_text(json.dumps({"ref": ref, "inputs": inputs}), encoding="utf-8")
        wheels = self.folder / "torches"
        env = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "REMOTE": str(self.remote),
            "STARTED": ref,
            "ARTIFACTS": str(self.folder / "artifacts"),
            "INDEX": str(self.index),
            "TESTED": str(self.folder / "tested"),
            "UV_FIND_LINKS": f"{wheels},{self.index}",
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "PIP_FIND_LINKS": f"{wheels} {self.index}",
            "PIP_NO_INDEX": "1",
            "TORCH_EXT_TORCH_INDEX": str(wheels),
            "HATCH_TORCH_EXT_CACHE": str(self.folder / "store"),
            "HATCH_DATA_DIR": str(self.folder / "hatch"),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.{self.remote}.insteadOf",
            "GIT_CONFIG_VALUE_0": "https://x-access-token:token@github.com/me/my-pkg.git",
            "GITHUB_REPOSITORY": "me/my-pkg",
        }
        given = [argument for name, value in env.items() for argument in ("--env", f"{name}={value}")]
        command = [
            *(str(ACT), event, "-W", f".github/workflows/{workflow}", "-P", "ubuntu-24.04=-self-hosted"),
            *("--eventpath", str(payload), "--secret", "GITHUB_TOKEN=token", "--concurrent-jobs", "1"),
            *self.used,
            *given,
        ]
        outer = {**os.environ, "HOME": str(self.folder / "home"), "XDG_CACHE_HOME": str(self.folder / "act")}
        done = subprocess.run(command, cwd=self.root, env=outer, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        return done.stdout


def labels(wheel: Path) -> list[str]:
    """Return the torches of the variants in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        manifest: Mapping[str, Any] = json.loads(archive.read("my_pkg/_torch_ext/manifest.json"))
    return [each["torch"] for each in manifest["variants"]]


@pytest.mark.slow
def test_from_a_tag_to_the_release_and_from_a_new_torch_to_a_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tag gives a wheel that was merged, audited and tested on each torch, and an sdist; a new torch gives a branch.

    The branch has it in the matrix, and only its entry was built; with the release named, that gets a build number.
    """
    hub = Hub(tmp_path, monkeypatch)
    for version in ("2.7.0", "2.8.0"):
        hub.add_torch(version)
    hub.git("tag", "v1")
    hub.git("push", "-q", str(hub.remote), "v1")
    hub.run("push", "wheels.yml", ref="refs/tags/v1")
    published = sorted(path.name for path in hub.index.iterdir())
    assert [re.sub(r"-py3.*", "", name) for name in published] == ["my_pkg-1", "my_pkg-1.tar.gz"]
    assert sorted(path.name for path in (tmp_path / "tested").iterdir()) == ["t2.7.0", "t2.8.0"]
    assert labels(hub.index / published[0]) == ["2.7", "2.8"]

    hub.add_torch("2.9.0")
    shutil.rmtree(tmp_path / "store")  # what an index has is asked once a day
    shutil.rmtree(tmp_path / "tested")
    (tmp_path / "tested").mkdir()
    hub.run("workflow_dispatch", "follow-torch.yml", torch="new", release="")
    branch = subprocess.run(
        ["git", "show", "torch-2.9:pyproject.toml"], cwd=hub.remote, capture_output=True, text=True, check=True
    ).stdout
    assert branch == (PAGE + TEST).replace('"2.7", "2.8"', '"2.7", "2.8", "2.9"')
    assert [path.name for path in (tmp_path / "tested").iterdir()] == ["t2.9.0"]
    assert "torch-2.9" in (tmp_path / "proposed").read_text(encoding="utf-8").split()

    hub.run("workflow_dispatch", "follow-torch.yml", torch="2.9", release="v1")
    (extended,) = hub.index.glob("my_pkg-1-1-*.whl")
    assert labels(extended) == ["2.7", "2.8", "2.9"]
