"""The hook's options become one value, or one error that tells every fault."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hatch_torch_ext import config
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.config import CMakeConfig, Config, declaration
from hatch_torch_ext.facts import manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

HOOK = "for build hook `torch-ext`"


def parse(root: Path, text: str = "", *, name: str = "my-pkg", environ: Mapping[str, str] | None = None) -> Config:
    """Parse the TOML of a hook's table."""
    return config.parse(tomlkit.parse(text).unwrap(), root=root, project_name=name, environ=environ or {})


def problems(root: Path, text: str, *, name: str = "my-pkg", environ: Mapping[str, str] | None = None) -> list[str]:
    """Return what is wrong with the TOML of a hook's table."""
    with pytest.raises(ConfigurationError) as caught:
        parse(root, text, name=name, environ=environ)
    return list(caught.value.problems)


def test_defaults(project: Path) -> None:
    """An empty table is a whole configuration: everything else is found or has a default."""
    assert parse(project) == Config(
        root=project, package="my_pkg", package_dir=project / "src" / "my_pkg", source=project / "csrc"
    )


def test_every_option(project: Path) -> None:
    """Every option, as an author writes it, reaches the value that the stages read."""
    (project / "native").mkdir()
    (project / "native" / "CMakeLists.txt").touch()
    text = """
        environment = "wheels"
        source = "native"
        package = "my_pkg"
        sdk = "environment"
        only = ["*.2.8*"]
        skip = ["torch2.4_*", "x"]
        archs.13 = ["9.0", "10.0f", "12.0+PTX"]
        archs."12.8" = ["9.0a"]
        debug-symbols = "split"
        max-size = "100 MB"
        manylinux = "2_28"
        exclude = ["libfoo.so*"]
        ignore = ["TE101"]
        jobs = 4
        index-url = "https://download.pytorch.org/whl/{cuda}"
        extra-index-url = "https://index.example/simple"
        cuda-home = "/opt/cuda-{cuda}"
        cuda.compress = "size"
        compiler-launcher = "tools/launch"
        editable.only = ["*.2.13*"]
        audit-symbols = "fetch"

        [cmake]
        args = ["-Wno-dev"]
        build-type = "RelWithDebInfo"
        torch-package = "upstream"
        [cmake.define]
        WITH_X = true
        WITH_Y = false
        NAME = "a name"
        COUNT = 3
        FACTOR = 1.5
        PARTS = ["a", "b;c", 2, true]
        EMPTY = ""
    """
    assert parse(project, text) == Config(
        root=project,
        package="my_pkg",
        package_dir=project / "src" / "my_pkg",
        source=project / "native",
        environment="wheels",
        sdk="environment",
        only=("*.2.8*",),
        skip=("torch2.4_*", "x"),
        cmake=CMakeConfig(
            args=("-Wno-dev",),
            define=(
                ("WITH_X", "ON"),
                ("WITH_Y", "OFF"),
                ("NAME", "a name"),
                ("COUNT", "3"),
                ("FACTOR", "1.5"),
                ("PARTS", r"a;b\;c;2;ON"),
                ("EMPTY", ""),
            ),
            build_type="RelWithDebInfo",
            torch_package="upstream",
        ),
        archs=(("13", ("9.0", "10.0f", "12.0+PTX")), ("12.8", ("9.0a",))),
        cuda_home="/opt/cuda-{cuda}",
        cuda_compress="size",
        compiler_launcher=str(project / "tools" / "launch"),
        debug_symbols="split",
        max_size=100_000_000,
        manylinux="manylinux_2_28",
        exclude=("libfoo.so*",),
        ignore=("TE101",),
        jobs=4,
        index_url="https://download.pytorch.org/whl/{cuda}",
        extra_index_url=("https://index.example/simple",),
        editable_only=("*.2.13*",),
        audit_symbols="fetch",
    )


