"""The finished wheel's last check: its size, and what a build says of it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

import elves
import wheels
from hatch_torch_ext import pipeline
from hatch_torch_ext.audit.findings import CODES
from hatch_torch_ext.base.errors import AuditError
from hatch_torch_ext.config import Config
from hatch_torch_ext.values import Layout, LayoutFile

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ("torch2.8_cpu_cxx11_x86_64", "torch2.9_cpu_cxx11_x86_64")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Return a wheel of two variants, one of 300 kB that do not compress, the other of 100."""
    built = []
    for number, label in enumerate(LABELS):
        ballast = hashlib.shake_256(label.encode()).digest(300_000 - 200_000 * number)
        library = elves.shared_object(needed=("libc.so.6",), data=ballast)
        built.append((wheels.variant(label, {f"{label}/libx.so": library}), {f"{label}/libx.so": library}))
    return wheels.ours(tmp_path, built)


def layout(folder: Path) -> Layout:
    """Return a layout of one file, for the line that is printed."""
    source = folder / "libx.so"
    source.write_bytes(bytes(2000))
    file = LayoutFile(target="_torch_ext/a/libx.so", source=source)
    return Layout(package="my_pkg", variants=(), files=(file,), tag="", requires="", manifest="")


def config(root: Path, **changes: object) -> Config:
    """Return the configuration of the package."""
    return Config(root=root, package="my_pkg", package_dir=root, source=root, **changes)  # type: ignore[arg-type]


def test_the_size_and_the_largest_parts_are_reported(wheel: Path, tmp_path: Path) -> None:
    """CASE 16: under the budget, the build ends with the wheel's size and what weighs most."""
    said: list[str] = []
    pipeline.check_wheel(wheel, config(tmp_path, max_size=1_000_000), layout(tmp_path), report=said.append)
    (line,) = said
    assert line.startswith(f"{wheel.name}: 4")
    assert line.endswith(" kB, 0 variants; largest: _torch_ext/a/libx.so 2.0 kB")


def test_over_the_budget_the_largest_parts_are_named(wheel: Path, tmp_path: Path) -> None:
    """CASE 16: the message has both sizes, the parts by their weight in the wheel, and what to do."""
    with pytest.raises(AuditError) as caught:
        pipeline.check_wheel(wheel, config(tmp_path, max_size=200_000), layout(tmp_path), report=print)
    first, second, third = str(caught.value).splitlines()
    assert first == f"{wheel.name} is not fit to be published:"
    assert second == f"fault size: {CODES['size'].remedy}"
    assert third.startswith(
        f"  {wheel.name}: is {wheel.stat().st_size / 1e3:.0f} kB, over the budget of 200 kB; the largest parts are "
        f"my_pkg/_torch_ext/{LABELS[0]}/libx.so (300 kB), my_pkg/_torch_ext/{LABELS[1]}/libx.so (100 kB), "
    )
