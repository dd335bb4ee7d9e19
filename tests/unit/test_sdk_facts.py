"""Facts of a torch folder, out of files as the releases have them; and the check against the matrix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import disk
import values
from hatch_torch_ext.base.errors import SdkError
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.sdk import check, exports, facts, for_entry
from hatch_torch_ext.values import Sdk

if TYPE_CHECKING:
    from hatch_torch_ext.values import Entry

NEW = facts.NEW_ABI_SYMBOL.decode()
OLD = facts.OLD_ABI_SYMBOL.decode()


def torch(
    folder: Path, *, config: str = "", header: str = "", symbols: tuple[str, ...] = (), version: str | None = None
) -> Path:
    """Make a folder of a torch with these files."""
    files = {
        "version.py": "__version__ = '2.8.0'\ncuda = None\n" if version is None else version,
        facts.TORCH_CONFIG: config,
        facts.ALL_HEADER: header,
    }
    disk.write(folder, files)
    (folder / "lib").mkdir()
    (folder / "lib/libc10.so").write_bytes(exports.stub("libc10.so", "x86_64", exports=symbols))
    return folder


@pytest.mark.parametrize(
    ("config", "symbols", "abi"),
    [
        ('  set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")', (), False),  # up to 2.6
        ('  set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")', (), True),  # 2.7
        ("", (NEW,), True),  # 2.8 and later
        ("", (OLD,), False),  # a build of one's own of a later release
    ],
)
def test_abi(tmp_path: Path, config: str, symbols: tuple[str, ...], abi: bool) -> None:  # noqa: FBT001
    """The C++ ABI flag is read from the CMake files where they say it, else from the names in libc10."""
    assert facts.read(torch(tmp_path, config=config, symbols=symbols)).cxx11_abi is abi


@pytest.mark.parametrize(
    ("config", "header", "standard"),
    [
        ("    CXX_STANDARD 14\n", "", 14),
        ("    CXX_STANDARD 17\n)", "#error C++14 or later compatible compiler is required", 17),
        ("    CXX_STANDARD 20\n", "#error C++17 or later compatible compiler is required", 20),  # 2.12
        ("    target_compile_features(torch INTERFACE cxx_std_20)\n", "", 20),  # 2.15
        ("", "#error C++20 or later compatible compiler is required", 20),
        ("", "", facts.FALLBACK_CXX_STANDARD),
    ],
)
def test_cxx_standard(tmp_path: Path, config: str, header: str, standard: int) -> None:
    """The C++ standard is what the CMake files ask for, else what the header insists on."""
    assert facts.read(torch(tmp_path, config=config, header=header, symbols=(NEW,))).cxx_standard == standard


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("__version__ = '1.13.1+cu117'\ncuda = '11.7'\nhip = None", "11.7"),
        ("from typing import Optional\n__version__ = '2.8.0+cu128'\ncuda: Optional[str] = '12.8'", "12.8"),
        ("from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None", None),
    ],
)
def test_version_file(tmp_path: Path, text: str, cuda: str | None) -> None:
    """``version.py`` is read, not run, in the forms that the releases have."""
    found = facts.read(torch(tmp_path, version=text, symbols=(NEW,)))
    assert (found.version, found.cuda, found.hip) == (text.split("'")[1], cuda, None)


@pytest.mark.parametrize(
    ("version", "symbols", "message"),
    [
        ("cuda = None", (NEW,), "version.py does not set __version__"),
        ("<<<<<<< HEAD", (NEW,), "version.py is not Python"),
        (None, (), "neither TorchConfig.cmake nor lib/libc10.so shows the C++ ABI"),
    ],
)
def test_unreadable(tmp_path: Path, version: str | None, symbols: tuple[str, ...], message: str) -> None:
    """A fact that the files do not hold is an error, not a guess."""
    with pytest.raises(facts.FactError) as caught:
        facts.read(torch(tmp_path, version=version, symbols=symbols))
    assert str(caught.value) == message


def sdk(version: str, cuda: str | None = None) -> Sdk:
    """Return an installed torch of this version."""
    nowhere = Path("/nowhere")
    return Sdk(
        kind="environment", version=version, backend=Backend.of_cuda(cuda), cxx11_abi=True, cxx_standard=17,
        prefix=nowhere, library_dir=nowhere, include_dirs=(),
    )  # fmt: skip


def entry(requirement: str, **variables: str) -> Entry:
    """Return an entry with this requirement."""
    return values.entry(
        name="matrix.x", variables=tuple(variables.items()), dependencies=(requirement,), torch_requirement=requirement,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("requirement", "version", "cuda", "variables"),
    [
        ("torch==2.8.*", "2.8.1+cu128", "12.8", {}),
        ("torch==2.8.0", "2.8.0+cu128", "12.8", {"cuda": "12.8"}),
        ("torch==2.8.0+cu128", "2.8.0+cu128", "12.8", {"cuda": "cu128"}),
        ("torch>=2.10", "2.15.0+cu132", "13.2", {"cuda": "13.2"}),
        ("torch==2.13.*", "2.13.0+cpu", None, {"cuda": "cpu"}),
        ("torch==2.8.*", "2.8.0+cu128", "12.8", {"cuda": "cpu"}),
        ("torch>=2.16.0.dev0", "2.16.0.dev20261101+cpu", None, {}),
    ],
)
def test_check_passes(requirement: str, version: str, cuda: str | None, variables: dict[str, str]) -> None:
    """A torch that is what the matrix asks for passes, in every way of writing it."""
    check(entry(requirement, **variables), sdk(version, cuda))


@pytest.mark.parametrize(
    ("requirement", "version", "cuda", "variables", "message"),
    [
        ("torch==2.8.*", "2.9.1+cu128", "12.8", {}, "`torch==2.8.*`, but torch 2.9.1+cu128 was found."),
        ("torch==2.8.0+cu126", "2.8.0+cu128", "12.8", {}, "`torch==2.8.0+cu126`, but torch 2.8.0+cu128 was found."),
        (
            "torch==2.8.*", "2.8.0+cu128", "12.8", {"cuda": "12.6"},
            "cuda = '12.6', but torch 2.8.0+cu128 is a build for CUDA 12.8.",
        ),
        (
            "torch==2.13.*", "2.13.0+cpu", None, {"cuda": "cu130"},
            "cuda = 'cu130', but torch 2.13.0+cpu is a build for the CPU only.",
        ),
    ],
)  # fmt: skip
def test_check_fails(requirement: str, version: str, cuda: str | None, variables: dict[str, str], message: str) -> None:
    """A torch that the matrix does not ask for is an error that names both and the remedy."""
    with pytest.raises(SdkError) as caught:
        check(entry(requirement, **variables), sdk(version, cuda), removal="hatch env remove matrix.x")
    assert str(caught.value) == (
        f"matrix.x: the matrix asks for {message} Remove the environment; the next build makes it again: `hatch env "
        "remove matrix.x`"
    )


def test_an_index_without_the_build_that_the_matrix_asks_for() -> None:
    """Where wheels come from an index (torch 2.8 for aarch64 has no CUDA on PyPI), the one that has it is named."""
    with pytest.raises(SdkError) as caught:
        check(entry("torch==2.8.*", cuda="cu128"), replace(sdk("2.8.0+cpu", None), kind="thin"))
    assert str(caught.value) == (
        "matrix.x: the matrix asks for cuda = 'cu128', but torch 2.8.0+cpu is a build for the CPU only. Correct the "
        'matrix, or use the build of torch\'s own index: `index-url = "https://download.pytorch.org/whl/cu128"`'
    )


def test_an_entry_for_the_cpu_sees_no_cuda() -> None:
    """A CPU variant may be compiled against a CUDA torch, which CMake then sees without CUDA."""
    assert for_entry(entry("torch==2.8.*", cuda="cpu"), sdk("2.8.0+cu128", "12.8")).backend == Backend("cpu")
    assert for_entry(entry("torch==2.8.*", cuda="12.8"), sdk("2.8.0+cu128", "12.8")).backend == Backend("cuda", "12.8")
    assert for_entry(entry("torch==2.8.*"), sdk("2.8.0+cu128", "12.8")).backend == Backend("cuda", "12.8")