def test_every_known_option_is_read(project: Path) -> None:
    """Each option of the list is looked at: a wrong type for it is a fault that names it."""
    wrong: dict[str, object] = {}
    for option in config.KNOWN:
        table, _, name = option.rpartition(".")
        holder = wrong.setdefault(table, {}) if table else wrong
        assert isinstance(holder, dict)
        holder[name] = object()
    with pytest.raises(ConfigurationError) as caught:
        config.parse(wrong, root=project, project_name="my-pkg", environ={})
    named = {problem.split("`")[1] for problem in caught.value.problems}
    assert named == set(config.KNOWN)


def test_every_option_is_decided() -> None:
    """A new option says whether it changes a variant's bytes (`affects`), and a build at first use (`OPTIONS`)."""
    found = {each.name for each in declaration.OPTIONS}
    no_bytes = {each.name for each in declaration.OPTIONS if each.affects == "nothing"}
    assert {"root", "cmake", "index_url", "archs"} <= set(declaration.affecting())
    assert {"jobs", "only"}.isdisjoint(declaration.affecting())
    compiles = {name for name in found if name.partition(".")[0] in manifest.OPTIONS}
    where_and_what = {
        *("environment", "package", "source", "sdk", "cross", "cuda-home", "cuda.compress", "compiler-launcher"),
        *("index-url", "extra-index-url", "manylinux", "audit-symbols"),
        *("fallback", "fallback-default", "fallback-requires"),
    }
    assert found == no_bytes | compiles | where_and_what
    assert len(found) == len(no_bytes) + len(compiles) + len(where_and_what)


def test_options_of_every_hook_pass(project: Path) -> None:
    """Options that hatchling reads from any hook's table are accepted."""
    text = """
        dependencies = ["ninja"]
        enable-by-default = false
        require-runtime-dependencies = true
        require-runtime-features = ["cuda"]
    """
    assert parse(project, text) == parse(project)


def test_reserved_options_are_hatchlings_own() -> None:
    """The options that pass are those that hatchling's own source reads from the table of any hook."""
    from hatchling.builders import config as hatchlings  # noqa: PLC0415 - needed only here

    source = Path(hatchlings.__file__).read_text(encoding="utf-8").replace("'", '"')
    for option in config.RESERVED:
        assert f'config.get("{option}"' in source


def test_wrong_types_are_all_reported_at_once(project: Path) -> None:
    """One error reports every wrong type, in a stable order; entries count from 1."""
    text = """
        cmake.args = "-Wno-dev"
        cmake.define.X = [[1]]
        cmake.build-type = 3
        cuda = "13"
        only = "matrix.*"
        skip = ["a", 3, ""]
        environment = ""
        jobs = true
        max-size = 1.5
        manylinux = 2.28
        extra-index-url = 3
        archs = "9.0"
    """
    assert problems(project, text) == [
        f"Option `cuda` {HOOK} must be a table",
        f"Option `environment` {HOOK} must not be empty if defined",
        f"Option `only` {HOOK} must be an array of strings",
        f"Entry #2 of option `skip` {HOOK} must be a string",
        f"Entry #3 of option `skip` {HOOK} must not be empty",
        f"Option `jobs` {HOOK} must be a whole number of at least 1, not `True`",
        f"Option `cmake.args` {HOOK} must be an array of strings",
        f"Option `cmake.define.X` {HOOK} must be a string, a boolean, a number, or an array of these",
        f"Option `cmake.build-type` {HOOK} must be a string",
        f'Option `archs` {HOOK} must be an array of strings such as `["8.0", "9.0+PTX"]`, or a table of such arrays',
        f"Option `extra-index-url` {HOOK} must be a string or an array of strings",
        f"Option `manylinux` {HOOK} must be a string",
        f"Option `max-size` {HOOK} must be a number of bytes, or a size such as `100 MB` or `64 MiB`",
    ]


