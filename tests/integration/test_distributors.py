"""Installed files that were stripped, patched or cut short by whoever packages them again."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import uv

import loaders
import plain
import used
from hatch_torch_ext.base import process
from hatch_torch_ext.facts import content
from hatch_torch_ext.facts.variant import BuildRecord, FileKind, Variant, VariantFile
from hatch_torch_ext.values import Layout, PlacedVariant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Once = Callable[[str, Callable[[Path], None]], Path]

LABEL = "torch2.8_cpu_cxx11_x86_64"
LOADED = f"{LABEL} 42\n"
WAYS = {
    "strip": ["strip"],
    "dh_strip": ["strip", "--remove-section=.comment", "--remove-section=.note", "--strip-unneeded"],
    "a debug link": ["objcopy", "--add-gnu-debuglink=/etc/hostname"],
}


@pytest.fixture(scope="session")
def wheel(once: Once) -> Path:
    """Return a wheel with a variant for torch 2.8."""

    def make(folder: Path) -> None:
        plain.make_wheels(folder / "wheels", ["2.8.0+cpu"])
        files = {"src/my_pkg/__init__.py": used.INIT}
        done = plain.Project(folder / "project", folder, releases=("2.8",), files=files).build(str(folder / "dist"))
        assert done.returncode == 0, done.stderr

    (path,) = (once("distributors", make) / "dist").glob("*.whl")
    return path


@pytest.fixture
def user(tmp_path: Path, wheel: Path) -> used.User:
    """Return an environment with torch 2.8 and that wheel."""
    made = used.User(tmp_path, "2.8.0+cpu", builder=False)
    made.install(wheel)
    return made


def library(user: used.User) -> Path:
    """Return the library of the variant, a copy that the installer's cache does not share."""
    (path,) = user.site.glob("my_pkg/_torch_ext/**/libplain.so")
    copied = path.with_name("copy")
    shutil.copy(path, copied)
    copied.replace(path)
    path.chmod(0o755)
    return path


def test_a_file_without_its_symbols_is_loaded(user: used.User) -> None:
    """Case 78: what strip, dh_strip and objcopy leave is what was built but for symbols; `--check` accepts it too."""
    path = library(user)
    built = path.read_bytes()
    for way, command in WAYS.items():
        path.write_bytes(built)
        process.run([*command, path])
        assert way == "strip" or path.read_bytes() != built  # the build has stripped it
        done = user.load()
        assert (done.stdout, done.stderr) == (LOADED, ""), way
        assert user.run("-m", "my_pkg._variants", "--check").returncode == 0
    assert user.run("-m", "my_pkg._variants", "--renew").stdout.splitlines()[0] == (
        "my_pkg: the checks of these files are renewed:"
    )


@pytest.mark.performs("If that was meant (patchelf, objcopy): {}. If not, repair it: {}")
def test_a_patched_file_is_renewed_by_the_command_of_the_error(user: used.User) -> None:
    """Case 78: the error says changed, not damaged; after `--renew` it loads, and an uninstall leaves nothing."""
    path = library(user)
    process.run(["patchelf", "--set-rpath", "/opt/a-folder-of-the-distributor/lib", path])
    done = user.load()
    assert f"{path} was changed after it was built (sha256 " in done.stderr
    command = done.stderr.partition("(patchelf, objcopy): ")[2].partition(". If not, repair it: ")[0]
    assert command == "python -m my_pkg._variants --renew"
    _, *arguments = shlex.split(command)
    renewed = user.run(*arguments)
    head, line = renewed.stdout.splitlines()
    assert head == "my_pkg: the checks of these files are renewed:"
    assert ": its content (" in line
    assert user.load().stdout == LOADED
    assert user.run("-m", "my_pkg._variants", "--check").returncode == 0
    path.write_bytes(path.read_bytes().replace(b"of-the-distributor", b"of-somebody-else.."))
    assert "was changed after it was built" in user.load().stderr
    process.run([uv.find_uv_bin(), "pip", "uninstall", "--quiet", "--python", user.python, "my-pkg"])
    assert not (user.site / "my_pkg").exists()


@pytest.mark.performs("is cut short or damaged. Repair it")
def test_a_file_that_is_cut_short_is_refused(user: used.User) -> None:
    """Neither load() nor `--renew` takes it; reinstalled, it loads."""
    path = library(user)
    built = path.read_bytes()
    path.write_bytes(built[:-100])
    assert f"{path} is damaged (sha256 " in user.load().stderr
    refused = user.run("-m", "my_pkg._variants", "--renew")
    assert (refused.returncode, "is cut short or damaged. Repair it: " in refused.stderr) == (1, True)
    path.write_bytes(built)
    assert user.load().stdout == LOADED
    assert user.run("-m", "my_pkg._variants", "--renew").stdout == "my_pkg: every file is as it was built\n"


RECORD = BuildRecord(entry="e", variables=(), torch_version="", python="", sdk="", compiler="", cmake="")


