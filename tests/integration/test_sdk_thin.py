"""Thin SDKs from an index on loopback that serves well, or misbehaves: real uv, real HTTP, tiny wheels."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fake_torch
import values
from hatch_torch_ext import store
from hatch_torch_ext.base.errors import ConfigurationError, SdkError, TorchExtError
from hatch_torch_ext.config import Config
from hatch_torch_ext.remote.http import Http, Limits, RemoteError
from hatch_torch_ext.remote.settings import IndexSettings
from hatch_torch_ext.sdk import check, exports, thin
from hatch_torch_ext.store import upkeep
from hatch_torch_ext.values import Interpreter
from loopback import Index, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.values import Entry, Sdk

NAME = f"torch-2.8.0-{fake_torch.TAG}.whl"
LIMITS = Limits(attempts=3, backoff=0.01)


@pytest.fixture
def index() -> Iterator[Index]:
    """Return an index with one torch 2.8.0."""
    with serving() as served:
        served.add(fake_torch.wheel(fake_torch.contents()), NAME)
        yield served


class Builder:
    """Acquires SDKs for one project, with its own caches."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.environ = {"UV_DEFAULT_INDEX": url, "UV_HTTP_TIMEOUT": "0.6"}
        self.environ["HATCH_TORCH_EXT_CACHE"] = str(folder / "store")
        self.reports: list[str] = []
        (folder / "csrc").mkdir(exist_ok=True)

    @property
    def store(self) -> store.Store:
        """Return the builder's store."""
        return store.Store(Path(self.environ["HATCH_TORCH_EXT_CACHE"]))

    def config(self, index_url: str | None = None) -> Config:
        """Return the configuration of the project."""
        source = self.folder / "csrc"
        return Config(root=self.folder, package="p", package_dir=source, source=source, index_url=index_url)

    def acquire(
        self,
        requirement: str = "torch==2.8.*",
        *,
        index_url: str | None = None,
        config: Config | None = None,
        limits: Limits = LIMITS,
        **variables: str,
    ) -> Sdk:
        """Acquire the SDK of one entry that asks for ``requirement``."""
        return thin.acquire(
            entry(requirement, **variables),
            values.environment(Path(sys.executable), interpreter()),
            config or self.config(index_url),
            report=self.reports.append,
            environ=self.environ,
            limits=limits,
        )

    def fails(
        self,
        requirement: str = "torch==2.8.*",
        *,
        index_url: str | None = None,
        config: Config | None = None,
        limits: Limits = LIMITS,
        **variables: str,
    ) -> str:
        """Acquire, expecting an error; return its message. Nothing half-made may be left."""
        with pytest.raises(SdkError) as caught:
            self.acquire(requirement, index_url=index_url, config=config, limits=limits, **variables)
        root = self.store.root
        assert not list(root.glob("torch/*")), "a half-made SDK is left"
        assert not list(root.glob("unfinished/*")), "scratch is left"
        return str(caught.value)


@pytest.fixture
def builder(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """Return a builder of its own store that knows the index by uv's variable."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    return Builder(tmp_path, index.simple)


def entry(requirement: str = "torch==2.8.*", **variables: str) -> Entry:
    """Return the entry ``matrix.2.8`` that asks for ``requirement``."""
    return values.entry(
        name="matrix.2.8",
        variables=(("torch", "2.8"), *variables.items()),
        dependencies=(requirement,),
        torch_requirement=requirement,
        python="3.11",
    )


def interpreter() -> Interpreter:
    """Return the facts of the Python that runs the tests, as far as they matter here."""
    version = ".".join(map(str, sys.version_info[:3]))
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return Interpreter(version=version, tag=tag, ext_suffix=".so", machine="x86_64", include=Path("/nowhere"))


def tree(folder: Path) -> dict[str, str]:
    """Return the hash of every file below ``folder``."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")


def test_facts_and_files(builder: Builder, index: Index) -> None:
    """The SDK holds the wheel's headers and facts, a stub for each library, and none of torch's own Python."""
    sdk = builder.acquire()
    check(entry(), sdk)
    assert (sdk.version, sdk.backend.name, sdk.cxx11_abi, sdk.cxx_standard) == ("2.8.0+cu128", "12.8", True, 17)
    assert sdk.libraries == ("libc10.so", "libgomp-24e2ab19.so.1", "libtorch.so", "libtorch_cpu.so")
    assert sorted(path.name for path in sdk.library_dir.iterdir()) == list(sdk.libraries)
    assert (sdk.prefix / "include/c10/macros/Macros.h").read_bytes() == b"#pragma once\n" * 10_000
    assert all(folder.is_dir() for folder in sdk.include_dirs)
    assert "the full torch" not in (sdk.prefix / "__init__.py").read_text()
    assert sdk.wheel_sha256 == index.hashes[NAME]


def test_few_ranges_and_nothing_twice(builder: Builder, index: Index) -> None:
    """One request for the directory, few for the content, none at all the second time."""
    builder.acquire()
    first = len(index.log)
    assert 2 <= first <= 5
    assert all(ranges.startswith("bytes=") for _, ranges in index.log)
    assert index.sent < len(index.files[NAME])
    builder.acquire()
    assert len(index.log) == first


def test_read_only_and_shared(builder: Builder, index: Index) -> None:
    """Files of a finished SDK are read-only, and a header that two releases share is one file."""
    contents = fake_torch.contents("2.9.0+cu128")
    index.add(fake_torch.wheel(contents), f"torch-2.9.0-{fake_torch.TAG}.whl")
    older = builder.acquire()
    newer = builder.acquire("torch==2.9.*")
    header = "include/c10/macros/Macros.h"
    assert (older.prefix / header).samefile(newer.prefix / header)
    assert older.prefix != newer.prefix
    for sdk in (older, newer):
        modes = {path.stat().st_mode & 0o222 for path in sdk.prefix.rglob("*")}
        assert modes == {0}


