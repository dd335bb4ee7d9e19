"""A package of ours as a Debian and as a conda package, made and installed by their own tools."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

import plain
import used
from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError

if TYPE_CHECKING:
    from collections.abc import Callable

    Once = Callable[[str, Callable[[Path], None]], Path]

PAGE = (Path(__file__).parent.parent.parent / "docs" / "distributors.md").read_text(encoding="utf-8")
LOADED = "torch2.8_cpu_cxx11_x86_64 42\n"
CONTROL = """
Source: my-pkg
Maintainer: Me <me@example.org>
Build-Depends: debhelper-compat (= 13)

Package: python3-my-pkg
Architecture: any
Depends: ${shlibs:Depends}, ${misc:Depends}
Description: a package of ours
"""
CHANGES = """my-pkg (1) unstable; urgency=medium

  * First.

 -- Me <me@example.org>  Sun, 29 Nov 2026 12:00:00 +0000
"""
RPATH = """
add_library(other SHARED plain.c)
target_link_options(plain PRIVATE -Wl,--no-as-needed)
target_link_libraries(plain PRIVATE other)
install(TARGETS other LIBRARY DESTINATION .)
set_target_properties(plain PROPERTIES INSTALL_RPATH "$ORIGIN")
"""
RECIPE = """
package: {name: my-pkg, version: 1}
build:
  number: NUMBER
  script:
    - mkdir -p $PREFIX/lib/site-packages
    - PYTHON -m zipfile -e WHEEL $PREFIX/lib/site-packages
"""
CONDA = """
import asyncio, os, sys
import rattler, rattler_build
folder, prefix, number = sys.argv[1:]
places = {"output_dir": f"{folder}/out", "channel": [f"file://{folder}/none"]}
rattler_build.build_recipes([f"{folder}/recipe.yaml"], test="skip", **places)
async def put():
    channel = rattler.Channel(f"file://{folder}/out")
    wanted = [f"my-pkg[build_number={number}]"]
    found = await rattler.solve([channel], wanted, platforms=["linux-64", "noarch"], virtual_packages=[])
    await rattler.install(found, prefix, cache_dir=f"{folder}/cache", show_progress=False)
asyncio.run(put())
os._exit(0)  # threads of the libraries can abort a Python that ends by itself
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.uname().machine != "x86_64", reason="the labels of x86-64")]


@pytest.fixture(scope="module")
def wheel(once: Once) -> Path:
    """Return a wheel with a variant for torch 2.8, of a library that has an RPATH."""

    def make(folder: Path) -> None:
        plain.make_wheels(folder / "wheels", ["2.8.0+cpu"])
        files = {"src/my_pkg/__init__.py": used.INIT, "csrc/CMakeLists.txt": f"{plain.CMAKE}{RPATH}"}
        done = plain.Project(folder / "project", folder, releases=("2.8",), files=files).build(str(folder / "dist"))
        assert done.returncode == 0, done.stderr

    (path,) = (once("distributors-packages", make) / "dist").glob("*.whl")
    return path


def block(kind: str) -> str:
    """Return the only block of the page of that kind."""
    (found,) = re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL)
    return str(found)


def checked(user: used.User, site: Path) -> None:
    """Check that what is installed in ``site`` loads, and that ``--check`` and doctor find nothing."""
    path = str(site)
    done = user.load(PYTHONPATH=path)
    assert (done.stdout, done.stderr) == (LOADED, "")
    assert user.run("-m", "my_pkg._variants", "--check", PYTHONPATH=path).returncode == 0
    said = process.run(
        [sys.executable, "-m", "hatch_torch_ext", "doctor", "--python", user.python, "my-pkg"],
        env_changes={"PYTHONPATH": path, "TORCH_EXT_CUDA_DRIVER": "none"},
        check=False,
    )
    assert "problem" not in said.stdout, said.stdout


def test_debian(wheel: Path, tmp_path: Path) -> None:
    """dh_strip rewrites the libraries; the package installs, loads and is checked with nothing typed."""
    if missing := [each for each in ("dpkg-buildpackage", "dh_strip", "strip") if shutil.which(each) is None]:
        pytest.skip(f"{', '.join(missing)}: not on this machine")
    source, root = tmp_path / "source", tmp_path / "root"
    rules = block("make")
    plain.write(source, {"debian/control": CONTROL.lstrip(), "debian/changelog": CHANGES, "debian/rules": rules})
    (source / "debian" / "rules").chmod(0o755)
    shutil.copy(wheel, source)
    process.run(["dpkg-buildpackage", "-b", "-us", "-uc"], cwd=source)
    (package,) = tmp_path.glob("python3-my-pkg_1_*.deb")
    plain.write(root, {"var/lib/dpkg/status": "", "var/lib/dpkg/info/format": "1\n", "var/lib/dpkg/updates/none": ""})
    (root / "var/lib/dpkg/updates/none").unlink()
    process.run(["dpkg", f"--root={root}", "--force-depends", "--force-not-root", "-i", package])
    user = used.User(tmp_path / "user", "2.8.0+cpu", builder=False)
    checked(user, root / "usr/lib/python3/dist-packages")


def test_conda(wheel: Path, tmp_path: Path) -> None:
    """The option of the page keeps the libraries as they are; without it the RPATH changes, and `--renew` is typed."""
    (tmp_path / "none" / "noarch").mkdir(parents=True)
    (tmp_path / "none" / "linux-64").mkdir()
    for folder in ("noarch", "linux-64"):
        head = f'{{"info": {{"subdir": "{folder}"}}, "packages": {{}}, "packages.conda": {{}}}}'
        (tmp_path / "none" / folder / "repodata.json").write_text(head)
    user = used.User(tmp_path / "user", "2.8.0+cpu", builder=False)

    def installed(number: int, more: str) -> Path:
        recipe = RECIPE.replace("NUMBER", str(number)).replace("PYTHON", sys.executable).replace("WHEEL", str(wheel))
        (tmp_path / "recipe.yaml").write_text(recipe + more)
        tools = ["--with", "py-rattler", "--with", "py-rattler-build"]
        options = ["--quiet", "--no-project", "--no-config", "--python", sys.executable, *tools]
        program = [uv.find_uv_bin(), "run", *options]
        prefix = tmp_path / f"prefix{number}"
        try:
            process.run([*program, "python", "-W", "ignore", "-c", CONDA, tmp_path, prefix, str(number)])
        except ProcessError as error:
            if "No solution found" in str(error) or "Failed to fetch" in str(error):
                pytest.skip("the index has no rattler-build")
            raise
        return prefix / "lib" / "site-packages"

    checked(user, installed(1, block("yaml").removeprefix("build:\n")))
    site = installed(2, "")
    assert "was changed after it was built" in user.load(PYTHONPATH=str(site)).stderr
    assert user.run("-m", "my_pkg._variants", "--renew", PYTHONPATH=str(site)).returncode == 0
    checked(user, site)
