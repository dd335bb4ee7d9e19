"""Where packages come from: the hook's options, then uv's and pip's environment variables, as one value.

The addresses may contain credentials. They are passed to uv on its stdin and to the server in a header, never in a
command line, a log, the store or a message; ``public`` returns what may be shown.
"""

from __future__ import annotations

import netrc
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from hatch_torch_ext.base import redact, untrusted
from hatch_torch_ext.base.errors import ConfigurationError, SdkError
from hatch_torch_ext.facts.backend import VARIABLE
from hatch_torch_ext.facts.variables import Use, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values import Entry

BEST_MATCH = "unsafe-best-match"
PUBLIC_INDEX = "https://pypi.org/simple"
UV_INDEX_VARIABLES = tuple(name for name in names(Use.INDEX) if name.startswith("UV_"))
"""Variables that are passed to uv in the requirements file instead, so that the hook's options can come first."""

_PATH_VARIABLES = {
    "UV_DEFAULT_INDEX": "\n",
    "UV_INDEX_URL": "\n",
    "UV_INDEX": None,
    "UV_EXTRA_INDEX_URL": None,
    "UV_FIND_LINKS": ",",
    "UV_BUILD_CONSTRAINT": None,
    "UV_CONFIG_FILE": "\n",
    "UV_CONSTRAINT": None,
    "UV_OVERRIDE": None,
}
"""Variables of uv that may hold paths, and what separates their values (None: whitespace)."""

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
"""Variables that name a proxy to uv for one scheme; they override ``ALL_PROXY``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """``index`` is the main index (None: none), ``extra`` further ones, ``find_links`` folders and pages.

    ``strategy`` is uv's word for which index wins (None: uv's default, the first that has the package; pip takes the
    highest version of all). ``timeout`` is the longest silence of a connection, in seconds.
    """

    index: str | None = PUBLIC_INDEX
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    strategy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    certificates: Path | None = None
    proxy: str | None = None
    timeout: float = 30.0
    netrc: Path | None = None

    @property
    def indexes(self) -> tuple[str, ...]:
        """Return every index, in the order in which they are searched."""
        return (*self.extra, *((self.index,) if self.index else ()))

    def credentials(self, url: str) -> tuple[str, str] | None:
        """Return user and password for ``url``: its own, else those of an index on the same server, else .netrc's."""
        target = urlsplit(url)
        same = [source for source in (url, *self.indexes, *self.find_links) if _server(source) == _server(url)]
        named = [parts for parts in map(urlsplit, same) if parts.username]
        if named:
            best = max(named, key=lambda parts: _common(parts.path, target.path))
            return unquote(best.username or ""), unquote(best.password or "")
        if self.netrc is not None and target.hostname:
            try:
                found = netrc.netrc(str(self.netrc)).authenticators(target.hostname)
            except (OSError, netrc.NetrcParseError):
                return None
            if found is None:
                return None
            redact.learn(found[2])
            return found[0], found[2] or ""
        return None

    def secrets(self) -> Iterator[str]:
        """Yield the passwords of these addresses, and user names that serve as one."""
        for url in (*self.indexes, *self.find_links, *((self.proxy,) if self.proxy else ())):
            parts = urlsplit(url)
            secret = parts.password or parts.username
            if secret:
                yield from (secret, unquote(secret))

    def scrub(self, text: str) -> str:
        """Return ``text`` without any password or user name of these addresses."""
        for secret in self.secrets():
            text = text.replace(secret, redact.HIDDEN)
        return redact.clean(text)


def read(entry: Entry, config: Config, environ: Mapping[str, str]) -> IndexSettings:
    """Return the settings of one entry: the hook's options override uv's variables, and those override pip's."""
    return of_environ(
        environ,
        index=_with_variables(entry, "index-url", config.index_url),
        extra=[_with_variables(entry, "extra-index-url", url) or "" for url in config.extra_index_url],
    )