@pytest.mark.parametrize("fault", ["no-ranges", "other-range", "wrong-bytes", "long-range", 416])
def test_no_ranges_to_trust(builder: Builder, index: Index, fault: str | int) -> None:
    """A server that ignores or lies about ranges gives the whole wheel once, checked by hash; same result."""
    expected = tree(Builder(builder.folder, index.simple).acquire().prefix)
    builder.environ["HATCH_TORCH_EXT_CACHE"] = str(builder.folder / "other")
    index.fault, index.log[:] = fault, []
    index.times = 1 if isinstance(fault, int) else None
    sdk = builder.acquire()
    assert tree(sdk.prefix) == expected
    assert sum(not ranges for _, ranges in index.log) == 1
    assert "fetching the whole wheel" in builder.reports[0]
    before = len(index.log)
    found = exports.of(sdk, ["libtorch_cpu.so"], fetch=False, report=builder.reports.append)
    assert found == {"libtorch_cpu.so": frozenset(fake_torch.SYMBOLS)}
    assert len(index.log) == before


@pytest.mark.parametrize(("fault", "times"), [("truncated", 2), ("truncated", None), (503, 2), (429, 1), ("silent", 1)])
def test_recovers(builder: Builder, index: Index, fault: str | int, times: int | None) -> None:
    """Bodies that break off are resumed, busy and silent servers get the request again; the result is the same."""
    expected = tree(Builder(builder.folder, index.simple).acquire().prefix)
    builder.environ["HATCH_TORCH_EXT_CACHE"] = str(builder.folder / "other")
    index.fault, index.times = fault, times
    assert tree(builder.acquire().prefix) == expected


def test_redirects_keep_credentials_home(builder: Builder, index: Index) -> None:
    """A wheel that is on another server is followed there, and the index's password stays behind."""
    with serving() as other:
        other.add(index.files[NAME], NAME)
        index.password, index.fault, index.elsewhere = "s3cret", "redirect", other.url
        other.authorizations.clear()
        builder.environ["UV_DEFAULT_INDEX"] = index.with_password("user", "s3cret")
        builder.acquire()
        assert other.log
        assert not other.authorizations


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (401, "URL refuses these credentials (401). Put user name and password into the index address, or into .netrc"),
        (403, "URL is forbidden (403). Put user name and password into the index address, or into .netrc"),
        (404, "URL does not exist (404). Check the index address"),
        (500, "URL: the server answered 500, 3 times in a row. Check the network and the index"),
        ("silent", "URL: no answer within 0.6 s, 3 times in a row. Check the network and the index"),
        ("cut", "URL: the connection broke off, 3 times in a row. Check the network and the index"),
        ("loop", "URL redirects without end. Check the index"),
        ("slow-headers", "URL: no whole answer within 2.4 s, 3 times in a row. Check the network and the index"),
    ],
)
def test_wheel_refused(builder: Builder, index: Index, fault: str | int, message: str) -> None:
    """Each failure to fetch the wheel is reported with its address and a remedy."""
    index.fault = fault
    assert builder.fails() == f"matrix.2.8: {message}".replace("URL", f"{index.url}/files/{NAME}")
    index.fault = None
    assert builder.acquire().version == "2.8.0+cu128"


def test_wrong_hash(builder: Builder, index: Index) -> None:
    """A whole wheel whose hash differs from the index's is refused."""
    index.add(index.files[NAME], NAME, sha256="0" * 64)
    index.fault = "no-ranges"
    actual = fake_torch.sha256(index.files[NAME])
    assert builder.fails() == (
        f"matrix.2.8: {index.url}/files/{NAME} has the SHA-256 {actual}, but the index promises {'0' * 64}. "
        "Do not use this index until its owner has explained the difference"
    )


HOSTILE = b'#error "compiled by a stranger"\n'


@pytest.mark.parametrize("first", ["hostile", "honest"])
def test_no_index_speaks_for_another(builder: Builder, index: Index, first: str) -> None:
    """An index that states another wheel's hash for its own bytes affects only the projects that use it."""
    with serving() as hostile:
        hostile.add(
            fake_torch.wheel(fake_torch.contents(extra={"torch/include/c10/macros/Macros.h": HOSTILE})),
            NAME,
            sha256=index.hashes[NAME],
        )
        sdks = {}
        for who in (first, "hostile", "honest"):
            builder.environ["UV_DEFAULT_INDEX"] = (hostile if who == "hostile" else index).simple
            sdks[who] = builder.acquire()
            exports.of(sdks[who], ["libtorch_cpu.so"], fetch=True, report=builder.reports.append)
    header = "include/c10/macros/Macros.h"
    assert (sdks["hostile"].prefix / header).read_bytes() == HOSTILE
    assert (sdks["honest"].prefix / header).read_bytes() == b"#pragma once\n" * 10_000
    assert len({path.parent.name for path in builder.store.root.glob("exports/*/*")}) == 2


def test_one_index_is_shared(builder: Builder, index: Index) -> None:
    """Two projects with the same index share its files, also if one of them has a password in the address."""
    first = builder.acquire()
    before = len(index.log)
    other = Builder(builder.folder, index.with_password("user", "unneeded"))
    assert other.acquire().prefix == first.prefix
    assert len(index.log) == before


