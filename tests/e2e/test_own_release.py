"""Our own release, as the workflow makes it: it builds the README's example from a folder of wheels, and extends it."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import uv

from hatch_torch_ext import __version__
from hatch_torch_ext.base import process
from loopback import serving

from .conftest import PROJECT, Once, install, lent, outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OPERATOR = """
#include <torch/library.h>
int64_t one() { return 1; }
TORCH_LIBRARY(my_pkg, m) { m.def("one() -> int", one); }
"""
INIT = "src/my_pkg/__init__.py"
USE = "import my_pkg, torch; print(my_pkg._variants.load().label, torch.ops.my_pkg.one())"
OLD, NEW = "torch2.5_cpu_cxx98_x86_64", "torch2.13_cpu_cxx11_x86_64"


def readme(root: Path) -> None:
    """Write the files of the README's example into ``root``, for torch 2.5, with the source that it names."""
    blocks = re.findall(r"```\w+\n# ([\w./]+).*?\n(.*?)```", (PROJECT / "README.md").read_text("utf-8"), re.DOTALL)
    files = {name: text for name, text in blocks if name in {"pyproject.toml", "csrc/CMakeLists.txt", INIT}}
    assert len(files) == 3
    for name, text in {**files, "csrc/my_ops.cpp": OPERATOR}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text.replace('["2.8", "2.9", "2.13"]', '["2.5"]'), encoding="utf-8")


@dataclass(frozen=True)
class Released:
    """An environment with our release, and a project of which it built the wheel ``out``, below one folder."""

    folder: Path
    store: Path

    @property
    def wheel(self) -> Path:
        """Return the project's wheel for torch 2.5."""
        (wheel,) = (self.folder / "out").glob("my_pkg-1.0-py3-none-manylinux_*.whl")
        return wheel

    def run(self, *arguments: str | Path, **environ: str | None) -> process.Completed:
        """Run the released command line in the project."""
        return process.run(
            [self.folder / "environment" / "bin" / "hatch-torch-ext", *arguments],
            cwd=self.folder / "project",
            env_changes={"HATCH_TORCH_EXT_CACHE": str(self.store), "PYTHONPATH": None, **environ},
        )


@pytest.fixture
def released(once: Once, store: Path) -> Released:
    """Build the sdist and the wheel of this version, install the wheel, and let it build the README's example."""

    def make(folder: Path) -> None:
        dist = folder / "dist"
        process.run([sys.executable, "-m", "hatchling", "build", "-d", dist], cwd=PROJECT)
        environment = folder / "environment"
        process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, environment])
        python = environment / "bin" / "python"
        install(python, "--find-links", dist, f"hatch-torch-ext[build]=={__version__}", deps=True)
        readme(folder / "project")
        Released(folder, store).run("build", "-d", folder / "out")

    return Released(once("own_release", make), store)


@pytest.mark.slow
def test_the_readmes_example_builds_from_the_release(
    tmp_path: Path, released: Released, full_torch: Callable[[str], Path]
) -> None:
    """The wheel and the sdist of this version; only the wheel, with what it requires, in a fresh environment.

    The wheel that it builds there is loaded beside a real torch.
    """
    names = sorted(path.name for path in (released.folder / "dist").iterdir())
    assert names == [f"hatch_torch_ext-{__version__}-py3-none-any.whl", f"hatch_torch_ext-{__version__}.tar.gz"]
    python = lent(full_torch("2.5.0"), tmp_path / "environment")
    install(python, released.wheel)
    assert outside(python, "-c", USE, cwd=tmp_path).stdout.split() == [OLD, "1"]


@pytest.mark.slow
def test_users_of_the_next_torch_install_the_release_that_exists(
    tmp_path: Path, released: Released, torch_cpu_python: Path, full_torch: Callable[[str], Path]
) -> None:
    """One command later, pip and uv give users of torch 2.13 a wheel that works; those of 2.5 keep what they had.

    The index has both files, the old one unchanged: a lock with its hash installs it.
    """
    old = released.wheel
    sha256 = hashlib.sha256(old.read_bytes()).hexdigest()
    with serving() as index:
        index.add(old.read_bytes(), old.name)
        done = released.run("extend", "my-pkg==1.0", "--add", "torch=2.13", "-o", tmp_path, UV_INDEX=index.simple)
        (new,) = tmp_path.glob("my_pkg-1.0-1-*.whl")
        assert done.stdout == f"{new}\n"
        index.add(new.read_bytes(), new.name)
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--python"]
        uses_uv: list[str | Path] = [uv.find_uv_bin(), "pip", "install", "--no-deps", "--no-cache", "--python"]
        for torch, installer, label in (
            (torch_cpu_python, "pip", NEW),
            (torch_cpu_python, "uv", NEW),
            (full_torch("2.5.0"), "pip", OLD),
        ):
            python = lent(torch, tmp_path / f"{installer}-{label}")
            command = [*pip, python, "install", "--no-cache-dir"] if installer == "pip" else [*uses_uv, python]
            process.run([*command, "--index-url", index.simple, "my-pkg"], env_changes={"PIP_FIND_LINKS": None})
            assert outside(python, "-c", USE, cwd=tmp_path).stdout.split() == [label, "1"]
        lock, target = tmp_path / "lock.txt", tmp_path / "locked"
        lock.write_text(f"my-pkg==1.0 --hash=sha256:{sha256}\n", encoding="utf-8")
        common: list[str | Path] = ["--require-hashes", "--target", target, "--index-url", index.simple, "-r", lock]
        process.run([*uses_uv, sys.executable, *common])
    manifest = json.loads((target / "my_pkg" / "_torch_ext" / "manifest.json").read_text(encoding="utf-8"))
    assert [each["label"] for each in manifest["variants"]] == [OLD]
    with zipfile.ZipFile(old) as before, zipfile.ZipFile(new) as after:
        library = f"my_pkg/_torch_ext/{OLD}/libmy_ops.so"
        assert before.read(library) == after.read(library)
    assert hashlib.sha256(old.read_bytes()).hexdigest() == sha256
