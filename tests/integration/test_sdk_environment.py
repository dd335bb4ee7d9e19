"""The SDK of an installed torch, and stubs against real linkers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import values
from hatch_torch_ext.base.errors import SdkError
from hatch_torch_ext.elf import read as read_elf
from hatch_torch_ext.sdk import check, environment, exports
from hatch_torch_ext.values import Environment, Interpreter

LINKERS = [name for name in ("bfd", "gold", "lld", "mold") if shutil.which(f"ld.{name}")]
ENTRY = values.entry(
    name="matrix.2.13",
    variables=(("torch", "2.13"),),
    dependencies=("torch==2.13.*",),
    torch_requirement="torch==2.13.*",
    python="3.11",
)


def environment_of(prefix: Path) -> Environment:
    """Return the environment in the folder ``prefix``."""
    here = Interpreter(version="3.11.0", tag="cp311", ext_suffix=".so", machine="x86_64", include=Path("/nowhere"))
    (site,) = prefix.glob("lib/python3.*/site-packages")
    return Environment(
        prefix=prefix,
        python=prefix / "bin" / "python",
        bin=prefix / "bin",
        site_packages=site,
        interpreter=here,
        removal="hatch env remove matrix.2.13",
    )


@pytest.fixture
def empty(tmp_path: Path) -> Environment:
    """Return an environment with nothing in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    return environment_of(tmp_path / "env")


def test_installed_torch(torch_cpu_python: Path) -> None:
    """The facts are those that torch itself says when it is imported, and its symbols are available."""
    sdk = environment.acquire(ENTRY, environment_of(torch_cpu_python.parent.parent))
    check(ENTRY, sdk)
    code = (
        "import torch; print(torch.__version__, torch.version.cuda, torch._C._GLIBCXX_USE_CXX11_ABI, torch.__path__[0])"
    )
    expected = subprocess.run([torch_cpu_python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [sdk.version, str(sdk.backend.version or None), str(sdk.cxx11_abi), str(sdk.prefix)] == expected
    assert sdk.cxx_standard == 20
    assert {"libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so"} <= set(sdk.libraries)
    assert sorted(path.name for path in sdk.library_dir.glob("*.so*")) == list(sdk.libraries)
    names = exports.of(sdk, ["libc10.so", "libc.so.6"], fetch=False, report=print)
    assert names == {"libc10.so": frozenset(read_elf(sdk.prefix / "lib" / "libc10.so").exported)}


def test_a_torch_left_in_the_environment_is_refused_before_compiling(torch_cpu_python: Path) -> None:
    """The matrix was changed, the environment was not: what is really there is probed and compared (hatch#391)."""
    changed = values.entry(name="matrix.2.9", torch_requirement="torch==2.9.*", python="3.11", torch="2.9")
    sdk = environment.acquire(changed, environment_of(torch_cpu_python.parent.parent))
    with pytest.raises(SdkError) as caught:
        check(changed, sdk, removal="hatch env remove matrix.2.9")
    assert str(caught.value) == (
        f"matrix.2.9: the matrix asks for `torch==2.9.*`, but torch {sdk.version} was found. "
        "Remove the environment; the next build makes it again: `hatch env remove matrix.2.9`"
    )


def test_no_torch(empty: Environment) -> None:
    """An environment without torch is an error with the command that mends it."""
    with pytest.raises(SdkError) as caught:
        environment.acquire(ENTRY, empty)
    assert str(caught.value) == (
        f"matrix.2.13: torch is not installed in {empty.prefix}, although `torch==2.13.*` is required. "
        "Remove the environment; the next build makes it again: `hatch env remove matrix.2.13`"
    )


def test_left_over_folder(empty: Environment) -> None:
    """A folder ``torch`` without ``version.py`` is not taken for a torch."""
    (empty.site_packages / "torch" / "lib").mkdir(parents=True)
    with pytest.raises(SdkError, match="torch is not installed in"):
        environment.acquire(ENTRY, empty)


def test_damaged_torch(empty: Environment) -> None:
    """A torch that lacks the files to compile against is an error that says which."""
    torch = empty.site_packages / "torch"
    torch.mkdir()
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("__version__ = '2.13.0'\n")
    with pytest.raises(SdkError) as caught:
        environment.acquire(ENTRY, empty)
    assert str(caught.value) == (
        f"matrix.2.13: the torch in {torch} is not usable to compile against: TorchConfig.cmake cannot be read. "
        'Remove the environment; the next build makes it again: `hatch env remove matrix.2.13`, or use `sdk = "thin"`'
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
@pytest.mark.parametrize("linker", LINKERS)
def test_linkers_take_stubs(tmp_path: Path, linker: str) -> None:
    """Each linker of this machine links against stubs, and writes their SONAMEs as needed."""
    names = ["libtorch.so", "libtorch_cpu.so", "libgomp-a34b3233.so.1"]
    for name in names:
        (tmp_path / name).write_bytes(exports.stub(name, "x86_64"))
    (tmp_path / "some.c").write_text("int torch_function(void); int ours(void) { return torch_function(); }\n")
    files = [str(tmp_path / name) for name in names]
    output = tmp_path / "libsome.so"
    options = ["-shared", "-fPIC", f"-fuse-ld={linker}", "-Wl,--no-as-needed"]
    subprocess.run(["cc", *options, "-o", str(output), str(tmp_path / "some.c"), *files], check=True)
    assert set(names) <= set(read_elf(output).needed)
