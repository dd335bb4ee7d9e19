"""Use without Python: a C++ program opens the library of the installed wheel and runs a saved TorchScript program."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import process

from .conftest import PROJECT, outside

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = PROJECT / "tests" / "cpp_consumer"
SCRIPTS = Path(sysconfig.get_path("scripts"))


def build(python: Path, folder: Path) -> Path:
    """Build the C++ program against the libtorch of ``python``'s torch, with that torch's own CMake package."""
    prefix = outside(python, "-c", "import torch; print(torch.utils.cmake_prefix_path)", cwd=folder).stdout.strip()
    tools = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={SCRIPTS / 'ninja'}"]
    cmake = SCRIPTS / "cmake"
    process.run([cmake, *tools, "-S", SOURCE, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}"])
    process.run([cmake, "--build", folder / "build"])
    return folder / "build" / "cpp_consumer"


def test_a_program_without_python(
    example_wheel: Path, torch_cpu_python: Path, beside: Callable[[Path, Path], Path], tmp_path: Path
) -> None:
    """It prints what Python printed when it saved the program, and there is no Python in its process."""
    python = beside(torch_cpu_python, example_wheel)
    library = outside(python, "-m", "torch_ext_example._variants", "--library-path", cwd=tmp_path).stdout.strip()
    program = tmp_path / "program.pt"
    saving = outside(python, "-W", "ignore", SOURCE / "program.py", program, "500", "6", cwd=tmp_path)
    consumer = build(python, tmp_path)
    assert process.run([consumer, library, program, "500", "6"]).stdout == saving.stdout
    assert saving.stdout.splitlines()[0] == "0 499 486 473 461 292"
