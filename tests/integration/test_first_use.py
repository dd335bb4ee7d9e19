"""A build at first use: plain C, a tiny torch, real processes, the real builder."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import pytest
import uv

import plain
import used
import warm
from hatch_torch_ext import audit
from hatch_torch_ext.base import process
from hatch_torch_ext.outlets import exact
from hatch_torch_ext.user import builtcache
from merged import merge_wheels
from trees import program

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    Once = Callable[[str, Callable[[Path], None]], Path]

LABEL = "torch2.13_cpu_cxx11_x86_64"
LOADED = f"{LABEL} 42\n"
BUILT = "my_pkg: no compiled variant fits torch 2.13.0+cpu: one is built, once"


@pytest.fixture(scope="session")
def shared(once: Once) -> Path:
    """Return a folder with tiny wheels of torch 2.8 and 2.9."""
    return used.shared(once)


@pytest.fixture(scope="session")
def wheel(once: Once) -> Path:
    """Return a wheel with a variant for torch 2.8, and its sources."""
    return used.wheel(once)


@pytest.fixture
def user(tmp_path: Path, wheel: Path) -> used.User:
    """Return an environment with torch 2.13 and that wheel, which has nothing for it."""
    made = used.User(tmp_path)
    made.install(wheel)
    return made


def last_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what the error of a failed import says."""
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.partition("ImportError: ")[2].splitlines()


def views(user: used.User) -> list[Path]:
    """Return what the user's cache shows to loaders."""
    return sorted((user.cache / "views").glob("*"))


BUILD_IT = "Build it for this torch, once (TORCH_EXT_BUILD=1 does so at import); that takes a C++ compiler:"


@pytest.mark.performs("Build it for this torch, once")
def test_a_build_is_offered_before_another_torch_and_the_command_builds(user: used.User) -> None:
    """Nothing is built unasked; the command of the error builds once, and every later import loads that build."""
    lines = last_lines(user.load())
    assert lines[0] == "my_pkg: none of its compiled variants (1) fits here."
    start = lines.index(BUILD_IT)
    assert lines[start + 1 : start + 3] == [
        "  python -m my_pkg._variants --build",
        "Or install a torch that it was built for:",
    ]
    assert not user.cache.exists()
    _, *arguments = lines[start + 1].split()
    done = user.run(*arguments)
    assert (done.returncode, done.stdout) == (0, f"{LABEL} is built, and loaded from now on\n"), done.stderr
    loaded = user.load()
    assert (loaded.stdout, loaded.stderr) == (LOADED, "")
    assert user.run(*arguments).stdout == f"{LABEL} was built here: nothing is to be built\n"
    explained = user.run("-m", "my_pkg._variants").stdout.splitlines()
    assert explained[1:] == [
        "  torch2.8_cpu_cxx11_x86_64: rejected: built for torch 2.8, found 2.13.0+cpu",
        f"  {LABEL}: chosen, built here",
    ]
    whole = "is whole, but load() opens nothing of it: no file registers an operator or a class"
    assert user.run("-m", "my_pkg._variants", "--check").stdout == f"{LABEL} {whole}\n"
    assert "forbidden by TORCH_EXT_BUILD=0" in last_lines(user.load(TORCH_EXT_BUILD="0"))[-1]


@pytest.mark.parametrize("variable", ["TORCH_EXT_BUILD", "MY_PKG_TORCH_EXT_BUILD"])
def test_a_variable_allows_it_at_import(user: used.User, variable: str) -> None:
    """Progress is seen, and the cache holds what the loader needs; site-packages stay as they were."""
    before = sorted(user.site.rglob("*"))
    done = user.load(**{variable: "1"})
    assert done.stdout == LOADED
    said = done.stderr.splitlines()
    assert said[:2] == [BUILT, f"my_pkg: building for torch 2.13.0+cpu, in {user.cache}"]
    assert "my_pkg: compile ..." in said
    assert [path for path in sorted(user.site.rglob("*")) if "__pycache__" not in path.parts] == [
        path for path in before if "__pycache__" not in path.parts
    ]
    listed = user.run("-m", "my_pkg._variants", "--cache").stdout.splitlines()
    assert listed == [str(user.cache), f"  {LABEL}, for {user.site}/torch"]
    assert user.run("-m", "my_pkg._variants", "--clear-cache").stdout == f"removed 2 from {user.cache}\n"
    assert last_lines(user.load())[0] == "my_pkg: none of its compiled variants (1) fits here."


def test_a_variant_that_fits_goes_first(user: used.User) -> None:
    """Nothing is built, and the cache is not even made."""
    user.set_torch("2.8.0+cpu")
    done = user.load(TORCH_EXT_BUILD="1")
    assert (done.stdout, done.stderr) == ("torch2.8_cpu_cxx11_x86_64 42\n", "")
    assert not user.cache.exists()


