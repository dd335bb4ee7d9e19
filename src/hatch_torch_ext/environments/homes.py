"""Replaces the places in the user's HOME that hatch, uv and this package need, where this process cannot use them.

Containers and CI systems run builds as a user without a home (``docker run -u``), or with the HOME of another user
(``setpriv``). hatch then stops at its configuration file, and uv at its cache.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext import store
from hatch_torch_ext.base import toml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONFIGURATION = "HATCH_CONFIG"


def replace(report: Callable[[str], None]) -> None:
    """Set variables for the places that cannot be used, for this process and all that it starts.

    ``report`` is called once: a process that finds the variables has nothing to replace.
    """
    unusable = {name: place for name, place in _places(os.environ).items() if not _usable(name, place)}
    if not unusable:
        return
    listed = ", ".join(map(str, unusable.values()))
    who = f"this process (uid {os.geteuid()}) cannot use {listed}"
    folder = Path(_temporary(), f"hatch-torch-ext-{os.geteuid()}")
    remedy = f"set HOME to a folder that it can write, or the variables {', '.join(unusable)}"
    if not _is_private(folder):
        report(f"{who}, nor {folder} instead: {remedy}")
        return
    defaults = ", hatch with its defaults" if CONFIGURATION in unusable else ""
    report(f"{who}: {folder} is used instead{defaults}. To keep what is cached, {remedy}")
    for name in unusable:
        os.environ[name] = str(folder / name.lower())
    if CONFIGURATION in unusable:
        Path(os.environ[CONFIGURATION]).touch()


def configuration(environ: Mapping[str, str]) -> Path:
    """Return hatch's own configuration file, whether or not it exists."""
    if named := environ.get(CONFIGURATION):
        return Path(named)
    return _below(environ, "XDG_CONFIG_HOME", ".config") / "hatch" / "config.toml"


def fault(environ: Mapping[str, str], output: str) -> str | None:
    """Return the remedy if hatch, whose output is ``output``, failed because of its own configuration, else None."""
    file = configuration(environ)
    if "Error parsing config:" not in output:  # hatch's words for a value of the wrong type
        try:
            toml.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if not environ.get(CONFIGURATION):
                return None
        except (OSError, ValueError):
            pass
        else:
            return None
    named = f"`{CONFIGURATION}`, or `unset {CONFIGURATION}`" if environ.get(CONFIGURATION) else f"`{CONFIGURATION}`"
    return f"Correct {file}, which is hatch's own configuration, or name another file with {named}."


def _places(environ: Mapping[str, str]) -> dict[str, Path]:
    """Return variable -> place in HOME, of the variables that are not set."""
    caches = _below(environ, "XDG_CACHE_HOME", ".cache")
    every = {
        CONFIGURATION: configuration(environ),
        "HATCH_DATA_DIR": _data(environ),
        store.VARIABLE: caches / "hatch-torch-ext",
        "UV_CACHE_DIR": caches / "uv",
    }
    return {name: place for name, place in every.items() if not environ.get(name)}


def _data(environ: Mapping[str, str]) -> Path:
    """Return the folder in which hatch makes environments."""
    try:
        settings: Any = toml.loads(configuration(environ).read_text(encoding="utf-8"))
        return Path(os.path.expandvars(settings["dirs"]["data"])).expanduser()
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return _below(environ, "XDG_DATA_HOME", ".local/share") / "hatch"


def _below(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    # Not `Path.home`, which raises an error for a user without a home; here the path then begins with `~`.
    return Path(environ.get(variable) or os.path.join(environ.get("HOME") or os.path.expanduser("~"), usual))  # noqa: PTH111, PTH118


def _usable(name: str, place: Path) -> bool:
    """Return whether a folder can be written or made at ``place``, or hatch's configuration can be read there."""
    if name == CONFIGURATION:
        try:
            with place.open("rb"):
                return True
        except FileNotFoundError:  # hatch writes one
            pass
        except OSError:
            return False
    for folder in (place, *place.parents):
        try:
            folder.stat()
        except FileNotFoundError:
            continue
        except OSError:
            return False
        return place.is_absolute() and os.access(folder, os.W_OK | os.X_OK)
    return False


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return "/tmp"  # noqa: S108 -- for the message: nothing can be made there


def _is_private(folder: Path) -> bool:
    """Make the folder if need be; return whether it is only this user's: others may have made it before."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
