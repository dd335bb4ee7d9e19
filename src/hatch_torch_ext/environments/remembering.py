"""Caches hatch's answer on a matrix: running hatch takes a second, and files and variables determine the answer."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
from importlib import metadata
from typing import TYPE_CHECKING

from hatch_torch_ext import __version__
from hatch_torch_ext.base import redact, untrusted
from hatch_torch_ext.environments import homes, own_hatch
from hatch_torch_ext.environments.reading import read
from hatch_torch_ext.store import opened, path
from hatch_torch_ext.values import Matrix

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILES = ("pyproject.toml", "hatch.toml")
_UNKNOWN = "collectors"  # code of the author or of a plugin, which may read anything


def remembered(
    root: Path, name: str, *, project_name: str, environ: Mapping[str, str], optional: bool = False
) -> Matrix:
    """Return what ``read`` returns, cached in the user's store until what hatch reads has changed.

    That is the project's files, the user's configuration of hatch, hatch's own variables, and every environment
    variable whose name is in one of the files.
    """
    texts = [_text(file) for file in (*(root / each for each in FILES), homes.configuration(environ))]
    if any(_UNKNOWN in text for text in texts):
        return read(root, name, project_name=project_name, optional=optional)
    words = {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}
    facts = {
        "texts": texts,
        "environ": {key: value for key, value in environ.items() if key in words or key.startswith("HATCH_")},
        "request": [os.fspath(root), name, project_name, optional],
        "versions": [__version__, own_hatch.version(), metadata.version("hatchling")],
    }
    record = f"matrix-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}.json"
    try:
        store = opened(path(environ))
    except OSError:
        return read(root, name, project_name=project_name, optional=optional)
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
        return _parse(untrusted.json(store.text("resolved", record) or b""))
    matrix = read(root, name, project_name=project_name, optional=optional)
    for variables in matrix.env_vars.values():
        redact.learn_environ(dict(variables))
    answer = json.dumps(dataclasses.asdict(matrix))
    if redact.clean(answer) == answer:  # a secret is not stored: hatch is run again
        with contextlib.suppress(OSError):
            store.set_text("resolved", record, answer.encode())
    return matrix


def _parse(data: Mapping[str, Mapping[str, object]]) -> Matrix:
    """Return the matrix from its JSON form, which has only lists."""
    fields = {
        name: {entry: tuple(map(_frozen, value)) if isinstance(value, list) else value for entry, value in each.items()}
        for name, each in data.items()
    }
    return Matrix(**fields)  # type: ignore[arg-type]


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
