"""Others' instruments on published wheels: torch-abi-audit, kernel-abi-check and abi3audit say what our audit says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from functools import cache
from typing import TYPE_CHECKING

import kernel_abi_check
import pytest
import torch_abi_audit
from abi3info.models import PyVersion  # type: ignore[import-untyped]
from torch_abi_audit import demangle, torch_abi, torch_versions

from hatch_torch_ext import audit, elf
from hatch_torch_ext.audit import python
from hatch_torch_ext.facts import owners, policy, releases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hatch_torch_ext.elf import ElfFile

WHEELS = {
    "torchao": "0.18.0",
    "torchcodec": "0.17.0",
    "xformers": "0.0.35",
    "torch-c-dlpack-ext": "0.1.5",
}
"""On the stable ABI, with and without Python; on torch's C++ API for six releases. 17 MB together."""
OLDEST = "3.9"


@pytest.fixture(scope="session")
def published(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Return a folder of the wheels, as the index has them for Python 3.11 on x86-64; they are read, never run."""

    def make(folder: Path) -> None:
        asked = [f"{name}=={version}" for name, version in WHEELS.items()]
        target = ["--platform", "manylinux_2_28_x86_64", "--python-version", "3.11", "--only-binary", ":all:"]
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *target, "-d", str(folder)]
        subprocess.run([*command, *asked], check=True)
        for path in folder.glob("*.whl"):
            with zipfile.ZipFile(path) as archive:
                members = [name for name in archive.namelist() if name.endswith(".so")]
                archive.extractall(folder / path.name.partition("-")[0], members)

    return once("published", make)


@pytest.fixture(scope="session")
def files(published: Path) -> tuple[ElfFile, ...]:
    """Return what is read of each shared object in the wheels; there are dozens."""
    found = tuple(elf.read(path) for path in sorted(published.glob("*/*/*.so")))
    assert len(found) == 30
    return found


def unstable(file: ElfFile) -> set[str]:
    """Return the names of torch's C++ API that the file takes."""
    return {symbol for symbol in (*file.undefined, *file.weak) if symbol.startswith("_Z") and owners.owner(symbol)}


def test_the_lowest_torch_is_torch_abi_audits(files: tuple[ElfFile, ...]) -> None:
    """CASE 70: the same lowest release by the same functions, and the same verdict on stability, for every file."""
    lowest = {}
    for file in files:
        theirs = torch_abi_audit.inspect_extension(file.path).torch
        ours = releases.lowest_for(file.undefined)
        assert theirs.unknown_shim_symbols == ()
        if theirs.min_torch_version is None:
            assert ours is None
        else:
            assert ours is not None
            assert ours.torch == releases.minor_of(theirs.min_torch_version)
            assert ours.functions == tuple(sorted(theirs.version_defining_symbols))
            assert ours.unknown == ()
            lowest[file.path.name] = releases.format_minor(ours.torch)
        assert bool(unstable(file)) == bool(theirs.unstable_symbols)
    assert lowest["_C_mxfp8.cpython-310-x86_64-linux-gnu.so"] == "2.11"
    assert (lowest["_C.so"], lowest["libtorchcodec_core8.so"]) == ("2.10", "2.11")


def test_what_torch_abi_audit_does_not_count(files: tuple[ElfFile, ...]) -> None:
    """Name by name: it looks for `at::`, `c10::` and `torch::`, not for `caffe2::`, of which libc10.so has a rest."""
    differing = set()
    for symbol in {symbol for file in files for symbol in (*file.undefined, *file.weak) if symbol.startswith("_Z")}:
        theirs = torch_abi.classify_symbol(demangle.demangle_symbol(symbol)) == "unstable"
        if theirs != bool(owners.owner(symbol)):
            differing.add((symbol, theirs))
    assert differing
    assert all(symbol.startswith("_ZN6caffe2") and not theirs for symbol, theirs in differing), differing


def test_the_table_of_functions_is_torch_abi_audits() -> None:
    """CASE 70: both tables agree on every function of the CPU's and CUDA's half.

    Theirs is torch's own list, and says of what is generated for Apple's and Intel's cards when the function was
    written; ours says which release's headers have it. It lists types as well, and takes 2.9 for all that is older,
    where ours goes back to 2.4.
    """
    differing = {}
    for name, version in torch_versions.stable_shim_versions().items():
        found = releases.lowest_for([name])
        ours = max(found.torch, (2, 9)) if found is not None else None
        if ours != version[:2]:
            differing[name] = ours
    types = {name for name, ours in differing.items() if ours is None}
    assert all(name.endswith(("Handle", "Opaque", "Func", "_callback_t")) for name in types), types
    assert all(re.search(r"_(?:mps|xpu)_", name) for name in differing.keys() - types), differing


def limited(symbols: list[str]) -> tuple[set[str], set[str]]:
    """Return which of Python's names our audit holds against abi3, and which came after the oldest Python."""
    known = {symbol: python._limited_api(symbol) for symbol in symbols}
    oldest = PyVersion.parse_dotted(OLDEST)
    outside = {symbol for symbol, entry in known.items() if entry is None}
    return outside, {symbol for symbol, entry in known.items() if entry is not None and entry.added > oldest}


def test_the_limited_api_is_kernel_abi_checks(files: tuple[ElfFile, ...]) -> None:
    """The same names outside of the limited API as both say, and the same that joined it later, for every file."""
    for file in files:
        ours = limited([symbol for symbol in (*file.undefined, *file.weak) if owners.PYTHON_SYMBOL.match(symbol)])
        theirs = kernel_abi_check.ObjectFile(str(file.path)).check_python_abi(OLDEST)
        kinds = {kind: {each.name for each in theirs if type(each).__name__ == kind} for kind in KINDS}
        assert ours == tuple(kinds[kind] for kind in KINDS), file.path.name
        assert set(torch_abi_audit.inspect_extension(file.path).cpython.violations) == ours[0]


KINDS = ("NonAbi3Symbol", "IncompatibleAbi3Symbol")


def test_the_limited_api_is_abi3audits(files: tuple[ElfFile, ...], tmp_path: Path) -> None:
    """abi3audit looks only at files named abi3: torchao's passes with both, and a pybind11 module with neither."""
    (good,) = (file for file in files if ".abi3." in file.path.name)
    (bad,) = (file for file in files if file.path.name == "libtorchcodec_pybind_ops.so")
    named = tmp_path / "libtorchcodec_pybind_ops.abi3.so"
    named.write_bytes(bad.path.read_bytes())
    for path, file in ((good.path, good), (named, bad)):
        command = [sys.executable, "-m", "abi3audit", "-R", "--assume-minimum-abi3", OLDEST, str(path)]
        environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ)
        (report,) = json.loads(done.stdout)["specs"].values()
        result = report["object"]["result"]
        ours = limited([symbol for symbol in file.undefined if owners.PYTHON_SYMBOL.match(symbol)])
        assert ours == (set(result["non_abi3_symbols"]), set(result["future_abi3_objects"]))


