"""A kernel with build.toml becomes a project of ours: what is written, what is left out and said, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tomlkit
from kernels._rust import Build

from hatch_torch_ext import cli
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.init import kernel_builder

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.init.texts import Migration

BOTH = """
[general]
name = "my-relu"
version = 3
edition = 5
license = "Apache-2.0"
upstream = "https://example.org/relu.git"
backends = ["cpu", "cuda", "metal", "xpu"]
python-depends = ["einops", "tvm-ffi"]

[general.cuda]
python-depends = ["nvidia-cutlass-dsl"]

[torch]
src = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]
cxx-flags = ["-DBINDING"]
minver = "2.12"
maxver = "2.13"

[kernel.relu_cpu]
backend = "cpu"
depends = ["torch"]
include = ["relu_cpu", "."]
cxx-flags = ["-O3", "-fopenmp"]
src = ["relu_cpu/relu.cpp", "relu_cpu/relu.hpp"]

[kernel.relu]
backend = "cuda"
depends = ["torch", "cutlass_3_9"]
cuda-flags = ["--use_fast_math"]
src = ["relu_cuda/relu.cu"]

[kernel.relu_sm90]
backend = "cuda"
depends = ["torch"]
cuda-capabilities = ["7.0", "9.0a", "10.0+PTX"]
cuda-minver = "12.8"
src = ["relu_cuda/relu_sm90.cu"]

[kernel.relu_metal]
backend = "metal"
depends = ["torch"]
src = ["relu_metal/relu.mm"]
"""
CMAKE = """
# Written by `hatch-torch-ext init` from build.toml, and yours from now on: ordinary CMake.
cmake_minimum_required(VERSION 3.26)
project(my_relu LANGUAGES CXX)

# With CUDA: in an entry of the matrix that declares `cuda`, or by hand with -DTORCH_EXT_CUDA=cu130.
set(WITH_CUDA OFF)
if(TORCH_EXT_CUDA AND NOT TORCH_EXT_CUDA STREQUAL "cpu")
  set(WITH_CUDA ON)
  enable_language(CUDA)
endif()

find_package(Torch REQUIRED)

