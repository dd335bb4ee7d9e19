"""The command line of hatch, outside of the build's own environment: the importable hatch, else one that is kept.

hatch requires 30 packages, among them keyring, cryptography and rich's pygments, which every isolated build would
install again. They are in the user's store instead, sealed like an SDK, since their code is run; uv installs them in a
second.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
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
    from collections.abc import Callable, Mapping, Sequence
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
    uv.install_into(
        made,
        REQUIREMENTS,
        changes=changes,
        without_index=settings.without_index(environ),
        options=("--compile-bytecode",),
    )
    return {"title": f"hatch {_version(made)}"}


ACTIVE = "HATCH_TORCH_EXT_ACTIVE"
"""Set for every program that this hook starts: a build that finds it was started by another build."""

RECURSION = (
    "This build was started by a build of the same kind: an environment of the matrix installs the project, which "
    "one of its dependencies requires. Take that dependency out, and install both by a script of the environment."
)
"""The message if ``ACTIVE`` is set."""

_FOREIGN = (
    # What the build's front end set for itself.
    "HATCH_ENV",
    "HATCH_ENV_ACTIVE",
    "HATCH_PYTHON",
    "PIP_BUILD_TRACKER",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
    # What would make an environment's packages come from elsewhere, add others, or install none.
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
    # What changes the output that is parsed here.
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
    return _python("from hatch.cli import main; sys.exit(main())", arguments, cwd=cwd, changes=changes, report=report)


def run_script(script: Path, *, cwd: Path) -> process.Completed:
    """Run the Python file ``script`` with a Python that can import hatch. Raises ``ProcessError`` if it fails."""
    code = "import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
    return _python(code, [str(script)], cwd=cwd, changes={})


def _python(
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
    kept = folder(report)
    path = json.dumps([*([str(kept)] if kept is not None else []), *(entry for entry in sys.path if entry)])
    own: dict[str, str | None] = dict.fromkeys(_FOREIGN)
    own.update({ACTIVE: "1", "HATCH_INTERACTIVE": "0", "NO_COLOR": "1", "COLUMNS": "200"})
    own.update({"HATCH_PROJECT": None, "FORCE_COLOR": None})
    return process.run([sys.executable, "-c", start, path, *arguments], cwd=cwd, env_changes={**own, **changes})


def message(output: str) -> str:
    """Return the end of hatch's output without its tracebacks, which it draws in boxes: the rest says what happened."""
    return process.tail("\n".join(line for line in output.splitlines() if line[:1] not in "╭│╰"))
