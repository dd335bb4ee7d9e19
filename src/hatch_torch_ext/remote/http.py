"""Bytes of a remote file, by ranges: retried with back-off, resumed after an interruption, always verified."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import re
import ssl
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from hatch_torch_ext.facts.content import size
from hatch_torch_ext.remote.settings import IndexSettings, public, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    import httpx

CHUNK = 1 << 18
PROGRESS = 1 << 16
"""After this many bytes, the count of interruptions starts again from zero."""
HEADERS = 4
"""Number of timeouts within which an answer must begin."""
_DIGITS = re.compile("[0-9]{1,9}")
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
CREDENTIALS_REMEDY = "Put user name and password into the index address, or into .netrc"


class RemoteError(Exception):
    """The bytes cannot be fetched; the message is a sentence that names the address (without credentials)."""


class NoRangesError(RemoteError):
    """The server does not support ranges, or sent other ones: only the whole file can be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a session.

    ``attempts`` without any progress are made before giving up; the first pause is ``backoff`` seconds, then doubled. A
    session may receive ``largest`` bytes in all, and ``largest_page`` for one page of an index; ``slowest`` bytes a
    second, measured over one timeout, are the least that counts as progress.
    """

    attempts: int = 5
    backoff: float = 0.5
    longest_pause: float = 20.0
    largest: int = 8_000_000_000
    largest_page: int = 64 << 20
    slowest: int = 1024


class Source(Protocol):
    """A file of ``size`` bytes of which any range can be read."""

    @property
    def size(self) -> int:
        """Return the size in bytes."""

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` up to, not including, ``end``: all of them, or an exception."""


class FileSource:
    """A file on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of a range. Raises ``RemoteError`` if the file became shorter."""
        with self.path.open("rb") as stream:
            stream.seek(start)
            while start < end:
                data = stream.read(min(CHUNK, end - start))
                if not data:
                    raise RemoteError(f"{self.path} was cut short while it was read")
                start += len(data)
                yield data


