"""What is remembered of entries and build folders; a build that is killed between two steps makes none of it wrong."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hatch_torch_ext import config as configuration
from hatch_torch_ext import pipeline
from hatch_torch_ext.cmake import buildfolder
from hatch_torch_ext.facts import project
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.pipeline import inputs, memory
from hatch_torch_ext.pipeline.history import HISTORY, History
from hatch_torch_ext.pipeline.inputs import Inputs
from hatch_torch_ext.pipeline.memory import Memory
from hatch_torch_ext.values import Entry, Task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hatch_torch_ext.pipeline.inputs import EntryInputs


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_at(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a function end the process before it has done its work."""

    def end(*_: Any, **__: Any) -> None:
        raise Killed

    monkeypatch.setattr(what, end)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Return the task of an entry whose project has one source."""
    (tmp_path / "my_pkg").mkdir()
    (tmp_path / "CMakeLists.txt").touch()
    options = {"source": ".", "package": "my_pkg"}
    config = configuration.parse(options, root=tmp_path, project_name="my-pkg", environ={})
    entry = Entry(name="m.2.8", variables=(), dependencies=(), torch_requirement="torch==2.8.*", python=None)
    return Task(entry=entry, config=config, work=tmp_path / "build" / "torch-ext")


def inputs_of(task: Task) -> Inputs:
    """Return what the project's entries are made from now."""
    return Inputs(task.config, task.work)


def parts(task: Task) -> dict[str, Any]:
    """Return the content of the entry's memory."""
    text = (task.folder / memory.FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_build_that_begins_takes_the_entry_for_unfinished_in_one_step(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no moment at which the entry is finished, and what it was made from is another: one file, replaced."""
    folder = task.folder
    known = Memory(inputs_of(task))
    assert known.begin(task) is None
    begun = parts(task)["begun"]
    memory._write(folder, begun=begun, finished={"used": {}})
    with monkeypatch.context() as patch:
        killed_at("hatch_torch_ext.base.atomic.write_held", patch)
        with pytest.raises(Killed):
            known.begin(task)
    assert parts(task) == {"begun": begun, "finished": {"used": {}}}
    known.begin(task)
    assert parts(task).keys() == {"begun"}


def test_a_build_that_is_killed_while_it_removes_objects_removes_them_the_next_time(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that was restored with its old time is newer to no object: what it was is remembered until then."""
    source = task.config.root / "CMakeLists.txt"
    Memory(inputs_of(task)).begin(task)
    build = task.folder / "build"
    build.mkdir()
    source.write_text("# other\n", encoding="utf-8")
    os.utime(source, (1, 1))
    for _ in range(2):
        with monkeypatch.context() as patch:
            killed_at("shutil.rmtree", patch)
            with pytest.raises(Killed):
                Memory(inputs_of(task)).begin(task)
        assert build.is_dir()
    assert Memory(inputs_of(task)).begin(task) == str(source)
    assert not build.exists()
    assert Memory(inputs_of(task)).begin(task) is None


def test_a_memory_that_is_damaged_is_none(task: Task) -> None:
    """Cut off, or something else: the entry is not finished, and its build begins."""
    known = Memory(inputs_of(task))
    known.begin(task)
    file = task.folder / memory.FILE
    for text in (file.read_text(encoding="utf-8")[:20], "[]", '{"finished": []}', ""):
        file.write_text(text, encoding="utf-8")
        assert known.take(task) is None
        assert known.begin(task) is None


def test_files_that_cannot_be_read_are_no_cmake_files(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor's lock, a link that leads nowhere, a named pipe: none of them ends a build."""
    root = task.config.root
    (root / "CMakeLists.txt").write_text("message($ENV{FLAVOUR})\n", encoding="utf-8")
    for name in (".#deps.cmake", "gone.cmake"):
        (root / name).symlink_to("nobody@nowhere.1234")
    os.mkfifo(root / "pipe.cmake")
    (root / ".hidden.cmake").touch()
    assert [*project.cmake_files(root)] == [root / "CMakeLists.txt"]
    assert project.text(root / "gone.cmake") == ""
    monkeypatch.setenv("FLAVOUR", "x")
    (root / "pipe.cmake").unlink()  # the digest of the project refuses it by name
    assert [*inputs_of(task).of(task).variables] == ["FLAVOUR"]
    setup: Any = SimpleNamespace(entry=task.entry, config=task.config)
    assert buildfolder._found_by(setup)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("execute_process(COMMAND git describe --tags OUTPUT_VARIABLE V)", True),
        ("find_package(Git)\nexecute_process(COMMAND ${GIT_EXECUTABLE} rev-parse HEAD)", True),
        ("execute_process(COMMAND ${Python_EXECUTABLE} -m setuptools_scm)", True),
        ('FetchContent_Declare(a GIT_REPOSITORY "https://example.org/a.git")', False),
    ],
)
def test_the_commit_counts_where_cmake_asks_git(text: str, counts: bool, task: Task) -> None:  # noqa: FBT001
    """A new tag, or a commit that changes no source, gives another version (pinned by `git describe`)."""
    root = task.config.root
    (root / "CMakeLists.txt").write_text(text, encoding="utf-8")
    (root / "README.md").touch()

    def git(*arguments: str) -> EntryInputs:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=root, check=True)
        return inputs_of(task).of(task)

    seen = [
        git("init", "-q"),
        git("add", "CMakeLists.txt", "README.md"),
        git("commit", "-q", "-m", "one"),
        git("tag", "v1"),
        git("commit", "-q", "--allow-empty", "-m", "two"),
    ]
    (root / "README.md").write_text("dirty", encoding="utf-8")
    seen.append(git("status", "-s"))
    assert len({found.revision for found in seen}) == (5 if counts else 1)
    assert (seen[0].revision, seen[1].revision) == (None, None)