def test_one_projects_settings_of_uv_are_not_anothers(builder: Builder) -> None:
    """A resolution under one project's uv.toml is not used for another project."""
    with serving() as hostile:
        hostile.add(fake_torch.wheel(fake_torch.contents("2.8.1")), f"torch-2.8.1-{fake_torch.TAG}.whl")
        (builder.folder / "uv.toml").write_text(f'extra-index-url = ["{hostile.simple}"]\n')
        assert builder.acquire().version == "2.8.1"
    (builder.folder / "uv.toml").unlink()
    assert builder.acquire().version == "2.8.0+cu128"


def test_a_hash_that_the_author_names_is_checked(builder: Builder, index: Index) -> None:
    """A requirement with `#sha256=` costs the whole wheel, and one byte too much is refused."""
    requirement = f"torch @ {index.url}/files/{NAME}#sha256={index.hashes[NAME]}"
    sdk = builder.acquire(requirement)
    assert sdk.version == "2.8.0+cu128"
    assert "fetching the whole wheel, since a hash is required" in builder.reports[0]
    extra = {"torch/include/c10/macros/Macros.h": HOSTILE}
    index.files[NAME] = fake_torch.wheel(fake_torch.contents(extra=extra))
    builder.environ["HATCH_TORCH_EXT_CACHE"] = str(builder.folder / "other")
    assert "has the SHA-256" in builder.fails(requirement)


def test_nothing_of_the_index_outlives_a_kill(builder: Builder, index: Index) -> None:
    """Uv gets the index's address, which may hold a password, by its input: a kill leaves no file with it."""
    index.on_pages, index.fault, index.password = True, "silent", "s3cret"
    builder.environ |= {"UV_DEFAULT_INDEX": index.with_password("user", "s3cret"), "UV_HTTP_TIMEOUT": "5"}
    process = child(builder)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.kill()
    process.communicate()
    assert index.authorizations, "uv was not asking yet"
    written = [path for path in builder.store.root.rglob("*") if path.is_file()]
    assert not [path for path in written if b"s3cret" in path.read_bytes()]


@pytest.mark.parametrize(
    "record",
    [
        "[]",
        "{",
        "[" * 100_000,
        '{"time": 1e999, "wheels": [{"url": 3}]}',
        '{"time": 9e9, "wheels": [{"name": "t", "version": "1", "url": "\\ud800", "sha256": null, "size": 0}]}',
    ],
)
def test_a_damaged_resolution_is_made_again(builder: Builder, record: str) -> None:
    """A record that is not an answer is removed; uv resolves again."""
    builder.acquire()
    (file,) = builder.store.root.glob("resolved/*")
    file.write_text(record)
    assert builder.acquire().version == "2.8.0+cu128"
    assert b"2.8.0" in file.read_bytes()


def test_one_byte_now_and_then_is_not_progress(builder: Builder, index: Index) -> None:
    """A server that sends a byte now and then is abandoned after a few timeouts; each further attempt is reported."""
    index.fault = "trickle"
    message = builder.fails()
    place = re.escape(f"{index.url}/files/{NAME}")
    assert re.fullmatch(
        rf"matrix\.2\.8: {place}: only \d+ bytes arrived in 0\.\d+ s, 3 times in a row\. Check the network and the "
        "index",
        message,
    )
    assert re.fullmatch(rf"{place}: only \d+ bytes arrived in 0\.\d+ s; trying again", builder.reports[0])


def test_a_body_without_an_end(builder: Builder, index: Index) -> None:
    """Of a wheel no more is taken than its index promises."""
    index.fault, promised = "endless", len(index.files[NAME])
    assert builder.fails() == (
        f"matrix.2.8: {index.url}/files/{NAME} is longer than the {promised} bytes that the index promises. "
        "Do not use this index until its owner has explained the difference"
    )
    assert index.sent < 20_000_000


def test_a_body_without_an_end_after_a_stated_size(builder: Builder, index: Index) -> None:
    """CASE 122: a page without sizes, a server that states one and then sends without end: it is held to that."""
    index.sizes, index.fault, stated = False, "endless-after-one", len(index.files[NAME])
    assert builder.fails() == (
        f"matrix.2.8: {index.url}/files/{NAME} is longer than the {stated} bytes that the index promises. "
        "Do not use this index until its owner has explained the difference"
    )
    assert index.sent < 20_000_000
    index.fault = "no-ranges"  # its own length counts, and suffices
    assert builder.acquire().version == "2.8.0+cu128"


def test_a_page_without_an_end() -> None:
    """Reading an index page without an end stops at a limit, with a message."""
    limits = replace(LIMITS, largest_page=5_000_000)
    with serving() as other, Http(IndexSettings(index=other.simple), limits) as http:
        other.on_pages, other.fault = True, "endless"
        with pytest.raises(RemoteError) as caught:
            http.page(f"{other.simple}/torch/", "*/*")
        assert str(caught.value) == (
            f"{other.simple}/torch/ is larger than any page of an index (5.0 MB so far). Check the index address"
        )
        assert other.sent < 30_000_000


def test_the_total_of_an_entry(builder: Builder, index: Index) -> None:
    """What is fetched for one entry has a bound: an index that serves more than any torch has is stopped."""
    assert builder.fails(limits=replace(LIMITS, largest=10_000)) == (
        f"matrix.2.8: {index.url}/files/{NAME}: more than 10 kB would be fetched for one entry. Check the index: no "
        "build of torch is as large"
    )
    assert builder.acquire().version == "2.8.0+cu128"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["torch/include/a", "torch/include/a/b.h"], "it has a file and a folder of one name ('torch/include/a')"),
        (
            ["torch/include/" + "x" * 300],
            "it has a file whose name is too long ('torch/include/xxxxxxxxxxxxxxxxxxxxxxxxxx'…)",
        ),
        (
            ["torch/include/" + "x/" * 600 + "x.h"],
            "it has a file whose name is too long ('torch/include/x/x/x/x/x/x/x/x/x/x/x/x/x/'…)",
        ),
        (["torch/include/\x1b[2J.h"], "it has a file with a name that cannot be used ('torch/include/\\x1b[2J.h')"),
        (["torch/include/./x.h"], "it has a file with a name that cannot be used ('torch/include/./x.h')"),
    ],
)
def test_names_that_no_folder_takes(builder: Builder, index: Index, names: list[str], problem: str) -> None:
    """A wheel with file names that no file system accepts is reported as damaged; names are escaped in the message."""
    index.add(fake_torch.wheel(fake_torch.contents(extra=dict.fromkeys(names, b"x"))), NAME)
    message = builder.fails()
    assert message == f"matrix.2.8: the wheel of torch 2.8.0 is damaged: {problem}. Tell the owner of the index"


