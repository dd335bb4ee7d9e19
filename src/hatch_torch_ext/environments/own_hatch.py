"""hatch, to read a matrix and to make environments: the one that is importable here, else one made once and kept.

hatch brings 30 packages, keyring and cryptography among them; an isolated build that had them would install them again
each time. They lie in a folder of the user's cache instead, which uv fills in a second.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

from hatch_torch_ext import process
from hatch_torch_ext.errors import ConfigurationError, ProcessError
from hatch_torch_ext.remote import pipfiles, settings

REQUIREMENT = "hatch>=1.14"
KIND = "hatch"
"""The folder of the store that they lie in."""


def folder() -> Path | None:
    """Return the folder to put before this Python's path; None where hatch is importable. Made where it is missing.

    Raises ``ConfigurationError`` where it cannot be had.
    """
    if importlib.util.find_spec("hatch") is not None:
        return None
    kept = _place()
    if _finished(kept):
        return kept
    try:
        _make(kept)
    except (OSError, ProcessError) as error:
        said = process.tail(error.output) if isinstance(error, ProcessError) else str(error)
        raise ConfigurationError(
            [
                f"hatch, which reads the matrix, is not installed here and cannot be installed into {kept}:\n{said}\n"
                "Give it to "
                f'the build itself: `requires = ["hatchling", "hatch-torch-ext", "hatch"]` in `[build-system]`.'
            ]
        ) from error
    return kept


def version() -> str:
    """Return the version of the hatch that is used."""
    where = folder()
    if where is None:
        return metadata.version("hatch")
    return next(iter(metadata.distributions(name="hatch", path=[str(where)]))).version


def _place() -> Path:
    named = os.environ.get("HATCH_TORCH_EXT_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 -- no error without a home
    root = Path(named).absolute() if named else Path(home, "hatch-torch-ext")
    facts = (REQUIREMENT, sys.implementation.cache_tag, sysconfig.get_config_var("SOABI"), sysconfig.get_platform())
    return root / KIND / hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _finished(kept: Path) -> bool:
    """Whether the folder is there, whole, and this user's: its code is run."""
    try:
        return kept.stat().st_uid == os.getuid() and (kept / "hatch" / "cli" / "__init__.py").is_file()
    except OSError:
        return False


def _make(kept: Path) -> None:
    """Fill a folder beside it, and rename: whoever comes at the same time finds one that is whole."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=kept.parent, prefix="unfinished-"))
    environ = {**pipfiles.variables(os.environ), **os.environ}
    changes: dict[str, str | None] = {**settings.for_uv(environ), "UV_PYTHON": None, "UV_SYSTEM_PYTHON": None}
    no_index = changes.get("UV_NO_INDEX") or environ.get("UV_NO_INDEX")
    options = [
        *(["--no-index"] if no_index else []),
        "--quiet",
        "--no-config",
        "--compile-bytecode",
        "--python",
        sys.executable,
        "--target",
    ]
    try:
        process.run([_uv(), "pip", "install", *options, scratch, REQUIREMENT], cwd=scratch, env_changes=changes)
        scratch.chmod(0o755)
        if not _finished(kept):
            shutil.rmtree(kept, ignore_errors=True)
            try:
                scratch.rename(kept)
            except OSError:
                if not _finished(kept):
                    raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _uv() -> str:
    named = os.environ.get("HATCH_UV") or os.environ.get("UV")
    if named and Path(named).is_file():
        return named
    import uv

    return uv.find_uv_bin()