def of_environ(
    environ: Mapping[str, str],
    *,
    index: str | None = None,
    extra: Sequence[str] = (),
    find_links: Sequence[str] = (),
    no_index: bool = False,
) -> IndexSettings:
    """Return the settings in uv's and pip's variables; ``index``, ``extra`` and ``find_links`` come before them."""
    index = (
        index
        or _unnamed(environ, environ.get("UV_DEFAULT_INDEX", ""))
        or environ.get("UV_INDEX_URL")
        or environ.get("PIP_INDEX_URL")
        or PUBLIC_INDEX
    )
    ours = tuple(extra)
    # uv separates indexes by whitespace and find-links by commas; pip separates both by whitespace.
    uvs = [_unnamed(environ, url) for url in environ.get("UV_INDEX", "").split()]
    uvs += environ.get("UV_EXTRA_INDEX_URL", "").split()
    pips = environ.get("PIP_EXTRA_INDEX_URL", "").split()
    links = [*find_links, *(link.strip() for link in environ.get("UV_FIND_LINKS", "").split(","))]
    links += environ.get("PIP_FIND_LINKS", "").split()
    trusted = [*environ.get("PIP_TRUSTED_HOST", "").split(), *environ.get("UV_INSECURE_HOST", "").split()]
    no_index = no_index or without_index(environ)
    netrc_file = Path(environ.get("NETRC") or Path(environ.get("HOME", "/nonexistent")) / ".netrc")
    certificates = environ.get("PIP_CERT") or environ.get("SSL_CERT_FILE") or environ.get("REQUESTS_CA_BUNDLE")
    settings = IndexSettings(
        index=None if no_index else _absolute(index),
        extra=() if no_index else _distinct([_absolute(url) for url in (*ours, *uvs, *pips)]),
        find_links=_distinct([_absolute(link) for link in links]),
        strategy=environ.get("UV_INDEX_STRATEGY") or (BEST_MATCH if ours or pips else None),
        trusted_hosts=_distinct(trusted),
        certificates=Path(certificates) if certificates else None,
        proxy=_proxy(environ.get("PIP_PROXY")),
        timeout=_seconds(environ.get("UV_HTTP_TIMEOUT")) or _seconds(environ.get("PIP_DEFAULT_TIMEOUT")) or 30.0,
        netrc=netrc_file if untrusted.is_file(netrc_file) else None,
    )
    _check_addresses(settings)
    redact.learn(*settings.secrets())
    return settings


NO_INDEX = "PIP_NO_INDEX"
"""pip's variable for its option `--no-index`; uv has the option, and no variable for it."""


def without_index(environ: Mapping[str, str]) -> bool:
    """Return whether only folders and pages of `--find-links` are searched, and no index."""
    return _is_true(environ.get(NO_INDEX))


def for_uv(environ: Mapping[str, str]) -> dict[str, str]:
    """Return uv's variables for what pip's variables set, unless uv's own are set: for an environment that uv fills.

    uv is then run in another folder, so relative paths in its own variables are made absolute. ``NO_INDEX`` is among
    them if it is set, although uv does not read it: the caller has to pass uv the option.
    """
    variables: dict[str, str] = {}

    def set_unless_named(name: str, value: str | None, *others: str) -> None:
        if value and not any(environ.get(other) for other in (name, *others)):
            variables[name] = value

    set_unless_named("UV_DEFAULT_INDEX", environ.get("PIP_INDEX_URL"), "UV_INDEX_URL")
    set_unless_named("UV_INDEX", " ".join(environ.get("PIP_EXTRA_INDEX_URL", "").split()), "UV_EXTRA_INDEX_URL")
    if "UV_INDEX" in variables:
        set_unless_named("UV_INDEX_STRATEGY", BEST_MATCH)
    set_unless_named("UV_FIND_LINKS", ",".join(_absolute(link) for link in environ.get("PIP_FIND_LINKS", "").split()))
    set_unless_named("UV_INSECURE_HOST", " ".join(environ.get("PIP_TRUSTED_HOST", "").split()))
    if without_index(environ):
        variables[NO_INDEX] = "1"
    set_unless_named("SSL_CERT_FILE", environ.get("PIP_CERT"))
    set_unless_named("ALL_PROXY", _proxy(environ.get("PIP_PROXY")), *PROXY_VARIABLES, "all_proxy")
    for name, separator in _PATH_VARIABLES.items():
        parts = [part.strip() for part in (environ.get(name) or "").split(separator)]
        absolute = (separator or " ").join(_absolute(part) for part in parts if part)
        if absolute and absolute != environ[name]:
            variables[name] = absolute
    return variables


