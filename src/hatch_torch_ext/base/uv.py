"""uv: which program it is, in one place, and packages that it installs into a separate folder."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

VARIABLE = "HATCH_UV"
"""The variable by which hatch, and whoever runs it, names the uv to use."""


def installed() -> str | None:
    """Return uv's path, or None if there is none: HATCH_UV, the package, the uv that started this process, PATH.

    Raises ``ConfigurationError`` if HATCH_UV names something else.
    """
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(os.path.expanduser(named))  # noqa: PTH111 -- a text
        if found is None:
            raise ConfigurationError(
                f"{VARIABLE} is `{named}`, which is not a program: set it to uv's path, or unset it."
            )
        return os.path.abspath(found)  # noqa: PTH100 -- links stay
    try:
        import uv  # noqa: PLC0415 -- users may have pip only

        return uv.find_uv_bin()
    except (ImportError, FileNotFoundError):
        started_by = os.environ.get("UV", "")
        return started_by if os.path.isfile(started_by) else shutil.which("uv")  # noqa: PTH113 -- a text


def find() -> str:
    """Return uv's path. Raises ``ConfigurationError`` if there is none."""
    found = installed()
    if found is None:
        raise ConfigurationError(f"uv is not installed: pip install uv, or set {VARIABLE} to its path.")
    return found


def install_into(
    folder: Path,
    requirements: Sequence[str],
    *,
    changes: Mapping[str, str | None],
    without_index: bool = False,
    options: Sequence[str] = (),
    timeout: float | None = None,
) -> None:
    """Install ``requirements`` into ``folder``, whose files cannot be written afterwards; ``changes`` are of variables.

    ``without_index`` is an argument, since uv has no variable for its option. Raises ``ProcessError``.
    """
    command = [find(), "pip", "install", "--quiet", "--no-config", "--link-mode", "copy", "--python", sys.executable]
    command += [*(["--no-index"] if without_index else []), *options, "--target", str(folder), *requirements]
    process.run(command, cwd=folder, env_changes=changes, timeout=timeout)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o555 if path.stat().st_mode & 0o100 else 0o444)
