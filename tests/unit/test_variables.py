"""The table of environment variables that matter to a compile: what its filters give, and that nothing is past it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from unittest import mock

import pytest

from hatch_torch_ext import config as configuration
from hatch_torch_ext.facts import variables
from hatch_torch_ext.facts.variables import TABLE, Use
from hatch_torch_ext.hooks import build
from hatch_torch_ext.pipeline import cluster, inputs
from hatch_torch_ext.remote import pipconfig, settings
from hatch_torch_ext.resources import _variants
from hatch_torch_ext.values import Entry, Task

PAGES = Path(__file__).resolve().parents[2]
MADE_OF = variables.names(Use.COMPILE | Use.FIND | Use.INDEX | Use.CHOOSE)

OF_A_COMPILE = re.compile(
    r"(?:C|CXX|CPP|CUDA|LD)FLAGS|CC|CXX|CUDAHOSTCXX|CUDAARCHS|CUDA_(?:HOME|PATH)|SOURCE_DATE_EPOCH|TORCH_CUDA_ARCH_LIST"
    r"|(?:NVCC|PKG_CONFIG|GCC|COMPILER|CCC)_\w+|PKG_CONFIG|CMAKE_BUILD_TYPE|\w*(?:(?<!R)(?<!RUN)PATH|_LAUNCHER|_ROOT)|CMAKE_TOOLCHAIN_FILE"
)
"""The names of variables that CMake, compilers and what they start read from the environment."""
NOT_OF_THE_ENVIRONMENT = {
    "CCACHE_CONFIGPATH": "where ccache keeps files, which changes no result",
    "HATCH_TORCH_EXT_COMPILER_LAUNCHER": "an option, which the key has",
    "NO_DEFAULT_PATH": "an argument of CMake's commands",
    "PYTHONSAFEPATH": "removed: the interpreter is the entry's",
    "PATH": "every isolated build has its own; the compilers that are found on it are in the key",
    "PYTHONPATH": "CMake gets the entry's",
    "TORCH_LIB_PATH": "a variable of torch's Python code",
}


def named() -> dict[str, list[str]]:
    """Return the names in the pages that may be such variables -> the pages that name them."""
    found: dict[str, list[str]] = {}
    for page in sorted([PAGES / "README.md", *(PAGES / "docs").glob("*.md")]):
        for name in set(re.findall(r"(?<!-)\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\b", page.read_text(encoding="utf-8"))):
            if OF_A_COMPILE.fullmatch(name):
                found.setdefault(name, []).append(page.name)
    return found


def test_every_variable_that_a_page_names_is_in_the_table() -> None:
    """A page that says what a variable does to the compile says it of one that the keys know; 20 names at least."""
    found = named()
    assert {name: pages for name, pages in found.items() if name not in {*TABLE, *NOT_OF_THE_ENVIRONMENT}} == {}
    assert [name for name in NOT_OF_THE_ENVIRONMENT if name not in found or name in TABLE] == []
    assert len(found) >= 20


def test_the_loader_tells_builds_at_first_use_apart_by_the_tables_variables() -> None:
    """The loader imports nothing of ours: its own list is the same as the table's."""
    part = _variants._part("build")
    assert set(part._ENVIRON) == set(variables.names(Use.FIRST_USE))
    environ = {"FC": "gfortran", "CXX": "", "CARGO_PROFILE_RELEASE_LTO": "fat", "CARGO_TARGET_DIR": "/x"}
    with mock.patch.dict("os.environ", environ, clear=True):
        assert part._variables() == ["CARGO_PROFILE_RELEASE_LTO=fat", "FC=gfortran"]


def test_a_variable_of_cargo_has_names_without_end() -> None:
    """Each key of a profile, and each target, has its own; folders and registries change no result."""
    environ = dict.fromkeys(("CARGO_TARGET_DIR", "CARGO_HOME", "CARGO_REGISTRY_TOKEN", "RUSTC_WRAPPER"), "x")
    counting = {
        "CARGO_PROFILE_RELEASE_OPT_LEVEL": "3",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER": "clang",
        "RUSTFLAGS": "-C target-cpu=native",
    }
    assert variables.of(Use.COMPILE, {**environ, **counting}) == counting


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Return an entry's task."""
    (tmp_path / "my_pkg").mkdir()
    (tmp_path / "CMakeLists.txt").touch()
    options = {"source": ".", "package": "my_pkg"}
    config = configuration.parse(options, root=tmp_path, project_name="my-pkg", environ={})
    entry = Entry(
        name="matrix.2.13",
        variables=(("torch", "2.13"),),
        dependencies=(),
        torch_requirement="torch==2.13.*",
        python=None,
    )
    return Task(entry=entry, config=config, work=tmp_path / "build" / "torch-ext")