def test_libraries_that_cannot_be_read(builder: Builder, index: Index) -> None:
    """An invalid library in a whole wheel gives a message when its exports are read."""
    index.add(
        fake_torch.wheel(fake_torch.contents(extra={"torch/lib/libtorch_cpu.so": b"\x7fELF\x02\x01" + b"\xff" * 200})),
        NAME,
    )
    index.fault = "no-ranges"
    sdk = builder.acquire()
    index.fault = None
    with pytest.raises(TorchExtError, match=r"the symbols of libtorch_cpu\.so of torch 2\.8\.0.* cannot be read: "):
        exports.of(sdk, ["libtorch_cpu.so"], fetch=True, report=builder.reports.append)


@pytest.mark.parametrize("text", [b"(" * 20_000, b"__version__ = " + b"-" * 200_000 + b"1", b"\0", b"\xff\xfe"])
def test_a_hostile_version_file(builder: Builder, index: Index, text: bytes) -> None:
    """What exhausts Python's parser is a wheel that is not one, not a traceback."""
    index.add(fake_torch.wheel(fake_torch.contents(extra={"torch/version.py": text})), NAME)
    assert "the wheel of torch 2.8.0 is not usable to compile against: version.py" in builder.fails()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("__version__ = '2.8.0\\x1b[31m'", r"__version__ = '2.8.0\x1b[31m', as no torch has"),
        ("__version__ = '2.8.0;x'", "__version__ = '2.8.0;x', as no torch has"),
        ("__version__ = '2.8.+x'", "__version__ = '2.8.+x', which is not a version"),
        ("__version__ = '2.8." + "9" * 5000 + "'", "__version__ = '2.8.9999"),
        ("cuda = '12.8;${X}'", "cuda = '12.8;${X}', as no torch has"),
        ("cuda = '\\u00b2'", "cuda = '\u00b2', as no torch has"),
        ("hip = '../../x'", "hip = '../../x', as no torch has"),
        ("git_version = '\\n'", r"git_version = '\n', as no torch has"),
    ],
)
def test_a_version_that_no_torch_has(builder: Builder, index: Index, line: str, fault: str) -> None:
    """The version in a wheel goes into paths, CMake files and messages: an invalid one is refused."""
    text = "__version__ = '2.8.0'\ncuda = None\n" + line + "\n"
    index.add(fake_torch.wheel(fake_torch.contents(extra={"torch/version.py": text.encode()})), NAME)
    message = builder.fails()
    assert f"is not usable to compile against: version.py has {fault}" in message
    assert len(message) < 1000


@pytest.mark.parametrize("line", ["nvidia-cublas; python_version ~= 'x'", "nvidia-cublas; 'a' ~= os_name"])
def test_a_marker_that_compares_nothing(builder: Builder, index: Index, line: str) -> None:
    """A requirement with an invalid marker is reported like one that cannot be parsed."""
    (builder.folder / "csrc/CMakeLists.txt").write_text("project(p LANGUAGES CUDA)\n")
    index.add(fake_torch.wheel(fake_torch.contents(requires=[line])), NAME)
    with pytest.raises(SdkError, match=r"which is not a requirement: .* Tell the owner of the index"):
        builder.acquire()


def test_what_nothing_is_installed_of(builder: Builder, index: Index) -> None:
    """For headers only, an invalid requirement stops nothing: it would only add module names to a message."""
    index.add(fake_torch.wheel(fake_torch.contents(requires=["!!!", "sympy>=1"])), NAME)
    assert builder.acquire().left_out == ("sympy",)


def test_hostile_metadata(builder: Builder, index: Index) -> None:
    """Invalid requirements are reported by line; bytes that are not text are skipped."""
    (builder.folder / "csrc/CMakeLists.txt").write_text("project(p LANGUAGES CUDA)\n")
    index.add(fake_torch.wheel(fake_torch.contents(requires=["\x1b[2J???"])), NAME)
    with pytest.raises(SdkError) as caught:
        builder.acquire()
    assert "torch's wheel requires '\\x1b[2J???', which is not a requirement" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_wrong_crc(builder: Builder, index: Index) -> None:
    """A member whose CRC is wrong is refused, by ranges and in the whole wheel."""
    data = bytearray(index.files[NAME])
    at = data.rindex(b"torch/include/c10/macros/Macros.h") - 46 + 16  # the CRC in the central directory
    data[at] ^= 0xFF
    index.add(bytes(data), NAME)
    assert builder.fails() == (
        "matrix.2.8: the wheel of torch 2.8.0 is damaged: torch/include/c10/macros/Macros.h is damaged "
        "(its CRC or size is wrong). Tell the owner of the index"
    )


def test_path_tricks(builder: Builder, index: Index) -> None:
    """A wheel with a file that would land outside its folder is refused as a whole."""
    files = fake_torch.contents(extra={"torch/include/../../../../escaped.h": b"x"})
    index.add(fake_torch.wheel(files), NAME)
    assert builder.fails() == (
        "matrix.2.8: the wheel of torch 2.8.0 is damaged: it has a file that would land outside its folder "
        "('torch/include/../../../../escaped.h'). Tell the owner of the index"
    )


