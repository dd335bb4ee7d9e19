"""The front end (pip, uv) that runs the build: its options, and the environment it installs into, with its torch."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base import process, resources, untrusted
from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.environments import program
from hatch_torch_ext.facts import labels
from hatch_torch_ext.facts.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledTorch:
    """An installed torch: its ``version`` (``2.13.0+cu130``), and what it was built for."""

    python: Path
    version: str
    backend: Backend
    folder: Path
    nvidia: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The process that started this one."""

    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    folder: Path


def installed_torch(root: Path) -> InstalledTorch | None:
    """Return the torch of the environment that the project in ``root`` is installed into; None if none is found.

    pip, and builds without isolation, run the hook with that environment's own interpreter. uv runs it with an
    interpreter of its cache; its command line, variables or working folder show which environment is meant. A torch in
    the build's own environment comes first if the project does not require it there: then a setting of uv has put it
    there, and it is the torch that will be used (`match-runtime` in `extra-build-dependencies`).
    """
    front_end = parent()
    if _is_uv(front_end) and not _builds_with_torch(root):
        found = _torch_of(Path(sys.executable), None)
        if found is not None:
            return found
    for python in targets(root, front_end):
        found = _torch_of(python, front_end)
        if found is not None:
            return found
    return None


COMMANDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "pip": (frozenset({"install"}), frozenset({"download", "lock", "wheel"})),
    "uv": (
        frozenset({"add", "install", "run", "sync", "tool", "x"}),
        frozenset({"build", "export", "lock", "publish"}),
    ),
    "poetry": (frozenset({"add", "install", "run", "sync", "update"}), frozenset({"build", "lock", "publish"})),
    "pdm": (frozenset({"add", "install", "run", "sync", "update"}), frozenset({"build", "lock", "publish"})),
    "pipenv": (frozenset({"install", "sync", "update", "upgrade"}), frozenset({"lock"})),
}
"""For each front end, the commands that install what they build, and those that build a file for others."""


def installs(front_end: Parent | None) -> bool:
    """Return whether the front end builds this wheel only for the environment into which it installs it."""
    words = [word for word in (front_end.arguments if front_end is not None else ()) if not word.startswith("-")]
    for number, word in enumerate(words):
        name = Path(word).name.rstrip("0123456789.")
        if name == "uvx":
            return True
        if name in COMMANDS:
            installing, exporting = COMMANDS[name]
            first = next((each for each in words[number + 1 :] if each in installing | exporting), None)
            return first in installing
    return False


def keeps_one_wheel(front_end: Parent | None) -> bool:
    """Return whether the front end keeps only one wheel of those in its folder, as pip does.

    ``build``, ``uv`` and ``hatch`` let the hook write into the folder where all wheels stay.
    """
    names = [Path(word).name.rstrip("0123456789.") for word in (front_end.arguments if front_end is not None else ())]
    return "pip" in names[:3]


_PIP_OPTIONS = {
    "--cert": ("PIP_CERT", None),
    "--extra-index-url": ("PIP_EXTRA_INDEX_URL", " "),
    "--find-links": ("PIP_FIND_LINKS", " "),
    "--index-url": ("PIP_INDEX_URL", None),
    "--proxy": ("PIP_PROXY", None),
    "--trusted-host": ("PIP_TRUSTED_HOST", " "),
}
_UV_OPTIONS = {
    "--allow-insecure-host": ("UV_INSECURE_HOST", " "),
    "--default-index": ("UV_DEFAULT_INDEX", None),
    "--extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "--find-links": ("UV_FIND_LINKS", ","),
    "--index": ("UV_INDEX", " "),
    "--index-url": ("UV_INDEX_URL", None),
}
"""The variables for options of front ends, and what separates several values (None: the last one counts)."""
_FLAGS = {"pip": {"--no-index": "PIP_NO_INDEX"}, "uv": {"--no-index": "PIP_NO_INDEX", "--offline": "UV_OFFLINE"}}
_SHORT = {"-f": "--find-links", "-i": "--index-url"}


def set_variables() -> None:
    """Set variables for all programs that are started from here: for an unusable HOME, and the front end's options.

    Front ends do not pass on their options for indexes: without this, ``pip wheel --no-index --find-links wheels .``
    would fetch torch from the public index.
    """
    program.replace_home(program.print_stderr)
    if (front_end := parent()) is not None:
        os.environ.update(index_variables(front_end, os.environ))