@pytest.mark.performs("they get no version and no commit")
def test_a_repository_of_another_user_is_reported(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that mounts the sources: CMake's version would be empty without a word."""
    root, home = task.config.root, task.config.root.parent / "home"
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("HOME", str(home))
    home.mkdir()
    assert inputs_of(task).note is None
    (root / "CMakeLists.txt").write_text("find_package(Git)\n", encoding="utf-8")
    note = inputs_of(task).note
    assert note is not None
    head, _, command = note.removesuffix("`").partition("`")
    assert head == (
        "the project's CMake files ask git, which refuses a repository that another user owns: they get no version and "
        "no commit. Allow it: "
    )
    assert command == f"git config --global --add safe.directory {root}"
    subprocess.run(shlex.split(command), check=True)
    assert inputs_of(task).note is None


@pytest.mark.performs("which is not on PATH: they get no version and no commit")
def test_a_git_that_is_missing_is_reported(task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a slim container: CMake's version would be empty without a word. Without a repository it is anyway."""
    root, programs = task.config.root, tmp_path / "programs"
    (root / "CMakeLists.txt").write_text("find_package(Git)\n", encoding="utf-8")
    git = shutil.which("git")
    assert git is not None
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert inputs_of(task).note is None
    subprocess.run([git, "init", "-q"], cwd=root, check=True)
    assert inputs_of(task).note == (
        "the project's CMake files ask git, which is not on PATH: they get no version and no commit. Install it: "
        "`apt-get install git` (Debian, Ubuntu), `dnf install git` (Fedora, RHEL)"
    )
    (programs / "git").symlink_to(git)
    assert inputs_of(task).note is None


def test_what_cmake_names_counts_wherever_it_is(task: Task) -> None:
    """Python files outside of the CMake project matter to nothing, except where CMake reads the version there."""
    root = task.config.root
    (root / "CMakeLists.txt").write_text("file(STRINGS my_pkg/_version.py LINE)", encoding="utf-8")
    for name in ("_version.py", "other.py"):
        (root / "my_pkg" / name).touch()
    read = inputs_of(task).project
    assert [*read] == [str(root / "CMakeLists.txt"), str(root / "my_pkg" / "_version.py")]


def test_a_folder_that_an_install_rule_copies_counts_whole(task: Task) -> None:
    """It is named as in any other place of the project; what builds leave in it does not count."""
    root = task.config.root
    (root / "python").mkdir()
    name = inputs.place(task.config, f"{root}/python/")
    assert name == "root/python/"
    seen = []
    for file in ("__init__.py", "data.txt"):
        seen.append(Memory(inputs_of(task))._digest(name))
        (root / "python" / file).touch()
    (root / "python" / "__pycache__").mkdir()
    (root / "python" / "__pycache__" / "a.pyc").touch()
    seen += [Memory(inputs_of(task))._digest(name) for _ in range(2)]
    assert len(set(seen)) == 3
    everything = inputs.place(task.config, f"{root}/")
    before = Memory(inputs_of(task))._digest(everything)
    for folder in ("dist", "build/x"):
        (root / folder).mkdir(parents=True)
        (root / folder / "file").touch()
    assert Memory(inputs_of(task))._digest(everything) == before


def test_the_other_folder_may_be_built_meanwhile(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry that another work folder had finished is unfinished by the time it is copied: it is built here."""
    other = task.work.parent / "other"
    (other / task.entry.folder).mkdir(parents=True)
    memory._write(other / task.entry.folder, begun={})
    known = Memory(inputs_of(task), earlier=other)
    answers = iter([None, object(), None])
    monkeypatch.setattr(Memory, "_take", lambda *_: next(answers))
    (task.folder).mkdir(parents=True)
    assert known.take(task) is None
    assert next(answers, "none is left") == "none is left"


def folder(build: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Return the function that prepares a build folder for what it is made of, and by which variables CMake finds."""
    setup: Any = SimpleNamespace(build=build, prefix=build.parent / "install")

    def prepare(key: str, found_by: str) -> None:
        monkeypatch.setattr(buildfolder, "_key", lambda *_: key)
        monkeypatch.setattr(buildfolder, "_found_by", lambda _: found_by)
        buildfolder.prepare(setup, ())

    return prepare


def test_a_build_folder_is_kept_while_it_is_made_of_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects stay where only what CMake found may be another: its cache goes. Else the folder is made anew."""
    build = tmp_path / "build"
    prepare = folder(build, monkeypatch)
    prepare("a", "x")
    for name in ("object", "CMakeCache.txt"):
        (build / name).touch()
    prepare("a", "x")
    assert {path.name for path in build.iterdir()} == {buildfolder.FILE, "object", "CMakeCache.txt"}
    prepare("a", "y")
    assert {path.name for path in build.iterdir()} == {buildfolder.FILE, "object"}
    prepare("b", "y")
    assert {path.name for path in build.iterdir()} == {buildfolder.FILE}
    (build / "object").touch()
    (build / buildfolder.FILE).write_text("{", encoding="ascii")
    prepare("b", "y")
    assert {path.name for path in build.iterdir()} == {buildfolder.FILE}


def test_what_compiling_puts_into_the_prefix_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ninja does not make it again, so it goes only with the build folder; what was installed goes each time."""
    prepare, prefix = folder(tmp_path / "build", monkeypatch), tmp_path / "install"
    setup: Any = SimpleNamespace(build=tmp_path / "build", prefix=prefix)

    def add(*names: str) -> None:
        for name in names:
            (prefix / name).parent.mkdir(parents=True, exist_ok=True)
            (prefix / name).touch()

    def there() -> list[str]:
        return sorted(path.relative_to(prefix).as_posix() for path in prefix.rglob("*"))

    add("of another build")
    prepare("a", "x")
    assert not prefix.exists()
    add("lib/placed.so")
    prepare("a", "x")  # stopped before anything was installed
    assert there() == ["lib", "lib/placed.so"]
    for _ in range(2):
        buildfolder.note_placed(setup)
        add("ops.so", "include/ops.h")
        (prefix / "include" / "link").symlink_to("..")
        prepare("a", "x")
        assert there() == ["lib", "lib/placed.so"]
    prepare("b", "x")
    assert not prefix.exists()


def test_a_build_folder_that_is_half_removed_is_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed while it removes the folder, and the next build has the settings of before."""
    build = tmp_path / "build"
    prepare = folder(build, monkeypatch)
    prepare("a", "x")
    (build / "object").touch()
    with monkeypatch.context() as patch:
        killed_at("shutil.rmtree", patch)
        with pytest.raises(Killed):
            prepare("b", "x")
    assert (build / "object").exists()
    prepare("a", "x")
    assert not (build / "object").exists()


def test_a_configure_step_that_was_killed_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CMake's cache may call a check failed that was killed; and nothing counts as configured while CMake runs."""
    build = tmp_path / "build"
    folder(build, monkeypatch)("a", "x")
    setup: Any = SimpleNamespace(build=build)
    buildfolder._change(setup, configured="digest")
    buildfolder.begin_configuring(setup)
    assert buildfolder._read(setup) == {"key": "a", "found_by": "x", "configuring": "yes"}
    (build / "CMakeCache.txt").touch()
    buildfolder.begin_configuring(setup)
    assert not (build / "CMakeCache.txt").exists()
    (build / "CMakeCache.txt").touch()
    buildfolder.end_configuring(setup)
    buildfolder.begin_configuring(setup)
    assert (build / "CMakeCache.txt").exists()


def test_where_nothing_is_compiled_a_job_is_taken_for_one_of_the_cpu(task: Task, tmp_path: Path) -> None:
    """The build of what is finished already reserves what the smallest compile job needs."""
    history = History(tmp_path / HISTORY)
    assert pipeline._per_job(task.config, [], history) == Backend("cpu").memory
    assert pipeline._per_job(task.config, [task], history) >= Backend("cpu").memory
