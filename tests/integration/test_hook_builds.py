"""Whole builds through hatchling: a library in C, two releases of torch (tiny wheels on disk), no network."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import warm
from hatch_torch_ext.base import process
from plain import CMAKE, COMMAND, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")


@pytest.fixture
def project(tmp_path: Path, once: Callable[[str, Callable[[Path], None]], Path]) -> Project:
    """Return a fresh project; the store and the wheels of torch are shared by all tests of this file."""

    def make(folder: Path) -> None:
        make_wheels(folder / "wheels", ["2.8.0", "2.9.0"])

    return Project(tmp_path / "project", once("hook_builds", make))


@pytest.fixture
def reference(project: Project, once: Callable[[str, Callable[[Path], None]], Path]) -> str:
    """Return the hash of the wheel that an undisturbed build makes."""

    def make(folder: Path) -> None:
        undisturbed = Project(folder / "elsewhere", Path(str(project.environ["UV_FIND_LINKS"])).parent)
        done = undisturbed.build()
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "sha256").write_text(undisturbed.digest(), encoding="ascii")

    return (once("hook_reference", make) / "sha256").read_text(encoding="ascii")


def test_a_wheel_with_a_library_is_never_for_any_platform(project: Project, reference: str) -> None:
    """Its tag names a policy although it needs no Python (hatch#1955); exact files; nothing is left in the sources."""
    before = project.sources()
    done = project.build()
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.wheel().name == "my_pkg-1-py3-none-manylinux_2_5_x86_64.whl"
    with zipfile.ZipFile(project.wheel()) as archive:
        names = archive.namelist()
    (library,) = [name for name in names if name.endswith("/libplain.so")]
    assert sorted(names) == sorted(
        [
            library,
            "my_pkg/__init__.py",
            "my_pkg/_torch_ext/help.py",
            "my_pkg/_torch_ext/manifest.json",
            "my_pkg/_variants.py",
            "my_pkg-1.dist-info/METADATA",
            "my_pkg-1.dist-info/RECORD",
            "my_pkg-1.dist-info/WHEEL",
            "my_pkg-1.dist-info/sboms/torch-ext.cdx.json",
        ]
    )
    assert library.startswith("my_pkg/_torch_ext/shared/")
    assert project.sources() == before
    assert "sdist would hold" not in done.stdout + done.stderr
    assert project.digest() == reference


def test_what_would_surprise_later_is_reported(project: Project) -> None:
    """A file that CMake wrote into the sources, and CMake files that the next sdist would lack."""
    cmake = project.root / "csrc" / "CMakeLists.txt"
    cmake.write_text(CMAKE + "configure_file(plain.c ${CMAKE_CURRENT_SOURCE_DIR}/copy.c COPYONLY)\n", encoding="utf-8")
    (project.root / ".gitignore").write_text("/build/\n/dist/\ncsrc/\n", encoding="utf-8")
    done = project.build(HATCH_TORCH_EXT_ONLY="torch2.9_cpu_*")
    output = " ".join((done.stdout + done.stderr).split())
    assert "matrix.2.8: left out by the variable `HATCH_TORCH_EXT_ONLY`" in output
    assert "matrix.2.9: sources changed while CMake ran: csrc/copy.c. All entries share what CMake writes" in output
    assert (
        f"an sdist would lack `csrc`, so no wheel could be built from it: the line `csrc/` of {project.root}/.git"
        "ignore leaves it out, since hatchling leaves out what git ignores."
    ) in output


WRITES = {
    "configured": (
        "configure_file(who.in ${CMAKE_CURRENT_SOURCE_DIR}/who.h)\nexecute_process(COMMAND sleep 1)\n",
        "",
    ),
    "configured while another compiles": (
        'if(TORCH_EXT_TORCH STREQUAL "2.8")\n  execute_process(COMMAND sleep 1)\nendif()\n'
        "configure_file(who.in ${CMAKE_CURRENT_SOURCE_DIR}/who.h)\nadd_custom_target(slow COMMAND sleep 2)\n",
        "add_dependencies(plain slow)\n",
    ),
    "generated": (
        "add_custom_command(OUTPUT ${CMAKE_CURRENT_SOURCE_DIR}/who.h DEPENDS who.in\n"
        "  COMMAND sed s/@TORCH_EXT_TORCH@/${TORCH_EXT_TORCH}/ who.in > who.h && sleep 1\n"
        "  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})\n",
        "target_sources(plain PRIVATE who.h)\n",
    ),
    "configured into a hidden folder": (
        "configure_file(who.in ${CMAKE_CURRENT_SOURCE_DIR}/.made/who.h)\nexecute_process(COMMAND sleep 1)\n"
        "include_directories(.made)\n",
        "",
    ),
    "an output that no target lists": (
        "add_custom_command(OUTPUT ${CMAKE_CURRENT_SOURCE_DIR}/who.h\n"
        "  COMMAND sed s/@TORCH_EXT_TORCH@/${TORCH_EXT_TORCH}/ who.in > who.h && sleep 1\n"
        "  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})\n"
        "add_custom_target(made DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/who.h)\n",
        "add_dependencies(plain made)\n",
    ),
    "a target without outputs": (
        "add_custom_target(made COMMAND sed s/@TORCH_EXT_TORCH@/${TORCH_EXT_TORCH}/ who.in > who.h && sleep 1\n"
        "  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})\n",
        "add_dependencies(plain made)\n",
    ),
    "copied after it is linked": (
        "configure_file(who.in who.h)\ninclude_directories(${CMAKE_CURRENT_BINARY_DIR})\n",
        "add_custom_command(TARGET plain POST_BUILD\n"
        "  COMMAND cp $<TARGET_FILE:plain> ${CMAKE_CURRENT_SOURCE_DIR}/libplain.so && sleep 1)\n"
        "install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/libplain.so DESTINATION .)\n#",
    ),
    "linked": (
        "configure_file(who.in who.h)\ninclude_directories(${CMAKE_CURRENT_BINARY_DIR})\n",
        "set_target_properties(plain PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/lib)\n"
        "add_custom_command(TARGET plain POST_BUILD COMMAND sleep 1)\n",
    ),
}
"""How a project writes into its sources: before and after its library is declared. Each writes, and pauses."""


@pytest.mark.parametrize("way", WRITES)
def test_entries_of_a_project_that_writes_into_its_sources_are_each_their_own(way: str, project: Project) -> None:
    """Two entries at once would compile, or install, what the other one has just written there."""
    before, after = WRITES[way]
    cmake = CMAKE.replace("add_library", f"{before}add_library").replace("plain.c)", f"plain.c)\n{after}", 1)
    if after.endswith("#"):
        cmake = cmake.replace("install(TARGETS plain LIBRARY DESTINATION .)", "")
    (project.root / "csrc/CMakeLists.txt").write_text(cmake, encoding="utf-8")
    if "_SOURCE_DIR}/who.h" in before:  # left by another build: CMake would write the same
        (project.root / "csrc/who.h").write_text('#define WHO "made for 2.9"\n', encoding="utf-8")
    (project.root / "csrc/who.in").write_text('#define WHO "made for @TORCH_EXT_TORCH@"\n', encoding="utf-8")
    (project.root / "csrc/plain.c").write_text('#include "who.h"\nconst char *who(void) { return WHO; }\n')
    for _ in range(2):
        done = project.build(HATCH_TORCH_EXT_JOBS="4")
        output = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 0, output
        assert "compiled one after another" in output
        with zipfile.ZipFile(project.wheel()) as archive:
            found = {
                name.split("/")[-2]: archive.read(name) for name in archive.namelist() if name.endswith("/libplain.so")
            }
        assert len(found) == len(project.releases)
        for label, content in found.items():
            assert f"made for {label.removeprefix('torch')[:3]}".encode() in content
        (project.root / "csrc/plain.c").write_text('#include "who.h"\nconst char *who(void) { return 1 + WHO; }\n')


@pytest.mark.parametrize(
    ("line", "script", "reused"),
    [
        ("{} > csrc/build.txt 2>&1", "date +%N > ../report.xml; sleep 1", [0]),
        ("{} 2>&1 | tee build.txt csrc/copy.json", "sleep 1", [0, 2]),
    ],
)
def test_the_output_of_the_build_is_not_writing_into_the_sources(
    line: str, script: str, reused: list[int], project: Project
) -> None:
    """It goes into a file of the project, by the shell or another program: no entry waits, none is built again.

    Nor does a file that CMake neither reads nor installs, outside of its folder and the package: a report, a note.
    """
    reports = "execute_process(COMMAND sh report.sh WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})\nadd_library"
    (project.root / "csrc/CMakeLists.txt").write_text(CMAKE.replace("add_library", reports), encoding="utf-8")
    (project.root / "csrc/report.sh").write_text(f"{script}\n", encoding="utf-8")
    (project.root / "report.xml").touch()
    command = ["sh", "-c", line.format(shlex.join([*COMMAND, "-d", "dist"]))]
    for count in reused:
        done = process.run(command, cwd=project.root, env_changes={**project.environ, "HATCH_TORCH_EXT_JOBS": "4"})
        assert done.returncode == 0
        assert not [event for event in project.events("note") if "sources changed" in event["text"]]
        assert sum(event["reused"] for event in project.events("done")) == count
    assert list(project.root.rglob("build.txt"))


def test_an_entry_that_writes_into_the_sources_and_fails_spoils_no_other(project: Project) -> None:
    """The other entry compiled beside it what it had written, and is compiled again."""
    cmake = CMAKE.replace(
        "add_library",
        'if(TORCH_EXT_TORCH STREQUAL "2.9")\nexecute_process(COMMAND sleep 1)\nendif()\n'
        "configure_file(who.in ${CMAKE_CURRENT_SOURCE_DIR}/who.h)\n"
        'if(TORCH_EXT_TORCH STREQUAL "2.9")\nmessage(FATAL_ERROR no)\nendif()\n'
        "add_custom_target(slow COMMAND sleep 3)\nadd_library",
    ).replace("plain.c)", "plain.c)\nadd_dependencies(plain slow)")
    (project.root / "csrc/CMakeLists.txt").write_text(cmake, encoding="utf-8")
    (project.root / "csrc/who.in").write_text('#define WHO "made for @TORCH_EXT_TORCH@"\n', encoding="utf-8")
    (project.root / "csrc/who.h").write_text('#define WHO "made for 2.8"\n', encoding="utf-8")
    (project.root / "csrc/plain.c").write_text('#include "who.h"\nconst char *who(void) { return WHO; }\n')
    assert project.build(HATCH_TORCH_EXT_JOBS="4").returncode == 1
    library = project.root / "build/torch-ext/matrix.2.8/install/libplain.so"
    assert b"made for 2.8" in library.read_bytes()


def test_what_another_build_configured_into_the_sources_is_configured_again(project: Project) -> None:
    """An entry built by a command of its own: its configure step is not left out, though what it reads is the same."""
    header = "configure_file(who.in ${CMAKE_CURRENT_SOURCE_DIR}/who.h)"
    cmake = CMAKE.replace("add_library", f"{header}\nadd_library").replace("execute_process", "#")
    (project.root / "csrc/CMakeLists.txt").write_text(cmake, encoding="utf-8")
    (project.root / "csrc/who.in").write_text('#define WHO "made for @TORCH_EXT_TORCH@"\n', encoding="utf-8")
    (project.root / "csrc/who.h").write_text('#define WHO "made for 2.9"\n', encoding="utf-8")
    for number, release in enumerate(("2.9", "2.8", "2.9", "2.8", "2.9")):
        text = f'#include "who.h"\nint number = {number};\nconst char *who(void) {{ return WHO; }}\n'
        (project.root / "csrc/plain.c").write_text(text, encoding="utf-8")
        shutil.rmtree(project.root / "dist", ignore_errors=True)
        done = project.build(HATCH_TORCH_EXT_ONLY=f"torch{release}_*")
        assert done.returncode == 0, done.stdout + done.stderr
        with zipfile.ZipFile(project.wheel()) as archive:
            (library,) = [name for name in archive.namelist() if name.endswith("/libplain.so")]
            assert f"made for {release}".encode() in archive.read(library)


@pytest.mark.performs("add the line `/build/` to .gitignore")
def test_an_sdist_never_holds_the_work(project: Project) -> None:
    """Without a .gitignore, the work folder is in the user's cache, with a note; `hatch clean` finds it there."""
    (project.root / ".gitignore").unlink()
    done = project.build(HATCH_TORCH_EXT_ONLY="torch2.9_cpu_*")
    assert done.returncode == 0, done.stdout + done.stderr
    output = " ".join((done.stdout + done.stderr).split())
    assert "an sdist would hold `build/torch-ext`, so the work is in the user's cache; to have it in the" in output
    assert not (project.root / "build").exists()
    warm.run([*COMMAND[:-1], "sdist"], cwd=project.root, env_changes=project.environ)
    with tarfile.open(next((project.root / "dist").glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == {"PKG-INFO", "csrc/CMakeLists.txt", "csrc/plain.c", "pyproject.toml", "src/my_pkg/__init__.py"}
    line = output.partition("add the line `")[2].partition("`")[0]
    (project.root / ".gitignore").write_text(f"{line}\n", encoding="utf-8")
    assert project.build(HATCH_TORCH_EXT_ONLY="torch2.9_cpu_*").returncode == 0
    assert (project.root / "build" / "torch-ext" / "matrix.2.9").is_dir()


@pytest.mark.performs('or write `exclude = ["/build"]`')
def test_a_project_in_a_folder_that_its_gitignore_names(project: Project) -> None:
    """CASE 87: hatchling then disregards the whole file, `/build/` in it too; the remedy is another, and works."""
    above = project.root.parent.name
    (project.root / ".gitignore").write_text(f"/build/\n{above}/\n", encoding="utf-8")
    done = project.build(HATCH_TORCH_EXT_ONLY="torch2.9_cpu_*")
    assert done.returncode == 0, done.stdout + done.stderr
    output = " ".join((done.stdout + done.stderr).split())
    assert (
        "an sdist would hold `build/torch-ext`, so the work is in the user's cache: the project is in a folder that "
        f"the line `{above}/` of {project.root}/.gitignore names, for which hatchling disregards that whole file. To "
        'have it in the project, move it out of that folder, or write `exclude = ["/build"]` into '
        "`[tool.hatch.build.targets.sdist]`"
    ) in output
    with (project.root / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write('[tool.hatch.build.targets.sdist]\nexclude = ["/build"]\n')
    assert project.build(HATCH_TORCH_EXT_ONLY="torch2.9_cpu_*").returncode == 0
    assert (project.root / "build" / "torch-ext" / "matrix.2.9").is_dir()


def test_a_failed_entry_leaves_no_wheel_and_the_others_work(project: Project, reference: str) -> None:
    """The message names the entry; once it is mended, the rest is used again and the bytes are the same."""
    cmake = project.root / "csrc" / "CMakeLists.txt"
    broken = CMAKE.replace("add_library", 'if(TORCH_EXT_TORCH STREQUAL "2.9")\nadd_nothing()\nendif()\nadd_library')
    cmake.write_text(broken, encoding="utf-8")
    done = project.build()
    output = done.stdout + done.stderr
    assert done.returncode == 1
    assert "hatch-torch-ext: matrix.2.9: configuring failed:" in output
    assert 'Unknown CMake command "add_nothing".' in output
    assert "Traceback" not in output
    assert not list(project.root.glob("dist/*"))
    made = project.root / "build" / "torch-ext" / "matrix.2.8" / "build" / "libplain.so"
    made_at = made.stat().st_mtime_ns
    cmake.write_text(CMAKE, encoding="utf-8")
    assert project.build().returncode == 0
    assert made.stat().st_mtime_ns == made_at
    assert project.digest() == reference


def test_the_command_line_resumes_as_hatch_does(project: Project, reference: str) -> None:
    """`hatch-torch-ext build` after `hatch build` compiles nothing again, `--fresh` does; the bytes are the same."""
    assert project.build().returncode == 0
    made = project.root / "build" / "torch-ext" / "matrix.2.8" / "build" / "libplain.so"
    first = made.stat().st_mtime_ns
    command = [sys.executable, "-m", "hatch_torch_ext", "build", "-d", "../out"]
    done = warm.run(command, cwd=project.root, env_changes=project.environ)
    assert done.stdout.splitlines()[-1] == str(project.wheel("../out").resolve())
    assert made.stat().st_mtime_ns == first
    assert project.digest("../out") == reference
    process.run([*command, "--fresh"], cwd=project.root, env_changes=project.environ)
    assert made.stat().st_mtime_ns != first
    assert project.digest("../out") == reference


@pytest.mark.performs("run the same command again")
def test_a_full_disk_while_hatchling_writes_the_wheel(project: Project) -> None:
    """No cut-off wheel stays in `dist`, the last line says what to do, and doing it gives the wheel."""
    dist = project.root / "dist"
    dist.mkdir()
    mount = f"mount -t tmpfs -o size=4k,mode=755 tmpfs {shlex.quote(str(dist))}"
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if process.run([*unshare, mount], check=False).returncode:
        pytest.skip("no file system of one page can be made here: user namespaces are forbidden")
    build = shlex.join([*COMMAND, "-d", "dist"])
    done = process.run(
        [*unshare, f"{mount} && {build}; status=$?; ls dist; exit $status"],
        cwd=project.root,
        env_changes={**project.environ, "HATCH_TORCH_EXT_ONLY": "matrix.2.9"},
        check=False,
    )
    assert done.returncode != 0
    assert "No space left on device" in done.stderr
    assert done.stdout.splitlines()[-1:] != ["my_pkg-1-py3-none-manylinux_2_5_x86_64.whl"]
    said = " ".join(done.stderr.split())
    assert said.endswith(
        "could not be written whole, and was removed. Free some space on that disk, and run the same "
        "command again: it continues with what is finished."
    )
    assert project.build(HATCH_TORCH_EXT_ONLY="matrix.2.9").returncode == 0
    assert project.wheel()


@pytest.mark.performs("free some space")
@pytest.mark.parametrize(
    ("left", "message"),
    [
        pytest.param(0, "Free some space, and run the same command again: it continues with", id="nothing-left"),
        pytest.param(128, " is full: free some space, and run the same command again.", id="too-little-for-a-compiler"),
    ],
)
def test_a_full_disk_while_an_entry_is_built(left: int, message: str, project: Project) -> None:
    """The disk of the work is full: the message says so, and the same command continues when there is space again.

    ``left`` are free pages.
    """
    build = project.root / "build"
    build.mkdir()
    mount = f"mount -t tmpfs -o size=24m,mode=755 tmpfs {shlex.quote(str(build))}"
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if process.run([*unshare, mount], check=False).returncode:
        pytest.skip("no small file system can be made here: user namespaces are forbidden")
    once = shlex.join([*COMMAND, "-d", "dist"])
    fill = f"dd if=/dev/zero of=build/kept bs=4k count={left} 2> dd; dd if=/dev/zero of=build/filler bs=4k 2> dd"
    fill += "; rm build/kept; echo 'char large[1 << 21] = {1};' >> csrc/plain.c"
    script = f"{mount} && {once} && {{ {fill}; {once}; echo status=$?; rm build/filler; {once}; }}"
    done = process.run(
        [*unshare, script],
        cwd=project.root,
        env_changes={**project.environ, "HATCH_TORCH_EXT_ONLY": "matrix.2.9"},
        check=False,
    )
    assert "status=1" in done.stdout.splitlines()
    assert message in " ".join(done.stderr.split())
    assert done.returncode == 0, done.stdout + done.stderr


def front_end(folder: Path) -> Path:
    """Return the Python of a build environment in ``folder``, as front ends make them: it has what this one has."""
    process.run([sys.executable, "-m", "venv", "--without-pip", folder])
    (site,) = folder.glob("lib/python3.*/site-packages")
    (site / "all.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n", encoding="utf-8"
    )
    return folder / "bin" / "python"


def test_front_ends_in_their_own_environments_share_the_work(project: Project, reference: str, tmp_path: Path) -> None:
    """Each isolated build has a Python in another temporary folder, gone afterwards: nothing is compiled again."""
    made = project.root / "build" / "torch-ext" / "matrix.2.8" / "build" / "libplain.so"
    written, folders = [], []
    for name in ("first", "second"):
        python = front_end(tmp_path / name)
        process.run([python, *COMMAND[1:], "-d", name], cwd=project.root, env_changes=project.environ)
        shutil.rmtree(tmp_path / name)
        written.append(made.stat().st_mtime_ns)
        folders.append(sorted(path.name for path in (made.parents[2] / "environments").iterdir()))
        assert project.digest(name) == reference
    assert written[0] == written[1]
    assert len(folders[0]) == 1
    assert folders[0] == folders[1]


def test_killed_in_the_middle_and_run_again(project: Project, reference: str) -> None:
    """`kill -9` leaves no wheel, and the next run gives the bytes of one that was never disturbed."""
    status, _ = project.stopped(signal.SIGKILL)
    assert status == -signal.SIGKILL
    assert not list(project.root.glob("dist/*"))
    assert project.build().returncode == 0
    assert project.digest() == reference


def test_interrupted_by_hand(project: Project) -> None:
    """Ctrl-C ends the build with one sentence; no wheel is left, and no file in the sources."""
    before = project.sources()
    status, output = project.stopped(signal.SIGINT)
    assert status == 130
    assert output.splitlines()[-1].startswith("hatch-torch-ext: interrupted; the same command continues")
    assert "Traceback" not in output
    assert not list(project.root.glob("dist/*"))
    assert project.sources() == before


def test_two_builds_at_once_in_one_project(project: Project, reference: str) -> None:
    """The second waits for the first; both wheels are whole and the same."""
    for started in [project.started(f"dist/{name}") for name in ("a", "b")]:
        output, _ = started.communicate(timeout=120)
        assert started.returncode == 0, output
    assert {project.digest("dist/a"), project.digest("dist/b")} == {reference}


PACKS_SLOWLY = """
import pathlib, time
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
class Slow(BuildHookInterface):
    def initialize(self, version, build_data):
        dist = pathlib.Path(self.root) / "dist"
        dist.mkdir(exist_ok=True)
        (dist / "packs").touch()
        while not (dist / "go").exists():
            time.sleep(0.05)
"""


def test_the_work_folder_is_held_until_the_wheel_is_packed(project: Project, reference: str) -> None:
    """`build --fresh`, begun while another build packs, waits for it: hatchling reads what `--fresh` removes."""
    page, dist = project.root / "pyproject.toml", project.root / "dist"
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    text = page.read_text(encoding="utf-8").replace(hook, f"{hook}[tool.hatch.build.targets.wheel.hooks.custom]\n")
    page.write_text(text, encoding="utf-8")
    (project.root / "hatch_build.py").write_text(PACKS_SLOWLY, encoding="utf-8")
    first = project.started(HATCH_TORCH_EXT_ONLY="matrix.2.9")
    deadline = time.monotonic() + 120
    while not (dist / "packs").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    command = [sys.executable, "-m", "hatch_torch_ext", "build", "--fresh", "-d", "out"]
    environ = {**os.environ, **{name: value for name, value in project.environ.items() if value is not None}}
    merged = subprocess.STDOUT
    with subprocess.Popen(
        command, cwd=project.root, env=environ, stdout=subprocess.PIPE, stderr=merged, text=True
    ) as second:
        assert second.stdout is not None
        said = second.stdout.readline()
        while said and "waiting" not in said:
            said = second.stdout.readline()
        (dist / "go").touch()
        output, _ = first.communicate(timeout=60)
        rest = second.stdout.read()
    assert f"waiting for the work folder {project.root / 'build/torch-ext'}, which process {first.pid} (" in said
    assert first.returncode == 0, output
    assert second.returncode == 0, rest
    assert project.wheel()
    assert project.digest("out") == reference


@pytest.mark.performs("name another folder with {}")
def test_a_cache_in_a_folder_that_cmake_cannot_take(project: Project, reference: str) -> None:
    """It is refused by name before anything is fetched; another folder is named, and the build gives the same bytes."""
    usual = str(project.environ["HATCH_TORCH_EXT_CACHE"])
    for letter in (";", "\n", "$"):
        project.environ["HATCH_TORCH_EXT_CACHE"] = str(project.root.parent / f"a{letter}b")
        done = project.build()
        assert done.returncode == 1
        output = " ".join((done.stdout + done.stderr).split())
        assert "in a path has a special meaning to CMake or to the tools that it starts. That is the cache: " in output
        assert output.endswith("That is the cache: name another folder with HATCH_TORCH_EXT_CACHE")
    assert not list(project.root.parent.glob("a*b/sdk*"))
    project.environ["HATCH_TORCH_EXT_CACHE"] = usual
    assert project.build().returncode == 0
    assert project.digest() == reference


def test_a_project_that_cannot_be_written_is_built_elsewhere(project: Project, reference: str) -> None:
    """Work goes to the user's cache where `build` is not a folder that can be made."""
    (project.root / "build").touch()
    assert project.build().returncode == 0
    assert (project.root / "build").stat().st_size == 0
    assert project.digest() == reference
    work = Path(str(project.environ["HATCH_TORCH_EXT_CACHE"])) / "work"
    assert any(work.glob("*/matrix.2.8"))
    warm.run([*COMMAND[:-2], "--clean-only"], cwd=project.root, env_changes=project.environ)
    assert not any(work.glob("*/matrix.2.8"))


def test_an_editable_wheel_keeps_what_the_author_includes_by_force(project: Project) -> None:
    """Hatchling takes a hook's map of an editable wheel instead of the author's: both are in it."""
    (project.root / "notes.txt").write_text("of the author's", encoding="utf-8")
    with (project.root / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write('[tool.hatch.build.targets.wheel]\ndev-mode-dirs = ["src"]\n')
        stream.write('[tool.hatch.build.targets.wheel.force-include]\n"notes.txt" = "my_pkg_notes.txt"\n')
    done = warm.run([*COMMAND[:-1], "wheel:editable", "-d", "dist"], cwd=project.root, env_changes=project.environ)
    assert done.returncode == 0
    with zipfile.ZipFile(project.wheel()) as archive:
        names = archive.namelist()
    assert "my_pkg_notes.txt" in names
    assert "_my_pkg_torch_ext_editable.pth" in names


def test_a_file_of_the_package_that_cmake_installs_too(project: Project) -> None:
    """The same bytes are there once; others are refused by name, and no wheel is left."""
    cmake = project.root / "csrc" / "CMakeLists.txt"
    cmake.write_text(CMAKE + "install(FILES ../src/my_pkg/__init__.py DESTINATION .)\n", encoding="utf-8")
    done = project.build()
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(project.wheel()) as archive:
        assert archive.namelist().count("my_pkg/__init__.py") == 1
    project.wheel().unlink()
    (project.root / "csrc" / "__init__.py").write_text("other = 1\n", encoding="utf-8")
    cmake.write_text(CMAKE + "install(FILES __init__.py DESTINATION .)\n", encoding="utf-8")
    done = project.build()
    assert done.returncode == 1
    assert (
        f"CMake installs `__init__.py`, which is in the package already, not the same "
        f"(`{project.root}/src/my_pkg/__init__.py`): take one of them out, or install it under another name."
    ) in done.stdout + done.stderr
    assert not list(project.root.glob("dist/*"))


@pytest.mark.performs("write below `[tool.hatch")
def test_a_package_in_a_folder_that_hatchling_knows(project: Project) -> None:
    """`packages` names another folder than the root or `src`: the hook looks there too."""
    (project.root / "src").rename(project.root / "python")
    with (project.root / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write('[tool.hatch.build.targets.wheel]\npackages = ["python/my_pkg"]\n')
    done = project.build()
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(project.wheel()) as archive:
        assert {"my_pkg/__init__.py", "my_pkg/_variants.py"} <= set(archive.namelist())


def test_python_files_that_cmake_installs_as_the_package(project: Project) -> None:
    """They are in `python`, and CMake calls them `my_pkg`: a wheel has them, named to hatchling as well or not."""
    (project.root / "src" / "my_pkg").rename(project.root / "python")
    (project.root / "python" / "extra.py").write_text("x = 1\n", encoding="utf-8")
    cmake = project.root / "csrc" / "CMakeLists.txt"
    cmake.write_text(CMAKE + "install(DIRECTORY ../python/ DESTINATION my_pkg)\n", encoding="utf-8")
    config = project.root / "pyproject.toml"
    lines = '[tool.hatch.build.targets.wheel]\nsources = { "python" = "my_pkg" }\nonly-include = ["python"]\n'
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]"
    for more in ("", lines):
        config.write_text(config.read_text(encoding="utf-8").replace(hook, more + hook), encoding="utf-8")
        done = project.build()
        assert done.returncode == 0, done.stdout + done.stderr
        with zipfile.ZipFile(project.wheel()) as archive:
            python = [name for name in archive.namelist() if name.endswith(".py")]
        ours = ["my_pkg/_torch_ext/help.py", "my_pkg/_variants.py"]
        assert sorted(python) == ["my_pkg/__init__.py", *ours, "my_pkg/extra.py"]


def test_files_that_cmake_installs_from_outside_of_its_folder_are_those_of_now(project: Project) -> None:
    """Neither CMake nor Ninja names them as an input; a file that is changed or added makes the entry anew."""
    (project.root / "src" / "my_pkg").rename(project.root / "python")
    cmake = project.root / "csrc" / "CMakeLists.txt"
    cmake.write_text(CMAKE + "install(DIRECTORY ../python/ DESTINATION my_pkg)\n", encoding="utf-8")
    for text in ("x = 1\n", "x = 2\n"):
        (project.root / "python" / "extra.py").write_text(text, encoding="utf-8")
        done = project.build(HATCH_TORCH_EXT_ONLY="*2.9*")
        assert done.returncode == 0, done.stdout + done.stderr
        with zipfile.ZipFile(project.wheel()) as archive:
            assert archive.read("my_pkg/extra.py").decode() == text


HOOK = """
from pathlib import Path
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Generates(BuildHookInterface):
    def initialize(self, version, build_data):
        Path(self.root, "csrc", "made.inc").write_text("#define MADE 1\\n")
        build_data["tag"] = "cp311-cp311-linux_x86_64"
"""


@pytest.mark.performs("below those of all other hooks")
def test_another_hook_that_generates_sources(project: Project) -> None:
    """Hatchling runs hooks in the order of their tables: what a later one makes comes too late, and is reported."""
    config = project.root / "pyproject.toml"
    ours, other = "[tool.hatch.build.targets.wheel.hooks.torch-ext]", "[tool.hatch.build.targets.wheel.hooks.custom]"
    before = config.read_text(encoding="utf-8")
    (project.root / "hatch_build.py").write_text(HOOK, encoding="utf-8")
    made = project.root / "csrc" / "made.inc"
    with (project.root / "csrc" / "plain.c").open("a", encoding="utf-8") as stream:
        stream.write('#include "made.inc"\nint made = MADE;\n')

    def build(text: str) -> tuple[int, str]:
        config.write_text(text, encoding="utf-8")
        done = project.build(HATCH_TORCH_EXT_ONLY="*2.9*")
        return done.returncode, done.stdout + done.stderr

    said = "hatchling runs `custom` after this build hook, "
    status, output = build(f"{before}\n{other}\n")
    assert status != 0
    assert f"{said}so what that makes is not there yet. Put the table" in output
    made.write_text("#define MADE 0\n", encoding="utf-8")
    status, output = build(f"{before}\n{other}\n")
    assert status == 0, output
    assert f"{said}and csrc/made.inc changed after it was compiled: the wheel is of what" in " ".join(output.split())
    assert f"{said}and the wheel got the tag cp311-cp311-linux_x86_64 in place of py3-none-manylinux_2_5" in output
    made.unlink()
    assert ours in before
    status, output = build(before.replace(ours, f"{other}\n{ours}"))
    assert status == 0, output
    assert said not in output
    assert any(path.name.startswith("my_pkg-1-py3-none-manylinux") for path in (project.root / "dist").iterdir())


def test_the_same_compile_error_in_every_entry_is_reported_once(project: Project) -> None:
    """Command, options and progress differ; what the compiler says is the same, and is read once."""
    (project.root / "csrc" / "plain.c").write_text("int f(void) { return missing_name; }\n", encoding="utf-8")
    cmake = project.root / "csrc" / "CMakeLists.txt"
    cmake.write_text(CMAKE + 'target_compile_definitions(plain PRIVATE "T=${TORCH_EXT_TORCH}")\n', encoding="utf-8")
    done = project.build()
    said = done.stdout + done.stderr
    told = said[said.index("2 of 2 entries failed") :]
    assert "matrix.2.8, matrix.2.9: compiling failed" in told
    assert told.count("the first errors:") == 1
    assert "missing_name" in told
