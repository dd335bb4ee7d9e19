"""The commands of ``docs/containers.md``, typed as they are there: a vendor's torch, a build, prune, another user."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import used
from hatch_torch_ext.base import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = (Path(__file__).parent.parent.parent / "docs" / "containers.md").read_text(encoding="utf-8")
VENDORS = "2.8.0a0+145a3a7bda.nv25.10"
LOAD = "import my_pkg; print(*my_pkg.load())"
NOBODY = 65534


def block(section: str, number: int = 0) -> str:
    """Return the commands of a block of a section, without the prompts."""
    text = re.split(r"(?m)^## ", PAGE.split(f"\n## {section}\n")[1])[0]
    found = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)[number]
    return "\n".join(line.strip().removeprefix("$ ") for line in found.strip().splitlines())


@pytest.fixture
def wheels(once: used.Once) -> Path:
    """Return a folder with a wheel for torch 2.8 that holds its sources."""
    return used.wheel(once).parent


@pytest.fixture
def image() -> Iterator[Path]:
    """Return a folder that other users may enter, as the root of an image is."""
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def typed(image: Path, wheels: Path) -> Callable[..., process.Completed]:
    """Return a function that types commands in the image; its programs are those of the environment there."""
    user = used.User(image, VENDORS)
    user.python.parent.parent.rename(image / "venv")
    (image / "bin").mkdir()
    python = image / "venv/bin/python"
    for name, command in {
        "python": f'exec {python} "$@"',
        "pip": f'exec {python} -m pip "$@"',
        "hatch-torch-ext": f'VIRTUAL_ENV={image}/venv exec {sys.executable} -m hatch_torch_ext "$@"',
    }.items():
        (image / "bin" / name).write_text(f"#!/bin/sh\n{command}\n")
        (image / "bin" / name).chmod(0o755)
    given = {
        "PATH": f"{image}/bin:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_QUIET": "1",
        "TORCH_EXT_CUDA_DRIVER": "none",
        "TORCH_EXT_BUILD_CACHE": None,
        "PYTHONPATH": None,
        "HOME": str(image / "home"),
        "XDG_CACHE_HOME": None,
    }

    def run(text: str, *, check: bool = True, **changes: str) -> process.Completed:
        text = text.replace("/opt/", f"{image}/").replace("my-pkg==1.0", "my-pkg==1")
        return process.run(["sh", "-ec", text], cwd=image, env_changes={**given, **changes}, check=check)

    return run


def set_torch(image: Path, version: str) -> None:
    """Replace the torch of the image, as a base image of a later day does."""
    (site,) = (image / "venv/lib").glob("python*/site-packages")
    version_file = site / "torch/version.py"
    version_file.write_text(version_file.read_text().replace(VENDORS, version))
    for cached in version_file.parent.glob("__pycache__/*"):
        cached.unlink()


@pytest.mark.performs("to keep it, type instead")
def test_a_vendors_torch(typed: Callable[..., process.Completed]) -> None:
    """The package comes without a torch; it loads by permission, as the check of the page says, and not without."""
    typed(block("A vendor's torch"))
    refused = typed(f"python -c '{LOAD}'", check=False)
    assert refused.returncode == 1
    assert VENDORS in refused.stderr
    done = typed(block("A vendor's torch", 1))
    assert re.search(r"^torch2.8_cpu\S* (works|is whole)", done.stdout), done.stdout
    for name in ("TORCH_EXT_PRERELEASE", "MY_PKG_TORCH_EXT_PRERELEASE"):
        assert f"ENV {name}=1" in PAGE
        assert typed(f"python -c '{LOAD}'", **{name: "1"}).stdout.startswith("torch2.8_cpu")
    assert typed("python -c 'import torch; print(torch.__version__)'").stdout.strip() == VENDORS
    told = typed("hatch-torch-ext doctor --json", check=False).stdout
    assert json.loads(told)["commands"] == ["export TORCH_EXT_PRERELEASE=1"]


@pytest.mark.slow
def test_a_build_prune_and_another_user(typed: Callable[..., process.Completed], image: Path) -> None:
    """What the image's builder compiled is all that is left of the package, and serves a user who owns nothing."""
    typed(block("A vendor's torch"))
    set_torch(image, "2.13.0+cpu")
    typed(block("A build in the image"))
    assert "ENV TORCH_EXT_BUILD_CACHE=/opt/torch-ext" in PAGE
    cache = {"TORCH_EXT_BUILD_CACHE": f"{image}/torch-ext"}
    done = typed(block("A smaller image"), **cache)
    assert "my-pkg: removed 1 of 1 variants" in done.stdout
    (file,) = (image / "venv/lib").glob("*/site-packages/my_pkg/_torch_ext/manifest.json")
    manifest = json.loads(file.read_text())
    assert manifest["pruned"] == [manifest["pruned"][0]]
    assert manifest["reinstall"].startswith("pip install --force-reinstall --no-deps ")
    (package,) = json.loads(typed("hatch-torch-ext doctor --json", **cache).stdout)["packages"]
    assert (package["works"], package["built"], package["pruned"]) == (True, True, manifest["pruned"])
    assert all(path.stat().st_mode & 0o004 for path in (image / "torch-ext").rglob("*") if not path.is_symlink())
    python = image / "venv/bin/python"
    bare = ["env", "-i", f"TORCH_EXT_BUILD_CACHE={image}/torch-ext", "HOME=/nonexistent", "PATH=/nowhere"]
    if os.geteuid() == 0:
        readable = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]  # Python's own folder
        bare[:0] = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *readable]
    done = process.run([*bare, python, "-B", "-c", LOAD], cwd=image)
    assert done.stdout.endswith(" 42\n"), done.stderr
    line = block("Distroless images, and no shell").replace("/opt/", f"{image}/").split()
    assert "chosen, built here" in process.run([*bare, *line], cwd=image).stdout
    typed(block("A smaller image", 1))
    set_torch(image, "2.8.1+cpu")
    assert json.loads(typed("hatch-torch-ext doctor --json", check=False).stdout)["packages"][0]["pruned"] == []