@pytest.mark.parametrize("name", MADE_OF)
def test_a_finished_entry_depends_on(name: str, task: Task) -> None:
    """Set in the process's own environment, as `env-vars` of the entry, changed or removed: another key each time."""
    keys = [inputs._key(task, {}), *(inputs._key(task, {name: value}) for value in ("/one", "/two"))]
    own = dataclasses.replace(task.entry, env_vars=((name, "/three"),))
    keys.append(inputs._key(dataclasses.replace(task, entry=own), own.environ({})))
    assert len(set(keys)) == 4


@pytest.mark.parametrize("name", sorted(set(TABLE) - set(MADE_OF)))
def test_a_finished_entry_does_not_depend_on(name: str, task: Task) -> None:
    """What changes no result is not a reason to build again."""
    assert inputs._key(task, {}) == inputs._key(task, {name: "/one"})


def test_a_finished_entry_depends_on_constraints(tmp_path: Path, task: Task) -> None:
    """Their lines count, not the file's name or its comments."""
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    for name in (*pipconfig.OF_UV, *pipconfig.OF_PIP):
        one.write_text("nanobind==2.8\n", encoding="utf-8")
        two.write_text("# a comment\nnanobind==2.8\n", encoding="utf-8")
        before = inputs._key(task, {name: str(one)})
        assert inputs._key(task, {name: str(two)}) == before
        one.write_text("nanobind==2.9\n", encoding="utf-8")
        assert len({before, inputs._key(task, {name: str(one)}), inputs._key(task, {})}) == 3


def test_what_travels_to_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments of compilers are sent, nvcc's own too, and indexes; paths are each machine's own."""
    for name in TABLE:
        monkeypatch.setenv(name, "x")
    sent = {name for name in cluster._environ("1.0") if name in TABLE}
    arguments = {"CFLAGS", "CPPFLAGS", "CUDAFLAGS", "CXXFLAGS", "LDFLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"}
    arguments |= {"ASMFLAGS", "ASM_NASMFLAGS", "FFLAGS", "ISPCFLAGS", "OBJCFLAGS", "OBJCXXFLAGS", "RUSTFLAGS"}
    arguments |= {"CARGO_BUILD_INCREMENTAL", "CARGO_INCREMENTAL", "CARGO_PROFILE_*", "CARGO_TARGET_*_RUSTFLAGS"}
    arguments |= {"CARGO_BUILD_RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"}
    values = {"CMAKE_BUILD_TYPE", "CUDAARCHS", "SOURCE_DATE_EPOCH"}
    assert sent == {*arguments, *values, *variables.names(Use.INDEX | Use.CHOOSE)}


def test_the_table_has_every_variable_of_an_index() -> None:
    """What uv gets by another way, and what pip's files may set, is what an entry depends on."""
    assert {*settings.UV_INDEX_VARIABLES, *pipconfig.VARIABLES.values()} == set(variables.names(Use.INDEX))
    assert len(settings.UV_INDEX_VARIABLES) == 5


def test_what_cmake_files_read() -> None:
    """``$ENV{…}``, and the variables that name a package's place, but for packages whose place the build names.

    PATH, which every isolated build has another value of, is not among them: no entry would be kept.
    """
    text = "set(X $ENV{FLAVOUR} $ENV{PATH})\nfind_package(Torch)\nfind_package( Foo 1.2)\nFIND_PACKAGE(fmt REQUIRED)\n"
    assert sorted(variables.of_cmake([text])) == [
        *("FLAVOUR", "FMT_ROOT", "FOO_ROOT", "Foo_DIR", "Foo_ROOT", "fmt_DIR", "fmt_ROOT"),
    ]


def test_a_variable_of_other_backends() -> None:
    """CMAKE_ARGS, which the build does not read, is named with what is read."""
    assert "the environment variable CMAKE_ARGS is not read; the options" in str(
        build._not_read({"CMAKE_ARGS": "-DA=1"})
    )
    assert build._not_read({"CMAKE_ARGS": " "}) is None
