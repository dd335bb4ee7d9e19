"""hatch, for reading a matrix and making environments: the importable one, else one that is installed once and kept.

hatch requires 30 packages, among them keyring, cryptography and rich's pygments, which every isolated build would
install again. They are in the user's store instead, sealed like an SDK, since their code is run; uv installs them in a
second.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
import sysconfig
from importlib import metadata
from typing import TYPE_CHECKING

from hatch_torch_ext import store
from hatch_torch_ext.base import escape, process, redact, uv
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.remote import pipfiles, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REQUIREMENTS = ("hatch>=1.14", "rich>=13.0")
"""hatch, and what this package imports from the same folder; hatch requires it too."""
KIND = "hatch"
"""The folder in the store."""


def folder(report: Callable[[str], None] | None = None) -> Path | None:
    """Return the folder to prepend to this Python's path, and make it if need be; None if hatch is importable.

    ``report`` gets a line when another process that makes it is waited for; by default it is written to stderr. Raises
    ``ConfigurationError`` if hatch cannot be installed.
    """
    if importlib.util.find_spec("hatch") is not None:
        return None
    root = store.path(os.environ)
    facts = (REQUIREMENTS, sys.implementation.cache_tag, sysconfig.get_config_var("SOABI"), sysconfig.get_platform())
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    try:
        return store.opened(root, report or aloud).make(KIND, key, _fill)[0]
    except (OSError, ProcessError) as error:
        message = process.tail(error.output) if isinstance(error, ProcessError) else str(error)
        raise ConfigurationError(
            [
                f"hatch, which reads the matrix, is not installed, and cannot be installed into {root}:\n{message}\n"
                "Give it to "
                f'the build itself: `requires = ["hatchling", "hatch-torch-ext", "hatch"]` in `[build-system]`.'
            ]
        ) from error


def aloud(text: str) -> None:
    """Print to stderr: while metadata are made, hatchling gives hooks no other way to print."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no stderr, or a closed one
        sys.stderr.write(f"torch-ext: {escape.line(redact.clean(text))}\n")


def lend() -> None:
    """Make rich importable from there if it is not installed here. Raises ``ConfigurationError`` as ``folder`` does."""
    if importlib.util.find_spec("rich") is None and (where := folder()) is not None:
        sys.path.append(str(where))


def version() -> str:
    """Return the version of the hatch in use."""
    where = folder()
    return metadata.version("hatch") if where is None else _version(where)


def _version(where: Path) -> str:
    return next(iter(metadata.distributions(name="hatch", path=[str(where)]))).version


def _fill(made: Path) -> dict[str, object]:
    """Install hatch into the folder ``made``, with compiled bytecode, since the folder is read-only afterwards."""
    environ = {**pipfiles.variables(os.environ), **os.environ}
    changes: dict[str, str | None] = {**settings.for_uv(environ), "UV_PYTHON": None, "UV_SYSTEM_PYTHON": None}
    uv.install_into(made, REQUIREMENTS, changes=changes, options=("--compile-bytecode",))
    return {"title": f"hatch {_version(made)}"}