@pytest.mark.performs("pip install -U {}")
def test_a_newer_release_that_serves_it(tmp_path: Path, shared: Path) -> None:
    """The command of the error, unchanged, takes the release that has a variant for this torch."""
    text = plain.PROJECT.format(releases='"2.8"')
    user = used.User(tmp_path, "2.9.0+cpu", builder=False)
    for version, more in ("1", ""), ("2", '"2.9", '):
        page = text.replace('version = "1"', f'version = "{version}"').replace("torch = [", f"torch = [{more}")
        project = used.project(tmp_path / version, shared, files={"pyproject.toml": page})
        done = project.build(str(tmp_path / "dist"))
        assert done.returncode == 0, done.stderr
    user.install(next((tmp_path / "dist").glob("my_pkg-1-*.whl")))
    lines = last_lines(user.load())
    command = lines[lines.index("or a newer release, if there is one:") + 1]
    assert command == "  pip install -U my-pkg"
    links: list[str | Path] = ["--no-index", "--find-links", tmp_path / "dist", "--no-deps"]
    process.run([uv.find_uv_bin(), *command.split(), "-q", "--python", user.python, *links])
    assert user.load().stdout == "torch2.9_cpu_cxx11_x86_64 42\n"


@pytest.mark.performs("put `_variants.load()` into a `try`")
def test_a_package_that_goes_on_without_a_variant(tmp_path: Path, shared: Path) -> None:
    """As ``init`` says where setup.py builds nothing without CUDA: the rest of the package is there for any torch."""
    tried = "\ntry:\n    choice = _variants.load()\nexcept ImportError:\n    choice = None\n"
    init = used.INIT.replace("\nchoice = _variants.load()\n", tried)
    text = plain.PROJECT.format(releases='"2.8"')
    project = used.project(tmp_path / "p", shared, files={"pyproject.toml": text, "src/my_pkg/__init__.py": init})
    done = project.build(str(tmp_path / "dist"))
    assert done.returncode == 0, done.stderr
    for torch, there in ("2.8.0+cpu", "True"), ("2.13.0+cpu", "False"):
        user = used.User(tmp_path / torch, torch, builder=False)
        user.install(project.wheel(str(tmp_path / "dist")))
        assert user.run("-c", "import my_pkg; print(bool(my_pkg.choice))").stdout == f"{there}\n"