def test_not_a_wheel(builder: Builder, index: Index) -> None:
    """A page in place of the wheel (a proxy's login, say) is refused."""
    page = b"<html>please log in</html>"
    served = index.files[NAME]
    with serving() as other:
        other.add(page, NAME)
        index.fault, index.elsewhere = "redirect", other.url
        message = builder.fails()
    assert message == (
        f"matrix.2.8: {index.url}/files/{NAME}: the answer ended after {len(page)} of {len(served)} bytes. Check the "
        "index, and a proxy before it"
    )


def test_an_index_that_does_not_answer_beside_a_folder(builder: Builder, tmp_path: Path) -> None:
    """What a folder of wheels lacks, the index may have: its silence is the news, not that there is no release."""
    (tmp_path / f"torch-2.13.0-{fake_torch.TAG}.whl").touch()
    builder.environ["PIP_FIND_LINKS"] = str(tmp_path)
    message = builder.fails(index_url="http://127.0.0.1:9/simple")
    assert "http://127.0.0.1:9/simple/torch/" in message
    assert "there is no release" not in message


def test_the_modules_that_a_full_torch_would_bring_are_known(builder: Builder, index: Index) -> None:
    """Those in the wheel besides torch, and those of its requirements: for the error about one that CMake asks for."""
    for_linux, optional = 'nvidia-nccl==2; platform_system == "Linux"', 'opt-einsum>=3.3; extra == "opt-einsum"'
    requires = ("typing-extensions>=4.10", "sympy>=1.13", for_linux, optional)
    extra = {"torchgen/__init__.py": b"", "functorch/__init__.py": b"", "functorch/compile/__init__.py": b""}
    wheel = fake_torch.wheel(fake_torch.contents("2.9.1", requires=requires, extra=extra))
    index.add(wheel, f"torch-2.9.1-{fake_torch.TAG}.whl")
    sdk = builder.acquire("torch==2.9.*")
    assert sdk.left_out == ("functorch", "nvidia", "sympy", "torchgen", "typing_extensions")


@pytest.mark.performs("Correct the matrix")
def test_no_such_release(builder: Builder, index: Index) -> None:
    """The nearest releases that do exist are named, in their order."""
    for version in ("2.4.1", "2.13.0", "2.9.1"):
        index.add(fake_torch.wheel(fake_torch.contents(version)), f"torch-{version}-{fake_torch.TAG}.whl")
    assert builder.fails("torch==2.10.*") == (
        "matrix.2.8: no release matches `torch==2.10.*`. The nearest are 2.4.1, 2.8.0, 2.9.1, 2.13.0. "
        "Correct the matrix"
    )
    for version in ("2.4.1", "2.13.0"):
        assert builder.acquire(f"torch=={version.rpartition('.')[0]}.*").version == version


@pytest.mark.parametrize(
    ("requirement", "index_url"),
    [
        ("torch==2.8.0+cu126", "https://download.pytorch.org/whl/cu126"),
        ("torch==2.9.0rc1", "https://download.pytorch.org/whl/test/cpu"),
        ("torch==2.9.0.dev20250801+cu130", "https://download.pytorch.org/whl/nightly/cu130"),
    ],
)
def test_a_build_of_torchs_own_index(builder: Builder, requirement: str, index_url: str) -> None:
    """Builds for one CUDA and pre-releases are not on the default index: the message says which index has them."""
    assert builder.fails(requirement) == (
        f"matrix.2.8: no release matches `{requirement}`. The nearest are 2.8.0. "
        f'torch\'s own index may have it: `index-url = "{index_url}"`'
    )


@pytest.mark.performs("kip {}")
def test_no_wheel_for_this_python(builder: Builder, index: Index) -> None:
    """The Pythons that the release has are named."""
    index.files.clear()
    for tag in ("cp313-cp313t", "cp39-cp39", "cp313-cp313"):
        index.add(fake_torch.wheel(fake_torch.contents()), f"torch-2.8.0-{tag}-manylinux_2_28_x86_64.whl")
    assert builder.fails() == (
        "matrix.2.8: torch 2.8.0 has no wheel for cp311; it has cp39, cp313, cp313t. "
        "Correct `python` in the matrix, or skip matrix.2.8"
    )
    index.add(fake_torch.wheel(fake_torch.contents("2.9.1")), f"torch-2.9.1-{fake_torch.TAG}.whl")
    # Left out: the other entries are built.
    assert builder.acquire("torch==2.9.*").version == "2.9.1"


def test_no_wheel_for_this_machine(builder: Builder, index: Index) -> None:
    """The platforms that the release has are named."""
    index.files.clear()
    for platform in ("win_amd64", "manylinux_2_28_aarch64"):
        index.add(fake_torch.wheel(fake_torch.contents()), f"torch-2.8.0-cp311-cp311-{platform}.whl")
    assert builder.fails() == (
        "matrix.2.8: torch 2.8.0 has no wheel for x86_64 Linux; it has manylinux_2_28_aarch64, win_amd64. "
        "Skip matrix.2.8"
    )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            401,
            "URL refuses these credentials (401). Put user name and password into the index address, or into .netrc.",
        ),
        (403, "URL is forbidden (403). Put user name and password into the index address, or into .netrc."),
        (404, "URL does not exist (404). Check the index address."),
        ("silent", "URL: no answer within 0.6 s, 2 times in a row. Check the network and the index."),
    ],
)
def test_index_refused(builder: Builder, index: Index, fault: str | int, message: str) -> None:
    """Each failure to fetch the index's page is reported with its address and a remedy."""
    index.fault, index.on_pages = fault, True
    assert builder.fails() == f"matrix.2.8: {message}".replace("URL", f"{index.simple}/torch/")


