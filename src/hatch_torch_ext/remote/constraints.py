"""Constraints that a user's pip and uv put on every installation: which of them hold a requirement back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.errors import ConfigurationError
from hatch_torch_ext.remote import pipfiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OF_UV = ("UV_CONSTRAINT", "UV_OVERRIDE")
OF_PIP = ("PIP_CONSTRAINT",)
"""Lists of files, separated by spaces; what is in them holds for every installation."""


def named(environ: Mapping[str, str], requirements: Sequence[str], *, pip: bool = True) -> str | None:
    """Return the sentence that names the lines that contradict ``requirements``, with what to do; None for none.

    Without ``pip`` only what uv follows is looked at. Files that are addresses are not read.
    """
    wanted = [Requirement(line) for line in requirements]
    found = [each for each in _lines(environ, pip=pip) if any(_contradicts(each[2], one) for one in wanted)]
    if not found:
        return None
    said = "; ".join(f"{where} has the line `{line}`" for where, _, line in found)
    remedies = " and ".join(dict.fromkeys(f"`{remedy}`" for _, remedy, _ in found))
    thin = ' `sdk = "thin"` installs no torch, and follows no constraint of pip.' if pip else ""
    return f"It is held back by constraints: {said}. Run {remedies} before the build, or correct the matrix.{thin}"


def _lines(environ: Mapping[str, str], *, pip: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (where it stands, the command that takes it out of force, the line) of every constraint."""
    for variable in (*OF_UV, *(OF_PIP if pip else ())):
        for file in environ.get(variable, "").split():
            for line in _read(file):
                yield f"`{variable}` ({file})", f"unset {variable}", line
    if not pip or environ.get("PIP_CONSTRAINT"):
        return  # the variable goes before pip's files
    try:
        configured = pipfiles.constraints(environ)
    except ConfigurationError:
        return  # told where its indexes are read
    for source, file in configured:
        for line in _read(file):
            yield f"`constraint` in {source} ({file})", "export PIP_CONSTRAINT=/dev/null", line


def _read(file: str) -> list[str]:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError, ValueError):
        return []
    return [text for line in lines if (text := line.partition(" #")[0].strip()) and not text.startswith(("#", "-"))]


def _contradicts(line: str, wanted: Requirement) -> bool:
    """Say whether no version can satisfy both, as far as the versions that they name tell."""
    try:
        limit = Requirement(line)
    except InvalidRequirement:
        return False
    if canonicalize_name(limit.name) != canonicalize_name(wanted.name):
        return False
    named = [clause.version.removesuffix(".*") for clause in (*limit.specifier, *wanted.specifier)]
    candidates = [f"{version}{more}" for version in named for more in ("", *(() if "+" in version else (".9999",)))]
    return bool(candidates) and not any(
        limit.specifier.contains(version, prereleases=True) and wanted.specifier.contains(version, prereleases=True)
        for version in candidates
    )
