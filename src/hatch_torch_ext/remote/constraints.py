"""Constraints of the user's pip and uv, which apply to every installation: those that contradict a requirement."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.remote import pipfiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OF_UV = ("UV_CONSTRAINT", "UV_OVERRIDE")
OF_PIP = ("PIP_CONSTRAINT",)
"""Variables that hold lists of files, separated by spaces; their constraints apply to every installation."""


def named(environ: Mapping[str, str], requirements: Sequence[str], *, pip: bool = True) -> str | None:
    """Return a message that names the lines which contradict ``requirements``, with the remedy, or None.

    Without ``pip``, only constraints of uv are read. Constraints files that are addresses are not read.
    """
    required = [Requirement(line) for line in requirements]
    found = [each for each in _lines(environ, pip=pip) if any(_contradicts(each[2], one) for one in required)]
    if not found:
        return None
    limits = "; ".join(f"{where} has the line `{line}`" for where, _, line in found)
    remedies = " and ".join(dict.fromkeys(f"`{remedy}`" for _, remedy, _ in found))
    thin = ' `sdk = "thin"` installs no torch, and follows no constraint of pip.' if pip else ""
    return f"It is held back by constraints: {limits}. Run {remedies} before the build, or correct the matrix.{thin}"


def on_torch(file: str, python: str) -> list[str]:
    """Return the lines of a constraints file that limit torch for that version of Python (``3.11``).

    A file that is an address is not read. Raises ``OSError``.
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


def _lines(environ: Mapping[str, str], *, pip: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (its place, the command that disables it, the line) of every constraint."""
    for variable in (*OF_UV, *(OF_PIP if pip else ())):
        for file in environ.get(variable, "").split():
            for line in _read(file):
                yield f"`{variable}` ({file})", f"unset {variable}", line
    if not pip or environ.get("PIP_CONSTRAINT"):
        return  # the variable overrides pip's files
    try:
        configured = pipfiles.constraints(environ)
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