@pytest.mark.performs("correct `index-url` and `extra-index-url` of the hook")
@pytest.mark.parametrize("address", ["http://host:abc/simple", "http://user:S3CRET@[::1/simple?token=S3CRET"])
def test_an_address_that_cannot_be_read(builder: Builder, index: Index, address: str) -> None:
    """The settings name it, without the password; nothing is requested. A correct one is used."""
    with pytest.raises(
        ConfigurationError, match=r"The address `\S*` cannot be read \(.*\): correct `index-url`"
    ) as caught:
        builder.acquire(index_url=address)
    assert "S3CRET" not in str(caught.value)
    assert builder.acquire(index_url=index.simple).version == "2.8.0+cu128"


@pytest.mark.parametrize("host", ["a" * 70, "a..b", "xn--"])
def test_a_host_that_no_name_server_knows(builder: Builder, index: Index, host: str) -> None:
    """An invalid host name, of the index or in a redirect, gives a message."""
    assert "is not a valid address, or redirects to one that is not" in builder.fails(index_url=f"http://{host}/simple")
    index.fault, index.elsewhere = "redirect", f"http://{host}"
    assert "is not a valid address, or redirects to one that is not" in builder.fails()


def test_a_token_in_an_address_is_not_stored(builder: Builder, index: Index) -> None:
    """An index may sign the addresses of its files: the token is sent, and is in no file of the cache."""
    index.query = "?token=S3CRET&X-Amz-Signature=S3CRET&part=1"
    for _ in range(2):
        assert builder.acquire().version == "2.8.0+cu128"
    assert index.log
    assert all("token=S3CRET" in path for path, _ in index.log)
    files = [path for path in builder.store.root.rglob("*") if path.is_file()]
    assert [path.name for path in files if b"S3CRET" in path.read_bytes()] == []
    assert [one.title for one in upkeep.listing(builder.store)] == [f"torch 2.8.0+cu128 ({NAME})"]
    assert "S3CRET" not in "".join(builder.reports)


def test_pips_proxy(builder: Builder, index: Index) -> None:
    """What pip's settings name as the proxy is used, for the index and for the wheel: nothing else leads there."""
    builder.environ |= {"PIP_PROXY": index.url.removeprefix("http://"), "UV_DEFAULT_INDEX": "http://far.invalid/simple"}
    index.url = "http://far.invalid"
    assert builder.acquire().version == "2.8.0+cu128"
    assert {path.partition("/files/")[0] for path, _ in index.log} == {"http://far.invalid"}


def test_index_unreachable(builder: Builder, index: Index) -> None:
    """An unreachable index gives a message; one whose answer was kept is not needed."""
    builder.acquire()
    for record in builder.store.root.glob("resolved/*"):
        old = re.sub(rb'"time": [\d.]+', b'"time": 1000000000', record.read_bytes())
        record.write_bytes(old)
    index.fault, index.on_pages = "silent", True
    assert builder.acquire().version == "2.8.0+cu128"
    assert builder.reports[-1] == "the index cannot be reached; using torch 2.8.0 as resolved before"
    closed = Builder(builder.folder, "http://127.0.0.1:9/simple")
    closed.environ["HATCH_TORCH_EXT_CACHE"] = str(builder.folder / "other")
    assert closed.fails().startswith("matrix.2.8: http://127.0.0.1:9/simple/torch/: [Errno 111] Connection refused")


def test_credentials_work_and_are_not_printed(
    builder: Builder, index: Index, capfd: pytest.CaptureFixture[str]
) -> None:
    """A password in the hook's option serves pages and wheels; it is in no message, no output and no file."""
    index.password = "s3cret"  # noqa: S105
    url = index.with_password("user", "s3cret")
    builder.acquire(index_url=url)
    assert all(header.startswith("Basic ") for header in index.authorizations[-3:])
    index.fault = 404
    builder.environ["HATCH_TORCH_EXT_CACHE"] = str(builder.folder / "other")
    builder.reports.append(builder.fails(index_url=url))
    builder.reports.append(builder.fails("torch==2.99", index_url=url))
    output = "".join([*builder.reports, *capfd.readouterr()])
    assert "s3cret" not in output
    written = [path for path in builder.folder.rglob("*") if path.is_file() and "uv" not in path.parts]
    assert not [path for path in written if b"s3cret" in path.read_bytes()]


def test_fields_and_local_version(builder: Builder, index: Index) -> None:
    """``{cuda}`` in the address selects the index of that build, also where the matrix says 12.8."""
    index.root = "/whl/cu128"
    name = f"torch-2.8.0+cu128-{fake_torch.TAG}.whl"
    files = fake_torch.contents()
    index.files.clear()
    index.add(fake_torch.wheel(files), name)
    sdk = builder.acquire("torch==2.8.0+cu128", index_url=f"{index.url}/whl/{{cuda}}", cuda="12.8")
    check(entry("torch==2.8.0+cu128", cuda="12.8"), sdk)
    assert sdk.version == "2.8.0+cu128"


@pytest.mark.performs("write the address without it")
def test_unknown_field(builder: Builder, index: Index) -> None:
    """A field that the entry has no variable for is an error before anything is requested."""
    message = builder.fails(index_url=f"{index.url}/whl/{{cuda}}")
    assert message == (
        f"matrix.2.8: `index-url` = '{index.url}/whl/{{cuda}}' has the field {{cuda}}, but the entry has no `cuda` "
        "(it has torch). Add it to the matrix, or write the address without it"
    )
    assert not index.log
    assert builder.acquire(index_url=index.simple).version == "2.8.0+cu128"
    index.root = "/whl/cu128"
    assert builder.acquire(index_url=f"{index.url}/whl/{{cuda}}", cuda="12.8").version == "2.8.0+cu128"