def test_what_the_wheel_holds_is_what_the_sdist_has(wheel: Path) -> None:
    """Sources and loader; the audit takes them for what they are; users are offered the builder as an extra."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/sources/" in name]
        assert names == ["my_pkg/_torch_ext/sources/csrc/CMakeLists.txt", "my_pkg/_torch_ext/sources/csrc/plain.c"]
        assert {"my_pkg/_torch_ext/build.py", "my_pkg/_torch_ext/help.py"} <= set(archive.namelist())
        metadata = archive.read("my_pkg-1.dist-info/METADATA").decode().splitlines()
        fallback = json.loads(archive.read("my_pkg/_torch_ext/manifest.json"))["fallback"]
    assert [line for line in metadata if line.startswith(("Requires-Dist", "Provides-Extra"))] == [
        "Requires-Dist: torch>=2.8",
        "Provides-Extra: build",
        "Requires-Dist: hatch-torch-ext[build]>=0.1.0; extra == 'build'",
    ]
    assert fallback["env_vars"] == [["CFLAGS", "-DANSWER=42"]]
    assert (fallback["source"], fallback["default"]) == ("csrc", False)
    assert [finding for finding in audit.audit_wheel(wheel) if finding.code != "never-loaded"] == []


def test_the_metadata_hook_offers_the_extra_in_the_sdist_too(tmp_path: Path, shared: Path) -> None:
    """Where the project leaves its extras to the hook, or has some, the metadata of sdist and wheel are the same."""
    for number, extras in enumerate(('dynamic = ["dependencies", "optional-dependencies"]', OWN_EXTRA)):
        text = used.PYPROJECT.format(releases='"2.8"').replace('version = "1"\n', f'version = "1"\n{extras}\n')
        text += "[tool.hatch.metadata.hooks.torch-ext]\n"
        project = used.project(tmp_path / str(number), shared, files={"pyproject.toml": text})
        command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path / "dist")]
        warm.run(command, cwd=project.root)
        done = project.build(str(tmp_path / "dist"))
        assert done.returncode == 0, done.stderr
        with tarfile.open(next((tmp_path / "dist").glob("*.tar.gz"))) as sdist:
            told = sdist.extractfile("my_pkg-1/PKG-INFO")
            assert told is not None
            of_sdist = told.read()
        with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as archive:
            assert archive.read("my_pkg-1.dist-info/METADATA") == of_sdist
        assert b"Requires-Dist: hatch-torch-ext[build]>=0.1.0; extra == 'build'" in of_sdist.splitlines()


OWN_EXTRA = """
dynamic = ["dependencies"]
[project.optional-dependencies]
plot = ["matplotlib"]
"""


@pytest.mark.performs("add it there")
def test_an_extra_of_the_authors_own_without_the_builder(tmp_path: Path, shared: Path) -> None:
    """It is named, with what it lacks; with that requirement in it, there is nothing to say."""
    extra = '[project.optional-dependencies]\nbuild = ["ninja"]\n[tool.hatch.build.targets.wheel.hooks'
    text = used.PYPROJECT.format(releases='"2.8"').replace("[tool.hatch.build.targets.wheel.hooks", extra, 1)
    project = used.project(tmp_path, shared, files={"pyproject.toml": text})
    said = " ".join(project.build().stderr.split())
    assert "to install the extra `build`, and yours lacks hatch-torch-ext: add it there" in said
    mended = text.replace('["ninja"]', '["ninja", "hatch-torch-ext"]')
    (project.root / "pyproject.toml").write_text(mended, encoding="utf-8")
    done = project.build()
    assert done.returncode == 0, done.stderr
    assert "to install the extra `build`" not in " ".join(done.stderr.split())


@pytest.mark.performs("Type: {}", 'pip install "{}[build]"')
def test_without_the_builder_the_error_says_how_to_install_it(tmp_path: Path, wheel: Path, wheelhouse: Path) -> None:
    """The command of the error, unchanged, installs the builder and not torch, and the build works."""
    user = used.User(tmp_path, builder=False)
    user.install(wheel)
    lines = last_lines(user.load())
    start = lines.index(BUILD_IT)
    commands = ['  pip install "my-pkg[build]"', "  python -m my_pkg._variants --build"]
    assert lines[start + 1 : start + 3] == commands
    lines = last_lines(user.load(TORCH_EXT_BUILD="1"))
    assert lines == [
        "my_pkg: no compiled variant fits, and none can be built for torch 2.13.0+cpu: "
        "hatch-torch-ext[build] is not installed here. Type:",
        '  pip install "my-pkg[build]"',
    ]
    links: list[str | Path] = ["--find-links", wheelhouse, "--find-links", wheel.parent]
    process.run([uv.find_uv_bin(), "pip", "install", "-q", "--python", user.python, *links, "my-pkg[build]"])
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED


@pytest.mark.performs("Build it by the Python")
def test_a_program_that_is_no_python_builds_nothing(user: used.User) -> None:
    """It would start itself, again and again. Python, from a shell, builds what a program loads that embeds it.

    What a frozen program needs is built where that is made (test_install_here types the command).
    """
    frozen = "import sys; sys.frozen = True; sys._MEIPASS = ''; import my_pkg"
    embedded = "import sys; sys.executable = '/usr/bin/uwsgi'; import my_pkg; print(*my_pkg.load())"
    of_frozen = [
        "This program cannot build it. Install a variant for this torch where it is made, and make it again:",
        "  pip install --force-reinstall --no-deps --no-cache-dir --no-binary my-pkg my-pkg",
    ]
    of_embedded = [
        "This program, which embeds Python, cannot build it. Build it by the Python of its environment:",
        "  python -m my_pkg._variants --build",
    ]
    for start, lines in (frozen, of_frozen), (embedded, of_embedded):
        for wish in "1", "":
            said = last_lines(user.run("-c", start, TORCH_EXT_BUILD=wish))
            at = said.index(lines[0])
            assert said[at : at + 2] == lines
    assert user.run(*of_embedded[1].split()[1:]).returncode == 0
    assert user.run("-c", embedded).stdout == LOADED


@pytest.mark.performs("unless needed, or")
def test_the_linkers_error_is_seen_and_its_output_kept(user: used.User) -> None:
    """The first error is in the ImportError, and the file that it names holds all; without the flag it builds."""
    said = "\n".join(last_lines(user.load(TORCH_EXT_BUILD="1", LDFLAGS="-lgone")))
    assert "cannot find -lgone" in said
    (log,) = (user.cache / "failed").iterdir()
    assert str(log) in said
    assert "cannot find -lgone" in log.read_text()
    assert f"Unset LDFLAGS unless needed, or tell the authors of my-pkg; the whole log is {log}" in said.splitlines()
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED


def test_words_of_users(user: used.User) -> None:
    """A value that means no forbids a build; an invalid number of jobs is reported by the user's variable."""
    assert last_lines(user.load(TORCH_EXT_BUILD="False"))[-1] == (
        "(A build for this torch is forbidden by TORCH_EXT_BUILD=False.)"
    )
    lines = last_lines(user.load(TORCH_EXT_BUILD="1", MAX_JOBS="all"))
    assert lines[1] == "Environment variable `MAX_JOBS` must be a whole number of at least 1, not `all`"
    lines = last_lines(user.load(TORCH_EXT_BUILD="1", MAX_JOBS="²"))  # a digit to Python, and no number
    assert lines[1] == "Environment variable `MAX_JOBS` must be a whole number of at least 1, not `²`"


@pytest.mark.slow
def test_streams_and_folders_that_are_odd(user: used.User) -> None:
    """Messages that the streams' encoding lacks letters for, "~" in the cache's name, a current folder that is gone."""
    program = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); import my_pkg; print(*my_pkg.load())"
    home = user.root / "größe mit Leerzeichen"
    done = user.run(
        "-c",
        program,
        HOME=str(home),
        PYTHONIOENCODING="ascii",
        TORCH_EXT_BUILD="1",
        TORCH_EXT_BUILD_CACHE="~/cache",
    )
    assert done.stdout == LOADED, done.stderr
    assert (home / "cache" / "views").is_dir()


def paused_build(user: used.User) -> subprocess.Popen[str]:
    """Start a build at import, and return when it waits in the middle, as the variable PAUSE lets it."""
    paused = user.root / "paused"
    started = user.start("-c", "import my_pkg", TORCH_EXT_BUILD="1", PAUSE=str(paused))
    deadline = time.monotonic() + 60
    while not paused.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return started