class Http:
    """A session of requests with one entry's settings. It is thread-safe; close it, or use it as a context."""

    def __init__(
        self, settings: IndexSettings, limits: Limits | None = None, report: Callable[[str], None] | None = None
    ) -> None:
        self.settings = settings
        self.limits = limits or Limits()
        self.report = report or (lambda _: None)
        """Called before each further attempt."""
        self._received = 0
        self._clients: dict[bool, httpx.Client] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Http:  # noqa: PYI034 - Self is of typing from 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()

    def stream(
        self,
        url: str,
        accept: Callable[[httpx.Response], int],
        *,
        start: int = 0,
        until: int | None = None,
        kind: str = "*/*",
    ) -> Iterator[bytes]:
        """Yield a body from ``start`` on, resuming where it is interrupted.

        ``accept`` examines each answer and returns the offset at which its body begins, or raises to refuse it. With
        ``until``, the body ends at that offset, else where the server ends it. ``kind`` is the Accept header.
        """
        position, failures = start, 0
        while True:
            began_at = position
            headers = {"Accept": kind, "Accept-Encoding": "identity"}
            if position or until is not None:
                headers["Range"] = f"bytes={position}-{'' if until is None else until - 1}"
            pause = None
            try:
                for data in self._attempt(url, headers, accept, position):
                    position += len(data)
                    self._count(url, len(data))
                    if until is not None and position > until:
                        raise NoRangesError(f"{public(url)} is served with longer ranges than were requested")
                    yield data
                if until is None or position >= until:
                    return
                problem = f"the answer ended after {position - start} of {until - start} bytes"
            except _TransientError as error:
                problem, pause = str(error), error.pause
            if _is_progress(position - began_at, None if until is None else until - began_at):
                failures = 0
            failures += 1
            if failures >= self.limits.attempts:
                raise RemoteError(
                    f"{public(url)}: {problem}, {failures} times in a row. Check the network and the index"
                )
            self.report(f"{public(url)}: {problem}; trying again")
            doubled = self.limits.backoff * 2 ** (failures - 1)
            time.sleep(min(doubled if pause is None else pause, self.limits.longest_pause))

    def _attempt(
        self, url: str, headers: dict[str, str], accept: Callable[[httpx.Response], int], position: int
    ) -> Iterator[bytes]:
        """Yield one answer's body from ``position`` on, skipping bytes before it."""
        import httpx

        client, target = self._client(url), without_credentials(url)
        request = client.stream("GET", target, headers=headers, auth=self.settings.credentials(url))
        try:
            response = _within(HEADERS * self.settings.timeout, request.__enter__)
            with contextlib.closing(response):
                self._check_status(url, response)
                skip = position - accept(response)
                for data in self._paced(response.iter_raw()):  # no chunk size: a partly filled chunk would be lost
                    kept, skip = data[max(skip, 0) :], skip - len(data)
                    if kept:
                        yield kept
        except httpx.TimeoutException as error:
            raise _TransientError(f"no answer within {self.settings.timeout:g} s") from error
        except (UnicodeError, httpx.InvalidURL) as error:  # a host name that no name server accepts
            raise RemoteError(
                f"{public(url)} is not a valid address, or redirects to one that is not ({error}). Check the index "
                "address"
            ) from error
        except httpx.UnsupportedProtocol as error:
            raise RemoteError(f"{public(url)} is not an http or https address") from error
        except (httpx.RemoteProtocolError, httpx.ReadError) as error:
            raise _TransientError("the connection broke off") from error
        except httpx.TransportError as error:
            raise _TransientError(self.settings.scrub(f"{error}" or type(error).__name__)) from error
        except httpx.DecodingError as error:  # from the body of a redirect, which httpx reads itself
            raise RemoteError(f"{public(url)} sends content that cannot be decompressed. Check the index") from error
        except httpx.TooManyRedirects as error:
            raise RemoteError(f"{public(url)} redirects without end. Check the index") from error

    def _paced(self, body: Iterator[bytes]) -> Iterator[bytes]:
        """Yield a body while enough of it arrives: one byte a second forever is not progress."""
        waited, received = 0.0, 0
        while True:
            began = time.monotonic()
            data = next(body, None)
            if data is None:
                return
            waited, received = waited + time.monotonic() - began, received + len(data)
            yield data
            if waited >= self.settings.timeout:
                if received < self.limits.slowest * waited:
                    raise _TransientError(f"only {received} bytes arrived in {waited:.3g} s")
                waited, received = 0.0, 0

    def _count(self, url: str, count: int) -> None:
        with self._lock:
            self._received += count
            if self._received > self.limits.largest:
                raise RemoteError(
                    f"{public(url)}: more than {size(self.limits.largest)} would be fetched for one entry. Check the "
                    "index: no build of torch is as large"
                )

    def _check_status(self, url: str, response: httpx.Response) -> None:
        code = response.status_code
        if code in RETRIED:
            wait = response.headers.get("retry-after", "")
            raise _TransientError(f"the server answered {code}", float(wait) if _DIGITS.fullmatch(wait) else None)
        if code in {401, 407}:
            raise RemoteError(f"{public(url)} refuses these credentials ({code}). {CREDENTIALS_REMEDY}")
        if code == 403:  # noqa: PLR2004
            raise RemoteError(f"{public(url)} is forbidden (403). {CREDENTIALS_REMEDY}")
        if code in {404, 410}:
            raise RemoteError(f"{public(url)} does not exist ({code}). Check the index address")
        if code == 416:  # noqa: PLR2004
            raise NoRangesError(f"{public(url)} does not have the requested range (416)")
        if code not in {200, 206}:
            raise RemoteError(f"{public(url)} answered {code}. Check the index address")

    def is_trusted(self, url: str) -> bool:
        """Return whether the settings allow the server of ``url`` without checking its certificate."""
        parts = urlsplit(url)
        hosts = {parts.hostname, f"{parts.hostname}:{parts.port}"}
        return not hosts.isdisjoint(self.settings.trusted_hosts)

    def _client(self, url: str) -> httpx.Client:
        trusted = self.is_trusted(url)
        with self._lock:
            if trusted not in self._clients:
                self._clients[trusted] = self._new_client(trusted=trusted)
            return self._clients[trusted]

    def _new_client(self, *, trusted: bool) -> httpx.Client:
        import httpx

        own = self.settings.certificates
        try:
            context = httpx.create_ssl_context() if own is None else ssl.create_default_context(cafile=own)
        except OSError as error:
            where, why = own or "the system's", error.strerror or error
            raise RemoteError(
                f"the certificates ({where}) cannot be used: {why}. Check PIP_CERT, SSL_CERT_FILE and "
                "REQUESTS_CA_BUNDLE"
            ) from error
        if trusted:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        timeout, proxy = self.settings.timeout, self.settings.proxy
        try:
            return httpx.Client(verify=context, timeout=timeout, follow_redirects=True, proxy=proxy)
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            text = self.settings.scrub(str(error)).rstrip(".")
            raise RemoteError(
                f"the proxy cannot be used: {text}. Check PIP_PROXY, ALL_PROXY, HTTPS_PROXY and HTTP_PROXY"
            ) from error

    def page(self, url: str, accept: str) -> tuple[bytes, str, str]:
        """Return the body of ``url``, its content type, and the address after redirects."""
        seen: list[tuple[str, str]] = []

        def note(response: httpx.Response) -> int:
            seen.append((response.headers.get("content-type", ""), str(response.url)))
            return 0

        body = bytearray()
        for data in self.stream(url, note, kind=accept):
            body += data
            if len(body) > self.limits.largest_page:
                raise RemoteError(
                    f"{public(url)} is larger than any page of an index ({size(self.limits.largest_page)} so far). "
                    "Check the index address"
                )
        return bytes(body), *seen[-1]

    def download(
        self, url: str, target: Path, sha256: str | None, tick: Callable[[int], None], *, promised: int | None = None
    ) -> None:
        """Write the whole of ``url`` to ``target``, and check its hash; received bytes are kept over interruptions.

        Raises ``RemoteError`` if more bytes arrive than ``promised``, or than the first answer with a size states; also
        if fewer arrive, or none: some servers and proxies answer like that instead of with an error.
        """
        digest, position = hashlib.sha256(), 0
        sizes = [] if promised is None else [promised]

        def accept(response: httpx.Response) -> int:
            start, total = 0, _stated_size(response)
            if response.status_code == 206:  # noqa: PLR2004
                start, _, total = _content_range(response)
            sizes.extend([] if total is None else [total])
            return start

        with target.open("wb") as stream:
            for data in self.stream(url, accept):
                if sizes and position + len(data) > sizes[0]:
                    raise RemoteError(
                        f"{public(url)} is longer than the {sizes[0]} bytes that the index promises. Do not use this "
                        "index until its owner has explained the difference"
                    )
                stream.write(data)
                digest.update(data)
                position += len(data)
                tick(len(data))
        if not position or (sizes and position < sizes[0]):
            target.unlink()
            fault = f"ended after {position} of {sizes[0]} bytes" if position else "is empty"
            raise RemoteError(f"{public(url)}: the answer {fault}. Check the index, and a proxy before it")
        if sha256 is not None and digest.hexdigest() != sha256:
            target.unlink()
            raise RemoteError(
                f"{public(url)} has the SHA-256 {digest.hexdigest()}, but the index promises {sha256}. "
                "Do not use this index until its owner has explained the difference"
            )


