"""The command line of hatch, outside of the build's own environment; and the paths in HOME that it and uv need.

hatch requires 30 packages, among them keyring, cryptography and rich's pygments, which every isolated build would
install again. If hatch cannot be imported, uv installs them into the user's store, in a second. There they are sealed
like an SDK, since their code is run.

Containers and CI systems run builds as a user without a home (``docker run -u``), or with the HOME of another user
(``setpriv``). hatch then fails at its configuration file, and uv at its cache: other paths are used instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import stat
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext import store
from hatch_torch_ext.base import escape, process, redact, untrusted, uv
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.remote import pipconfig, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CONFIGURATION = "HATCH_CONFIG"


def replace_home(report: Callable[[str], None]) -> None:
    """Set variables to replace the paths that cannot be used, for this process and all that it starts.

    ``report`` is called once: a process that finds the variables has nothing to replace.
    """
    unusable = {name: path for name, path in _paths(os.environ).items() if not _is_usable(name, path)}
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


def home_fault(environ: Mapping[str, str], output: str) -> str | None:
    """Return the remedy if hatch, whose output is ``output``, failed because of its own configuration, else None."""
    file = configuration(environ)
    if "Error parsing config:" not in output:  # hatch's words for a value of the wrong type
        try:
            untrusted.toml(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if not environ.get(CONFIGURATION):
                return None
        except (OSError, ValueError):
            pass
        else:
            return None
    named = f"`{CONFIGURATION}`, or `unset {CONFIGURATION}`" if environ.get(CONFIGURATION) else f"`{CONFIGURATION}`"
    return f"Correct {file}, which is hatch's own configuration, or name another file with {named}."


def _paths(environ: Mapping[str, str]) -> dict[str, Path]:
    """Return variable -> path in HOME, of the variables that are not set."""
    caches = _below(environ, "XDG_CACHE_HOME", ".cache")
    every = {
        CONFIGURATION: configuration(environ),
        "HATCH_DATA_DIR": _data(environ),
        store.VARIABLE: caches / "hatch-torch-ext",
        "UV_CACHE_DIR": caches / "uv",
    }
    return {name: path for name, path in every.items() if not environ.get(name)}


def _data(environ: Mapping[str, str]) -> Path:
    """Return the folder in which hatch makes environments."""
    try:
        settings: Any = untrusted.toml(configuration(environ).read_text(encoding="utf-8"))
        return Path(os.path.expandvars(settings["dirs"]["data"])).expanduser()
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return _below(environ, "XDG_DATA_HOME", ".local/share") / "hatch"


def _below(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    # Not `Path.home`, which raises an error for a user without a home; here the path then begins with `~`.
    return Path(environ.get(variable) or os.path.join(environ.get("HOME") or os.path.expanduser("~"), usual))  # noqa: PTH111, PTH118


def _is_usable(name: str, path: Path) -> bool:
    """Return whether a folder can be written or made at ``path``, or hatch's configuration can be read there."""
    if name == CONFIGURATION:
        try:
            with path.open("rb"):
                return True
        except FileNotFoundError:  # hatch writes one
            pass
        except OSError:
            return False
    for folder in (path, *path.parents):
        try:
            folder.stat()
        except FileNotFoundError:
            continue
        except OSError:
            return False
        return path.is_absolute() and os.access(folder, os.W_OK | os.X_OK)
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
        return store.open_store(root, report or print_stderr).make(KIND, key, _fill)[0]
    except (OSError, ProcessError) as error:
        message = process.tail(error.words) if isinstance(error, ProcessError) else str(error)
        raise ConfigurationError(
            f"hatch, which reads the matrix, is not installed, and cannot be installed into {root}:\n{message}\n"
            "Add it to the requirements of the build: "
            f'`requires = ["hatchling", "hatch-torch-ext", "hatch"]` in `[build-system]`.'
        ) from error