@pytest.mark.slow
def test_ctrl_c_ends_the_builder_too(user: used.User) -> None:
    """A signal that one process got, as a notebook's kernel does: its builder ends at once, and says nothing more."""
    started = paused_build(user)
    os.kill(started.pid, signal.SIGINT)
    _, said = started.communicate(timeout=50)  # the builder holds stderr, and would go on for 60 s
    assert said.count("Traceback") == 1, said


@pytest.mark.performs("Repair it: ", "pip install --force-reinstall", "pip install --force-reinstall --no-deps {}")
def test_sources_that_were_changed_are_not_compiled(user: used.User, wheel: Path) -> None:
    """The command of the error restores them."""
    source = user.site / "my_pkg" / "_torch_ext" / "sources" / "csrc" / "plain.c"
    source.unlink()  # uv's cache has it, too
    source.write_text("int answer(void);\n", encoding="utf-8")
    lines = last_lines(user.load(TORCH_EXT_BUILD="1"))
    command = "pip install --force-reinstall --no-deps my-pkg"
    assert lines[1] == f"{source} is damaged or was changed: {command}"
    links: list[str | Path] = ["--no-index", "--find-links", wheel.parent, "--python", user.python]
    process.run([uv.find_uv_bin(), *command.split(), *links])
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED


@pytest.mark.slow
def test_without_a_compiler_what_was_built_is_loaded_else_the_error_says_what_to_install(user: used.User) -> None:
    """An image is built with a compiler and run without one; where nothing was built, a compiler is named."""
    nothing = user.root / "nothing"
    nothing.mkdir()
    said = "\n".join(last_lines(user.load(TORCH_EXT_BUILD="1", PATH=str(nothing), CXX=None)))
    assert "no C++ compiler was found (looked for c++, g++, clang++ on PATH). Install one: `" in said
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    assert user.load(PATH=str(nothing)).stdout == LOADED


@pytest.mark.slow
def test_another_compiler_or_torch_is_another_build(user: used.User) -> None:
    """The exact torch, its git hash and the flags tell builds apart; all of them stay in one cache."""
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    user.set_torch("2.12.0+cpu")
    assert user.load(TORCH_EXT_BUILD="1").stdout == "torch2.12_cpu_cxx11_x86_64 42\n"
    user.set_torch("2.13.0+cpu", git="another")
    assert user.load().returncode == 1
    user.set_torch("2.13.0+cpu")
    assert user.load().stdout == LOADED
    assert user.load(CXXFLAGS="-O0").returncode == 1
    assert len(views(user)) == len(list((user.cache / "built").iterdir())) == 2
    smaller = user.load(TORCH_EXT_BUILD="1", CXXFLAGS="-O0", TORCH_EXT_BUILD_CACHE_SIZE="1")
    assert smaller.stdout == LOADED
    assert len(views(user)) == 1
    assert user.load(CXXFLAGS="-O0").stdout == LOADED


def test_a_snapshot_of_torch_is_served(user: used.User) -> None:
    """No variant fits a nightly; one that was built for this very nightly does."""
    user.set_torch("2.14.0.dev20261101+cpu")
    assert user.load(TORCH_EXT_BUILD="1").stdout == "torch2.14_cpu_cxx11_x86_64 42\n"
    assert user.load().stdout == "torch2.14_cpu_cxx11_x86_64 42\n"


def test_environments_with_the_same_torch_share_one_build(user: used.User, wheel: Path, tmp_path: Path) -> None:
    """The second gets a view of the first one's build: nothing is compiled, and the links lead to its own torch."""
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    (tmp_path / "other").mkdir()
    other = used.User(tmp_path / "other")
    other.install(wheel)
    done = other.load(TORCH_EXT_BUILD="1", TORCH_EXT_BUILD_CACHE=str(user.cache))
    assert done.stdout == LOADED
    assert "compile ..." not in done.stderr
    assert len(list((user.cache / "built").iterdir())) == 1
    torchs = {json.loads((view / "variant.json").read_text())["torch"] for view in views(user)}
    assert torchs == {f"{user.site}/torch", f"{other.site}/torch"}


def test_twenty_processes_build_once(user: used.User) -> None:
    """One builds; the others wait, say for whom, and load the same."""
    count = user.root / "count"
    running = [
        user.start("-c", "import my_pkg; print(*my_pkg.load())", TORCH_EXT_BUILD="1", COUNT=str(count))
        for _ in range(20)
    ]
    results = [each.communicate(timeout=300) for each in running]
    assert [out for out, _ in results] == [LOADED] * 20
    assert sum("my_pkg: compile ..." in said for _, said in results) == 1
    waited = [said for _, said in results if "my_pkg: waiting for the build of my-pkg, which process " in said]
    assert waited
    assert not list((user.cache / "unfinished").iterdir())


def killed(user: used.User, after: float) -> None:
    """Kill everything of a build with SIGKILL some seconds after its start, and see the next one through."""
    started = user.start("-c", "import my_pkg", TORCH_EXT_BUILD="1")
    time.sleep(after)
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    done = user.load(TORCH_EXT_BUILD="1")
    assert done.stdout == LOADED, done.stderr
    assert "waiting" not in done.stderr
    assert user.load().stdout == LOADED
    user.run("-m", "my_pkg._variants", "--clear-cache")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_a_killed_build_holds_up_nobody(user: used.User, number: int) -> None:
    """At whatever moment it is killed, the next build starts at once and is whole."""
    killed(user, random.Random(number).uniform(0.2, 2.5))  # noqa: S311


