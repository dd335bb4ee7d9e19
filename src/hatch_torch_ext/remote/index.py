"""A page of a package index: which files a project has there (PEP 503 and PEP 691)."""

from __future__ import annotations

import html.parser
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from hatch_torch_ext.remote.http import RemoteError
from hatch_torch_ext.remote.settings import public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.remote.http import Http

SIMPLE = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.9, text/html;q=0.8"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """A file that an index lists: ``name`` is the file's, ``url`` absolute, ``yanked`` where the index says so."""

    name: str
    url: str
    requires_python: str | None = None
    yanked: bool = False


def files(http: Http, index: str, project: str) -> tuple[IndexFile, ...]:
    """Return the files of ``project`` (its normalised name) at ``index``, an address or a folder of wheels.

    Raises ``RemoteError`` where the index does not answer, or answers with something else.
    """
    parts = urlsplit(index)
    if parts.scheme in {"", "file"}:
        folder = Path(unquote(parts.path) if parts.scheme == "file" else index)
        return tuple(IndexFile(name=path.name, url=path.absolute().as_uri()) for path in sorted(folder.glob("*.whl")))
    url = f"{index.rstrip('/')}/{project}/"
    body, kind, base = http.page(url, SIMPLE)
    if "json" in kind:
        return tuple(_of_json(body, base, url))
    return tuple(_of_html(body.decode("utf-8", "replace"), base))


def _of_json(body: bytes, base: str, url: str) -> Iterator[IndexFile]:
    try:
        listed = json.loads(body)["files"]
        for file in listed:
            requires = file.get("requires-python")
            yield IndexFile(
                name=str(file["filename"]),
                url=urljoin(base, str(file["url"])),
                requires_python=requires if isinstance(requires, str) else None,
                yanked=bool(file.get("yanked")),
            )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RemoteError(f"{public(url)} is not a package index. Check its address") from error


def _of_html(text: str, base: str) -> Iterator[IndexFile]:
    parser = _Anchors()
    parser.feed(text)
    for attributes in parser.found:
        url = urljoin(base, attributes["href"])
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        requires = attributes.get("data-requires-python") or None
        yield IndexFile(name=name, url=url, requires_python=requires, yanked="data-yanked" in attributes)


class _Anchors(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "a" and attributes.get("href"):
            self.found.append(attributes)
