"""Headers of an index that mean nothing: an answer that is refused or requested again, never a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from hatch_torch_ext.remote import http
from hatch_torch_ext.remote.settings import IndexSettings

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://127.0.0.1:9/torch.whl"


@pytest.mark.parametrize("number", ["\u00b2", "\u0663", "9" * 5000, "-1", "1.5", "", " "])
def test_numbers_that_are_none(number: str) -> None:
    """Digits of other scripts, and more digits than Python reads: a pause or a range that was not given."""
    raw = number.encode("utf-8" if number == "\u0663" else "latin-1")
    asking = httpx.Request("GET", URL)
    with http.Http(IndexSettings()) as session, pytest.raises(http._TransientError) as caught:
        session._check_status(URL, httpx.Response(503, headers=[(b"retry-after", raw)], request=asking))
    assert caught.value.pause is None
    for form in (b"bytes %s-1/2", b"bytes 0-%s/2", b"bytes 0-1/%s"):
        answer = httpx.Response(206, headers=[(b"content-range", form.replace(b"%s", raw))], request=asking)
        with pytest.raises(http.NoRangesError, match="is not one plain range"):
            http._content_range(answer)


def test_a_redirection_whose_body_cannot_be_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where httpx unpacks by itself and fails, the index is named."""

    def answer(_: httpx.Request) -> httpx.Response:
        stream = httpx.ByteStream(b"no gzip")
        return httpx.Response(302, headers={"location": URL, "content-encoding": "gzip"}, stream=stream)

    client = httpx.Client(transport=httpx.MockTransport(answer), follow_redirects=True)
    with http.Http(IndexSettings()) as session:
        monkeypatch.setattr(session, "_client", lambda _: client)
        with pytest.raises(http.RemoteError, match="sends content that cannot be decompressed"):
            session.page(URL, "*/*")


@pytest.mark.performs("Check the index, and a proxy before it")
@pytest.mark.parametrize(
    ("body", "promised", "problem"),
    [(b"", None, "the answer is empty"), (b"", 5, "the answer is empty"), (b"abc", 5, "ended after 3 of 5 bytes")],
)
def test_a_body_without_a_size_that_is_empty_or_short(
    body: bytes, promised: int | None, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is left that others would take for the whole; the whole is kept."""
    answers = [body, b"abcde"]

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(answers.pop(0)))

    client = httpx.Client(transport=httpx.MockTransport(answer))
    target = tmp_path / "wheel"
    with http.Http(IndexSettings()) as session:
        monkeypatch.setattr(session, "_client", lambda _: client)
        with pytest.raises(http.RemoteError, match=problem):
            session.download(URL, target, None, lambda _: None, promised=promised)
        assert not target.exists()
        session.download(URL, target, None, lambda _: None, promised=promised)
    assert target.read_bytes() == b"abcde"
