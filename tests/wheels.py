"""Wheels made for tests: any wheel from its members, and one of this project with its manifest."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.facts import variant as variants
from hatch_torch_ext.facts.variant import BuildRecord, Variant, VariantFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TAG = "py3-none-manylinux_2_28_x86_64"
RECORD = BuildRecord(
    entry="matrix.2.8",
    variables=(("torch", "2.8"),),
    torch_version="2.8.0+cu128",
    python="3.11.7",
    sdk="thin",
    compiler="GNU 12.2.0",
    cmake="4.4.5",
)


def digest(data: bytes) -> str:
    """Return the sha256 of ``data`` as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write(
    folder: Path,
    members: Mapping[str, bytes],
    *,
    name: str = f"my_pkg-1.0-{TAG}.whl",
    record: str | None = None,
    pure: bool = False,
    requires: Sequence[str] = ("torch<2.10,>=2.8",),
) -> Path:
    """Write a wheel of ``members`` with metadata and a correct RECORD (or the given one), and return its path."""
    project, version = name.split("-")[:2]
    info = f"{project}-{version}.dist-info"
    metadata = [
        f"Metadata-Version: 2.3\nName: {project}\nVersion: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    files = {
        **members,
        f"{info}/METADATA": ("\n".join(metadata) + "\n").encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {str(pure).lower()}\n".encode(),
    }
    if record is None:
        lines = [f"{path},sha256={digest(data)},{len(data)}" for path, data in files.items()]
        record = "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(member, data)
    return path


def variant(label: str, files: Mapping[str, bytes], **changes: object) -> Variant:
    """Return a CPU variant for torch 2.8 with ``files`` (path in ``_torch_ext`` -> bytes); ``changes`` are fields."""
    described = tuple(
        VariantFile(
            path=path,
            kind="library" if path.endswith(".so") else "data",
            sha256=hashlib.sha256(data).hexdigest(),
            size=len(data),
            registers=path.endswith(".so"),
        )
        for path, data in sorted(files.items())
    )
    values: dict[str, object] = {
        "label": label, "torch": "2.8", "stable_abi": False, "backend": "cpu", "cuda": None, "cxx11_abi": True,
        "python": None, "machine": "x86_64", "libc": "glibc", "libc_floor": "2.17",
        "policy": "manylinux_2_17_x86_64", "archs": (), "files": described, "build": RECORD,
    }  # fmt: skip
    return Variant(**{**values, **changes})  # type: ignore[arg-type]


def ours(
    folder: Path,
    built: Sequence[tuple[Variant, Mapping[str, bytes]]],
    *,
    extra: Mapping[str, bytes] | None = None,
    partial: Mapping[str, object] | None = None,
    package: str = "my_pkg",
    **changes: Any,
) -> Path:
    """Write a wheel of files, manifest and ``extra``; ``partial`` is for its head, ``changes`` are for ``write``."""
    init = f"from {package} import _variants\n\n_variants.load()\n".encode()
    members = {f"{package}/__init__.py": init, f"{package}/_variants.py": b""}
    for _, files in built:
        members |= {f"{package}/_torch_ext/{path}": data for path, data in files.items()}
    listed = [{**variants.to_json(described), "places": {}} for described, _ in built]
    head: dict[str, object] = {
        "package": package,
        "distribution": package.replace("_", "-"),
        "requires": "torch>=2.8,<2.10",
        "tag": TAG,
    }
    head |= {"partial": partial} if partial is not None else {}
    manifest = json.dumps({"schema": 1, **head, "variants": listed, "package_files": []})
    changes.setdefault("name", f"{package}-1.0-{TAG}.whl")
    members[f"{package}/_torch_ext/manifest.json"] = manifest.encode()
    return write(folder, {**members, **(extra or {})}, **changes)


def changed(path: Path, changes: Mapping[str, object], *, folder: Path | None = None) -> Path:
    """Write a wheel again with ``changes`` in the head of its manifest; in its place, or into ``folder``."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (place,) = [name for name in members if name.endswith("/_torch_ext/manifest.json")]
    members[place] = json.dumps({**json.loads(members[place]), **changes}).encode()
    (record,) = [name for name in members if name.endswith(".dist-info/RECORD")]
    lines = [f"{name},sha256={digest(data)},{len(data)}" for name, data in members.items() if name != record]
    members[record] = "\n".join([*lines, f"{record},,\n"]).encode()
    target = (folder or path.parent) / path.name
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target