@pytest.mark.performs("every build uses `Ninja`: remove it")
def test_wrong_values_are_all_reported_at_once(project: Path) -> None:
    """One error reports every wrong value, with the values that are allowed."""
    assert parse(project, 'cmake.args = ["-GNinja", "-G", "Ninja"]').cmake.args == ("-GNinja", "-G", "Ninja")
    text = """
        sdk = "thick"
        cuda.compress = "best"
        cmake.torch-package = "mine"
        cmake.args = ["-GNinja", "-G", "Ninja", "-G", "Ninja Multi-Config", "-GUnix Makefiles", "-G"]
        cmake.define."A B" = 1
        debug-symbols = "some"
        audit-symbols = "never"
        jobs = 0
        index-url = "download.pytorch.org/{torch}/{cuda}/{python}/{"
        cuda-home = "/opt/{version}"
        [archs]
        cu130 = ["9.0"]
        13 = ["sm_90", "compute_100f", "Hopper", "9.0"]
    """
    archs = "must be an architecture as torch writes it, such as `8.0`, `9.0a`, `10.0f`, `9.0+PTX` or `all-major`"
    ninja = ", but every build uses `Ninja`: remove it"
    compress = "must be `default`, `none`, `size`, `speed` or `balance`, not `best`"
    assert problems(project, text) == [
        f"Option `sdk` {HOOK} must be `thin` or `environment`, not `thick`",
        f"Option `jobs` {HOOK} must be a whole number of at least 1, not `0`",
        f"Entry #4 of option `cmake.args` {HOOK} names the generator `Ninja Multi-Config`{ninja}",
        f"Entry #6 of option `cmake.args` {HOOK} names the generator `Unix Makefiles`{ninja}",
        f"Entry #7 of option `cmake.args` {HOOK} names the generator ``{ninja}",
        f"Option `cmake.define.A B` {HOOK} must be named for a CMake variable, without spaces and `=`",
        f"Option `cmake.torch-package` {HOOK} must be `hatch-torch-ext` or `upstream`, not `mine`",
        f"Option `archs.cu130` {HOOK} must be named for a CUDA version, such as `13` or `12.8`",
        f"Entry #1 of option `archs.13` {HOOK} {archs}: `9.0`, not `sm_90`",
        f"Entry #2 of option `archs.13` {HOOK} {archs}: `10.0f+PTX`, not `compute_100f`",
        f"Entry #3 of option `archs.13` {HOOK} {archs}, not `Hopper`",
        f"Option `cuda-home` {HOOK} may contain the field `{{cuda}}` or `{{cuda_major}}`, not `{{version}}`",
        f"Option `cuda.compress` {HOOK} {compress}",
        f"Option `index-url` {HOOK} must be an address that starts with `https://`, `http://` or `file://`",
        f"Option `index-url` {HOOK} has a brace that is not part of a field such as `{{cuda}}`; correct or remove it",
        f"Option `debug-symbols` {HOOK} must be `strip`, `split` or `keep`, not `some`",
        f"Option `audit-symbols` {HOOK} must be `cached` or `fetch`, not `never`",
    ]