@pytest.mark.slow
def test_a_builder_that_is_killed_alone_is_reported(user: used.User) -> None:
    """The process that waited for the builder fails with its status; the next build removes its leftovers."""
    started = paused_build(user)
    (builder,) = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    os.kill(int(builder), signal.SIGKILL)
    _, said = started.communicate(timeout=60)
    assert "the builder ended with status -9" in said
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    assert not list((user.cache / "unfinished").iterdir())


def test_a_stale_lock_file_locks_nothing(user: used.User) -> None:
    """The kernel's lock counts: the text of a process that is gone, of a machine that is gone, does not count."""
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    user.run("-m", "my_pkg._variants", "--clear-cache")
    for lock in (user.cache / "locks").iterdir():
        lock.write_text("process 4194305 (python on a machine that is gone)")
    done = user.load(TORCH_EXT_BUILD="1")
    assert (done.stdout, "waiting" in done.stderr) == (LOADED, False)


@pytest.mark.performs("Name a folder of your own")
def test_without_a_home_the_error_names_a_way_out(user: used.User) -> None:
    """No HOME, and a user without an entry in the list of users: a folder can be named, and that works.

    Only a machine with such a user has none; here the list of users is asked in vain.
    """
    program = (
        "import pwd\ndef nobody(_): raise KeyError('no such user')\npwd.getpwuid = nobody\n"
        "import my_pkg; print(*my_pkg.load())"
    )
    nowhere = {"HOME": None, "XDG_CACHE_HOME": None, "TORCH_EXT_BUILD": "1"}
    lines = last_lines(user.run("-c", program, TORCH_EXT_BUILD_CACHE=None, **nowhere))
    assert lines == [
        "my_pkg: no compiled variant fits, and none can be built for torch 2.13.0+cpu: there is no home folder for a "
        "cache (HOME is not set, or is not an absolute path). Name a folder of your own: "
        "TORCH_EXT_BUILD_CACHE=/path/to/folder"
    ]
    assert user.run("-c", program, **nowhere).stdout == LOADED


def test_where_nothing_can_be_written_the_error_names_a_way_out(user: used.User) -> None:
    """A cache on a read-only file system (here /sys) is an error; the folder that its remedy names works."""
    home = {"XDG_CACHE_HOME": "/sys/kernel", "TORCH_EXT_BUILD": "1"}
    lines = last_lines(user.load(TORCH_EXT_BUILD_CACHE=None, **home))
    assert lines[1].startswith("the cache /sys/kernel/hatch-torch-ext/first-use cannot be used: ")
    assert lines[1].endswith("Name a folder of your own, with room for it: TORCH_EXT_BUILD_CACHE=/path/to/folder")
    assert user.load(**home).stdout == LOADED


def in_namespace(user: used.User, mounts: str, **changes: str) -> process.Completed:
    """Import the package where ``mounts`` (lines of a shell, with the cache in ``$CACHE``) were done only for it."""
    if process.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("nothing may be mounted here: `unshare --mount` is refused")
    program = f"{mounts}\nexec {user.python} -c 'import my_pkg; print(*my_pkg.load())'"
    given = {"TORCH_EXT_BUILD": "1", "CACHE": str(user.cache), "TORCH_EXT_BUILD_CACHE": str(user.cache), **changes}
    command = ["unshare", "--mount", "sh", "-ec", program]
    return process.run(command, cwd=user.root, env_changes={"PYTHONPATH": None, **given}, check=False)


def test_a_cache_on_a_read_only_file_system(user: used.User) -> None:
    """What was built before it was mounted so is loaded, with no write; else the error names a way out."""
    user.cache.mkdir(mode=0o700)
    empty = in_namespace(user, 'mount -t tmpfs -o ro tmpfs "$CACHE"')
    said = empty.stderr.partition("ImportError: ")[2].splitlines()
    assert said[1] == (
        f"the cache {user.cache} cannot be used: Read-only file system ({user.cache}). Name a folder of your own, "
        "with room for it: TORCH_EXT_BUILD_CACHE=/path/to/folder"
    )
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    read_only = 'mount --bind "$CACHE" "$CACHE"\nmount -o remount,bind,ro "$CACHE"'
    filled = in_namespace(user, read_only)
    assert (filled.stdout, filled.stderr) == (LOADED, "")
    other = in_namespace(user, read_only, CXXFLAGS="-O0")
    assert "cannot be used: Read-only file system" in other.stderr


@pytest.mark.slow
def test_a_full_folder_of_temporary_files(user: used.User) -> None:
    """They go into the cache, so that only its place counts."""
    temporary = user.root / "tmp"
    temporary.mkdir()
    done = in_namespace(user, 'mount -t tmpfs -o size=4k tmpfs "$TMPDIR"\necho >"$TMPDIR/full"', TMPDIR=str(temporary))
    assert done.stdout == LOADED, done.stderr


