"""The command line of hatch, run outside of the build's own environment."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from hatch_torch_ext.base import process
from hatch_torch_ext.environments import own_hatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

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
    kept = own_hatch.folder(report)
    path = json.dumps([*([str(kept)] if kept is not None else []), *(entry for entry in sys.path if entry)])
    own: dict[str, str | None] = dict.fromkeys(_FOREIGN)
    own.update({ACTIVE: "1", "HATCH_INTERACTIVE": "0", "NO_COLOR": "1", "COLUMNS": "200"})
    own.update({"HATCH_PROJECT": None, "FORCE_COLOR": None})
    return process.run([sys.executable, "-c", start, path, *arguments], cwd=cwd, env_changes={**own, **changes})


def message(output: str) -> str:
    """Return the end of hatch's output without its tracebacks, which it draws in boxes: the rest says what happened."""
    return process.tail("\n".join(line for line in output.splitlines() if line[:1] not in "╭│╰"))