class HttpSource:
    """A remote file, of known size or of one that the server states. Several ranges may be read at once."""

    def __init__(self, http: Http, url: str, size: int | None) -> None:
        self.http = http
        self.url = url
        self.received = 0
        """Bytes received so far."""
        self._counting = threading.Lock()
        self.size = size if size is not None else self._request_size()

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of a range. Raises ``NoRangesError`` if the server sends anything else."""

        def accept(response: httpx.Response) -> int:
            if response.status_code != 206:  # noqa: PLR2004
                raise NoRangesError(f"{public(self.url)} is served without ranges")
            first, last, total = _content_range(response)
            requested = int(re.findall(r"\d+", response.request.headers["Range"])[0])
            if first != requested or last != end - 1 or total not in {None, self.size}:
                raise NoRangesError(f"{public(self.url)} is served with other ranges than were requested")
            return first

        position = start
        for data in self.http.stream(self.url, accept, start=start, until=end):
            position += len(data)
            with self._counting:
                self.received += len(data)
            yield data

    def _request_size(self) -> int:
        totals: list[int | None] = []

        def accept(response: httpx.Response) -> int:
            if response.status_code != 206:  # noqa: PLR2004
                raise NoRangesError(f"{public(self.url)} is served without ranges")
            totals.append(_content_range(response)[2])
            return 0

        for _ in self.http.stream(self.url, accept, until=1):
            pass
        if totals[-1] is None:
            raise NoRangesError(f"{public(self.url)} is served without a size")
        return totals[-1]


def _is_progress(received: int, expected: int | None) -> bool:
    """Return whether an interrupted attempt made progress; if so, the count of attempts starts again from zero."""
    return received >= PROGRESS or (expected is not None and 0 < expected <= 2 * received)


def _within(seconds: float, request: Callable[[], httpx.Response]) -> httpx.Response:
    """Return the result of ``request``, or raise ``_TransientError`` if it takes too long.

    httpx has no deadline for an answer's headers: a server that sends one byte of them before each timeout could keep a
    request open forever. The thread that is abandoned is a daemon, so the process can end.
    """
    answers: queue.SimpleQueue[httpx.Response | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put(request())
        except BaseException as error:  # noqa: BLE001 -- raised again in the waiting thread
            answers.put(error)

    threading.Thread(target=work, name="request", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise _TransientError(f"no whole answer within {seconds:g} s") from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


class _TransientError(Exception):
    """Another attempt may succeed, after ``pause`` seconds if the server asks for a pause."""

    def __init__(self, problem: str, pause: float | None = None) -> None:
        super().__init__(problem)
        self.pause = pause


def _stated_size(response: httpx.Response) -> int | None:
    stated = response.headers.get("content-length", "").strip()
    return int(stated) if re.fullmatch("[0-9]{1,18}", stated) else None


def _content_range(response: httpx.Response) -> tuple[int, int, int | None]:
    match = re.fullmatch(
        r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", response.headers.get("content-range", "").strip()
    )
    encoding = response.headers.get("content-encoding", "identity")
    if match is None or encoding != "identity":
        raise NoRangesError(f"{public(str(response.url))} is served with an answer that is not one plain range")
    return int(match[1]), int(match[2]), None if match[3] == "*" else int(match[3])