@pytest.mark.performs("Free some space; or")
def test_a_full_disk_of_the_cache(user: used.User) -> None:
    """The error says so before anything else; with space, or in another folder, the build works."""
    user.cache.mkdir(mode=0o700)
    full = 'mount -t tmpfs -o size={},mode=700 tmpfs "$CACHE"'
    said = in_namespace(user, full.format("64k")).stderr.partition("ImportError: ")[2].splitlines()
    assert said[1].startswith("the disk is full: No space left on device (")
    assert said[1].endswith("Free some space; or another folder for the cache. " + builtcache.ELSEWHERE)
    for mounts, cache in ((full.format("64m"), user.cache), (full.format("64k"), user.root / "other")):
        done = in_namespace(user, mounts, TORCH_EXT_BUILD_CACHE=str(cache))
        assert done.stdout == LOADED, done.stderr


def test_a_cache_whose_files_cannot_be_executed(user: used.User) -> None:
    """Said before anything is compiled, with a way out."""
    user.cache.mkdir(mode=0o700)
    done = in_namespace(user, 'mount -t tmpfs -o noexec,mode=700 tmpfs "$CACHE"')
    assert f"the cache {user.cache} is on a file system mounted `noexec`" in done.stderr
    assert "TORCH_EXT_BUILD_CACHE=/path/to/folder" in done.stderr
    assert "building for torch" not in done.stderr


SOMEBODY = 41234
"""A user who runs nothing else, so that these processes can be counted."""


def files(package: str) -> Path:
    """Return the folder of a package that the tests have."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run something as a user who runs nothing else")
def test_a_limit_of_processes_is_reported(wheel: Path) -> None:
    """Wherever the next process or thread is refused, the error names the limit; without one, it builds."""
    readable = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    somebody = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", *readable]
    with tempfile.TemporaryDirectory() as name:  # only root may enter pytest's own folders
        user = used.User(Path(name))
        user.install(wheel)
        # access(2) asks for the real user, who cannot look into the HOME that this environment may be in.
        shutil.copytree(files("cmake") / "data", user.root / "cmake")
        (user.python.parent / "cmake").symlink_to(user.root / "cmake" / "bin" / "cmake")
        for tool in ("ninja", "patchelf"):
            shutil.copy(program(tool), user.python.parent)
        os.chown(user.root, SOMEBODY, SOMEBODY)
        environ = {"TORCH_EXT_BUILD": "1", "TORCH_EXT_BUILD_CACHE": str(user.cache), "PYTHONPATH": None}

        def load(*limited: str) -> process.Completed:
            command = [*limited, *somebody, str(user.python), "-c", "import my_pkg; print(*my_pkg.load())"]
            return process.run(command, cwd=user.root, env_changes=environ, check=False)

        for limit in ("1", "2", "4", "9"):
            done = load("prlimit", f"--nproc={limit}")
            said = done.stderr.partition("ImportError: ")[2]
            assert (done.returncode, "ulimit -u" in said) == (1, True), done.stderr
            assert done.stderr.count("Traceback") == 1, done.stderr
        done = load()
        assert done.stdout == LOADED, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_cache_of_another_user_is_refused(user: used.User) -> None:
    """Neither is anything loaded from it nor built in it; a folder of this user works."""
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    for path in [user.cache, *user.cache.rglob("*")]:
        os.chown(path, 4321, 4321, follow_symlinks=False)
    assert last_lines(user.load())[0] == "my_pkg: none of its compiled variants (1) fits here."
    lines = last_lines(user.load(TORCH_EXT_BUILD="1"))
    assert "it belongs to another user (uid 4321)" in lines[1]
    assert user.load(TORCH_EXT_BUILD="1", TORCH_EXT_BUILD_CACHE=str(user.root / "own")).stdout == LOADED


@pytest.mark.slow
def test_a_view_that_others_can_write_is_made_anew(user: used.User) -> None:
    """What others may have written is not loaded."""
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    (view,) = views(user)
    (view / "variant.json").chmod(0o666)
    assert user.load().returncode == 1
    (library,) = view.rglob("libplain.so")
    (view / "variant.json").chmod(0o644)
    library.unlink()
    library.write_bytes(b"cut off")
    assert user.load().returncode == 1
    done = user.load(TORCH_EXT_BUILD="1")
    assert (done.stdout, "compile ..." in done.stderr) == (LOADED, False)


def test_the_cache_is_where_platformdirs_has_it(user: used.User) -> None:
    """The loader has the rule without the library."""
    home = {"HOME": str(user.root / "home"), "XDG_CACHE_HOME": None, "TORCH_EXT_BUILD_CACHE": None}
    said = user.run("-m", "my_pkg._variants", "--cache", **home).stdout
    program = "import platformdirs; print(platformdirs.user_cache_path('hatch-torch-ext', appauthor=False))"
    told = user.run("-c", program, **home).stdout
    assert said.strip() == f"{told.strip()}/first-use"
    assert platformdirs.user_cache_path("hatch-torch-ext", appauthor=False).name == "hatch-torch-ext"


def test_the_builder_imports_nothing_of_hatch() -> None:
    """Users have a builder, not the tools of authors, in their process."""
    program = (
        "import sys\nfrom hatch_torch_ext.user import first_use, machine\n"
        "from hatch_torch_ext import pipeline, config, elf, toolchain\nfrom hatch_torch_ext.sdk import environment\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'hatch', 'hatchling'}))"
    )
    assert process.run([sys.executable, "-c", program]).stdout == "[]\n"


@pytest.mark.performs("Install torch", "pip install torch")
def test_a_package_without_a_matrix_is_always_built_at_first_use(tmp_path: Path, shared: Path) -> None:
    """No environment at all: the wheel is for any machine, holds only sources, and needs no permission."""
    text = used.PYPROJECT.format(releases="").partition("[tool.hatch.envs.matrix]")[0]
    source = '[tool.hatch.build.targets.wheel.hooks.torch-ext]\ncmake.define = { CMAKE_C_FLAGS = "-DANSWER=42" }\n'
    text = text.replace("[tool.hatch.build.targets.wheel.hooks.torch-ext]\n", source)
    project = used.project(tmp_path / "project", shared, files={"pyproject.toml": text})
    done = project.build()
    assert done.returncode == 0, done.stderr
    assert project.wheel().name == "my_pkg-1-py3-none-any.whl"
    user = used.User(tmp_path)
    user.install(project.wheel())
    lines = last_lines(user.load(TORCH_EXT_BUILD="0"))
    assert lines[0] == "my_pkg: it holds no compiled variant, only the sources of one."
    said = json.loads(command(user, "doctor", "--json").stdout)
    assert said["problems"] == ["my-pkg 1 is not built yet for the torch that is here"]
    assert said["commands"] == [f"{user.python} -m my_pkg._variants --build"]
    assert "removed 0 of 0 variants" in command(user, "prune", "my-pkg").stdout
    assert user.load().stdout == LOADED
    assert command(user, "doctor").returncode == 0
    torch = user.site / "torch"
    torch.rename(tmp_path / "away")
    lines = last_lines(user.load())
    assert lines[lines.index("Install torch:") + 1] == "  pip install torch"
    (tmp_path / "away").rename(torch)  # in place of an index that has this very one
    assert user.load().stdout == LOADED


def command(user: used.User, *arguments: str) -> process.Completed:
    """Run our command line for the user's environment, on a machine without a GPU."""
    given = {"TORCH_EXT_BUILD_CACHE": str(user.cache), "TORCH_EXT_CUDA_DRIVER": "none"}
    words: list[str | Path] = [sys.executable, "-m", "hatch_torch_ext", *arguments, "--python", user.python]
    return warm.run(words, cwd=user.root, env_changes=given, check=False)


