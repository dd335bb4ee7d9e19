"""Keeps secrets out of all output: logs, messages, reports.

Holds the one list of secrets and the one way to remove them.

A secret is the value of an environment variable whose name says so, a password in an address, a value that the
configuration takes by ``{env:…}``, and whatever another module registers with ``learn``. Values of fewer than four
characters, plain words such as ``true``, and paths that exist are not removed: that would make messages unreadable and
protect nothing.
"""

from __future__ import annotations

import base64
import json
import os
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

HIDDEN = "****"
ADDRESS = re.compile(r"(?<=://)([^/\s'\"]*)@")
"""User and password of an address; a password may hold an ``@`` that its author did not encode."""
QUERY = re.compile(
    r"(?<=[?&;])((?:[\w.-]{0,40}[_.-])?(?:token|key|secret|password|auth|signature|sig|credential)=)[^&;\s'\"<>]+",
    re.IGNORECASE,
)
"""A token or a signature in the query of an address."""
FIELD = re.compile(r"{env:(\w+)")
NAMED = re.compile(
    r"passw(?:or)?d|passphrase|sshpass|token|secret|credential|apikey|(?:_|^)(?:auth|pat|pass|cookie|key|key_id)$|_pwd$",
    re.IGNORECASE,
)
"""Names of variables that hold secrets."""
PLAIN = frozenset({"true", "false", "none", "null", "always", "never", "auto", "default", "enabled", "disabled"})
SHORTEST = 4
LONGEST_NUMBER = 5  # a number with fewer digits than a PIN is a count

_learned: set[str] = set()
_made: tuple[object, re.Pattern[str] | None] | None = None


def learn(*values: str | None) -> None:
    """Treat ``values`` as secrets from now on, in this process."""
    _learned.update(value for value in values if value and _is_secret(value))


def learn_environ(environ: Mapping[str, str]) -> None:
    """Learn the secrets that environment variables hold."""
    learn(*_of_environ(environ))


def learn_fields(texts: Iterable[str], environ: Mapping[str, str]) -> None:
    """Learn the values of variables that configuration files refer to by ``{env:NAME}``."""
    learn(*(environ.get(name) for text in texts for name in FIELD.findall(text)))


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name holds a secret, whatever its value."""
    return NAMED.search(name) is not None


def clean(text: str) -> str:
    """Return ``text`` without any secret."""
    text = without_tokens(ADDRESS.sub(f"{HIDDEN}@", text))
    pattern = _pattern()
    return text if pattern is None else pattern.sub(HIDDEN, text)


def without_tokens(address: str) -> str:
    """Return an address without the tokens in its query."""
    return QUERY.sub(rf"\g<1>{HIDDEN}", address)


class Cleaner:
    """Removes the secrets that are known when it is made from bytes, line by line."""

    def __init__(self) -> None:
        forms = [re.escape(form.encode("utf-8", "surrogateescape")) for form in _forms()]
        self._pattern = re.compile(b"|".join(forms)) if forms else None
        self._address = re.compile(ADDRESS.pattern.encode())
        self._query = re.compile(QUERY.pattern.encode(), re.IGNORECASE)

    def __call__(self, line: bytes) -> bytes:
        """Return the line without secrets."""
        line = self._address.sub(HIDDEN.encode() + b"@", line) if b"@" in line else line
        line = self._query.sub(rb"\g<1>" + HIDDEN.encode(), line) if b"=" in line else line
        return line if self._pattern is None else self._pattern.sub(HIDDEN.encode(), line)


def _of_environ(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if is_secret_name(name):
            yield value
        if "://" in value:
            for address in ADDRESS.findall(value):
                user, colon, password = address.partition(":")
                yield from (password, unquote(password)) if colon else (user, unquote(user))
                if colon and _is_secret(password):
                    yield base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


def _is_secret(value: str) -> bool:
    value = value.strip()
    return (
        len(value) >= SHORTEST
        and value.lower() not in PLAIN
        and not (value.isdigit() and len(value) <= LONGEST_NUMBER)
        and not (value.startswith("/") and os.path.exists(value.partition(":")[0]))  # noqa: PTH110 -- any text
    )


def _forms() -> list[str]:
    """Return every secret in every form in which it may be written, the longest first."""
    forms: set[str] = set()
    for value in {*_learned, *filter(_is_secret, _of_environ(os.environ))}:
        for part in {value, value.strip(), *(line.strip() for line in value.splitlines() if _is_secret(line))}:
            quoted = part.replace("'", "'\"'\"'")  # as shlex.quote writes it
            forms |= {part, quoted, json.dumps(part)[1:-1], quote(part.encode("utf-8", "surrogateescape"), safe="")}
    return sorted(forms, key=lambda form: (-len(form), form))


def _pattern() -> re.Pattern[str] | None:
    """Return a pattern of all secrets, compiled again when the environment or the learned secrets change."""
    global _made  # noqa: PLW0603 -- a cache of one
    known = (tuple(os.environ.items()), frozenset(_learned))
    if _made is None or _made[0] != known:
        forms = _forms()
        _made = known, re.compile("|".join(map(re.escape, forms))) if forms else None
    return _made[1]