@pytest.mark.performs("Fetch it again")
def test_a_wheel_on_disk_that_is_fetched_again(builder: Builder, index: Index) -> None:
    """Cut off, damaged inside, or another than the hash says: fetched again, it is used."""
    file = builder.folder / NAME
    whole = index.files[NAME]
    at = whole.index(b"torch/include/c10/macros/Macros.h") + 50
    damaged = whole[:at] + bytes(20) + whole[at + 20 :]
    address = f"torch @ {file.as_uri()}"
    file.write_bytes(whole[:-100])
    assert builder.fails(address).endswith("\nFetch the wheel again, or correct its address")
    file.write_bytes(damaged)
    message = builder.fails(f"{address}#sha256={index.hashes[NAME]}")
    assert message.endswith("\nFetch the wheel again, or correct its address")
    builder.environ["PIP_FIND_LINKS"] = str(builder.folder)
    index.files.clear()
    message = builder.fails()
    assert message.startswith(f"matrix.2.8: the wheel {file} cannot be used: ")
    assert message.endswith(". Fetch it again")
    file.write_bytes(whole)
    for mended in (address, f"{address}#sha256={fake_torch.sha256(whole)}", "torch==2.8.*"):
        assert builder.acquire(mended).version == "2.8.0+cu128"
    file.write_bytes(fake_torch.wheel(fake_torch.contents(extra={"torch/include/x.h": b""})))
    builder.environ["HATCH_TORCH_EXT_CACHE"] = str(builder.folder / "other")
    assert builder.fails(f"{address}#sha256={fake_torch.sha256(whole)}").endswith(
        " is required. Fetch it again, or correct the requirement"
    )


@pytest.mark.parametrize("how", ["find-links", "direct", "directory-url"])
def test_wheel_on_disk(builder: Builder, index: Index, how: str) -> None:
    """A wheel of a folder, or of a file address, is read where it is, its symbols too."""
    folder = builder.folder / "wheels"
    folder.mkdir()
    (folder / NAME).write_bytes(index.files[NAME])
    requirement = "torch==2.8.0"
    if how == "direct":
        requirement = f"torch @ {(folder / NAME).as_uri()}"
    else:
        builder.environ["PIP_FIND_LINKS"] = str(folder) if how == "find-links" else folder.as_uri()
        index.files.clear()
    sdk = builder.acquire(requirement)
    assert sdk.version == "2.8.0+cu128"
    found = exports.of(sdk, ["libtorch_cpu.so"], fetch=False, report=builder.reports.append)
    assert found == {"libtorch_cpu.so": frozenset(fake_torch.SYMBOLS)}
    assert not index.log


def test_cuda_headers(builder: Builder, index: Index) -> None:
    """Where the CMake files speak of CUDA, the nvidia wheels give headers, library names and the runtime, no more."""
    nvidia = {
        "nvidia/cublas/include/cublas_v2.h": b"#pragma once\n",
        "nvidia/cublas/lib/libcublas.so.12": bytes(200_000),
        "nvidia/cublas/lib/libcudart.so.12": b"the runtime",
        "nvidia/cublas/__init__.py": b"",
        "nvidia_cublas_cu12-12.8.4.1.dist-info/METADATA": fake_torch.metadata("12.8.4.1", name="nvidia-cublas-cu12"),
        "nvidia_cublas_cu12-12.8.4.1.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-manylinux_2_27_x86_64\n",
    }
    requires = [
        'nvidia-cublas-cu12==12.8.4.1; platform_system == "Linux" and platform_machine == "x86_64"',
        'nvidia-cublas-cu12==1; platform_system == "Windows"',
        "numpy",
    ]
    index.add(fake_torch.wheel(fake_torch.contents(requires=requires)), NAME)
    index.add(fake_torch.wheel(nvidia), "nvidia_cublas_cu12-12.8.4.1-py3-none-manylinux_2_27_x86_64.whl")
    (builder.folder / "csrc/CMakeLists.txt").write_text("project(p LANGUAGES CXX)\n")
    assert builder.acquire().toolkit_include_dirs == ()
    (builder.folder / "csrc/CMakeLists.txt").write_text("project(p LANGUAGES CXX CUDA)\n")
    sdk = builder.acquire()
    assert sdk.nvidia_libraries == tuple((f"lib{name}.so.12", "nvidia/cublas/lib") for name in ("cublas", "cudart"))
    (include,) = sdk.toolkit_include_dirs
    assert [path.name for path in include.iterdir()] == ["cublas_v2.h"]
    assert sdk.gpu_runtime is not None
    assert sdk.gpu_runtime.read_bytes() == b"the runtime"
    assert list(include.parent.rglob("*.so*")) == [sdk.gpu_runtime]


def test_symbols_are_streamed_once(builder: Builder, index: Index) -> None:
    """Symbols of the large library are fetched when that is allowed, checked, and kept."""
    sdk = builder.acquire()
    before = len(index.log)
    assert exports.of(sdk, ["libtorch_cpu.so"], fetch=False, report=builder.reports.append) is None
    assert exports.of(sdk, ["libc10.so", "libm.so.6"], fetch=False, report=builder.reports.append) == {
        "libc10.so": frozenset({"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_string"})
    }
    assert len(index.log) == before
    expected = {"libtorch_cpu.so": frozenset(fake_torch.SYMBOLS)}
    index.fault, index.times = "truncated", 1
    assert exports.of(sdk, ["libtorch_cpu.so"], fetch=True, report=builder.reports.append) == expected
    count = len(index.log)
    assert count > before
    assert exports.of(sdk, ["libtorch_cpu.so"], fetch=False, report=builder.reports.append) == expected
    assert len(index.log) == count


