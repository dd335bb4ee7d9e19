"""Messages at first use for a user without tools; nothing is built."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import disk
from hatch_torch_ext import __version__, store
from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.config import Config
from hatch_torch_ext.facts import manifest
from hatch_torch_ext.facts.manifest import Fallback
from hatch_torch_ext.toolchain import cudafit, tools
from hatch_torch_ext.user import first_use

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=ubuntu\nID_LIKE=debian\n", "`apt-get install g++`"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "`apt-get install g++`"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "`dnf install gcc-c++`"),
        ('ID=opensuse-leap\nID_LIKE="suse opensuse"\n', "`zypper install gcc-c++`"),
        ("ID=alpine\n", "`apk add g++`"),
        ("ID=arch\n", "`pacman -S gcc`"),
        (
            "ID=nixos\n",
            "`apt-get install g++` (Debian, Ubuntu) or `dnf install gcc-c++` (Fedora, RHEL, manylinux images)",
        ),
    ],
)
def test_a_compiler_is_installed_as_the_distribution_does(release: str, command: str, tmp_path: Path) -> None:
    """One command where the distribution is known; conda's in a conda environment."""
    (tmp_path / "os-release").write_text(release, encoding="utf-8")
    assert tools._how_to_install({}, tmp_path / "os-release") == command
    conda = tools._how_to_install({"CONDA_PREFIX": "/conda"}, tmp_path / "os-release")
    assert conda == "`conda install -c conda-forge cxx-compiler`"


def test_a_package_of_a_later_format_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder that is older than what made the package says so; to install the package again would not help."""
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "store"))  # which the build sets
    file = tmp_path / "my_pkg" / "_torch_ext" / "manifest.json"
    disk.write(file.parent, {file.name: json.dumps({"schema": 2, "origin": {"version": "99.1"}, "variants": []})})
    names = {"package": "my_pkg", "distribution": "my-pkg", "view": "view", "nvidia": []}
    places = {"root": str(file.parent), "cache": str(tmp_path / "cache"), "torch": str(tmp_path / "torch")}
    fault = first_use.build({**names, **places}, say=lambda _: None)
    assert fault == (
        f"{file} is of format 2 (`schema`), and hatch-torch-ext {__version__} reads formats up to 1: upgrade "
        "hatch-torch-ext to 99.1, which made it"
    )


def test_a_user_without_nvcc_learns_what_to_install(tmp_path: Path) -> None:
    """A user has no matrix to add anything to: from CUDA 13 on pip has nvcc, before it the distribution."""
    config = Config(root=tmp_path, package_dir=tmp_path, environment="")
    assert cudafit.remedy(config, "13.0") == (
        'Install one: `pip install "cuda-toolkit[nvcc,cudart,cccl]==13.0.*"`, or set CUDA_HOME to the folder of an '
        "installed CUDA 13 toolkit"
    )
    assert "package `cuda-toolkit-12-8` of its repositories for apt, dnf and zypper" in cudafit.remedy(config, "12.8")
    assert "hatch environment" in cudafit.remedy(Config(root=tmp_path, package_dir=tmp_path), "13.0")


def test_a_fallback_survives_the_manifest() -> None:
    """What is read is what was written; a path that leads out of the sources is refused."""
    made = Fallback(
        version="1",
        source="csrc",
        options={"cmake": {"define": {"A": "b"}}},
        files=(("csrc/a.cpp", "0" * 64),),
        variables=(("kind", "x"),),
        env_vars=(("CFLAGS", "-O2"),),
    )
    assert manifest.fallback_from_json(manifest.fallback_to_json(made)) == made
    for place in ("/etc/passwd", "../x", "csrc/../../x"):
        data = {**manifest.fallback_to_json(made), "files": [{"path": place, "sha256": ""}]}
        with pytest.raises(WheelError, match="is not a path below the sources"):
            manifest.fallback_from_json(data)