@pytest.mark.performs("Let every user of this installation read it", "Keep it for yourself")
def test_what_was_built_is_enough_where_the_rest_is_pruned(user: used.User) -> None:
    """Where the variant that loads was built here, all of the wheel's go, and doctor finds nothing wrong."""
    assert command(user, "prune", "my-pkg").returncode == 1
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    user.cache.chmod(0o777)
    offered = last_lines(user.load())
    told = "What was built is not loaded, since other users can write its folder. Keep it for yourself:"
    process.run(["sh", "-c", offered[offered.index(told) + 1]])
    assert user.load().stdout == LOADED
    done = command(user, "prune", "my-pkg")
    assert "since no variant would stay: " in done.stderr
    assert f"{user.cache} can be read by its owner only" in done.stderr
    process.run(["sh", "-c", done.stderr.strip().rpartition("read it: ")[2]])
    done = command(user, "prune", "my-pkg")
    assert "my-pkg: removed 1 of 1 variants" in done.stdout
    assert f"loaded here: {LABEL}, built at first use, from {user.cache}" in done.stdout
    assert user.load().stdout == LOADED
    assert command(user, "doctor").returncode == 0


@pytest.mark.performs("Build it in a folder that every user of this installation reads")
def test_nothing_is_pruned_for_the_cache_of_one_user(user: used.User) -> None:
    """Where what loads was built into this user's own cache, the variants stay for others; the message's way helps."""
    home = {"TORCH_EXT_CUDA_DRIVER": "none", "XDG_CACHE_HOME": str(user.root / "home"), "TORCH_EXT_BUILD_CACHE": None}
    assert user.load(TORCH_EXT_BUILD="1", **home).stdout == LOADED
    words: list[str | Path] = [sys.executable, "-m", "hatch_torch_ext", "prune", "my-pkg", "--python", user.python]
    done = warm.run(words, cwd=user.root, env_changes=home, check=False)
    assert done.returncode == 1
    told = "since no variant would stay: what this environment loads of it was built at first use, and is in the cache"
    assert f"my-pkg: nothing is removed, {told} of this user only. Build it in a folder" in done.stderr
    shared = {**home, "TORCH_EXT_BUILD_CACHE": str(user.root / "shared"), "PYTHONPATH": None}
    line = done.stderr.strip().rpartition("where it runs, too: ")[2]
    line = line.replace("/path/to/folder", str(user.root / "shared"))
    changes = {**shared, "PATH": f"{user.python.parent}{os.pathsep}{os.environ['PATH']}"}
    process.run(["sh", "-c", line], cwd=user.root, env_changes=changes)
    assert "removed 1 of 1 variants" in warm.run(words, cwd=user.root, env_changes=shared).stdout


def test_a_cache_that_this_user_cannot_read_is_named(user: used.User) -> None:
    """A cache of an image's administrator: the message names the missing permission (simulated, as root has it)."""
    user.cache.mkdir()
    program = f"import os; os.access = lambda path, mode: path != {str(user.cache)!r}; import my_pkg"
    lines = last_lines(user.run("-c", program))
    assert lines[lines.index(BUILD_IT) - 1] == (
        f"What was built in {user.cache} cannot be read by this user; its owner allows it: chmod -R a+rX {user.cache}"
    )


