"""CUDA without a GPU: toolkits out of wheels and of the system; what is really compiled is read back from the files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import values
from hatch_torch_ext import cmake, elf, toolchain
from hatch_torch_ext.base.errors import CompileError, ToolchainError
from hatch_torch_ext.config import CMakeConfig, Config
from hatch_torch_ext.elf import fatbin
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.values import Environment, Interpreter, PreparedEntry, Sdk
from workbench import Fixed

if TYPE_CHECKING:
    from hatch_torch_ext.values import Entry, InstallTree, Toolchain

PACKAGES = Path(__file__).resolve().parent.parent / "packages"


@dataclass(frozen=True)
class Bench:
    """Builds a sample project as an entry of its own below ``folder``."""

    folder: Path
    environment: Environment
    sdk: Sdk

    def config(self, project: str, *archs: str, **options: object) -> Config:
        """Return a configuration for ``tests/packages/<project>``."""
        config = Config(
            root=self.folder,
            package="pkg",
            package_dir=self.folder,
            source=PACKAGES / project,
            archs=(("", archs),) if archs else (),
            compiler_launcher="none",
        )
        return replace(config, **options)  # type: ignore[arg-type]

    def tools(self, config: Config, name: str = "matrix.2.11", cuda: str | None = None) -> Toolchain:
        """Return the toolchain that is found for the entry ``name`` that declares ``cuda``."""
        return toolchain.find(self.prepared(config, name, cuda), report=print)

    def prepared(self, config: Config, name: str, cuda: str | None) -> PreparedEntry:
        """Return the entry as it is before its tools are found."""
        entry = _entry(name, cuda)
        return PreparedEntry(
            entry=entry,
            config=config,
            environment=self.environment,
            sdk=self.sdk,
            folder=self.work(config) / entry.folder,
        )

    def work(self, config: Config) -> Path:
        """Return the folder of all entries."""
        return config.root / "build" / "torch-ext"

    def build(
        self, config: Config, tools: Toolchain | None = None, name: str = "matrix.2.11", cuda: str | None = None
    ) -> InstallTree:
        """Return what the project installs, as an entry that declares ``cuda``."""
        setup = self.prepared(config, name, cuda).with_tools(tools or self.tools(config, name, cuda))
        return cmake.build(setup, slots=Fixed(jobs=1), report=print)


def _entry(name: str, cuda: str | None = None) -> Entry:
    variables = (("cuda", cuda),) if cuda else ()
    return values.entry(name=name, variables=variables, torch_requirement="torch==2.11.*")


@pytest.fixture
def bench(tmp_path: Path, cuda13_wheels: Path) -> Bench:
    """Return a bench whose environment holds the compiler of the wheels, for a torch of CUDA 13.0 (unused)."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "torch" / "include").mkdir(parents=True)
    (tmp_path / "torch" / "lib").mkdir()
    interpreter = Interpreter(
        version="3.11.0",
        tag="cp311",
        ext_suffix=".so",
        machine="x86_64",
        include=Path(sysconfig.get_path("include")),
    )
    environment = Environment(
        prefix=tmp_path,
        python=Path(sys.executable),
        bin=tmp_path / "bin",
        site_packages=cuda13_wheels,
        interpreter=interpreter,
    )
    sdk = Sdk(
        kind="thin",
        version="2.11.0+cu130",
        backend=Backend("cuda", "13.0"),
        cxx11_abi=True,
        cxx_standard=17,
        prefix=tmp_path / "torch",
        library_dir=tmp_path / "torch" / "lib",
        include_dirs=(tmp_path / "torch" / "include",),
    )
    return Bench(folder=tmp_path / "project", environment=environment, sdk=sdk)


def needed(path: Path) -> set[str]:
    """Return the file's DT_NEEDED."""
    return set(elf.read(path).needed)