@pytest.mark.performs("without quotes")
@pytest.mark.parametrize(
    ("text", "unknown", "remedy"),
    [
        ("max_size = 1", "max_size", "did you mean `max-size`?"),
        ("pakage = 'x'", "pakage", "did you mean `package`?"),
        ("build-type = 'Debug'", "build-type", "did you mean `cmake.build-type`?"),
        ("cmake_args = []", "cmake_args", "did you mean `cmake.args`?"),
        ("cmake.defines = {}", "cmake.defines", "did you mean `cmake.define`?"),
        ("cmake.build_type = 'Debug'", "cmake.build_type", "did you mean `cmake.build-type`?"),
        ("cmake.source = 'csrc'", "cmake.source", "did you mean `source`?"),
        ("cuda.home = 'x'", "cuda.home", "did you mean `cuda-home`?"),
        ("editable.onyl = []", "editable.onyl", "did you mean `editable.only`?"),
        ("CMake = {}", "CMake", "did you mean `cmake`?"),
        ("'cmake.args' = []", "cmake.args", "write `cmake.args` without quotes, so that it is a table"),
        ("zzz = 1", "zzz", None),
    ],
)
def test_unknown_options_suggest_the_known(project: Path, text: str, unknown: str, remedy: str | None) -> None:
    """An unknown option names the one that was probably meant, in tables too, else all there are.

    Written as the message says, it is known.
    """
    listed = ", ".join(f"`{option}`" for option in config.KNOWN)
    assert problems(project, text) == [f"Unknown option `{unknown}` {HOOK}: {remedy or f'the options are {listed}'}"]
    meant = remedy.split("`")[1] if remedy else "jobs"
    value = text.partition("=")[2].replace("'x'", "'src'" if meant == "source" else "'my_pkg'")
    assert parse(project, f"{meant} ={value}")


def test_unknown_options_come_first_in_the_authors_order(project: Path) -> None:
    """The order of problems is the author's for what is unknown, and fixed for the rest."""
    found = problems(project, "zeta = 1\nsdk = 1\nalpha = 1\njobs = 'x'\n[cmake]\nflags = 1")
    assert [problem.split("`")[1] for problem in found] == ["zeta", "alpha", "cmake.flags", "sdk", "jobs"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("archs = ['8.0', '9.0+PTX', '8.0']", (("", ("8.0", "9.0+PTX")),)),
        ("archs = ['all-major']", (("", ("all-major",)),)),
        ("archs = []", ()),
        ("archs.12.8 = ['9.0']\narchs.12.6 = ['8.0']\narchs.13 = ['10.0']", None),
        ("archs = { '12.8' = ['9.0'], '12.6' = ['8.0'], 13 = ['10.0'] }", None),
    ],
)
def test_archs_by_cuda_version(
    project: Path, text: str, expected: tuple[tuple[str, tuple[str, ...]], ...] | None
) -> None:
    """One list for every CUDA, or one for each; `12.8` means the version with and without quotes in TOML."""
    by_version = (("12.8", ("9.0",)), ("12.6", ("8.0",)), ("13", ("10.0",)))
    assert parse(project, text).archs == (by_version if expected is None else expected)


def test_cross_compilers_by_machine(project: Path) -> None:
    """Paths are relative to the project's root, bare names are looked up later; every wrong value is reported."""
    text = "cross.aarch64 = { cxx = 'clang++', cc = 'bin/cc', sysroot = 'root', python = '/p/{python}' }"
    expected = config.Cross(
        machine="aarch64",
        cxx="clang++",
        cc=str(project / "bin/cc"),
        sysroot=str(project / "root"),
        python="/p/{python}",
    )
    found = parse(project, text)
    assert (found.cross_for("aarch64"), found.cross_for("x86_64")) == (expected, config.Cross(machine="x86_64"))
    wrong = (
        "cross.arm64 = {}\n[cross.aarch64]\ncxx = 1\ncpp = 'g++'\npython = '{version}'\n[cross.x86_64]\nsysroot = ''"
    )
    assert problems(project, wrong) == [
        f"Option `cross.arm64` {HOOK} must be named for a machine, `x86_64` or `aarch64`",
        f"Unknown option `cross.aarch64.cpp` {HOOK}: did you mean `cross.aarch64.cc`?",
        f"Option `cross.aarch64.cxx` {HOOK} must be a string",
        f"Option `cross.aarch64.python` {HOOK} may contain the field `{{python}}`, not `{{version}}`",
        f"Option `cross.x86_64.sysroot` {HOOK} must not be empty if defined",
    ]


