"""pip's configuration files as equivalent environment variables, and the constraints of every installation."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from configparser import Error, RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


def merged(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` with what pip's configuration files set as its variables; those of ``environ`` go first."""
    return {**variables(environ), **environ}


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
            found = tuple((file, name) for name in value.split())
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
        raise ConfigurationError(f"{file}, which configures pip, cannot be read: {error}") from error
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


OF_UV = ("UV_CONSTRAINT", "UV_OVERRIDE")
OF_PIP = ("PIP_CONSTRAINT",)
"""Variables that hold lists of files, separated by spaces; their constraints apply to every installation."""


def contradiction(environ: Mapping[str, str], requirements: Sequence[str], *, pip: bool = True) -> str | None:
    """Return a message that names the lines which contradict ``requirements``, with the remedy, or None.

    Without ``pip``, only constraints of uv are read. Constraints files that are addresses are not read.
    """
    required = [Requirement(line) for line in requirements]
    found = [each for each in limits(environ, pip=pip) if any(_contradicts(each[2], one) for one in required)]
    if not found:
        return None
    listed = "; ".join(f"{where} has the line `{line}`" for where, _, line in found)
    remedies = " and ".join(dict.fromkeys(f"`{remedy}`" for _, remedy, _ in found))
    thin = ' `sdk = "thin"` installs no torch, and ignores the constraints of pip.' if pip else ""
    return f"It is held back by constraints: {listed}. Run {remedies} before the build, or correct the matrix.{thin}"


def torch_constraints(file: str, python: str) -> list[str]:
    """Return the constraints on torch in ``file`` that apply to a version of Python (``3.11``).

    A ``file`` that is an address is not read. Raises ``OSError``.
    """
    if "://" in file:
        return []
    found = []
    for line in _stripped(Path(file).read_text(encoding="utf-8")):
        with contextlib.suppress(InvalidRequirement):
            limit = Requirement(line)
            applies = limit.marker is None or limit.marker.evaluate({"python_version": python})
            if canonicalize_name(limit.name) == "torch" and applies and limit.specifier:
                found.append(f"torch{limit.specifier}")
    return found


def limits(environ: Mapping[str, str], *, pip: bool) -> Iterator[tuple[str, str, str]]:
    """Yield, for every constraint, where it is, the command that disables it, and its line."""
    for variable in (*OF_UV, *(OF_PIP if pip else ())):
        for file in environ.get(variable, "").split():
            for line in _read(file):
                yield f"`{variable}` ({file})", f"unset {variable}", line
    if not pip or environ.get("PIP_CONSTRAINT"):
        return  # the variable overrides pip's files
    try:
        configured = constraints(environ)
    except ConfigurationError:
        return  # reported when its indexes are read
    for source, file in configured:
        for line in _read(file):
            yield f"`constraint` in {source} ({file})", "export PIP_CONSTRAINT=/dev/null", line


def _read(file: str) -> list[str]:
    try:
        return _stripped(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeError, ValueError):
        return []


def _stripped(text: str) -> list[str]:
    """Return the requirements of a file, without comments, hashes and options."""
    lines = (line.partition(" #")[0].partition(" --hash")[0].strip(" \\") for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def _contradicts(line: str, other: Requirement) -> bool:
    """Return whether no version satisfies both, as far as the versions named in them show."""
    try:
        limit = Requirement(line)
    except InvalidRequirement:
        return False
    if canonicalize_name(limit.name) != canonicalize_name(other.name):
        return False
    named = [clause.version.removesuffix(".*") for clause in (*limit.specifier, *other.specifier)]
    candidates = [f"{version}{more}" for version in named for more in ("", *(() if "+" in version else (".9999",)))]
    return bool(candidates) and not any(
        limit.specifier.contains(version, prereleases=True) and other.specifier.contains(version, prereleases=True)
        for version in candidates
    )
