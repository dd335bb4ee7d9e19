"""Requirements -> wheels: which of several wheels of one version, and when an earlier resolution is used again."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import values
from hatch_torch_ext import resolve, store
from hatch_torch_ext.base import process, uv
from hatch_torch_ext.environments import of_python
from hatch_torch_ext.remote import settings
from hatch_torch_ext.remote.http import Http, Limits
from hatch_torch_ext.resolve import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = f"cp{sys.version_info[0]}{sys.version_info[1]}"


def add_wheel(folder: Path, rest: str) -> None:
    """Write a wheel of torch 2.10.0 that tells its own name."""
    info, name = "torch-2.10.0.dist-info", f"torch-2.10.0-{rest}.whl"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("torch/name", name)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.10.0\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {OWN}-{OWN}-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scope]:
    """Return a scope that knows one folder of wheels."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    found = settings.of_environ({}, find_links=[str(tmp_path / "wheels")], no_index=True)
    with Http(found, Limits(), print) as http:
        yield Scope(
            entry=values.entry(),
            interpreter=of_python(Path(sys.executable)).interpreter,
            python=Path(sys.executable),
            root=tmp_path,
            store=store.open_store(tmp_path / "store"),
            http=http,
            report=print,
        )


@pytest.mark.parametrize(
    "rests",
    [
        pytest.param(["{0}-{0}-{1}", "3-{0}-{0}-{1}", "10-{0}-{0}-{1}"], id="build-number"),
        pytest.param(["9-cp38-abi3-{1}", "{0}-{0}-{1}", "9-py3-none-any"], id="python"),
        pytest.param(["9-{0}-{0}-manylinux2014_x86_64", "{0}-{0}-{1}", "9-{0}-{0}-linux_x86_64"], id="policy"),
        pytest.param(["cp38-abi3-{1}", "cp39-abi3-manylinux_2_5_x86_64.manylinux1_x86_64"], id="limited"),
    ],
)
def test_the_wheel_is_the_one_that_uv_installs(rests: list[str], scope: Scope, tmp_path: Path) -> None:
    """Of all wheels that fit, uv lists the best one anywhere; the SDK would be of another torch than users have."""
    for rest in rests:
        add_wheel(tmp_path / "wheels", rest.format(OWN, "manylinux_2_17_x86_64.manylinux2014_x86_64"))
    (found,) = resolve.wheels(scope, ["torch==2.10.*"], dependencies=False)
    options = ["--quiet", "--no-index", "--find-links", "wheels", "--target", "installed", "--python", sys.executable]
    process.run([uv.find(), "pip", "install", *options, "torch==2.10.*"], cwd=tmp_path)
    assert found.path is not None
    assert found.path.name == (tmp_path / "installed" / "torch" / "name").read_text(encoding="utf-8")


def test_a_resolution_is_used_again_by_every_front_end(
    scope: Scope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`uv build` names the project's folder in a variable of its own, which is not a setting."""
    add_wheel(tmp_path / "wheels", "py3-none-any")
    first = resolve.wheels(scope, ["torch==2.10.*"], dependencies=False)
    monkeypatch.setenv("HATCH_UV", str(tmp_path / "missing"))  # uv is not run again
    monkeypatch.setenv("UV_INTERNAL__BUILD_DIR", str(tmp_path))
    assert resolve.wheels(scope, ["torch==2.10.*"], dependencies=False) == first