def test_the_compiler_of_the_wheels_builds_a_plain_project(bench: Bench) -> None:
    """Nothing but wheels: `LANGUAGES CUDA` configures, compiles, links the shared runtime; archs read back."""
    config = bench.config("cuda_plain", "7.5", "9.0a", "10.0f", "9.0+PTX")
    tools = bench.tools(config)
    tree = bench.build(config, tools)
    library = tree.prefix / "libkernels.so"
    assert tools.toolkit is not None
    assert tools.toolkit.source == "the entry's environment"
    assert tools.toolkit.root == bench.work(config) / "matrix.2.11" / "cuda"
    assert tree.gpu_compiler == "NVIDIA 13.0.88"
    assert fatbin.archs(library) == ("7.5", "9.0", "9.0+PTX", "9.0a", "10.0f")
    assert "libcudart.so.13" in needed(library)


def test_the_configuration_wins_over_every_way_to_choose_architectures(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 19: variables before and after project(), properties, options, flags, a subfolder: all give way.

    So does a file that the author runs first, as Conan's (case 44): what is printed is what is in the files.
    """
    first = tmp_path / "first.cmake"
    first.write_text('set(CMAKE_CUDA_ARCHITECTURES 75)\nmessage(STATUS "first ran")\n')
    options = CMakeConfig(args=(f"-DCMAKE_PROJECT_TOP_LEVEL_INCLUDES={first}",))
    tree = bench.build(bench.config("cuda_own_archs", "8.0", "9.0+PTX", cmake=options))
    assert "first ran" in tree.log.read_text()
    assert "GPU architectures 8.0 9.0+PTX, from option `archs`" in capsys.readouterr().out
    for name in ("libkernels.so", "libmore.so"):
        assert fatbin.archs(tree.prefix / name) == ("8.0", "9.0", "9.0+PTX")
        assert "libcudart.so.13" in needed(tree.prefix / name)
    assert "--use_fast_math" in str(tree.flags)


@pytest.mark.slow
def test_a_source_that_names_its_own_architecture_keeps_it(bench: Bench) -> None:
    """CUDA_ARCHITECTURES OFF with an architecture at the source is how kernels for one architecture are written."""
    tree = bench.build(bench.config("cuda_per_source", "8.0", "9.0a"))
    assert fatbin.archs(tree.prefix / "libkernels.so") == ("9.0a",)


@pytest.mark.slow
def test_cuda_enabled_late_and_the_functions_of_older_packages(bench: Bench) -> None:
    """enable_language(CUDA) after project(); torch's and FindCUDA's functions answer with the configuration."""
    tree = bench.build(bench.config("cuda_late", "8.0", "9.0+PTX"))
    log = tree.log.read_text()
    pairs = ("80,code=sm_80", "90,code=sm_90", "90,code=compute_90")
    flags = ";".join(f"-gencode=arch=compute_{pair}" for pair in pairs)
    assert f"torch answers {flags}" in log
    assert f"selected {flags}" in log
    assert fatbin.archs(tree.prefix / "libkernels.so") == ("8.0", "9.0", "9.0+PTX")


def test_a_project_of_the_time_before_the_language(bench: Bench) -> None:
    """find_package(CUDA), CUDA_NVCC_FLAGS and cuda_add_library: the entry's toolkit, its archs, the shared runtime."""
    tree = bench.build(bench.config("cuda_find_cuda", "8.0"))
    assert fatbin.archs(tree.prefix / "libkernels.so") == ("8.0",)
    assert "libcudart.so.13" in needed(tree.prefix / "libkernels.so")


def _with_torch_libraries(bench: Bench) -> None:
    for name in ("c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda"):
        library = bench.sdk.library_dir / f"lib{name}.so"
        subprocess.run(["c++", "-shared", f"-Wl,-soname,{library.name}", "-o", library, "-xc", "/dev/null"], check=True)


@pytest.mark.slow
def test_torch_and_the_names_of_its_older_files(bench: Bench) -> None:
    """Cases 18, 19: find_package(Torch) does not change architectures; CUDA::nvToolsExt is there, gone from CUDA 13."""
    _with_torch_libraries(bench)
    tree = bench.build(bench.config("cuda_torch", "8.0"))
    assert fatbin.archs(tree.prefix / "libkernels.so") == ("8.0",)
    assert "the architectures are 80-real" in tree.log.read_text()


def test_an_entry_that_declares_cuda_enables_the_language(bench: Bench) -> None:
    """What is left to find_package(Torch) is as with torch's own; C++ and kernels see the toolkit's headers alike."""
    _with_torch_libraries(bench)
    wheels = bench.folder.parent / "runtime"
    wheels.mkdir()
    (wheels / "cuda_runtime_api.h").write_text("#error of another minor than the toolkit\n", encoding="utf-8")
    bench = replace(bench, sdk=replace(bench.sdk, toolkit_include_dirs=(wheels,)))
    tree = bench.build(bench.config("cuda_implied", "8.0"), cuda="cu130")
    assert fatbin.archs(tree.prefix / "libkernels.so") == ("8.0",)


def test_a_cuda_source_that_cmake_would_leave_out(bench: Bench) -> None:
    """An entry that declares nothing: CMake drops the file in silence, we name it; for the CPU it may be dropped."""
    _with_torch_libraries(bench)
    config = bench.config("cuda_implied")
    with pytest.raises(CompileError) as failure:
        bench.build(config)
    assert "target kernels lists kernels.cu, but the project does not enable CUDA" in failure.value.message
    cpu = replace(bench, sdk=replace(bench.sdk, backend=Backend("cpu")))
    assert fatbin.archs(cpu.build(config, name="matrix.cpu").prefix / "libkernels.so") == ()


@pytest.mark.performs('give the entry `cuda = ["cpu"]`')
def test_cuda_sources_of_an_entry_that_is_meant_for_the_cpu(bench: Bench) -> None:
    """An index gives torch for CUDA where none was requested: both ways on are named, and `cuda = "cpu"` works."""
    _with_torch_libraries(bench)
    bench = replace(_without_toolkit(bench), sdk=_for(bench, "12.8", "2.10.0+cu128"))
    config = bench.config("cuda_implied")
    tools = bench.tools(config)
    if tools.toolkit is not None:
        pytest.skip("this machine has a CUDA 12 toolkit")
    with pytest.raises(ToolchainError) as failure:
        bench.build(config, tools)
    assert failure.value.message == (
        "target kernels lists kernels.cu, but the project does not enable CUDA, and CMake would leave the file out. "
        'For a variant without CUDA, give the entry `cuda = ["cpu"]` in the matrix. For one with CUDA: '
        f"{tools.toolkit_problem}"
    )
    cpu = replace(bench, sdk=replace(bench.sdk, backend=Backend("cpu")))  # what the variable makes of the SDK
    tree = cpu.build(config, tools, cuda="cpu")
    assert fatbin.archs(tree.prefix / "libkernels.so") == ()


def test_every_spelling_leads_to_one_toolkit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 20: find_package(CUDAToolkit), CUDA::cudart and the variables agree; out of wheels, it links."""
    monkeypatch.setenv("CUDA_PATH", "/elsewhere")
    monkeypatch.setenv("CUDACXX", "/elsewhere/bin/nvcc")
    config = bench.config("cuda_toolkit_library")
    tree = bench.build(config)
    root = bench.work(config) / "matrix.2.11" / "cuda"
    log = tree.log.read_text()
    assert f"the toolkit is {root} {root}/bin/nvcc {root}" in log
    assert f"the environment says {root} {root} {root}/bin/nvcc" in log
    assert "libcudart.so.13" in needed(tree.prefix / "libdevices.so")
    assert fatbin.archs(tree.prefix / "libdevices.so") == ()


def _for(bench: Bench, backend: str, version: str) -> Sdk:
    """Return the SDK of the bench as another build of torch has it."""
    return replace(bench.sdk, backend=Backend.parse(backend), version=version)


def _without_toolkit(bench: Bench) -> Bench:
    empty = bench.folder.parent / "empty"
    empty.mkdir()
    return replace(bench, environment=replace(bench.environment, site_packages=empty))


def test_an_optional_cuda_is_left_out_where_the_toolkit_does_not_fit(bench: Bench) -> None:
    """check_language(CUDA) and find_package(CUDAToolkit QUIET) find nothing, the system's other CUDA neither."""
    bench = replace(_without_toolkit(bench), sdk=_for(bench, "12.8", "2.10.0+cu128"))
    config = bench.config("cuda_optional")
    tools = bench.tools(config)
    tree = bench.build(config, tools)
    if tools.toolkit is not None:
        pytest.skip("this machine has a CUDA 12 toolkit")
    assert "optional toolkit: FALSE" in tree.log.read_text()
    assert fatbin.archs(tree.prefix / "libops.so") == ()


def test_an_optional_cuda_is_built_where_the_toolkit_fits(bench: Bench) -> None:
    """The same project with the compiler of the wheels holds kernels."""
    tree = bench.build(bench.config("cuda_optional", "8.0"))
    assert fatbin.archs(tree.prefix / "libops.so") == ("8.0",)


@pytest.mark.parametrize("project", ["cuda_plain", "cuda_late", "cuda_toolkit_library", "cuda_find_cuda"])
def test_cuda_requested_without_a_toolkit(bench: Bench, project: str) -> None:
    """However CMake asks for CUDA, our error says what was found and what to do, and nothing is compiled."""
    _with_torch_libraries(bench)
    bench = replace(_without_toolkit(bench), sdk=_for(bench, "12.8", "2.10.0+cu128"))
    config = bench.config(project)
    tools = bench.tools(config)
    if tools.toolkit is not None:
        pytest.skip("this machine has a CUDA 12 toolkit")
    with pytest.raises(ToolchainError) as failure:
        bench.build(config, tools)
    assert failure.value.entry == "matrix.2.11"
    assert failure.value.message == tools.toolkit_problem
    assert "CUDA 12" in failure.value.message


@pytest.mark.performs("check_language(CUDA)")
def test_cuda_requested_of_a_cpu_torch(bench: Bench) -> None:
    """A toolkit that is there does not help when torch has no CUDA."""
    bench = replace(bench, sdk=_for(bench, "cpu", "2.13.0+cpu"))
    with pytest.raises(ToolchainError) as failure:
        bench.build(bench.config("cuda_plain"))
    assert failure.value.message == (
        "CMake asks for CUDA, but torch 2.13.0+cpu is a build without CUDA. Choose a CUDA torch for this entry, or let "
        "the CMakeLists.txt check for CUDA first: `include(CheckLanguage)`, `check_language(CUDA)`, then "
        "`enable_language(CUDA)` only `if(CMAKE_CUDA_COMPILER)`"
    )
    # A project of just these lines.
    tree = bench.build(bench.config("cuda_optional"))
    assert fatbin.archs(tree.prefix / "libops.so") == ()


def test_cuda_requested_by_an_entry_for_the_cpu(bench: Bench) -> None:
    """The torch that is compiled against may be a CUDA build: it is the matrix that says no."""
    bench = replace(bench, sdk=replace(bench.sdk, backend=Backend("cpu")))
    with pytest.raises(ToolchainError, match=r'but the matrix says cuda = "cpu"\. Choose a CUDA torch'):
        bench.build(bench.config("cuda_plain"), cuda="cpu")


@pytest.mark.slow
def test_compression_is_smaller_and_reads_back_the_same(bench: Bench) -> None:
    """`cuda.compress` reaches nvcc: a smaller file with the same architectures."""
    config = bench.config("cuda_plain", "8.0", "9.0")
    plain = bench.build(replace(config, cuda_compress="none"), name="none").prefix / "libkernels.so"
    small = bench.build(replace(config, cuda_compress="size"), name="size").prefix / "libkernels.so"
    assert small.stat().st_size < plain.stat().st_size
    assert fatbin.archs(small) == fatbin.archs(plain) == ("8.0", "9.0")


@pytest.mark.slow
def test_a_cuda_12_toolkit_given_by_the_option(bench: Bench, cuda12: Path) -> None:
    """`cuda-home` with a field: nvcc 12.4 serves a torch of CUDA 12.6; its LZ4-compressed PTX reads back."""
    bench = replace(_without_toolkit(bench), sdk=_for(bench, "12.6", "2.7.1+cu126"))
    (bench.folder.parent / "cuda-12").symlink_to(cuda12)
    config = bench.config(
        "cuda_plain", "5.0", "9.0a", "8.0+PTX", cuda_home=f"{bench.folder.parent}/cuda-{{cuda_major}}"
    )
    tools = bench.tools(config)
    tree = bench.build(config, tools)
    found = tools.toolkit
    assert found is not None
    assert (found.version, found.source, found.newer_minor) == ("12.4", "option `cuda-home`", False)
    assert fatbin.archs(tree.prefix / "libkernels.so") == ("5.0", "8.0", "8.0+PTX", "9.0a")
    assert "libcudart.so.12" in needed(tree.prefix / "libkernels.so")


@pytest.mark.performs("use a newer toolkit of CUDA")
@pytest.mark.slow
def test_compression_needs_an_nvcc_that_has_it(bench: Bench, cuda12: Path) -> None:
    """Nvcc 12.4 has no `--compress-mode`: an error with its version, before anything is compiled."""
    bench = replace(_without_toolkit(bench), sdk=_for(bench, "12.4", "2.6.0+cu124"))
    tools = bench.tools(bench.config("cuda_plain", cuda_home=str(cuda12), cuda_compress="size"))
    assert tools.toolkit_problem == (
        "option `cuda.compress` needs an nvcc that has `--compress-mode` (CUDA 12.8 or newer), and this one is "
        f"12.4.131 ({cuda12}/bin/nvcc): remove the option, or use a newer toolkit of CUDA 12"
    )
    assert bench.tools(bench.config("cuda_plain", cuda_home=str(cuda12))).toolkit is not None


def test_a_kernel_compiled_in_one_folder_is_found_from_another(
    bench: Bench, ccache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two entries, and a checkout in another folder: nvcc runs once, and the bytes are the same."""
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    files = []
    for root, name in (("one", "matrix.2.11"), ("one", "matrix.2.13"), ("some/where/else", "matrix.2.11")):
        source = tmp_path / root / "csrc"
        if not source.exists():
            shutil.copytree(PACKAGES / "cuda_plain", source)
        config = bench.config("cuda_plain", "8.0", compiler_launcher=str(ccache), root=tmp_path / root, source=source)
        files.append((bench.build(config, name=name).prefix / "libkernels.so").read_bytes())
    stats = subprocess.run([ccache, "--print-stats"], check=True, capture_output=True, text=True).stdout
    counted = dict(line.split("\t") for line in stats.splitlines())
    assert int(counted["direct_cache_hit"]) + int(counted["preprocessed_cache_hit"]) == 2, stats
    assert int(counted["cache_miss"]) == 1, stats
    assert files[0] == files[1] == files[2]


@pytest.mark.slow
def test_cmake_defines_of_the_author_do_not_change_the_architectures(bench: Bench) -> None:
    """`cmake.define` may name CMAKE_CUDA_ARCHITECTURES out of habit: the option `archs` decides."""
    define = CMakeConfig(define=(("CMAKE_CUDA_ARCHITECTURES", "86"),))
    tree = bench.build(bench.config("cuda_plain", "8.0", cmake=define))
    assert fatbin.archs(tree.prefix / "libkernels.so") == ("8.0",)


@pytest.mark.slow
def test_flags_that_cannot_be_taken_out_are_an_error(bench: Bench) -> None:
    """Architectures in the cache's CMAKE_CUDA_FLAGS: configuring fails and says where; they never win in silence."""
    define = CMakeConfig(define=(("CMAKE_CUDA_FLAGS", "-arch=sm_86"),))
    with pytest.raises(CompileError) as failure:
        bench.build(bench.config("cuda_plain", "8.0", cmake=define))
    sentence = " ".join(failure.value.message.split())
    assert (
        f"CMAKE_CUDA_FLAGS names CUDA architectures in {PACKAGES / 'cuda_plain'} (-arch=sm_86), while the "
        "configuration says 80-real. Take them out there (CMakeLists.txt, `cmake.define`, CUDAFLAGS): the option "
        "`archs` decides"
    ) in sentence
