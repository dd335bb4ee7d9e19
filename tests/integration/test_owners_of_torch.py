"""The rule from symbols to torch's libraries, held against the exports of a real torch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hatch_torch_ext import elf
from hatch_torch_ext.facts import owners


@pytest.fixture(scope="module")
def libraries(torch_cpu_python: Path) -> Path:
    """Return the folder of torch's libraries."""
    code = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    found = subprocess.run([torch_cpu_python, "-c", code], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()) / "lib"


@pytest.mark.parametrize("user", ["libtorch_python.so", "libtorchbind_test.so", "libaoti_custom_ops.so", "libshm.so"])
def test_the_rule_finds_the_real_owners(libraries: Path, user: str) -> None:
    """What torch's own libraries take from libc10.so and libtorch_cpu.so, the rule gives to these."""
    path = libraries / user
    if not path.exists():
        pytest.skip(f"this torch has no {user}")
    exports = {name: frozenset(elf.read(libraries / name).exported) for name in (owners.C10, owners.CPU)}
    python = frozenset(elf.read(libraries / owners.PYTHON).exported)
    for symbol in elf.read(path).undefined:
        real = {name for name, names in exports.items() if symbol in names}
        ruled = set(owners.owner(symbol))
        # torch's libraries export parts of libstdc++ and of what they were linked with; those are not torch's to give.
        if real and not symbol.startswith(("_ZNSt", "_ZSt", "_ZNKRSt", "_ZNOSt", "_ZN6google", "FLAGS_")):
            assert real <= ruled, symbol
        if ruled:
            assert real or symbol in python, symbol


def test_no_export_of_the_cpu_half_is_given_to_cuda_or_python(libraries: Path) -> None:
    """A symbol that libtorch_cpu.so or libc10.so exports never makes a CUDA variant, or one for a single Python."""
    wrong = frozenset({owners.CUDA, owners.C10_CUDA, owners.PYTHON})
    for name in (owners.C10, owners.CPU):
        given = [symbol for symbol in elf.read(libraries / name).exported if wrong & set(owners.owner(symbol))]
        assert given == []
