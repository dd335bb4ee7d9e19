"""What is fuzzed: readers of bytes that others wrote. Each takes any bytes and may end only in its own errors."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import warnings
import zipfile
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rich.console import Console

import elves
import wheels
from fuzz.memories import of as of_memories
from hatch_torch_ext import audit, elf, report, resolve, store, wheel
from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import ElfError, FatbinError, NewerManifestError, WheelError
from hatch_torch_ext.elf import fatbin
from hatch_torch_ext.facts import manifest, policy
from hatch_torch_ext.facts import variant as variants
from hatch_torch_ext.merge import loader
from hatch_torch_ext.remote import archive
from hatch_torch_ext.report import page, table
from hatch_torch_ext.resolve import ResolvedWheel
from hatch_torch_ext.sdk.facts import ThinRecord, TorchFacts
from hatch_torch_ext.store import seal, upkeep
from hatch_torch_ext.values import PlacedVariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Target = Callable[[bytes], object]

LABEL = "torch2.8_cpu_cxx11_x86_64"
MAX_NAME = 60_000
MOST_TEXT = 1_000_000
_ELF = elves.shared_object(
    needed=("libc10.so", "libc.so.6"),
    soname="libx.so",
    runpath="$ORIGIN/../../../torch/lib",
    undefined=("_ZN2at4_ops3add4callERKNS_6TensorES4_RKN3c106ScalarE", "memcpy@GLIBC_2.14"),
    exported=("PyInit_x", "f"),
    versions={"libc.so.6": ("GLIBC_2.14",)},
    data=b"\0my_ops::f(Tensor x) -> Tensor\0_ZL33TORCH_LIBRARY_static_init_my_ops\0/home/x/a.cpp\0",
)
_RECORD = b"my_pkg/a.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\nmy_pkg-1.0.dist-info/RECORD,,\n"
_METADATA = (
    b"Metadata-Version: 2.3\nName: my-pkg\nRequires-Dist: torch>=2.8,!=2.9.*; extra == 'x'\nGenerator: x\n\ntext\n"
)
_NAMES = "my_pkg/a.py\n../a\nmy_pkg/../../a\n/a\nC:/a\na\\b\nmy_pkg/a.py/b\nü/\x1b\na//b\n./a\n".encode()
_FOLDER = tempfile.TemporaryDirectory(prefix="hatch-torch-ext-fuzz-")
_MEMORIES = of_memories(Path(_FOLDER.name) / "memories")
_STORE = store.open_store(Path(_FOLDER.name))
_WHEEL = ResolvedWheel(name="torch", version="2.8.0", url="https://host/torch-2.8.0.whl", sha256="0" * 64, size=10)
_FACTS = TorchFacts(version="2.8.0", cuda=None, hip=None, git_version=None, cxx11_abi=True, cxx_standard=17)
_LIBRARY = archive.ArchiveMember(name="torch/lib/libc10.so", start=0, end=9, compressed=9, size=9, crc=1, method=0)


def markers(data: bytes) -> None:
    """Read a marker of the store, its seal, and an SDK out of it: whole, or not finished."""
    with contextlib.suppress(store.RecordError):
        seal.Seal.load(data)
    with contextlib.suppress(*store.FAULTS):
        ThinRecord.parse(store.record(data))
    folder = _STORE.root / "stubs" / "key"
    if not folder.is_dir():
        _STORE.make("stubs", "key", lambda _: {"title": "x"})
    for name, whole in (("seals/stubs-key.json", dict), ("stubs/key/finished.json", ThinRecord.parse)):
        file = _STORE.root / name
        before = file.read_bytes()
        file.chmod(0o644)
        file.write_bytes(data)
        try:
            found = _STORE.finished("stubs", "key", whole)
            assert found is None or data == before
            upkeep.listing(_STORE)
        finally:
            file.write_bytes(before)
    store.release()


def memories(data: bytes) -> None:
    """Read it in place of each file in which builds remember something."""
    for file, read in _MEMORIES.values():
        before = file.read_bytes()
        file.write_bytes(data)
        try:
            read()
        finally:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(before)


def resolutions(data: bytes) -> None:
    """Read a kept answer of uv: wheels whose addresses can be written, or nothing."""
    folder = _STORE.root / "resolved"
    folder.mkdir(exist_ok=True)
    (folder / "name.json").write_bytes(data)
    found = _STORE.answer("name.json", resolve._wheels)
    for each in found.value if found else ():
        json.dumps(asdict(each), ensure_ascii=False).encode()
        with contextlib.suppress(OSError, ValueError):  # a file that is not there
            assert each.key


def pages(data: bytes) -> None:
    """Read a page of an index, as JSON and as HTML: names of files, whatever they are, and versions out of them."""
    problems: list[str] = []
    for kind in ("application/vnd.pypi.simple.v1+json", "text/html"):
        http: Any = SimpleNamespace(page=lambda *_, kind=kind: (data, kind, "https://host/simple/torch/"))
        names = resolve._page(http, "https://host/simple/torch/", problems)
        found = resolve._versions(names)
        resolve._nearest("torch==2.8.*", found)


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


def manifests(data: bytes) -> None:
    """Read a manifest, and all that others make of its variants: what the loader knows, JSON, a row of the report."""
    try:
        found = manifest.parse(data.decode("utf-8", "replace"), "my_pkg/_torch_ext/manifest.json", file="x.whl")
    except (NewerManifestError, WheelError) as error:
        _shown(str(error))
        return
    for item in found.variants:
        json.dumps(variants.to_json(item.variant), ensure_ascii=False).encode()
        loader.fields(PlacedVariant(variant=item.variant, places=()))
        policy.natural(item.variant.label)
        assert all(".." not in Path(place).parts and not Path(place).is_absolute() for place in item.files)
    with tempfile.TemporaryDirectory(dir=_FOLDER.name) as folder:
        members = {f"my_pkg/_torch_ext/{LABEL}/libx.so": _ELF, "my_pkg/_torch_ext/manifest.json": data}
        _read(wheels.write(Path(folder), members))


def wheel_files(data: bytes) -> None:
    """Inspect and audit a wheel of any bytes."""
    with tempfile.TemporaryDirectory(dir=_FOLDER.name) as folder:
        path = Path(folder) / f"my_pkg-1.0-{wheels.TAG}.whl"
        path.write_bytes(data)
        _read(path)


def names(data: bytes) -> None:
    """Read a wheel whose members have any names: nothing is written outside the folder that it is unpacked to."""
    with tempfile.TemporaryDirectory(dir=_FOLDER.name) as folder:
        path = wheels.write(Path(folder), {"my_pkg/__init__.py": b""})
        with zipfile.ZipFile(path, "a") as target, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in data.split(b"\n")[:200]:
                info = zipfile.ZipInfo("x")
                info.filename = name.decode("cp437") if len(name) % 2 else name.decode("utf-8", "replace")
                if len(info.filename.encode()) < MAX_NAME:
                    target.writestr(info, b"x")
        unpacked = Path(folder) / "a" / "b" / "c"
        unpacked.mkdir(parents=True)
        with contextlib.suppress(WheelError):
            found = wheel.read(path, folder=unpacked, keep=lambda _: True)
            for problem in found.problems:
                _shown(f"{problem.file}: {problem.message}")
            for member in found.members:
                assert (unpacked / member.path).resolve().is_relative_to(unpacked.resolve())
        assert sorted(each.name for each in Path(folder).iterdir()) == ["a", path.name]
        assert [each.name for each in (Path(folder) / "a").iterdir()] == ["b"]
        assert [each.name for each in (Path(folder) / "a" / "b").iterdir()] == ["c"]


def records(data: bytes) -> None:
    """Inspect and audit a wheel with any RECORD, METADATA and WHEEL."""
    with tempfile.TemporaryDirectory(dir=_FOLDER.name) as folder:
        path = Path(folder) / f"my_pkg-1.0-{wheels.TAG}.whl"
        with zipfile.ZipFile(path, "w") as target:
            for name in ("RECORD", "METADATA", "WHEEL", "variant.json"):
                target.writestr(f"my_pkg-1.0.dist-info/{name}", data)
        _read(path)


def libraries(data: bytes) -> None:
    """Read an ELF file of any bytes, and the device code in it; then audit a wheel that holds it."""
    with tempfile.TemporaryDirectory(dir=_FOLDER.name) as folder:
        path = Path(folder) / "lib.so"
        path.write_bytes(data)
        for read in (elf.read, elf.defined, fatbin.archs):
            try:
                read(path)
            except (ElfError, FatbinError) as error:  # noqa: PERF203 -- three
                _shown(str(error))
        _read(wheels.write(Path(folder), {"a/lib.so": data}))


def _read(path: Path) -> None:
    """Run every reader of foreign wheels; every message can be shown, and is short."""
    try:
        described = report.describe(path)
        console = Console(file=io.StringIO(), width=150)
        table.render(described, console)
        _shown(console.file.getvalue())  # type: ignore[attr-defined]
        _shown(page.render(described))
        assert len(escape.json(report.to_json(described)).encode("ascii")) < 1.1 * MOST_TEXT
        _shown(audit.text(audit.audit_wheel(path)))
    except (NewerManifestError, WheelError) as error:
        _shown(str(error))


def _shown(text: str) -> None:
    assert len(text) < MOST_TEXT
    assert all(line.isprintable() for line in text.split("\n"))


def _ours() -> bytes:
    files = {f"{LABEL}/libx.so": _ELF}
    with tempfile.TemporaryDirectory() as folder:
        return wheels.ours(Path(folder), [(wheels.variant(LABEL, files), files)]).read_bytes()


def _manifest() -> bytes:
    with zipfile.ZipFile(io.BytesIO(_ours())) as source:
        return source.read("my_pkg/_torch_ext/manifest.json")


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
        for name in ("torch/version.py", "torch/include/a/b.h", "torch-2.8.0.dist-info/METADATA"):
            target.writestr(name, name.encode() * 20)
    return stream.getvalue()


_MARKER = json.dumps(
    ThinRecord(facts=_FACTS, wheel=_WHEEL, libraries=(_LIBRARY,), requires=("a; b",), modules=()).marker()
).encode()
_SEAL = seal.Seal(files={"a/b.h": f"1 2 3 4 {'0' * 64}"}, folders={".": "1 2"}).dump()
_PAGE = {"files": [{"filename": f"torch-2.{minor}.0-cp311-cp311-manylinux_2_28_x86_64.whl"} for minor in range(3)]}
_HTML = (
    b"<html><a href=\"torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64.whl#sha256=0\">t</a> <a href='../x%2b.whl'>x</a>"
)

TARGETS: dict[str, tuple[Target, tuple[bytes, ...]]] = {
    "markers": (markers, (_MARKER, _SEAL, b"{}", b"[]")),
    "memories": (memories, tuple(file.read_bytes() for file, _ in _MEMORIES.values())),
    "resolutions": (resolutions, (json.dumps({"time": 1.0, "wheels": [asdict(_WHEEL)]}).encode(),)),
    "pages": (pages, (json.dumps(_PAGE).encode(), _HTML)),
    "archives": (archives, (_zip(),)),
    "manifests": (manifests, (_manifest(),)),
    "wheels": (wheel_files, (_ours(),)),
    "names": (names, (_NAMES,)),
    "records": (records, (_RECORD, _METADATA, b'{"variants": {"cu12": {}}}')),
    "libraries": (libraries, (_ELF,)),
}
"""Name -> what is called, and whole inputs to start from."""
