"""What is fuzzed: readers of bytes that others wrote. Each takes any bytes and may end in its own errors alone."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hatch_torch_ext import resolve, store
from hatch_torch_ext.remote import archive
from hatch_torch_ext.resolve import explain
from hatch_torch_ext.resolve.values import Wheel
from hatch_torch_ext.sdk.facts import TorchFacts
from hatch_torch_ext.sdk.record import Record
from hatch_torch_ext.store import seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Target = Callable[[bytes], object]

_FOLDER = tempfile.TemporaryDirectory(prefix="hatch-torch-ext-fuzz-")
_STORE = store.opened(Path(_FOLDER.name))
_WHEEL = Wheel(name="torch", version="2.8.0", url="https://host/torch-2.8.0.whl", sha256="0" * 64, size=10)
_FACTS = TorchFacts(version="2.8.0", cuda=None, hip=None, git_version=None, cxx11_abi=True, cxx_standard=17)
_LIBRARY = archive.Member(name="torch/lib/libc10.so", start=0, end=9, compressed=9, size=9, crc=1, method=0)


def markers(data: bytes) -> None:
    """Read a marker of the store, its seal, and an SDK out of it: whole, or not finished."""
    with contextlib.suppress(store.RecordError):
        seal.Seal.load(data)
    with contextlib.suppress(*store.FAULTS):
        Record.parse(store.record(data))
    folder = _STORE.root / "stubs" / "key"
    if not folder.is_dir():
        _STORE.make("stubs", "key", lambda _: {"title": "x"})
    for name, whole in (("seals/stubs-key.json", dict), ("stubs/key/finished.json", Record.parse)):
        file = _STORE.root / name
        before = file.read_bytes()
        file.chmod(0o644)
        file.write_bytes(data)
        try:
            found = _STORE.finished("stubs", "key", whole)
            assert found is None or data == before
            _STORE.listing()
        finally:
            file.write_bytes(before)
    store.release()


def resolutions(data: bytes) -> None:
    """Read a kept answer of uv: wheels whose addresses can be written, or nothing."""
    folder = _STORE.root / "resolved"
    folder.mkdir(exist_ok=True)
    (folder / "name.json").write_bytes(data)
    found = resolve._kept(_STORE, "name.json")
    for wheel in found[1] if found else ():
        json.dumps(asdict(wheel), ensure_ascii=False).encode()
        with contextlib.suppress(OSError, ValueError):  # a file that is not there
            assert wheel.key


def pages(data: bytes) -> None:
    """Read a page of an index, as JSON and as HTML: names of files, whatever they are, and versions out of them."""
    problems: list[str] = []
    for kind in ("application/vnd.pypi.simple.v1+json", "text/html"):
        http: Any = SimpleNamespace(page=lambda *_, kind=kind: (data, kind, "https://host/simple/torch/"))
        names = explain._page(http, "https://host/simple/torch/", problems)
        found = explain._versions(names)
        explain._nearest("torch==2.8.*", found)


def archives(data: bytes) -> None:
    """Read a wheel of an index: its directory and its files, or one clause."""

    def stream(start: int, end: int) -> Iterator[bytes]:
        yield data[start:end]

    source: Any = SimpleNamespace(size=len(data), stream=stream)
    with contextlib.suppress(archive.ArchiveError):
        members = archive.directory(source)
        for member, unpacked in archive.extract(source, members):
            assert len(unpacked) == member.size
            assert not Path(member.name).is_absolute()
            assert ".." not in Path(member.name).parts


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
        for name in ("torch/version.py", "torch/include/a/b.h", "torch-2.8.0.dist-info/METADATA"):
            target.writestr(name, name.encode() * 20)
    return stream.getvalue()


_MARKER = json.dumps(
    Record(facts=_FACTS, wheel=_WHEEL, libraries=(_LIBRARY,), requires=("a; b",), modules=()).marker()
).encode()
_SEAL = seal.Seal(files={"a/b.h": (1, 2, 3, 4, "0" * 64)}, folders={".": (1, 2)}).dump()
_PAGE = {"files": [{"filename": f"torch-2.{minor}.0-cp311-cp311-manylinux_2_28_x86_64.whl"} for minor in range(3)]}
_HTML = (
    b"<html><a href=\"torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64.whl#sha256=0\">t</a> <a href='../x%2b.whl'>x</a>"
)

TARGETS: dict[str, tuple[Target, tuple[bytes, ...]]] = {
    "markers": (markers, (_MARKER, _SEAL, b"{}", b"[]")),
    "resolutions": (resolutions, (json.dumps({"time": 1.0, "wheels": [asdict(_WHEEL)]}).encode(),)),
    "pages": (pages, (json.dumps(_PAGE).encode(), _HTML)),
    "archives": (archives, (_zip(),)),
}
"""Name -> what is called, and whole inputs to start from."""
