"""A finished entry is taken as it is while nothing that it depends on changed, and never otherwise; in plain C."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from archives import unpack
from hatch_torch_ext.base import process
from plain import CMAKE, COMMAND, Project, make_wheels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")

TWO = (
    CMAKE.replace("plain.c)", "plain.c other.c)") + "install(FILES ../NOTES DESTINATION my_pkg)\nset(X $ENV{FLAVOUR})\n"
)
FILES = {
    "csrc/CMakeLists.txt": TWO,
    "csrc/other.c": '#include "../shared.h"\nint other(void) { return SHARED; }\n',
    "shared.h": "#define SHARED 1\n",
    "NOTES": "of the package\n",
    "README.md": "# For people\n",
}


@pytest.fixture
def project(tmp_path: Path, once: Callable[[str, Callable[[Path], None]], Path]) -> Project:
    """Return a project of two objects for two releases, built once."""
    shared = once("resume", lambda folder: make_wheels(folder / "wheels", ["2.8.0", "2.9.0"]))
    project = Project(tmp_path / "project", shared, files=FILES)
    assert project.build().returncode == 0
    return project


def reused(project: Project, **environ: str) -> list[bool]:
    """Build, and return for each entry whether it was taken as it was, in the order of the matrix."""
    done = project.build(**environ)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {event["entry"]: event["reused"] for event in project.events("done")}
    return [found[f"matrix.{release}"] for release in project.releases]


def compiled(project: Project) -> list[str]:
    """Return the objects that the last build compiled, sorted."""
    outputs = [event["output"] for event in project.events("compiled")]
    return sorted(output.rpartition("/")[2] for output in outputs if output.endswith(".o"))


def test_the_log_is_of_the_last_build(project: Project) -> None:
    """A log that is named in a message has neither errors of earlier builds, nor any where nothing was run."""
    source, log = project.root / "csrc/plain.c", project.root / "build/torch-ext/matrix.2.8/log.txt"
    text = source.read_text(encoding="utf-8")
    source.write_text("int answer(void) { return nothing; }\n", encoding="utf-8")
    assert project.build().returncode == 1
    assert "nothing" in log.read_text(encoding="utf-8")
    source.write_text(text, encoding="utf-8")
    assert project.build().returncode == 0
    assert "nothing" not in log.read_text(encoding="utf-8")
    source.write_text(f"{text}int other;\n", encoding="utf-8")
    done = project.build(UV_FIND_LINKS=str(project.root), HATCH_TORCH_EXT_CACHE=str(project.root / "build/cache"))
    assert done.returncode == 1
    assert {event["log"] for event in project.events("failed")} == {""}


def test_what_did_not_change_is_not_built_again(project: Project) -> None:
    """Neither configured nor compiled, the same bytes; what Python and people read is not an input."""
    first = project.digest()
    logs = [project.root / "build/torch-ext" / f"matrix.{release}" / "log.txt" for release in project.releases]
    times = [log.stat().st_mtime_ns for log in logs]
    (project.root / "csrc/plain.c").touch()
    (project.root / "README.md").write_text("# For others\n", encoding="utf-8")
    assert reused(project) == [True, True]
    assert [log.stat().st_mtime_ns for log in logs] == times
    assert project.digest() == first
    (project.root / "src/my_pkg/__init__.py").write_text("new = 1\n", encoding="utf-8")
    assert reused(project) == [True, True]
    with zipfile.ZipFile(project.wheel()) as archive:
        assert archive.read("my_pkg/__init__.py") == b"new = 1\n"


def test_where_nothing_changed_what_compiles_is_not_imported(project: Project) -> None:
    """Most of such a build is imports; the rooms for SDKs, CMake and repair are not among them."""
    done = project.build(PYTHONPROFILEIMPORTTIME="1")
    imported = set(re.findall(r"\| +hatch_torch_ext\.(\w+)", done.stderr))
    assert {"audit", "merge", "pipeline"} <= imported
    assert imported.isdisjoint({"cmake", "repair", "resolve", "sdk"})


def test_one_changed_file_is_one_object_in_each_entry(project: Project) -> None:
    """A source and a header outside of the folder of CMakeLists.txt; what else is there stays as it is."""
    (project.root / "csrc/plain.c").write_text("int answer(void) { return 43; }\n", encoding="utf-8")
    assert reused(project) == [False, False]
    assert compiled(project) == ["plain.c.o", "plain.c.o"]
    (project.root / "shared.h").write_text("#define SHARED 2\n", encoding="utf-8")
    assert reused(project) == [False, False]
    assert compiled(project) == ["other.c.o", "other.c.o"]
    (project.root / "NOTES").write_text("changed\n", encoding="utf-8")
    assert reused(project) == [False, False]
    assert compiled(project) == []
    with zipfile.ZipFile(project.wheel()) as archive:
        assert archive.read("my_pkg/NOTES") == b"changed\n"


@pytest.mark.slow
def test_a_file_that_is_restored_with_its_time_is_compiled(project: Project) -> None:
    """Ninja compares times and would keep the object of the other text, also where a build failed meanwhile."""
    first, source, header = project.digest(), project.root / "csrc/plain.c", project.root / "shared.h"
    known = {path: (path.read_text(encoding="utf-8"), path.stat().st_mtime_ns) for path in (source, header)}
    header.write_text("#define SHARED 2\n", encoding="utf-8")
    os.utime(header, ns=(0, known[header][1] - 10**12))
    assert reused(project) == [False, False]
    assert compiled(project) == ["other.c.o", "other.c.o", "plain.c.o", "plain.c.o"]
    assert "shared.h changed, but is older than the last build" in " ".join(e["text"] for e in project.events("note"))
    source.write_text("int answer(void) { return 43; }\n", encoding="utf-8")
    header.write_text("#error\n", encoding="utf-8")
    assert project.build().returncode == 1
    for path, (text, at) in known.items():
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(0, at))
    assert reused(project) == [False, False]
    assert project.digest() == first


PLAIN = """
cmake_minimum_required(VERSION 3.18)
project(plain LANGUAGES C)
file(GLOB sources *.c)
add_library(plain SHARED ${sources})
install(TARGETS plain LIBRARY DESTINATION .)
"""


@pytest.mark.slow
def test_cmake_is_asked_again_when_it_might_answer_otherwise(
    tmp_path: Path, once: Callable[[str, Callable[[Path], None]], Path]
) -> None:
    """Not where a source or a header changed, and nothing else: the same bytes as from the start.

    A new source that is globbed, a variable, the CMake files, a build that failed, files that CMake reads by itself:
    each is configured.
    """
    shared = once("resume", lambda folder: make_wheels(folder / "wheels", ["2.8.0", "2.9.0"]))
    source = '#include "number.h"\nint answer(void) { return NUMBER; }\n'
    files = {"csrc/CMakeLists.txt": PLAIN, "csrc/plain.c": source, "csrc/number.h": "#define NUMBER 1\n"}
    project = Project(tmp_path / "project", shared, releases=["2.8"], files=files)
    folder, log = project.root / "csrc", project.root / "build/torch-ext/matrix.2.8/log.txt"

    def configured(*, ends: bool = True, **environ: str) -> bool:
        done = project.build(**environ)
        assert (done.returncode == 0) is ends, done.stdout + done.stderr
        return "Generating done" in log.read_text(encoding="utf-8")

    def write(name: str, text: str) -> None:
        (folder / name).write_text(text, encoding="utf-8")

    assert configured()
    write("plain.c", source + "// changed\n")
    assert not configured()
    assert compiled(project) == ["plain.c.o"]
    write("number.h", "#define NUMBER 2\n")
    assert not configured()
    assert compiled(project) == ["plain.c.o"]
    changed = project.digest()
    shutil.rmtree(project.root / "build")
    assert configured()
    assert project.digest() == changed
    write("other.c", "int other(void) { return 1; }\n")
    assert configured()
    assert compiled(project) == ["other.c.o"]
    write("other.c", "int other(void) { return 2; }\n")
    assert configured(SOME="variable")
    write("other.c", "int other(void) { return }\n")
    assert not configured(ends=False, SOME="variable")
    write("other.c", "int other(void) { return 3; }\n")
    assert configured(SOME="variable")
    write("CMakeLists.txt", f"{PLAIN}file(STRINGS number.h NUMBER)\n")
    assert configured(SOME="variable")
    write("number.h", "#define NUMBER 3\n")
    assert configured(SOME="variable")


@pytest.mark.slow
def test_configuration_and_environment_are_inputs(project: Project) -> None:
    """Flags, a variable that the CMake files read, and an option are inputs; the number of jobs is not."""
    assert reused(project, HATCH_TORCH_EXT_JOBS="1") == [True, True]
    assert reused(project, FLAVOUR="sour") == [False, False]
    assert reused(project, FLAVOUR="sour") == [True, True]
    assert reused(project, FLAVOUR="sour", LDFLAGS="-Wl,-O1") == [False, False]
    page = project.root / "pyproject.toml"
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    text = page.read_text(encoding="utf-8").replace(hook, f'{hook}debug-symbols = "split"\n')
    page.write_text(text, encoding="utf-8")
    assert reused(project) == [False, False]


FINDS = (
    PLAIN.replace("file(GLOB sources *.c)", "set(sources plain.c)")
    + """