@pytest.mark.performs(
    "remove the option",
    "pass the address as `hatch-torch-ext build --dask ADDRESS`",
    "set the environment variable `CCACHE_MAXSIZE`",
    "set `CCACHE_MAXSIZE`",
)
def test_options_of_before_say_what_to_write(project: Path) -> None:
    """A removed option stops the build with what replaces it, and nothing else is wrong then."""
    before = "strip = false\nmax-download = '1 GB'\ncompiler-cache-size = 1\ndask = 'tcp://a:1'"
    assert sorted(problems(project, before)) == [
        f"Option `compiler-cache-size` {HOOK} was removed: set the environment variable `CCACHE_MAXSIZE`, which ccache "
        "reads by itself",
        f"Option `dask` {HOOK} is set on the machine that builds: pass the address as `hatch-torch-ext build "
        "--dask ADDRESS`, or in the environment variable `HATCH_TORCH_EXT_DASK`",
        f"Option `max-download` {HOOK} was removed: the limit is always 8 GB for an entry; remove the option",
        f'Option `strip` {HOOK} was removed: for `true` write `debug-symbols = "strip"`, for `false` '
        '`debug-symbols = "keep"`',
    ]
    assert parse(project, "debug-symbols = 'keep'").debug_symbols == "keep"
    assert parse(project, "", environ={"HATCH_TORCH_EXT_DASK": "tcp://a:1"}).dask == "tcp://a:1"
    assert problems(project, "", environ={"HATCH_TORCH_EXT_COMPILER_CACHE_SIZE": "1 GB"}) == [
        "Environment variable `HATCH_TORCH_EXT_COMPILER_CACHE_SIZE` was removed: set `CCACHE_MAXSIZE`, which ccache "
        "reads by itself"
    ]


@pytest.mark.performs("correct or remove it")
def test_a_brace_that_is_not_a_field(project: Path) -> None:
    """The option is named without its address, which may hold a password; without the brace it is right."""
    fault = (
        f"Option `index-url` {HOOK} has a brace that is not part of a field such as `{{cuda}}`; correct or remove it"
    )
    assert problems(project, "index-url = 'https://index.example/{cuda'") == [fault]
    for mended in ("{cuda}", "cuda"):
        found = parse(project, f"index-url = 'https://index.example/{mended}'").index_url
        assert found == f"https://index.example/{mended}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "auto"), ("compiler-launcher = 'none'", "none"), ("compiler-launcher = 'sccache'", "sccache")],
)
def test_compiler_launcher(project: Path, text: str, expected: str) -> None:
    """A bare name is looked up later on PATH; it is not a file of the project."""
    assert parse(project, text).compiler_launcher == expected


def test_paths_are_the_projects(project: Path) -> None:
    """Relative paths count from the project's root, whatever folder the build is started in."""
    (project / "deep" / "er").mkdir(parents=True)
    (project / "CMakeLists.txt").touch()
    found = parse(project, "source = 'deep/er/../..'\ncuda-home = 'cuda/{cuda_major}'")
    assert found.source == project
    assert found.cuda_home == f"{project}/cuda/{{cuda_major}}"


@pytest.mark.parametrize(
    ("environ", "only", "skip"),
    [
        ({}, ("a",), ("b",)),
        ({"HATCH_TORCH_EXT_ONLY": "x,y z"}, ("x", "y", "z"), ("b",)),
        ({"HATCH_TORCH_EXT_SKIP": " torch2.8_* ,\n*cu1[23]* "}, ("a",), ("torch2.8_*", "*cu1[23]*")),
        ({"HATCH_TORCH_EXT_ONLY": "", "HATCH_TORCH_EXT_SKIP": " , "}, ("a",), ("b",)),
    ],
)
def test_environment_variables_override_selectors(
    project: Path, environ: dict[str, str], only: tuple[str, ...], skip: tuple[str, ...]
) -> None:
    """Globs apart by commas or spaces take the option's place; a blank variable is as good as none."""
    found = parse(project, "only = ['a']\nskip = ['b']", environ=environ)
    assert (found.only, found.skip) == (only, skip)


