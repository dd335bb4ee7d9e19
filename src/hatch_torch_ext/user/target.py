"""The Python to install into: which one it is, and its facts on which a choice depends."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags

from hatch_torch_ext.base import process, resources, untrusted, uv
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOADER = resources.FOLDER / "_variants.py"
"""The loader of every package. It reads the facts here too, so that they are those by which it chooses."""
TIMEOUT = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPython:
    """``facts`` are the loader's (``torch`` is "" if there is none); ``named_by`` is what selected this Python."""

    python: Path
    named_by: str
    facts: Mapping[str, Any]

    @property
    def python_version(self) -> str:
        """Return the Python version (``3.11``)."""
        digits = str(self.facts["python"]).removeprefix("cp").rstrip("t")
        return f"{digits[0]}.{digits[1:]}" if digits.isdigit() else f"{sys.version_info[0]}.{sys.version_info[1]}"

    @property
    def tags(self) -> frozenset[Tag]:
        """Return the wheel tags that this Python accepts."""
        major, _, minor = self.python_version.partition(".")
        version = int(major), int(minor)
        platforms = list(platform_tags())
        abis = [str(self.facts["python"])]
        tags = {*cpython_tags(version, abis=abis, platforms=platforms)}
        return frozenset(tags | set(compatible_tags(version, platforms=platforms)))


def find(given: Path | None, environ: Mapping[str, str], *, folder: Path, with_torch: bool = False) -> TargetPython:
    """Return the Python to install into: ``given``, else the active environment, else ``.venv`` below ``folder``.

    ``with_torch`` imports its torch, which takes seconds; a torch that cannot be imported counts as none. Raises
    ``ConfigurationError`` if the Python cannot be run.
    """
    python, named_by = _which(given, environ, folder)
    try:
        facts = (_facts(python, _READ) if with_torch else None) or _facts(python, _READ_WITHOUT_TORCH)
    except ProcessError as error:
        raise ConfigurationError(f"{error} ({named_by}). Name another Python with --python.") from error
    if facts is None:
        raise ConfigurationError(f"{python} ({named_by}) is not a Python that works. Name another with --python.")
    return TargetPython(python=python, named_by=named_by, facts=facts)


def torch_version(target: TargetPython) -> str:
    """Return the version of the installed torch, by its metadata; "" if there is none."""
    command = [str(target.python), "-c", "import importlib.metadata; print(importlib.metadata.version('torch'))"]
    try:
        done = process.run(command, check=False, timeout=TIMEOUT, env_changes={"PYTHONSAFEPATH": "1"}, limit=1 << 20)
    except ProcessError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def pip_install(target: TargetPython) -> tuple[str, ...]:
    """Return the command that installs into the target, up to the packages: by uv if it is here, else by its pip."""
    program = uv.installed()
    if program is not None:  # an environment that uv made has no pip
        return program, "pip", "install", "--python", str(target.python)
    return str(target.python), "-m", "pip", "install"


_TYPED = re.compile(r"(?<![\w./-])(?<!-m )(?<!uv )(uv pip install|pip install|python -m)(?= )(?! --python)")
"""A command of a message that acts on whatever environment the shell has."""


def there(target: TargetPython, text: str, *, folder: Path | None = None) -> str:
    """Return a message whose commands act on the target, wherever they are typed.

    ``folder`` is where pip's ``--target`` put the package, if not into the target's own folder.
    """
    python = shlex.quote(str(target.python))
    inside = ["--upgrade", "--target", str(folder)] if folder is not None else []
    commands = {
        "pip install": shlex.join([*pip_install(target), *inside]),
        "uv pip install": f"uv pip install --python {python}",
        "python -m": f"{python} -m",
    }
    return _TYPED.sub(lambda found: commands[found[1]], text)


_READ = "import runpy, sys; sys.argv[:] = ['-', '--json']; runpy.run_path({loader!r}, run_name='__main__')"
_READ_WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; " + _READ


def _facts(python: Path, program: str) -> Mapping[str, Any] | None:
    """Run the loader in that Python; return None if it prints no facts."""
    command = [str(python), "-c", program.format(loader=str(LOADER))]
    # PYTHONSAFEPATH: a file in the current folder must not be imported as torch. TORCH_EXT_VARIANT is for packages.
    changes = {"PYTHONSAFEPATH": "1", "TORCH_EXT_VARIANT": None}
    done = process.run(command, check=False, timeout=TIMEOUT, env_changes=changes)
    try:
        facts = untrusted.json(done.stdout)["facts"]
    except (ValueError, KeyError, TypeError):
        return None
    return facts if isinstance(facts, dict) else None


def _which(given: Path | None, environ: Mapping[str, str], folder: Path) -> tuple[Path, str]:
    if given is not None:
        python = given / "bin" / "python" if given.is_dir() else given
        return python, "--python"
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(name):
            return Path(environ[name]) / "bin" / "python", name
    own = folder / ".venv" / "bin" / "python"
    if own.exists():
        return Path(os.path.abspath(own)), ".venv of this folder"  # noqa: PTH100 -- links stay: they are the environment
    return Path(sys.executable), "the Python of this command"