def described(path: Path, kind: FileKind) -> VariantFile:
    """Describe a file as the build does."""
    return VariantFile(
        path=f"it/{path.name}",
        kind=kind,
        sha256=content.sha256(path),
        size=path.stat().st_size,
        ends=content.ends(path),
        registers=kind == "library",
        installed=path.name,
    )


def package(site: Path, vendor: Path, *named: str) -> None:
    """Install a package with a library and a program that need one of another wheel, whose folder is ``vendor``.

    ``named`` are the linker's options that give that library a SONAME.
    """
    folder = site / "my_pkg" / "_torch_ext" / "it"
    folder.mkdir(parents=True)
    vendor.mkdir(parents=True)
    compiler = ["gcc", "-x", "c", "-"]
    links = [f"-L{vendor}", "-lvendor", "-Wl,--no-as-needed"]
    for source, options, name in (
        ("int seven(void) { return 7; }", ["-shared", "-o", vendor / "libvendor.so", *named], ""),
        ("int seven(void); int f(void) { return seven(); }", ["-shared", "-fPIC", "-o", folder / "libops.so"], "lib"),
        ("int seven(void); int main(void) { return seven() - 7; }", ["-o", folder / "tool"], "program"),
    ):
        command: list[str | Path] = [*compiler, *options, *(links if name else [])]  # type: ignore[list-item]
        subprocess.run(command, input=source, text=True, check=True)
    files = (described(folder / "libops.so", "library"), described(folder / "tool", "program"))
    variant = Variant(
        label="it", torch="2.8", stable_abi=False, backend="cpu", cuda=None, cxx11_abi=True, python=None,
        machine=os.uname().machine, libc="glibc", libc_floor="2.17", policy="", archs=(), files=files, build=RECORD,
    )  # fmt: skip
    placed = (PlacedVariant(variant=variant, places=()),)
    layout = Layout(package="my_pkg", variants=placed, files=(), tag="", requires="", manifest="")
    loaders.write(site / "my_pkg", layout, distribution="my-pkg")
    (site / "my_pkg" / "__init__.py").write_text("from my_pkg import _variants\n_variants.load()\n", encoding="utf-8")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text(used.TORCH, encoding="utf-8")
    (site / "torch" / "version.py").write_text("__version__ = '2.8.0'\ncuda = hip = None\n", encoding="utf-8")


def environ(*path: Path) -> dict[str, str]:
    """Return the variables of a process with these entries on its sys.path."""
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(map(str, path))}


def run(environ: dict[str, str], *arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a program, which may fail."""
    return subprocess.run([*arguments], env={**environ, **changes}, check=False, capture_output=True, text=True)


def test_a_library_on_another_entry_of_the_path_is_opened_first(tmp_path: Path) -> None:
    """Case 77: the library of another wheel is found on sys.path, and what that one needs in the same folder too."""
    site, folder = tmp_path / "site", tmp_path / "other" / "vendor" / "lib"
    package(site, folder, "-Wl,-soname,libvendor.so")
    path = environ(site, tmp_path / "other")
    assert run(path, sys.executable, "-c", "import my_pkg").stderr == ""
    base: list[str | Path] = ["gcc", "-shared", "-x", "c", "-", "-o", folder / "libbase.so", "-Wl,-soname,libbase.so"]
    subprocess.run(base, input="int base(void) { return 7; }", text=True, check=True)
    process.run(["patchelf", "--add-needed", "libbase.so", folder / "libvendor.so"])
    assert run(path, sys.executable, "-c", "import my_pkg").stderr == ""
    (folder / "libbase.so").unlink()
    assert "libvendor.so: cannot open shared object file" in run(path, sys.executable, "-c", "import my_pkg").stderr


@pytest.mark.performs("the process with LD_LIBRARY_PATH", "Start it with LD_LIBRARY_PATH")
def test_a_library_that_cannot_be_opened_first_is_named_with_the_way_out(tmp_path: Path) -> None:
    """Case 77: for one without a SONAME, and for a program, the error names the folder; started with it, both work."""
    site, folder = tmp_path / "site", tmp_path / "other" / "vendor" / "lib"
    package(site, folder)
    path = environ(site, tmp_path / "other")
    failed = run(path, sys.executable, "-c", "import my_pkg")
    assert f"It is in {folder}, on another entry of sys.path than this package" in failed.stderr
    name, _, value = failed.stderr.strip().rpartition(" ")[2].partition("=")
    assert run(path, sys.executable, "-c", "import my_pkg", **{name: value}).returncode == 0
    tool = site / "my_pkg" / "_torch_ext" / "it" / "tool"
    assert run(path, tool).returncode == 127
    checked = run(path, sys.executable, "-m", "my_pkg._variants", "--check")
    assert f"the program {tool} does not find libvendor.so" in checked.stderr
    reported = json.loads(run(path, sys.executable, "-m", "my_pkg._variants", "--json").stdout)
    assert (reported["problems"], reported["damaged"]) == ([checked.stderr.strip()], False)
    name, _, value = checked.stderr.strip().rpartition(" ")[2].partition("=")
    assert run(path, tool, **{name: value}).returncode == 0
    assert run(path, sys.executable, "-m", "my_pkg._variants", "--check", **{name: value}).returncode == 0