def test_symbols_have_a_bound(builder: Builder, index: Index) -> None:
    """What the audit fetches is bounded too, all libraries together."""
    sdk = builder.acquire()
    with pytest.raises(TorchExtError, match=r"more than 1\.0 kB would be fetched for one entry\. Check the index"):
        exports.of(sdk, ["libtorch_cpu.so"], fetch=True, report=builder.reports.append, most=1000)
    assert index.log
    assert exports.of(sdk, ["libtorch_cpu.so"], fetch=True, report=builder.reports.append, most=100_000_000)


@pytest.mark.performs('set `audit-symbols = "cached"`')
def test_symbols_refused(builder: Builder, index: Index) -> None:
    """Symbols that cannot be fetched are an error that says how to do without."""
    sdk = builder.acquire()
    index.fault = 403
    with pytest.raises(TorchExtError) as caught:
        exports.of(sdk, ["libtorch_cpu.so"], fetch=True, report=builder.reports.append)
    assert str(caught.value) == (
        "the symbols of libtorch_cpu.so of torch 2.8.0+cu128 cannot be read: "
        f"{index.url}/files/{NAME} is forbidden (403). "
        "Put user name and password into the index address, or into .netrc. Try again, or set `audit-symbols = "
        '"cached"`'
    )
    # The option: what was fetched before, and nothing else. And trying again, when the index answers.
    assert exports.of(sdk, ["libtorch_cpu.so"], fetch=False, report=builder.reports.append) is None
    index.fault = None
    assert exports.of(sdk, ["libtorch_cpu.so"], fetch=True, report=builder.reports.append)


def test_cache_not_writable(builder: Builder) -> None:
    """If the user's cache cannot be written, a folder of the project is used, with a note."""
    (builder.folder / "file").write_text("")
    builder.environ["HATCH_TORCH_EXT_CACHE"] = str(builder.folder / "file" / "cache")
    sdk = builder.acquire()
    fallback = builder.folder / "build" / "torch-ext" / "cache"
    assert sdk.prefix.is_relative_to(fallback)
    unusable = builder.folder / "file" / "cache"
    assert builder.reports[0] == f"the cache {unusable} cannot be written (Not a directory): using {fallback} instead"


def child(builder: Builder, *, limit: int = 0) -> subprocess.Popen[str]:
    """Start a process that acquires the SDK into the builder's store, and says ``ready`` before and ``done`` after."""
    code = f"""
        import resource, sys
        from pathlib import Path
        sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parent.parent)!r}]
        import test_sdk_thin as tests
        if {limit}:
            resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
        builder = tests.Builder(Path({str(builder.folder)!r}), {builder.environ["UV_DEFAULT_INDEX"]!r})
        builder.environ.update({builder.environ!r})
        print("ready", flush=True)
        try:
            builder.acquire()
        except tests.SdkError as error:
            print(error)
        print("done", flush=True)
    """
    return subprocess.Popen([sys.executable, "-B", "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_at_any_moment(builder: Builder, index: Index) -> None:
    """Whenever a build is killed, the next one gives the same bytes as an undisturbed one."""
    clean = Builder(builder.folder, index.simple)
    clean.environ["HATCH_TORCH_EXT_CACHE"] = str(builder.folder / "clean")
    expected = tree(clean.acquire().prefix)
    index.delay = 0.02
    killed = 0
    for step in range(8):
        process = child(builder)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.03 * step)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process.stdout.close()
    assert killed
    assert tree(builder.acquire().prefix) == expected


@pytest.mark.performs("ame another folder with HATCH_TORCH_EXT_CACHE")
def test_disk_full(builder: Builder) -> None:
    """A full disk gives a message and leaves no partial files; the next run succeeds."""
    process = child(builder, limit=100_000)  # the largest header is 130 kB
    output, _ = process.communicate(timeout=60)
    root = builder.store.root
    assert output == (
        f"ready\nmatrix.2.8: no space is left for the cache {root} (File too large). Free some with "
        "`hatch-torch-ext sdk prune`, or name another folder with HATCH_TORCH_EXT_CACHE\ndone\n"
    )
    assert not list(root.glob("torch/*"))
    assert builder.acquire().version == "2.8.0+cu128"


def test_several_builds_at_once(builder: Builder, index: Index) -> None:
    """Of builds that want the same release at once, one fetches it and the others wait for it."""
    index.delay = 0.05
    prefixes: list[Path] = []
    threads = [threading.Thread(target=lambda: prefixes.append(builder.acquire().prefix)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(prefixes) == 4
    assert len(set(prefixes)) == 1
    assert len(index.log) == len(set(index.log))


def test_prune(builder: Builder, index: Index) -> None:
    """The store lists its items; pruning removes them, and the bytes that they used."""
    index.add(fake_torch.wheel(fake_torch.contents("2.9.0")), f"torch-2.9.0-{fake_torch.TAG}.whl")
    old, new = builder.acquire(), builder.acquire("torch==2.9.*")
    assert [one.title for one in upkeep.listing(builder.store)] == [
        f"torch 2.8.0+cu128 ({NAME})",
        f"torch 2.9.0 (torch-2.9.0-{fake_torch.TAG}.whl)",
    ]
    store.release()
    assert len(upkeep.prune(builder.store)) == 2
    assert not old.prefix.exists()
    assert not new.prefix.exists()
    assert not list(builder.store.root.rglob("*.h"))
    assert not list(builder.store.root.glob("blobs/*/*"))
    assert builder.acquire().version == "2.8.0+cu128"