@pytest.mark.parametrize("name", ["manylinux_2_17", "manylinux_2_24", "manylinux_2_28"])
def test_the_policies_are_kernel_abi_checks(name: str, files: tuple[ElfFile, ...]) -> None:
    """The same files meet a policy. Theirs counts symbols, ours versions of glibc, libstdc++ and libgcc."""
    wanted = policy.named(name, "x86_64")
    assert wanted is not None
    for file in files:
        theirs = kernel_abi_check.ObjectFile(str(file.path)).check_manylinux(name)
        ours = policy.breaking(wanted, "x86_64", [version for _, needed in file.version_needs for version in needed])
        assert {f"{each.dep}_{each.version}" for each in theirs} == set(ours), file.path.name


@cache
def codes(path: Path) -> frozenset[tuple[str, bool]]:
    """Return code and weight of what our audit finds in a wheel."""
    return frozenset((item.code, item.warning) for item in audit.audit_wheel(path))


def test_our_audit_of_the_wheels(published: Path) -> None:
    """Whole: no false alarm on what their makers know; FFmpeg is left to the user by torchcodec's own choice."""
    found = {path.name.partition("-")[0]: codes(path) for path in published.glob("*.whl")}
    habits = {("build-path", True), ("not-stripped", True)}
    assert found["torchao"] - habits == set()
    assert found["xformers"] - habits == set()
    assert found["torch_c_dlpack_ext"] - habits == set()
    assert found["torchcodec"] - habits == {
        ("missing-library", False),
        ("module-name", True),  # its Python files load the file by another name
        ("operator-twice", True),
        ("rpath", True),
    }
