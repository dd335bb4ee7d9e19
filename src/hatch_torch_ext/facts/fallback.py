"""What a wheel holds for a build at first use: its sources, and how they are compiled."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.facts.variant import FOLDER, is_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SOURCES = f"{FOLDER}/sources"
"""The folder of the sources, below the package."""
OPTIONS = ("archs", "cmake", "debug-symbols", "exclude", "ignore", "unopened", "variant-data")
"""Options of the hook that affect how a variant is compiled and repaired on any machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """``files`` are (path below the sources, SHA-256), sorted; ``source`` is the folder of CMakeLists.txt among them.

    ``options`` are the hook's, as the author wrote them (those of ``OPTIONS``). ``variables`` and ``env_vars`` are
    those that all entries of the matrix have in common; ``stable_abi`` says that all are for torch's stable ABI.
    ``default`` says that the author allows the build, so that users need not.
    """

    version: str
    source: str
    options: Mapping[str, Any]
    files: tuple[tuple[str, str], ...]
    variables: tuple[tuple[str, str], ...] = ()
    env_vars: tuple[tuple[str, str], ...] = ()
    stable_abi: bool = False
    default: bool = False

    @property
    def digest(self) -> str:
        """Return a hash of all inputs of a build except torch."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """A fallback and the folder of its files."""

    fallback: Fallback
    root: Path


def to_json(fallback: Fallback) -> dict[str, Any]:
    """Return the fallback in the manifest's form."""
    return {**asdict(fallback), "files": [{"path": path, "sha256": sha256} for path, sha256 in fallback.files]}


def from_json(data: object) -> Fallback:
    """Return the fallback of that form. Raises ``WheelError`` for anything else."""
    try:
        found = dict(data)  # type: ignore[call-overload]
        files = tuple((_path(each["path"]), str(each["sha256"])) for each in found.pop("files"))
        pairs = {name: tuple((str(a), str(b)) for a, b in found.pop(name)) for name in ("variables", "env_vars")}
        fallback = Fallback(**{**found, **pairs, "files": files})
        texts = all(isinstance(each, str) for each in (fallback.version, fallback.source))
        flags = all(isinstance(each, bool) for each in (fallback.stable_abi, fallback.default))
        if texts and flags and isinstance(fallback.options, dict):
            return fallback
    except (KeyError, TypeError, ValueError) as error:
        raise WheelError(f"`fallback` is not as it must be: {error}") from error
    raise WheelError("`fallback` is not as it must be")


def _path(text: object) -> str:
    if not is_path(text):
        raise ValueError(f"{text!r} is not a path below the sources")
    return text
