"""A package index on the loopback interface that works, or fails in one of the ways in which servers fail."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import re
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import fake_torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SILENCE = 1.5  # seconds; longer than the timeouts under test
METADATA = ".metadata"


@dataclass
class Index:
    """What is served and how; ``files`` are wheels by name, ``hashes`` the hashes that the index states for them.

    ``fault`` is one of: ``no-ranges`` (the whole body with 200), ``other-range`` (206 with other bytes, as its headers
    state), ``wrong-bytes`` (206, the right headers, wrong bytes), ``long-range`` (more than was requested),
    ``truncated`` (half of each body, then the connection closes), ``cut`` (none of it), ``silent`` (no answer),
    ``redirect`` (to the same file elsewhere), ``loop`` (endless redirects), ``trickle`` (a byte now and then),
    ``slow-headers`` (a byte of the headers now and then), ``endless`` (a body that does not end), ``endless-after-one``
    (the same, after an answer to a request for one byte that states the size), or a status code.
    ``times`` is how often it occurs (None: always). It affects wheels, or with ``on_pages`` the pages of the index.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    root: str = "/simple"
    fault: str | int | None = None
    times: int | None = None
    on_pages: bool = False
    sizes: bool = True
    """Whether the page states the size of each file."""
    password: str | None = None
    elsewhere: str = ""
    query: str = ""
    """Put after the address of each file."""
    log: list[tuple[str, str]] = field(default_factory=list)
    """(path, Range header) of each answered request for a wheel."""
    authorizations: list[str] = field(default_factory=list)
    sent: int = 0
    delay: float = 0.0

    def add(self, data: bytes, name: str, *, sha256: str | None = None) -> None:
        """Serve a wheel; the index states its hash, or ``sha256``."""
        self.files[name] = data
        self.hashes[name] = sha256 or fake_torch.sha256(data)

    @property
    def simple(self) -> str:
        """Return the address of the index."""
        return self.url + self.root

    def with_password(self, user: str, password: str) -> str:
        """Return the address of the index with credentials."""
        return self.simple.replace("http://", f"http://{user}:{password}@")

    def misbehaves(self) -> str | int | None:
        """Return the fault that is due now, and count it."""
        if self.fault is None or self.times == 0:
            return None
        if self.times is not None:
            self.times -= 1
        return self.fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        index = self.server.index
        authorization = self.headers.get("Authorization", "")
        if index.password is not None:
            index.authorizations.append(authorization)
            expected = base64.b64encode(f"user:{index.password}".encode()).decode()
            if authorization != f"Basic {expected}":
                self._answer(401, b"", {"WWW-Authenticate": "Basic"})
                return
        path = re.sub("^http://[^/]+", "", self.path).partition("?")[0]  # proxies receive whole addresses
        if (match := re.fullmatch(re.escape(index.root) + r"/([^/]+)/", path)) is not None:
            self._page(match[1])
        elif path.startswith("/files/"):
            self._file(path.removeprefix("/files/"))
        else:
            self._answer(404, b"")

    def _page(self, project: str) -> None:
        index = self.server.index
        fault = index.misbehaves() if index.on_pages else None
        if isinstance(fault, int):
            self._answer(fault, b"")
            return
        if fault == "silent":
            time.sleep(SILENCE)
            return
        if isinstance(fault, str) and self._drags(fault):
            return
        prefix = project.replace("-", "_") + "-"
        files = [
            {"filename": name, "url": f"{index.url}/files/{name}{index.query}",
             "hashes": {"sha256": index.hashes[name]}, "core-metadata": True,
             **({"size": len(data)} if index.sizes else {})}
            for name, data in index.files.items() if name.startswith(prefix)
        ]  # fmt: skip
        if not files:
            self._answer(404, b"")
            return
        body = json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": files}).encode()
        self._answer(200, body, {"Content-Type": "application/vnd.pypi.simple.v1+json"})

    def _file(self, name: str) -> None:
        index = self.server.index
        if name.endswith(METADATA):
            self._metadata(name.removesuffix(METADATA))
            return
        data = index.files.get(name)
        if data is None:
            self._answer(404, b"")
            return
        asked = self.headers.get("Range", "")
        index.log.append((self.path, asked))
        time.sleep(index.delay)
        fault = None if index.on_pages else index.misbehaves()
        if isinstance(fault, int):
            self._answer(fault, b"", {"Retry-After": "0"})
        elif fault == "silent":
            time.sleep(SILENCE)
        elif fault == "endless-after-one":
            self._range(data, asked, None) if asked == "bytes=0-0" else self._drags("endless")
        elif fault is not None and self._drags(fault, data, asked):
            pass
        elif fault in {"redirect", "loop"}:
            self._answer(302, b"", {"Location": self.path if fault == "loop" else f"{index.elsewhere}/files/{name}"})
        elif not asked or fault == "no-ranges":
            self._answer(200, data)
        else:
            self._range(data, asked, fault)

    def _drags(self, fault: str, data: bytes = b"", asked: str = "") -> bool:
        """Send an answer that takes forever, if ``fault`` is one."""
        if fault not in {"trickle", "slow-headers", "endless"}:
            return False
        self.close_connection = True
        with contextlib.suppress(OSError):
            if fault == "slow-headers":
                for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10_000:
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.02)
                return True
            if fault == "endless":
                self.send_response(200)
                self.end_headers()
                while True:
                    self.wfile.write(bytes(1 << 20))
                    self.server.index.sent += 1 << 20
            first, last = (int(number) for number in re.findall(r"\d+", asked)) if asked else (0, len(data) - 1)
            last = min(last, len(data) - 1)
            self.send_response(206 if asked else 200)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.send_header("Content-Length", str(last - first + 1))
            self.end_headers()
            for byte in data[first : last + 1]:
                self.wfile.write(bytes([byte]))
                time.sleep(0.02)
        return True

    def _metadata(self, name: str) -> None:
        import io  # noqa: PLC0415
        import zipfile  # noqa: PLC0415

        with zipfile.ZipFile(io.BytesIO(self.server.index.files[name])) as archive:
            inner = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            self._answer(200, archive.read(inner))

    def _range(self, data: bytes, asked: str, fault: str | None) -> None:
        first, last = (int(number) for number in re.findall(r"\d+", asked))
        last = min(last, len(data) - 1)
        if fault == "other-range":
            first, last = 0, last - first
        body = data[first : last + 1]
        if fault == "wrong-bytes":
            body = bytes(len(body))
        headers = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        if fault == "long-range":
            body += b"more"
        if fault in {"truncated", "cut"}:
            self._answer(206, body, headers, cut=0 if fault == "cut" else (len(body) + 1) // 2)
        else:
            self._answer(206, body, headers)

    def _answer(self, code: int, body: bytes, headers: dict[str, str] | None = None, *, cut: int | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body[:cut])
            self.server.index.sent += len(body[:cut])
        if cut is not None:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    index: Index

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: clients that are killed close their connections."""


@contextlib.contextmanager
def serving() -> Iterator[Index]:
    """Serve an empty index on a free port while the context lasts."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.index = Index(url=f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder of pages as they are, and provide its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Proxy(BaseHTTPRequestHandler):
    """Answers CONNECT to any host by speaking TLS itself, and then serves pages as ``_Quiet`` does."""

    protocol_version = "HTTP/1.1"
    server: _Tls

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError), self.server.context.wrap_socket(self.connection, server_side=True) as inside:
            _Quiet(inside, self.client_address, self.server, directory=str(self.server.folder))
        self.close_connection = True


class _Tls(ThreadingHTTPServer):
    context: ssl.SSLContext
    folder: Path

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def instead_of(host: str, folder: Path, scratch: Path) -> Iterator[dict[str, str]]:
    """Serve ``folder`` as ``https://<host>`` to uv: provide the variables that lead it here."""
    key, certificate = scratch / "key.pem", scratch / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={host}"]
    words += ["-addext", f"subjectAltName=DNS:{host}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    server = _Tls(("127.0.0.1", 0), _Proxy)
    server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.context.load_cert_chain(certificate, key)
    server.folder = folder
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield {"HTTPS_PROXY": f"http://127.0.0.1:{server.server_address[1]}", "UV_INSECURE_HOST": host}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