def print_stderr(text: str) -> None:
    """Print to stderr: while hatchling makes metadata, hooks have no other way to print."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no stderr, or a closed one
        sys.stderr.write(f"torch-ext: {escape.line(redact.clean(text))}\n")


def make_rich_importable() -> None:
    """Make rich importable from ``folder`` if it is not installed here. Raises ``ConfigurationError`` as that does."""
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
    environ = pipconfig.merged(os.environ)
    changes: dict[str, str | None] = {**settings.for_uv(environ), "UV_PYTHON": None, "UV_SYSTEM_PYTHON": None}
    uv.install_into(
        made,
        REQUIREMENTS,
        changes=changes,
        without_index=settings.without_index(environ),
        options=("--compile-bytecode",),
    )
    return {"title": f"hatch {_version(made)}"}


ACTIVE = "HATCH_TORCH_EXT_ACTIVE"
"""Set for every program that this hook starts, so a build that another build started finds it."""

RECURSION = (
    "This build was started by a build of the same kind: an environment of the matrix installs the project, which "
    "one of its dependencies requires. Remove that dependency, and install both in a script of the environment."
)
"""The message of a build that finds ``ACTIVE``."""

_FOREIGN = (
    # Set by the build's front end for itself.
    "HATCH_ENV",
    "HATCH_ENV_ACTIVE",
    "HATCH_PYTHON",
    "PIP_BUILD_TRACKER",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
    # These would install an environment's packages elsewhere, add others, or install none.
    "PIP_DRY_RUN",
    "PIP_IGNORE_INSTALLED",
    "PIP_NO_DEPS",
    "PIP_PREFIX",
    "PIP_PYTHON",
    "PIP_REQUIREMENT",
    "PIP_ROOT",
    "PIP_TARGET",
    "PIP_USER",
    "UV_PROJECT",
    "UV_PROJECT_ENVIRONMENT",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_WORKING_DIR",
    # These change the output that is parsed here.
    "HATCH_QUIET",
    "HATCH_VERBOSE",
)
"""Variables that must not reach the environments that are made here: each has its own interpreter and packages."""


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    changes: Mapping[str, str | None],
    report: Callable[[str], None] | None = None,
) -> process.Completed:
    """Run hatch with ``arguments`` in ``cwd``. Raises ``ProcessError`` if it fails."""
    code = "from hatch.cli import main; sys.exit(main())"
    return _run_python(code, arguments, cwd=cwd, changes=changes, report=report)


def run_script(script: Path, *, cwd: Path) -> process.Completed:
    """Run the Python file ``script`` with a Python that can import hatch. Raises ``ProcessError`` if it fails."""
    code = "import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
    return _run_python(code, [str(script)], cwd=cwd, changes={})


def _run_python(
    code: str,
    arguments: Sequence[str],
    *,
    cwd: Path,
    changes: Mapping[str, str | None],
    report: Callable[[str], None] | None = None,
) -> process.Completed:
    # PYTHONPATH, by which some front ends provide packages, must not reach the interpreters that hatch starts, so the
    # path is an argument.
    start = f"import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); {code}"
    packages = folder(report)
    path = json.dumps([*([str(packages)] if packages is not None else []), *(entry for entry in sys.path if entry)])
    always: dict[str, str | None] = dict.fromkeys(_FOREIGN)
    always |= {ACTIVE: "1", "HATCH_INTERACTIVE": "0", "NO_COLOR": "1", "COLUMNS": "200"}
    always |= {"HATCH_PROJECT": None, "FORCE_COLOR": None}
    return process.run([sys.executable, "-c", start, path, *arguments], cwd=cwd, env_changes={**always, **changes})


def last_output(output: str) -> str:
    """Return the end of hatch's output without its tracebacks, which it draws in boxes: the rest has the reason."""
    return process.tail("\n".join(line for line in output.splitlines() if line[:1] not in "╭│╰"))
