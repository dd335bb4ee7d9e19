"""pip's configuration files, read into the environment variables that are equivalent to them."""

from __future__ import annotations

import functools
import os
import sys
from configparser import Error, RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECTIONS = ("global", "install")
"""Sections that apply to `pip install`; the last one overrides."""
VARIABLES = {
    "index-url": "PIP_INDEX_URL",
    "extra-index-url": "PIP_EXTRA_INDEX_URL",
    "find-links": "PIP_FIND_LINKS",
    "no-index": "PIP_NO_INDEX",
    "trusted-host": "PIP_TRUSTED_HOST",
    "cert": "PIP_CERT",
    "proxy": "PIP_PROXY",
    "timeout": "PIP_DEFAULT_TIMEOUT",
    "default-timeout": "PIP_DEFAULT_TIMEOUT",
}
SYSTEM = Path("/etc/pip.conf")


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return pip's variables equivalent to what its configuration files set for indexes and connections.

    The files and their order are pip's own (``pip config debug`` lists them). Raises ``ConfigurationError`` for a file
    that pip cannot read either.
    """
    found: dict[str, str] = {}
    for _, key, value in _settings(environ):
        if (variable := VARIABLES.get(key)) is not None:
            found[variable] = value
    return found


def constraints(environ: Mapping[str, str]) -> tuple[tuple[Path, str], ...]:
    """Return (pip's file, the constraints file that it names) of the last file that names any. Raises likewise."""
    found: tuple[tuple[Path, str], ...] = ()
    for file, key, value in _settings(environ):
        if key == "constraint":
            found = tuple((file, named) for named in value.split())
    return found


def _settings(environ: Mapping[str, str]) -> Iterator[tuple[Path, str, str]]:
    """Yield (file, key with dashes, value); later ones override."""
    for file in _files(environ):
        try:
            status = file.stat()
        except OSError:
            continue
        for key, value in _entries(file, (status.st_mtime_ns, status.st_size)):
            yield file, key, value


@functools.cache
def _entries(file: Path, _state: tuple[int, int]) -> tuple[tuple[str, str], ...]:
    """Return (key with dashes, value) of a file; cached while its time and size stay the same."""
    parser = RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (OSError, UnicodeError, Error) as error:
        raise ConfigurationError([f"{file}, which configures pip, cannot be read: {error}"]) from error
    sections = filter(parser.has_section, SECTIONS)
    return tuple((key.replace("_", "-"), value) for section in sections for key, value in parser.items(section))


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the possible files; later ones override."""
    named = environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(folder, "pip", "pip.conf")
    yield SYSTEM
    if (home := environ.get("HOME")) and not (named and os.path.exists(named)):  # noqa: PTH110 -- no error in a folder of others
        yield Path(home, ".pip", "pip.conf")
        yield Path(environ.get("XDG_CONFIG_HOME") or Path(home, ".config"), "pip", "pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if named:
        yield Path(named)
