"""Hugging Face's Hub on the loopback interface, as far as the package `kernels` asks it: one kernel repository."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT = "c0" * 20


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A kernel repository that is served: its name and folder; ``version`` is that of its one branch."""

    name: str
    folder: Path
    version: int

    def refs(self) -> object:
        """Return the branches."""
        branch = {"name": f"v{self.version}", "ref": f"refs/heads/v{self.version}", "targetCommit": COMMIT}
        return {"branches": [branch], "tags": [], "converts": []}

    def tree(self, place: str, *, recursive: bool) -> object:
        """Return what is in a folder."""
        base = self.folder / place
        found = sorted(base.rglob("*") if recursive else base.iterdir())
        return [self._entry(path) for path in found]

    def _entry(self, path: Path) -> dict[str, object]:
        data = path.read_bytes() if path.is_file() else b""
        oid = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        kind = "file" if path.is_file() else "directory"
        return {"type": kind, "path": path.relative_to(self.folder).as_posix(), "size": len(data), "oid": oid}


@contextlib.contextmanager
def served(repository: Repository) -> Iterator[str]:
    """Serve the repository; provide the address, for ``HF_ENDPOINT``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            for place in (f"/api/kernels/{repository.name}/", f"/kernels/{repository.name}/resolve/"):
                if parts.path.startswith(place):
                    what, _, rest = parts.path.removeprefix(place).partition("/")
                    break
            else:
                self._answer(404, b"{}")
                return
            if what == "refs":
                self._answer(200, json.dumps(repository.refs()).encode())
            elif what == "revision":
                self._answer(200, json.dumps({"id": repository.name, "sha": COMMIT, "siblings": []}).encode())
            elif what == "tree":
                recursive = parse_qs(parts.query).get("recursive", [""])[0].lower() == "true"
                answer = repository.tree(unquote(rest.partition("/")[2]), recursive=recursive)
                self._answer(200, json.dumps(answer).encode())
            else:
                self._answer(200, (repository.folder / unquote(rest)).read_bytes())

        do_HEAD = do_GET  # noqa: N815 -- the name that the server calls

        def _answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
