"""A project that insists on the wrong C++ ABI: compiled and linked without a word, and stopped by the audit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import values
from hatch_torch_ext import audit, cmake, repair, toolchain
from hatch_torch_ext.config import Config
from hatch_torch_ext.sdk import environment as sdk_environment
from hatch_torch_ext.sdk import exports
from hatch_torch_ext.values import PreparedEntry
from workbench import Fixed

if TYPE_CHECKING:
    from hatch_torch_ext.values import Environment, Sdk

SOURCE = Path(__file__).resolve().parent.parent / "packages" / "wrong_abi"
OLD = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
ENTRY = values.entry(name="matrix.2.13", torch_requirement="torch==2.13.*")


def remember(sdk: Sdk, folder: Path) -> None:
    """Read the exports of a torch 2.6.0 with the old ABI, as a build for it would have left them in the store."""
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "libc10.so").write_bytes(exports.stub("libc10.so", "x86_64", exports=[OLD]))
    older = replace(sdk, version="2.6.0+cpu", prefix=folder, libraries=("libc10.so",))
    exports.of(older, ["libc10.so"], fetch=False, report=print)


def test_the_wrong_cxx_abi_is_named_and_so_is_the_torch_that_has_it(environment: Environment, tmp_path: Path) -> None:
    """The cause from only the symbols; with exports available also the proof, and the release that would do."""
    config = Config(root=SOURCE, package="wrong_abi", package_dir=SOURCE, source=SOURCE, compiler_launcher="none")
    sdk = sdk_environment.acquire(ENTRY, environment)
    prepared = PreparedEntry(
        entry=ENTRY, config=config, environment=environment, sdk=sdk, folder=tmp_path / ENTRY.folder
    )
    setup = prepared.with_tools(toolchain.find(prepared, report=print))
    tree = cmake.build(setup, slots=Fixed(jobs=1), report=print)
    built = repair.repair(setup, tree, report=print)
    remember(sdk, tmp_path / "older")
    names = exports.of(sdk, built.variant.files[0].needed, fetch=False, report=print)
    assert names is not None

    def found(*, at_hand: bool) -> list[tuple[str, str]]:
        # As with a thin SDK, so that it is not opened: that takes seconds, and is another test's.
        findings = audit.audit_variant(
            built,
            replace(setup, sdk=replace(sdk, kind="thin")),
            tree,
            exports=names if at_hand else None,
            others=exports.StoredExports(os.environ, excluding=sdk.version),
        )
        return [(each.code, each.message) for each in findings if not each.warning]

    abi = (
        "torch-abi",
        f"takes {OLD} with the std::string of the old C++ ABI, but its torch has the C++11 ABI",
    )
    assert found(at_hand=False) == [abi]
    assert found(at_hand=True) == [
        abi,
        ("undefined-symbol", f"needs {OLD}, which torch {sdk.version} does not export; torch 2.6.0+cpu would"),
    ]


def test_exports_at_hand_are_those_of_other_releases(environment: Environment, tmp_path: Path) -> None:
    """Versions in their order without the torch available; a damaged list is empty, and an empty store has none."""
    assert not exports.StoredExports(os.environ, excluding="2.13.0")
    sdk = sdk_environment.acquire(ENTRY, environment)
    remember(sdk, tmp_path / "older")
    exports.of(sdk, ["libc10.so"], fetch=False, report=print)
    found = exports.StoredExports(os.environ, excluding=sdk.version)
    assert {version: dict(names) for version, names in found.items()} == {"2.6.0+cpu": {"libc10.so": frozenset({OLD})}}
    assert list(exports.StoredExports(os.environ, excluding="")) == ["2.6.0+cpu", sdk.version]
    for file in (tmp_path / "store" / "exports").glob("*/*.gz"):
        file.write_bytes(b"cut")
    assert dict(found["2.6.0+cpu"]) == {"libc10.so": frozenset()}