def public(url: str) -> str:
    """Return ``url`` without credentials and without its query (which may hold a token), fit for a message."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def without_credentials(url: str) -> str:
    """Return ``url`` without user and password, but with its query, for requests that have these in a header."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


def _absolute(place: str) -> str:
    """Return an index or a folder that means the same in any working folder: a relative path is relative to this one.

    A path with a blank or a comma becomes an address, since lists of paths are separated by these.
    """
    named = re.fullmatch(r"([\w.-]+=)?(.+)", place)
    if named is None or re.match(r"[\w+.-]+:", place):
        return place
    path = Path(os.path.abspath(os.path.expanduser(named[2])))  # noqa: PTH100, PTH111 -- links stay
    return f"{named[1] or ''}{path.as_uri().replace(',', '%2C') if re.search('[ ,]', str(path)) else path}"


def _with_variables(entry: Entry, option: str, url: str | None) -> str | None:
    if url is None:
        return None
    values = dict(entry.variables)
    if entry.backend is not None and VARIABLE in values:  # indexes call a build cu128, even if the matrix says 12.8
        values[VARIABLE] = entry.backend.tag
    missing = sorted({field for field in re.findall(r"{(\w+)}", url) if field not in values})
    if missing:
        raise SdkError(
            entry.name,
            f"`{option}` = {public(url)!r} has the field {{{missing[0]}}}, but the entry has no `{missing[0]}` "
            f"(it has {', '.join(sorted(values)) or 'none'}). Add it to the matrix, or write the address without it",
        )
    return re.sub(r"{(\w+)}", lambda match: values[match[1]], url)


def _unnamed(environ: Mapping[str, str], index: str) -> str:
    """Return the address of uv's ``name=address``, with the credentials in uv's variables for that name."""
    if (match := re.fullmatch(r"([\w.-]+)=(.+)", index)) is None:
        return index
    name, url = re.sub(r"[^0-9A-Za-z]", "_", match[1]).upper(), match[2]
    user, password = environ.get(f"UV_INDEX_{name}_USERNAME"), environ.get(f"UV_INDEX_{name}_PASSWORD")
    parts = urlsplit(url)
    if (user is None and password is None) or parts.username:
        return url
    return urlunsplit((parts.scheme, f"{user or ''}:{password or ''}@{parts.netloc}", parts.path, parts.query, ""))


def _proxy(address: str | None) -> str | None:
    """Return the address of a proxy, to which pip lets users omit `http://`."""
    if not address:
        return None
    return address if "://" in address else f"http://{address}"


def _server(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port


def _common(first: str, second: str) -> int:
    length = 0
    for ours, theirs in zip(first.split("/"), second.split("/"), strict=False):
        if ours != theirs:
            break
        length += 1
    return length


def _distinct(values: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))


def _check_addresses(settings: IndexSettings) -> None:
    """Raise ``ConfigurationError`` for addresses from which no server can be read."""
    places = (*settings.indexes, *settings.find_links, *((settings.proxy,) if settings.proxy else ()))
    problems = {place: problem for place in places if (problem := _problem(place)) is not None}
    if problems:
        raise ConfigurationError(
            *(
                f"The address `{place.rpartition('@')[2].partition('?')[0]}` cannot be read ({problem}): correct "
                "`index-url` and `extra-index-url` of the hook, and pip's and uv's variables for indexes and a proxy."
                for place, problem in problems.items()
            )
        )


def _problem(place: str) -> str | None:
    try:
        _server(place)
    except ValueError as error:
        return str(error)
    return None


def _is_true(value: str | None) -> bool:
    return (value or "").lower() in {"1", "true", "yes", "on", "y", "t"}


def _seconds(value: str | None) -> float | None:
    try:
        return float(value) if value else None
    except ValueError:
        return None