find_path(FACTS facts.h)
set(FLAVOUR "$ENV{FLAVOUR}" CACHE STRING "")
target_include_directories(plain PRIVATE ${FACTS})
target_compile_definitions(plain PRIVATE "FLAVOUR=\\"${FLAVOUR}\\"")
"""
)


def test_a_variable_that_cmake_keeps_the_answer_to(
    tmp_path: Path, once: Callable[[str, Callable[[Path], None]], Path]
) -> None:
    """What CMake found by a variable, or a project keeps of one in its cache, is asked anew where that one changed.

    A variable that only compilers read, which Ninja does not see, has everything compiled again.
    """
    shared = once("resume", lambda folder: make_wheels(folder / "wheels", ["2.8.0", "2.9.0"]))
    source = '#include "facts.h"\nconst char *answer(void) { return "[[" FACT FLAVOUR "]]"; }\n'
    files = {"csrc/CMakeLists.txt": FINDS, "csrc/plain.c": source}
    project = Project(tmp_path / "project", shared, releases=["2.8"], files=files)
    for name in ("one", "two"):
        (tmp_path / name / "include").mkdir(parents=True)
        (tmp_path / name / "include/facts.h").write_text(f'#define FACT "{name}"\n', encoding="utf-8")

    def built(**environ: str) -> bytes:
        assert reused(project, **environ) == [False]
        assert compiled(project) == ["plain.c.o"]
        with zipfile.ZipFile(project.wheel()) as archive:
            (library,) = (archive.read(name) for name in archive.namelist() if name.endswith("libplain.so"))
        return library[library.index(b"[[") + 2 : library.index(b"]]")]

    first, second = str(tmp_path / "one"), str(tmp_path / "two")
    assert built(CMAKE_PREFIX_PATH=first, FLAVOUR="sweet") == b"onesweet"
    assert built(CMAKE_PREFIX_PATH=second, FLAVOUR="sweet") == b"twosweet"
    assert built(CMAKE_PREFIX_PATH=second, FLAVOUR="sour") == b"twosour"
    compilers = {"COMPILER_PATH": first, "NVCC_APPEND_FLAGS": "-O1"}
    assert built(CMAKE_PREFIX_PATH=second, FLAVOUR="sour", **compilers) == b"twosour"
    assert reused(project, CMAKE_PREFIX_PATH=second, FLAVOUR="sour", **compilers) == [True]


def test_a_damaged_result_is_made_again(project: Project) -> None:
    """The record is checked: a library that was changed by hand is not a result of ours, nor is a record cut off."""
    first = project.digest()
    work = project.root / "build/torch-ext"
    (library,) = (work / "matrix.2.8" / "repaired").rglob("libplain.so")
    library.write_bytes(library.read_bytes()[:-1] + b"x")
    record = work / "matrix.2.9" / "memory.json"
    record.write_text(record.read_text(encoding="utf-8")[:100], encoding="utf-8")
    assert reused(project) == [False, False]
    assert compiled(project) == []
    assert project.digest() == first


def test_only_an_entry_that_is_new_is_built(project: Project) -> None:
    """The others are not begun; what was left out meanwhile is taken again when it comes back."""
    assert reused_names(project, HATCH_TORCH_EXT_ONLY="matrix.2.9") == {"matrix.2.9": True}
    (project.root / "build/torch-ext/matrix.2.8/memory.json").unlink()
    assert reused_names(project) == {"matrix.2.8": False, "matrix.2.9": True}


def reused_names(project: Project, **environ: str) -> dict[str, bool]:
    """Build, and return which entries there were, and whether they were taken as they were."""
    assert project.build(**environ).returncode == 0
    return {event["entry"]: event["reused"] for event in project.events("done")}


def libraries(project: Project) -> dict[str, bytes]:
    """Return the content of the wheel's compiled files; its manifest names the sources, too."""
    with zipfile.ZipFile(project.wheel()) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}