add_library(my_relu SHARED torch-ext/torch_binding.cpp)
target_link_libraries(my_relu PRIVATE torch)
target_include_directories(my_relu PRIVATE torch-ext .)
# The operators' name, the same in every variant. A build on the Hub has another (`hatch-torch-ext kernels`).
target_compile_definitions(my_relu PRIVATE TORCH_EXTENSION_NAME=my_relu)
# Two libraries in a process are not to share the static variables of inline functions.
target_compile_options(my_relu PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
set_property(SOURCE torch-ext/torch_binding.cpp APPEND PROPERTY COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:-DBINDING>")

if(WITH_CUDA)
  target_compile_definitions(my_relu PRIVATE CUDA_KERNEL USE_CUDA=1)
  include(FetchContent)
  # CUTLASS 3.9.2, its headers only. A copy of it: -DFETCHCONTENT_SOURCE_DIR_CUTLASS_3_9=FOLDER
  FetchContent_Declare(cutlass_3_9
    GIT_REPOSITORY https://github.com/NVIDIA/cutlass.git
    GIT_TAG ad7b2f5e84fcfa124cb02b91d5bd26d238c0459e
    SOURCE_SUBDIR none  # no CMake project of its own
  )
  FetchContent_MakeAvailable(cutlass_3_9)

  # [kernel.relu]
  target_sources(my_relu PRIVATE
    relu_cuda/relu.cu
  )
  set_property(SOURCE relu_cuda/relu.cu APPEND PROPERTY COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CUDA>:--use_fast_math>")
  target_include_directories(my_relu SYSTEM PRIVATE ${cutlass_3_9_SOURCE_DIR}/include \
${cutlass_3_9_SOURCE_DIR}/tools/util/include)

  # [kernel.relu_sm90]
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    add_library(my_relu_relu_sm90 OBJECT
      relu_cuda/relu_sm90.cu
    )
    set_target_properties(my_relu_relu_sm90 PROPERTIES CUDA_ARCHITECTURES "90a-real;100" POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(my_relu_relu_sm90 PRIVATE torch)
    target_include_directories(my_relu_relu_sm90 PRIVATE torch-ext .)
    target_compile_definitions(my_relu_relu_sm90 PRIVATE TORCH_EXTENSION_NAME=my_relu CUDA_KERNEL USE_CUDA=1)
    target_sources(my_relu PRIVATE $<TARGET_OBJECTS:my_relu_relu_sm90>)
  endif()
else()
  target_compile_definitions(my_relu PRIVATE CPU_KERNEL)

  # [kernel.relu_cpu]
  target_sources(my_relu PRIVATE
    relu_cpu/relu.cpp
  )
  set_property(SOURCE relu_cpu/relu.cpp APPEND PROPERTY INCLUDE_DIRECTORIES \
"${CMAKE_CURRENT_SOURCE_DIR}/relu_cpu;${CMAKE_CURRENT_SOURCE_DIR}")
  set_property(SOURCE relu_cpu/relu.cpp APPEND PROPERTY COMPILE_OPTIONS \
"$<$<COMPILE_LANGUAGE:CXX>:-O3>;$<$<COMPILE_LANGUAGE:CXX>:-fopenmp>")

  target_link_options(my_relu PRIVATE -fopenmp)
endif()

install(TARGETS my_relu LIBRARY DESTINATION .)
"""
SMALL = """
[general]
name = "my-relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]
"""


def project(root: Path, text: str) -> Path:
    """Make a kernel of ``build.toml``: each source that it names is there, and the package."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "build.toml").write_text(text)
    files = ["torch-ext/my_relu/__init__.py"]
    files += [name for name in text.replace('"', " ").split() if name.endswith((".cpp", ".h", ".hpp", ".cu", ".mm"))]
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def tables(migration: Migration) -> dict[str, Any]:
    """Return what is in the pyproject.toml that is written."""
    found: dict[str, Any] = tomlkit.parse(dict(migration.files)["pyproject.toml"]).unwrap()
    return found


def matrix(migration: Migration) -> list[dict[str, Any]]:
    """Return the tables of the matrix."""
    found: list[dict[str, Any]] = tables(migration)["tool"]["hatch"]["envs"]["matrix"]["matrix"]
    return found


def refused(root: Path, **options: Any) -> str:
    """Return why a kernel is not carried over."""
    with pytest.raises(ConfigurationError) as error:
        kernel_builder.migrate(root, **options)
    return str(error.value)


def test_a_kernel_for_cpu_and_cuda(tmp_path: Path) -> None:
    """Sections become sources with their own flags, folders and architectures; CUTLASS comes at a pinned commit."""
    root = project(tmp_path, BOTH)
    assert len(Build.open(root).general.backends) == 4  # kernel-builder itself takes the file
    made = kernel_builder.migrate(root)
    files = dict(made.files)
    assert f"\n{files['CMakeLists.txt']}" == CMAKE
    assert set(files) == {
        "CMakeLists.txt", "pyproject.toml", "torch-ext/my_relu/_ops.py", "torch-ext/registration.h", ".gitignore",
    }  # fmt: skip
    assert 'NAMESPACE = "my_relu"' in files["torch-ext/my_relu/_ops.py"]
    assert [note.text for note in made.notes] == [
        "metal, xpu: no variant is built for such backends: they are left out"
    ]


def test_its_metadata_and_matrix(tmp_path: Path) -> None:
    """Name, version, licence, requirements, where the package is; the matrix has the releases within the bounds."""
    made = kernel_builder.migrate(project(tmp_path, BOTH))
    written = tables(made)
    declared, hatch = written["project"], written["tool"]["hatch"]
    assert (declared["name"], declared["version"], declared["license"]) == ("my-relu", "3.0.0", "Apache-2.0")
    assert declared["urls"] == {"Homepage": "https://example.org/relu.git"}
    assert hatch["metadata"]["hooks"]["torch-ext"]["dependencies"] == [
        "einops", "apache-tvm-ffi", "nvidia-cutlass-dsl",
    ]  # fmt: skip
    wheel = hatch["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["torch-ext/my_relu"], "hooks": {"torch-ext": {"source": ".", "package": "my_relu"}}}
    assert matrix(made) == [{"torch": ["2.13"], "cuda": ["cpu", "cu130"]}]
    assert (made.entries, made.wider) == (2, "hatch-torch-ext matrix --add torch=2.12")
    assert matrix(kernel_builder.migrate(tmp_path, torch=["2.13"], cpu_only=True)) == [{"torch": ["2.13"]}]


def test_the_stable_abi(tmp_path: Path) -> None:
    """A backend on the stable ABI has one entry, of the oldest torch that is served; the other has one for each."""
    some = BOTH.replace("minver", 'stable-abi = { cuda = "2.10", metal = "2.11" }\nminver')
    made = kernel_builder.migrate(project(tmp_path / "some", some))
    assert matrix(made) == [
        {"torch": ["2.13"], "cuda": ["cpu"]},
        {"torch": ["2.11"], "abi": ["stable"], "cuda": ["cu130"]},
    ]
    assert "the stable ABI of cuda is for torch 2.11 and newer here, where it was 2.10" in [
        note.text for note in made.notes
    ]
    for every in ('"2.11"', '{ cpu = "2.11" }'):
        small = SMALL.replace("[torch]", f"[torch]\nstable-abi = {every}")
        made = kernel_builder.migrate(project(tmp_path / "all", small))
        assert matrix(made) == [{"torch": ["2.11"], "abi": ["stable"]}]
        assert made.entries == 1


@pytest.mark.performs("Delete the line `edition`, then run `init` again")
def test_formats_before_editions(tmp_path: Path) -> None:
    """Without an edition, the format is that of before: the same sections."""
    root = project(tmp_path / "old", SMALL.replace("edition = 5", "edition = 4"))
    with pytest.raises(ConfigurationError, match="Delete the line `edition`"):
        kernel_builder.migrate(root)
    root = project(tmp_path, SMALL.replace("edition = 5\n", ""))
    assert kernel_builder.migrate(root).entries == 2


def test_headers_of_python(tmp_path: Path) -> None:
    """A source that includes Python's headers gets them; others need no Python."""
    root = project(tmp_path, SMALL)
    (root / "torch-ext" / "torch_binding.cpp").write_text("#include <torch/extension.h>\n")
    assert (
        "target_link_libraries(my_relu PRIVATE Torch::Python)"
        in dict(kernel_builder.migrate(root).files)["CMakeLists.txt"]
    )


def test_tests_that_fetch_the_kernel(tmp_path: Path) -> None:
    """They import what was built instead; another kernel that they fetch is noted; what they import is installed."""
    root = project(tmp_path, SMALL)
    (root / "tests").mkdir()
    (root / "tests" / "test_relu.py").write_text(
        "import kernels\nimport numpy.linalg\n\n"
        'my_relu = kernels.get_kernel("org/my-relu", version=1)\nrelu = get_local_kernel(\n    "x/my-relu"\n)\n'
        'other = kernels.get_kernel("org/other", version=1)\n'
    )
    made = kernel_builder.migrate(root)
    assert dict(made.files)["tests/test_relu.py"] == (
        "import kernels\nimport numpy.linalg\n\nimport my_relu\nimport my_relu as relu\n"
        'other = kernels.get_kernel("org/other", version=1)\n'
    )
    assert [note.text for note in made.notes] == ["tests/test_relu.py:8: fetches `org/other` from the Hub"]
    environment = tables(made)["tool"]["hatch"]["envs"]["matrix"]
    assert environment["dependencies"] == ["torch=={matrix:torch}.*", "numpy", "kernels", "pytest"]


@pytest.mark.performs("is yours now: remove the line")
def test_files_that_are_there(tmp_path: Path) -> None:
    """A header of kernel-builder's is replaced, another one stays; lines of .gitignore that hide ours are noted."""
    root = project(tmp_path, SMALL)
    header = root / "torch-ext" / "registration.h"
    header.write_text("#define REGISTER_EXTENSION(NAME) PyInit\n")
    (root / ".gitignore").write_text("_ops.py\n*.so\n/CMakeLists.txt\n")
    made = kernel_builder.migrate(root)
    assert "TORCH_EXT_NAMESPACE" in dict(made.files)["torch-ext/registration.h"]
    assert [note.text for note in made.notes] == [
        ".gitignore has `_ops.py`, and `torch-ext/my_relu/_ops.py` is yours now: remove the line",
        ".gitignore has `/CMakeLists.txt`, and `CMakeLists.txt` is yours now: remove the line",
    ]
    header.write_text("#define MINE\n")
    made = kernel_builder.migrate(root)
    assert "torch-ext/registration.h" not in dict(made.files)
    assert "`torch-ext/registration.h` is the project's own: operators keep one name, on the Hub too" in [
        note.text for note in made.notes
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x =", "build.toml is not TOML: "),
        (SMALL.replace("edition = 5", "edition = 6"), "edition 6 of the format is newer than 5, the newest that"),
        (SMALL.replace("edition = 5", "edition = 4"), "there is no edition 4 of the format: editions are"),
        (SMALL.replace("edition = 5", "edition = '5'"), "there is no edition '5' of the format"),
        ("[general]\nname = 'a'\n[extension]\n", "this is an older format: `kernel-builder update-build` writes it"),
        (SMALL.replace('backends = ["cpu"]', ""), "this is an older format"),
        (SMALL + "\n[kernel.x]\nlanguage = 'cuda'\n", "this is an older format"),
        (SMALL.replace("[torch]", "[tvm-ffi]"), "the kernel is on TVM-FFI, and variants are for torch"),
        (SMALL.replace("[torch]\nsrc", "[torch-noarch]\npyext"), "the kernel has no compiled code"),
        (SMALL.replace('["cpu"]', '["rocm", "metal"]'), "is for metal, rocm, and variants are built for CPU and CUDA"),
        (SMALL.replace('["cpu"]', '["xpu"]'), "the kernel is for xpu, and variants are built for CPU and CUDA"),
        (SMALL.replace("my-relu", "My_Relu"), "`name` in [general] must be a kernel's"),
        (SMALL.replace("my-relu", "other"), "`torch-ext/other/__init__.py` is not there: add the Python package"),
        (SMALL.replace('["cpu"]', "[]"), "`backends` in [general] is empty: name what the kernel is for"),
        (SMALL.replace('["cpu"]', "3"), "`backends` in [general] must be an array of strings"),
        (
            SMALL.replace('["cpu"]', '["cuda"]') + '\n[general.cuda]\nmaxver = "12.9"\n',
            "`maxver` 12.9 of CUDA is older than 13, the first whose compiler is on the package index: write its",
        ),
        (SMALL + '\n[kernel.x]\nbackend = "cpu"\ndepends = ["mkl"]\n', "[kernel.x] depends on `mkl`, which is"),
        (
            SMALL.replace('["cpu"]', '["cuda"]') + '\n[kernel.x]\nbackend = "cuda"\ncuda-capabilities = ["99999.0"]\n',
            "`cuda-capabilities` in [kernel.x]: `99999.0` is not a CUDA architecture",
        ),
        (SMALL.replace("[torch]", "[torch]\nminver = 2"), "`minver` in [torch] must be a release of torch"),
        (SMALL.replace("[torch]", "[torch]\nminver = '9.9'"), "no known release of torch is >=9.9: name one"),
        (SMALL.replace("[torch]", "[torch]\nstable-abi = 'x'"), "`stable-abi` in [torch] must be a release of torch"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """Older and newer formats, other frameworks and backends, values that are wrong: a sentence each."""
    found = refused(project(tmp_path, text))
    assert why in found
    assert found.count("\n") == 0


@pytest.mark.performs("the kernel has no part for the CPU: run `init` without `--cpu`")
def test_a_kernel_without_a_part_for_the_cpu(tmp_path: Path) -> None:
    """`--cpu` leaves nothing of it; `init` without the option carries it over."""
    root = project(tmp_path, SMALL.replace('["cpu"]', '["cuda", "metal"]'))
    with pytest.raises(ConfigurationError, match="the kernel has no part for the CPU: run `init` without `--cpu`"):
        kernel_builder.migrate(root, cpu_only=True)
    assert kernel_builder.migrate(root).entries == 2


def test_every_fault_at_once(tmp_path: Path) -> None:
    """A source that is missing and a dependency that is not known are told together."""
    root = project(tmp_path, SMALL + '\n[kernel.x]\nbackend = "cpu"\ndepends = ["mkl"]\nsrc = ["a.cpp"]\n')
    (root / "a.cpp").unlink()
    found = refused(root)
    assert "[kernel.x] names `a.cpp`, which is not there: fetch or add it" in found
    assert "[kernel.x] depends on `mkl`" in found


@pytest.mark.performs(
    "name one by `--torch`",
    "name what the kernel is for, as",
    "is not there: add the Python package",
    "which is not there: fetch or add it",
    "which is not known here: compile without it",
)
def test_what_is_refused_is_mended(tmp_path: Path) -> None:
    """What the sentences say to do lets the kernel be carried over."""
    root = project(tmp_path, SMALL + '\n[kernel.x]\nbackend = "cpu"\ndepends = []\nsrc = ["a.cpp"]\n')
    assert kernel_builder.migrate(root).entries == 2
    root = project(tmp_path, SMALL.replace("[torch]", "[torch]\nminver = '9.9'"))
    assert kernel_builder.migrate(root, torch=["2.13"]).entries == 1


def test_cuda_that_is_too_old_beside_a_cpu(tmp_path: Path) -> None:
    """Where there is a CPU part, that is carried over, and the rest is reported."""
    text = SMALL.replace('["cpu"]', '["cpu", "cuda"]') + '\n[general.cuda]\nmaxver = "12.9"\n'
    made = kernel_builder.migrate(project(tmp_path, text))
    assert [list(each) for each in matrix(made)] == [["torch"]]
    assert any("CUDA is left out; with a toolkit" in note.text for note in made.notes)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`init` takes build.toml before a setup.py, writes the files, and says what is next."""
    root = project(tmp_path, SMALL)
    (root / "setup.py").write_text("raise SystemExit('setup.py was run')\n")
    monkeypatch.chdir(root)
    assert cli.main(["init", "--dry-run"]) == 0
    assert not (root / "CMakeLists.txt").exists()
    assert cli.main(["init", "--torch", "2.13"]) == 0
    assert sorted(each.name for each in root.iterdir()) == [
        ".gitignore", "CMakeLists.txt", "build.toml", "pyproject.toml", "setup.py", "torch-ext",
    ]  # fmt: skip
    assert capsys.readouterr().err.endswith(
        "written; the matrix has 1 entry, each compiled once\n"
        "build.toml stays: remove it when the wheel is right. Next: hatch build, then hatch run matrix:test\n"
    )
    assert cli.main(["init"]) == 1
    assert "`--force` replaces it" in capsys.readouterr().err