def test_another_matrix_from_the_environment(project: Path) -> None:
    """One project may have a small matrix and a full one: the variable overrides the option."""
    full = {"HATCH_TORCH_EXT_ENVIRONMENT": " full "}
    assert parse(project, 'environment = "matrix"', environ=full).environment == "full"
    assert parse(project, "", environ={"HATCH_TORCH_EXT_ENVIRONMENT": ""}).environment == "matrix"


def test_jobs_from_the_environment(project: Path) -> None:
    """The variable overrides the option, and is checked like it."""
    assert parse(project, "jobs = 2", environ={"HATCH_TORCH_EXT_JOBS": " 8 "}).jobs == 8
    assert parse(project, "jobs = 2", environ={"HATCH_TORCH_EXT_JOBS": ""}).jobs == 2
    for value in ("many", "0", "-1", "1.5", "9" * 5000):
        assert problems(project, "", environ={"HATCH_TORCH_EXT_JOBS": value}) == [
            f"Environment variable `HATCH_TORCH_EXT_JOBS` must be a whole number of at least 1, not `{value}`"
        ]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("1700000000000", "; in seconds it would be `1700000000`"),
        ("4354819200", ""),
        ("yesterday", ""),
        ("1.5", ""),
        ("-1", ""),
        ("9" * 5000, ""),
        ("", ""),
        (" 1 ", ""),
    ],
)
def test_a_date_that_is_none_is_reported(project: Path, text: str, more: str) -> None:
    """Milliseconds and text are refused in a sentence before any work: hatchling and compilers fail on them."""
    assert problems(project, "", environ={"SOURCE_DATE_EPOCH": text}) == [
        "Environment variable `SOURCE_DATE_EPOCH` must be a whole number of seconds since 1970, below 4354819200 "
        f"(2108, where dates of zip files end), not `{text}`{more}"
    ]


def test_dates_that_archives_can_hold(project: Path) -> None:
    """From 1970 to the last second of the last year of a zip file; hatchling moves what is before 1980."""
    for text in ("0", "1580601600", "4354819199"):
        assert parse(project, environ={"SOURCE_DATE_EPOCH": text}) == parse(project)


def test_a_nul_character(project: Path) -> None:
    """A path or an argument with one is refused by name: the system takes neither."""
    told = "must not contain a NUL character, which neither a path nor an argument can have"
    text = 'source = "c\\u0000src"\nexclude = ["a", "b\\u0000"]\ncmake.define.X = "\\u0000"'
    assert sorted(problems(project, text)) == [
        f"Entry #2 of option `exclude` {HOOK} {told}",
        f"Option `cmake.define.X` {HOOK} {told}",
        f"Option `source` {HOOK} {told}",
    ]


def test_secrets_of_an_index_are_not_repeated(project: Path) -> None:
    """A message about an index never shows the address, which may hold a password."""
    for text in ("index-url = 'user:secret@host'", "extra-index-url = ['https://user:secret@host/{secret:secret}/{']"):
        assert not any("secret@" in problem for problem in problems(project, text))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([*config.KNOWN, *(option.partition(".")[0] for option in config.KNOWN)]) | st.text(max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.dictionaries(NAMES, VALUES, max_size=6), jobs=st.text(max_size=4))
def test_any_table_gives_a_configuration_or_its_problems(project: Path, raw: dict[str, object], jobs: str) -> None:
    """Whatever is written, the answer is a value or a list of problems, always the same, and the table is untouched."""

    def answer() -> str:
        try:
            found = config.parse(raw, root=project, project_name="my-pkg", environ={"HATCH_TORCH_EXT_JOBS": jobs})
        except ConfigurationError as error:
            return str(error)
        return repr(found)

    before = repr(copy.deepcopy(raw))
    assert answer() == answer()
    assert repr(raw) == before