@pytest.mark.slow
def test_only_results_are_kept(project: Project) -> None:
    """`keep = "results"`: build trees and environments go as entries finish; the same bytes, used again next time."""
    first = libraries(project)
    page = project.root / "pyproject.toml"
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    page.write_text(page.read_text(encoding="utf-8").replace(hook, f'{hook}keep = "results"\n'), encoding="utf-8")
    (project.root / "csrc/plain.c").write_text("#define ONE 1\nint answer(void) { return 42; }\n", encoding="utf-8")
    assert reused(project) == [False, False]
    work = project.root / "build/torch-ext"
    kept = ["log.txt", "memory.json", "package", "repaired"]
    assert sorted(path.name for path in (work / "matrix.2.8").iterdir()) == kept
    assert not list(work.glob("environments/*/.venv"))
    assert reused(project) == [True, True]
    assert libraries(project) == first
    (project.root / "csrc/plain.c").write_text("int answer(void) { return 43; }\n", encoding="utf-8")
    assert reused(project) == [False, False]
    assert libraries(project) != first


def test_a_failure_ends_the_others_only_on_request(project: Project) -> None:
    """By default all failures are reported; with `keep-going = false`, entries that have not begun are not built."""
    (project.root / "csrc/CMakeLists.txt").write_text(TWO.replace("add_library", "add_nothing"), encoding="utf-8")
    done = project.build(HATCH_TORCH_EXT_JOBS="1")
    assert done.returncode == 1
    output = done.stdout + done.stderr
    assert output.index("[1/2] matrix.2.") < output.index("failed: configuring failed") < output.index("[2/2] matrix.")
    assert [(event["failed"], event["built"], event["left"]) for event in project.events("ended")] == [(2, 0, 0)]
    page = project.root / "pyproject.toml"
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    page.write_text(page.read_text(encoding="utf-8").replace(hook, f"{hook}keep-going = false\n"), encoding="utf-8")
    assert project.build(HATCH_TORCH_EXT_JOBS="1").returncode == 1
    assert [(event["failed"], event["built"], event["left"]) for event in project.events("ended")] == [(1, 0, 1)]