def index_variables(front_end: Parent, environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables for the index options on a front end's command line; they extend those of ``environ``."""
    names = [Path(word).name.rstrip("0123456789.") for word in front_end.arguments]
    installer = "uv" if names[:1] == ["uv"] else "pip" if "pip" in names[:3] else ""
    if not installer:
        return {}
    known, variables = (_UV_OPTIONS if installer == "uv" else _PIP_OPTIONS), {}
    words = list(front_end.arguments)
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        option = _SHORT.get(option, option)
        if option in _FLAGS[installer]:
            variables[_FLAGS[installer][option]] = "1"
        if option not in known or not (equals or words[number + 1 :]):
            continue
        variable, separator = known[option]
        value = _absolute(value if equals else words[number + 1], front_end.folder, address=option != "--cert")
        before = variables.get(variable, environ.get(variable, "")) if separator else ""
        listed = [each for each in before.split(separator) if each]
        variables[variable] = (separator or "").join([*listed, *([] if value in listed else [value])])
    return variables


def _absolute(value: str, folder: Path, *, address: bool) -> str:
    """Return an absolute path for one relative to ``folder``, as an address if it has blanks."""
    path = Path(os.path.abspath(folder / value))  # noqa: PTH100 -- links stay
    if "://" in value or not os.path.exists(path):  # noqa: PTH110 -- no error in a folder of others
        return value
    return path.as_uri() if address else str(path)


def parent() -> Parent | None:
    """Return this process's parent as the system describes it, or None if it does not."""
    process_folder = Path("/proc") / str(os.getppid())
    try:
        arguments = (process_folder / "cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
        pairs = (process_folder / "environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
        folder = (process_folder / "cwd").resolve(strict=True)
    except OSError:
        return None
    environ = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return Parent(arguments=tuple(arguments), environ=environ, folder=folder)


def targets(root: Path, front_end: Parent | None) -> Iterator[Path]:
    """Yield the interpreters that may be the target, the most likely first; each exists."""
    if front_end is None or not _is_uv(front_end):
        yield Path(sys.executable)
        return
    for place in _environments_of_uv(root, front_end):
        for python in (place, place / "bin" / "python"):
            if untrusted.is_file(python):
                yield python


def _is_uv(front_end: Parent | None) -> bool:
    return front_end is not None and bool(front_end.arguments) and Path(front_end.arguments[0]).name in {"uv", "uvx"}


def _builds_with_torch(root: Path) -> bool:
    """Return whether the project has torch among the requirements of its build, so that any build installs one."""
    try:
        requires = untrusted.toml((root / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
        return any(canonicalize_name(Requirement(each).name) == "torch" for each in requires)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _environments_of_uv(root: Path, uv: Parent) -> Iterator[Path]:
    named = _option(uv.arguments, "--python", "-p") or uv.environ.get("UV_PYTHON", "")
    if "/" in named:
        yield uv.folder / named
    active = [Path(uv.environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if uv.environ.get(name)]
    above = [folder / ".venv" for folder in (uv.folder, *uv.folder.parents)]
    if "pip" in uv.arguments or "--active" in uv.arguments:
        yield from active
        yield from above
        return
    if project := uv.environ.get("UV_PROJECT_ENVIRONMENT"):
        yield root / project
        return
    yield root / ".venv"
    yield from above


def _option(arguments: Sequence[str], *names: str) -> str:
    for number, argument in enumerate(arguments):
        if argument in names:
            return arguments[number + 1] if number + 1 < len(arguments) else ""
        for name in names:
            if argument.startswith(f"{name}="):
                return argument.removeprefix(f"{name}=")
    return ""


_SEARCH_VARIABLES = ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONUSERBASE")
"""Variables by which a Python finds packages outside of its environment; front ends change them for a build."""


def _torch_of(python: Path, front_end: Parent | None) -> InstalledTorch | None:
    """Return the torch that ``python`` would import, by its files, or None.

    It is found as the user's own processes find it, with the variables of the front end: also in PYTHONPATH (as modules
    of clusters set it) and in the user's site-packages. It is not imported, which takes seconds and needs all libraries
    of its CUDA; so a torch that cannot be imported counts too, and the user's import shows why it fails.
    """
    changes = {name: front_end.environ.get(name) for name in _SEARCH_VARIABLES} if front_end is not None else {}
    command: list[Path | str] = [python, "-I"] if front_end is None else [python]
    try:
        output = process.run([*command, resources.PROBE, "files"], env_changes=changes, timeout=60.0).stdout
    except ProcessError:
        return None
    try:
        answer = untrusted.json(output.splitlines()[-1])
        folder = answer["torch"]
        text = Path(folder, "version.py").read_text(encoding="utf-8")
        values = labels.version_values(text)
        version = values["__version__"]
        backend = Backend.of_torch(values)
    except (IndexError, KeyError, OSError, TypeError, ValueError):
        return None
    if not version:
        return None
    return InstalledTorch(
        python=python,
        version=version,
        backend=backend,
        folder=Path(folder),
        nvidia=tuple(map(Path, answer["nvidia"])),
    )
