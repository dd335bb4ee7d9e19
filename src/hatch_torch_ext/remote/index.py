"""A page of a package index: the files of a project (PEP 503 and PEP 691)."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from hatch_torch_ext.base import untrusted
from hatch_torch_ext.remote.http import RemoteError
from hatch_torch_ext.remote.settings import public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.remote.http import Http

SIMPLE = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.9, text/html;q=0.8"
ANCHOR = re.compile(r"(?i)<a\s([^<>]{1,12000})>")
"""A link of a page. Every repetition is bounded: a page of a million `<a ` is read in linear time."""
ATTRIBUTE = re.compile(
    r"""([\w-]{1,40})(?:\s{0,9}=\s{0,9}(?:"([^"]{0,4000})"|'([^']{0,4000})'|([^\s"'=<>`]{1,4000})))?"""
)


MAX_PAGE = 64 << 20
"""Longest page on disk that is read, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """A file that an index lists: its ``name``, its absolute ``url``, and whether it is ``yanked``.

    ``sha256`` (hex) and ``size`` (bytes) are what the index promises, None if it promises none.
    """

    name: str
    url: str
    requires_python: str | None = None
    yanked: bool = False
    sha256: str | None = None
    size: int | None = None


def files(http: Http, index: str, project: str) -> tuple[IndexFile, ...]:
    """Return the files of ``project`` (its normalised name) at ``index``, an address or a folder of wheels.

    Raises ``RemoteError`` if the index does not answer, or not with a page of links.
    """
    parts = urlsplit(index)
    if parts.scheme in {"", "file"}:
        folder = Path(unquote(parts.path) if parts.scheme == "file" else index)
        return tuple(IndexFile(name=path.name, url=path.absolute().as_uri()) for path in sorted(folder.glob("*.whl")))
    return page(http, f"{index.rstrip('/')}/{project}/")


def find_links(http: Http, place: str) -> tuple[IndexFile, ...]:
    """Return the files of a place of `--find-links`: a folder of wheels, or a page of links, here or elsewhere.

    Raises ``RemoteError`` if it is none of these.
    """
    parts = urlsplit(place)
    if parts.scheme not in {"", "file"}:
        return page(http, place)
    path = Path(unquote(parts.path) if parts.scheme == "file" else place)
    if path.is_file():
        text = untrusted.text(path, MAX_PAGE)
        return tuple(_of_html(text, path.absolute().as_uri()))
    if not path.is_dir():
        named = "`--find-links` (UV_FIND_LINKS, PIP_FIND_LINKS)"
        raise RemoteError(f"{path}, which {named} names, is neither a folder nor a page")
    return files(http, place, "")


def page(http: Http, url: str) -> tuple[IndexFile, ...]:
    """Return the files that one page lists. Raises ``RemoteError``."""
    body, kind, base = http.page(url, SIMPLE)
    return tuple(_of_json(body, base, url) if "json" in kind else _of_html(body.decode("utf-8", "replace"), base))


def _of_json(body: bytes, base: str, url: str) -> Iterator[IndexFile]:
    try:
        for file in untrusted.json(body)["files"]:
            requires = file.get("requires-python")
            promised, size = file.get("hashes", {}).get("sha256"), file.get("size")
            yield IndexFile(
                name=str(file["filename"]),
                url=urljoin(base, str(file.get("url", ""))),
                requires_python=requires if isinstance(requires, str) else None,
                yanked=bool(file.get("yanked")),
                sha256=promised.lower() if isinstance(promised, str) else None,
                size=size if isinstance(size, int) else None,
            )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RemoteError(f"{public(url)} is not a package index") from error


def _of_html(text: str, base: str) -> Iterator[IndexFile]:
    for anchor in ANCHOR.finditer(text):
        attributes = {
            name.lower(): html.unescape(double or single or bare)
            for name, double, single, bare in ATTRIBUTE.findall(anchor[1])
        }
        try:
            url = urljoin(base, attributes["href"])
            name = unquote(urlsplit(url).path.rpartition("/")[2])
        except (KeyError, ValueError):  # not an address
            continue
        requires = attributes.get("data-requires-python") or None
        promised = re.search(r"(?:^|&)sha256=([0-9a-fA-F]{64})(?:&|$)", urlsplit(url).fragment)
        yield IndexFile(
            name=name,
            url=url,
            requires_python=requires,
            yanked="data-yanked" in attributes,
            sha256=promised[1].lower() if promised else None,
        )