@pytest.mark.slow
def test_an_unpacked_sdist_finds_the_projects_work(project: Project, tmp_path: Path) -> None:
    """Built by way of an sdist, as `python -m build` does, nothing is compiled again; the bytes are the same each time.

    What changed is compiled once: the next sdist finds it, wherever it is unpacked. `clean` removes that work, too.
    """
    project.environ["HATCH_TORCH_EXT_CACHE"] = str(tmp_path / "store")  # other tests build a `my-pkg`, too
    first = project.digest()
    assert project.build().returncode == 0
    (work,) = (tmp_path / "store").glob("work/sdist-my-pkg")

    def by_sdist(name: str) -> list[bool]:
        sdist = process.run(
            [*COMMAND[:-1], "sdist", "-d", f"../{name}.out"], cwd=project.root, env_changes=project.environ
        )
        assert sdist.returncode == 0
        with tarfile.open(next((tmp_path / f"{name}.out").glob("*.tar.gz"))) as archive:
            unpack(archive, tmp_path / name)
        unpacked = Project.__new__(Project)
        unpacked.root, unpacked.environ = tmp_path / name / "my_pkg-1", project.environ
        done = unpacked.build(f"../../{name}.out")
        assert done.returncode == 0, done.stdout + done.stderr
        events = map(json.loads, (work / "events.jsonl").read_text(encoding="utf-8").splitlines())
        shutil.rmtree(tmp_path / name)
        return [event["reused"] for event in events if event["event"] == "done"]

    assert by_sdist("one") == [True, True]
    assert project.digest("../one.out") == first
    (project.root / "csrc/other.c").write_text("int other(void) { return 7; }\n", encoding="utf-8")
    assert by_sdist("two") == [False, False]
    assert by_sdist("three") == [True, True]
    assert project.digest("../two.out") == project.digest("../three.out") != first
    kept = ["log.txt", "memory.json", "package", "repaired"]
    assert sorted(path.name for path in (work / "matrix.2.8").iterdir()) == kept
    assert reused(project) == [False, False]
    cleaning = [*COMMAND[:4], "--clean-only", *COMMAND[4:]]
    process.run(cleaning, cwd=project.root, env_changes=project.environ)
    assert not work.exists()
