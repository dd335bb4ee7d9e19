"""Tiny wheels with the layout of torch's: headers, CMake files, libraries with the right names, metadata."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING

from hatch_torch_ext.sdk import exports, facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TAG = "cp311-cp311-manylinux_2_28_x86_64"
BULK = 200  # headers besides the named ones, so that filling an SDK takes a while
BALLAST = hashlib.shake_256(b"torch").digest(1_500_000)  # parts that a thin SDK leaves out
SYMBOLS = ("_ZN2at3_opsaddE", "_ZN5torch7LibraryC1Ev")


def contents(
    version: str = "2.8.0+cu128",
    *,
    cuda: str | None = "12.8",
    new_abi: bool = True,
    requires: Sequence[str] = (),
    extra: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Return the files of a torch wheel: name -> bytes."""
    public = version.partition("+")[0]
    symbol = facts.NEW_ABI_SYMBOL if new_abi else facts.OLD_ABI_SYMBOL
    files = {
        "torch/__init__.py": b"raise RuntimeError('the full torch')\n",
        "torch/version.py": f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\ngit_version = 'f00'\n".encode(),
        "torch/lib/libtorch_cpu.so": exports.stub("libtorch_cpu.so", "x86_64", exports=SYMBOLS) + BALLAST,
        "torch/lib/libtorch.so": exports.stub("libtorch.so", "x86_64"),
        "torch/lib/libgomp-24e2ab19.so.1": exports.stub("libgomp-24e2ab19.so.1", "x86_64"),
        "torch/lib/libc10.so": exports.stub("libc10.so", "x86_64", exports=[symbol.decode()]),
        "torch/include/torch/csrc/api/include/torch/all.h": b"#error C++17 or later compatible\n",
        "torch/include/c10/macros/Macros.h": b"#pragma once\n" * 10_000,
        "torch/share/cmake/Torch/TorchConfig.cmake": b"set_target_properties(torch PROPERTIES CXX_STANDARD 17)\n",
        f"torch-{public}.dist-info/METADATA": metadata(version, requires),
        f"torch-{public}.dist-info/WHEEL": f"Wheel-Version: 1.0\nTag: {TAG}\n".encode(),
        f"torch-{public}.dist-info/RECORD": b"",
    }
    files |= {f"torch/include/ATen/ops/op{number}.h": f"// {number}\n".encode() * 50 for number in range(BULK)}
    return {**files, **(extra or {})}


def metadata(version: str, requires: Sequence[str] = (), *, name: str = "torch") -> bytes:
    """Return the METADATA of a wheel."""
    lines = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {line}" for line in requires),
    ]
    return ("\n".join(lines) + "\n").encode()


def wheel(files: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of ``files``, the same bytes each time."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def sha256(data: bytes) -> str:
    """Return the hash in hex."""
    return hashlib.sha256(data).hexdigest()