def test_every_outlet_carries_the_sources(tmp_path: Path, shared: Path) -> None:
    """Parts merge to the very wheel of one build; exact wheels do so too, and keep their exact torch."""
    project = used.project(tmp_path / "project", shared, releases=("2.8", "2.9"))
    for out, only in (("dist", ""), ("parts", "matrix.2.8"), ("more", "matrix.2.9")):
        done = project.build(out, HATCH_TORCH_EXT_ONLY=only)
        assert done.returncode == 0, done.stderr
    parts = [project.wheel(out) for out in ("parts", "more")]
    merged = merge_wheels(parts, out=tmp_path / "merged")
    assert merged.read_bytes() == project.wheel().read_bytes()
    served = exact.index([project.wheel()], out=tmp_path / "index")
    again = merge_wheels([each.path for each in served], out=tmp_path / "again")
    assert again.read_bytes() == project.wheel().read_bytes()
    with zipfile.ZipFile(served[0].path) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        assert "Requires-Dist: torch<2.9,>=2.8" in archive.read(metadata).decode().splitlines()


@pytest.mark.slow
def test_a_cache_made_under_an_open_umask_or_behind_a_link_is_loaded(user: used.User) -> None:
    """Umask 002, where each user has a group, and a cache that is a link: built once, then loaded; folders are 0700."""
    (user.root / "real").mkdir()
    (user.root / "link").symlink_to("real")
    changes = {"TORCH_EXT_BUILD_CACHE": str(user.root / "link")}
    program = "import os; os.umask(0o002); import my_pkg; print(*my_pkg.load())"
    first = user.run("-c", program, TORCH_EXT_BUILD="1", **changes)
    assert first.stdout == LOADED, first.stderr
    assert "compile ..." in first.stderr
    again = user.run("-c", program, TORCH_EXT_BUILD="1", **changes)
    assert (again.stdout, again.stderr) == (LOADED, "")
    folders = [path for path in (user.root / "real").rglob("*") if path.is_dir() and not path.is_symlink()]
    assert not [path for path in folders if path.stat().st_mode & 0o022]
    assert not [path for path in folders if path.parent == user.root / "real" and path.stat().st_mode & 0o077]


def test_a_cache_that_others_can_write_is_refused_before_anything_is_compiled(user: used.User) -> None:
    """The error comes at once, and names another folder."""
    user.cache.mkdir()
    (user.cache / "mine").touch()
    user.cache.chmod(0o777)
    done = user.load(TORCH_EXT_BUILD="1")
    assert "other users can write it, and it is not empty" in done.stderr
    assert "TORCH_EXT_BUILD_CACHE=/path/to/folder" in done.stderr
    assert "compile ..." not in done.stderr


@pytest.mark.parametrize("kind", ["a named pipe", "a device that never ends"])
def test_installed_sources_that_are_no_files_are_reinstalled(user: used.User, kind: str) -> None:
    """Neither is waited for or read until the disk is full; the error names the file and the remedy, not the cache."""
    source = user.site / "my_pkg" / "_torch_ext" / "sources" / "csrc" / "plain.c"
    source.unlink()
    if kind == "a named pipe":
        os.mkfifo(source)
    else:
        source.symlink_to("/dev/zero")
    lines = last_lines(user.load(TORCH_EXT_BUILD="1"))
    assert lines[1] == (f"{source} cannot be read (it is not a file): pip install --force-reinstall --no-deps my-pkg")


@pytest.mark.slow
def test_modules_beside_a_script_do_not_take_the_place_of_the_builders(user: used.User) -> None:
    """A script's folder with packaging.py, elftools.py and json.py: the first use builds by its own packages."""
    folder = user.root / "scripts"
    folder.mkdir()
    for name in ("packaging", "elftools", "json"):
        (folder / f"{name}.py").write_text("raise RuntimeError('a module of the user')\n", encoding="utf-8")
    # The loader itself needs json; the script has the standard one.
    script = "import os, sys\nsys.path.append(sys.path.pop(0))\nimport json\nsys.path.insert(0, sys.path.pop())\n"
    (folder / "job.py").write_text(f"{script}import my_pkg\nprint(*my_pkg.load())\n", encoding="utf-8")
    done = user.run(str(folder / "job.py"), TORCH_EXT_BUILD="1")
    assert done.stdout == LOADED, done.stderr


@pytest.mark.slow
def test_a_path_that_leads_out_of_a_build_is_not_loaded(user: used.User) -> None:
    """What variant.json names is below its own folder; else the build is made anew from the cache."""
    assert user.load(TORCH_EXT_BUILD="1").stdout == LOADED
    (view,) = views(user)
    described = json.loads((view / "variant.json").read_text(encoding="utf-8"))
    (file,) = described["variant"]["files"]
    outside = user.root / "elsewhere.so"
    outside.write_bytes((view / file["path"]).read_bytes())
    outside.chmod(0o444)
    for path in (os.path.relpath(outside, view), str(outside)):
        file["path"] = path
        (view / "variant.json").write_text(json.dumps(described), encoding="utf-8")
        assert user.load().returncode == 1
    done = user.load(TORCH_EXT_BUILD="1")
    assert (done.stdout, "compile ..." in done.stderr) == (LOADED, False)
