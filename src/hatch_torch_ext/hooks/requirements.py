"""What the build of a wheel needs besides this package: its extra ``build``, requested when a wheel is built.

Metadata and sdists need none of it, so an isolated build of only these installs few packages.
"""

from __future__ import annotations

import re
import shutil
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.environments import program

EXTRA = "build"
_PROGRAMS = ("cmake", "ninja")
_BESIDES = ("editables",)  # hatchling requests it itself
_KEPT = ("hatch", "rich")


def of_a_wheel() -> list[str]:
    """Return the requirements, sorted; cmake and ninja only if those of the machine are missing or too old.

    hatch and rich have a separate environment (``environments.program``). If it cannot be made, they are among the
    requirements, and the front end installs them with its own settings.
    """
    found = []
    for line in metadata.requires("hatch-torch-ext") or []:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        is_ours = requirement.marker is not None and requirement.marker.evaluate({"extra": EXTRA})
        if not is_ours or name in _BESIDES or (name in _PROGRAMS and serves(name, requirement)):
            continue
        if name in _KEPT and _kept():
            continue
        requirement.marker = None
        found.append(str(requirement))
    return sorted(found)


def serves(name: str, requirement: Requirement) -> bool:
    """Return whether a program of that name is on PATH and new enough."""
    path = shutil.which(name)
    if path is None:
        return False
    try:
        output = process.run([path, "--version"], timeout=60.0).stdout
    except ProcessError:
        return False
    version = re.search(r"\d+(?:\.\d+)+", output)
    return version is not None and requirement.specifier.contains(Version(version[0]), prereleases=True)


def _kept() -> bool:
    try:
        program.folder()
    except ConfigurationError:
        return False
    return True
